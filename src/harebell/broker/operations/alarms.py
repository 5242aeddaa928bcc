"""Watermarks of memory and disk: beyond them publishers are blocked; consumers never are, because they free resources.

They are checked on a timer and not per message, so a fast publisher may exceed a mark by what it sends between two
checks. An alarm ends a little below its mark (`EASE`), so that it does not change with every message.

Memory is what the process occupies, by the kernel's count; the machine's memory is the least of its own and the limits
of the control groups that the process is in. Memory that Python has freed counts while the C library holds it, so
during an alarm the library is asked to return it. Without /proc, memory is not watched.
"""

from __future__ import annotations

import ctypes
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from harebell.broker.node import Node

__all__ = ["Gauges", "Machine", "Watermarks"]

MEASURE_MS: Final = 500
STATM: Final = Path("/proc/self/statm")
EASE: Final = 0.05  # the part of a mark by which the value must recover before the alarm ends

log = logging.getLogger("harebell.broker")


class Gauges(Protocol):
    """The measured values, in bytes; None for one that cannot be measured."""

    memory_total: int | None

    def memory_used(self) -> int | None: ...
    def disk_free(self) -> int | None: ...
    def give_back_memory(self) -> None:
        """Return freed memory to the kernel."""


class Machine:
    """The gauges of this process and of the disk that a folder is on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        self.memory_total = memory_total()

    def memory_used(self) -> int | None:
        try:
            return int(STATM.read_bytes().split()[1]) * self._page
        except OSError:
            return None

    def disk_free(self) -> int | None:
        try:
            found = os.statvfs(self._folder)
        except OSError:
            return None
        return found.f_bavail * found.f_frsize

    def give_back_memory(self) -> None:
        if self._trim is not None:  # glibc's
            self._trim(0)


def memory_total(root: Path = Path("/")) -> int | None:
    """Bytes of memory that this process may use: the machine's, or a control group's lower limit."""
    found = []
    with suppress(ValueError, OSError):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    groups = root / "sys/fs/cgroup"
    files = [groups / "memory.max", groups / "memory/memory.limit_in_bytes"]  # a container's own: version 2, 1
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            group = Path(line.partition("::")[2].lstrip("/"))
            files += [groups / each / "memory.max" for each in (group, *group.parents)]
    for file in files:
        with suppress(OSError, ValueError):  # "max" means no limit
            found.append(int(file.read_text()))
    return min(found, default=None)


class Watermarks:
    """Raises and clears the node's alarms "memory" and "disk" by `node.limits`, from `start` on."""

    def __init__(self, node: Node, gauges: Gauges) -> None:
        self._node, self._gauges = node, gauges
        self._raised: set[str] = set()  # by this object; the program's own alarms are not in it

    def start(self) -> None:
        self._measure()

    def _measure(self) -> None:
        limits, gauges = self._node.limits, self._gauges
        mark: float = limits.memory_high_watermark
        if isinstance(mark, float):
            mark *= gauges.memory_total or 0
        if "memory" in self._raised:
            gauges.give_back_memory()
        used, free = gauges.memory_used(), gauges.disk_free()
        if used is not None:
            figures = f"{used} bytes in use, the mark is {mark:.0f}"
            self._judge("memory", bool(mark) and used > mark, not mark or used < mark * (1 - EASE), figures)
        if free is not None:
            least = limits.disk_free_limit
            self._judge("disk", free < least, free >= least * (1 + EASE), f"{free} bytes free, the mark is {least}")
        timers = self._node.timers
        timers.at(timers.now() + MEASURE_MS, self._measure)

    def _judge(self, resource: str, low: bool, ample: bool, figures: str) -> None:
        if low and resource not in self._raised:
            self._raised.add(resource)
            log.warning("low on %s: %s; publishers are blocked", resource, figures)
            self._node.raise_alarm(resource)
        elif ample and resource in self._raised:
            self._raised.remove(resource)
            log.warning("no longer low on %s: %s", resource, figures)
            self._node.clear_alarm(resource)
