"""Brokers that can be killed and started again on the same port with the same data: Harebell's and RabbitMQ."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from harebell.testing.rabbitmq import RabbitMQ
from tests.cli.command import environment
from tests.torture.server import free_port

__all__ = ["Server", "HarebellServer", "server"]


class Server(Protocol):
    """What both have."""

    @property
    def url(self) -> str: ...
    @property
    def port(self) -> int: ...
    def start(self) -> None: ...
    def kill(self) -> None: ...
    def sync_declarations(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class HarebellServer:
    """`harebell serve` as a process."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    def start(self) -> None:
        """Returns when it answers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "serve.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "harebell", "serve", "--port", str(self.port),
                 "--data", str(self._folder / "data"), "--max-message-size", "32MiB"],
                env=environment(), stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
            )  # fmt: skip
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert "ready" in line, (self._folder / "serve.log").read_text()[-3000:]

    def sync_declarations(self) -> None:
        """Nothing: it answers a declaration when it is on disk."""

    def kill(self) -> None:
        """Ends it at once, as a power cut would."""
        process, self._process = self._process, None
        if process is not None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def server(name: str, folder: Path) -> Server:
    """The broker of that name, `harebell` or `rabbitmq`, not started."""
    return RabbitMQ() if name == "rabbitmq" else HarebellServer(folder)
