"""The gauges of this process."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from harebell.admin.history import machine
from harebell.admin.history.machine import Gauges
from harebell.broker.node import Node

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")


@pytest.fixture
def gauges(tmp_path: Path) -> Gauges:
    return Gauges(cast("Node", SimpleNamespace()), tmp_path)


def test_descriptors_are_counted(gauges: Gauges) -> None:
    before, more = gauges.descriptors_used, 50
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(more)]
    try:
        assert gauges.descriptors_used == before + more
    finally:
        for each in opened:
            os.close(each)


def test_descriptors_are_listed_where_the_folder_does_not_say_their_number(
    gauges: Gauges, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As before Linux 6.2, which says 0."""

    class Sizeless:
        def stat(self) -> SimpleNamespace:
            return SimpleNamespace(st_size=0)

        def __fspath__(self) -> str:
            return str(tmp_path)

    for number in range(3):
        (tmp_path / str(number)).touch()
    monkeypatch.setattr(machine, "DESCRIPTORS", Sizeless())
    assert gauges.descriptors_used == 3
    monkeypatch.setattr(machine, "DESCRIPTORS", tmp_path / "missing")
    assert gauges.descriptors_used == 0
