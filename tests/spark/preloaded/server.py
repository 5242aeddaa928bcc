"""The process that forks. Its argument is the path of its socket; it ends when its standard input does.

Rules: it has no thread of Python, so that a fork is whole. Of a request a child takes everything that a new process has
of its parent: arguments, environment, working directory and the three standard streams. The child leaves by the end of
`main`, as any program, so that what is registered for the end of a process happens. It is killed when its launcher is.
"""

from __future__ import annotations

import gc
import os
import runpy
import select
import signal
import socket
import sys
import time
from importlib import import_module
from pkgutil import iter_modules
from typing import Final

PACKAGES: Final = ("pyspark.sql.worker",)  # of which a worker imports one module
MODULES: Final = (
    "pandas",
    "pyarrow.compute",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "pyspark.accumulators",
    "pyspark.sql.streaming.datasource",
    "pyspark.worker",
    "pyspark_harebell",
)


class Request:
    """What a launcher asked for, and its connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        size, self.streams, _, _ = socket.recv_fds(connection, 4, 3)
        with connection.makefile("rb") as source:
            text = source.read(int.from_bytes(size, "big")).decode("utf-8", "surrogateescape")
        self.folder, count, *words = text.split("\0")
        self.arguments = words[: int(count)]
        self.environment = dict(word.split("=", 1) for word in words[int(count) :])

    def close_streams(self) -> None:
        for stream in self.streams:
            os.close(stream)

    def become(self) -> None:
        """Gives this process what a new one has of its parent."""
        for number, stream in enumerate(self.streams):
            os.dup2(stream, number)
        self.close_streams()
        os.chdir(self.folder)
        os.environ.clear()
        os.environ.update(self.environment)
        time.tzset()
        paths = [path for path in self.environment.get("PYTHONPATH", "").split(os.pathsep) if path]
        sys.path[:] = [self.folder, *paths, *(path for path in sys.path if path not in paths)]

    def run(self) -> None:
        _, module, *arguments = self.arguments  # -m
        sys.argv = [module, *arguments]
        runpy.run_module(module, run_name="__main__", alter_sys=True)


def preload() -> None:
    for name in PACKAGES:
        package = import_module(name)
        for found in iter_modules(package.__path__):
            import_module(f"{name}.{found.name}")
    for name in MODULES:
        import_module(name)
    gc.collect()
    gc.freeze()  # so that a fork shares the memory


def serve(listener: socket.socket, wakeup: socket.socket) -> Request | None:
    """Returns the request in a child that has to run it, None in the server when its input has ended."""
    children: dict[int, socket.socket] = {}
    while True:
        launchers = {connection.fileno(): process for process, connection in children.items()}
        ready, _, _ = select.select([0, listener.fileno(), wakeup.fileno(), *launchers], [], [])
        if 0 in ready:
            return None
        for descriptor in launchers.keys() & set(ready):  # the launcher was killed, and says nothing else
            process = launchers[descriptor]
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            children.pop(process).close()
        if wakeup.fileno() in ready:
            wakeup.recv(4096)
            tell_ends(children)
        if listener.fileno() in ready:
            connection, _ = listener.accept()
            try:
                request = Request(connection)
            except (OSError, ValueError):  # the launcher was killed
                connection.close()
                continue
            process = os.fork()
            if not process:
                for other in (*children.values(), connection):
                    other.close()
                return request
            request.close_streams()
            children[process] = connection
            answer(connection, process)


def tell_ends(children: dict[int, socket.socket]) -> None:
    """Hands the status of each child that has ended to its launcher."""
    while children:
        process, status = os.waitpid(-1, os.WNOHANG)
        if not process:
            return
        connection = children.pop(process)
        answer(connection, os.waitstatus_to_exitcode(status) & 0xFF)
        connection.close()


def answer(connection: socket.socket, number: int) -> None:
    try:
        connection.sendall(b"%d\n" % number)
    except OSError:
        pass  # the launcher was killed


def main() -> None:
    preload()
    wakeup, end = socket.socketpair()
    for each in (wakeup, end):
        each.setblocking(False)
    with socket.socket(socket.AF_UNIX) as listener, wakeup, end:
        listener.bind(sys.argv[1])
        listener.listen(64)
        signal.set_wakeup_fd(end.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: it ends when its input does
        print("ready", flush=True)
        request = serve(listener, wakeup)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if request is not None:
        request.become()
        request.run()


if __name__ == "__main__":
    main()
