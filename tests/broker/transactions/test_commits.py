"""Commits of the class tx, of both dialects: all of one or nothing, whatever happens to the broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import given, settings, strategies as st

from harebell.broker.queues.stream import StreamQueue
from harebell.broker.store.prepared import PreparedBranches
from harebell.broker.transactions import record as module
from harebell.protocol.v010 import commands as c, controls as k
from harebell.protocol.v091 import Properties, Table, methods as m
from harebell.protocol.v091.content import stored_content
from tests.broker.store.faults import Died
from tests.broker.v010.disk_kit import DiskKit
from tests.broker.v010.kit import Client
from tests.fixtures.profiles import scaled

TAKEN: Final = (b"1", b"2")
QUEUES: Final[dict[str, Table]] = {
    "in": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
    "out": {},
    "copy": {"x-max-priority": 3},
    "dead": {},
    "log": {"x-queue-type": "stream"},
}


class Move:
    """Two of three messages go from `in` to `out`, `copy` and `log` in one transaction.

    `undo` of a script is its rollback.
    """

    def __init__(self, script: Callable[[Move], None]) -> None:
        self.script = script
        self.kit = DiskKit()
        client = self.kit.client
        for name, arguments in QUEUES.items():
            client.call(m.QueueDeclare(name, durable=True, arguments=arguments), m.QueueDeclareOk)
        client.call(m.ExchangeDeclare("all", "fanout", durable=True), m.ExchangeDeclareOk)
        for name in ("out", "copy", "log"):
            client.call(m.QueueBind(name, "all"), m.QueueBindOk)
        for body in (*TAKEN, b"3"):
            client.publish("in", body, delivery_mode=2)
        self.kit.sync()
        self.answered = False

    def run(self, after: int, power: int | None) -> bool:
        """Die within the call after so many. Returns whether the process got that far."""
        died = False
        self.kit.disk.die(after)
        try:
            self.script(self)
        except Died:
            died = True
            self.kit.restart(power)
        self.kit.disk.heal()
        self.kit.sync()
        done = self.check()
        self.kit.restart(None)
        assert self.check() == done
        self.kit.close()
        return died

    def check(self) -> bool:
        """Whether the commit was done; it is not half done."""
        found = {name: sorted(self.peek(name)) for name in QUEUES}
        dead = found.pop("dead")
        done = {"in": [b"3"], "out": [*TAKEN], "copy": [*TAKEN], "log": [*TAKEN]}
        undone = {"in": [*TAKEN, b"3"], "out": [], "copy": [], "log": []}
        assert found == done or (found == undone and not self.answered), found
        rejects = self.script is rejected_by_a_channel
        assert set(dead) == ({b"2"} if rejects and found == done else set())
        assert len(dead) < 2 or not self.answered  # a letter may come again over a kill
        return found == done

    def peek(self, queue: str) -> list[bytes]:
        """What is in the queue; it stays there."""
        stream = self.kit.node.vhosts["/"].queues[queue]
        if isinstance(stream, StreamQueue):
            records = stream.log.cursor(0).read(100)
            return [stored_content(1, record.frames).body for record in records]
        client, found = self.kit.client, []
        while (content := client.get(queue, no_ack=False)) is not None:
            found.append(content.body)
        client.call(m.BasicRecover(True), m.BasicRecoverOk)
        return found


def by_a_session(move: Move) -> None:
    client = move.kit.peer().session(b"works")
    client.call(c.TxSelect())
    client.subscribe("in", messages=len(TAKEN))
    for number, content in client.taken():
        client.publish("", content.body, "all", delivery_mode=2, sync=False)
        client.publish("out", b"transient", sync=False)
        client.call(c.MessageAccept(((number, number),)))
    client.call(c.TxCommit())
    assert client.exception is None
    move.answered = True
    drop_transient(move)


def by_a_channel(move: Move) -> None:
    _by_a_channel(move, m.BasicAck(2))


def rejected_by_a_channel(move: Move) -> None:
    _by_a_channel(move, m.BasicReject(2, requeue=False))


def _by_a_channel(move: Move, last: m.Method) -> None:
    kit, client = move.kit, move.kit.client
    client.call(m.TxSelect(), m.TxSelectOk)
    for _ in TAKEN:
        content = client.get("in", no_ack=False)
        assert content is not None
        client.publish("", content.body, "all", delivery_mode=2)
    client.publish("out", b"transient")
    client.events.clear()
    client.send(1, m.BasicAck(1))
    client.send(1, last)
    client.send(1, m.TxCommit())
    while not client.take(m.TxCommitOk):
        assert kit.commit.run()
        client.receive()
    move.answered = True
    drop_transient(move)


def drop_transient(move: Move) -> None:
    """What does not outlast the broker is delivered and gone."""
    client = move.kit.client
    client.open(2)
    client.events.clear()
    kept = 0
    while True:
        client.send(2, m.BasicGet("out", no_ack=False))
        _, event = client.events.pop()
        if isinstance(event, m.BasicGetEmpty):
            break
        kept += 1
        body = getattr(event, "body", b"")
        if body == b"transient":
            client.send(2, m.BasicAck(kept))
    client.call(m.ChannelClose(200, ""), m.ChannelCloseOk, channel=2)


SCRIPTS: Final = (by_a_session, by_a_channel, rejected_by_a_channel)


@pytest.mark.repeats
@pytest.mark.parametrize("script", SCRIPTS)
def test_the_end_within_any_write(script: Callable[[Move], None]) -> None:
    after = 0
    while Move(script).run(after, None):
        after += 1
    assert after > 5


@settings(max_examples=scaled(15))
@given(
    script=st.sampled_from(SCRIPTS), after=st.integers(0, 34), power=st.integers(0, 1 << 16), share=st.integers(1, 3)
)
def test_a_power_cut_within_any_write(script: Callable[[Move], None], after: int, power: int, share: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MESSAGES_PER_PART", "PLACES_PER_PART"):  # a part for so many of its messages, and places
            patch.setattr(module, name, share)
        Move(script).run(after, power)


def test_many_commits_one_after_the_other_leave_nothing_behind() -> None:
    """Their records do not pile up, nor do the segments of queues that have their messages."""
    move = Move(by_a_channel)
    kit, client = move.kit, move.kit.client
    client.call(m.TxSelect(), m.TxSelectOk)
    sizes = []
    for number in range(40):
        content = client.get("in", no_ack=False)
        assert content is not None
        client.events.clear()
        client.publish("in", bytes(100_000), delivery_mode=2)
        client.send(1, m.BasicAck(number + 1))
        client.send(1, m.TxCommit())
        while not client.take(m.TxCommitOk):
            assert kit.commit.run()
            client.receive()
        kit.node.timers.now()
        kit.node.run_timers()
        kit.sync()
        sizes.append(len(records(kit)))
    assert max(sizes) <= 2
    kit.close()


def records(kit: DiskKit) -> dict[bytes, list[bytes]]:
    prepared: PreparedBranches = kit.node.store.prepared
    return prepared._live


# What a commit publishes and settles, and whether that needs a record.
CASES: Final[dict[str, tuple[list[str], bool, bool]]] = {
    "to one queue": (["out", "out"], False, False),
    "to two queues": (["out", "copy"], False, True),
    "acknowledges alone": ([], True, False),
    "both": (["out"], True, True),
    "transient, and acknowledges": (["transient"], True, False),
}


@pytest.mark.parametrize("case", CASES)
def test_what_needs_a_record(case: str) -> None:
    queues, acknowledges, needed = CASES[case]
    move = Move(by_a_channel)
    kit, client = move.kit, move.kit.client
    client.call(m.QueueDeclare("transient"), m.QueueDeclareOk)
    client.call(m.TxSelect(), m.TxSelectOk)
    assert client.get("in", no_ack=False) is not None
    client.events.clear()
    for queue in queues:
        client.engine.send_content(1, m.BasicPublish("", queue), Properties(delivery_mode=2), b"m")
    if acknowledges:
        client.engine.send_method(1, m.BasicAck(1))
    client.send(1, m.TxCommit())
    assert bool(records(kit)) == needed
    while not client.take(m.TxCommitOk):
        assert kit.commit.run()
        client.receive()
    kit.close()


# -- a client that did not get the answer -----------------------------------------------------------------------------


class Asking:
    """As `by_a_session`, by a session that lasts; its client comes back after whatever happened."""

    def __init__(self, after: int, power: int | None) -> None:
        self.move = Move(by_a_session)
        self.died = False
        kit = self.move.kit
        client = kit.peer().session(b"works")
        client.peer.control(0, k.SessionRequestTimeout(60))
        client.call(c.TxSelect())
        client.subscribe("in", messages=len(TAKEN))
        numbers = []
        for number, content in client.taken():
            client.publish("", content.body, "all", delivery_mode=2, sync=False)
            numbers.append((number, number))
        client.call(c.MessageAccept(tuple(numbers)))
        kit.disk.die(after)
        number = client.state.sending.next
        try:
            client.call(c.TxCommit())
        except Died:
            self.died = True
            kit.restart(power)
        kit.disk.heal()
        if self.died:
            client = kit.peer().session(b"works", state=client.state, force=True)
            assert client.lost
        kit.sync()
        self.move.answered = number in client.complete
        assert self.move.check() == self.move.answered
        self.client = client


@pytest.mark.repeats
def test_a_client_learns_whether_its_last_commit_was_done() -> None:
    after = 0
    while (asking := Asking(after, None)).died:
        asking.move.kit.close()
        after += 1
    asking.move.kit.close()
    assert after > 5


def committed() -> tuple[DiskKit, Client]:
    """A session that lasts, and has committed something."""
    kit = DiskKit()
    kit.client.declare("q")
    client = kit.peer().session(b"works")
    client.peer.control(0, k.SessionRequestTimeout(60))
    client.call(c.TxSelect())
    for _ in range(3):
        client.publish("q", b"m", delivery_mode=2)
        client.call(c.TxCommit())
    end_records(kit)
    return kit, client


def end_records(kit: DiskKit) -> None:
    """Have what waits a little written."""
    for _ in range(2):
        kit.sync()
        kit.node.run_timers()
    kit.sync()


def test_the_last_commit_of_each_session_is_remembered_until_it_ends() -> None:
    kit, client = committed()
    assert len(records(kit)) == 1
    client.peer.control(0, k.SessionRequestTimeout(0))
    client.peer.control(0, k.SessionDetach(b"works"))
    end_records(kit)
    assert records(kit) == {}
    kit.close()


@pytest.mark.parametrize("power", [None, 1])
def test_a_client_is_told_until_it_goes_on(power: int | None) -> None:
    kit, client = committed()
    last = client.state.sending.next - 1
    for _ in range(2):
        kit.restart(power)
        assert len(records(kit)) == 1
        client.state.detached()
        peer = kit.peer()
        client = peer.session(b"works", state=client.state, force=True)
        said = [each for _, each in peer.events if isinstance(each, k.SessionCompleted | k.SessionExpected)]
        assert said[0] == k.SessionCompleted(((last, last),)), said
        assert client.lost
        client.call(c.ExecutionSync())
        end_records(kit)
        assert records(kit) == {}  # it has begun anew
        client.peer.control(0, k.SessionRequestTimeout(60))
        client.call(c.TxSelect())
        client.publish("q", b"m", delivery_mode=2)
        last = client.call(c.TxCommit())
        end_records(kit)
    kit.close()


def test_nobody_else_is_told() -> None:
    """Another client under that name, and its session, whose numbers are others."""
    kit, _ = committed()
    kit.restart(None)
    client = kit.peer().session(b"works")
    assert client.complete == set()
    end_records(kit)
    assert records(kit) == {}
    kit.close()


def test_a_session_that_does_not_come_back_is_forgotten() -> None:
    kit, _ = committed()
    kit.restart(None)
    assert len(records(kit)) == 1
    kit.node.timers.now.now += 60_000  # type: ignore[attr-defined]
    end_records(kit)
    assert records(kit) == {}
    kit.close()


def test_a_stop_in_the_middle_doubles_nothing() -> None:
    """What a commit published was consumed at once, and the broker is stopped before the commit is answered."""
    move = Move(by_a_channel)
    kit, client = move.kit, move.kit.client
    client.call(m.TxSelect(), m.TxSelectOk)
    assert client.get("in", no_ack=False) is not None
    client.publish("out", b"1", delivery_mode=2)
    client.events.clear()
    client.send(1, m.BasicAck(1))
    client.send(1, m.TxCommit())
    assert kit.commit.run()
    other = type(client)(kit.node)
    assert other.get("out") is not None
    assert len(records(kit)) == 1
    kit.stop()
    for _ in range(2):
        kit.sync()
        assert move.peek("out") == []
        assert sorted(move.peek("in")) == [b"2", b"3"]
        kit.restart(None)
    kit.close()
