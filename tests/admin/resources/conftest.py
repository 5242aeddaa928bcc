from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.admin.kit import Api, ApiThread


@pytest.fixture
def guest(serving: ApiThread) -> Api:
    return serving.api()


@pytest.fixture
def vhost(serving: ApiThread, guest: Api) -> Iterator[str]:
    """A virtual host of this test's own."""
    name = f"v{uuid.uuid4().hex}"
    assert guest.put(f"/api/vhosts/{name}") == 201
    yield name
    guest("DELETE", f"/api/vhosts/{name}")
