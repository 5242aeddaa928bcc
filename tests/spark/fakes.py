"""Stand-ins for a broker behind `harebell.spark.connection.Link`: one classic queue, one stream queue. No sockets."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from harebell import errors
from harebell.client.messages import Delivery
from harebell.client.servers import BrokerIdentity
from harebell.protocol.v091 import Properties
from harebell.protocol.v091.fields import Table
from harebell.spark.connection import NoService


@dataclass
class FakeDelivery:
    body: bytes
    exchange: str = ""
    routing_key: str = "q"
    delivery_tag: int = 0
    redelivered: bool = False
    consumer_tag: str = ""
    properties: Properties = field(default_factory=Properties)

    @property
    def body_size(self) -> int:
        return len(self.body)

    @property
    def headers(self) -> Table:
        return self.properties.headers or {}

    @property
    def stream_offset(self) -> int | None:
        number = self.headers.get("x-stream-offset")
        assert number is None or isinstance(number, int)
        return number


def as_delivery(fake: FakeDelivery) -> Delivery:
    """A fake for code that asks for a delivery and reads no more of it than the fake has."""
    return cast("Delivery", fake)


class FakeLinkBase:
    """What both kinds of fake link share: a consumer with a window, acknowledgements, an end."""

    product: object = "RabbitMQ"
    broker = BrokerIdentity("rabbit@fake")

    def __init__(self) -> None:
        self.tag = 0
        self.consumer: str | None = None
        self.window = 0
        self.unacked: dict[int, Any] = {}
        self.open = True

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self.open = False


class FakeQueue:
    """A classic queue: `link` is what to patch in for Link. Messages are bodies; ids are the bodies."""

    def __init__(self, bodies: Iterable[bytes], properties: Callable[[bytes], Properties] | None = None) -> None:
        self.ready: deque[tuple[bytes, bool]] = deque((body, False) for body in bodies)
        self.properties = properties or (lambda body: Properties(message_id=body.decode()))
        self.links: list[FakeClassicLink] = []
        self.forgets: list[bytes] = []  # bodies whose acknowledgement is lost when the broker "crashes"
        self.acked: list[bytes] = []
        self.fail_receive_after: int | None = None
        self.windows: list[int] = []  # of all consumers
        self.others = 0  # consumers that are not ours
        self.refuses_exclusive = False  # as a queue with a single active consumer

    def link(self, url: str, timeout: float) -> FakeClassicLink:
        link = FakeClassicLink(self)
        self.links.append(link)
        return link

    def forget_acks(self) -> None:
        """As a broker that is killed before its acknowledgements are on disk: they come back."""
        self.ready.extendleft((body, True) for body in reversed(self.acked))
        self.acked.clear()

    def drop_connections(self) -> None:
        for link in self.links:
            link.close()


class FakeClassicLink(FakeLinkBase):
    def __init__(self, queue: FakeQueue) -> None:
        super().__init__()
        self.queue = queue
        self.buffer: list[FakeDelivery] = []

    def close(self) -> None:
        if self.open:
            self.open = False
            self._requeue()

    def _requeue(self) -> None:
        self.queue.ready.extendleft((delivery.body, True) for delivery in reversed(self.unacked.values()))
        self.unacked.clear()

    def count(self, queue: str) -> int:
        return self.state(queue)[0]

    def state(self, queue: str) -> tuple[int, int]:
        self._deliver()
        return len(self.queue.ready), self.queue.others + (self.consumer is not None)

    def reset(self) -> None:
        assert self.consumer is None

    def cancel(self) -> list[FakeDelivery]:
        """As the client: what arrived and was not received."""
        assert self.consumer is not None
        self._deliver()
        self.consumer = None
        left, self.buffer = self.buffer, []
        return left

    def consume(self, queue: str, prefetch: int, arguments: object = None, exclusive: bool = False) -> None:
        assert self.consumer is None
        assert prefetch > 0
        if exclusive and self.queue.refuses_exclusive:
            self._requeue()  # the refusal closes the channel
            raise errors.AccessRefused("queue 'q' in vhost '/' in exclusive use")
        self.consumer, self.window = f"c{self.tag}", prefetch
        self.queue.windows.append(prefetch)
        self._deliver()

    def _deliver(self) -> None:
        if not self.open:
            raise errors.ConnectionLost("gone")
        while self.consumer and self.queue.ready and len(self.unacked) < self.window:
            body, redelivered = self.queue.ready.popleft()
            self.tag += 1
            delivery = FakeDelivery(
                body, delivery_tag=self.tag, redelivered=redelivered, properties=self.queue.properties(body)
            )
            self.unacked[self.tag] = delivery
            self.buffer.append(delivery)

    def receive(self, most: int, timeout: float) -> list[FakeDelivery]:
        self._deliver()
        if self.queue.fail_receive_after is not None:
            self.queue.fail_receive_after -= 1
            if self.queue.fail_receive_after < 0:
                self.queue.fail_receive_after = None
                self.close()
                raise errors.ConnectionLost("cut")
        got, self.buffer = self.buffer[:most], self.buffer[most:]
        return got

    def ack(self, delivery_tag: int) -> None:
        self._deliver()
        for tag in [tag for tag in self.unacked if tag <= delivery_tag]:
            self.queue.acked.append(self.unacked.pop(tag).body)


class FakeStream:
    """A stream queue with messages `first` to `tail` - 1, less `missing`; every connection dies after `life` reads."""

    def __init__(self, first: int, tail: int, *, missing: Iterable[int] = (), life: int | None = None) -> None:
        self.first = first
        self.numbers = [n for n in range(first, tail) if n not in set(missing)]
        self.life = life
        self.chunk = 7
        self.opened = 0
        self.count_lag = 0  # how many messages passive declare does not know of yet
        self.records = 0  # of the broker's own, which it counts and nobody is given
        self.overtakes = 0
        self.late = 0  # so many times a consumer hears nothing of what there is, but after an answer
        self.refuse = 0  # so many connection attempts fail
        self.product = "RabbitMQ"

    def empty(self) -> None:
        """As retention that finds the newest segment empty: it leaves a record of the broker's own."""
        self.numbers, self.records = [], 1

    def link(self, url: str, timeout: float) -> FakeStreamLink:
        if self.refuse:
            self.refuse -= 1
            raise errors.ConnectionLost("refused")
        self.opened += 1
        return FakeStreamLink(self)

    def feed(self, url: str, timeout: float) -> FakeFeed:
        if self.refuse:
            self.refuse -= 1
            raise errors.ConnectionLost("refused")
        self.opened += 1
        return FakeFeed(self)


class FakeStreamLink(FakeLinkBase):
    def __init__(self, stream: FakeStream) -> None:
        super().__init__()
        self.stream = stream
        self.at = 0
        self.reads = 0
        self.answered = False
        self.product = stream.product

    @property
    def channel(self) -> Any:
        """Only for services, which it has none of."""
        raise NoService("no service")

    def count(self, queue: str) -> int:
        return max(0, len(self.stream.numbers) + self.stream.records - self.stream.count_lag)

    def overtake(self, queue: str) -> int:
        self.answered = True
        self.stream.overtakes += 1
        return self.count(queue)

    def consume(self, queue: str, prefetch: int, arguments: dict[str, object]) -> None:
        numbers, wanted = self.stream.numbers, arguments["x-stream-offset"]
        if wanted == "first":
            self.at = 0
        elif wanted == "last":
            self.at = max(0, len(numbers) - self.stream.chunk)
        elif not isinstance(wanted, int):
            self.at = len(numbers)  # of nothing that is there
        else:
            later = [i for i, n in enumerate(numbers) if n >= wanted]
            # The whole chunk is delivered, from before the number that was asked for.
            self.at = later[0] // self.stream.chunk * self.stream.chunk if later else len(numbers)
        self.consumer = "c"

    def receive(self, most: int, timeout: float) -> list[FakeDelivery]:
        self.reads += 1
        if self.stream.life is not None and self.reads > self.stream.life:
            raise errors.ConnectionLost("cut")
        answered, self.answered = self.answered, False
        if self.consumer is None:
            return []
        if self.stream.late and not answered:
            self.stream.late -= 1
            return []
        take = self.stream.numbers[self.at : self.at + min(most, self.stream.chunk)]
        self.at += len(take)
        deliveries = []
        for number in take:
            self.tag += 1
            deliveries.append(
                FakeDelivery(
                    b"%d" % number, delivery_tag=self.tag, properties=Properties(headers={"x-stream-offset": number})
                )
            )
        return deliveries

    def ack(self, delivery_tag: int) -> None:
        assert delivery_tag <= self.tag

    def reset(self) -> None:
        self.consumer = None


class FakeFeed(FakeStreamLink):
    """The same as a SocketReader: what comes is one list of deliveries."""

    def receive(self, timeout: float) -> list[Any]:  # type: ignore[override]
        got = super().receive(10**9, timeout)
        return [got] if got else []
