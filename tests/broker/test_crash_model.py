"""A whole node on a disk that fails, in every way at every call, against what it promised.

What was confirmed is kept until a consumer has acknowledged it; nothing comes from nowhere; what was seen comes again
only as redelivered; what was acknowledged stays away, but for a power cut. What stands in a stream stays at its offset
once it was confirmed or read, until retention drops it. The catalog is a real file, for SQLite looks
after that; the messages are on the `Disk`.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, cast
from unittest.mock import patch

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from harebell.broker import batch
from harebell.broker.operations.startup import start_node
from harebell.broker.queues.stream import StreamQueue
from harebell.broker.store.data_folder import LastStop
from harebell.broker.store.open_files import LEAST
from harebell.broker.store.queue_log import journal
from harebell.broker.store.queue_log.log import QueueLog
from harebell.protocol.v091 import Content, Properties, Table, methods as m
from tests.broker.kit import Client, Clock, Stopwatch
from tests.broker.store.faults import Died, Disk, HandCommit

PAGE: Final = 4  # messages of a queue in memory, so that there is paging
SEGMENT_BYTES: Final = 700  # so that there are several
TTL: Final = 100  # milliseconds
LONGEST_DELAY: Final = 200
WALL: Final = 1_700_000_000_000

TO_DEAD: Final[Table] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
QUEUES: Final[dict[str, Table]] = {
    "dead": {},
    "plain": {},
    "levels": {"x-max-priority": 3},
    "quorum": {"x-queue-type": "quorum", **TO_DEAD},
    "short": {"x-max-length": 3, **TO_DEAD},
    "brief": {"x-message-ttl": TTL, **TO_DEAD},
    "safe": {
        "x-queue-type": "quorum", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish", **TO_DEAD,
    },
    "limited": {"x-queue-type": "quorum", "x-delivery-limit": 1, **TO_DEAD},
    "full": {"x-max-length": 3, "x-overflow": "reject-publish"},
    "later": {},
}  # fmt: skip
STREAM: Final[Table] = {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 500}
STREAMS: Final[dict[str, Table]] = {"log": STREAM, "kept": {**STREAM, "x-max-length-bytes": 1200}}
BOUND: Final = {"fan": ("plain", "levels", "short", "log"), "delays": ("later",)}
TARGETS: Final = [*QUEUES, *STREAMS, *BOUND]
COMMITTED: Final = [target for target in TARGETS if target != "full"]  # a commit-ok does not say what was refused
HANDED_ON: Final = ("dead", "later")  # what came from elsewhere on the disk may have come twice when there was a crash
IN_ORDER: Final = ("plain", "quorum", "short", "brief", "safe", "limited", "full")

Home = tuple[str, int]  # a queue, and the number of a message that was routed there


class Crashes(RuleBasedStateMachine):
    """`due` must be there after any crash; `gone` must not be there after a kill; `seen` says redelivered.

    `spread` are messages of commits to several queues: such a commit is on disk before it takes effect, so what others
    publish meanwhile may come before it; and a stream, or a delayed exchange, may get it twice.
    `offsets` are those of messages that were read from streams; `firsts` what retention may have dropped all before.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(journal, "PAGE_MESSAGES", PAGE)
        self.patch.setattr(journal, "RUN", 3)
        self.patch.setattr("harebell.broker.store.store.QueueLog", partial(QueueLog, segment_bytes=SEGMENT_BYTES))
        self.wall = WALL
        self.clock = Clock()
        self.patch.setattr("time.time_ns", lambda: (self.wall + self.clock.now) * 1_000_000)  # expiry is on disk
        self.disk = Disk()
        for name in ("queues", "delays", "streams"):
            self.disk.make(f"{self.folder.name}/{name}")
        self.number = 0
        self.published: set[Home] = set()
        self.due: set[Home] = set()
        self.acked: set[Home] = set()  # by the consumer, whether or not the broker got so far
        self.gone: set[Home] = set()
        self.seen: set[Home] = set()
        self.rolled_back: set[Home] = set()
        self.refused: set[Home] = set()
        self.spread: set[Home] = set()
        self.offsets: dict[str, dict[int, int]] = {name: {} for name in STREAMS}
        self.firsts = dict.fromkeys(STREAMS, 0)
        self.holes = False  # streams may have some: after a power cut
        self.deaths = Counter[str]()
        self.start(LastStop.CLEAN)
        self.declare()

    def teardown(self) -> None:
        self.disk.heal()
        if self.node.batch.failed is None:
            self.sync()
        if self.node.batch.failed is None:
            self.node.stop()
            self.node.catalog.close()
            self.start(LastStop.CLEAN)
            self.look()
        self.pass_time(LONGEST_DELAY)
        self.look(delayed=True)
        self.node.catalog.close()
        self.patch.undo()
        self.folder.cleanup()

    # -- the broker's life

    def start(self, last_stop: LastStop) -> None:
        now, self.clock = self.clock.now, Clock()
        self.wall += now - self.clock.now  # this one goes on

        def commit(_: object, on_synced: Any, on_failed: Any, *, sync: bool, files: Disk) -> HandCommit:
            self.commit = HandCommit(files, on_failed, on_synced)
            return self.commit

        with patch.object(batch, "GroupCommit", commit):
            self.node = start_node(
                Path(self.folder.name),
                lambda call: call(),
                clock=self.clock,
                last_stop=last_stop,
                files=self.disk,
                open_files=LEAST,  # fewer than it has files
                stopwatch=Stopwatch(),
            )
        self.publisher, self.committer, self.consumer, self.browser = (Client(self.node) for _ in range(4))
        self.publisher.send(1, m.ConfirmSelect())
        self.committer.send(1, m.TxSelect())
        self.browser.send(1, m.BasicQos(0, 10_000))  # streams want one
        for client in (self.publisher, self.committer, self.browser):
            client.events.clear()
        self.tags: dict[int, list[Home]] = {}  # publish tag -> the homes of a persistent message
        self.commits: list[list[Home]] = []  # of transactions that wait for their commit-ok
        self.unacked: dict[int, Home] = {}
        self.tag = 0

    def declare(self) -> None:
        client = self.browser
        for name, arguments in (QUEUES | STREAMS).items():
            client.call(m.QueueDeclare(name, durable=True, arguments=arguments), m.QueueDeclareOk)
        delayed: Table = {"x-delayed-type": "fanout"}
        client.call(m.ExchangeDeclare("fan", "fanout", durable=True), m.ExchangeDeclareOk)
        declare = m.ExchangeDeclare("delays", "x-delayed-message", durable=True, arguments=delayed)
        client.call(declare, m.ExchangeDeclareOk)
        for exchange, names in BOUND.items():
            for name in names:
                client.call(m.QueueBind(name, exchange), m.QueueBindOk)

    def crash(self, *, power: int | None = None) -> None:
        """The process ends, or with `power` (a seed) the machine; then the broker starts again and is looked at."""
        self.node.catalog.close()
        if power is None:
            self.disk.kill()
        else:
            self.disk.power_cut(Random(power))
            self.holes = True
            self.gone.clear()
        self.start(LastStop.KILLED if power is None else LastStop.POWER_CUT)
        self.look()

    def do(self, work: Callable[[], object]) -> bool:
        """Do it; whether the broker has survived. When it has not, it is started again."""
        try:
            work()
        except Died:
            self.crash()
            return False
        if self.node.batch.failed is not None:
            self.crash()
            return False
        self.hear()
        return True

    # -- what it says

    def hear(self) -> None:
        """Confirms and commit-oks: from now on these messages are due."""
        self.publisher.receive()
        for _, answer in self.publisher.events:
            assert isinstance(answer, m.BasicAck | m.BasicNack), answer
            least = 0 if answer.multiple else answer.delivery_tag
            for tag in [tag for tag in self.tags if least <= tag <= answer.delivery_tag]:
                homes = self.tags.pop(tag)
                if isinstance(answer, m.BasicAck):
                    self.due |= {home for home in homes if home not in self.acked}
                else:
                    self.refused |= {home for home in homes if home[0] == "full"}
        self.publisher.events.clear()
        self.committer.receive()
        for _ in self.committer.take(m.TxCommitOk):
            self.due |= {home for home in self.commits.pop(0) if home not in self.acked}
        for name in STREAMS:
            self.note_first(name)

    def note_first(self, name: str) -> None:
        queue = self.node.vhosts["/"].queues[name]
        assert isinstance(queue, StreamQueue)
        self.firsts[name] = max(self.firsts[name], queue.log.first)

    def look(self, *, delayed: bool = False) -> None:
        """Everything that is due is there, and nothing that should not be; if `delayed`, what was held back too."""
        found: dict[str, list[int]] = {}
        for name in sorted(QUEUES, key="dead".__eq__):  # where others' messages go when they have expired: last
            self.browser.send(1, m.BasicConsume(name, name, no_ack=True, arguments={"x-browse": True}))
            for _, redelivered, body in (shown := self.browser.deliveries()):
                home = name, int(body.split()[0])
                assert redelivered or home not in self.seen or name in HANDED_ON, f"{home} is there as if it were new"
            found[name] = [int(body.split()[0]) for _, _, body in shown]
            self.browser.send(1, m.BasicCancel(name))
            self.browser.events.clear()
        for name in STREAMS:
            self.note_first(name)
            self.read(name, "first")
        for queue, number in self.due:
            if queue in STREAMS:
                continue
            there = number in found[queue] or (queue in DYING and number in found["dead"])
            assert there or (queue == "later" and not delayed), f"{number} of {queue} is lost; there are {found}"
        for name, numbers in found.items():
            homes = {(name, number) for number in numbers}
            if name == "dead":
                letters = {number for queue, number in self.published if queue in DYING or queue == "dead"}
                assert set(numbers) <= letters, f"{set(numbers) - letters} in dead come from nowhere"
                continue
            nowhere = homes - (self.published - self.rolled_back - self.refused)
            assert not nowhere, f"{nowhere} come from nowhere"
            if name in HANDED_ON:
                continue
            assert not homes & self.gone, f"{homes & self.gone} are back"
            assert len(homes) == len(numbers), f"{numbers} in {name}: copies"
            if name in IN_ORDER:
                self.check_order(name, numbers)

    def check_order(self, name: str, numbers: list[int]) -> None:
        for spread in (False, True):
            some = [number for number in numbers if ((name, number) in self.spread) == spread]
            assert some == sorted(some), f"{numbers} in {name}"

    @rule(name=st.sampled_from(list(STREAMS)), start=st.sampled_from(["first", "last", "next"]) | st.integers(0, 30))
    def read_stream(self, name: str, start: str | int) -> None:
        self.do(lambda: self.read(name, start))

    def read(self, name: str, start: str | int) -> None:
        """What stands in a stream from there on stands where it stood, in order; all that is due is there."""
        browser, tag = self.browser, f"{name} reader"
        browser.send(1, m.BasicConsume(name, tag, arguments={"x-stream-offset": start}))
        if self.node.batch.failed is not None:
            return
        contents = [event for _, event in browser.events if isinstance(event, Content)]
        browser.send(1, m.BasicCancel(tag))
        browser.events.clear()
        offsets = [cast("int", (each.decode_properties().headers or {})["x-stream-offset"]) for each in contents]
        numbers = [int(each.body.split()[0]) for each in contents]
        homes = {(name, number) for number in numbers}
        nowhere = homes - (self.published - self.rolled_back)
        assert not nowhere, f"{nowhere} come from nowhere"
        self.check_order(name, once := list(dict.fromkeys(numbers)))
        copies = Counter(numbers) - Counter(once)
        assert all((name, number) in self.spread for number in copies), f"{numbers} in {name}"
        assert offsets == sorted(set(offsets)), f"offsets {offsets} in {name}"
        for offset, number in zip(offsets, numbers, strict=True):
            known = self.offsets[name].setdefault(offset, number)
            assert known == number, f"offset {offset} of {name} was {known} and is {number}"
        self.due |= homes
        if start == "first":
            kept = [number for offset, number in zip(offsets, numbers, strict=True) if offset >= self.firsts[name]]
            own = [number for number in kept if (name, number) not in self.spread]
            least = min(own, default=self.number + 1)
            lost = {number for queue, number in self.due - self.spread if queue == name and number >= least} - set(kept)
            assert not lost, f"{lost} of {name} are lost; there are {numbers} from {offsets[:1]} on"
            if name == "log":
                lost = {number for queue, number in self.due if queue == name} - set(numbers)
                assert not lost, f"{lost} of {name} are lost; there are {numbers}"
                # A power cut may take what was not synced, and leave what was written behind it.
                assert self.holes or offsets == list(range(len(offsets))), f"a gap in {offsets}"

    # -- what is done to it

    def message(self, homes: list[Home], persistent: bool) -> tuple[bytes, Properties]:
        self.published.update(homes)
        body = b"%d %s" % (self.number, b"." * (self.number * 37 % 300))
        headers: Table = {"x-delay": self.number * 17 % LONGEST_DELAY}
        return body, Properties(delivery_mode=1 + persistent, priority=self.number % 5, headers=headers)

    def homes(self, target: str) -> list[Home]:
        self.number += 1
        return [(queue, self.number) for queue in BOUND.get(target, (target,))]

    def send(self, client: Client, target: str, body: bytes, properties: Properties) -> None:
        exchange, key = (target, "") if target in BOUND else ("", target)
        client.engine.send_content(1, m.BasicPublish(exchange, key), properties, body)

    @rule(to=st.sampled_from(TARGETS), count=st.integers(1, 5), persistent=st.sampled_from([True, True, False]))
    def publish(self, to: str, count: int, persistent: bool) -> None:
        for _ in range(count):
            homes = self.homes(to)
            self.tag += 1
            self.tags[self.tag] = homes if persistent else []
            self.send(self.publisher, to, *self.message(homes, persistent))
        self.do(self.publisher.pump)

    @precondition(lambda self: not self.commits)  # until it is answered, a channel takes nothing more
    @rule(to=st.lists(st.sampled_from(COMMITTED), min_size=1, max_size=4), commit=st.booleans())
    def transact(self, to: list[str], commit: bool) -> None:
        all_homes: list[Home] = []
        for target in to:
            homes = self.homes(target)
            all_homes += homes
            self.send(self.committer, target, *self.message(homes, True))
        if commit:
            self.commits.append(all_homes)
            if len({queue for queue, _ in all_homes}) > 1:
                self.spread.update(all_homes)
        else:
            self.rolled_back.update(all_homes)
        self.committer.engine.send_method(1, m.TxCommit() if commit else m.TxRollback())
        if self.do(self.committer.pump) and not commit:
            assert len(self.committer.take(m.TxRollbackOk)) == 1

    @rule(queue=st.sampled_from(list(QUEUES)), count=st.integers(1, 5))
    def get(self, queue: str, count: int) -> None:
        for _ in range(count):
            if not self.do(lambda: self.consumer.send(1, m.BasicGet(queue))):
                return
            _, event = self.consumer.events.pop()
            if not isinstance(event, Content):
                return
            method = event.decode_method()
            assert isinstance(method, m.BasicGetOk)
            home = queue, int(event.body.split()[0])
            assert home not in self.rolled_back, f"{home} was rolled back"
            if queue not in HANDED_ON:
                assert home in self.published - self.refused, f"{home} comes from nowhere"
                assert home not in self.gone, f"{home} is back"
                assert home not in self.unacked.values(), f"{home} is there twice"
                assert method.redelivered or home not in self.seen, f"{home} comes again as if it were new"
            self.seen.add(home)
            self.unacked[method.delivery_tag] = home

    @precondition(lambda self: self.unacked)
    @rule(data=st.data(), multiple=st.booleans())
    def ack(self, data: st.DataObject, multiple: bool) -> None:
        tag = data.draw(st.sampled_from(sorted(self.unacked)))
        homes = [self.unacked.pop(each) for each in sorted(self.unacked) if each == tag or (multiple and each < tag)]
        self.let_go(homes)
        if self.do(lambda: self.consumer.send(1, m.BasicAck(tag, multiple))):
            self.gone.update(homes)

    @precondition(lambda self: self.unacked)
    @rule(data=st.data(), requeue=st.booleans())
    def nack(self, data: st.DataObject, requeue: bool) -> None:
        tag = data.draw(st.sampled_from(sorted(self.unacked)))
        home = self.unacked.pop(tag)
        if not requeue and home[0] not in DYING:
            self.let_go([home])
        self.do(lambda: self.consumer.send(1, m.BasicNack(tag, requeue=requeue)))

    @rule(queue=st.sampled_from(["plain", "levels"]))
    def purge(self, queue: str) -> None:
        self.let_go([home for home in self.published if home[0] == queue and home not in self.unacked.values()])
        if self.do(lambda: self.browser.send(1, m.QueuePurge(queue))):
            assert len(self.browser.take(m.QueuePurgeOk)) == 1

    def let_go(self, homes: list[Home]) -> None:
        """These are not due any more; nor is a letter whose home is the queue where it died."""
        for home in homes:
            self.acked.add(home)
            self.due.discard(home)
            if home[0] == "dead":
                everywhere = {(queue, home[1]) for queue in DYING}
                self.acked |= everywhere
                self.due -= everywhere

    @rule()
    def sync(self) -> None:
        self.do(self.commit.run)

    @rule(milliseconds=st.integers(1, 2 * TTL))
    def pass_time(self, milliseconds: int) -> None:
        def pass_it() -> None:
            end = self.clock.now + milliseconds
            while (deadline := self.node.timers.next_deadline) is not None and deadline <= end:
                self.clock.now = max(deadline, self.clock.now)
                self.node.run_timers()
            self.clock.now = end

        self.do(pass_it)

    # -- what happens to it

    @rule(after=st.integers(0, 12))
    def die_soon(self, after: int) -> None:
        self.disk.die(after)

    @rule(after=st.integers(0, 12), error=st.sampled_from([errno.ENOSPC, errno.EIO, 0]))
    def fail_soon(self, after: int, error: int) -> None:
        self.disk.fail(after, error)

    @rule()
    def kill(self) -> None:
        self.crash()

    @rule(seed=st.integers(0, 1 << 32))
    def power_cut(self, seed: int) -> None:
        self.crash(power=seed)

    @rule()
    def restart(self) -> None:
        self.disk.heal()
        if self.do(self.commit.run):
            self.node.stop()
            self.node.catalog.close()
            self.start(LastStop.CLEAN)
            self.look()


DYING: Final = tuple(name for name, arguments in QUEUES.items() if "x-dead-letter-exchange" in arguments)

# `make torture` sets more; 20 take about ten seconds.
EXAMPLES: Final = int(os.environ.get("HAREBELL_CRASHES", "20"))
Crashes.TestCase.settings = settings(max_examples=EXAMPLES, stateful_step_count=30, report_multiple_bugs=False)
TestCrashes = pytest.mark.slow(Crashes.TestCase)


@pytest.mark.parametrize("seed", range(8))
def test_what_a_failed_store_gives_back_stays_until_its_letter_is_safe(seed: int) -> None:
    """The connections that close put messages back, over the limit, when nothing can be made safe any more."""
    case = Crashes()
    case.transact(commit=True, to=["short", "short"])
    case.restart()
    case.get(count=2, queue="short")
    case.publish(count=5, persistent=False, to="short")
    case.fail_soon(after=0, error=errno.EIO)
    case.publish(count=1, persistent=True, to="plain")
    case.power_cut(seed)
    case.teardown()


def test_a_power_cut_may_leave_a_hole_in_a_stream_where_nothing_was_synced() -> None:
    case = Crashes()
    case.transact(commit=True, to=["dead", "dead", "log"])
    case.read_stream(name="log", start="first")
    case.publish(count=1, persistent=True, to="fan")
    case.power_cut(0)
    case.read_stream(name="log", start="first")
    case.teardown()


KINDS: Final[dict[str, Table]] = {
    "plain": {},
    "quorum": {"x-queue-type": "quorum"},
    "quorum that returns nothing": {"x-queue-type": "quorum", "x-delivery-limit": 0},
    "priorities": {"x-max-priority": 3},
    "short": {"x-max-length": 1},
    "full": {"x-max-length": 1, "x-overflow": "reject-publish"},
    "expiring": {"x-message-ttl": 60_000},
    "one consumer": {"x-single-active-consumer": True},
    "groups": {"x-message-group": "group"},
    "last values": {"x-last-value-key": "group"},
    "no duplicates": {"x-message-deduplication": True, "x-deduplication-header": "key"},
    "numbered": {"x-sequence-header": "number"},
    "retried later": {"x-queue-type": "quorum", "x-delayed-retry-type": "all", "x-delayed-retry-min": 60_000},
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_commit_brings_back_after_a_power_cut_is_redelivered(kind: str) -> None:
    """A consumer had it before the queue's file was synced; the record of the commit was."""
    case = Crashes()
    try:
        case.browser.call(m.QueueDeclare("queue", durable=True, arguments=KINDS[kind]), m.QueueDeclareOk)
        case.restart()
        for queue in ("queue", "dead"):  # to several: such a commit has a record of its own
            case.send(case.committer, queue, b"1", numbered(1))
        case.committer.engine.send_method(1, m.TxCommit())
        case.committer.pump()
        case.commit.run()
        assert got(case) == (b"1", False)
        case.node.catalog.close()
        case.disk.power_cut(Random(0))
        case.start(LastStop.POWER_CUT)
        assert got(case, no_ack=True) == (b"1", True)
        assert got(case) is None
        case.send(case.publisher, "queue", b"2", numbered(2))
        case.publisher.pump()
        assert got(case) == (b"2", False)  # nobody holds the group
    finally:
        case.node.catalog.close()
        case.patch.undo()
        case.folder.cleanup()


@pytest.mark.parametrize("kind", ["plain", "quorum", "priorities", "groups"])
def test_a_long_commit_that_comes_back_keeps_its_order(kind: str) -> None:
    """More messages than the queue keeps in memory, before what is published next."""
    case = Crashes()
    try:
        case.browser.call(m.QueueDeclare("queue", durable=True, arguments=KINDS[kind]), m.QueueDeclareOk)
        case.send(case.publisher, "queue", b"0", numbered(0))
        case.publisher.pump()
        case.restart()
        bodies = [b"%d" % number for number in range(1, 3 * PAGE)]
        for queue in ("queue", "dead"):
            for body in bodies:
                case.send(case.committer, queue, body, numbered(int(body)))
        case.committer.engine.send_method(1, m.TxCommit())
        case.committer.pump()
        case.commit.run()
        case.node.catalog.close()
        case.disk.power_cut(Random(0))
        case.start(LastStop.POWER_CUT)
        case.send(case.publisher, "queue", b"next", numbered(0))
        case.publisher.pump()
        found = [got(case, no_ack=True) for _ in range(len(bodies) + 2)]
        assert found == [*((body, True) for body in (b"0", *bodies)), (b"next", False)]
        assert got(case) is None
    finally:
        case.node.catalog.close()
        case.patch.undo()
        case.folder.cleanup()


def numbered(number: int) -> Properties:
    return Properties(delivery_mode=2, headers={"group": "a", "key": number})


def got(case: Crashes, *, no_ack: bool = False) -> tuple[bytes, bool] | None:
    """The next message of the queue, and whether it says redelivered."""
    case.consumer.send(1, m.BasicGet("queue", no_ack))
    _, event = case.consumer.events.pop()
    if not isinstance(event, Content):
        return None
    method = event.decode_method()
    assert isinstance(method, m.BasicGetOk)
    return event.body, method.redelivered
