"""Sessions: attachment, takeover, time after a loss, and resuming after a cut at every octet."""

from __future__ import annotations

from pathlib import Path

import pytest

from harebell.protocol.v010 import Command, Control, commands as c, controls as k, structs as s
from harebell.protocol.v010.domains import DetachCode, ErrorCode
from harebell.protocol.v010.session import Session as State
from tests.broker.v010.kit import Client, Kit, Peer, add_user

# -- rules of the class session, by their names -------------------------------------------------------------------


def test_one_transport_per_session(kit: Kit) -> None:
    first = kit.peer().session(b"s")
    second = kit.peer().session(b"s")
    assert first.attached
    assert second.detached == DetachCode.SESSION_BUSY


def test_one_session_per_transport(kit: Kit) -> None:
    peer = kit.peer()
    first = peer.session(b"s")
    peer.connection.receive_data(_control(k.SessionAttach(b"other")))
    peer.receive()
    assert (0, k.SessionDetached(b"other", DetachCode.TRANSPORT_BUSY)) in peer.events
    assert first.call(c.QueueDeclare("q")) in first.complete


def test_idempotence(kit: Kit) -> None:
    peer = kit.peer()
    client = peer.session(b"s")
    peer.control(0, k.SessionAttach(b"s"))
    assert client.attached
    assert client.call(c.QueueDeclare("q")) in client.complete


def test_scoping(kit: Kit) -> None:
    """A name is one of its user: another user's session of that name is another session."""
    add_user(kit, "eve")
    first = kit.peer().session(b"s")
    second = kit.peer(user="eve").session(b"s")
    assert first.attached
    assert second.attached


def test_force(kit: Kit) -> None:
    peer, other = kit.peer(), kit.peer()
    first = peer.session(b"s")
    number = first.call(c.QueueDeclare("q", exclusive=True))
    second = other.session(b"s", 3, state=first.state, force=True)
    peer.receive()
    assert first.detached == DetachCode.SESSION_BUSY
    assert second.attached
    assert number == 0
    assert second.call(c.QueueDeclare("q", exclusive=True)) in second.complete


def test_not_attached(kit: Kit) -> None:
    peer = kit.peer()
    peer.connection.receive_data(_control(k.SessionFlush(completed=True)))
    assert peer.transport.written.endswith(b"\x02\x04\x03\x00\x00\x00\x03")


def test_newly_attached_transports(kit: Kit) -> None:
    """Commands before session.command-point end the session."""
    peer = kit.peer()
    client = Client(peer, b"s", 0, None)
    client.state.ready = True
    peer.sessions[0] = client
    peer.engine.send_control(0, k.SessionAttach(b"s"))
    peer.engine.send_command(0, c.QueueDeclare("q"))
    peer.pump()
    kit.settle()
    assert client.exception is not None
    assert client.exception.error_code == ErrorCode.ILLEGAL_STATE


def test_nonzero_offset(kit: Kit) -> None:
    peer = kit.peer()
    client = peer.session()
    peer.control(0, k.SessionCommandPoint(5, 7))
    assert client.exception is not None
    assert client.exception.error_code == ErrorCode.NOT_IMPLEMENTED


def test_commands_empty_means_new_session(kit: Kit) -> None:
    peer = kit.peer()
    peer.session(b"s")
    assert (0, k.SessionExpected(())) in peer.events


def test_maximum_granted_timeout(tmp_path: Path) -> None:
    kit = Kit(tmp_path, sync=False, session_timeout=60.0)
    peer = kit.peer()
    client = peer.session()
    for asked, granted in ((10, 10), (61, 60), (None, 60), (0, 0)):
        peer.control(0, k.SessionRequestTimeout(asked))
        assert client.timeout == granted
    kit.stop()


def test_known_completed_reply(kit: Kit) -> None:
    peer = kit.peer()
    peer.session()
    peer.control(0, k.SessionCompleted(None, True))
    assert isinstance(peer.events[-1][1], k.SessionKnownCompleted)


def test_gap_confirmation_and_completion(kit: Kit) -> None:
    peer = kit.peer()
    client = peer.session()
    client.call(c.QueueDeclare("q"))
    client.attached = False
    for _ in range(3):
        client.send(c.QueuePurge("never sent"))
    client.attached = True
    for control in client.state.abandon(1, 3):
        peer.control(0, control)
    peer.control(0, k.SessionFlush(completed=True))
    assert peer.events[-1][1] == k.SessionCompleted(((0, 3),), False)


def test_sync_completes_when_all_before_are(kit: Kit) -> None:
    client = kit.peer().session()
    client.send(c.QueueDeclare("q"))
    client.send(c.QueueDeclare("r"))
    assert client.complete == set()
    number = client.call(c.ExecutionSync())
    assert client.complete == {0, 1, number}


# -- errors -------------------------------------------------------------------------------------------------------


def test_exception_comes_behind_the_completions_before_it(kit: Kit) -> None:
    peer = kit.peer()
    client = peer.session()
    client.send(c.QueueDeclare("q"))
    client.call(c.QueuePurge("nowhere"))
    kinds = [type(event) for _, event in peer.events]
    assert kinds[-3:] == [k.SessionCompleted, c.ExecutionException, k.SessionDetach]
    assert client.complete == {0}
    assert client.exception is not None
    assert (client.exception.error_code, client.exception.command_id) == (404, 1)
    assert (client.exception.class_code, client.exception.command_code) == (8, 3)
    again = peer.session(b"s")
    assert again.attached
    assert again.call(c.QueueDeclare("q")) in again.complete


def test_malformed_command_ends_its_session_alone(kit: Kit) -> None:
    peer = kit.peer()
    client, other = peer.session(b"s", 0), peer.session(b"o", 1)
    client.call(c.QueueDeclare("q"))
    frame = b"\x0f\x01\x00\x13\x00\x01\x00\x00\x00\x00\x00\x00" + b"\x08\x03\x01\x01\x01\x00\x05"
    peer.connection.receive_data(frame)
    peer.receive()
    assert client.exception is not None
    assert (client.exception.error_code, client.exception.command_id) == (ErrorCode.COMMAND_INVALID, 1)
    assert other.call(c.QueueDeclare("r")) in other.complete


@pytest.mark.parametrize(
    "command",
    [c.FileQos(), c.StreamCancel(), c.MessageSubscribe("q", resume_id="i")],
)
def test_not_implemented(kit: Kit, command: Command) -> None:
    client = kit.peer().session()
    client.call(c.QueueDeclare("q"))
    client.call(command)
    assert client.exception is not None
    assert client.exception.error_code == ErrorCode.NOT_IMPLEMENTED


def test_a_session_that_fails_without_a_connection_says_so_later(kit: Kit) -> None:
    first = kit.peer().session(b"s")
    first.peer.control(0, k.SessionRequestTimeout(60))
    first.call(c.QueueDeclare("q"))
    first.subscribe("q")
    first.peer.lose()
    other = kit.peer().session(b"o")
    other.call(c.QueueDelete("q"))
    kit.settle()
    again = kit.peer().session(b"s", state=first.state)
    assert again.exception is not None
    assert again.exception.error_code == ErrorCode.RESOURCE_DELETED


# -- lasting -----------------------------------------------------------------------------------------------------


def lasting(kit: Kit, name: bytes = b"s", timeout: int = 60) -> Client:
    client = kit.peer().session(name)
    client.peer.control(0, k.SessionRequestTimeout(timeout))
    return client


def test_a_session_without_timeout_ends_with_its_connection(kit: Kit) -> None:
    client = kit.peer().session()
    client.call(c.QueueDeclare("q"))
    client.publish("q", b"m")
    client.completes = False
    client.subscribe("q")
    assert client.bodies() == [b"m"]
    client.peer.lose()
    other = kit.peer().session(b"o")
    other.subscribe("q")
    assert [(each.body, each.delivery_properties.redelivered) for _, each in other.taken()] == [(b"m", True)]


def test_a_lost_connection_requeues_nothing(kit: Kit) -> None:
    client = lasting(kit)
    client.call(c.QueueDeclare("q"))
    client.publish("q", b"1")
    client.publish("q", b"2")
    client.subscribe("q", messages=1)
    ((number, _),) = client.taken()
    client.peer.lose()
    assert kit.node.vhosts["/"].queues["q"].message_count == 1
    assert [each.unacked_count for each in kit.sessions.detached()] == [1]
    again = kit.peer().session(b"s", 5, state=client.state)
    assert not again.lost
    assert again.bodies() == [b"2"]  # the first one is not sent again; it is complete, so that there is credit
    again.call(c.MessageAccept(((number, number),)))
    assert [channel.unacked_count for channel in again.peer.connection.channels.values()] == [1]
    assert list(kit.sessions.detached()) == []


def test_expiry_returns_what_was_held_as_redelivered(kit: Kit) -> None:
    client = lasting(kit)
    client.call(c.QueueDeclare("q"))
    client.call(c.QueueDeclare("own", exclusive=True, auto_delete=True))
    client.publish("q", b"m")
    client.subscribe("q")
    client.peer.lose()
    kit.pass_time(59_000)
    assert "own" in kit.node.vhosts["/"].queues
    kit.pass_time(2_000)
    assert "own" not in kit.node.vhosts["/"].queues
    other = kit.peer().session(b"o")
    other.subscribe("q")
    assert [each.delivery_properties.redelivered for _, each in other.taken()] == [True]
    again = kit.peer().session(b"s", state=client.state)
    assert again.lost  # the client is told so


def test_detach_keeps_the_session(kit: Kit) -> None:
    client = lasting(kit)
    client.call(c.QueueDeclare("q", exclusive=True))
    client.peer.control(0, k.SessionDetach(b"s"))
    assert client.detached == DetachCode.NORMAL
    again = kit.peer().session(b"s", state=client.state)
    assert again.call(c.QueuePurge("q")) in again.complete


def test_a_client_that_has_lost_its_state_begins_again(kit: Kit) -> None:
    client = lasting(kit)
    client.call(c.QueueDeclare("q"))
    client.publish("q", b"m")
    client.subscribe("q")
    client.taken()
    client.peer.lose()
    again = kit.peer().session(b"s")  # with a new state
    assert again.call(c.QueueDeclare("q")) in again.complete
    again.subscribe("q")
    assert [each.delivery_properties.redelivered for _, each in again.taken()] == [True]


def test_bounds_in_number(tmp_path: Path) -> None:
    kit = Kit(tmp_path, sync=False, max_sessions=3, max_sessions_per_user=2)
    add_user(kit, "eve")
    granted = [lasting(kit, name).timeout for name in (b"a", b"b", b"c")]
    assert granted == [60, 60, 0]
    others = [kit.peer(user="eve").session(name) for name in (b"a", b"b")]
    for each in others:
        each.peer.control(0, k.SessionRequestTimeout(60))
    assert [each.timeout for each in others] == [60, 0]
    kit.stop()


def test_bounds_in_bytes(tmp_path: Path) -> None:
    kit = Kit(tmp_path, sync=False, session_memory=10_000)
    client = lasting(kit)
    client.completes = False
    client.call(c.QueueDeclare("q"))
    client.publish("q", bytes(6000))
    client.subscribe("q")
    client.peer.lose()
    assert list(kit.sessions.detached()) == []
    again = kit.peer().session(b"s", state=client.state)
    assert again.lost
    kit.stop()


@pytest.mark.parametrize("how", ["tx", "dtx", "dtx, suspended", "two of dtx"])
@pytest.mark.parametrize("size, lasts", [(2000, True), (3000, False)])
def test_bounds_in_bytes_of_transactions(tmp_path: Path, how: str, size: int, lasts: bool) -> None:
    """What waits for a commit counts, in every branch that the session holds."""
    kit = Kit(tmp_path, sync=False, session_memory=10_000)
    client = lasting(kit)
    client.call(c.QueueDeclare("q"))
    one, two = s.Xid(1, b"one", b""), s.Xid(1, b"two", b"")
    client.call(c.TxSelect() if how == "tx" else c.DtxSelect())
    if how != "tx":
        client.call(c.DtxStart(one))
    client.publish("q", bytes(size))
    if how == "two of dtx":
        client.call(c.DtxEnd(one, suspend=True))
        client.call(c.DtxStart(two))
    client.publish("q", bytes(size))
    if how == "dtx, suspended":
        client.call(c.DtxEnd(one, suspend=True))
    assert client.exception is None
    client.peer.lose()
    assert bool(list(kit.sessions.detached())) == lasts
    kit.stop()


def test_a_long_name_is_refused(kit: Kit) -> None:
    client = kit.peer().session(b"s" * 2000)
    assert client.exception is not None
    assert client.exception.error_code == ErrorCode.RESOURCE_LIMIT_EXCEEDED


def test_other_controls_are_answered_or_passed_over(kit: Kit) -> None:
    peer = kit.peer()
    client = peer.session()
    peer.control(0, k.SessionTimeout(5))
    peer.control(0, k.SessionDetach(b"other"))
    peer.control(0, k.SessionCompleted(((5, 9),), False))
    assert client.exception is not None
    assert client.exception.error_code == ErrorCode.INVALID_ARGUMENT


def test_what_comes_with_a_detach_is_not_answered(kit: Kit) -> None:
    peer = kit.peer()
    client = peer.session()
    for control in (
        k.SessionRequestTimeout(0),
        k.SessionFlush(expected=True, confirmed=True, completed=True),
        k.SessionDetach(b"s"),
    ):
        peer.engine.send_control(0, control)
    peer.pump()
    kit.settle()
    assert not client.attached
    assert peer.closed is None
    assert kit.sessions.find(peer.connection, b"s") is None  # the timeout was granted all the same


# -- resuming after a cut at every octet --------------------------------------------------------------------------


class Run:
    """A dialogue: declare, subscribe, publish, accept. It is cut once, and goes on over another connection."""

    def __init__(self, kit: Kit, sends: int | None, takes: int | None) -> None:
        self.kit = kit
        self.state: State[object] = State(b"cut")
        self.seen: list[bytes] = []
        self.accepted: set[int] = set()
        self.losses = 0
        self.first: Peer | None = None
        self.begun = (0, 0)  # bytes of the first connection, each way, when it had attached
        self.client = self._attach(sends, takes)
        assert self.first is not None
        self.begun = self.first.sent, self.first.taken

    def _attach(self, sends: int | None = None, takes: int | None = None) -> Client:
        peer = self.kit.peer()
        self.first = self.first or peer
        peer.sends, peer.takes, peer.sent, peer.taken = sends, takes, 0, 0
        client = peer.session(b"cut", state=self.state)
        if not peer.lost:
            peer.control(0, k.SessionRequestTimeout(60))
        return client

    def go_on(self) -> None:
        """Receive what there is, accept it, and attach again after the loss."""
        self.kit.settle()
        self.seen += [content.body for _, content in self.client.messages]
        numbers = [number for number, _ in self.client.messages]
        self.client.messages.clear()
        for number in numbers:
            assert number not in self.accepted
            self.accepted.add(number)
            self.client.send(c.MessageAccept(((number, number),)))
        if self.client.peer.lost and self.losses == 0:
            self.losses = 1
            old, self.client = self.client, self._attach()
            self.client.lost = old.lost
            self.go_on()

    def run(self, durable: bool) -> None:
        for command in (
            c.QueueDeclare("cut", durable=durable),
            c.MessageSubscribe("cut", "t"),
            c.MessageFlow("t", 0, 2),
            c.MessageFlow("t", 1, 10_000),
        ):
            self.client.send(command)
            self.go_on()
        for body in (b"one", b"two", b"three"):
            self.client.publish("cut", body, accept_mode=0, sync=False, delivery_mode=1 + durable)
            self.go_on()
        self.client.report()
        self.go_on()
        number = self.client.send(c.ExecutionSync(sync=True))
        for _ in range(6):
            self.go_on()
            self.client.report()
        self.client.wait(number)
        self.go_on()


def outcome(kit: Kit, sends: int | None, takes: int | None, durable: bool) -> tuple[range, range]:
    """Run it, and check that all happened once.

    Returns the numbers of bytes that the first connection had carried, each way, from the granted timeout to its end.
    """
    run = Run(kit, sends, takes)
    run.run(durable)
    queue = kit.node.vhosts["/"].queues["cut"]
    name = (sends, takes)
    kit.sessions.find(run.client.peer.connection, b"cut").flush_counts()  # type: ignore[union-attr]
    assert run.seen == [b"one", b"two", b"three"], name
    counts = queue.counts
    assert (counts.publish, counts.deliver, counts.ack, counts.redeliver) == (3, 3, 3, 0), name
    assert queue.message_count == 0, name
    assert [each.unacked_count for each in run.client.peer.connection.channels.values()] == [0], name
    assert [each.oldest_unacked for each in run.client.peer.connection.channels.values()] == [None], name
    assert run.client.exception is None, name
    assert run.first is not None
    carried = range(run.begun[0], run.first.sent), range(run.begun[1], run.first.taken)
    run.client.peer.sends = run.client.peer.takes = None
    run.client.call(c.MessageCancel("t"))
    run.client.call(c.QueueDelete("cut"))
    run.client.peer.control(0, k.SessionRequestTimeout(0))
    run.client.peer.lose()
    kit.peers.clear()
    return carried


@pytest.mark.repeats
@pytest.mark.parametrize("durable", [False, True])
def test_a_cut_after_every_octet_changes_nothing(kit: Kit, durable: bool) -> None:
    sent, taken = outcome(kit, None, None, durable)
    assert len(sent) > 300
    assert len(taken) > 300
    for at in sent:
        outcome(kit, at, None, durable)
    for at in taken:
        outcome(kit, None, at, durable)


def _control(control: Control) -> bytes:
    payload = control.encode()
    return b"\x0f\x00" + (12 + len(payload)).to_bytes(2, "big") + bytes(8) + payload
