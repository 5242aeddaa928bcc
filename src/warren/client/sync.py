"""The blocking face: the client without a loop and without threads, for scripts and for Spark's executors.

    with connect("amqp://guest:guest@localhost/") as connection:
        channel = connection.channel()
        channel.consume("work")
        while batch := channel.receive(timeout=1.0):
            ...
            channel.ack(batch[-1].delivery_tag, multiple=True)

Rules:
1. Every call ends by its deadline (`timeout`, in seconds; the connection's when it is left out): DeadlineExceeded.
2. What the broker sends is read inside calls only. Heartbeats are sent and watched there; a program that works for
   longer than the heartbeat between two calls uses `connection.serve`.
3. Acks are written at once, without waiting for anything.
4. A connection and its channels belong to one thread at a time.
"""

from __future__ import annotations

import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Final, TypeVar, cast

from warren import errors
from warren.client.core import ChannelCore, ConsumerCore, Slot, fresh
from warren.client.link import Link, SyncConnectionCore
from warren.client.publishes import Batch
from warren.client.records import Confirmation, Delivery, Message, Publication, QueueInfo, Returned, encoded
from warren.client.url import ConnectionParameters, parameters_of
from warren.protocol.v091 import Table, methods as m

__all__ = ["Channel", "Connection", "connect"]

_M = TypeVar("_M", bound=m.Method)

CHUNK: Final = 256  # publications encoded between two looks at the socket
MAX_UNSENT: Final = 1 << 20  # bytes gathered while the socket takes nothing


def connect(
    url: str | ConnectionParameters = "amqp://guest:guest@localhost/",
    *,
    timeout: float | None = None,
    heartbeat: int | None = None,
    context: ssl.SSLContext | None = None,
) -> Connection:
    """An open connection, to be used as a context manager or closed by the caller.

    url        amqp://user:password@host:port/vhost or amqps://..., with the query of `warren.client.url`
    timeout    seconds for connecting, and for each call that does not say otherwise; 30 when the URL says nothing
    heartbeat  seconds; wins over the URL's; 0 takes what the broker proposes
    context    a TLS context of your own, for amqps; wins over the URL's files

    Raises InvalidArgument for a URL that cannot be understood, ConnectionLost when nobody answers there,
    AccessRefused for a refused login, NotAllowed for a vhost that is missing, DeadlineExceeded.
    """
    return Connection(parameters_of(url, timeout=timeout, heartbeat=heartbeat, context=context))


class Connection:
    """A connection to a broker. Made by `connect`."""

    def __init__(self, parameters: ConnectionParameters) -> None:
        self.parameters = parameters
        self.timeout = timeout = parameters.timeout
        self._core = SyncConnectionCore(parameters)
        deadline = time.monotonic() + timeout
        self._link = Link(self._core, deadline)
        self._core.link = self._link
        try:
            self._core.start()
            self._until(lambda: self._core.handshake.done, timeout, "opening the connection", deadline)
        except BaseException:
            self._link.flush()  # our close-ok to a refusal
            self._link.close()
            raise

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close()
        except errors.WarrenError:
            if error is None:
                raise

    @property
    def blocked(self) -> str | None:
        """Why the broker takes no publishes now (connection.blocked), as far as was read; None when it does."""
        return self._core.blocked

    @property
    def is_open(self) -> bool:
        return self._core.open

    @property
    def server_properties(self) -> Table:
        """What the broker says about itself: product, version, capabilities."""
        return self._core.handshake.server_properties

    def channel(self, *, timeout: float | None = None) -> Channel:
        """A new channel, open."""
        slot = Slot(m.ChannelOpen())
        core = self._core.new_channel(slot, ChannelCore)
        self._await(slot, timeout, lambda: core.abandon(slot))
        return Channel(self, core)

    def serve(self, seconds: float = 0.0) -> None:
        """Send and take heartbeats and whatever else is due, for that long; at least once."""
        deadline = time.monotonic() + seconds
        while self._core.reason is None and self._link.step(deadline):
            pass
        if self._core.reason is not None:
            raise fresh(self._core.reason)

    def update_secret(self, secret: str, reason: str = "", *, timeout: float | None = None) -> None:
        """Give the broker a new password or token for this connection."""
        slot = Slot(m.ConnectionUpdateSecret(secret.encode(), reason))
        self._core.request(slot)
        self._await(slot, timeout, lambda: setattr(slot, "abandoned", True))

    def close(self, *, timeout: float | None = None) -> None:
        """Say goodbye and close the socket. Closing twice, or a lost connection, is no error."""
        try:
            if self._core.open:
                slot = Slot(m.ConnectionClose())
                self._core.close(slot)
                deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
                while not slot.done and not self._link.closed and self._link.step(deadline):
                    pass
        finally:
            self._link.close()

    # -- waiting -----------------------------------------------------------------------------------------------------

    def _until(
        self, done: Callable[[], bool], timeout: float | None, what: str, deadline: float | None = None
    ) -> None:
        """Read and write until it is done. DeadlineExceeded, or the reason why the connection closed."""
        seconds = self.timeout if timeout is None else timeout
        if deadline is None:
            deadline = time.monotonic() + seconds
        while not done():
            if self._core.reason is not None:
                raise fresh(self._core.reason)
            if not self._link.step(deadline):
                raise errors.DeadlineExceeded(f"{what}: no answer from {self.parameters.peer} within {seconds:g} s")

    def _await(self, slot: Slot, timeout: float | None, abandon: Callable[[], None]) -> m.Method | Delivery:
        try:
            self._until(lambda: slot.done, timeout, slot.request.NAME)
        except BaseException:
            if not slot.done:
                abandon()
            raise
        if slot.error is not None:
            raise slot.error
        return cast("m.Method | Delivery", slot.reply)


class Channel:
    """A channel of a connection. An error of the broker's closes it; the connection and its other channels go on.

    on_return  takes what comes back of mandatory publications while confirms are off
    """

    def __init__(self, connection: Connection, core: ChannelCore) -> None:
        self.connection = connection
        self._core = core
        self._arrived: deque[Delivery] = deque()
        self._ended: deque[errors.WarrenError] = deque()
        self._consumers: dict[str, ConsumerCore] = {}

    def __enter__(self) -> Channel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close()
        except errors.WarrenError:
            if error is None:
                raise

    @property
    def number(self) -> int:
        return self._core.number

    @property
    def is_open(self) -> bool:
        return self._core.reason is None

    @property
    def on_return(self) -> Callable[[Returned], None] | None:
        return self._core.on_return

    @on_return.setter
    def on_return(self, callback: Callable[[Returned], None] | None) -> None:
        self._core.on_return = callback

    def close(self, *, timeout: float | None = None) -> None:
        """Close the channel; unacknowledged deliveries go back to their queues. A closed one is no error."""
        if self._core.reason is None:
            slot = Slot(m.ChannelClose())
            self._core.close(slot)
            self.connection._await(slot, timeout, lambda: setattr(slot, "abandoned", True))

    # -- topology ----------------------------------------------------------------------------------------------------

    def exchange_declare(
        self,
        name: str,
        type: str = "direct",
        *,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        passive: bool = False,
        arguments: Table | None = None,
        timeout: float | None = None,
    ) -> None:
        """Have the exchange there: PreconditionFailed when it is there but different; with `passive`, NotFound."""
        self._call(
            m.ExchangeDeclare(name, type, passive, durable, auto_delete, internal, arguments=arguments), timeout
        )

    def exchange_delete(self, name: str, *, if_unused: bool = False, timeout: float | None = None) -> None:
        self._call(m.ExchangeDelete(name, if_unused), timeout)

    def exchange_bind(
        self,
        destination: str,
        source: str,
        binding_key: str = "",
        *,
        arguments: Table | None = None,
        timeout: float | None = None,
    ) -> None:
        """Route from exchange `source` to exchange `destination`."""
        self._call(m.ExchangeBind(destination, source, binding_key, arguments=arguments), timeout)

    def exchange_unbind(
        self,
        destination: str,
        source: str,
        binding_key: str = "",
        *,
        arguments: Table | None = None,
        timeout: float | None = None,
    ) -> None:
        self._call(m.ExchangeUnbind(destination, source, binding_key, arguments=arguments), timeout)

    def queue_declare(
        self,
        name: str = "",
        *,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        passive: bool = False,
        arguments: Table | None = None,
        timeout: float | None = None,
    ) -> QueueInfo:
        """Have the queue there; "" lets the broker choose the name. With `passive` only ask: NotFound when missing."""
        ok = self._call(
            m.QueueDeclare(name, passive, durable, exclusive, auto_delete, arguments=arguments),
            timeout,
            m.QueueDeclareOk,
        )
        return QueueInfo(ok.queue, ok.message_count, ok.consumer_count)

    def queue_bind(
        self,
        queue: str,
        exchange: str,
        binding_key: str = "",
        *,
        arguments: Table | None = None,
        timeout: float | None = None,
    ) -> None:
        self._call(m.QueueBind(queue, exchange, binding_key, arguments=arguments), timeout)

    def queue_unbind(
        self,
        queue: str,
        exchange: str,
        binding_key: str = "",
        *,
        arguments: Table | None = None,
        timeout: float | None = None,
    ) -> None:
        self._call(m.QueueUnbind(queue, exchange, binding_key, arguments), timeout)

    def queue_purge(self, name: str, *, timeout: float | None = None) -> int:
        """Drop the ready messages; how many there were."""
        return self._call(m.QueuePurge(name), timeout, m.QueuePurgeOk).message_count

    def queue_delete(
        self, name: str, *, if_unused: bool = False, if_empty: bool = False, timeout: float | None = None
    ) -> int:
        """Delete the queue; how many messages were in it. PreconditionFailed when an `if_` does not hold."""
        return self._call(m.QueueDelete(name, if_unused, if_empty), timeout, m.QueueDeleteOk).message_count

    # -- consuming ---------------------------------------------------------------------------------------------------

    def qos(
        self,
        *,
        prefetch_count: int = 0,
        prefetch_size: int = 0,
        global_: bool = False,
        timeout: float | None = None,
    ) -> None:
        """How many unacknowledged deliveries each later consumer (`global_`: the channel) may have; 0 is no limit."""
        self._call(m.BasicQos(prefetch_size, prefetch_count, global_), timeout)

    def consume(
        self,
        queue: str,
        *,
        no_ack: bool = False,
        exclusive: bool = False,
        consumer_tag: str = "",
        arguments: Table | None = None,
        timeout: float | None = None,
    ) -> str:
        """Subscribe to a queue, and give the consumer's tag; `receive` gives what comes."""
        tag = consumer_tag or self._core.next_consumer_tag()
        consumer = ConsumerCore(
            tag, queue, no_ack, self._arrived.append, lambda reason: self._end(tag, reason), lambda: self._forget(tag)
        )
        slot = Slot(m.BasicConsume(queue, tag, no_ack=no_ack, exclusive=exclusive, arguments=arguments))
        self._core.consume(slot, consumer)
        self._consumers[tag] = consumer
        self.connection._await(slot, timeout, lambda: self._core.abandon(slot))
        return tag

    def _end(self, tag: str, reason: errors.WarrenError | None) -> None:
        self._consumers.pop(tag, None)
        if isinstance(reason, errors.ConsumerCancelled):
            self._ended.append(reason)

    def _forget(self, tag: str) -> list[int]:
        """Drop what arrived for this consumer and was not received."""
        kept = [delivery for delivery in self._arrived if delivery.consumer_tag != tag]
        dropped = [delivery.delivery_tag for delivery in self._arrived if delivery.consumer_tag == tag]
        self._arrived.clear()
        self._arrived.extend(kept)
        return dropped

    def cancel(self, consumer_tag: str, *, timeout: float | None = None) -> None:
        """End a subscription. What arrived before and was not received yet goes back to the queue."""
        self._core.check_open()
        consumer = self._consumers.get(consumer_tag)
        if consumer is None:
            raise errors.InvalidArgument(
                f"channel {self.number} has no consumer {consumer_tag!r}; it has {sorted(self._consumers) or 'none'}"
            )
        slot = Slot(m.BasicCancel(consumer_tag))
        self._core.cancel(slot, consumer)
        if not consumer.no_ack:
            for delivery in self._arrived:
                if delivery.consumer_tag == consumer_tag:
                    self._core.give_back(delivery)
        self._forget(consumer_tag)
        self.connection._await(slot, timeout, lambda: self._core.abandon(slot))

    def receive(self, max_messages: int = 20_000, timeout: float | None = None) -> list[Delivery]:
        """What has arrived for the channel's consumers: waits for at least one, gives at most `max_messages`.

        [] when the timeout passed. ConsumerCancelled when the broker ended a consumer, after its last delivery.
        """
        if max_messages < 1:
            raise errors.InvalidArgument(f"max_messages is {max_messages}: at least 1 is needed")
        arrived, link, core = self._arrived, self.connection._link, self._core
        deadline = time.monotonic() + (self.connection.timeout if timeout is None else timeout)
        if core.reason is not None and not arrived:
            core.check_open()
        while len(arrived) < max_messages and core.reason is None and link.poll():
            pass
        while not arrived:
            if self._ended:
                raise self._ended.popleft()
            if core.reason is not None:
                raise fresh(core.reason)
            if not link.step(deadline):
                return []
        if len(arrived) <= max_messages:
            batch = list(arrived)
            arrived.clear()
            return batch
        take = arrived.popleft
        return [take() for _ in range(max_messages)]

    def get(self, queue: str, *, no_ack: bool = False, timeout: float | None = None) -> Delivery | None:
        """One message, or None when the queue is empty."""
        slot = Slot(m.BasicGet(queue, no_ack))
        self._core.request(slot)
        reply = self.connection._await(slot, timeout, lambda: self._core.abandon(slot))
        return reply if isinstance(reply, Delivery) else None

    def ack(self, delivery_tag: int, *, multiple: bool = False) -> None:
        """Done with this delivery; with `multiple`, with every earlier one of the channel too."""
        self._core.ack(delivery_tag, multiple=multiple)

    def nack(self, delivery_tag: int, *, multiple: bool = False, requeue: bool = True) -> None:
        self._core.nack(delivery_tag, multiple=multiple, requeue=requeue)

    def reject(self, delivery_tag: int, *, requeue: bool = False) -> None:
        self._core.reject(delivery_tag, requeue=requeue)

    def recover(self, *, requeue: bool = True, timeout: float | None = None) -> None:
        """Have every unacknowledged delivery of the channel delivered again; their old tags are no longer valid."""
        self._call(m.BasicRecover(requeue), timeout)

    # -- publishing --------------------------------------------------------------------------------------------------

    def confirm_select(self, *, timeout: float | None = None) -> None:
        """Have the broker confirm each publication from now on."""
        self._call(m.ConfirmSelect(), timeout)

    def publish(
        self,
        message: Message | bytes,
        exchange: str = "",
        routing_key: str = "",
        *,
        mandatory: bool = False,
        timeout: float | None = None,
    ) -> Confirmation | None:
        """Publish one message. With confirms on, wait for the broker's: Nacked when it refuses, Unroutable when a
        mandatory message reached no queue. With confirms off, wait until it is handed to the network, and give None.
        """
        batch = Batch()
        self._send_all((Publication(message, exchange, routing_key, mandatory),), batch, 1, timeout)
        if not self._core.publishes.confirming:
            return None
        batch.raise_refused(one=True)
        return Confirmation(self._core.publishes.last_tag, True)

    def publish_many(
        self, publications: Iterable[Publication], *, window: int = 5000, timeout: float | None = None
    ) -> int:
        """Publish all of them, and count them once all are confirmed (confirms off: handed to the network).

        window   how many may be unconfirmed at a time
        timeout  seconds for the whole of it

        All are sent even when some are refused; then Nacked or Unroutable says which. After DeadlineExceeded or a lost
        connection those without an answer may or may not have arrived.
        """
        if window < 1:
            raise errors.InvalidArgument(f"window is {window}: at least 1 is needed")
        batch = Batch()
        self._send_all(publications, batch, window, timeout)
        batch.raise_refused()
        return batch.sent

    def _send_all(
        self, publications: Iterable[Publication], batch: Batch, window: int, timeout: float | None
    ) -> None:
        core, connection = self._core, self.connection
        connection_core, link, publish = connection._core, connection._link, core.publish
        core.check_open()
        confirming = core.publishes.confirming
        seconds = connection.timeout if timeout is None else timeout
        deadline = time.monotonic() + seconds
        source, exhausted = iter(publications), False
        connection_core.held += 1
        try:
            while True:
                if batch.failure is not None:
                    raise fresh(batch.failure)
                if core.reason is not None:
                    raise fresh(core.reason)
                may_send = connection_core.blocked is None and core.active and link.unsent < MAX_UNSENT
                if not exhausted and may_send:
                    room = window - (batch.sent - batch.settled) if confirming else CHUNK
                    count = 0
                    for publication in source if room > 0 else ():
                        raw, body = encoded(publication.message)
                        publish(
                            raw,
                            body,
                            publication.exchange,
                            publication.routing_key,
                            publication.mandatory,
                            batch,
                        )
                        batch.sent += 1
                        count += 1
                        if count >= room or count >= CHUNK:
                            break
                    else:
                        exhausted = room > 0
                    link.flush()
                    if count:
                        link.poll()  # confirms, and a broker that waits for us to read them
                        if time.monotonic() < deadline:
                            continue
                if exhausted and not link.unsent and (not confirming or batch.settled >= batch.sent):
                    return
                if not link.step(deadline) and not (exhausted and batch.settled >= batch.sent and not link.unsent):
                    raise errors.DeadlineExceeded(self._late(batch, seconds))
        finally:
            connection_core.held -= 1
            connection_core.flush()

    def _late(self, batch: Batch, seconds: float) -> str:
        peer, blocked = self.connection.parameters.peer, self.connection.blocked
        why = f"; the broker takes no publishes now: {blocked}" if blocked is not None else ""
        return f"publishing to {peer}: {batch.settled} of {batch.sent} sent were confirmed within {seconds:g} s{why}"

    # -- transactions ------------------------------------------------------------------------------------------------

    def tx_select(self, *, timeout: float | None = None) -> None:
        """Make the channel transactional: publishes and acks take effect at tx_commit."""
        self._call(m.TxSelect(), timeout)

    def tx_commit(self, *, timeout: float | None = None) -> None:
        self._call(m.TxCommit(), timeout)

    def tx_rollback(self, *, timeout: float | None = None) -> None:
        self._call(m.TxRollback(), timeout)

    def _call(self, request: m.Method, timeout: float | None, reply: type[_M] = m.Method) -> _M:  # type: ignore[assignment]
        slot = Slot(request)
        self._core.request(slot)
        return cast(_M, self.connection._await(slot, timeout, lambda: self._core.abandon(slot)))
