"""Dynamic shovels: those described by a broker's parameters of component "shovel", as in RabbitMQ's plugin.

    shovels = Shovels()
    async with Broker(components={"shovel": shovels}) as broker, shovels.of(broker):
        broker.set_parameter("shovel", "to-the-cluster", {"src-uri": "amqp://", "src-queue": "orders", ...})

Rules: setting a parameter starts its shovel, or restarts it with the new value; clearing it, or deleting its virtual
host, stops the shovel. A shovel that has moved what `src-delete-after` says clears its parameter. The URI `amqp://`
(or `amqp:///vhost`), without host and user, is this broker itself; where the URI names no virtual host, that of the
parameter counts. Every shovel is patient: only with reconnect-delay 0 does one end at its first loss.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, urlsplit

from harebell.bridge.options import ShovelOptions, is_local, parse_shovel, without_credentials
from harebell.bridge.shovel import Shovel
from harebell.broker import Broker
from harebell.defaults import GOODBYE_SECONDS
from harebell.errors import ShovelEnded
from harebell.routing.definitions import Parameter

__all__ = ["COMPONENT", "Shovels"]

log = logging.getLogger("harebell.bridge")

COMPONENT: Final = "shovel"


Key = tuple[str, str]  # virtual host, name


class _Running:
    """A shovel and its task."""

    def __init__(self, shovel: Shovel, task: asyncio.Task[None]) -> None:
        self.shovel = shovel
        self.task = task
        self.since = datetime.now(UTC)

    def stop(self) -> None:
        self.shovel.stop()


class Shovels:
    """The shovels of one broker; a component of its parameters."""

    def __init__(self) -> None:
        self._broker: Broker | None = None
        self._running: dict[Key, _Running] = {}
        self._ending: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def of(self, broker: Broker) -> AsyncIterator[Shovels]:
        """Run the shovels of a started broker, present and future ones, until the block ends."""
        self._broker = broker
        for vhost, component, name in tuple(broker.node.parameters.parameters):
            if component == COMPONENT:
                self.changed(vhost, name)
        try:
            yield self
        finally:
            self._broker = None
            for key in tuple(self._running):
                self._stop(key)
            await _ended(self._ending)

    def check(self, parameter: Parameter) -> None:
        """Raises InvalidArgument for a faulty shovel."""
        parse_shovel(parameter.value, parameter.name)

    def changed(self, vhost: str, name: str) -> None:
        """Start, restart or stop the shovel whose parameter was set or cleared."""
        if self._broker is None:
            return  # `of` starts all of them
        before = self._stop((vhost, name))
        parameter = self._broker.node.parameters.parameters.get((vhost, COMPONENT, name))
        if parameter is not None:
            self._start(self._broker, parameter, before)

    def status(self) -> list[dict[str, object]]:
        """An object for each shovel, in the form of RabbitMQ's HTTP API with Harebell's counts."""
        return [self._status(key, running) for key, running in self._running.items()]

    def _start(self, broker: Broker, parameter: Parameter, before: asyncio.Task[None] | None) -> None:
        options = in_vhost(parse_shovel(parameter.value, parameter.name), parameter.vhost)
        shovel = Shovel(
            options,
            f"shovel '{parameter.name}' in vhost '{parameter.vhost}'",
            about={
                "shovelled-by": broker.node.name,
                "shovel-type": "dynamic",
                "shovel-name": parameter.name,
                "shovel-vhost": parameter.vhost,
            },
            open_local=broker.open_socket,
        )
        key = parameter.vhost, parameter.name
        task = asyncio.create_task(self._run(key, shovel, before), name=f"shovel {parameter.name}")
        self._running[key] = _Running(shovel, task)

    def _stop(self, key: Key) -> asyncio.Task[None] | None:
        """Stop the shovel; returns its task, which ends soon."""
        running = self._running.pop(key, None)
        if running is None:
            return None
        running.stop()
        if running.task.done():
            return None
        self._ending.add(running.task)
        running.task.add_done_callback(self._ending.discard)
        return running.task

    async def _run(self, key: Key, shovel: Shovel, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await _ended({before})  # two shovels of one name would take each other's messages
        vhost, name = key
        try:
            await shovel.run()
        except ShovelEnded as error:
            log.error("%s: ended: %s", shovel.name, error)
            return
        except Exception:  # log a defect, so that the shovel does not end silently
            log.exception("%s: failed", shovel.name)
            return
        log.info("%s: %d messages moved", shovel.name, shovel.forwarded)
        running = self._running.get(key)
        if running is not None and running.shovel is shovel and self._broker is not None:
            self._broker.clear_parameter(COMPONENT, name, vhost=vhost)

    def _status(self, key: Key, running: _Running) -> dict[str, object]:
        vhost, name = key
        shovel = running.shovel
        source, destination = shovel.options.source, shovel.options.destination
        said = {
            "node": self._broker.node.name if self._broker is not None else None,
            "timestamp": running.since.strftime("%Y-%m-%d %H:%M:%S"),
            "vhost": vhost,
            "name": name,
            "type": "dynamic",
            "state": shovel.state,
            "reason": shovel.last_error if shovel.state == "terminated" else None,
            "src_uri": without_credentials(source.uris[0]),
            "src_protocol": "amqp091",
            "src_queue": source.queue,
            "src_exchange": source.exchange,
            "src_exchange_key": source.key if source.exchange is not None else None,
            "dest_uri": without_credentials(destination.uris[0]),
            "dest_protocol": "amqp091",
            "dest_queue": destination.queue,
            "dest_exchange": destination.exchange,
            "dest_exchange_key": destination.key,
            "forwarded": shovel.forwarded,
            "pending": shovel.pending,
            "lost": shovel.lost,
            "remaining": shovel.left,
            "redials": shovel.redials,
            "last_error": shovel.last_error,
            "refusal": shovel.refusal,
        }
        return {key: value for key, value in said.items() if value is not None}


async def _ended(tasks: set[asyncio.Task[None]]) -> None:
    """Wait for stopped shovels to end. Messages that are not confirmed in time stay at their source."""
    tasks = set(tasks)
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=GOODBYE_SECONDS)
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def in_vhost(options: ShovelOptions, vhost: str) -> ShovelOptions:
    """The options, with this virtual host in local URIs that name none."""

    def located(uris: tuple[str, ...]) -> tuple[str, ...]:
        path = quote(vhost, safe="")
        return tuple(
            f"amqp:///{path}" if is_local(uri) and urlsplit(uri).path in ("", "/") and not urlsplit(uri).query else uri
            for uri in uris
        )

    return replace(
        options,
        source=replace(options.source, uris=located(options.source.uris)),
        destination=replace(options.destination, uris=located(options.destination.uris)),
    )
