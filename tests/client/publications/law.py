"""The law of publications as a table, and a run of one cell of it.

Every publication ends in exactly one of: confirmed, refused by its own fault, nacked, returned, or maybe; or it is
"never sent", and then nothing of it was written. `ENDS` says for each end what is told; `run` makes the end happen to
publications that a way has under way, and compares what was told with what is in the queue.

Two publications are confirmed first. Then confirms are withheld (`relay`), so that what is under way has arrived and is
not answered, and the end happens.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import harebell
from harebell import errors
from harebell.broker import Broker
from harebell.client.channel import Channel
from harebell.client.messages import OnOrphan
from harebell.client.recovery.policy import Backoff, Recovery
from harebell.testing import EmbeddedBroker, FaultProxy
from tests.client.publications.relay import Relay
from tests.client.publications.ways import (
    PATIENCE,
    WAYS,
    Address,
    Publish,
    PublishWithoutConfirms,
    Told,
    Transaction,
    Way,
)  # fmt: skip

__all__ = ["ENDS", "POLICIES", "End", "Policy", "run", "table_of_faults", "table_of_policies", "table_of_ways"]

Policy = Literal["raise", "retry", "park"]
POLICIES: Final[tuple[Policy, ...]] = ("raise", "retry", "park")

BEFORE: Final = (0, 1)  # the numbers of publications that are confirmed before
UNDER_WAY: Final = (2, 3, 4, 5)  # that the end meets
FAULTY: Final = (6,)  # that are themselves what is wrong
QUICK: Final = Recovery(backoff=Backoff(0.001, 0.05))
NOT_THERE: Final = frozenset(("never sent", "refused", "nacked", "returned"))


class Scene:
    """One way to publish to one queue, through a relay and a proxy, and an observer past them."""

    def __init__(self, way: Way, relay: Relay, proxy: FaultProxy, observer: Channel, queue: str) -> None:
        self.way = way
        self.relay = relay
        self.proxy = proxy
        self.observer = observer
        self.queue = queue
        self.server: EmbeddedBroker | None = None
        self.policy: Policy = "raise"
        self.taken: Counter[int] = Counter()  # out of the queue already
        self.numbers: set[int] = set()
        self.faulty: set[int] = set()

    async def put(self, numbers: Sequence[int], address: Address | None = None) -> None:
        self.numbers.update(numbers)
        await self.way.put(numbers, address or Address("", self.queue))

    async def put_faulty(self, address: Address, numbers: Sequence[int] = FAULTY) -> None:
        self.faulty.update(numbers)
        await self.put(numbers, address)

    async def arrived(self) -> None:
        """Until all that was published is in the queue."""
        async with asyncio.timeout(PATIENCE):
            while await self.observer.message_count(self.queue) < len(self.numbers - self.faulty):  # noqa: ASYNC110
                await asyncio.sleep(0.002)

    async def under_way(self) -> None:
        """Publications that have arrived and have no confirm."""
        self.relay.withholding = True
        await self.put(UNDER_WAY)
        await self.arrived()

    async def found(self) -> Counter[int]:
        """What is in the queue, by number; what arrived late, too."""
        found, empty = self.taken.copy(), 0
        while empty < 3:
            delivery = await self.observer.get(self.queue, no_ack=True)
            if delivery is None:
                empty += 1
                await asyncio.sleep(0.005)
            else:
                empty = 0
                found[int(delivery.body)] += 1
        return found


Happening = Callable[[Scene], Awaitable[None]]
EXPECTED = Mapping[Policy, str]


@dataclass(frozen=True, slots=True)
class End:
    """What ends publications, and what is told of them.

    text       for the documents
    happen     makes it happen to a scene
    told       by on_orphan (or on_nack, for `of_nacks`): what is told; "confirmed | maybe" where both are right
    faulty     what is told of the publication at fault, where there is one
    recovery   how the connection comes back
    own_broker the broker is the scene's own, and has a data folder
    timeout    seconds for each call
    of_nacks   it is about on_nack
    only       which ways it can meet
    instead    what is told with these ways, by their names
    """

    text: str
    happen: Happening
    told: EXPECTED
    faulty: str = ""
    recovery: Recovery | None = QUICK
    timeout: float = PATIENCE
    own_broker: bool = False
    of_nacks: bool = False
    queue_arguments: Mapping[str, Any] = field(default_factory=dict)
    only: Callable[[type[Way]], bool] = lambda way: True
    instead: Mapping[str, str] = field(default_factory=dict)

    def meets(self, way: type[Way]) -> bool:
        return self.only(way)


def always(what: str) -> EXPECTED:
    return dict.fromkeys(POLICIES, what)


def by_policy(retried: str = "confirmed", otherwise: str = "maybe") -> EXPECTED:
    """What becomes of a publication without an answer: as `on_orphan` says."""
    return {"raise": otherwise, "retry": retried, "park": otherwise}


# -- what happens ------------------------------------------------------------------------------------------------------


async def nothing(scene: Scene) -> None:
    await scene.put(UNDER_WAY)


async def outage_before(scene: Scene) -> None:
    scene.way.may_reconnect(False)
    scene.proxy.cut()
    await scene.way.lost()
    await scene.put(UNDER_WAY)
    await asyncio.sleep(0.01)
    scene.way.may_reconnect(True)


def cut_after(octets: int) -> Happening:
    async def cut(scene: Scene) -> None:
        scene.proxy.cut_after(octets, "to_server")
        await scene.put(UNDER_WAY)
        await asyncio.sleep(0.05)
        scene.proxy.no_cut()

    return cut


async def cut(scene: Scene) -> None:
    await scene.under_way()
    scene.relay.withholding = False
    scene.proxy.cut()


def other_call(error: type[errors.HarebellError], method: str, *arguments: object, **keywords: object) -> Happening:
    """A call on the same channel that the broker refuses with a channel error."""

    async def call(scene: Scene) -> None:
        await scene.under_way()
        try:
            await scene.way.call(method, *arguments, **keywords)
        except error:
            pass
        else:
            raise AssertionError(f"{method} was not refused")

    return call


async def inequivalent(scene: Scene) -> None:
    await scene.under_way()
    try:
        await scene.way.call("queue_declare", scene.queue, auto_delete=True)
    except errors.PreconditionFailed:
        pass
    else:
        raise AssertionError("the declaration was not refused")


def own_fault(exchange: str = "", numbers: Sequence[int] = FAULTY, **properties: object) -> Happening:
    """A publication that the broker refuses behind those under way: it closes the channel."""

    async def publish(scene: Scene) -> None:
        await scene.under_way()
        to = exchange or f"{scene.queue}.missing"
        if exchange == "internal":
            to = f"{scene.queue}.internal"
            await scene.observer.exchange_declare(to, "fanout", internal=True)
        await scene.put_faulty(Address(to, "key", properties=properties), numbers)
        with suppress(errors.ChannelError):  # it may be on the channel when that is closed
            await scene.way.call("queue_inspect", scene.queue)

    return publish


async def bad_property(scene: Scene) -> None:
    """Alone: with others under way the broker's text does not say which one it means."""
    await scene.put_faulty(Address("", scene.queue, properties={"expiration": "soon"}))


async def too_long(scene: Scene) -> None:
    await scene.put(UNDER_WAY)
    await scene.put_faulty(Address("", scene.queue, properties={"headers": {"long": "x" * 200_000}}))


async def own_close(scene: Scene) -> None:
    await scene.under_way()
    await scene.way.call("close")


async def own_connection_close(scene: Scene) -> None:
    await scene.under_way()
    await scene.way.close_connection()


async def give_up(scene: Scene) -> None:
    await scene.under_way()
    scene.proxy.refuse()
    scene.proxy.cut()


async def waiting_then(scene: Scene, end: Callable[[], Awaitable[object]]) -> None:
    scene.way.may_reconnect(False)
    scene.proxy.cut()
    await scene.way.lost()
    await scene.put(UNDER_WAY)
    await asyncio.sleep(0.02)
    await end()


async def close_while_waiting(scene: Scene) -> None:
    await waiting_then(scene, lambda: scene.way.call("close"))


async def close_connection_while_waiting(scene: Scene) -> None:
    await waiting_then(scene, scene.way.close_connection)


async def give_up_while_waiting(scene: Scene) -> None:
    scene.proxy.refuse()
    scene.proxy.cut()
    await scene.way.lost()
    await scene.put(UNDER_WAY)


async def calls_fail(scene: Scene) -> None:
    scene.way.may_reconnect(False)
    scene.proxy.cut()
    await scene.way.lost()
    await scene.put(UNDER_WAY)


async def deadline(scene: Scene) -> None:
    await scene.under_way()


async def deadline_while_waiting(scene: Scene) -> None:
    await calls_fail(scene)


async def cancellation(scene: Scene) -> None:
    await scene.under_way()
    await scene.way.cancel()


async def broker_stops(scene: Scene) -> None:
    assert scene.server is not None
    await scene.under_way()
    await asyncio.to_thread(scene.server.stop)
    scene.relay.withholding = False
    await asyncio.to_thread(scene.server.start)


async def full(scene: Scene) -> None:
    """There is room for what was confirmed before, and with on_nack="retry" for what comes, one after the other."""
    await scene.put(UNDER_WAY)
    if scene.policy == "retry":
        while len(scene.taken) < len(scene.numbers):  # the way waits until it is confirmed
            delivery = await scene.observer.get(scene.queue, no_ack=True)
            if delivery is not None:
                scene.taken[int(delivery.body)] += 1


async def before_commit(scene: Scene, event: Callable[[], Awaitable[object]]) -> None:
    """Something happens between the publications of a transaction and its commit."""
    assert isinstance(scene.way, Transaction)
    scene.numbers.update(UNDER_WAY)
    scene.way.before_commit = event
    await scene.put(UNDER_WAY)


async def call_before_commit(scene: Scene) -> None:
    async def event() -> None:
        with suppress(errors.NotFound):
            await scene.way.call("get", "law.nowhere")

    await before_commit(scene, event)


async def fault_in_a_transaction(scene: Scene) -> None:
    async def event() -> None:
        await scene.way.call("publish", b"99", f"{scene.queue}.missing", "key")

    await before_commit(scene, event)


async def cut_before_commit(scene: Scene) -> None:
    async def event() -> None:
        scene.proxy.cut()
        await scene.way.lost()

    await before_commit(scene, event)


async def unroutable(scene: Scene) -> None:
    await scene.put(UNDER_WAY, Address("", f"{scene.queue}.nowhere", mandatory=True))


async def block(scene: Scene) -> None:
    assert scene.server is not None
    await asyncio.to_thread(scene.server.run, lambda broker: broker.node.raise_alarm("memory"))
    await scene.way.blocked()
    await scene.put(UNDER_WAY)
    await asyncio.sleep(0.02)


async def blocked_for_a_while(scene: Scene) -> None:
    await block(scene)
    assert scene.server is not None
    await asyncio.to_thread(scene.server.run, lambda broker: broker.node.clear_alarm("memory"))


def answered(way: type[Way]) -> bool:
    """Ways that have an answer of the broker."""
    return way.confirms


def confirming(way: type[Way]) -> bool:
    """Ways that have an answer for each publication."""
    return way.confirms and way is not Transaction


def confirming_calls(way: type[Way]) -> bool:
    """Ways whose wait for an answer has a deadline."""
    return way.confirms and way.has_deadline


def transactional(way: type[Way]) -> bool:
    return way is Transaction


def cancellable(way: type[Way]) -> bool:
    return way.confirms and way.can_cancel


OFF: Final = PublishWithoutConfirms.name
TX: Final = Transaction.name
FULL: Final = {"x-max-length": len(BEFORE), "x-overflow": "reject-publish"}

# In order: what is well, losses, errors of the broker, the program's own ends, waits, answers of the broker.
ENDS: Final[dict[str, End]] = {
    "well": End("nothing happens", nothing, always("confirmed"), instead={OFF: "handed over"}),
    "outage before": End(
        "the connection is lost before the publication is written, and comes back",
        outage_before,
        always("confirmed"),
        instead={OFF: "handed over", TX: "never sent"},
    ),
    **{
        f"cut while writing {octets}": End(
            "the connection is cut while the publication is written",
            cut_after(octets),
            by_policy("confirmed", "confirmed | maybe"),
            instead={OFF: "handed over", TX: "confirmed | maybe | never sent"},
        )
        for octets in (0, 50, 150, 301)
    },
    "cut": End("the connection is cut after it was written", cut, by_policy(), only=answered),
    "404 of another call": End(
        "another call on the channel gets 404", other_call(errors.NotFound, "get", "law.nowhere"), by_policy(),
        only=confirming,
    ),
    "406 of another call": End("another call on the channel gets 406", inequivalent, by_policy(), only=confirming),
    "403 of another call": End(
        "another call on the channel gets 403",
        other_call(errors.AccessRefused, "exchange_delete", "amq.direct"), by_policy(), only=confirming,
    ),
    "404 of its own": End(
        "it goes to an exchange that does not exist", own_fault(), by_policy(), faulty="refused", only=confirming
    ),
    "403 of its own": End(
        "it goes to an internal exchange", own_fault("internal"), by_policy(), faulty="refused", only=confirming
    ),
    "404 of several": End(
        "several go to an exchange that does not exist, side by side",
        own_fault(numbers=(6, 7)), by_policy(), faulty="maybe | refused", only=confirming,
    ),
    "406 of its own": End(
        "its expiration is no number", bad_property, always("confirmed"), faulty="refused", only=confirming
    ),
    "too long": End(
        "its properties do not fit a frame", too_long, always("confirmed"), faulty="refused",
        instead={OFF: "handed over"},
    ),
    "channel closed": End("the program closes the channel", own_close, by_policy("maybe"), only=answered),
    "connection closed": End(
        "the program closes the connection", own_connection_close, by_policy("maybe"), only=answered
    ),
    "gave up": End(
        "the connection is lost, and does not come back within give_up_after", give_up, by_policy("maybe"),
        recovery=Recovery(backoff=Backoff(0.001, 0.01), give_up_after=0.1), only=answered,
    ),
    "no recovery": End(
        "the connection is lost, with recovery=None", cut, by_policy("maybe"), recovery=None, only=answered
    ),
    "404 without reopening": End(
        "another call gets 404, with reopen_channels=False", other_call(errors.NotFound, "get", "law.nowhere"),
        by_policy("maybe"), recovery=Recovery(reopen_channels=False), only=confirming,
    ),
    "deadline": End(
        "no confirm comes within the timeout", deadline, always("maybe"), timeout=0.3, only=confirming_calls
    ),
    "cancelled": End("its caller is cancelled", cancellation, always("cancelled"), only=cancellable),
    "broker stops": End(
        "the broker is stopped and started", broker_stops, by_policy(), own_broker=True, only=answered
    ),
    "channel closed meanwhile": End(
        "it waits for the end of an outage, and the program closes the channel", close_while_waiting,
        always("never sent"),
    ),
    "connection closed meanwhile": End(
        "it waits for the end of an outage, and the program closes the connection", close_connection_while_waiting,
        always("never sent"),
    ),
    "gave up meanwhile": End(
        "it waits for the end of an outage that outlasts give_up_after", give_up_while_waiting, always("never sent"),
        recovery=Recovery(backoff=Backoff(0.001, 0.01), give_up_after=0.1),
    ),
    "deadline meanwhile": End(
        "it waits for the end of an outage until its timeout", deadline_while_waiting, always("never sent"),
        timeout=0.2,
    ),
    "calls fail": End(
        'it meets an outage, with calls="fail"', calls_fail, always("never sent"),
        recovery=Recovery(backoff=Backoff(0.001, 0.05), calls="fail"),
    ),
    "blocked": End(
        "an alarm blocks publishers for a while", blocked_for_a_while, always("confirmed"), own_broker=True,
        instead={OFF: "handed over"},
    ),
    "blocked too long": End(
        "an alarm blocks publishers until its timeout", block, always("never sent"), timeout=0.2, own_broker=True
    ),
    "404 in a transaction": End(
        "another call on the channel gets 404 before the commit", call_before_commit, always("never sent"),
        only=transactional,
    ),
    "404 of one in a transaction": End(
        "one of a transaction goes to an exchange that does not exist", fault_in_a_transaction, always("refused"),
        only=transactional,
    ),
    "cut before the commit": End(
        "the connection is cut before the commit", cut_before_commit, always("never sent"), only=transactional
    ),
    "nacked": End(
        "the broker nacks it", full, by_policy("confirmed", "nacked"), queue_arguments=FULL, of_nacks=True,
        only=confirming,
    ),
    "returned": End(
        "it is mandatory and reaches no queue", unroutable, always("returned"), only=confirming
    ),
}  # fmt: skip


@asynccontextmanager
async def scene_of(way: Way, end: End, broker_url: str, queue: str) -> AsyncIterator[Scene]:
    """A queue on the broker, or with `own_broker` on one of the scene's own, and all that stands before it."""
    async with AsyncExitStack() as stack:
        server: EmbeddedBroker | None = None
        if end.own_broker:
            data = stack.enter_context(tempfile.TemporaryDirectory())
            server = await stack.enter_async_context(embedded(data))
            broker_url = server.url
        at = urlsplit(broker_url)
        relay = await stack.enter_async_context(Relay(at.hostname or "", at.port or 0))
        proxy = await stack.enter_async_context(FaultProxy("127.0.0.1", relay.port))
        own = await stack.enter_async_context(harebell.connect(broker_url, timeout=60, recovery=QUICK))
        observer = await own.channel()
        await observer.queue_declare(queue, durable=True, arguments=end.queue_arguments)
        way.url = f"amqp://guest:guest@{proxy.host}:{proxy.port}/"
        scene = Scene(way, relay, proxy, observer, queue)
        scene.server = server
        try:
            yield scene
        finally:
            if server is not None:
                await asyncio.to_thread(server.run, lambda broker: broker.node.clear_alarm("memory"))
            relay.withholding = False
            proxy.accept()
            proxy.no_cut()
            await way.aclose()
            await observer.queue_delete(queue)
            await observer.exchange_delete(f"{queue}.internal")


@asynccontextmanager
async def embedded(data: str) -> AsyncIterator[EmbeddedBroker]:
    server = EmbeddedBroker(lambda: Broker(data=data))
    await asyncio.to_thread(server.start)
    try:
        yield server
    finally:
        await asyncio.to_thread(server.close)


async def run(kind: type[Way], end: End, policy: Policy, broker_url: str, queue: str) -> None:
    """One cell of the law. AssertionError says what was told wrong, twice, or not at all."""
    told = Told()
    way = kind("", end.recovery, told, PATIENCE)
    async with scene_of(way, end, broker_url, queue) as scene:
        scene.policy = policy
        way.set_aside = "nacked" if end.of_nacks else "maybe"
        on_orphan: OnOrphan = "raise" if end.of_nacks else policy
        await way.open(on_orphan, policy if end.of_nacks else "raise")
        if kind is not Transaction:
            await scene.put(BEFORE)
            await way.over(BEFORE)
        way.timeout = end.timeout
        await end.happen(scene)
        await way.over(sorted(scene.numbers))
        parked = way.parked if kind.confirms else []
        check(scene, told, await scene.found(), parked, end, policy)


def check(scene: Scene, told: Told, found: Counter[int], parked: list[int], end: End, policy: Policy) -> None:
    """Compare what was told with what is in the queue, and with what the law says."""
    name = type(scene.way).name
    wrong: list[str] = []
    for number in sorted(scene.numbers):
        ends = told.of[number]
        if len(ends) != 1:
            wrong.append(f"{number} was told {ends}")
            continue
        (what,) = ends
        if number in BEFORE:
            allowed = "handed over" if name == OFF else "confirmed"
        elif number in scene.faulty:
            allowed = end.faulty if type(scene.way).confirms else f"{end.faulty} | handed over | never sent"
        else:
            allowed = end.instead.get(name, end.told[policy])
        if what not in allowed.split(" | "):
            wrong.append(f"{number} was told {what}, not {allowed}: {told.errors[number]!r}")
        if what == "confirmed" and not found[number]:
            wrong.append(f"{number} was confirmed, and is not in the queue")
        if what in NOT_THERE and found[number]:
            wrong.append(f"{number} was told {what}, and is in the queue")
        if found[number] > 1 and policy != "retry":
            wrong.append(f"{number} is in the queue {found[number]} times")
    if policy == "park" and type(scene.way).confirms:
        aside = [n for n in scene.numbers if told.of[n] == ["nacked" if end.of_nacks else "maybe"]]
        if isinstance(told.errors.get(aside[0] if aside else -1), errors.ConfirmTimeout):
            aside = []  # these are still under way
        if sorted(parked) != sorted(aside):
            wrong.append(f"parked are {sorted(parked)}, and told so were {sorted(aside)}")
    assert not wrong, "; ".join(wrong)


# -- the tables of docs/explanation/publications.md --------------------------------------------------------------------


def cell(way: type[Way], end: End, policy: Policy) -> str:
    return end.instead.get(way.name, end.told[policy]).replace(" | ", " or ") if end.meets(way) else "-"


def rows() -> list[tuple[str, End]]:
    """Each row once: a cut has several places."""
    return [(end.text, end) for end in {end.text: end for end in ENDS.values()}.values()]


def table_of_ways() -> str:
    ways = list(WAYS.values())
    lines = ["| what happens | " + " | ".join(way.name for way in ways) + " |", "|---|" + "---|" * len(ways)]
    for text, end in rows():
        if not end.faulty:
            lines.append(f"| {text} | " + " | ".join(cell(way, end, "raise") for way in ways) + " |")
    return "\n".join(lines) + "\n"


def table_of_policies() -> str:
    """Where the policies differ, with any way that has an answer for each publication."""
    lines = ["| what happens | raise | retry | park |", "|---|---|---|---|"]
    for text, end in rows():
        if len(set(end.told.values())) > 1:
            lines.append(f"| {text} | " + " | ".join(cell(Publish, end, policy) for policy in POLICIES) + " |")
    return "\n".join(lines) + "\n"


def table_of_faults() -> str:
    lines = ["| what happens | it is told | those beside it are told |", "|---|---|---|"]
    for text, end in rows():
        if end.faulty:
            beside = cell(Publish, end, "raise")
            lines.append(f"| {text} | {end.faulty.replace(' | ', ' or ')} | {beside} |")
    return "\n".join(lines) + "\n"
