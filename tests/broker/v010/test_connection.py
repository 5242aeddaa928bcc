"""A connection of AMQP 0-10: handshake, limits, heartbeats, close, and hostile peers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from harebell.broker.connections.base import CLOSING_TIMEOUT
from harebell.broker.connections.phase import Phase
from harebell.broker.rules.limits import set_user_limits
from harebell.broker.v010 import session
from harebell.broker.v010.connection import Connection
from harebell.errors import ConnectionForced
from harebell.protocol.v010 import ConnectionState, Control, Engine, Role, commands as c, controls as k, encode_content
from harebell.protocol.v010.domains import CloseCode
from harebell.protocol.v010.frames import PROTOCOL_HEADER, command_frames, control_frames
from harebell.routing.definitions import Permission
from tests.broker.kit import FakeTransport
from tests.broker.v010.kit import Kit, add_user

LOGIN = k.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest", "en_US")


class Raw:
    """A connection whose client is a bare engine."""

    def __init__(self, kit: Kit, certificate: str | None = None) -> None:
        self.kit, self.transport = kit, FakeTransport()
        self.transport.certificate_user = certificate
        self.connection = Connection(kit.node, self.transport, kit.sessions)
        kit.node.add_connection(self.connection)
        self.engine = Engine(Role.CLIENT)
        self.said: list[object] = []
        self.engine.send_header()
        self.go_on()

    def go_on(self) -> None:
        self.connection.receive_data(self.engine.data_to_send())
        self.kit.run_syncs()
        self.kit.node.run_timers()
        data = bytes(self.transport.written)
        self.transport.written.clear()
        self.engine.receive_data(data)
        self.said += [event for _, event in self.engine.events()]

    def send(self, *controls: Control) -> object:
        for control in controls:
            self.engine.send_control(0, control)
        self.go_on()
        return self.said[-1]

    def logged_in(self) -> None:
        self.send(LOGIN)
        while self.engine.state is ConnectionState.AWAIT_TUNE:
            self.kit.run_sync()
            self.go_on()


def test_handshake(kit: Kit) -> None:
    raw = Raw(kit)
    (start,) = raw.said
    assert isinstance(start, k.ConnectionStart)
    assert list(start.mechanisms) == ["PLAIN", "AMQPLAIN"]  # rule protocol-name; no keys for SCRAM, no certificate
    assert list(start.locales) == ["en_US"]
    raw.logged_in()
    tune = raw.said[-1]
    assert tune == k.ConnectionTune(2047, 65_535, 0, 120)
    assert raw.send(k.ConnectionTuneOk(10, 8192, 30), k.ConnectionOpen("")) == k.ConnectionOpenOk()
    assert raw.transport.heartbeat == 30
    connection = raw.connection
    assert (connection.frame_max, connection.channel_max, connection.user) == (8192, 10, "guest")
    assert (connection.protocol, connection.is_open, connection.state) == ("{0,10}", True, "running")
    assert raw.send(k.ConnectionClose(200, "")) == k.ConnectionCloseOk()
    assert connection.phase is Phase.CLOSED


def test_required_fields(kit: Kit) -> None:
    (start,) = Raw(kit).said
    assert isinstance(start, k.ConnectionStart)
    assert {"host", "product", "version", "platform", "copyright", "information"} <= set(start.server_properties or {})


def test_insist(kit: Kit) -> None:
    """Nobody is led to another broker, whether he insists or not."""
    for insist in (True, False):
        raw = Raw(kit)
        raw.logged_in()
        said = raw.send(k.ConnectionTuneOk(10, 8192, 30), k.ConnectionOpen("/", insist=insist))
        assert said == k.ConnectionOpenOk()


@pytest.mark.parametrize("way", ["lost", "closed", "not open"])
def test_a_connection_that_ends_without_close_is_logged(kit: Kit, caplog: pytest.LogCaptureFixture, way: str) -> None:
    raw = Raw(kit)
    if way != "not open":
        raw.logged_in()
        raw.send(k.ConnectionTuneOk(10, 8192, 30), k.ConnectionOpen("/"))
    if way == "closed":
        raw.send(k.ConnectionClose(200, ""))
    with caplog.at_level("INFO"):
        raw.connection.lost()
    assert ("127.0.0.1:1: the connection ended without connection.close" in caplog.messages) is (way == "lost")


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [("PLAIN", b"\0guest\0wrong"), ("PLAIN", b"?"), ("EXTERNAL", b""), ("STRANGE", b""), ("PLAIN", b"\0no\0no")],
)
def test_refused_logins(kit: Kit, mechanism: str, response: bytes) -> None:
    raw = Raw(kit)
    raw.send(k.ConnectionStartOk({}, mechanism, response, "en_US"))
    while raw.engine.state is ConnectionState.AWAIT_TUNE:
        kit.run_sync()
        raw.go_on()
    closed = raw.said[-1]
    assert isinstance(closed, k.ConnectionClose)
    assert closed.reply_code == CloseCode.CONNECTION_FORCED
    assert closed.reply_text is not None
    assert "Login was refused" in closed.reply_text


def test_external(kit: Kit) -> None:
    kit.node.logins.enable(("EXTERNAL", "SCRAM-SHA-256"))
    raw = Raw(kit, certificate="guest")
    assert isinstance(raw.send(k.ConnectionStartOk({}, "EXTERNAL", b"", "en_US")), k.ConnectionTune)


@pytest.mark.parametrize(
    ("vhost", "user", "code"),
    [("nowhere", "guest", CloseCode.INVALID_PATH), ("closed", "guest", CloseCode.CONNECTION_FORCED)],
)
def test_separation_and_security(kit: Kit, vhost: str, user: str, code: int) -> None:
    kit.node.new_vhost("closed")
    peer = kit.peer(vhost=vhost, user=user)
    assert peer.closed is not None
    assert peer.closed.reply_code == code


def test_limits(tmp_path: Path) -> None:
    kit = Kit(tmp_path, sync=False, max_connections=1)
    kit.peer()
    peer = kit.peer()
    assert peer.closed is not None
    assert peer.closed.reply_code == CloseCode.CONNECTION_FORCED
    kit.stop()


def test_limit_of_sessions(kit: Kit) -> None:
    add_user(kit, "eve")
    set_user_limits(kit.node.users, "eve", {"max-channels": 1})
    peer = kit.peer(user="eve")
    first, second = peer.session(b"a", 0), peer.session(b"b", 1)
    assert second.exception is not None
    assert second.exception.error_code == 506
    assert first.call(c.QueueDeclare("q")) in first.complete


@pytest.mark.parametrize(
    "data",
    [
        control_frames(0, b"\x01\x07\0\0", 65_535),  # open before start-ok
        b"\x0f\0\0\x05" + bytes(8),
        b"\xff" * 20,
        control_frames(3, k.ConnectionHeartbeat().encode(), 65_535),
        control_frames(0, b"\x01\x63\0\0", 65_535),
    ],
)
def test_framing_errors(kit: Kit, data: bytes) -> None:
    raw = Raw(kit)
    raw.connection.receive_data(data)
    raw.go_on()
    closed = raw.said[-1]
    assert isinstance(closed, k.ConnectionClose)
    assert closed.reply_code == CloseCode.FRAMING_ERROR


def test_another_header(kit: Kit) -> None:
    transport = FakeTransport()
    connection = Connection(kit.node, transport, kit.sessions)
    kit.node.add_connection(connection)
    connection.receive_data(b"AMQP\x01\x01\x00\x63")
    assert bytes(transport.written) == PROTOCOL_HEADER
    assert connection.phase is Phase.CLOSED


def test_the_broker_closes(kit: Kit) -> None:
    peer = kit.peer()
    peer.session()
    peer.connection.close(ConnectionForced("reason"))
    kit.node.batch.end()
    assert peer.transport.closed == CLOSING_TIMEOUT
    peer.receive()
    peer.pump()
    assert peer.closed == k.ConnectionClose(320, "CONNECTION_FORCED - reason")
    assert peer.connection.phase is Phase.CLOSED
    peer.connection.close(ConnectionForced("again"))


def test_heartbeats_are_taken(kit: Kit) -> None:
    peer = kit.peer()
    client = peer.session()
    peer.connection.receive_data(peer.connection.heartbeat_frame)
    assert client.call(c.QueueDeclare("q")) in client.complete


def test_a_socket_that_takes_nothing_gets_no_transfers(kit: Kit) -> None:
    peer = kit.peer()
    client = peer.session()
    client.call(c.QueueDeclare("q"))
    client.subscribe("q")
    peer.connection.writable = False
    client.publish("q", b"m", sync=False)
    assert client.bodies() == []
    peer.connection.resume()
    assert client.bodies() == [b"m"]


def test_a_deleted_virtual_host_takes_its_sessions_along(kit: Kit) -> None:
    peer = kit.peer()
    client = peer.session()
    peer.control(0, k.SessionRequestTimeout(60))
    client.call(c.QueueDeclare("q"))
    client.subscribe("q")
    kit.node.delete_vhost("/")
    peer.receive()
    assert peer.closed is not None
    peer.lose()
    kit.node.new_vhost("/")
    kit.node.users.set_permission(Permission("/", "guest", ".*", ".*", ".*"))
    kit.node.batch.end()
    again = kit.peer().session(b"s")
    assert again.call(c.QueueDeclare("q")) in again.complete


# -- hostile peers ------------------------------------------------------------------------------------------------


def test_many_sessions_opened_and_dropped(kit: Kit) -> None:
    peer, other = kit.peer(), kit.peer()
    client = other.session(b"other")
    for number in range(2000):
        peer.session(b"%d" % number, 1)
        peer.control(1, k.SessionDetach(b"%d" % number))
    assert len(list(kit.sessions.detached())) == 0
    assert client.call(c.QueueDeclare("q")) in client.complete


def test_sessions_that_last_are_bounded(tmp_path: Path) -> None:
    kit = Kit(tmp_path, sync=False, max_sessions_per_user=50)
    peer = kit.peer()
    for number in range(300):
        peer.session(b"%d" % number, 1)
        peer.control(1, k.SessionRequestTimeout(None))
        peer.control(1, k.SessionDetach(b"%d" % number))
    assert len(list(kit.sessions.detached())) == 50
    kit.stop()


def test_a_client_that_completes_nothing_is_held_back(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "MOST_UNCOMPLETED", 100)
    client = kit.peer().session()
    client.completes = False
    client.call(c.QueueDeclare("q"))
    for _ in range(250):
        client.publish("q", b"m", sync=False)
    client.subscribe("q")
    assert 90 <= len(client.taken()) <= 110


def test_a_client_that_completes_no_answers_is_closed(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results go out, and are kept until they are complete: there is a limit to that."""
    monkeypatch.setattr(session, "MOST_COMMANDS", 50)
    peer = kit.peer()
    client = peer.session()
    client.answers = False
    for _ in range(60):
        if peer.closed is None:
            client.send(c.QueueQuery("q"))
    assert peer.closed is not None
    assert peer.closed.reply_code == CloseCode.CONNECTION_FORCED


COMMANDS = sorted(c.CLIENT_SENDS, key=lambda cls: cls.KEY)
CONTROLS = sorted(k.CLIENT_SENDS, key=lambda cls: cls.KEY)
OPENED = (
    PROTOCOL_HEADER,
    control_frames(0, LOGIN.encode(), 65_535),
    control_frames(0, k.ConnectionTuneOk(10, 65_535, 0).encode(), 65_535)
    + control_frames(0, k.ConnectionOpen("/").encode(), 65_535)
    + control_frames(0, k.SessionAttach(b"hostile").encode(), 65_535)
    + control_frames(0, k.SessionCommandPoint(0, 0).encode(), 65_535)
    + control_frames(0, k.SessionExpected(()).encode(), 65_535),
)
TRANSFER = command_frames(0, c.MessageTransfer("", 0).encode(), 65_535, content=True)
HEADER = b"\0\0\0\x06\x04\x01\x00\x02\x01q"
GOOD = (
    *(control_frames(0, control.encode(), 65_535) for control in (
        k.SessionDetach(b"hostile"), k.SessionAttach(b"hostile", True), k.SessionFlush(True, True, True),
        k.SessionRequestTimeout(5), k.SessionCommandPoint(3, 0), k.SessionCompleted(((0, 9),), True),
        k.SessionKnownCompleted(((0, 0xFFFF_FFFF),)), k.SessionGap(((0, 5),)), k.SessionExpected(((2, 2),)),
        k.ConnectionClose(200, ""),
    )),
    *(command_frames(0, command.encode(), 65_535) for command in (
        c.QueueDeclare("q", sync=True), c.QueueDeclare("d", durable=True), c.MessageSubscribe("q", "t"),
        c.MessageSubscribe("d", "b", acquire_mode=1), c.MessageFlow("t", 0, None), c.MessageFlow("t", 1, None),
        c.MessageFlow("b", 0, None), c.MessageFlow("b", 1, None), c.MessageAccept(((0, 5),)), c.MessageFlush("t"),
        c.MessageRelease(((0, 0x7FFF_FFFF),), True), c.MessageReject(((0, 5),)), c.MessageAcquire(((0, 50),)),
        c.TxSelect(), c.TxCommit(), c.TxRollback(), c.ExecutionSync(sync=True), c.QueuePurge("q"), c.QueueDelete("d"),
        c.ExchangeDeclare("x", "headers"), c.ExchangeBound("", "q"), c.MessageStop("t"), c.MessageCancel("t"),
    )),
    TRANSFER + encode_content(0, HEADER, b"body", 65_535),
)  # fmt: skip
pieces = st.one_of(
    st.sampled_from(GOOD),
    st.sampled_from(GOOD),
    st.sampled_from(GOOD),
    st.builds(
        lambda cls, rest: command_frames(0, cls.KEY + b"\x01\x00" + rest, 65_535),
        st.sampled_from(COMMANDS),
        st.binary(max_size=20),
    ),
    st.builds(
        lambda cls, rest: control_frames(0, cls.KEY + rest, 65_535), st.sampled_from(CONTROLS), st.binary(max_size=20)
    ),
    st.builds(
        lambda good, at, byte: good[: at % len(good)] + bytes([byte]) + good[at % len(good) + 1 :],
        st.sampled_from(GOOD),
        st.integers(0, 200),
        st.integers(0, 255),
    ),
    st.binary(max_size=40),
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kit]:
    kit = Kit(tmp_path_factory.mktemp("node"), sync=False)
    yield kit
    kit.sessions.close()
    kit.stop()


@given(st.lists(pieces, max_size=25), st.integers(0, 3))
def test_hostile_bytes(shared: Kit, hostile: list[bytes], opened: int) -> None:
    """Whatever a client sends, the broker answers in the protocol, and keeps nothing of it in the end."""
    node = shared.node
    transport = FakeTransport()
    connection = Connection(node, transport, shared.sessions)
    node.add_connection(connection)
    for data in OPENED[:opened]:
        connection.receive_data(data)
        node.run_timers()
        shared.run_syncs()
    if opened == 3:
        connection.receive_data(control_frames(0, k.SessionCommandPoint(0, 0).encode(), 65_535))
    for data in hostile:
        connection.receive_data(data)
        shared.run_syncs()
        node.run_timers()
    connection.lost()
    shared.run_syncs()
    shared.pass_time(10_000)
    assert connection not in node.connections
    assert node.sessions == set()
    assert all(not queue.consumers for queue in node.vhosts["/"].queues.values())
