from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.admin.kit import ApiThread
from tests.cli.administering import Command, runner


@pytest.fixture(scope="package")
def serving() -> Iterator[ApiThread]:
    """A broker with its API, for all tests of a process: each works in a virtual host of its own."""
    with ApiThread() as thread:
        yield thread


@pytest.fixture
def run(serving: ApiThread, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command, whose environment names the broker's HTTP API."""
    monkeypatch.setenv("HAREBELL_HTTP_URL", f"http://guest:guest@127.0.0.1:{serving.api_port}")
    return runner(monkeypatch, capsys)


@pytest.fixture
def vhost(serving: ApiThread) -> Iterator[str]:
    """A virtual host of this test's own."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    api = serving.api()
    assert api.put(f"/api/vhosts/{name}") == 201
    yield name
    assert api("DELETE", f"/api/vhosts/{name}").status == 204
