"""`harebell serve` as a process on one data folder and one port, to be killed and started again."""

from __future__ import annotations

import asyncio
import re
import resource
import signal
import sys
import time
from pathlib import Path

from harebell.testing.rabbitmq import free_ports
from tests.cli.command import environment

__all__ = ["Server", "free_port"]

BAD = re.compile(r"CRITICAL|ERROR|Traceback|damage|exception", re.IGNORECASE)


def free_port() -> int:
    """A port that stays free while a server is down: no other program is given it for an outgoing connection."""
    return free_ports(1)[0]


class Server:
    """`up` is set while it runs and has what it needs; who sets it is who started it."""

    def __init__(self, data: Path, *options: str, open_files: int | None = None) -> None:
        self.port = free_port()
        self.up = asyncio.Event()
        self.start_seconds = 0.0
        self.slowest_start = 0.0
        self._data, self._options, self._open_files = data, options, open_files
        self._log = data.parent / "serve.log"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, *, give_up: float | None = None) -> bool:
        """Whether it came to be ready; `give_up`: kill it after so many seconds if it is not."""
        began = time.monotonic()
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "harebell", "serve", "--port", str(self.port), "--data", str(self._data),
                *self._options, env=environment(), stdout=asyncio.subprocess.PIPE, stderr=log,
            )  # fmt: skip
        if self._open_files is not None:
            resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE, (self._open_files, self._open_files))
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(give_up or 300.0):
                line = await self._process.stdout.readline()
        except TimeoutError:
            await self.kill()
            return False
        if b"ready" not in line:
            await self.kill()
            raise AssertionError(f"the broker does not start again:\n{self.log()[-3000:]}")
        self.start_seconds = time.monotonic() - began
        self.slowest_start = max(self.slowest_start, self.start_seconds)
        return True

    async def kill(self) -> None:
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """As it should be stopped; AssertionError when it does not end well."""
        code = await self._end(signal.SIGTERM)
        assert code == 0, f"the broker ended with {code}:\n{self.log()[-3000:]}"

    async def _end(self, number: signal.Signals) -> int:
        self.up.clear()
        process, self._process = self._process, None
        if process is None:
            return 0
        if process.returncode is None:
            process.send_signal(number)
        async with asyncio.timeout(60.0):
            return await process.wait()

    def usage(self) -> tuple[int, int]:
        """The most memory that the process ever had, in bytes, and the number of its open files."""
        assert self._process is not None
        folder = Path("/proc") / str(self._process.pid)
        line = next(line for line in (folder / "status").read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024, len(list((folder / "fd").iterdir()))

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def complaints(self) -> list[str]:
        """Lines of its log that no kill explains."""
        return [line for line in self.log().splitlines() if BAD.search(line)]
