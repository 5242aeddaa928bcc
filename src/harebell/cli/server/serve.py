"""`harebell serve`: runs one broker in this process, until SIGTERM or SIGINT.

Rules: standard output gets one line, when the broker accepts connections; everything else is log, on standard error.
Logging is configured here, because the package itself never does that. An error is one line that says what to do next.
Options are those of `harebell.config`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harebell import __version__, build
from harebell.bridge import Shovels
from harebell.broker import Broker, Tls
from harebell.broker.auth.passwords import RABBITMQ_SHA256, verify
from harebell.broker.net.descriptors import raise_limit
from harebell.broker.net.listening import LOOPBACK, ListenError
from harebell.broker.node import Node
from harebell.broker.store.catalog.catalog import CatalogError
from harebell.broker.store.data_folder import ForeignFolder, LastStop, OthersFolder
from harebell.cli.server import systemd
from harebell.cli.server.folders import data_folder, way_out
from harebell.cli.server.listening import Unusable, explain_listening
from harebell.cli.server.log_writer import LogWriter
from harebell.cli.server.management import start_management
from harebell.cli.server.memory import Garbage, tune_allocator, tune_collector
from harebell.cli.server.options import read_settings, with_options
from harebell.cli.server.plugins import load_plugins
from harebell.cli.terminal.output import OutputFailed, say
from harebell.config import OPTIONS, Config, Settings
from harebell.errors import HarebellError, InvalidArgument
from harebell.logs import Lines
from harebell.routing.definitions import User

if TYPE_CHECKING:
    from harebell.admin import Management

__all__ = ["loop_factory", "serve"]

log = logging.getLogger("harebell.serve")

STANDARD_ERROR: Final = 2
STORE_FAILED: Final = 1  # the exit status: a service manager restarts the broker (Restart=on-failure)
ENDED: Final = {LastStop.KILLED: "kill", LastStop.POWER_CUT: "power cut, or the end of its machine"}


@with_options
def serve(**given: Any) -> int:
    """Run a broker until SIGTERM or Ctrl-C (twice: without waiting for clients).

    User guest with password guest, from this machine only. When the broker accepts connections, it prints one line
    with its URL. The data folder stores persistent messages, durable topology, users and settings. When the disk
    refuses them, the broker ends with status 1.

    A flag overrides its variable, and the variable the configuration file. SIGHUP reads file and certificates again.
    """
    settings, _ = read_settings(given)
    config = settings.config
    start_logging(config.log_level)
    os.umask(0o077)  # whatever the process writes is its user's alone
    tune_collector()
    tune_allocator()
    raise_limit()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(Service(settings, given).run())


def start_logging(level: str) -> None:
    handler = LogWriter(STANDARD_ERROR, sys.stderr.encoding)
    handler.setFormatter(Lines("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler])
    logging.getLogger().setLevel(level.upper())


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
        plugins=load_plugins(config.plugins or ()),
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
        self._management: Management | None = None
        self._started, self._told = asyncio.Event(), asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        loop, broker = asyncio.get_running_loop(), self._broker
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._spawn_reload)
        for remark in self._settings.remarks:
            log.warning("%s", remark)
        await self._start()
        self._started.set()
        watchdog = loop.create_task(systemd.beat(lambda: broker.failure is None))
        failed = loop.create_task(broker.wait_failed())
        failed.add_done_callback(lambda _: self._told.set())
        garbage = loop.create_task(Garbage(broker.node.churn).collect_periodically())
        try:
            self._management = await start_management(self._settings, broker)
            self._say_ready()
            async with self._shovels.of(broker):
                await self._told.wait()
                log.info("stopping")
        finally:
            if broker.failure is not None:
                systemd.notify(f"STATUS=the store failed: {broker.failure}", f"ERRNO={broker.failure.errno}")
            systemd.notify("STOPPING=1")
            if self._management is not None:
                await self._management.stop()
            await broker.stop()
            watchdog.cancel()
            garbage.cancel()
            failed.cancel()
        if broker.failure is not None:
            log.critical(
                "ended, because the store failed: %s. What was confirmed is there; mend the disk or make room, and "
                "start the broker again", broker.failure,
            )  # fmt: skip
            return STORE_FAILED
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
            raise Unusable(explain(error, self._folder, broker.tls_port)) from error
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
        outside = [host for host in config.host if host not in LOOPBACK]
        if outside and set(broker.node.users.users) <= {"guest"}:
            log.warning(
                "listening on %s, but the only user, guest, may connect from this machine only", ", ".join(outside)
            )
        urls = [broker.url] if broker.port is not None else []
        urls += [broker.tls_url] if broker.tls is not None else []
        users = broker.node.users.users
        version = f"{__version__}+compiled" if build == "compiled" else __version__
        for handler in logging.getLogger().handlers:
            handler.flush()  # where both streams lead to one terminal, the line comes behind the log so far
        try:
            say(f"harebell {version} ready at {' and '.join(to_log_in(url, users) for url in urls)}", flush=True)
        except OutputFailed as error:  # clients need the broker more than the line
            log.warning("%s: the broker is ready at %s", error, " and ".join(to_log_in(url, {}) for url in urls))
        systemd.notify("READY=1")

    def _spawn_reload(self) -> None:
        task = asyncio.get_running_loop().create_task(self._reload())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reload(self) -> None:
        """Read the configuration and the certificates again, once the broker runs; a faulty one changes nothing."""
        await self._started.wait()
        systemd.reloading()
        try:
            self._take(read_settings(self._given)[0])
        except InvalidArgument as error:
            log.error("SIGHUP: %s; the configuration stays as it was", error)
        if self._broker.tls is not None:
            try:
                await self._broker.reload_tls()
                if self._management is not None:
                    self._management.reload_tls()
            except InvalidArgument as error:
                log.error("SIGHUP: %s; the certificate that was in use stays", error)
            else:
                log.info("SIGHUP: certificate read again, for connections to come")
        systemd.notify("READY=1")

    def _take(self, settings: Settings) -> None:
        """Apply the settings that may change while the broker runs; log those that wait for a restart."""
        running = self._settings.config
        changed: dict[str, Any] = {}
        same = True
        for name, each in OPTIONS.items():
            old, new = getattr(running, name), getattr(settings.config, name)
            if old == new:
                continue
            same = False
            change = f"{name} was {each.shown(old)}, is {each.shown(new)}"
            if each.live:
                changed[name] = new
                log.info("SIGHUP: %s", change)
            else:
                log.warning("SIGHUP: %s: takes a restart", change)
        if same:
            log.info("SIGHUP: the configuration is the one that runs")
        config = replace(running, **changed)
        logging.getLogger().setLevel(config.log_level.upper())
        self._broker.set_limits(config)
        self._settings = replace(self._settings, config=config)


def to_log_in(url: str, users: Mapping[str, User]) -> str:
    """The broker's URL: with guest's login only while guest can log in with it."""
    guest = users.get("guest")
    algorithm = (guest.hashing_algorithm if guest is not None else None) or RABBITMQ_SHA256
    if guest is not None and verify(b"guest", guest.password_hash or "", algorithm):
        return url
    return url.replace("guest:guest@", "", 1)


def stored(node: Node) -> str:
    """A line about the stored data: what survives the process, and how much of it the folder has."""
    vhosts = node.vhosts.values()
    queues = [queue for vhost in vhosts for queue in vhost.queues.values()]
    messages = sum(queue.message_count for queue in queues)
    return (
        f"{len(vhosts)} virtual hosts, {len(node.users.users)} users, what is set for them, "
        f"{len(queues)} durable queues with their exchanges and bindings, {messages} messages"
    )


def explain(error: OSError, folder: Path, tls_port: int = 0) -> str:
    """The error line for a broker that could not start."""
    if isinstance(error, ListenError):
        return explain_listening(error, "--tls-port" if tls_port and error.port == tls_port else "--port", {})
    if isinstance(error, ForeignFolder):
        return f"{folder} is no data folder of a broker: {error.strerror}: name an empty or a new one with --data"
    if isinstance(error, OthersFolder):
        return f"data folder {folder} cannot be used: {error.strerror}"
    if isinstance(error, BlockingIOError):
        return f"data folder {folder} is in use by another broker: stop that one, or name another folder with --data"
    if isinstance(error, CatalogError):
        return f"{error.filename}: {error.strerror}"
    if error.filename is not None and Path(error.filename).is_relative_to(folder) and error.filename != str(folder):
        return f"data folder {folder}: {error.filename}: {error.strerror}: {way_out(error)}"
    if error.filename is not None:
        way = way_out(error, "name one that you may write to, with --data")
        return f"data folder {folder} cannot be used ({error.strerror}): {way}"
    return f"data folder {folder}: {error}: {way_out(error)}"


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop where it is installed (the extra `speed`), else asyncio's own loop."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return asyncio.new_event_loop
    return new_event_loop
