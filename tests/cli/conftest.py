from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.administering import Command, runner
from tests.wire import BrokerThread


@pytest.fixture
def broker() -> Iterator[BrokerThread]:
    """A broker of this test's own: what another test of the file declared would be in its lists and exports."""
    with BrokerThread() as thread:
        yield thread


@pytest.fixture
def run(broker: BrokerThread, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command, whose environment names the broker."""
    return runner(monkeypatch, capsys, broker.broker.url)
