"""Each way to publish, as the model of `law` drives it: publications with numbers in, what is told of each out.

A way records what the program that publishes so is told, in the program's own terms: what a call returns or raises,
what an iterator or a callback gives. `kind_of` puts it into the words of the law.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import harebell
from harebell import errors
from harebell.client.channel import Channel
from harebell.client.confirms import Bulk
from harebell.client.connection import Connection
from harebell.client.messages import Confirmation, Message, OnOrphan, Publication, Returned
from harebell.client.patterns.pending import Pending
from harebell.client.patterns.producer import Producer
from harebell.client.recovery.policy import Recovery

__all__ = ["WAYS", "Address", "Told", "Way", "kind_of"]

PATIENCE: Final = 60.0  # seconds for what takes milliseconds; what is not told by then is not told


async def until(holds: Callable[[], bool]) -> None:
    """Ask again and again: threads and the broker tell nobody. TimeoutError when it takes too long."""
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


class Told:
    """What was told of each publication, by its number."""

    def __init__(self) -> None:
        self.of: dict[int, list[str]] = defaultdict(list)
        self.errors: dict[int, object] = {}

    def tell(self, number: int, outcome: object) -> None:
        self.of[number].append(kind_of(outcome))
        self.errors[number] = outcome


def kind_of(outcome: object) -> str:
    """What an outcome says, in the words of the law."""
    if isinstance(outcome, Confirmation):
        if outcome.acked:
            return "returned" if outcome.returned is not None else "confirmed"
        if outcome.orphaned:
            return "maybe"
        return "nacked" if outcome.error is None else "refused"
    if isinstance(outcome, str):
        return outcome
    if isinstance(outcome, errors.PublishOrphaned):
        return "maybe"
    if isinstance(outcome, errors.Nacked):
        return "nacked"
    if isinstance(outcome, errors.Unroutable):
        return "returned"
    if isinstance(outcome, errors.ChannelError | errors.LocalProtocolError | errors.InvalidArgument):
        return "refused"
    if isinstance(outcome, asyncio.CancelledError):
        return "cancelled"
    if isinstance(
        outcome,
        errors.ChannelClosed | errors.ConnectionLost | errors.DeadlineExceeded | errors.RecoveryGaveUp
        | errors.ConnectionError,
    ):  # fmt: skip
        return "never sent"
    return repr(outcome)


@dataclass(frozen=True, slots=True)
class Address:
    """Where the publications of one `put` go, and what they carry."""

    exchange: str
    routing_key: str
    mandatory: bool = False
    properties: Mapping[str, Any] = field(default_factory=dict)

    def message(self, number: int) -> Message:
        return Message(b"%d" % number, **{"delivery_mode": 2, **self.properties})

    def publication(self, number: int) -> Publication:
        return Publication(self.message(number), self.exchange, self.routing_key, self.mandatory)


class Way:
    """One way to publish, in one scene.

    url, recovery, told, timeout  the scene's: where to connect and how, what was told, seconds for each call
    tasks                         the calls under way
    """

    name: ClassVar[str]
    how: ClassVar[str]
    blocking: ClassVar[bool] = False
    confirms: ClassVar[bool] = True  # whether it is told of single publications at all
    has_deadline: ClassVar[bool] = True  # whether the wait for a confirm has one
    can_cancel: ClassVar[bool] = True

    def __init__(self, url: str, recovery: Recovery | None, told: Told, timeout: float) -> None:
        self.url, self.recovery, self.told, self.timeout = url, recovery, told, timeout
        self.tasks: set[asyncio.Task[Any]] = set()
        self.set_aside = "maybe"  # what is told of a publication that one call of many leaves in `parked`
        self.connection: Connection
        self.channel: Channel

    async def open(self, on_orphan: OnOrphan, on_nack: Any) -> None:
        self.connection = await harebell.connect(self.url, recovery=self.recovery, timeout=60)
        await self._open(on_orphan, on_nack)

    async def _open(self, on_orphan: OnOrphan, on_nack: Any) -> None:
        self.channel = await self.connection.channel()
        await self.channel.confirm_select(on_orphan=on_orphan, on_nack=on_nack)

    async def put(self, numbers: Sequence[int], address: Address) -> None:
        """Begin to publish them; what they are told is recorded as it comes."""
        for number in numbers:
            self._spawn(self._one(number, address))
        await asyncio.sleep(0)

    async def _one(self, number: int, address: Address) -> None:
        try:
            self.told.tell(number, await self._publish(number, address))
        except (errors.HarebellError, asyncio.CancelledError) as error:
            self.told.tell(number, error)

    async def _publish(self, number: int, address: Address) -> object:
        raise NotImplementedError

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        self.tasks.add(asyncio.ensure_future(work))

    async def call(self, method: str, *arguments: object, **keywords: object) -> object:
        """Call a method of the channel that the publications are on."""
        return await getattr(self.channel, method)(*arguments, **keywords)

    async def lost(self) -> None:
        """Until the client has noticed that its connection is gone."""
        await until(lambda: not self.connection.is_open)

    async def blocked(self) -> None:
        """Until the broker takes no publications, and the client knows: a broker says so to those who publish."""
        channel = await self.connection.channel()
        channel.publish_nowait(b"", "amq.fanout")
        await until(lambda: self.connection.blocked is not None)

    def may_reconnect(self, allowed: bool) -> None:
        harness = self.connection.test()
        if allowed:
            harness.unblock_reconnect()
        else:
            harness.block_reconnect()

    async def cancel(self) -> None:
        """Cancel the calls under way."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def close_connection(self) -> None:
        await self.connection.close(timeout=5)

    async def over(self, numbers: Sequence[int]) -> None:
        """Until each of them was told, or nothing more is told."""
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=PATIENCE)
        await self._told(numbers)

    async def _told(self, numbers: Sequence[int]) -> None:
        with suppress(TimeoutError):  # the model counts what was not told
            await until(lambda: all(self.told.of[number] for number in numbers))
        for _ in range(5):  # what is told twice is told in these turns at the latest
            await asyncio.sleep(0)

    @property
    def parked(self) -> list[int]:
        """The numbers of the publications that were set aside."""
        return [number_of(publication.message) for _, publication in self.channel.parked]

    async def aclose(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.may_reconnect(True)
        await self.connection.close(timeout=5)


def number_of(message: Message | bytes) -> int:
    return int(message.body if isinstance(message, Message) else message)


class Publish(Way):
    """Calls of channel.publish, side by side."""

    name = "publish"
    how = "`channel.publish`"

    async def _publish(self, number: int, address: Address) -> object:
        return await self.channel.publish(
            address.message(number), address.exchange, address.routing_key, mandatory=address.mandatory,
            timeout=self.timeout,
        )  # fmt: skip


class PublishWithoutConfirms(Publish):
    name = "unconfirmed"
    how = "`channel.publish` without confirms: nothing tells what becomes of it"
    confirms = False

    async def _open(self, on_orphan: OnOrphan, on_nack: Any) -> None:
        self.channel = await self.connection.channel()

    async def _publish(self, number: int, address: Address) -> object:
        assert await super()._publish(number, address) is None
        return "handed over"


class Send(Way):
    """channel.send; the outcomes are what `confirmations` gives."""

    name = "send"
    how = "`channel.send`, and what `channel.confirmations` gives"
    has_deadline = False
    can_cancel = False

    async def _open(self, on_orphan: OnOrphan, on_nack: Any) -> None:
        await super()._open(on_orphan, on_nack)
        self._numbers: dict[int, int] = {}
        self._early: list[Confirmation] = []
        self._listening = asyncio.ensure_future(self._listen())
        await asyncio.sleep(0)

    async def _listen(self) -> None:
        try:
            async for confirmation in self.channel.confirmations():
                number = self._numbers.get(confirmation.publish_tag)
                if number is None:
                    self._early.append(confirmation)
                else:
                    self.told.tell(number, confirmation)
        except errors.HarebellError:
            pass  # why the channel is closed

    async def _one(self, number: int, address: Address) -> None:
        try:
            tag = await self._publish(number, address)
        except (errors.HarebellError, asyncio.CancelledError) as error:
            self.told.tell(number, error)
            return
        assert isinstance(tag, int)
        self._numbers[tag] = number
        for confirmation in [one for one in self._early if one.publish_tag == tag]:
            self._early.remove(confirmation)
            self.told.tell(number, confirmation)

    async def _publish(self, number: int, address: Address) -> object:
        return await self.channel.send(
            address.message(number), address.exchange, address.routing_key, mandatory=address.mandatory,
            timeout=self.timeout,
        )  # fmt: skip

    async def over(self, numbers: Sequence[int]) -> None:
        await super().over(numbers)
        assert not self._early, f"told of publications that nobody made: {self._early}"

    async def aclose(self) -> None:
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)
        await super().aclose()


class Recorder:
    """The waiter of one publication."""

    def __init__(self, told: Told, number: int) -> None:
        self._told, self._number = told, number
        self._returned: Returned | None = None

    def settle(self, publish_tag: int, acked: bool) -> None:
        self._told.tell(self._number, Confirmation(publish_tag, acked, returned=self._returned))

    def returned(self, publish_tag: int, returned: Returned) -> None:
        self._returned = returned

    def refused(self, publish_tag: int, error: errors.HarebellError) -> None:
        self._told.tell(self._number, error)

    def orphaned(self, publish_tag: int, reason: errors.HarebellError) -> None:
        self._told.tell(self._number, Confirmation(publish_tag, False, orphaned=True))


class PublishNowait(Way):
    """channel.publish_nowait with a waiter."""

    name = "nowait"
    how = "`channel.publish_nowait` with a waiter"
    has_deadline = False
    can_cancel = False

    async def put(self, numbers: Sequence[int], address: Address) -> None:
        for number in numbers:
            self._spawn(self._written(number, address))
        await asyncio.sleep(0)

    async def _written(self, number: int, address: Address) -> None:
        try:
            await self.channel.wait_publish(timeout=self.timeout)
            self._write(number, address)
        except (errors.HarebellError, asyncio.CancelledError) as error:
            self.told.tell(number, error)

    def _write(self, number: int, address: Address) -> None:
        self.channel.publish_nowait(
            address.message(number), address.exchange, address.routing_key, mandatory=address.mandatory,
            waiter=Recorder(self.told, number),
        )  # fmt: skip


class Notified(PublishNowait):
    """channel.publish_nowait without a waiter; the callbacks of notify_publish hear of it, and the others agree."""

    name = "notify"
    how = "the callbacks of `notify_publish`, `notify_confirm` and `notify_confirm_or_orphaned`"

    async def _open(self, on_orphan: OnOrphan, on_nack: Any) -> None:
        await super()._open(on_orphan, on_nack)
        self._numbers: dict[int, int] = {}
        self._heard: dict[str, list[int]] = defaultdict(list)

        def hear(what: str) -> Callable[[int], None]:
            return self._heard[what].append

        self.channel.notify_publish(self._confirmed)
        self.channel.notify_confirm(hear("ack"), hear("nack"))
        self.channel.notify_confirm_or_orphaned(hear("acked"), hear("nacked"), hear("orphaned"))

    def _confirmed(self, confirmation: Confirmation) -> None:
        self.told.tell(self._numbers[confirmation.publish_tag], confirmation)

    def _write(self, number: int, address: Address) -> None:
        tag = self.channel.publish_nowait(
            address.message(number), address.exchange, address.routing_key, mandatory=address.mandatory
        )
        self._numbers[tag] = number

    async def over(self, numbers: Sequence[int]) -> None:
        await super().over(numbers)
        tags = sorted(self._numbers)
        assert sorted(self._heard["ack"] + self._heard["nack"]) == tags
        assert sorted(self._heard["acked"] + self._heard["nacked"] + self._heard["orphaned"]) == tags


class PublishMany(Way):
    """One channel.publish_many for all of a `put`."""

    name = "many"
    how = "`channel.publish_many`, of each publication"

    async def put(self, numbers: Sequence[int], address: Address) -> None:
        self._spawn(self._many(numbers, address))
        await asyncio.sleep(0)

    def _source(self, numbers: Sequence[int], address: Address) -> Any:
        return [address.publication(number) for number in numbers]

    async def _many(self, numbers: Sequence[int], address: Address) -> None:
        parked = set(self.parked)
        try:
            outcome: object = await self._call(self._source(numbers, address))
        except (errors.HarebellError, asyncio.CancelledError) as error:
            outcome = error
        tell_many(self.told, numbers, outcome, set(self.parked) - parked, self.set_aside)

    async def _call(self, source: Any) -> object:
        return await self.channel.publish_many(source, timeout=self.timeout)


def tell_many(told: Told, numbers: Sequence[int], outcome: object, parked: set[int], set_aside: str) -> None:
    """Record what one call tells of each of its publications."""
    if isinstance(outcome, asyncio.CancelledError):
        for number in numbers:
            told.tell(number, outcome)
        return
    failures: Mapping[int, object] = {}
    sent = len(numbers)
    if isinstance(outcome, errors.HarebellError):
        failures = outcome.failures
        if outcome.sent is not None:
            sent = outcome.sent
        elif not failures:  # then it is an error about all of them
            sent = 0
    elif isinstance(outcome, int):
        assert outcome == len(numbers) - len(parked & set(numbers)), f"it counts {outcome}"
    for position, number in enumerate(numbers):
        if position in failures:
            told.tell(number, failures[position])
        elif number in parked:
            told.tell(number, set_aside)
        elif position == sent and isinstance(outcome, errors.LocalProtocolError):
            told.tell(number, outcome)
        elif position >= sent:
            told.tell(number, "never sent")
        else:
            told.tell(number, "confirmed")


class PublishManyOfASource(PublishMany):
    """The same with an asynchronous iterator that has a pause in it."""

    name = "many, async"
    how = "the same of an asynchronous source"

    async def _source(self, numbers: Sequence[int], address: Address) -> AsyncIterator[Publication]:
        for number in numbers:
            yield address.publication(number)
            await asyncio.sleep(0)


class PublishBulk(PublishMany):
    """One channel.publish_bulk, and what it says of each place."""

    name = "bulk"
    how = "`channel.publish_bulk`, of each place"
    has_deadline = False
    can_cancel = False

    async def _many(self, numbers: Sequence[int], address: Address) -> None:
        raws = [address.message(number).properties.encode() for number in numbers]
        try:
            bulk = await self.channel.publish_bulk(
                [b"%d" % number for number in numbers], raws, address.exchange, address.routing_key,
                mandatory=address.mandatory, timeout=self.timeout,
            )  # fmt: skip
        except (errors.HarebellError, asyncio.CancelledError) as error:
            for number in numbers:
                self.told.tell(number, error)
            return
        try:
            await bulk.wait(timeout=PATIENCE)
        except errors.HarebellError:
            pass  # the places say it
        for number, outcome in zip(numbers, outcomes_of(bulk), strict=True):
            self.told.tell(number, outcome)


def outcomes_of(bulk: Bulk) -> list[object]:
    outcomes: list[object] = ["confirmed"] * bulk.count
    for place in bulk.returns:
        outcomes[place] = "returned"
    for place in bulk.nacked:
        outcomes[place] = "nacked"
    for place in bulk.unanswered:
        outcomes[place] = "maybe"
    for place, error in bulk.refusals.items():
        outcomes[place] = error
    return outcomes


class Produce(Way):
    """Calls of producer.publish, side by side."""

    name = "producer"
    how = "`producer.publish`"
    producer: Producer[Message | bytes]

    async def _open(self, on_orphan: OnOrphan, on_nack: Any) -> None:
        self.producer = self.connection.producer(on_orphan=on_orphan, on_nack=on_nack)
        await self.producer.start()
        self.channel = self.producer.channel

    async def _publish(self, number: int, address: Address) -> object:
        return await self.producer.publish(
            address.message(number), address.routing_key, exchange=address.exchange, mandatory=address.mandatory,
            timeout=self.timeout,
        )  # fmt: skip


class ProduceSoon(Produce):
    """producer.publish_soon, each awaited."""

    name = "soon"
    how = "`producer.publish_soon`, awaited"
    has_deadline = False

    async def _publish(self, number: int, address: Address) -> object:
        pending = await self._begin(number, address)
        return await pending

    async def _begin(self, number: int, address: Address) -> Pending:
        return await self.producer.publish_soon(
            address.message(number), address.routing_key, exchange=address.exchange, mandatory=address.mandatory,
            timeout=self.timeout,
        )  # fmt: skip


class ProduceAndDrain(ProduceSoon):
    """producer.publish_soon, none awaited: `drain` tells the failures."""

    name = "drain"
    how = "`producer.publish_soon`, and `producer.drain`"
    can_cancel = False

    async def _open(self, on_orphan: OnOrphan, on_nack: Any) -> None:
        await super()._open(on_orphan, on_nack)
        self._begun: dict[int, tuple[int, Pending]] = {}

    async def _one(self, number: int, address: Address) -> None:
        try:
            pending = await self._begin(number, address)
        except (errors.HarebellError, asyncio.CancelledError) as error:
            self.told.tell(number, error)
            return
        self._begun[pending.position] = (number, pending)

    async def over(self, numbers: Sequence[int]) -> None:
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=PATIENCE)
        failures: Mapping[int, object] = {}
        try:
            await self.producer.drain(timeout=PATIENCE)
        except errors.PublishesFailed as error:
            failures = error.failures
            if not str(error).partition("failed: ")[2]:
                raise  # it says nothing
        for position, (number, pending) in self._begun.items():
            if position in failures:
                self.told.tell(number, failures[position])
            elif pending.done:
                assert pending.confirmation is not None, "a failure was not told"
                self.told.tell(number, pending.confirmation)
        self._begun.clear()
        await self.producer.drain(timeout=PATIENCE)  # each failure is told once
        await self._told(numbers)


class ProduceMany(Produce):
    """One producer.publish_many for all of a `put`."""

    name = "producer, many"
    how = "`producer.publish_many`, of each publication"

    async def put(self, numbers: Sequence[int], address: Address) -> None:
        self._spawn(self._many(numbers, address))
        await asyncio.sleep(0)

    async def _many(self, numbers: Sequence[int], address: Address) -> None:
        publications = [address.publication(number) for number in numbers]
        try:
            outcome: object = await self.producer.publish_many(publications, timeout=self.timeout)
        except (errors.HarebellError, asyncio.CancelledError) as error:
            outcome = error
        if isinstance(outcome, list):
            for number, confirmation in zip(numbers, outcome, strict=True):
                self.told.tell(number, confirmation)
        else:
            tell_many(self.told, numbers, outcome, set(), self.set_aside)

    async def over(self, numbers: Sequence[int]) -> None:
        await super().over(numbers)
        if not self.producer.unconfirmed:
            await self.producer.drain(timeout=PATIENCE)  # what was raised is not raised again


class Transaction(Way):
    """The publications of a `put` in one transaction, and its commit."""

    name = "tx"
    how = "`channel.publish` in a transaction, and `tx_commit`"

    async def _open(self, on_orphan: OnOrphan, on_nack: Any) -> None:
        self.before_commit: Callable[[], Awaitable[object]] | None = None
        self.channel = await self.connection.channel()
        await self.channel.tx_select()

    async def put(self, numbers: Sequence[int], address: Address) -> None:
        self._spawn(self._commit(numbers, address))
        await asyncio.sleep(0)

    async def _commit(self, numbers: Sequence[int], address: Address) -> None:
        try:
            for number in numbers:
                await self.channel.publish(
                    address.message(number), address.exchange, address.routing_key, mandatory=address.mandatory,
                    timeout=self.timeout,
                )  # fmt: skip
            if self.before_commit is not None:
                await self.before_commit()
            await self.channel.tx_commit(timeout=self.timeout)
            outcome: object = "confirmed"
        except errors.TransactionLost as error:
            outcome = "maybe" if "whole, or not at all" in str(error) else "never sent"
        except (errors.HarebellError, asyncio.CancelledError) as error:
            outcome = error
        for number in numbers:
            self.told.tell(number, outcome)


class BlockingWay(Way):
    """A way of the blocking API: each call on a thread of its own."""

    blocking = True
    can_cancel = False

    async def open(self, on_orphan: OnOrphan, on_nack: Any) -> None:
        def work() -> None:
            self._blocking = harebell.blocking.connect(self.url, recovery=self.recovery, timeout=60)
            self._channel = self._blocking.channel()
            self._channel.confirm_select(on_orphan=on_orphan, on_nack=on_nack)
            self._opened()

        await asyncio.to_thread(work)

    def _opened(self) -> None:
        """On the thread that has opened the channel."""

    async def put(self, numbers: Sequence[int], address: Address) -> None:
        for number in numbers:
            self._spawn(asyncio.to_thread(self._in_thread, number, address))
        await asyncio.sleep(0)

    def _in_thread(self, number: int, address: Address) -> None:
        try:
            self._tell(number, self._call(number, address))
        except errors.HarebellError as error:
            self.told.tell(number, error)

    def _call(self, number: int, address: Address) -> object:
        return self._channel.publish(
            address.message(number), address.exchange, address.routing_key, mandatory=address.mandatory,
            timeout=self.timeout,
        )  # fmt: skip

    def _tell(self, number: int, outcome: object) -> None:
        self.told.tell(number, outcome)

    async def call(self, method: str, *arguments: object, **keywords: object) -> object:
        return await asyncio.to_thread(getattr(self._channel, method), *arguments, **keywords)

    async def lost(self) -> None:
        await until(lambda: not self._blocking.is_open)

    async def blocked(self) -> None:
        channel = await asyncio.to_thread(self._blocking.channel)
        channel.publish_nowait(b"", "amq.fanout")
        await until(lambda: self._blocking.blocked is not None)

    def may_reconnect(self, allowed: bool) -> None:
        harness = self._blocking.test()
        if allowed:
            harness.unblock_reconnect()
        else:
            harness.block_reconnect()

    async def close_connection(self) -> None:
        await asyncio.to_thread(self._blocking.close, timeout=5)

    @property
    def parked(self) -> list[int]:
        return [number_of(publication.message) for _, publication in self._channel.parked]

    async def aclose(self) -> None:
        await asyncio.to_thread(self.may_reconnect, True)
        await asyncio.to_thread(self._blocking.close, timeout=5)
        await asyncio.gather(*self.tasks, return_exceptions=True)


class BlockingPublish(BlockingWay):
    name = "blocking"
    how = "`channel.publish` of `harebell.blocking`"


class BlockingSend(BlockingWay):
    name = "blocking send"
    how = "its `channel.send`"
    has_deadline = False

    def _opened(self) -> None:
        self._confirmations = self._channel.confirmations()
        self._numbers: dict[int, int] = {}
        self._outcomes: list[Confirmation] = []
        self._spawn_listener()

    def _spawn_listener(self) -> None:
        import threading

        def listen() -> None:
            try:
                self._outcomes.extend(self._confirmations)
            except errors.HarebellError:
                pass

        self._listener = threading.Thread(target=listen, daemon=True)
        self._listener.start()

    def _call(self, number: int, address: Address) -> object:
        return self._channel.send(
            address.message(number), address.exchange, address.routing_key, mandatory=address.mandatory,
            timeout=self.timeout,
        )  # fmt: skip

    def _tell(self, number: int, outcome: object) -> None:
        assert isinstance(outcome, int)
        self._numbers[outcome] = number

    async def _told(self, numbers: Sequence[int]) -> None:
        with suppress(TimeoutError):
            await until(lambda: len(self._outcomes) >= len(self._numbers))
        outcomes = self._outcomes.copy()
        del self._outcomes[: len(outcomes)]
        for confirmation in outcomes:
            self.told.tell(self._numbers.pop(confirmation.publish_tag), confirmation)

    async def aclose(self) -> None:
        await super().aclose()
        await asyncio.to_thread(self._listener.join, PATIENCE)


class BlockingMany(BlockingWay):
    name = "blocking many"
    how = "its `channel.publish_many`"

    async def put(self, numbers: Sequence[int], address: Address) -> None:
        self._spawn(asyncio.to_thread(self._many, numbers, address))
        await asyncio.sleep(0)

    def _many(self, numbers: Sequence[int], address: Address) -> None:
        parked = set(self.parked)
        try:
            outcome: object = self._channel.publish_many(
                [address.publication(number) for number in numbers], timeout=self.timeout
            )
        except errors.HarebellError as error:
            outcome = error
        tell_many(self.told, numbers, outcome, set(self.parked) - parked, self.set_aside)


WAYS: Final[dict[str, type[Way]]] = {
    way.name: way
    for way in (
        Publish, Send, PublishNowait, Notified, PublishMany, PublishManyOfASource, PublishBulk, Produce, ProduceSoon,
        ProduceAndDrain, ProduceMany, BlockingPublish, BlockingSend, BlockingMany, PublishWithoutConfirms, Transaction,
    )
}  # fmt: skip
