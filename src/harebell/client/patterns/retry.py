"""Trying a message again later, on any broker: queues that hold it for a while and then send it back.

For the work queue "work" and the delays 1 and 10 seconds, `Retry` stands for

    work.retry.1000, work.retry.10000    without consumers; x-message-ttl is the delay, and what expires is
                                         dead-lettered through the default exchange, back into "work"
    work.dead                            where a message ends that has failed after the last delay

A failed message is published to the next of them, and acknowledged once that is confirmed: it is in one of the two
queues at any time, and after a crash between the two steps in both. Its properties stay as they are, but for those that
would change where it goes, or that the broker would refuse: they travel in headers of their own.

    x-retry-attempts               how often it has been tried
    x-retry-error                  how the last try failed
    x-retry-exchange, -routing-key where it was published to at first
    x-retry-expiration, -user-id, -cc   the property, or header, of that name

This module builds and reads; it sends nothing (`workers` does).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, cast

from harebell import errors
from harebell.client.messages import Delivery, Message, Publication
from harebell.protocol.v091 import FieldValue, Properties, Table
from harebell.protocol.v091.splice import DELIVERY_COUNT, DELIVERY_COUNTS, STREAM_OFFSET
from harebell.routing.dead_letter import Death, deaths

__all__ = ["DeadLetter", "Retry", "attempt_of", "attempts_of", "dead_letter_of", "given_up", "restore", "tried_again"]

ATTEMPTS: Final = "x-retry-attempts"
ERROR: Final = "x-retry-error"
EXCHANGE: Final = "x-retry-exchange"
ROUTING_KEY: Final = "x-retry-routing-key"
EXPIRATION: Final = "x-retry-expiration"
USER_ID: Final = "x-retry-user-id"
CC: Final = "x-retry-cc"
OURS: Final = frozenset((ATTEMPTS, ERROR, EXCHANGE, ROUTING_KEY, EXPIRATION, USER_ID, CC))
BROKERS: Final = frozenset(
    ("x-death", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason", "x-last-death-exchange",
     "x-last-death-queue", "x-last-death-reason", *DELIVERY_COUNTS, STREAM_OFFSET.name)
)  # fmt: skip
MAX_ERROR: Final = 1000  # characters of an error that travel with the message


@dataclass(frozen=True, slots=True)
class Retry:
    """What becomes of a message whose handler failed: again after each of the delays, then a dead letter.

    delays       seconds; as many retries as there are delays
    on           the errors that are worth a retry; any other makes a dead letter at once
    dead_letter  the queue for what has failed for good; None: the work queue's name and ".dead"
    by           "queues": the queues above, on any broker. "broker": the work queue itself holds messages back, with
                 `queue_arguments` in its declaration (Harebell, RabbitMQ 4.3 quorum queues); it counts the tries
    """

    delays: tuple[float, ...] = (1, 10, 60)
    on: tuple[type[Exception], ...] = (Exception,)
    dead_letter: str | None = None
    by: Literal["queues", "broker"] = "queues"

    def __post_init__(self) -> None:
        if self.by not in ("queues", "broker"):
            raise errors.InvalidArgument(f"by={self.by!r}: queues or broker is needed")
        try:
            delays = tuple(self.delays)
            wrong = [delay for delay in delays if not 0.001 <= delay < 2**32 / 1000]
        except TypeError:
            raise errors.InvalidArgument(f"delays is {self.delays!r}: seconds are needed, as in (1, 10, 60)") from None
        if self.dead_letter is not None and (not isinstance(self.dead_letter, str) or not self.dead_letter):
            raise errors.InvalidArgument(
                f"dead_letter={self.dead_letter!r}: the name of a queue is needed; left out: the work queue's and .dead"
            )
        if wrong:
            raise errors.InvalidArgument(f"a delay of {wrong[0]!r} s: from 0.001 to 4294967 is needed")
        object.__setattr__(self, "delays", delays)
        try:
            isinstance(ValueError(), self.on)
        except TypeError:
            raise errors.InvalidArgument(f"on is {self.on!r}: classes of errors are needed, as in (OSError,)") from None
        if self.by == "broker" and (not self.delays or sorted(self.delays) != list(self.delays)):
            raise errors.InvalidArgument('by="broker" needs delays that grow: the broker multiplies the first one')

    def dead_queue(self, queue: str) -> str:
        """The queue for what has failed for good. InvalidArgument where that is the work queue itself."""
        if self.dead_letter == queue:
            raise errors.InvalidArgument(
                f"dead_letter={queue!r} is the work queue itself, where what failed for good would fail again: name "
                "another queue"
            )
        return f"{queue}.dead" if self.dead_letter is None else self.dead_letter

    def retry_queue(self, queue: str, attempts: int) -> str | None:
        """Where a message goes that has been tried so often; None: it has been tried often enough."""
        return f"{queue}.retry.{_ms(self.delays[attempts - 1])}" if attempts <= len(self.delays) else None

    def queues(self, queue: str) -> dict[str, Table]:
        """The queues to declare, durable, with their arguments.

        InvalidArgument where the one of dead letters is another of them.
        """
        dead = self.dead_queue(queue)
        held: dict[str, Table] = {}
        if self.by == "queues":
            for delay in self.delays:
                held[f"{queue}.retry.{_ms(delay)}"] = {
                    "x-message-ttl": _ms(delay),
                    "x-dead-letter-exchange": "",
                    "x-dead-letter-routing-key": queue,
                }
        if dead in held:
            raise errors.InvalidArgument(
                f"dead_letter={dead!r} is a queue of the retries, which sends back what it holds: name another queue"
            )
        return held | {dead: {}}

    def queue_arguments(self, queue: str) -> Table:
        """For by="broker": the arguments to declare the work queue with.

        It comes back after the first delay, then twice that, three times, at most the last delay.
        """
        return {
            "x-delayed-retry-type": "all",
            "x-delayed-retry-min": _ms(self.delays[0]) if self.delays else 0,
            "x-delayed-retry-max": _ms(self.delays[-1]) if self.delays else 0,
            "x-delivery-limit": len(self.delays),
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": self.dead_queue(queue),
        }


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that was given up, and why.

    delivery      the message as it lies in the dead-letter queue, to be acknowledged
    reason        of its last death: "rejected", "expired", "maxlen", "delivery_limit"; "" when nothing tells
    queue         where it died
    count         how often it died there for that reason
    time          when, aware, in UTC; None when nothing tells
    exchange, routing_keys  where it had been published to
    error         how its handler failed, when a consumer of this library gave it up; else None
    deaths        all of x-death, the most recent first
    """

    delivery: Delivery
    reason: str
    queue: str
    count: int
    time: datetime | None
    exchange: str
    routing_keys: tuple[str, ...]
    error: str | None
    deaths: tuple[Death, ...]

    @property
    def body(self) -> bytes:
        return self.delivery.body

    def publication(self) -> Publication:
        """The message as it was at first, to where it was published at first: to be published again."""
        headers = self.delivery.headers
        properties = _kept(self.delivery.properties)
        mine = {name: value for name, value in headers.items() if name not in OURS and name not in BROKERS}
        if CC in headers:
            mine["CC"] = headers[CC]
        properties.headers = mine or None
        properties.expiration = _text(headers.get(EXPIRATION)) or (
            self.deaths[-1].original_expiration if self.deaths and not headers.get(ATTEMPTS) else None
        )
        first = self.deaths[-1] if self.deaths else None
        exchange, routing_key = _text(headers.get(EXCHANGE)), _text(headers.get(ROUTING_KEY))
        if exchange is None:
            exchange = first.exchange if first else self.exchange
        if routing_key is None:
            routing_key = (first.routing_keys if first else self.routing_keys)[0]
        return Publication(Message(self.body, properties=properties), exchange, routing_key)


def attempts_of(delivery: Delivery) -> int:
    """How often the message has been tried before."""
    value = delivery.headers.get(ATTEMPTS)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def attempt_of(delivery: Delivery) -> int:
    """Which attempt at the message this is, from 1, as far as its headers tell."""
    counted = delivery.headers.get(DELIVERY_COUNT.name)  # by the queue
    more = counted if isinstance(counted, int) and not isinstance(counted, bool) and counted > 0 else 0
    return 1 + attempts_of(delivery) + more


def restore(delivery: Delivery) -> None:
    """A message that was tried before says again where it was published to."""
    headers = delivery.headers
    if ATTEMPTS in headers:
        delivery.exchange = _text(headers.get(EXCHANGE)) or ""
        delivery.routing_key = _text(headers.get(ROUTING_KEY)) or ""


def tried_again(delivery: Delivery, error: BaseException) -> Message:
    """The message for a retry queue. `delivery` has been through `restore`."""
    properties = _kept(delivery.properties)
    headers = dict(delivery.headers)
    headers[ATTEMPTS] = attempts_of(delivery) + 1
    headers[ERROR] = _clipped(error)
    headers[EXCHANGE], headers[ROUTING_KEY] = delivery.exchange, delivery.routing_key
    if "CC" in headers:
        headers[CC] = headers.pop("CC")  # the broker would send copies there again
    if delivery.properties.expiration is not None:
        headers[EXPIRATION] = delivery.properties.expiration
    if delivery.properties.user_id is not None:
        headers[USER_ID] = delivery.properties.user_id
    properties.headers = headers
    return Message(delivery.body, properties=properties)


def given_up(delivery: Delivery, queue: str, error: BaseException, now: int) -> Message:
    """The message for the dead-letter queue: with its death in x-death, as the broker would write it.

    now  seconds since 1970
    """
    message = tried_again(delivery, error)
    death = Death(queue, "rejected", 1, delivery.exchange, (delivery.routing_key,), now)
    headers = message.properties.headers
    assert headers is not None  # `tried_again` makes it
    earlier = headers.get("x-death")
    history = [death.table(), *(earlier if isinstance(earlier, list) else ())]
    headers["x-death"] = cast("list[FieldValue]", history)
    return message


def dead_letter_of(delivery: Delivery) -> DeadLetter:
    """What the headers say about the death of a message."""
    headers, history = delivery.headers, deaths(delivery.headers)
    last = history[0] if history else None
    return DeadLetter(
        delivery,
        last.reason if last else "",
        last.queue if last else "",
        last.count if last else 0,
        datetime.fromtimestamp(last.time, UTC) if last and last.time else None,
        last.exchange if last else delivery.exchange,
        last.routing_keys if last else (delivery.routing_key,),
        _text(headers.get(ERROR)),
        history,
    )


def _kept(properties: Properties) -> Properties:
    """A copy without what would end its life in the retry queue (expiration), or make the broker refuse it (user-id:
    it was another user's; the broker that delivered it had checked it)."""
    return Properties(
        content_type=properties.content_type,
        content_encoding=properties.content_encoding,
        headers=properties.headers,
        delivery_mode=properties.delivery_mode,
        priority=properties.priority,
        correlation_id=properties.correlation_id,
        reply_to=properties.reply_to,
        message_id=properties.message_id,
        timestamp=properties.timestamp,
        type=properties.type,
        app_id=properties.app_id,
    )


def _clipped(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return text if len(text) <= MAX_ERROR else text[: MAX_ERROR - 3] + "..."


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
