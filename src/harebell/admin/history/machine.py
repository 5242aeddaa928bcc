"""What the process and its machine have and use: memory, descriptors, sockets, threads, disk."""

from __future__ import annotations

import gc
import os
import resource
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from harebell.broker.node import Node
from harebell.broker.operations.alarms import Machine

__all__ = ["Gauges"]

DESCRIPTORS: Final = Path("/proc/self/fd")
STATUS: Final = Path("/proc/self/status")
IO: Final = Path("/proc/self/io")
UNKNOWN_LIMIT: Final = 1 << 30  # of what the system does not limit


class Gauges:
    """The gauges of this process, and of the disk that the folder `data` is on."""

    def __init__(self, node: Node, data: Path) -> None:
        self._node = node
        self._machine = Machine(data)
        self.data = data

    def figures(self) -> tuple[int, ...]:
        """The figures of `sampler.GAUGES`, in their order."""
        io, collections = self.io, sum(each["collections"] for each in gc.get_stats())
        return (
            self.memory_used, self.descriptors_used, self.sockets_used, self.threads, self.disk_free,
            self.context_switches, collections, io.get("read_bytes", 0), io.get("syscr", 0), io.get("write_bytes", 0),
            io.get("syscw", 0), self._node.batch.commit.durations.count,
        )  # fmt: skip

    def shown(self) -> Mapping[str, int]:
        """The gauges that consoles show all the time, by RabbitMQ's names."""
        return {
            "mem_used": self.memory_used,
            "mem_limit": self.memory_limit,
            "mem_total": self.memory_total,
            "disk_free": self.disk_free,
            "fd_used": self.descriptors_used,
            "fd_total": self.descriptors_total,
        }

    @property
    def memory_used(self) -> int:
        """Bytes that the process occupies; 0 where that cannot be measured."""
        return self._machine.memory_used() or 0

    @property
    def memory_limit(self) -> int:
        """Bytes above which publishers are blocked."""
        mark = self._node.limits.memory_high_watermark
        return round(mark * (self._machine.memory_total or 0)) if isinstance(mark, float) else mark

    @property
    def memory_total(self) -> int:
        return self._machine.memory_total or 0

    @property
    def disk_free(self) -> int:
        return self._machine.disk_free() or 0

    @property
    def descriptors_used(self) -> int:
        try:
            # Linux has their number as the folder's size, since 6.2: to list thousands takes milliseconds.
            return DESCRIPTORS.stat().st_size or sum(1 for _ in os.scandir(DESCRIPTORS))
        except OSError:
            return 0

    @property
    def descriptors_total(self) -> int:
        return _limit(resource.RLIMIT_NOFILE)

    @property
    def sockets_used(self) -> int:
        return len(self._node.connections)

    @property
    def threads(self) -> int:
        with suppress(OSError, ValueError, StopIteration):
            lines = STATUS.read_text().splitlines()
            return int(next(line for line in lines if line.startswith("Threads:")).split()[1])
        return 1

    @property
    def threads_total(self) -> int:
        return _limit(resource.RLIMIT_NPROC) if sys.platform != "win32" else UNKNOWN_LIMIT

    @property
    def context_switches(self) -> int:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_nvcsw + usage.ru_nivcsw

    @property
    def io(self) -> Mapping[str, int]:
        """The kernel's counts of reads and writes of the process; empty where there are none."""
        found = {}
        with suppress(OSError, ValueError):
            for line in IO.read_text().splitlines():
                name, _, value = line.partition(":")
                found[name] = int(value)
        return found


def _limit(which: int) -> int:
    soft = resource.getrlimit(which)[0]
    return UNKNOWN_LIMIT if soft == resource.RLIM_INFINITY else soft
