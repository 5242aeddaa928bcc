"""Distributed transactions: every command in every state, and all or nothing whatever happens to the broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Final

import pytest
from hypothesis import given, settings, strategies as st

from harebell.broker.operations.administration import administer, administering
from harebell.broker.transactions import branches as module
from harebell.broker.v010 import dtx
from harebell.protocol.v010 import Command, commands as c, structs as s
from harebell.protocol.v010.domains import XaStatus
from harebell.protocol.v010.typed_values import StructValue
from harebell.protocol.v091 import methods as m
from tests.broker.store.faults import Died
from tests.broker.v010.disk_kit import DiskKit
from tests.broker.v010.kit import Client, Kit, add_user
from tests.fixtures.profiles import scaled

X: Final = s.Xid(1, b"transaction", b"branch")
Y: Final = s.Xid(1, b"transaction", b"other branch")
OK, RB, TIMEOUT, MIX = XaStatus.XA_OK, XaStatus.XA_RBROLLBACK, XaStatus.XA_RBTIMEOUT, XaStatus.XA_HEURMIX
COM, HRB = XaStatus.XA_HEURCOM, XaStatus.XA_HEURRB


def status(client: Client, command: Command) -> int:
    """What the command answers: the status, or the code of its exception; -1 where it has no result."""
    number = client.call(command)
    if client.exception is not None:
        return int(client.exception.error_code or 0)
    result = client.results.get(number)
    return result.status if isinstance(result, s.XaResult) else -1


def select(client: Client) -> Client:
    client.call(c.DtxSelect())
    return client


def start(client: Client, xid: s.Xid = X, **flags: bool) -> None:
    assert status(client, c.DtxStart(xid, **flags)) == OK


def end(client: Client, xid: s.Xid = X, **flags: bool) -> None:
    assert status(client, c.DtxEnd(xid, **flags)) == OK


def count(client: Client, queue: str) -> int:
    return client.ask(c.QueueQuery(queue), s.QueueQueryResult).message_count or 0


@pytest.fixture
def other(kit: Kit) -> Client:
    return select(kit.peer().session(b"other"))


# -- every command in every state. The sessions are `client`, which the state is about, and `other`, which works in the
# -- branch too where the state says so.


def working(kit: Kit, client: Client, other: Client) -> None:
    start(client)


def working_in_another(kit: Kit, client: Client, other: Client) -> None:
    start(other)
    end(other)
    start(client, Y)


def other_works(kit: Kit, client: Client, other: Client) -> None:
    start(other)


def suspended(kit: Kit, client: Client, other: Client) -> None:
    start(client)
    end(client, suspend=True)


def ended(kit: Kit, client: Client, other: Client) -> None:
    start(client)
    end(client)


def prepared(kit: Kit, client: Client, other: Client) -> None:
    ended(kit, client, other)
    assert status(client, c.DtxPrepare(X)) == OK


def failed(kit: Kit, client: Client, other: Client) -> None:
    start(client)
    assert status(client, c.DtxEnd(X, fail=True)) == RB


def timed_out(kit: Kit, client: Client, other: Client) -> None:
    ended(kit, client, other)
    kit.pass_time(60_000)


def timed_out_working(kit: Kit, client: Client, other: Client) -> None:
    start(client)
    kit.pass_time(60_000)


def mixed(kit: Kit, client: Client, other: Client) -> None:
    client.call(c.QueueDeclare("full", arguments={"qpid.max_count": 1}))
    start(client)
    for _ in range(2):
        client.publish("full", accept_mode=0)
    end(client)
    assert status(client, c.DtxCommit(X, one_phase=True)) == MIX


def by_hand(kit: Kit, client: Client, other: Client, command: str) -> None:
    prepared(kit, client, other)
    administer(kit.node, {"do": command, "transaction": "1:transaction:branch", "vhost": "/"})


STATES: dict[str, Callable[[Kit, Client, Client], None]] = {
    "unknown": lambda kit, client, other: None,
    "working": working,
    "working in another": working_in_another,
    "other works": other_works,
    "suspended": suspended,
    "ended": ended,
    "prepared": prepared,
    "failed": failed,
    "timed out": timed_out,
    "timed out, working": timed_out_working,
    "mixed": mixed,
    "committed by hand": lambda kit, client, other: by_hand(kit, client, other, "commit-transaction"),
    "rolled back by hand": lambda kit, client, other: by_hand(kit, client, other, "roll-back-transaction"),
}


COMMANDS: dict[str, Command] = {
    "start": c.DtxStart(X),
    "join": c.DtxStart(X, join=True),
    "resume": c.DtxStart(X, resume=True),
    "join and resume": c.DtxStart(X, join=True, resume=True),
    "end": c.DtxEnd(X),
    "suspend": c.DtxEnd(X, suspend=True),
    "fail": c.DtxEnd(X, fail=True),
    "fail and suspend": c.DtxEnd(X, fail=True, suspend=True),
    "prepare": c.DtxPrepare(X),
    "commit": c.DtxCommit(X),
    "commit in one phase": c.DtxCommit(X, one_phase=True),
    "rollback": c.DtxRollback(X),
    "forget": c.DtxForget(X),
    "get-timeout": c.DtxGetTimeout(X),
    "set-timeout": c.DtxSetTimeout(X, 5),
    "too long a timeout": c.DtxSetTimeout(X, 3601),
}

ROWS: Final = tuple(COMMANDS)
TABLE: dict[str, tuple[int, ...]] = {
    # each in the order of COMMANDS
    "unknown": (OK, 404, 404, 503, 409, 409, 409, 503, 404, 404, 404, 404, 404, 404, 404, 404),
    "working": (409, 409, 409, 503, OK, OK, RB, 503, 409, 409, 409, 409, 409, -1, -1, 542),
    "working in another": (409, 409, 409, 503, 409, 409, 409, 503, OK, 409, OK, OK, 409, -1, -1, 542),
    "other works": (530, OK, 409, 503, 409, 409, 409, 503, 409, 409, 409, 409, 409, -1, -1, 542),
    "suspended": (530, 409, OK, 503, OK, 409, RB, 503, 409, 409, 409, 409, 409, -1, -1, 542),
    "ended": (530, OK, 409, 503, 409, 409, 409, 503, OK, 409, OK, OK, 409, -1, -1, 542),
    "prepared": (530, 409, 409, 503, 409, 409, 409, 503, 409, OK, 409, OK, 409, -1, -1, 542),
    "failed": (530, RB, 409, 503, 409, 409, 409, 503, RB, RB, RB, OK, 409, -1, -1, 542),
    "timed out": (530, TIMEOUT, 409, 503, 409, 409, 409, 503, TIMEOUT, TIMEOUT, TIMEOUT, TIMEOUT, 409, -1, -1, 542),
    "timed out, working": (409, 409, 409, 503, TIMEOUT, TIMEOUT, TIMEOUT, 503, 409, 409, 409, 409, 409, -1, -1, 542),
    "mixed": (530, 409, 409, 503, 409, 409, 409, 503, 409, MIX, MIX, MIX, -1, -1, -1, 542),
    "committed by hand": (530, 409, 409, 503, 409, 409, 409, 503, 409, COM, COM, COM, -1, -1, -1, 542),
    "rolled back by hand": (530, 409, 409, 503, 409, 409, 409, 503, 409, HRB, HRB, HRB, -1, -1, -1, 542),
}


@pytest.mark.repeats
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("state", STATES)
def test_every_command_in_every_state(kit: Kit, client: Client, other: Client, state: str, command: str) -> None:
    STATES[state](kit, select(client), other)
    assert status(client, COMMANDS[command]) == TABLE[state][ROWS.index(command)]


WITHOUT: dict[str, int] = {
    "start": 503, "join": 503, "resume": 503, "end": 503, "suspend": 503, "fail": 503, "prepare": OK,
    "commit in one phase": OK, "rollback": OK, "forget": 409, "get-timeout": -1, "set-timeout": -1,
}  # fmt: skip


@pytest.mark.parametrize("command", WITHOUT)
def test_without_select(client: Client, other: Client, command: str) -> None:
    """Who works in branches selects first; their manager need not."""
    start(other)
    end(other)
    assert status(client, COMMANDS[command]) == WITHOUT[command]


@pytest.mark.parametrize(("first", "second"), [(c.TxSelect(), c.DtxSelect()), (c.DtxSelect(), c.TxSelect())])
def test_a_session_has_one_kind_of_transactions(client: Client, first: Command, second: Command) -> None:
    client.call(first)
    assert status(client, second) == 409


def test_select_twice(client: Client) -> None:
    select(select(client))
    start(client)


# -- what a branch does ---------------------------------------------------------------------------------------------


@pytest.fixture
def filled(kit: Kit, client: Client, durable: bool) -> Client:
    for name in ("in", "out"):
        client.call(c.QueueDeclare(name, durable=durable))
    for body in (b"1", b"2", b"3"):
        client.publish("in", body, delivery_mode=2)
    select(client).subscribe("in", messages=2)
    return client


def swap(client: Client) -> None:
    """Take what was delivered, and publish as much."""
    for number, content in client.taken():
        client.publish("out", content.body, delivery_mode=2)
        client.call(c.MessageAccept(((number, number),)))


DURABLE = pytest.mark.parametrize("durable", [False, True])


@DURABLE
@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("commits", [False, True])
def test_outcomes(kit: Kit, filled: Client, prepared: bool, commits: bool) -> None:
    start(filled)
    swap(filled)
    end(filled)
    manager = kit.peer().session(b"manager")
    if prepared:
        assert status(manager, c.DtxPrepare(X)) == OK
    assert (count(filled, "in"), count(filled, "out")) == (1, 0)
    assert status(manager, c.DtxCommit(X, one_phase=not prepared) if commits else c.DtxRollback(X)) == OK
    filled.call(c.MessageCancel("t"))
    assert (count(filled, "in"), count(filled, "out")) == ((1, 2) if commits else (3, 0))
    start(filled)  # the name can be used again


@DURABLE
def test_after_end_nothing_belongs_to_the_branch(filled: Client) -> None:
    start(filled)
    swap(filled)
    end(filled)
    filled.publish("out", b"at once")
    assert count(filled, "out") == 1


@DURABLE
def test_a_branch_of_two_sessions(kit: Kit, filled: Client, other: Client) -> None:
    start(filled)
    start(other, join=True)
    swap(filled)
    other.publish("out", b"of the other", delivery_mode=2)
    end(filled)
    assert status(kit.peer().session(b"too early"), c.DtxPrepare(X)) == 409
    end(other)
    assert status(other, c.DtxCommit(X, one_phase=True)) == OK
    assert count(other, "out") == 3


@DURABLE
def test_two_branches_of_a_session(filled: Client) -> None:
    start(filled)
    filled.publish("out", b"x", delivery_mode=2)
    end(filled, suspend=True)
    start(filled, Y)
    filled.publish("out", b"y", delivery_mode=2)
    end(filled, Y)
    start(filled, resume=True)
    filled.publish("out", b"x", delivery_mode=2)
    end(filled)
    assert status(filled, c.DtxRollback(Y)) == OK
    assert status(filled, c.DtxCommit(X, one_phase=True)) == OK
    assert count(filled, "out") == 2


@DURABLE
@pytest.mark.parametrize("suspended", [False, True])
def test_the_end_of_a_session_rolls_its_branches_back(kit: Kit, filled: Client, suspended: bool) -> None:
    start(filled)
    swap(filled)
    if suspended:
        end(filled, suspend=True)
    filled.peer.lose()
    manager = kit.peer().session(b"manager")
    assert (count(manager, "in"), count(manager, "out")) == (3, 0)
    assert status(manager, c.DtxPrepare(X)) == RB
    assert status(manager, c.DtxRollback(X)) == OK
    assert status(manager, c.DtxGetTimeout(X)) == 404


@DURABLE
def test_what_was_ended_outlives_its_session(kit: Kit, filled: Client) -> None:
    start(filled)
    swap(filled)
    end(filled)
    filled.peer.lose()
    manager = kit.peer().session(b"manager")
    assert (count(manager, "in"), count(manager, "out")) == (1, 0)
    assert status(manager, c.DtxCommit(X, one_phase=True)) == OK
    assert (count(manager, "in"), count(manager, "out")) == (1, 2)


@DURABLE
def test_a_timeout(kit: Kit, filled: Client) -> None:
    start(filled)
    swap(filled)
    filled.call(c.DtxSetTimeout(X, 5))
    assert filled.ask(c.DtxGetTimeout(X), s.GetTimeoutResult).timeout == 5
    kit.pass_time(4_999)
    assert count(filled, "in") == 1
    filled.call(c.MessageFlow("t", 0, 1))
    (last,) = filled.taken()
    kit.pass_time(1)
    filled.call(c.MessageAccept(((last[0], last[0]),)))  # the branch is over: it returns, too
    filled.publish("out", b"in vain")
    filled.call(c.MessageCancel("t"))
    assert (count(filled, "in"), count(filled, "out")) == (3, 0)
    assert status(filled, c.DtxEnd(X)) == TIMEOUT
    assert status(filled, c.DtxRollback(X)) == TIMEOUT
    assert status(filled, c.DtxRollback(X)) == 404


def test_set_timeout_of_zero_is_the_default(client: Client) -> None:
    start(select(client))
    client.call(c.DtxSetTimeout(X, 5))
    client.call(c.DtxSetTimeout(X, 0))
    assert client.ask(c.DtxGetTimeout(X), s.GetTimeoutResult).timeout == module.DEFAULT_TIMEOUT


def test_a_branch_that_nobody_asks_for_is_forgotten(kit: Kit, client: Client) -> None:
    start(select(client))
    client.peer.lose()
    assert list(kit.node.branches)
    kit.pass_time(1000 * module.DEFAULT_TIMEOUT)
    assert not list(kit.node.branches)


def test_a_prepared_branch_has_no_timeout(kit: Kit, client: Client) -> None:
    start(select(client))
    end(client)
    assert status(client, c.DtxPrepare(X)) == OK
    client.call(c.DtxSetTimeout(X, 1))
    kit.pass_time(10_000_000)
    assert status(client, c.DtxCommit(X)) == OK


def test_recover_lists_what_waits_for_its_manager(client: Client) -> None:
    start(select(client))
    assert client.ask(c.DtxRecover(), s.RecoverResult).in_doubt == []
    end(client)
    assert status(client, c.DtxPrepare(X)) == OK
    start(client, Y)
    (found,) = client.ask(c.DtxRecover(), s.RecoverResult).in_doubt
    assert xid(found) == (1, b"transaction", b"branch")


def xid(found: object) -> tuple[int, bytes, bytes]:
    assert isinstance(found, StructValue)
    each = s.Xid.decode(found.raw)
    return each.format, each.global_id, each.branch_id


def test_branches_are_their_users(kit: Kit, client: Client) -> None:
    add_user(kit, "u")
    add_user(kit, "v")
    mine = select(kit.peer(user="u").session(b"mine"))
    start(mine)
    end(mine)
    for command in (c.DtxRollback(X), c.DtxPrepare(X), c.DtxStart(X, join=True), c.DtxGetTimeout(X)):
        assert status(select(kit.peer(user="v").session(b"theirs")), command) == 403
    assert status(mine, c.DtxPrepare(X)) == OK
    assert kit.peer(user="v").session(b"asks").ask(c.DtxRecover(), s.RecoverResult).in_doubt == []
    assert len(client.ask(c.DtxRecover(), s.RecoverResult).in_doubt) == 1  # an administrator
    assert status(client, c.DtxRollback(X)) == OK


def test_many_branches(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BRANCHES", 2)
    for number in range(2):
        start(select(client), s.Xid(1, b"%d" % number, b""))
        end(client, s.Xid(1, b"%d" % number, b""))
    assert status(client, c.DtxStart(X)) == 506


def test_many_suspended_branches(kit: Kit, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session that has too many ends, and with it all of its branches: another can end them."""
    monkeypatch.setattr(dtx, "MAX_SUSPENDED", 1)
    select(client)
    for xid in (X, s.Xid(1, b"another", b"")):
        start(client, xid)
        client.call(c.DtxEnd(xid, suspend=True))
    assert client.exception is not None
    assert client.exception.error_code == 409
    manager = select(kit.peer().session(b"manager"))
    for xid in (X, s.Xid(1, b"another", b"")):
        assert status(manager, c.DtxRollback(xid)) == OK


@DURABLE
def test_queues_and_virtual_hosts_that_go(kit: Kit, filled: Client) -> None:
    start(filled)
    swap(filled)
    end(filled)
    assert status(filled, c.DtxPrepare(X)) == OK
    manager = kit.peer().session(b"manager")
    for queue in ("in", "out"):
        manager.call(c.QueueDelete(queue))
    manager.call(c.QueueDeclare("out"))
    assert status(manager, c.DtxCommit(X)) == OK
    assert count(manager, "out") == 2  # it was declared again: the messages are for that name
    start(select(manager))
    end(manager)
    kit.node.delete_vhost("/")
    assert not list(kit.node.branches)


def test_messages_of_a_group_are_free_after_the_commit(kit: Kit, client: Client) -> None:
    client.call(c.QueueDeclare("q", arguments={"x-message-group": "g"}))
    for body in (b"1", b"2"):
        client.publish("q", body, message=s.MessageProperties(application_headers={"g": "a"}))
    select(client).subscribe("q", messages=1)
    other = kit.peer().session(b"other")
    start(client)
    ((number, _),) = client.taken()
    client.call(c.MessageAccept(((number, number),)))
    end(client)
    other.subscribe("q")
    assert other.bodies() == []
    assert status(client, c.DtxCommit(X, one_phase=True)) == OK
    assert other.bodies() == [b"2"]


def test_a_prepared_branch_holds_its_group_over_a_restart() -> None:
    kit = DiskKit()
    client = kit.peer().session(b"works")
    client.call(c.QueueDeclare("q", durable=True, arguments={"x-message-group": "g"}))
    for body in (b"1", b"2"):
        message = s.MessageProperties(application_headers={"g": "a"})
        client.publish("q", body, message=message, delivery_mode=2)
    select(client).subscribe("q", messages=1)
    start(client)
    ((number, _),) = client.taken()
    client.call(c.MessageAccept(((number, number),)))
    end(client)
    assert status(client, c.DtxPrepare(X)) == OK
    kit.restart(None)
    manager, other = kit.peer().session(b"manager"), kit.peer().session(b"other")
    other.subscribe("q")
    assert other.bodies() == []
    assert status(manager, c.DtxCommit(X)) == OK
    assert other.bodies() == [b"2"]
    kit.close()


# -- a broker that is killed ----------------------------------------------------------------------------------------

TAKEN: Final = (b"1", b"2")


class Transfer:
    """Two of three messages go from in to out (and all) in one branch; its manager goes on whatever happens."""

    def __init__(self, *, one_phase: bool, commits: bool) -> None:
        self.one_phase, self.commits = one_phase, commits
        self.kit = DiskKit()
        client = self.kit.client
        for name in ("in", "out", "copy"):
            client.declare(name)
        client.call(m.ExchangeDeclare("all", "fanout", durable=True), m.ExchangeDeclareOk)
        for name in ("out", "copy"):
            client.call(m.QueueBind(name, "all"), m.QueueBindOk)
        for body in (*TAKEN, b"3"):
            client.publish("in", body, delivery_mode=2)
        self.kit.sync()
        self.answered: set[str] = set()

    def work(self) -> None:
        client = select(self.kit.peer().session(b"works"))
        start(client)
        client.subscribe("in", messages=len(TAKEN))
        for number, content in client.taken():
            client.publish("", content.body, "all", delivery_mode=2)
            client.call(c.MessageAccept(((number, number),)))
        client.publish("out", b"transient")
        end(client)
        if not self.one_phase:
            assert status(client, c.DtxPrepare(X)) == OK
            self.answered.add("prepare")
        self.finish(client)

    def finish(self, client: Client) -> None:
        """Commit or roll back, and go on when the answer is there."""
        answer = status(client, c.DtxCommit(X, one_phase=self.one_phase) if self.commits else c.DtxRollback(X))
        assert answer == OK
        self.answered.add("outcome")

    def recover(self) -> None:
        """As a manager does after a loss."""
        client = self.kit.peer().session(b"manager")
        in_doubt = [xid(each) for each in client.ask(c.DtxRecover(), s.RecoverResult).in_doubt]
        if in_doubt:
            assert not self.one_phase
            assert in_doubt == [(1, b"transaction", b"branch")]
            assert [queue for queue in ("out", "copy") if self.kit.client.count(queue)] == []
            assert self.kit.client.count("in") == 1
            self.finish(client)
        elif "prepare" in self.answered:
            self.answered.add("outcome")  # it was carried out: a prepared branch does not vanish by itself

    def run(self, after: int, power: int | None) -> bool:
        """Die within the call after so many. Returns whether the process got that far."""
        died = False
        self.kit.disk.die(after)
        try:
            self.work()
        except Died:
            died = True
            self.kit.restart(power)
            self.recover()
        self.kit.disk.heal()
        self.kit.sync()
        self.check()
        self.kit.restart(None)
        self.check()
        self.kit.close()
        return died

    def check(self) -> None:
        vhost = self.kit.node.vhosts["/"]
        found = {name: sorted(bodies(self.kit, name)) for name in vhost.queues}
        found["out"] = [body for body in found["out"] if body != b"transient"]
        done = {"in": [b"3"], "out": [*TAKEN], "copy": [*TAKEN]}
        undone = {"in": [*TAKEN, b"3"], "out": [], "copy": []}
        if "outcome" in self.answered:
            assert found == (done if self.commits else undone)
        else:
            assert found in ((done, undone) if self.commits else (undone,))
        assert not list(self.kit.node.branches)


def bodies(kit: DiskKit, queue: str) -> list[bytes]:
    """What is in the queue; it stays there."""
    found = []
    while (content := kit.client.get(queue, no_ack=False)) is not None:
        found.append(content.body)
    kit.client.send(1, m.BasicRecover(True))
    kit.client.receive()
    kit.client.events.clear()
    return found


@pytest.mark.repeats
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
@pytest.mark.parametrize("one_phase", [False, True], ids=["two phases", "one phase"])
@pytest.mark.parametrize("power", [None, 1], ids=["kill", "power cut"])
def test_the_end_within_any_write(one_phase: bool, commits: bool, power: int | None) -> None:
    after = 0
    while Transfer(one_phase=one_phase, commits=commits).run(after, power):
        after += 1
    assert after > 2


@settings(max_examples=scaled(15))
@given(one_phase=st.booleans(), commits=st.booleans(), after=st.integers(0, 34), power=st.integers(0, 1 << 16))
def test_a_power_cut_within_any_write(one_phase: bool, commits: bool, after: int, power: int) -> None:
    Transfer(one_phase=one_phase, commits=commits).run(after, power)


class Decision:
    """An administrator decides about a prepared branch, and its manager asks for it after whatever happened."""

    def __init__(self, command: str, *, full: bool) -> None:
        self.command = command
        self.kit = kit = DiskKit()
        client = select(kit.peer().session(b"works"))
        client.call(c.QueueDeclare("in", durable=True))
        client.call(c.QueueDeclare("out", durable=True, arguments={"qpid.max_count": 1} if full else {}))
        for body in (b"1", b"2"):
            client.publish("in", body, delivery_mode=2)
        client.subscribe("in")
        start(client)
        for number, content in client.taken():
            client.publish("out", content.body, accept_mode=0, delivery_mode=2)
            client.call(c.MessageAccept(((number, number),)))
        end(client)
        assert status(client, c.DtxPrepare(X)) == OK
        self.outcome = HRB if command.startswith("roll") else MIX if full else COM
        self.told = False
        self.managers = 0

    def decide(self) -> None:
        def work() -> Iterator[None]:
            yield from administering(
                self.kit.node, {"do": self.command, "transaction": "1:transaction:branch", "vhost": "/"}
            )
            self.told = True

        self.kit.node.batch.slices.run(work())
        self.kit.node.batch.end()
        while not self.told:
            self.kit.sync()
            self.kit.settle()

    def run(self, after: int, power: int | None) -> bool:
        """Die within the call after so many. Returns whether the process got that far."""
        died = False
        self.kit.disk.die(after)
        try:
            self.decide()
        except Died:
            died = True
        self.kit.disk.heal()
        self.kit.restart(power)
        manager = self.manager()
        (found,) = manager.ask(c.DtxRecover(), s.RecoverResult).in_doubt
        assert xid(found) == (1, b"transaction", b"branch")
        self.kit.sync()  # a commit that had begun is carried out
        self.kit.settle()
        if (answer := status(manager, c.DtxCommit(X))) == self.outcome:
            self.check_outcome(manager)
        else:
            assert not self.told
            assert answer in (OK, MIX)  # the administrator's decision is lost, who was not told that it was made
        self.kit.close()
        return died

    def manager(self) -> Client:
        self.kit.settle()
        self.managers += 1
        return self.kit.peer().session(b"manager %d" % self.managers)

    def check_outcome(self, manager: Client) -> None:
        committed = [] if self.outcome == HRB else [b"1"] if self.outcome == MIX else [b"1", b"2"]
        for _ in range(2):
            assert bodies(self.kit, "out") == committed
            assert bodies(self.kit, "in") == ([b"1", b"2"] if self.outcome == HRB else [])
            assert status(manager, c.DtxRollback(X)) == self.outcome
            assert manager.ask(c.DtxRecover(), s.RecoverResult).in_doubt
            self.kit.sync()
            self.kit.restart(None)
            manager = self.manager()
        manager.call(c.DtxForget(X))
        assert manager.exception is None
        self.kit.sync()
        self.kit.restart(None)
        manager = self.manager()
        assert not manager.ask(c.DtxRecover(), s.RecoverResult).in_doubt
        assert status(manager, c.DtxCommit(X)) == 404


@pytest.mark.repeats
@pytest.mark.parametrize(
    ("command", "full"),
    [("commit-transaction", False), ("commit-transaction", True), ("roll-back-transaction", False)],
)
@pytest.mark.parametrize("power", [None, 1], ids=["kill", "power cut"])
def test_a_decision_by_hand_outlives_the_broker(command: str, full: bool, power: int | None) -> None:
    after = 0
    while Decision(command, full=full).run(after, power):
        after += 1 if power is None else 3
    assert after > 2


def test_a_mixed_outcome_outlives_the_broker() -> None:
    decision = Decision("commit-transaction", full=True)
    assert status(decision.manager(), c.DtxCommit(X)) == MIX
    decision.kit.sync()
    decision.check_outcome(decision.manager())
    decision.kit.close()


def test_what_was_decided_about_transient_messages_outlives_the_broker() -> None:
    kit = DiskKit()
    client = select(kit.peer().session(b"works"))
    client.call(c.QueueDeclare("q"))
    start(client)
    client.publish("q", b"m")
    end(client)
    assert status(client, c.DtxPrepare(X)) == OK
    administer(kit.node, {"do": "commit-transaction", "transaction": "1:transaction:branch", "vhost": "/"})
    kit.node.batch.end()
    kit.sync()
    kit.restart(None)
    assert status(kit.peer().session(b"manager"), c.DtxCommit(X)) == COM
    kit.close()


class Brokers:
    """A message moves from one broker to another one by two-phase commit; the manager writes its decision down."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.kits = [DiskKit(), DiskKit()]
        for kit in self.kits:
            kit.client.declare("q")
        self.decided: set[bytes] = set()
        self.begun = 0

    def client(self, place: int) -> Client:
        return select(self.kits[place].peer().session(b"session %d" % self.random.getrandbits(60)))

    def move(self) -> None:
        self.begun += 1
        name = s.Xid(1, b"%d" % self.begun, b"b")
        for kit in self.kits:
            if self.random.random() < 0.5:
                kit.disk.die(self.random.randrange(40))
        try:
            source, target = self.client(0), self.client(1)
            for client in (source, target):
                start(client, name)
            source.subscribe("q", messages=1)
            taken = source.taken()
            for number, content in taken:
                target.publish("q", content.body, delivery_mode=2)
                source.call(c.MessageAccept(((number, number),)))
            for client in (source, target):
                end(client, name)
                assert status(client, c.DtxPrepare(name)) == OK
            if taken:
                self.decided.add(name.global_id)
            for client in (source, target):
                self.finish(client, name)
        except Died:
            self.resolve()

    def finish(self, client: Client, name: s.Xid) -> None:
        commits = name.global_id in self.decided
        assert status(client, c.DtxCommit(name) if commits else c.DtxRollback(name)) == OK

    def resolve(self) -> None:
        """Start both brokers again, and bring to an end what is in doubt."""
        for place, kit in enumerate(self.kits):
            kit.disk.heal()
            kit.restart(None)
            client = self.client(place)
            for found in client.ask(c.DtxRecover(), s.RecoverResult).in_doubt:
                self.finish(client, s.Xid(*xid(found)))


@settings(max_examples=scaled(15))
@given(seed=st.integers(0, 1 << 32))
def test_two_brokers_and_a_manager_lose_and_double_nothing(seed: int) -> None:
    brokers = Brokers(Random(seed))
    sent = [b"%d" % number for number in range(6)]
    for body in sent:
        brokers.kits[0].client.publish("q", body, delivery_mode=2)
    brokers.kits[0].sync()
    for _ in range(10):
        brokers.move()
    brokers.resolve()
    found = [body for kit in brokers.kits for body in bodies(kit, "q")]
    assert sorted(found) == sent
    for kit in brokers.kits:
        kit.close()
