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
from typing import Annotated, Final, Literal

from cyclopts import Parameter

from warren import __version__
from warren.broker import Broker, Tls
from warren.broker.auth.sasl import DEFAULT_MECHANISMS
from warren.broker.node import Node
from warren.broker.store.folder import LastStop
from warren.cli.folders import data_folder
from warren.errors import InvalidArgument, WarrenError

__all__ = ["loop_factory", "serve", "tune_collector"]

log = logging.getLogger("warren.serve")

LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
# Generation 0 at 50,000 new objects instead of 700: a broker's messages are many, long-lived and free of cycles.
COLLECTOR: Final = (50_000, 20, 50)


ENDED: Final = {LastStop.KILLED: "kill", LastStop.POWER_CUT: "power cut, or the end of its machine"}


class Unusable(WarrenError):
    """An address, the data folder or a file cannot be used; the text says what to do."""


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
        Parameter(negative="--no-sync", help="Confirm a publication or a declaration only when the disk has it."),
    ] = True,
    definitions: Annotated[
        Path | None,
        Parameter(
            env_var="WARREN_DEFINITIONS",
            help="A RabbitMQ definitions file (JSON): virtual hosts, users, exchanges, queues... to start with.",
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, Parameter(help="Certificate, with its chain, in PEM: listen for amqps too. SIGHUP reads it again.")
    ] = None,
    tls_key: Annotated[Path | None, Parameter(help="Its key. Left out: in the same file.")] = None,
    tls_port: Annotated[int, Parameter(help="TCP port for TLS; 0 takes a free one.")] = 5671,
    tls_only: Annotated[bool, Parameter(negative=(), help="Listen on no port without TLS.")] = False,
    tls_ca: Annotated[Path | None, Parameter(help="Authorities of client certificates.")] = None,
    tls_verify: Annotated[
        Literal["none", "optional", "required"], Parameter(help="Whether clients show a certificate.")
    ] = "none",
    tls_min_version: Annotated[Literal["1.2", "1.3"], Parameter(help="Least version of TLS.")] = "1.2",
    tls_user: Annotated[
        Literal["distinguished_name", "common_name"], Parameter(help="What EXTERNAL takes from a client's certificate.")
    ] = "distinguished_name",
    mechanisms: Annotated[
        str, Parameter(help="SASL mechanisms to offer, with commas; ANONYMOUS has to be asked for.")
    ] = ",".join(DEFAULT_MECHANISMS),
    anonymous_user: Annotated[str, Parameter(help="Who ANONYMOUS logs in.")] = "guest",
    events: Annotated[
        bool,
        Parameter(negative="", help="Tell on the exchange amq.rabbitmq.event what happens."),
    ] = False,
) -> int:
    """Run a broker until it is told to stop (SIGTERM or Ctrl-C).

    User guest with password guest, from this machine only. When it can be used it prints one line with its URL.
    What is declared durable, set and added is kept in the data folder, and so are the messages of stream queues.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO, stream=sys.stderr)
    tune_collector()
    folder = data_folder() if data is None else data
    tls_options = (tls_key, tls_ca, tls_only or None, None if tls_verify == "none" else tls_verify)
    if tls_cert is None and any(option is not None for option in tls_options):
        raise Unusable("TLS needs a certificate: give one with --tls-cert")
    tls = Tls(tls_cert, tls_key, tls_ca, tls_verify, tls_min_version, tls_user) if tls_cert is not None else None
    broker = Broker(
        host,
        None if tls_only else port,
        data=folder,
        sync=sync,
        tls=tls,
        tls_port=tls_port,
        mechanisms=tuple(name.strip().upper() for name in mechanisms.split(",")),
        anonymous_user=anonymous_user,
        definitions=definitions,
        events=events,
    )
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(run(broker, folder, sync, definitions))


async def run(broker: Broker, folder: Path, sync: bool, definitions: Path | None) -> int:
    loop = asyncio.get_running_loop()
    host = broker.host
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    try:
        await broker.start()
    except OSError as error:
        if definitions is not None and error.filename == str(definitions):
            raise Unusable(f"definitions file {definitions} cannot be read: {error.strerror}") from error
        raise Unusable(explain(error, host, broker.port or 0, folder, broker.tls_port)) from error
    except WarrenError as error:
        raise Unusable(" ".join(str(error).split())) from error
    reloads: set[asyncio.Task[None]] = set()
    if broker.tls is not None:

        def reload() -> None:
            task = loop.create_task(reload_tls(broker))
            reloads.add(task)
            task.add_done_callback(reloads.discard)

        loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        log.info("on disk, in %s: %s", folder, kept(broker.node))
        log.info("in memory, gone when this process ends: messages of classic and quorum queues, what is not durable")
        if broker.node.last_stop is not LastStop.CLEAN:
            log.warning("the broker before was not stopped but ended by a %s", ENDED[broker.node.last_stop])
        if definitions is not None:
            log.info("definitions of %s applied", definitions)
        if not sync:
            log.warning(
                "--no-sync: a confirmed message and a declaration may be lost when the machine (not just the broker) "
                "goes down"
            )
        if host not in LOOPBACK and set(broker.node.users.users) <= {"guest"}:
            log.warning("listening on %s, but the only user, guest, may connect from this machine only", host)
        urls = [broker.url] if broker.port is not None else []
        urls += [broker.tls_url] if broker.tls is not None else []
        print(f"warren {__version__} ready at {' and '.join(urls)}", flush=True)
        await told.wait()
        log.info("stopping")
    finally:
        await broker.stop()
    log.info("stopped")
    return 0


def kept(node: Node) -> str:
    """What outlives the process, and how much of it is there."""
    vhosts = node.vhosts.values()
    queues = [queue for vhost in vhosts for queue in vhost.queues.values()]
    streams = sum(queue.type == "stream" for queue in queues)
    return (
        f"{len(vhosts)} virtual hosts, {len(node.users.users)} users, what is set for them, "
        f"{len(queues)} durable queues with their exchanges and bindings, messages of {streams} stream queues"
    )


async def reload_tls(broker: Broker) -> None:
    try:
        await broker.reload_tls()
    except InvalidArgument as error:
        log.error("SIGHUP: %s; the certificate that was in use stays", error)
    else:
        log.info("SIGHUP: certificate read again, for connections to come")


def explain(error: OSError, host: str, port: int, folder: Path, tls_port: int = 0) -> str:
    """The line for a broker that could not start."""
    option = "--port"
    if f", {tls_port})" in str(error):  # "... address ('127.0.0.1', 5671): ..."
        port, option = tls_port, "--tls-port"
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} of {host} is taken, perhaps by another broker: stop that one, "
            f"or take another port: warren serve {option} {port + 1 if port < 65535 else 0}"
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
    """Have Python's garbage collector look less often, in this whole process."""
    gc.set_threshold(*COLLECTOR)
