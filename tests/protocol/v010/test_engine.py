"""The engine in both roles: what it sends, what it makes of what it receives, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings, strategies as st

from harebell import errors
from harebell.protocol.v010 import (
    AttachmentState,
    Command,
    ConnectionState,
    Content,
    Control,
    DeliveryProperties,
    Engine,
    Event,
    MessageProperties,
    OversizedContent,
    Role,
    commands as c,
    controls as k,
    engine as engine_module,
)
from harebell.protocol.v010.content import encode_header
from harebell.protocol.v010.domains import DetachCode
from harebell.protocol.v010.frames import PROTOCOL_HEADER
from tests.fixtures.profiles import scaled
from tests.protocol.v010 import strategies
from tests.protocol.v010.samples import NAME, attached, command, control, frame, opened, pass_on

TRANSFER = c.MessageTransfer("amq.direct", 0, 0)


def refused(engine: Engine, data: bytes) -> errors.RemoteProtocolError:
    with pytest.raises(errors.RemoteProtocolError) as caught:
        engine.receive_data(data)
    return caught.value


# -- the connection ----------------------------------------------------------------------------------------------------


def test_a_connection_opens_and_closes() -> None:
    client, server = opened(channel_max=7, max_frame_size=5000)
    assert [client.state, server.state] == [ConnectionState.OPEN] * 2
    assert (client.channel_max, client.max_frame_size) == (server.channel_max, server.max_frame_size) == (7, 5000)
    client.send_heartbeat()
    assert pass_on(client, server) == []
    client.send_control(0, k.ConnectionClose(200, "bye"))
    assert pass_on(client, server) == [(0, k.ConnectionClose(200, "bye"))]
    client.receive_data(control(k.SessionAttach(b"late")) + command(c.TxSelect()) + control(k.ConnectionHeartbeat(), 0))
    server.receive_data(control(k.SessionAttach(b"late")) + frame(0x0B, 1, TRANSFER.encode()) + frame(7, 3, b"x"))
    server.send_control(0, k.ConnectionCloseOk())
    assert pass_on(server, client) == [(0, k.ConnectionCloseOk())]
    assert client.deaf
    assert server.deaf
    assert [client.state, server.state] == [ConnectionState.CLOSED] * 2
    client.receive_data(b"anything")
    assert client.events() == []
    with pytest.raises(errors.LocalProtocolError):
        client.send_heartbeat()


def test_a_close_drops_what_is_not_whole() -> None:
    client, server = attached()
    server.receive_data(frame(0x0B, 1, TRANSFER.encode()) + frame(6, 3, b"half"))
    client.send_control(0, k.ConnectionClose(320, "forced"))
    assert pass_on(client, server) == [(0, k.ConnectionClose(320, "forced"))]
    server.receive_data(frame(5, 3, b"the rest"))
    assert server.events() == []


@pytest.mark.parametrize("empty", [0, 6000])
def test_what_has_come_of_messages_when_the_connection_is_lost(empty: int) -> None:
    """Whole frames of a body that has begun, also where their frame headers are most of what came."""
    _, server = attached()
    server.receive_data(frame(0x0B, 1, TRANSFER.encode()))
    assert server.interrupted() == []
    properties = DeliveryProperties(routing_key="k", resume_id="r")
    server.receive_data(frame(0x03, 2, encode_header((properties,))))
    assert server.interrupted() == []
    server.receive_data(frame(0x06, 3, b"one ") + frame(0x04, 3, b"") * empty + frame(0x04, 3, b"two ") + b"\0\3")
    (content,) = server.interrupted()
    assert (content.body, content.body_size, content.channel) == (b"one two ", 8, 1)
    assert content.delivery_properties.resume_id == "r"
    assert content.decode_command() == TRANSFER
    assert server.events() == []


def test_nothing_has_come_of_messages_that_nobody_wants() -> None:
    _, server = attached(max_message_size=3)
    server.receive_data(frame(0x0B, 1, TRANSFER.encode()) + frame(0x06, 3, b"more"))
    server.receive_data(frame(0x0B, 1, TRANSFER.encode(), channel=2) + frame(0x06, 3, b"x", channel=2))
    server.receive_data(frame(0x0E, 0, b"", channel=3, track=0))
    assert server.interrupted() == []


def test_both_close_at_once() -> None:
    client, server = attached()
    for engine in (client, server):
        engine.send_control(0, k.ConnectionClose(200))
    first, second = client.data_to_send(), server.data_to_send()
    client.receive_data(second)
    server.receive_data(first)
    for engine in (client, server):
        engine.send_control(0, k.ConnectionCloseOk())
    pass_on(client, server)
    pass_on(server, client)
    assert [client.state, server.state] == [ConnectionState.CLOSED] * 2
    assert not client.attachments


def test_the_vector_of_the_handshake() -> None:
    client = Engine(Role.CLIENT)
    client.send_header()
    assert client.data_to_send() == b"AMQP\x01\x01\x00\x0a"
    server = Engine(Role.SERVER)
    server.receive_data(b"AMQP\x01\x01")
    server.receive_data(b"\x00\x0a")
    assert server.data_to_send() == b"AMQP\x01\x01\x00\x0a"
    server.send_control(0, k.ConnectionStart(None, ["PLAIN"], ["en_US"]))
    assert server.data_to_send() == (
        b"\x0f\x00\x00\x30\x00\x00\x00\x00\x00\x00\x00\x00\x01\x01\x06\x00"
        b"\x00\x00\x00\x0c\x95\x00\x00\x00\x01\x00\x05PLAIN\x00\x00\x00\x0c\x95\x00\x00\x00\x01\x00\x05en_US"
    )


def test_a_server_of_another_version() -> None:
    client = Engine(Role.CLIENT)
    client.send_header()
    client.receive_data(b"AMQ")
    error = refused(client, b"P\0\0\x09\x01")
    assert "does not speak AMQP 0-10; it answered b'AMQP\\x00\\x00\\t\\x01'" in str(error)
    assert client.deaf
    unasked = Engine(Role.CLIENT)
    refused(unasked, PROTOCOL_HEADER)


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1", b"AMQP\0\0\x09\x01", b"\0"])
def test_a_client_of_another_version_is_told_ours(data: bytes) -> None:
    server = Engine(Role.SERVER)
    refused(server, data)
    assert server.data_to_send() == PROTOCOL_HEADER
    assert server.state is ConnectionState.CLOSED


def test_a_client_may_run_ahead() -> None:
    server = Engine(Role.SERVER)
    server.receive_data(PROTOCOL_HEADER + control(k.ConnectionStartOk(mechanism="PLAIN"), 0))
    assert server.events() == []
    assert not server.waiting
    server.send_control(0, k.ConnectionStart())
    server._halted = False  # what the server's connection does by going on
    assert server.waiting
    server.receive_data(b"")
    assert [type(event) for _, event in server.events()] == [k.ConnectionStartOk]
    server.receive_data(b"")
    error = refused(server, bytes(engine_module.MOST_AHEAD + 1))
    assert error.reply_code == 501
    assert server.deaf


def test_tuning_takes_what_was_offered_where_nothing_is_said() -> None:
    client, server = Engine(Role.CLIENT), Engine(Role.SERVER)
    client.send_header()
    pass_on(client, server)
    for speaker, listener, said in (
        (server, client, k.ConnectionStart()),
        (client, server, k.ConnectionStartOk()),
        (server, client, k.ConnectionSecure(b"?")),
        (client, server, k.ConnectionSecureOk(b"!")),
        (server, client, k.ConnectionTune()),
        (client, server, k.ConnectionTuneOk()),
        (client, server, k.ConnectionOpen()),
        (server, client, k.ConnectionRedirect("elsewhere")),
    ):
        speaker.send_control(0, said)
        assert pass_on(speaker, listener) == [(0, said)]
    assert (client.max_frame_size, client.channel_max) == (65_535, 65_535)
    assert server.state is ConnectionState.REDIRECTED


@pytest.mark.parametrize(
    "answer, said",
    [
        (k.ConnectionTuneOk(11, 5000), "channel-max 11 is above the offered 10"),
        (k.ConnectionTuneOk(1, 5001), "max-frame-size 5001"),
        (k.ConnectionTuneOk(1, 4095), "max-frame-size 4095"),
    ],
)
def test_tuning_beyond_the_offer(answer: k.ConnectionTuneOk, said: str) -> None:
    server = Engine(Role.SERVER)
    server.state, server._greeted = ConnectionState.AWAIT_TUNE, True
    server.send_control(0, k.ConnectionTune(10, 5000))
    error = refused(server, control(answer, 0))
    assert said in str(error)
    assert (error.reply_code, error.scope) == (501, "connection")
    with pytest.raises(errors.LocalProtocolError):
        other = Engine(Role.SERVER)
        other.state = ConnectionState.AWAIT_TUNE
        other.send_control(0, k.ConnectionTune(1, 100))


@pytest.mark.parametrize(
    "data, said",
    [
        (control(k.ConnectionOpenOk(), 0), "a client does not send connection.open-ok"),
        (control(k.ConnectionOpen(), 0), "unexpected connection.open in connection state open"),
        (control(k.ConnectionHeartbeat(), 3), "connection.heartbeat on channel 3, not 0"),
        (frame(0x0F, 0, b"\1\x0b\3\0", track=0, channel=0), "malformed connection.close: field reply_code"),
        (frame(0x0F, 0, b"\7\1\0\0", track=0), "unknown control 0701"),
    ],
)
def test_controls_that_end_the_connection(data: bytes, said: str) -> None:
    _, server = attached()
    error = refused(server, data + control(k.SessionFlush()))
    assert said in str(error)
    assert (error.reply_code, error.scope) == (501, "connection")
    server.receive_data(b"")
    assert server.events() == [(1, k.SessionFlush())]  # behind the offending frame


def test_sessions_and_commands_need_an_open_connection() -> None:
    for data in (control(k.SessionAttach(b"s")), command(c.TxSelect()), frame(0x0B, 1, b"")):
        server = Engine(Role.SERVER)
        server.state, server._greeted = ConnectionState.AWAIT_OPEN, True
        assert "that is not open" in str(refused(server, data))
        assert server.deaf
    engine = Engine(Role.CLIENT)
    with pytest.raises(errors.LocalProtocolError, match="await_header"):
        engine.send_control(1, k.SessionAttach(b"s"))
    with pytest.raises(errors.LocalProtocolError, match="await_header"):
        engine.send_command(1, c.TxSelect())
    with pytest.raises(errors.LocalProtocolError):
        Engine(Role.SERVER).send_header()


# -- frames ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data, said",
    [
        (frame(0x4F, 1, b"xx"), "reserved bits"),
        (frame(0x0F, 1, b"xx", track=2), "reserved bits"),
        (b"\x0f\1\0\x0c\1\1\0\1\0\0\0\0", "reserved bits"),
        (b"\x0f\1\0\x0c\0\1\0\1\0\0\0\1", "reserved bits"),
        (frame(0x0F, 1, size=11), "a frame of 11 octets; between 12 and 4096"),
        (frame(0x0F, 1, size=4097), "a frame of 4097 octets"),
        (frame(0x0F, 1, b"xx", channel=100), "channel 100 is not below"),
        (frame(0x0F, 0, b"xx"), "type 0 and flags 0x0f does not begin"),
        (frame(0x0F, 2, b"xx"), "does not begin"),
        (frame(0x07, 1, b"xx"), "does not begin"),
        (frame(0x0D, 1, b"xx"), "does not continue its segment"),
        (frame(0x0B, 1, b"\4\1") + frame(0x0B, 2), "cannot follow a segment of type 1"),
        (frame(0x0B, 1, b"\4\1") + frame(0x07, 1), "cannot follow"),
        (frame(0x0B, 1, b"\4\1") + frame(0x07, 4), "type 4 and flags 0x07 cannot follow"),
        (frame(0x0B, 1, b"\4\1") + frame(0x02, 2) + frame(0x02, 2), "begins a segment inside"),
        (frame(0x0B, 1, b"\4\1") + frame(0x02, 2) + frame(0x01, 3), "does not continue"),
        (frame(0x0B, 1, b"\4\1") + frame(0x02, 2) + frame(0x05, 2), "does not continue"),
        (frame(0x0B, 1, b"\4\1") + frame(0x03, 3) + frame(0x07, 3), "cannot follow"),
        (frame(0x0B, 0, b"\2\1", track=0) + frame(0x07, 2, track=0), "a control with a header or a body"),
    ],
)
def test_frames_that_lose_the_framing(data: bytes, said: str) -> None:
    for cut in (len(data), 1):
        _, server = attached(max_frame_size=4096)
        with pytest.raises(errors.RemoteProtocolError, match=said) as caught:
            for at in range(0, len(data), cut):
                server.receive_data(data[at : at + cut])
        assert (caught.value.reply_code, caught.value.scope) == (501, "connection")
        assert server.deaf
        server.receive_data(control(k.SessionFlush()))
        assert server.events() == []


def test_long_controls_and_commands_are_cut_and_joined() -> None:
    client, server = attached(max_frame_size=4096)
    ranges = tuple((i, i) for i in range(0, 6000, 2))
    client.send_control(1, k.SessionCompleted(ranges))
    client.send_command(1, c.MessageAccept(ranges))
    data = client.data_to_send()
    assert len(data) > 11 * 4096
    for cut in (len(data), 1000, 1):
        for at in range(0, len(data), cut):
            server.receive_data(data[at : at + cut])
        assert server.events() == [(1, k.SessionCompleted(ranges)), (1, c.MessageAccept(ranges))]


def test_too_long_controls_and_commands() -> None:
    for kind, frames in ((0, 5), (1, 17)):
        _, server = attached()
        piece = bytes(65_523)
        server.receive_data(frame(0x0E, kind, piece, track=kind))
        with pytest.raises(errors.RemoteProtocolError, match="of more than"):
            for _ in range(frames):
                server.receive_data(frame(0x0C, kind, piece, track=kind))


def test_many_unfinished_controls() -> None:
    _, server = opened(channel_max=1000)
    with pytest.raises(errors.RemoteProtocolError, match="more than 256 controls"):
        for channel in range(257):
            server.receive_data(frame(0x0E, 0, b"\2", track=0, channel=channel))
    _, server = opened(channel_max=1000)
    for channel in range(600):
        server.receive_data(frame(0x0E, 0, b"\2\x0c\0", track=0, channel=channel))
        server.receive_data(frame(0x0D, 0, b"\0", track=0, channel=channel))


# -- messages ----------------------------------------------------------------------------------------------------------

HEADER = DeliveryProperties(routing_key="q", exchange=""), MessageProperties(content_type="text/plain")


def test_the_vector_of_a_transfer() -> None:
    client, server = attached()
    properties = DeliveryProperties(routing_key="q", exchange="")
    client.send_content(1, c.MessageTransfer("ex", sync=True), [properties], b"12345678")
    data = client.data_to_send()
    assert data == (
        b"\x0b\x01\x00\x15\x00\x01\x00\x01\x00\x00\x00\x00\x04\x01\x01\x01\x01\x00\x02ex"
        b"\x03\x02\x00\x17\x00\x01\x00\x01\x00\x00\x00\x00\x00\x00\x00\x07\x04\x01\x00\x03\x00\x01q"
        b"\x07\x03\x00\x14\x00\x01\x00\x01\x00\x00\x00\x0012345678"
    )  # 19 octets of header and body, as Qpid counts credit
    server.receive_data(data)
    ((channel, content),) = server.events()
    assert isinstance(content, Content)
    assert (channel, content.sync, content.body) == (1, True, b"12345678")
    assert content.decode_command() == c.MessageTransfer("ex", sync=True)
    assert content.delivery_properties.routing_key == "q"
    assert len(content.header) + content.body_size == 19


@pytest.mark.parametrize("body", [b"", b"x", b"x" * 4084, b"x" * 4085, b"x" * 100_000])
@pytest.mark.parametrize("headers", [{}, {"k": "v" * 10_000}, None])
def test_messages_of_any_size(body: bytes, headers: dict[str, object] | None) -> None:
    client, server = attached(max_frame_size=4096)
    header = [] if headers is None else [*HEADER, MessageProperties(application_headers=headers)]
    for _ in range(2):
        client.send_content(1, TRANSFER, header, body)
    data = client.data_to_send()
    for cut in (len(data), 5000, 100):
        for at in range(0, len(data), cut):
            server.receive_data(data[at : at + cut])
        events = server.events()
        assert len(events) == 2
        for _, content in events:
            assert isinstance(content, Content)
            assert content.body == body
            assert content.body_size == len(body)
            assert content.decode_command() == TRANSFER
            assert sum(1 for _ in content.structs()) == len(header)


def test_a_body_without_a_header_and_empty_segments() -> None:
    _, server = attached()
    head = frame(0x0B, 1, TRANSFER.encode())
    for frames, body in (
        (frame(7, 3, b"x"), b"x"),
        (frame(7, 2, b""), b""),
        (frame(3, 2, b"") + frame(7, 3, b""), b""),
        (frame(3, 2, b"") + frame(6, 3, b"a") + frame(4, 3, b"") + frame(5, 3, b"b"), b"ab"),
        (frame(2, 2, b"") + frame(1, 2, b"") + frame(6, 3, b"a") + frame(5, 3, b"b"), b"ab"),
    ):
        server.receive_data(head + frames)
        ((_, content),) = server.events()
        assert isinstance(content, Content)
        assert (content.header, content.body) == (b"", body)
    server.receive_data(frame(0x0F, 1, TRANSFER.encode()))
    ((_, content),) = server.events()
    assert isinstance(content, Content)
    assert (content.frames, content.body, content.header) == (b"", b"", b"")


def test_channels_and_tracks_mix() -> None:
    client, server = attached()
    client.send_control(2, k.SessionAttach(b"two"))
    pass_on(client, server)
    first, second = frame(0x0B, 1, TRANSFER.encode()), frame(0x0B, 1, TRANSFER.encode(), channel=2)
    server.receive_data(
        first + second + control(k.SessionFlush()) + frame(3, 2, channel=2) + frame(3, 2)
        + frame(7, 3, b"one") + frame(6, 3, b"t", channel=2) + command(c.TxSelect()) + frame(5, 3, b"wo", channel=2)
    )  # fmt: skip
    (_, flush), (one, content), (_, select), (two, other) = server.events()
    assert (flush, select) == (k.SessionFlush(), c.TxSelect())
    assert isinstance(content, Content)
    assert isinstance(other, Content)
    assert (one, content.body, two, other.body) == (1, b"one", 2, b"two")


@pytest.mark.parametrize(
    "part",
    [frame(0x0A, 1, TRANSFER.encode()), frame(0x0B, 1, TRANSFER.encode()) + frame(3, 2) + frame(6, 3, b"x" * 20)],
)
def test_a_command_that_is_given_up(part: bytes) -> None:
    """After session.gap another one may begin before its end; it may go on as well, as the gap may mean others."""
    whole = frame(0x0B, 1, TRANSFER.encode()) + frame(7, 3, b"whole")
    for cut in (1000, 1):
        _, server = attached()
        data = part + control(k.SessionGap(((0, 0),))) + whole + command(c.TxSelect())
        for at in range(0, len(data), cut):
            server.receive_data(data[at : at + cut])
        (_, gap), (_, content), (_, select) = server.events()
        assert (gap, select) == (k.SessionGap(((0, 0),)), c.TxSelect())
        assert isinstance(content, Content)
        assert content.body == b"whole"
    _, server = attached()
    server.receive_data(frame(0x0B, 1, TRANSFER.encode()) + control(k.SessionGap(((0, 0),))) + frame(7, 3, b"goes on"))
    (_, content) = server.events()[1]
    assert isinstance(content, Content)
    assert content.body == b"goes on"
    assert "does not begin" not in str(refused(server, part + whole))


def test_oversized_messages_are_dropped_and_reported() -> None:
    client, server = attached(max_frame_size=4096, max_message_size=5000)
    for body in (b"x" * 5000, b"x" * 5001, b"x" * 50_000):
        client.send_content(1, TRANSFER, HEADER, body)
    client.send_content(1, TRANSFER, [MessageProperties(application_headers={"k": b"x" * (1 << 20)})], b"")
    client.send_command(1, c.TxSelect())
    data = client.data_to_send()
    for cut in (len(data), 999):
        for at in range(0, len(data), cut):
            server.receive_data(data[at : at + cut])
        (_, first), *others, (_, last) = server.events()
        assert isinstance(first, Content)
        assert last == c.TxSelect()
        assert [event.limit for _, event in others if isinstance(event, OversizedContent)] == [5000, 5000, 1 << 20]
        assert all(event.command == TRANSFER.encode() for _, event in others if isinstance(event, OversizedContent))
    server.receive_data(frame(0x0B, 1, TRANSFER.encode()) + frame(7, 3, b"x" * 4000))
    small = Engine(Role.SERVER, max_message_size=3)
    small.state, small._greeted = ConnectionState.OPEN, True
    small.attachments[1] = AttachmentState.ATTACHED
    small.receive_data(frame(0x0B, 1, TRANSFER.encode()) + frame(7, 3, b"x" * 4))
    assert isinstance(small.events()[0][1], OversizedContent)


def test_empty_frames_take_no_memory() -> None:
    _, server = attached()
    server.receive_data(frame(0x0B, 1, TRANSFER.encode()) + frame(3, 2, b"\0\0\0\4\x63\1\0\0") + frame(6, 3, b"a"))
    for _ in range(100):
        server.receive_data(frame(4, 3) * 1000)
    server.receive_data(frame(4, 3, b"b") + frame(5, 3, b"c"))
    ((_, content),) = server.events()
    assert isinstance(content, Content)
    assert (content.body, content.header, len(content.frames)) == (b"abc", b"\0\0\0\4\x63\1\0\0", 12 + 8 + 12 + 3)
    server.receive_data(frame(0x0B, 1, TRANSFER.encode()) + frame(2, 2, b"\0\0"))
    server.receive_data(frame(0, 2) * 6000 + frame(0, 2, b"\0\4") + frame(1, 2, b"\x63\1\0\0") + frame(7, 3, b"z"))
    ((_, content),) = server.events()
    assert isinstance(content, Content)
    assert (content.body, content.header) == (b"z", b"\0\0\0\4\x63\1\0\0")


def test_commands_with_content_that_have_none() -> None:
    _, server = attached()
    error = refused(server, frame(0x0B, 1, c.TxSelect().encode()) + frame(7, 3, b"x") + command(c.TxCommit()))
    assert "tx.select has no header and no body" in str(error)
    assert (error.reply_code, error.scope, error.channel) == (503, "channel", 1)
    server.receive_data(b"")
    assert server.events() == [(1, c.TxCommit())]


# -- sessions ----------------------------------------------------------------------------------------------------------


def test_a_session_attaches_and_detaches() -> None:
    client, server = attached()
    assert client.names == server.names == {1: NAME}
    for event in (k.SessionRequestTimeout(300), k.SessionCommandPoint(0, 0), k.SessionFlush(expected=True)):
        client.send_control(1, event)
        assert pass_on(client, server) == [(1, event)]
    client.send_command(1, c.QueueDeclare("q"))
    assert pass_on(client, server) == [(1, c.QueueDeclare("q"))]
    client.send_control(1, k.SessionDetach(NAME))
    server.send_command(1, c.MessageStop("crossing"))
    assert pass_on(server, client) == []
    pass_on(client, server)
    server.receive_data(command(c.TxSelect()) + control(k.SessionFlush()))
    assert server.events() == []
    server.send_control(1, k.SessionDetached(NAME, DetachCode.NORMAL))
    assert pass_on(server, client) == [(1, k.SessionDetached(NAME, 0))]
    assert client.attachments == server.attachments == {}
    assert client.names == server.names == {}


def test_what_comes_on_a_channel_without_a_session() -> None:
    client, server = opened()
    server.receive_data(command(c.TxSelect()) * 3)
    server.receive_data(control(k.SessionFlush()) + control(k.SessionDetached(b"x", 0)))
    assert server.events() == []
    answer = control(k.SessionDetached(b"", DetachCode.NOT_ATTACHED))
    assert server.data_to_send() == answer * 2
    client.receive_data(answer)
    assert client.events() == []
    server.receive_data(frame(0x0B, 1, TRANSFER.encode()) + frame(3, 2) + control(k.SessionAttach(NAME)))
    server.send_control(1, k.SessionAttached(NAME))
    server.data_to_send()
    server.receive_data(frame(7, 3, b"the rest") + command(c.TxSelect()))
    assert [event for _, event in server.events()] == [k.SessionAttach(NAME), c.TxSelect()]
    server.receive_data(frame(0x0B, 1, TRANSFER.encode()) + frame(3, 2))
    server.send_control(1, k.SessionDetached(NAME, 0))
    server.receive_data(control(k.SessionAttach(NAME)) + frame(7, 3, b"the rest"))
    assert [event for _, event in server.events()] == [k.SessionAttach(NAME)]


def test_who_attaches_may_run_ahead() -> None:
    client, server = opened()
    client.send_control(1, k.SessionAttach(NAME))
    client.send_control(1, k.SessionCommandPoint(0, 0))
    client.send_command(1, c.TxSelect())
    client.send_content(1, TRANSFER, HEADER, b"x")
    assert len(pass_on(client, server)) == 4
    with pytest.raises(errors.LocalProtocolError, match="no session"):
        server.send_command(1, c.MessageStop("d"))
    with pytest.raises(errors.LocalProtocolError, match=r"unexpected session\.flush"):
        server.send_control(1, k.SessionFlush())
    server.send_control(1, k.SessionDetached(NAME, DetachCode.SESSION_BUSY))
    pass_on(server, client)
    assert client.attachments == {}
    error = refused(client, control(k.SessionAttach(NAME)) + control(k.SessionAttached(NAME)))
    assert (error.reply_code, error.scope) == (409, "channel")


def test_what_names_another_session_changes_nothing() -> None:
    client, server = attached()
    client.send_control(1, k.SessionAttach(b"other"))
    assert pass_on(client, server) == [(1, k.SessionAttach(b"other"))]
    server.send_control(1, k.SessionDetached(b"other", DetachCode.TRANSPORT_BUSY))
    assert pass_on(server, client) == [(1, k.SessionDetached(b"other", 2))]
    assert client.names == server.names == {1: NAME}
    assert client.attachments == {1: AttachmentState.ATTACHED}
    server.send_control(1, k.SessionDetached(b"", DetachCode.NOT_ATTACHED))
    pass_on(server, client)
    assert client.attachments == {}


def test_both_detach_at_once() -> None:
    client, server = attached()
    for engine in (client, server):
        engine.send_control(1, k.SessionDetach(NAME))
    first, second = client.data_to_send(), server.data_to_send()
    client.receive_data(second)
    server.receive_data(first)
    assert client.events() == server.events() == [(1, k.SessionDetach(NAME))]
    for engine in (client, server):
        engine.send_control(1, k.SessionDetached(NAME, 0))
    assert pass_on(client, server) == pass_on(server, client) == []
    assert client.attachments == server.attachments == {}


def test_commands_in_the_wrong_direction_or_unknown() -> None:
    client, server = attached()
    for engine, data, code in (
        (client, command(c.QueueDeclare("q")), 503),
        (server, frame(0x0F, 1, b"\x63\1\1\0\0\0"), 540),
        (server, frame(0x0F, 1, b"\4\2\1\0\1\0"), 503),
    ):
        error = refused(engine, data + control(k.SessionFlush()))
        assert (error.reply_code, error.scope, error.channel) == (code, "channel", 1)
        engine.receive_data(b"")
        assert engine.events() == [(1, k.SessionFlush())]


def test_what_may_not_be_sent() -> None:
    client, server = attached()
    refusals: list[tuple[Callable[[], None], str]] = [
        (lambda: client.send_command(1, TRANSFER), "carries content"),
        (lambda: client.send_content(1, c.TxSelect()), "carries no content"),
        (lambda: server.send_command(1, c.QueueDeclare("q")), "a server does not send"),
        (lambda: client.send_control(0, k.ConnectionOpenOk()), "a client does not send"),
        (lambda: client.send_command(2, c.TxSelect()), "no session"),
        (lambda: client.send_command(100, c.TxSelect()), "not below"),
        (lambda: client.send_control(100, k.SessionAttach(b"x")), "not below"),
        (lambda: client.send_control(0, k.ConnectionOpen()), "connection state open"),
        (client.send_header, "once"),
    ]
    for send, said in refusals:
        with pytest.raises(errors.LocalProtocolError, match=said):
            send()
    assert client.data_to_send() == server.data_to_send() == b""
    assert client.pending == 0
    client.send_pieces([command(c.TxSelect()), command(c.TxCommit())])
    assert client.pending == 2
    assert pass_on(client, server) == [(1, c.TxSelect()), (1, c.TxCommit())]


@settings(max_examples=scaled(30))
@given(st.data(), st.lists(strategies.commands, max_size=4), st.lists(strategies.controls, max_size=4))
def test_events_do_not_depend_on_the_cuts(
    data: st.DataObject, commands: list[Command], controls: list[Control]
) -> None:
    client, server = attached(max_frame_size=4096)
    for each in commands:
        if type(each) not in c.CLIENT_SENDS:
            continue
        if type(each) in c.CARRIES_CONTENT:
            client.send_content(1, each, HEADER, data.draw(st.binary(max_size=30)) * 150)
        else:
            client.send_command(1, each)
    for said in controls:
        if said.KEY[0] == 2 and not said.NAME.startswith(("session.det", "session.att")):
            client.send_control(1, said)
    stream = client.data_to_send()
    server.receive_data(stream)
    whole = server.events()
    for pieces in (data.draw(strategies.cuts(stream)), [stream[at : at + 1] for at in range(len(stream))]):
        parts: list[Event] = []
        for piece in pieces:
            server.receive_data(piece)
            parts += server.events()
        assert repr(parts) == repr(whole)
