"""Watermarks: alarms come and go with what the gauges say, and with the marks."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from harebell.broker.operations.alarms import MEASURE_MS, Machine, Watermarks, memory_total
from harebell.config import Limits
from tests.broker.kit import NodeKit

GB = 10**9


class Dial:
    """Gauges that say what a test sets."""

    memory_total: int | None = 10 * GB

    def __init__(self) -> None:
        self.used: int | None = GB
        self.free: int | None = GB
        self.given_back = 0

    def memory_used(self) -> int | None:
        return self.used

    def disk_free(self) -> int | None:
        return self.free

    def give_back_memory(self) -> None:
        self.given_back += 1


@pytest.fixture
def dial(kit: NodeKit) -> Dial:
    dial = Dial()
    Watermarks(kit.node, dial).start()
    return dial


def look(kit: NodeKit) -> set[str]:
    kit.pass_time(MEASURE_MS)
    return set(kit.node.alarms)


def test_memory(kit: NodeKit, dial: Dial) -> None:
    assert look(kit) == set()
    dial.used = 6 * GB
    assert look(kit) == set()  # not over it
    dial.used = 6 * GB + 1
    assert look(kit) == {"memory"}
    assert dial.given_back == 0
    dial.used = int(5.9 * GB)
    assert look(kit) == {"memory"}  # not far enough below it
    assert dial.given_back == 1
    dial.used = int(5.6 * GB)
    assert look(kit) == set()


def test_disk(kit: NodeKit, dial: Dial) -> None:
    dial.free = 50_000_000
    assert look(kit) == set()
    dial.free = 49_999_999
    assert look(kit) == {"disk"}
    dial.free = 51_000_000
    assert look(kit) == {"disk"}
    dial.free = 53_000_000
    assert look(kit) == set()


def test_other_marks_hold_at_once(kit: NodeKit, dial: Dial) -> None:
    kit.node.set_limits(Limits(memory_high_watermark=500_000_000, disk_free_limit=2 * GB))
    assert look(kit) == {"memory", "disk"}
    kit.node.set_limits(Limits(memory_high_watermark=0, disk_free_limit=0))
    assert look(kit) == set()


def test_what_cannot_be_measured_raises_nothing(kit: NodeKit, dial: Dial) -> None:
    dial.used = dial.free = None
    kit.node.set_limits(dataclasses.replace(Limits(), memory_high_watermark=1, disk_free_limit=GB))
    assert look(kit) == set()
    dial.used, dial.memory_total = 9 * GB, None
    kit.node.set_limits(Limits())
    assert look(kit) == set()


def test_the_programs_own_alarm_stays(kit: NodeKit, dial: Dial) -> None:
    kit.node.raise_alarm("memory")
    assert look(kit) == {"memory"}


def test_this_machine(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    used, free = machine.memory_used(), machine.disk_free()
    assert used is not None
    assert machine.memory_total is not None
    assert 1_000_000 < used < machine.memory_total
    assert free is not None
    assert 0 < free <= os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize
    machine.give_back_memory()
    assert Machine(tmp_path / "gone").disk_free() is None


def test_memory_that_is_freed_goes_back(tmp_path: Path) -> None:
    """Else an alarm would never end: the C library keeps what is free below something that is in use."""
    machine = Machine(tmp_path)
    held = [b"x" * 20_000 for _ in range(10_000)]
    last = held.pop()
    full = machine.memory_used()
    held.clear()
    machine.give_back_memory()
    used = machine.memory_used()
    assert full is not None
    assert used is not None
    assert used < full - 100_000_000
    assert last


@pytest.mark.parametrize(
    "files, least",
    [
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": "4096\n"}, 4096),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "8192\n"}, 8192),
        ({"sys/fs/cgroup/memory/memory.limit_in_bytes": "12288\n"}, 12288),
        ({"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"}, None),
    ],
)
def test_a_control_group_may_allow_less_than_the_machine_has(
    tmp_path: Path, files: dict[str, str], least: int | None
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert memory_total(tmp_path) == (least or total)
