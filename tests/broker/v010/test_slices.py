"""Long commands of AMQP 0-10 in slices: others have their turns, and a session sees its commands in their order."""

from __future__ import annotations

import pytest

from harebell.broker.connections import base
from harebell.broker.queues import settling
from harebell.broker.transactions.branch import Xid
from harebell.broker.v010 import deliveries, message_commands, session
from harebell.protocol.v010 import Command, commands as c, controls as k, structs as s
from tests.broker.kit import cut_finely
from tests.broker.v010.kit import Client, Kit


@pytest.fixture
def fine(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_finely(monkeypatch)
    monkeypatch.setattr(base, "PART", 1 << 16)  # a command is read at once
    for module in (settling, deliveries, message_commands):
        monkeypatch.setattr(module, "DELIVERIES_PER_STEP", 1)
    for name in ("REPLAYED", "MANY"):
        monkeypatch.setattr(session, name, 1)


def fill(client: Client, count: int) -> list[int]:
    """Messages, delivered and not settled. Returns their numbers."""
    client.call(c.QueueDeclare("q"))
    for number in range(count):
        client.publish("q", b"%d" % number, sync=number == count - 1)
    client.completes = False
    client.subscribe("q")
    return [number for number, _ in client.taken()]


def turns_until(kit: Kit, client: Client, number: int) -> int:
    """Run long work slice by slice until a command is complete. Returns the number of slices."""
    turns = 0
    while number not in client.complete:
        assert turns < 1000
        kit.run_sync()
        client.peer.receive()
        client.peer.pump()
        turns += 1
    return turns


@pytest.mark.parametrize("kind", [c.MessageAccept, c.MessageReject, c.MessageRelease, c.MessageAcquire])
@pytest.mark.usefixtures("fine")
def test_others_have_their_turns(kit: Kit, client: Client, kind: type[Command]) -> None:
    client.call(c.QueueDeclare("q"))
    for number in range(20):
        client.publish("q", b"%d" % number, sync=number == 19)
    client.subscribe("q", acquire_mode=int(kind is c.MessageAcquire))
    numbers = [number for number, _ in client.taken()]
    assert len(numbers) == 20
    other = kit.peer().session(b"other")
    kit.stopwatch.step = 1.0
    command = kind(((numbers[0], numbers[-1]),))  # type: ignore[call-arg]
    command.sync = True
    sent = client.peer.engine
    number = client.state.sending.send(command, 100)
    sent.send_command(0, command)
    after = client.state.sending.send(c.QueueDeclare("after"), 100)
    sent.send_command(0, c.QueueDeclare("after", sync=True))
    client.peer.connection.receive_data(sent.data_to_send())
    assert number not in client.complete
    assert "after" not in kit.node.vhosts["/"].queues
    between = other.state.sending.send(c.QueueDeclare("between"), 100)
    other.peer.engine.send_command(0, c.QueueDeclare("between", sync=True))
    other.peer.connection.receive_data(other.peer.engine.data_to_send())
    assert "between" in kit.node.vhosts["/"].queues
    assert number not in client.complete
    assert turns_until(kit, client, after) > 5
    assert number in client.complete
    kit.stopwatch.step = 0.0
    kit.settle()
    assert between in other.complete


@pytest.mark.usefixtures("fine")
def test_many_completions_at_once(kit: Kit, client: Client) -> None:
    numbers = fill(client, 10)
    client.finish(*numbers)
    assert client.exception is None
    assert client.peer.connection.channels[0].deliveries.windows.count == 0


@pytest.mark.usefixtures("fine")
def test_a_replay_keeps_the_order(kit: Kit) -> None:
    """What is delivered while transfers are sent again goes out behind them."""
    client = kit.peer().session(b"s")
    client.peer.control(0, k.SessionRequestTimeout(60))
    client.call(c.QueueDeclare("q"))
    client.subscribe("q")
    other = kit.peer().session(b"other")
    for number in range(10):
        other.publish("q", b"%d" % number, sync=False)
    client.peer.lose()  # it has received none of them
    kit.stopwatch.step = 1.0
    again = kit.peer().session(b"s", state=client.state)
    other.publish("q", b"10", sync=False)
    for _ in range(100):
        kit.run_syncs()
        again.peer.receive()
        again.peer.pump()
    kit.stopwatch.step = 0.0
    assert again.bodies() == [b"%d" % number for number in range(11)]


@pytest.mark.usefixtures("fine")
def test_takeover_waits_for_a_command_that_is_executed(kit: Kit) -> None:
    client = kit.peer().session(b"s")
    client.peer.control(0, k.SessionRequestTimeout(60))
    numbers = fill(client, 10)
    other = kit.peer()
    again = other.sessions[0] = Client(other, b"s", 0, None)
    kit.stopwatch.step = 1.0
    command = c.MessageRelease(((numbers[0], numbers[-1]),))
    client.state.sending.send(command, 100)
    client.peer.engine.send_command(0, command)
    client.peer.connection.receive_data(client.peer.engine.data_to_send())
    other.engine.send_control(0, k.SessionAttach(b"s", True))
    other.connection.receive_data(other.engine.data_to_send())
    assert other.connection.channels == {}
    for _ in range(200):
        kit.run_syncs()
        other.receive()
        other.pump()
    assert again.attached
    kit.stopwatch.step = 0.0
    kit.settle()
    assert kit.node.vhosts["/"].queues["q"].message_count == 10  # the client had lost its state


@pytest.mark.usefixtures("fine")
def test_a_lost_session_ends_in_slices(kit: Kit, client: Client) -> None:
    fill(client, 10)
    kit.stopwatch.step = 1.0
    client.peer.lose()
    kit.stopwatch.step = 0.0
    kit.node.batch.slices.finish()
    kit.node.batch.end()
    other = kit.peer().session(b"other")
    other.subscribe("q")
    assert other.bodies() == [b"%d" % number for number in range(10)]
    assert other.ask(c.QueueQuery("q"), s.QueueQueryResult).subscriber_count == 1


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("distributed", [False, True])
@pytest.mark.usefixtures("fine")
def test_accepts_in_a_transaction(kit: Kit, client: Client, distributed: bool, ends: bool) -> None:
    """Others have their turns; a session that ends in the middle gives all of it back."""
    numbers = fill(client, 20)
    xid = s.Xid(1, b"x", b"")
    for command in (c.DtxSelect(), c.DtxStart(xid)) if distributed else (c.TxSelect(),):
        client.call(command)
    working = client.peer.connection.channels[0]
    kit.stopwatch.step = 1.0
    accept = c.MessageAccept(((numbers[0], numbers[-1]),))
    accept.sync = True
    number = client.state.sending.send(accept, 100)
    client.peer.engine.send_command(0, accept)
    client.peer.connection.receive_data(client.peer.engine.data_to_send())

    def accepted() -> int:
        branch = kit.node.branches.get("/", Xid(*_parts(xid)))
        return len(branch.taken) if branch is not None else working.transactions.settled

    for _ in range(5):
        kit.run_sync()
    assert 0 < accepted() < 20
    if ends:
        client.peer.lose()
    else:
        assert turns_until(kit, client, number) > 5
        assert accepted() == 20
    kit.stopwatch.step = 0.0
    kit.settle()
    assert kit.node.vhosts["/"].queues["q"].message_count == (20 if ends else 0)


def _parts(xid: s.Xid) -> tuple[int, bytes, bytes]:
    return xid.format, xid.global_id, xid.branch_id
