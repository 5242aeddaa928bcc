"""The HTTP API of a broker in this process: its listeners, what they serve, their start and stop.

async with Broker() as broker, Management(broker) as management:
    print(management.url)
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from harebell.admin.audit import record
from harebell.admin.console import Files
from harebell.admin.context import Context, Listener
from harebell.admin.documents.endpoints import ENDPOINTS
from harebell.admin.history.machine import Gauges
from harebell.admin.http.app import App
from harebell.admin.http.server import Server
from harebell.broker import Broker
from harebell.broker.net.listening import dialled_host, shown_host
from harebell.broker.net.tls import Tls

__all__ = ["Management"]


class Management:
    """The HTTP API of a started broker, in its loop.

    host      addresses to listen on; those of the broker when left out
    port      TCP port, on all of these; 0 takes a free one, which `port` and `url` name; None: none without TLS
    tls_port  TCP port for HTTPS, with the broker's certificate; None: none. It needs a broker with TLS

    Users log in with a tag of management, policymaker, monitoring or administrator, as with RabbitMQ's management
    plug-in; guest may, from this machine. `start` raises OSError when a port is taken.
    """

    def __init__(
        self,
        broker: Broker,
        host: str | Sequence[str] | None = None,
        port: int | None = 0,
        *,
        tls_port: int | None = None,
    ) -> None:
        hosts = broker.hosts if host is None else host
        self.hosts = (hosts,) if isinstance(hosts, str) else tuple(hosts)
        self.port, self.tls_port = port, tls_port
        self._broker = broker
        self._context: Context | None = None
        self._servers: list[Server] = []
        self._tls: ssl.SSLContext | None = None

    @property
    def url(self) -> str:
        """The address that clients on this machine use. RuntimeError when it listens on no port."""
        host = shown_host(dialled_host(self.hosts))
        if self.port is not None:
            return f"http://{host}:{self.port}/"
        if self.tls_port is not None:
            return f"https://{host}:{self.tls_port}/"
        raise RuntimeError("this API listens on no port")

    @property
    def context(self) -> Context:
        """What the handlers work with. RuntimeError before `start`."""
        if self._context is None:
            raise RuntimeError("the API is not started: use `async with Management(broker)` or await start()")
        return self._context

    async def start(self) -> Self:
        broker = self._broker
        node = broker.node
        listeners = [Listener(*each) for each in broker.listeners]
        context = self._context = Context(node, Gauges(node, broker.folder), listeners, _certificate(broker.tls))
        app = App(context, ENDPOINTS, context.gate, record, pages=Files().answer)
        try:
            if self.port is not None:
                self.port = await self._listen(app, self.port, None)
            if self.tls_port is not None:
                self._tls = _https(broker.tls)
                self.tls_port = await self._listen(app, self.tls_port, self._tls)
        except BaseException:
            await self.stop()
            raise
        context.sampler.start()
        context.lag.start()
        node.batch.end()
        return self

    async def _listen(self, app: App, port: int, tls: ssl.SSLContext | None) -> int:
        server = Server(app, self.hosts, port, tls)
        await server.start()
        self._servers.append(server)
        protocol = "https" if tls is not None else "http"
        self.context.listeners.append(Listener(protocol, server.address, server.port, tls is not None))
        return server.port

    def reload_tls(self) -> None:
        """Read the broker's certificate and key again, for new connections. Raises InvalidArgument."""
        if self._tls is not None:
            _https(self._broker.tls)  # an error must leave what is there
            tls = self._broker.tls
            assert tls is not None
            self._tls.load_cert_chain(tls.certificate, tls.key)

    async def stop(self) -> None:
        """End answers that are on their way, and close the listeners."""
        if self._context is not None:
            self._context.sampler.stop()
            self._context.lag.stop()
            self._context.feed.stop()
        for server in self._servers:
            await server.stop()
        self._servers = []

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


def _certificate(tls: Tls | None) -> str | Path | None:
    return None if tls is None else tls.certificate


def _https(tls: Tls | None) -> ssl.SSLContext:
    """The context of HTTPS: the broker's certificate; clients log in with passwords, so none of them shows one."""
    if tls is None:
        raise RuntimeError("HTTPS needs a certificate: give the broker tls=Tls(certificate, key)")
    return Tls(tls.certificate, tls.key, minimum=tls.minimum).context()
