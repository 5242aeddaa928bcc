"""`harebell serve`: runs one broker in this process, until SIGTERM or SIGINT.

Rules: standard output gets one line, when the broker accepts connections; everything else is log, on standard error.
Logging is configured here, because the package itself never does that. An error is one line that says what to do next.
Options are those of `harebell.config`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from harebell import __version__
from harebell.bridge import Shovels
from harebell.broker import Broker, Tls
from harebell.broker.net.descriptors import raise_limit
from harebell.broker.node import Node
from harebell.broker.store.data_folder import LastStop
from harebell.cli import systemd
from harebell.cli.folders import data_folder
from harebell.cli.options import read_settings, with_options
from harebell.config import OPTIONS, Config, Settings
from harebell.errors import HarebellError, InvalidArgument

__all__ = ["loop_factory", "serve", "tune_allocator", "tune_collector"]

log = logging.getLogger("harebell.serve")

LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
# Generation 0 at 50,000 new objects instead of 700: a broker's messages are many, long-lived and free of cycles.
COLLECTOR: Final = (50_000, 20, 50)
# glibc's mallopt: give memory back when this much of it is free at the end of the heap, and ask the kernel for blocks
# apart only above that size. Otherwise the memory of one batch of large messages is given back, and the next batch gets
# it again page by page.
MALLOC: Final = {-1: 8 << 20, -3: 1 << 20}  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD: bytes
ENDED: Final = {LastStop.KILLED: "kill", LastStop.POWER_CUT: "power cut, or the end of its machine"}


class Unusable(HarebellError):
    """The broker cannot use an address, the data folder or a file; the text says what to do."""


@with_options
def serve(**given: Any) -> int:
    """Run a broker until SIGTERM or Ctrl-C (twice: without waiting for clients).

    User guest with password guest, from this machine only. When the broker accepts connections, it prints one line
    with its URL. The data folder stores persistent messages, durable topology, users and settings.

    A flag overrides its variable, and the variable the configuration file. SIGHUP reads file and certificates again.
    """
    settings, _ = read_settings(given)
    config = settings.config
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger().setLevel(config.log_level.upper())
    tune_collector()
    tune_allocator()
    raise_limit()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(Service(settings, given).run())


def broker_of(config: Config, shovels: Shovels) -> Broker:
    """A broker with these options."""
    tls = None
    if config.tls_cert is not None:
        tls = Tls(
            config.tls_cert, config.tls_key, config.tls_ca, config.tls_verify, config.tls_min_version, config.tls_user
        )
    return Broker(
        config.host,
        None if config.tls_only else config.port,
        data=data_folder() if config.data is None else config.data,
        sync=config.sync,
        tls=tls,
        tls_port=config.tls_port,
        mechanisms=config.mechanisms,
        anonymous_user=config.anonymous_user,
        definitions=config.definitions,
        events=config.events,
        limits=config,
        components={"shovel": shovels},
    )


class Service:
    """Runs the broker as a service of the machine: signals, log, service manager.

    given  the flags; they still apply after a reload
    """

    def __init__(self, settings: Settings, given: dict[str, Any]) -> None:
        self._settings, self._given = settings, given
        self._shovels = Shovels()
        self._broker = broker_of(settings.config, self._shovels)
        self._folder = data_folder() if settings.config.data is None else settings.config.data
        self._told = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        loop, broker = asyncio.get_running_loop(), self._broker
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        for remark in self._settings.remarks:
            log.warning("%s", remark)
        await self._start()
        loop.add_signal_handler(signal.SIGHUP, self._spawn_reload)
        watchdog = loop.create_task(systemd.beat())
        try:
            self._say_ready()
            async with self._shovels.of(broker):
                await self._told.wait()
                log.info("stopping")
        finally:
            systemd.notify("STOPPING=1")
            await broker.stop()
            watchdog.cancel()
        log.info("stopped")
        return 0

    def _stop(self) -> None:
        """Stop the broker: the first call cleanly, the second without waiting for clients; a third signal kills."""
        if self._told.is_set():
            log.warning("told again: clients are not waited for")
            self._broker.hurry()
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().remove_signal_handler(number)
                signal.signal(number, signal.SIG_DFL)
        self._told.set()

    async def _start(self) -> None:
        config, broker = self._settings.config, self._broker
        try:
            await broker.start()
        except OSError as error:
            if config.definitions is not None and error.filename == str(config.definitions):
                text = f"definitions file {config.definitions} cannot be read: {error.strerror}"
                raise Unusable(text) from error
            text = explain(error, config.host, broker.port or 0, self._folder, broker.tls_port)
            raise Unusable(text) from error
        except HarebellError as error:
            raise Unusable(" ".join(str(error).split())) from error

    def _say_ready(self) -> None:
        config, broker = self._settings.config, self._broker
        last = broker.node.last_stop
        log.info("on disk, in %s: %s", self._folder, stored(broker.node))
        log.info("in memory, gone when this process ends: transient messages, and what is not durable")
        if last is not LastStop.CLEAN:
            log.warning("the broker before was not stopped but ended by a %s", ENDED[last])
        if config.definitions is not None:
            log.info("definitions of %s applied", config.definitions)
        if not config.sync:
            log.warning(
                "--no-sync: a confirmed message and a declaration may be lost when the machine (not just the broker) "
                "goes down"
            )
        if config.host not in LOOPBACK and set(broker.node.users.users) <= {"guest"}:
            log.warning("listening on %s, but the only user, guest, may connect from this machine only", config.host)
        urls = [broker.url] if broker.port is not None else []
        urls += [broker.tls_url] if broker.tls is not None else []
        print(f"harebell {__version__} ready at {' and '.join(urls)}", flush=True)
        systemd.notify("READY=1")

    def _spawn_reload(self) -> None:
        task = asyncio.get_running_loop().create_task(self._reload())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reload(self) -> None:
        """Read the configuration and the certificates again; a faulty one changes nothing."""
        systemd.reloading()
        try:
            self._take(read_settings(self._given)[0])
        except InvalidArgument as error:
            log.error("SIGHUP: %s; the configuration stays as it was", error)
        if self._broker.tls is not None:
            try:
                await self._broker.reload_tls()
            except InvalidArgument as error:
                log.error("SIGHUP: %s; the certificate that was in use stays", error)
            else:
                log.info("SIGHUP: certificate read again, for connections to come")
        systemd.notify("READY=1")

    def _take(self, settings: Settings) -> None:
        """Apply the settings that may change while the broker runs; log those that need a restart."""
        before = self._settings.config
        for name, each in OPTIONS.items():
            old, new = getattr(before, name), getattr(settings.config, name)
            if old != new:
                change = f"{name} was {each.shown(old)}, is {each.shown(new)}"
                if each.live:
                    log.info("SIGHUP: %s", change)
                else:
                    log.warning("SIGHUP: %s: takes a restart", change)
        logging.getLogger().setLevel(settings.config.log_level.upper())
        self._broker.set_limits(settings.config)
        self._settings = settings


def stored(node: Node) -> str:
    """A line about the stored data: what survives the process, and how much of it the folder has."""
    vhosts = node.vhosts.values()
    queues = [queue for vhost in vhosts for queue in vhost.queues.values()]
    messages = sum(queue.message_count for queue in queues)
    return (
        f"{len(vhosts)} virtual hosts, {len(node.users.users)} users, what is set for them, "
        f"{len(queues)} durable queues with their exchanges and bindings, {messages} messages"
    )


def explain(error: OSError, host: str, port: int, folder: Path, tls_port: int = 0) -> str:
    """The error line for a broker that could not start."""
    option = "--port"
    if f", {tls_port})" in str(error):  # "... address ('127.0.0.1', 5671): ..."
        port, option = tls_port, "--tls-port"
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} of {host} is taken, perhaps by another broker: stop that one, "
            f"or take another port: harebell serve {option} {port + 1 if port < 65535 else 0}"
        )
    if error.errno in (errno.EACCES, errno.EPERM) and 0 < port < 1024:
        return f"port {port} is reserved for root: take one above 1023, such as {option} 5672"
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
    """Make Python's garbage collector run less often, in this whole process."""
    gc.set_threshold(*COLLECTOR)


def tune_allocator() -> None:
    """Make glibc hold some megabytes of freed memory for the next large messages; no effect with other C libraries."""
    with contextlib.suppress(OSError, AttributeError):  # another C library than glibc
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, size in MALLOC.items():
            mallopt(parameter, size)
