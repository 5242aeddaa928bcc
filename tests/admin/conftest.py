from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.admin.kit import Api, ApiThread


@pytest.fixture(scope="package")
def serving() -> Iterator[ApiThread]:
    """A broker with its API, for all tests of a process that clean up what they make."""
    with ApiThread() as thread:
        yield thread


@pytest.fixture
def own() -> Iterator[ApiThread]:
    """A broker with its API for one test."""
    with ApiThread() as thread:
        yield thread


@pytest.fixture
def api(own: ApiThread) -> Api:
    """guest, at a broker of this test's own."""
    return own.api()
