"""`warren serve`: one broker in this process, until SIGTERM or SIGINT.

Rules: standard output gets one line, when the broker can be used; everything else is log, on standard error. Logging
is configured here, as the package itself never does. What cannot work is said in one line with what to do next.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter

from warren import __version__
from warren.bridge import Shovels
from warren.broker import Broker
from warren.cli.folders import data_folder
from warren.errors import WarrenError

__all__ = ["loop_factory", "serve", "tune_collector"]

log = logging.getLogger("warren.serve")

LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
# Generation 0 at 50,000 new objects instead of 700: a broker's messages are many, long-lived and free of cycles.
COLLECTOR: Final = (50_000, 20, 50)


class Unusable(WarrenError):
    """The address, the data folder or the definitions cannot be used; the text says what to do."""


def serve(
    *,
    host: Annotated[str, Parameter(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Parameter(help="TCP port; 0 takes a free one.")] = 5672,
    data: Annotated[
        Path | None,
        Parameter(help="Folder for what is kept on disk. Left out: $XDG_DATA_HOME/warren or ~/.local/share/warren."),
    ] = None,
    sync: Annotated[
        bool,
        Parameter(negative="--no-sync", help="Confirm a publication only when the disk has it."),
    ] = True,
    definitions: Annotated[
        Path | None,
        Parameter(
            env_var="WARREN_DEFINITIONS",
            help="A RabbitMQ definitions file (JSON): virtual hosts, users, exchanges, queues... to start with.",
        ),
    ] = None,
) -> int:
    """Run a broker until it is told to stop (SIGTERM or Ctrl-C).

    User guest with password guest, from this machine only. When it can be used it prints one line with its URL.
    Stream queues are kept in the data folder; all else is in memory and ends with the broker.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO, stream=sys.stderr)
    tune_collector()
    folder = data_folder() if data is None else data
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(run(host, port, folder, sync, definitions))


async def run(host: str, port: int, folder: Path, sync: bool, definitions: Path | None) -> int:
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    shovels = Shovels()
    broker = Broker(
        host, port, data=folder, sync=sync, definitions=definitions, components={"shovel": shovels}
    )
    try:
        await broker.start()
    except OSError as error:
        if definitions is not None and error.filename == str(definitions):
            raise Unusable(f"definitions file {definitions} cannot be read: {error.strerror}") from error
        raise Unusable(explain(error, host, port, folder)) from error
    except WarrenError as error:
        raise Unusable(" ".join(str(error).split())) from error
    try:
        log.info("on disk, in %s: stream queues and their messages", folder)
        log.info("in memory, gone when this process ends: exchanges, bindings, classic queues and their messages")
        if definitions is not None:
            log.info("definitions of %s applied", definitions)
        if not sync:
            log.warning("--no-sync: a confirmed message may be lost when the machine (not just the broker) goes down")
        if host not in LOOPBACK and set(broker.node.users.users) <= {"guest"}:
            log.warning("listening on %s, but the only user, guest, may connect from this machine only", host)
        print(f"warren {__version__} ready at {broker.url}", flush=True)
        async with shovels.of(broker):
            await told.wait()
            log.info("stopping")
    finally:
        await broker.stop()
    log.info("stopped")
    return 0


def explain(error: OSError, host: str, port: int, folder: Path) -> str:
    """The line for a broker that could not start."""
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} of {host} is taken, perhaps by another broker: stop that one, "
            f"or take another port: warren serve --port {port + 1 if port < 65535 else 0}"
        )
    if error.errno in (errno.EACCES, errno.EPERM) and 0 < port < 1024:
        return f"port {port} is reserved for root: take one above 1023, such as --port 5672"
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return f"{host} is not an address of this machine: use --host 127.0.0.1, or 0.0.0.0 for all of its addresses"
    if isinstance(error, BlockingIOError):
        return f"data folder {folder} is in use by another broker: stop that one, or name another folder with --data"
    if error.filename is not None:
        return f"data folder {folder} cannot be used ({error.strerror}): name one that you may write to, with --data"
    return f"data folder {folder}: {error}: mend it, or name another with --data"


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop where it is installed (the extra `speed`), else asyncio's own loop."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return asyncio.new_event_loop
    return new_event_loop


def tune_collector() -> None:
    """Have Python's garbage collector look less often, in this whole process."""
    gc.set_threshold(*COLLECTOR)
