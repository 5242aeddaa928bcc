"""The connection that readers and writers share: one of the blocking client, with one channel and one consumer.

Rules: times are seconds. A Link belongs to one thread. It is connected without recovery: `retrying` connects again,
around the caller's own unit of work. Three kinds of code open connections of their own: `streams.socket_reader`, which
reads faster than the client, `sink.session_publisher`, which has sessions, and jobs that need several channels
(`jobs.peek`, `jobs.deadletters.redriving`, `jobs.traffic.firehose`).
"""

from __future__ import annotations

import contextlib
import json
import logging
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self, TypeVar

from harebell import errors
from harebell.client.blocking import connect
from harebell.client.messages import Message
from harebell.client.recovery.policy import Backoff
from harebell.client.servers import BrokerIdentity, identity_of, product_of
from harebell.client.url import hosts_of
from harebell.defaults import GOODBYE_SECONDS
from harebell.spark.headers import STREAM_OFFSET
from harebell.spark.options.address import Address

if TYPE_CHECKING:
    from harebell.client.blocking import Channel, Consumer
    from harebell.client.blocking.confirms import Bulk
    from harebell.client.messages import Delivery, Publication, Returned
    from harebell.protocol.v091 import Table

__all__ = ["TRANSIENT", "Link", "NoService", "ask_service", "family_on", "probe_family", "retrying", "stream_offset"]

log = logging.getLogger("harebell.spark")

T = TypeVar("T")

# RabbitMQ's texts for a queue that is not ready yet; its codes 404 and 406 are otherwise final.
_NOT_READY: Final = (
    "down or inaccessible",
    "does not have a running replica",
    "stopped by supervisor",
    "due to timeout",
)

# Errors of a broker that is unavailable, restarts or fails over; a retry does not cure any other error.
TRANSIENT: Final = (
    errors.ConnectionLost,
    errors.ConnectionForced,
    errors.InternalError,
    errors.ChannelClosed,
    errors.ConsumerCancelled,
    errors.DeadlineExceeded,
    errors.QueueNotReady,
    ConnectionError,
    TimeoutError,
)
# Refusals of a service that are about what was asked for.
_REFUSALS: Final = {
    kind.reply_name.lower(): kind for kind in (errors.NotFound, errors.PreconditionFailed, errors.ResourceLocked)
}
REPLIES: Final = "amq.rabbitmq.reply-to"
_BACKOFF: Final = Backoff(0.1, 3.0)


class EncodedMessages(Protocol):
    """Messages that are ready for the wire, each known by its place."""

    @property
    def bodies(self) -> Sequence[bytes]: ...
    @property
    def properties(self) -> Sequence[bytes]: ...
    @property
    def exchange(self) -> str | Sequence[str]: ...
    @property
    def routing_key(self) -> str | Sequence[str]: ...


class Link:
    """A connection, its only channel and at most one consumer. Closing gives unacknowledged messages back."""

    def __init__(self, url: str | Address, timeout: float) -> None:
        hosts = url.parameters(timeout) if isinstance(url, Address) else url
        self._hosts = hosts
        try:
            self._connection = connect(hosts, timeout=timeout, recovery=None)
        except errors.ConnectionLost as error:
            if isinstance(error.__cause__, ssl.SSLCertVerificationError):
                # A retry would not make the certificate trusted.
                raise errors.InvalidArgument(f"{error}; option 'cacertFile' names the authority to trust") from error
            raise
        self._consumer: Consumer | None = None
        try:
            self._channel = self._connection.channel()
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection; a lost one is no error."""
        # The broker may be gone; and one that blocks publishers may read nothing at all.
        seconds = GOODBYE_SECONDS if self._connection.blocked is None else GOODBYE_SECONDS / 10
        try:
            self._connection.close(timeout=seconds)
        except (*TRANSIENT, errors.AmqpError) as error:
            log.debug("closing: %s", error)

    @property
    def product(self) -> str | None:
        """The broker's product name: "RabbitMQ", "Harebell"."""
        return product_of(self._connection.server_properties)

    @property
    def broker(self) -> BrokerIdentity:
        """Which broker it is. One of several hosts without a name is known by the address of the first."""
        first = hosts_of(self._hosts)[0]
        return identity_of(self._connection.server_properties, f"{first.host}:{first.port}")

    @property
    def channel(self) -> Channel:
        """The channel, for requests other than those about messages."""
        return self._channel

    def count(self, queue: str) -> int:
        """How many messages the queue has ready (a round trip). Raises NotFound when there is no such queue."""
        return self.state(queue)[0]

    def state(self, queue: str) -> tuple[int, int]:
        """How many messages the queue has ready, and how many consumers (a round trip). Raises as `count` does."""
        with _raising_not_ready():
            info = self._channel.queue_declare(queue, passive=True)
        return info.message_count, info.consumer_count

    def consume(self, queue: str, prefetch: int, arguments: Table | None = None, exclusive: bool = False) -> None:
        """Starts the consumer, with at most `prefetch` unacknowledged messages; this link has one at a time.

        An `exclusive` one is refused (AccessRefused) where another consumer is, or a single one is active by itself.
        """
        consumer = self._channel.consume(queue, prefetch=prefetch, arguments=arguments, exclusive=exclusive)
        with _raising_not_ready():
            consumer.start()
        self._consumer = consumer

    def overtake(self, queue: str) -> int:
        """`count`, answered after the messages that RabbitMQ had for this link's consumer of a stream queue.

        So messages that `receive` does not have by then did not exist, however slow the machine is. For each consumer
        in turn, the channel subscribes to the stream's process. With a second consumer it learns of the messages for
        the first one before it handles the request for the count, and delivers before it answers.
        """
        with _raising_not_ready():
            self._channel.consume(queue, prefetch=1, arguments={STREAM_OFFSET: "next"}).start()
        return self.count(queue)

    def receive(self, most: int, timeout: float) -> list[Delivery]:
        """The messages that have arrived for the consumer, at least one; empty when `timeout` has passed."""
        if self._consumer is None:
            raise errors.LocalProtocolError("receive() needs consume() before it")
        return self._consumer.receive(max_messages=most, timeout=timeout)

    def ack(self, delivery_tag: int) -> None:
        """Acknowledges every delivery up to and including this one."""
        self._channel.ack(delivery_tag, multiple=True)

    def cancel(self) -> list[Delivery]:
        """Ends the consumer; the messages that it was sent and did not receive. All stay unacknowledged."""
        consumer, self._consumer = self._consumer, None
        left: list[Delivery] = []
        if consumer is not None:
            consumer.cancel(requeue=False)
            while got := consumer.receive(timeout=0):
                left += got
        return left

    def reset(self) -> None:
        """Opens a new channel: after a refusal, and to end a consumer of a stream queue, which has no requeue (540)."""
        self._channel.close()
        self._consumer = None
        self._channel = self._connection.channel()

    def confirm_select(self) -> None:
        """Puts the channel into confirm mode, which `publish` needs."""
        self._channel.confirm_select()

    def publish(self, publications: Iterable[Publication], window: int, timeout: float) -> int:
        """Publishes all and returns their number once all are confirmed.

        Raises Nacked, Unroutable, and what ended the channel or the connection before all had an answer.
        """
        with _raising_reasons():
            return self._channel.publish_many(publications, window=window, timeout=timeout)

    @property
    def blocked(self) -> str | None:
        """Why the broker blocks publishers now (connection.blocked); None when it does not."""
        return self._connection.blocked

    @property
    def ended(self) -> errors.HarebellError:
        """Why the channel has ended, where publications have no answer."""
        reason = self._channel.closed_reason
        return errors.ConnectionLost("the connection was lost") if reason is None else reason

    def publish_part(self, part: EncodedMessages, mandatory: bool, timeout: float) -> Bulk:
        """Writes the messages and returns their confirms, identified by their places in the part.

        Waiting for these ends without an error when the connection is lost: ask for what is unanswered, and `ended`.
        DeadlineExceeded when the broker has taken nothing for `timeout` seconds.
        """
        return self._channel.publish_bulk(
            part.bodies, part.properties, part.exchange, part.routing_key, mandatory=mandatory, timeout=timeout
        )

    def begin(self) -> None:
        """Makes the channel transactional: publications take effect with `commit`."""
        self._channel.tx_select()

    def commit(self, timeout: float) -> int:
        """Commits the publications; returns how many messages were returned because they reached no queue."""
        self._channel.on_return = _ignore  # they are counted, and there may be very many of them
        self._channel.tx_commit(timeout=timeout)
        return self._channel.statistics().returned


def _ignore(returned: Returned) -> None:
    pass


class NoService(errors.NotFound):
    """The broker has no such service: it is no Harebell, or an older one."""


def ask_service(link: Link, service: str, body: bytes, timeout: float) -> Any:
    """The answer of a service of Harebell's exchange amq.system, out of its JSON.

    Raises NoService, DeadlineExceeded, and what the service refuses with: NotFound, ..., AccessRefused for the rest.
    """
    channel = link.channel
    channel.confirm_select()
    with channel.consume(REPLIES, no_ack=True) as replies:
        try:
            with _raising_reasons():
                channel.publish(Message(body, reply_to=REPLIES), "amq.system", service, mandatory=True)
        except errors.Unroutable:
            raise NoService(f"the broker has no service {service}") from None
        except errors.NotFound:  # the exchange
            raise NoService(f"the broker has no service {service}") from None
        arrived = replies.receive(1, timeout=timeout)
    if not arrived:
        raise errors.DeadlineExceeded(f"{service}: no answer within {timeout:g} s")
    answer = json.loads(arrived[0].body)
    if isinstance(answer, dict) and "error" in answer:
        reason = str(answer.get("reason", answer["error"]))
        refusal = _REFUSALS.get(answer["error"])
        if refusal is None:
            raise errors.AccessRefused(f"{service}: {reason}")
        raise refusal(reason.removeprefix(f"{refusal.reply_name} - "))
    return answer


def stream_offset(delivery: Delivery) -> int:
    """The message's number in its stream queue. Raises InvalidArgument for a message that has none."""
    number = delivery.stream_offset
    if number is None:
        raise errors.InvalidArgument("the message has no x-stream-offset: its queue is not a stream queue")
    return number


def probe_family(url: str | Address, queue: str, timeout: float) -> Literal["stream", "spool"]:
    """Whether a queue is a stream queue or one that is drained.

    AMQP has no method for it. But classic and quorum queues refuse a consumer with an x-stream-offset (406), before
    anything is delivered, and stream queues accept it; at "next" these deliver nothing either.
    Raises NotFound when there is no such queue.
    """
    with Link(url, timeout) as link:
        link.count(queue)  # a missing queue is an unambiguous 404 here
        return family_on(link, queue)


def family_on(link: Link, queue: str) -> Literal["stream", "spool"]:
    """`probe_family` over a link without a consumer, for a queue that is there. Whatever it says, `reset` the link."""
    try:
        link.consume(queue, 1, {STREAM_OFFSET: "next"})
    except errors.PreconditionFailed as error:
        if STREAM_OFFSET not in error.detail:
            raise
        return "spool"
    return "stream"


@contextlib.contextmanager
def _raising_reasons() -> Iterator[None]:
    """Raises what ended a channel in place of the orphans that it left: that decides whether trying again helps."""
    try:
        yield
    except errors.ConfirmTimeout:
        raise
    except errors.PublishOrphaned as error:
        if isinstance(error.__cause__, errors.HarebellError):
            raise error.__cause__ from None
        raise


@contextlib.contextmanager
def _raising_not_ready() -> Iterator[None]:
    """Raises QueueNotReady in place of a refusal that only means "not yet"."""
    try:
        yield
    except errors.ChannelError as error:
        if any(text in error.detail for text in _NOT_READY):
            raise errors.QueueNotReady(str(error)) from error
        raise


def retrying(work: Callable[[], T], seconds: float, what: str) -> T:
    """The result of `work`, called again with growing pauses while the broker is unavailable, for `seconds` in all.

    Raises the last error when the time is up.
    """
    deadline = time.monotonic() + seconds
    attempts = 0
    while True:
        try:
            return work()
        except TRANSIENT as error:
            attempts += 1
            pause = _BACKOFF.longest(attempts)
            if time.monotonic() + pause > deadline:
                raise
            log.warning("%s: %s; trying again in %.1f s", what, error, pause)
        time.sleep(pause)
