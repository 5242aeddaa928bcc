"""Branches of distributed transactions: what they hold over a restart, how long they last, and how long a step is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

import pytest

from harebell.broker.message import to_held
from harebell.broker.queues.classic import ClassicQueue
from harebell.broker.queues.settling import DELIVERIES_PER_STEP
from harebell.broker.queues.stream import StreamQueue
from harebell.broker.slices import Work
from harebell.broker.store.prepared import KeptBranch
from harebell.broker.transactions import branches as module, record
from harebell.broker.transactions.branch import Branch, BranchState, Taken, Xid
from harebell.protocol.v010 import commands as c, structs as s
from harebell.protocol.v010.domains import XaStatus
from harebell.protocol.v091 import Properties, Table, methods as m
from harebell.protocol.v091.content import stored_content
from tests.broker.store.faults import Died
from tests.broker.v010.disk_kit import DiskKit
from tests.broker.v010.kit import Client

X: Final = s.Xid(1, b"transaction", b"branch")
XID: Final = Xid(1, b"transaction", b"branch")


@pytest.fixture
def kit() -> Iterator[DiskKit]:
    kit = DiskKit()
    yield kit
    kit.close()


def status(client: Client, command: c.DtxCommit | c.DtxRollback | c.DtxPrepare | c.DtxStart | c.DtxEnd) -> int:
    return int(client.ask(command, s.XaResult).status)


def declare(kit: DiskKit, queue: str, arguments: Table | None = None) -> None:
    kit.client.call(m.QueueDeclare(queue, durable=True, arguments=arguments or {}), m.QueueDeclareOk)


def publish(kit: DiskKit, queue: str, *found: bytes, expiration: str | None = None) -> None:
    for body in found:
        kit.client.publish(queue, body, delivery_mode=2, expiration=expiration)
    kit.sync()


def working(kit: DiskKit, queue: str = "q", count: int = 1) -> Client:
    """A session that works in X, and has taken so many messages of the queue."""
    client = kit.peer().session(b"works")
    client.call(c.DtxSelect())
    assert status(client, c.DtxStart(X)) == XaStatus.XA_OK
    client.subscribe(queue, messages=count)
    numbers = [number for number, _ in client.taken()]
    assert len(numbers) == count
    client.call(c.MessageAccept(tuple((number, number) for number in numbers)))
    return client


def prepare(client: Client) -> None:
    assert status(client, c.DtxEnd(X)) == XaStatus.XA_OK
    assert status(client, c.DtxPrepare(X)) == XaStatus.XA_OK
    client.call(c.MessageCancel("t"))


def finish(kit: DiskKit, *, commits: bool) -> None:
    manager = kit.peer().session(b"manager")
    assert status(manager, c.DtxCommit(X) if commits else c.DtxRollback(X)) == XaStatus.XA_OK
    kit.sync()


def bodies(kit: DiskKit, queue: str) -> list[bytes]:
    """What is in the queue; it stays there."""
    found_in = kit.node.vhosts["/"].queues[queue]
    if isinstance(found_in, StreamQueue):
        return [stored_content(1, each.frames).body for each in found_in.log.cursor(0).read(100)]
    found = []
    while (content := kit.client.get(queue, no_ack=False)) is not None:
        found.append(content.body)
    kit.client.call(m.BasicRecover(True), m.BasicRecoverOk)
    kit.client.events.clear()
    return found


# -- a queue that is declared again: its positions begin anew ---------------------------------------------------------


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
@pytest.mark.parametrize("power", [None, 1], ids=["kill", "power cut"])
@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 3}, {"x-message-group": "g"}], ids=str)
def test_a_branch_leaves_a_queue_alone_that_was_declared_again(
    kit: DiskKit, arguments: Table, power: int | None, commits: bool
) -> None:
    declare(kit, "q", arguments)
    declare(kit, "other")
    publish(kit, "q", b"old")
    publish(kit, "other", b"of the other")
    client = working(kit)
    client.subscribe("other", tag="u", messages=1)
    ((number, _),) = client.taken()
    client.call(c.MessageAccept(((number, number),)))
    prepare(client)
    client.call(c.MessageCancel("u"))
    kit.client.call(m.QueueDelete("q"), m.QueueDeleteOk)
    declare(kit, "q", arguments)
    publish(kit, "q", b"new")
    for _ in range(2):
        kit.restart(power)
        assert (bodies(kit, "q"), bodies(kit, "other")) == ([b"new"], [])
    finish(kit, commits=commits)
    for _ in range(2):
        assert (bodies(kit, "q"), bodies(kit, "other")) == ([b"new"], [] if commits else [b"of the other"])
        kit.restart(power)


def test_a_commit_of_the_class_tx_leaves_a_queue_alone_that_was_declared_again(kit: DiskKit) -> None:
    """The end of the commit is not on disk yet: it is written a little later."""
    kit.node.store.prepared.later = lambda call: None
    for name in ("in", "out"):
        declare(kit, name)
    publish(kit, "in", b"old")
    client = kit.client
    client.call(m.TxSelect(), m.TxSelectOk)
    assert client.get("in", no_ack=False) is not None
    client.publish("out", b"moved", delivery_mode=2)
    client.events.clear()
    client.send(1, m.BasicAck(1))
    client.send(1, m.TxCommit())
    while not client.take(m.TxCommitOk):
        assert kit.commit.run()
        client.receive()
    client.call(m.QueueDelete("in"), m.QueueDeleteOk)
    declare(kit, "in")
    client.engine.send_content(1, m.BasicPublish("", "in"), Properties(delivery_mode=2), b"new")
    client.send(1, m.TxCommit())
    kit.sync()
    assert kit.node.store.prepared._over
    for _ in range(2):
        kit.restart(None)
        kit.sync()
        assert (bodies(kit, "in"), bodies(kit, "out")) == ([b"new"], [b"moved"])


def move_to_a_stream(kit: DiskKit, after: int) -> bool:
    """Commit to a stream that is declared again after the prepare. Returns whether the broker was killed in it."""
    stream: Table = {"x-queue-type": "stream"}
    declare(kit, "log", stream)
    declare(kit, "q")
    publish(kit, "log", b"1", b"2", b"3")
    publish(kit, "q", b"m")
    client = working(kit)
    client.publish("log", b"m", delivery_mode=2)
    prepare(client)
    kit.client.call(m.QueueDelete("log"), m.QueueDeleteOk)
    declare(kit, "log", stream)
    kit.sync()
    kit.disk.die(after)
    died = False
    try:
        finish(kit, commits=True)
    except Died:
        died = True
    kit.disk.heal()
    kit.restart(None)
    kit.settle()
    kit.sync()
    if kit.node.branches.get("/", XID) is not None:
        finish(kit, commits=True)
    assert (bodies(kit, "log"), bodies(kit, "q")) == ([b"m"], [])
    return died


@pytest.mark.repeats
def test_a_stream_that_was_declared_again_gets_a_message_once() -> None:
    after, died = 0, True
    while died:
        kit = DiskKit()
        died = move_to_a_stream(kit, after)
        kit.close()
        after += 1
    assert after > 3


def test_a_branch_of_an_older_version_has_what_it_took(kit: DiskKit) -> None:
    """Its record says nothing of the folders."""
    declare(kit, "q")
    publish(kit, "q", b"1", b"2")
    kit.node.store.prepared.keep(KeptBranch(XID, "/", "guest", [], [("q", 0, "")]), decided=False)
    kit.node.batch.end()
    kit.sync()
    kit.restart(None)
    assert bodies(kit, "q") == [b"2"]
    finish(kit, commits=False)
    assert bodies(kit, "q") == [b"1", b"2"]


# -- a start drops what is over a limit, or has expired: not what a transaction holds ---------------------------------

LIMITS: Final[dict[str, Table]] = {
    "length": {"x-max-length": 2},
    "bytes": {"x-max-length-bytes": 2},
    "expiry": {"x-message-ttl": 1},  # of the wall clock, once the broker is started again
    "expiry of messages": {},
    "length of a quorum queue": {"x-max-length": 2, "x-queue-type": "quorum"},
    "dead letters that wait": {"x-max-length": 2, "x-queue-type": "quorum", "x-dead-letter-strategy": "at-least-once",
                               "x-overflow": "reject-publish"},
}  # fmt: skip


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
@pytest.mark.parametrize("limit", LIMITS)
def test_a_start_drops_nothing_that_a_branch_holds(kit: DiskKit, limit: str, commits: bool) -> None:
    declare(kit, "dead")
    letters: Table = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    declare(kit, "q", {**LIMITS[limit], **letters})
    expires = limit.startswith("expiry")
    publish(kit, "q", b"1", b"2", expiration="1" if expires else None)
    prepare(working(kit, count=2))
    if not expires:
        publish(kit, "q", b"3", b"4")
    for _ in range(2):
        kit.restart(None)
        kit.settle()
        kit.sync()
        assert bodies(kit, "dead") == []
    (branch,) = kit.node.branches
    assert [to_held(each.message, 0).message.content.body for each in branch.taken] == [b"1", b"2"]
    if commits:
        finish(kit, commits=True)
        kit.restart(None)
        assert bodies(kit, "dead") == []
        assert bodies(kit, "q") == ([] if expires else [b"3", b"4"])


def test_a_message_that_has_waited_for_its_retry_before_is_the_branchs(kit: DiskKit) -> None:
    """The journal has the retry still, which is not over by the wall clock."""
    declare(kit, "q", {"x-delayed-retry-type": "all", "x-delayed-retry-min": 60_000})
    publish(kit, "q", b"1")
    client = kit.client
    assert client.get("q", no_ack=False) is not None
    client.events.clear()
    client.send(1, m.BasicReject(1, requeue=True))
    pass_time(kit, 61)
    prepare(working(kit))
    for _ in range(2):
        kit.restart(None)
        (branch,) = kit.node.branches
        assert len(branch.taken) == 1
        found = kit.node.vhosts["/"].queues["q"]
        assert (found.message_count, found.delayed_count) == (0, 0)
    finish(kit, commits=True)
    kit.restart(None)
    found = kit.node.vhosts["/"].queues["q"]
    assert (found.message_count, found.delayed_count) == (0, 0)


def test_a_commit_that_is_done_at_the_start_drops_nothing_that_a_branch_holds(kit: DiskKit) -> None:
    """It publishes to the queue from which a prepared branch, later in the file, has taken."""
    declare(kit, "q", {"x-max-length": 1})
    declare(kit, "copy")
    kit.client.call(m.ExchangeDeclare("all", "fanout", durable=True), m.ExchangeDeclareOk)
    for name in ("q", "copy"):
        kit.client.call(m.QueueBind(name, "all"), m.QueueBindOk)
    publish(kit, "q", b"taken")
    decided = KeptBranch(Xid(2, b"decided", b""), "/", "guest", [], [])
    client = working(kit)
    other = kit.peer().session(b"other")
    other.call(c.DtxSelect())
    y = s.Xid(2, b"decided", b"")
    assert status(other, c.DtxStart(y)) == XaStatus.XA_OK
    other.publish("", b"published", "all", delivery_mode=2)
    assert status(other, c.DtxEnd(y)) == XaStatus.XA_OK
    assert status(other, c.DtxPrepare(y)) == XaStatus.XA_OK
    prepare(client)
    branch = kit.node.branches.find("/", Xid(*decided.xid))
    assert branch.kept is not None
    kit.node.store.prepared.decide(branch.kept, by_hand=False)
    kit.node.batch.end()
    kit.sync()
    kit.restart(None)
    kit.sync()
    assert bodies(kit, "q") == [b"published"]
    assert len(kit.node.branches.find("/", XID).taken) == 1


# -- timeouts ---------------------------------------------------------------------------------------------------------


def pass_time(kit: DiskKit, seconds: int) -> None:
    kit.node.timers.now.now += 1000 * seconds  # type: ignore[attr-defined]
    kit.settle()


@pytest.mark.parametrize("timeouts", [1, 2, 3, 10])
def test_a_branch_whose_session_stays_in_it_is_forgotten_after_that(kit: DiskKit, timeouts: int) -> None:
    """A session that does not leave the branch when that is rolled back learns it; the name is free some time later."""
    declare(kit, "q")
    publish(kit, "q", b"1")
    client = working(kit)
    client.call(c.DtxSetTimeout(X, 5))
    for _ in range(timeouts):
        pass_time(kit, 5)
    assert kit.node.branches.find("/", XID).state is BranchState.TIMED_OUT
    client.peer.lose()
    kit.settle()
    pass_time(kit, 4)
    assert kit.node.branches.find("/", XID).state is BranchState.TIMED_OUT  # its manager may ask until then
    pass_time(kit, 1)
    assert kit.node.branches.get("/", XID) is None
    assert bodies(kit, "q") == [b"1"]


@pytest.mark.parametrize("leaves", [False, True])
def test_another_timeout_for_a_branch_that_is_rolled_back(kit: DiskKit, leaves: bool) -> None:
    declare(kit, "q")
    client = kit.peer().session(b"works")
    client.call(c.DtxSelect())
    status(client, c.DtxStart(X))
    status(client, c.DtxEnd(X, fail=True)) if leaves else pass_time(kit, module.DEFAULT_TIMEOUT)
    client.call(c.DtxSetTimeout(X, 7))
    client.peer.lose()
    kit.settle()
    pass_time(kit, 6)
    assert kit.node.branches.get("/", XID) is not None
    pass_time(kit, 1)
    assert kit.node.branches.get("/", XID) is None


# -- no step is long --------------------------------------------------------------------------------------------------

MANY: Final = 700


def in_steps(work: Work, progress: Callable[[], int]) -> int:
    """Do all of the work. Returns how much the longest of its steps has done."""
    longest, before = 0, progress()
    for _ in work:
        longest, before = max(longest, abs(progress() - before)), progress()
    return max(longest, abs(progress() - before))


def filled(kit: DiskKit) -> Branch:
    """A branch with many publications and many messages taken of two queues, one by one."""
    for name in ("q", "r", "out"):
        declare(kit, name)
    branch = kit.node.branches.begin("/", XID, "guest")
    queues = kit.node.vhosts["/"].queues
    for number in range(MANY):
        kit.client.publish("qr"[number % 2], b"%d" % number, delivery_mode=2)
    for number in range(MANY):
        queue = queues["qr"[number % 2]]
        assert isinstance(queue, ClassicQueue)
        held = queue.evict()
        assert held is not None
        branch.take([Taken(queue, held.position, held)])
        branch.publish(held.message, (queues["out"],))
    kit.sync()
    return branch


def records(kit: DiskKit) -> list[bytes]:
    return [each for parts in kit.node.store.prepared._live.values() for each in parts]


@pytest.mark.parametrize("one_phase", [False, True])
def test_what_a_branch_holds_is_written_in_parts(kit: DiskKit, one_phase: bool) -> None:
    branches, branch = kit.node.branches, filled(kit)
    work = branches.committing(branch) if one_phase else branches.preparing(branch)
    sizes, written = [0], 0
    for _ in work:
        if one_phase and branch.kept is not None:
            break
        sizes.append(len(records(kit)))
    written = len(records(kit))
    assert max(after - before for before, after in pairwise(sizes)) == 1
    assert written > MANY // record.MESSAGES_PER_PART
    for each in records(kit):
        kept = KeptBranch.decode(each[17:])
        assert len(kept.messages) <= record.MESSAGES_PER_PART
        assert len(kept.taken) <= record.PLACES_PER_PART


@pytest.mark.parametrize("one_phase", [False, True])
def test_a_kill_between_the_parts(monkeypatch: pytest.MonkeyPatch, one_phase: bool) -> None:
    """The branch is whole, or there is none."""
    monkeypatch.setattr(record, "MESSAGES_PER_PART", 200)
    monkeypatch.setattr(record, "PLACES_PER_PART", 300)
    monkeypatch.setattr(module, "PUBLICATIONS_PER_STEP", 300)
    outcomes = set[int]()
    for steps in range(14):
        kit = DiskKit()
        branches, branch = kit.node.branches, filled(kit)
        work = branches.committing(branch) if one_phase else branches.preparing(branch)
        for _ in range(steps):
            next(work, None)
            kit.node.batch.end()
            kit.sync()
        kit.restart(None)
        kit.sync()
        counts = [kit.node.vhosts["/"].queues[name].message_count for name in ("q", "r", "out")]
        found = kit.node.branches.get("/", XID)
        if found is not None:
            assert not one_phase
            assert (len(found.publications), len(found.taken), counts) == (MANY, MANY, [0, 0, 0])
        else:
            assert counts == [MANY // 2, MANY // 2, 0] or (one_phase and counts == [0, 0, MANY])
        outcomes.add(counts[0])
        kit.close()
    assert outcomes == {MANY // 2, 0}


def test_a_branch_whose_virtual_host_is_deleted_while_it_is_written(kit: DiskKit) -> None:
    branch = filled(kit)
    work = kit.node.branches.preparing(branch)
    next(work)
    assert records(kit)
    kit.node.delete_vhost("/")
    for _ in work:
        pass
    assert records(kit) == []


def test_a_branch_that_is_being_prepared_is_listed(kit: DiskKit) -> None:
    """A manager that has lost its connection asks what is in doubt, and would forget what is not there."""
    branch = filled(kit)
    work = kit.node.branches.preparing(branch)
    next(work)
    manager = kit.peer().session(b"manager")
    assert len(manager.ask(c.DtxRecover(), s.RecoverResult).in_doubt or ()) == 1
    manager.call(c.DtxCommit(X))
    assert manager.exception is not None
    assert manager.exception.error_code == 409
    for _ in work:
        kit.node.batch.end()
        kit.sync()
    finish(kit, commits=True)
    assert kit.node.vhosts["/"].queues["out"].message_count == MANY


def test_what_was_taken_returns_in_steps(kit: DiskKit) -> None:
    branch, queues = filled(kit), kit.node.vhosts["/"].queues
    waiting = [queues["q"], queues["r"]]
    longest = in_steps(kit.node.branches.rolling_back(branch), lambda: sum(each.message_count for each in waiting))
    assert longest <= DELIVERIES_PER_STEP
    assert [each.message_count for each in waiting] == [MANY // 2, MANY // 2]
    assert not any(each.on_hold for each in waiting)
    assert bodies(kit, "q")[:3] == [b"0", b"2", b"4"]


def test_what_was_taken_is_settled_in_steps(kit: DiskKit) -> None:
    branch, queues = filled(kit), kit.node.vhosts["/"].queues
    for _ in kit.node.branches.preparing(branch):
        pass
    settled = (queues["q"].counts, queues["r"].counts)
    longest = in_steps(kit.node.branches.committing(branch), lambda: sum(each.ack for each in settled))
    assert longest <= DELIVERIES_PER_STEP
    assert sum(each.ack for each in settled) == MANY
