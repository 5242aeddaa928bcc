"""The engine: both roles talking to each other, negotiation, limits, closing, and the texts of refusals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from harebell import errors
from harebell.defaults import FRAME_MIN
from harebell.protocol.v091 import (
    ChannelState,
    ConnectionState,
    Content,
    Engine,
    Event,
    OversizedContent,
    Properties,
    Role,
    methods as m,
)
from harebell.protocol.v091.codec import HEARTBEAT_FRAME, PROTOCOL_HEADER, encode_frame, encode_method
from harebell.protocol.v091.content import HEADER_FIXED, check_frames, stored_content
from tests.protocol.v091 import strategies
from tests.protocol.v091.samples import MALFORMED_PROPERTIES, PUBLISH, body, header, opened, pump, short, started


def server_on_channel_1(**limits: Any) -> Engine:
    return opened(1, **limits)[1]


def refused(engine: Engine, data: bytes) -> errors.RemoteProtocolError:
    with pytest.raises(errors.RemoteProtocolError) as caught:
        engine.receive_data(data)
    assert caught.value.scope == "connection"
    return caught.value


def plain(events: list[Event]) -> list[object]:
    """Events as values that compare."""
    return [
        (channel, event.method, event.frames, event.channel) if isinstance(event, Content)
        else (channel, event.method, event.body_size) if isinstance(event, OversizedContent)
        else (channel, event)
        for channel, event in events
    ]  # fmt: skip


# -- the handshake -----------------------------------------------------------------------------------------------


def test_a_conversation_walks_the_states() -> None:
    client, server = Engine(Role.CLIENT), Engine(Role.SERVER)
    client.send_header()
    assert client.state is ConnectionState.AWAIT_START
    steps: list[tuple[Engine, m.Method, ConnectionState]] = [
        (server, m.ConnectionStart(0, 9, {"a": 1}, b"PLAIN", b"en_US"), ConnectionState.AWAIT_START_OK),
        (client, m.ConnectionStartOk({}, "PLAIN", b"", "en_US"), ConnectionState.AWAIT_TUNE),
        (server, m.ConnectionSecure(b"?"), ConnectionState.AWAIT_SECURE_OK),
        (client, m.ConnectionSecureOk(b"!"), ConnectionState.AWAIT_TUNE),
        (server, m.ConnectionTune(10, 8192, 60), ConnectionState.AWAIT_TUNE_OK),
        (client, m.ConnectionTuneOk(5, 4096, 60), ConnectionState.AWAIT_OPEN),
        (client, m.ConnectionOpen("/"), ConnectionState.AWAIT_OPEN_OK),
        (server, m.ConnectionOpenOk(), ConnectionState.OPEN),
        (server, m.ConnectionBlocked("disk"), ConnectionState.OPEN),
        (client, m.ConnectionClose(200, "bye"), ConnectionState.CLOSED_BY_CLIENT),
        (server, m.ConnectionCloseOk(), ConnectionState.CLOSED),
    ]
    server.receive_data(client.data_to_send())
    for speaker, method, state in steps:
        listener = client if speaker is server else server
        speaker.send_method(0, method)
        listener.receive_data(speaker.data_to_send())
        assert listener.events() == [(0, method)]
        assert (client.state, server.state) == (state, state)
    assert (client.frame_max, client.channel_max) == (server.frame_max, server.channel_max) == (4096, 5)


def test_the_header_is_sent_once_by_the_client() -> None:
    client = Engine(Role.CLIENT)
    client.send_header()
    for engine in (client, Engine(Role.SERVER)):
        with pytest.raises(errors.LocalProtocolError):
            engine.send_header()
    assert client.data_to_send() == b"AMQP\0\0\x09\x01"
    assert client.data_to_send() == b""


@pytest.mark.parametrize("data", [PROTOCOL_HEADER, b"AMQP\1\1\0\x09"])
def test_the_server_takes_the_header_in_any_cut(data: bytes) -> None:
    for cut in range(len(data)):
        server = Engine(Role.SERVER)
        server.receive_data(data[:cut])
        assert server.state is ConnectionState.AWAIT_HEADER
        server.receive_data(data[cut:])
        now: ConnectionState = server.state
        assert now is ConnectionState.AWAIT_START


@pytest.mark.parametrize("data", [b"GET / HTTP", b"AMQP\0\1\0\0", b"\x16\x03\x01", b"AMQP\3\1\0\0", b"B"])
def test_the_server_answers_another_header_with_its_own(data: bytes) -> None:
    for pieces in ([data], [data[i : i + 1] for i in range(len(data))]):
        server = Engine(Role.SERVER)
        with pytest.raises(errors.RemoteProtocolError) as caught:
            for piece in pieces:
                server.receive_data(piece)
        assert caught.value.reply_code == 540
        assert server.state is ConnectionState.CLOSED
        server.receive_data(b"more")
        assert (server.data_to_send(), server.events()) == (PROTOCOL_HEADER, [])


def test_the_client_understands_a_header_for_an_answer() -> None:
    for cut in range(1, 8):
        client = Engine(Role.CLIENT)
        client.send_header()
        client.receive_data(PROTOCOL_HEADER[:cut])
        assert "it answered b'AMQP" in str(refused(client, PROTOCOL_HEADER[cut:]))
        assert client.state is ConnectionState.CLOSED


def test_no_data_is_no_event() -> None:
    for engine in (Engine(Role.CLIENT), Engine(Role.SERVER)):
        engine.receive_data(b"")
        assert engine.events() == []


# -- tuning ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer, text",
    [
        ((2047, 131_073), "negotiated frame_max = 131073 is higher than the maximum allowed value (131072)"),
        ((2047, 0), "negotiated frame_max = 0 is higher than the maximum allowed value (131072)"),
        ((2047, 4095), "negotiated frame_max = 4095 is lower than the minimum allowed value (4096)"),
        ((2048, 131_072), "negotiated channel_max = 2048 is higher than the maximum allowed value (2047)"),
        ((0, 131_072), "negotiated channel_max = 0 is higher than the maximum allowed value (2047)"),
    ],
)
def test_tuning_out_of_bounds(answer: tuple[int, int], text: str) -> None:
    client, server = started()
    error = refused(server, encode_method(0, m.ConnectionTuneOk(*answer)))
    assert (error.reply_code, error.reply_text) == (530, f"NOT_ALLOWED - {text}")
    with pytest.raises(errors.LocalProtocolError) as caught:
        client.send_method(0, m.ConnectionTuneOk(*answer))
    assert text in str(caught.value)
    assert client.data_to_send() == b""
    client.send_method(0, m.ConnectionTuneOk(1, 4096))
    assert (client.channel_max, client.frame_max) == (1, 4096)


def test_an_offer_below_the_minimum() -> None:
    client, server = Engine(Role.CLIENT), Engine(Role.SERVER)
    client.state = server.state = ConnectionState.AWAIT_TUNE
    assert refused(client, encode_method(0, m.ConnectionTune(1, 100))).reply_code == 530
    with pytest.raises(errors.LocalProtocolError, match="minimum"):
        server.send_method(0, m.ConnectionTune(1, 100))


def test_no_limits() -> None:
    client, server = opened(65_535, tune=(0, 0, 0), max_message_size=300_000)
    assert client.channel_max == server.channel_max == 65_535
    client.send_content(65_535, m.BasicPublish(), b"\0\0", b"x" * 300_000)
    server.receive_data(client.data_to_send())
    ((_, content),) = server.events()
    assert isinstance(content, Content)
    assert content.body_size == len(content.body) == 300_000
    assert refused(server, body(b"x" * 300_001, 65_535)).reply_code == 501  # no message could hold it


@pytest.mark.parametrize("cut", [0, 1, 30, 4000])
def test_a_payload_may_have_frame_max_bytes_but_not_a_header(cut: int) -> None:
    """RabbitMQ's rule, for clients that count a frame without its eight bytes around the payload."""
    _, server = opened(1, tune=(5, 4096, 0))
    data = PUBLISH + header(4096) + body(b"x" * 4096)
    server.receive_data(data[: len(data) - cut])
    server.receive_data(data[len(data) - cut :])
    ((_, content),) = server.events()
    assert isinstance(content, Content)
    assert content.body == b"x" * 4096
    frames = content.frames_for(1, 4096)
    assert stored_content(1, frames).body == content.body
    check_frames(frames, 4096)
    method = encode_method(1, m.QueueDeclare("q", arguments={"x": ""}))
    longest = encode_method(1, m.QueueDeclare("q", arguments={"x": "y" * (4096 + 8 - len(method))}))
    assert len(longest) == 4096 + 8
    server.receive_data(longest)
    assert len(server.events()) == 1
    error = refused(server, PUBLISH + encode_frame(2, 1, b"\0\x3c" + bytes(4087)))
    assert error.reply_text == "FRAME_ERROR - type 2, all octets = <<>>: {frame_too_large,4089,4088}"


@pytest.mark.parametrize("cut", [4096 + 1, 4096 + 2, 0])
def test_a_payload_of_more_than_frame_max_bytes(cut: int) -> None:
    """Its seven bytes before the payload are enough, however they come."""
    _, server = opened(1, tune=(5, 4096, 0))
    data = PUBLISH + header(4097) + body(b"x" * 4097)
    server.receive_data(data[: -1 - 4097 - 1])
    error = refused(server, data[-1 - 4097 - 1 : len(data) - cut])
    assert error.reply_text == "FRAME_ERROR - type 3, all octets = <<>>: {frame_too_large,4097,4088}"


# What a client may send before it has heard anything, and the answers that a server gives before it reads on.
AHEAD = [
    PROTOCOL_HEADER,
    encode_method(0, m.ConnectionStartOk({}, "SCRAM", b"hello", "")),
    encode_method(0, m.ConnectionSecureOk(b"me")),
    encode_method(0, m.ConnectionTuneOk(5, 4096, 0)),
    encode_method(0, m.ConnectionOpen("/")),
    encode_method(1, m.ChannelOpen()),
    encode_method(1, m.BasicQos()),
]
ANSWERS: dict[type[m.Method] | None, m.Method] = {
    None: m.ConnectionStart(),
    m.ConnectionStartOk: m.ConnectionSecure(b"who"),
    m.ConnectionSecureOk: m.ConnectionTune(5, 4096, 0),
    m.ConnectionOpen: m.ConnectionOpenOk(),
    m.ChannelOpen: m.ChannelOpenOk(),
}


@given(strategies.cuts(b"".join(AHEAD)))
def test_a_client_that_runs_ahead_of_the_handshake(pieces: list[bytes]) -> None:
    server, seen, greeted = Engine(Role.SERVER), list[m.Method](), False
    for piece in [*pieces, b""]:
        server.receive_data(piece)
        while True:
            if not greeted and server.state is ConnectionState.AWAIT_START:
                greeted = True
                server.send_method(0, ANSWERS[None])
            for channel, event in server.events():
                assert isinstance(event, m.Method)
                seen.append(event)
                answer = ANSWERS.get(type(event))
                if answer is not None:
                    server.send_method(channel, answer)
            if not server.waiting:
                break
            server.receive_data(b"")
    assert [encode_method(1 if type(each).CLASS_ID in (20, 60) else 0, each) for each in seen] == AHEAD[1:]


def test_what_runs_ahead_of_a_login_is_bounded() -> None:
    server = Engine(Role.SERVER)
    server.receive_data(AHEAD[0])
    server.send_method(0, m.ConnectionStart())
    server.receive_data(encode_method(0, m.ConnectionStartOk({}, "PLAIN", b"", "")))
    for _ in range(16):
        server.receive_data(bytes(1 << 16))
    assert not server.waiting
    assert refused(server, b"x").reply_code == 501
    assert server.deaf


@pytest.mark.parametrize("offered, answered", [((0, 0, 0), (5, 4096, 0)), ((5, 8192, 0), (5, 8192, 0))])
def test_offers_that_are_met(offered: tuple[int, int, int], answered: tuple[int, int, int]) -> None:
    client, server = started(offered)
    client.send_method(0, m.ConnectionTuneOk(*answered))
    pump(client, server)
    for engine in (client, server):
        assert (engine.channel_max, engine.frame_max) == answered[:2]


def test_frame_max_holds_from_tune_ok_on() -> None:
    token = b"x" * 100_000
    client, server = Engine(Role.CLIENT, frame_max=4096), Engine(Role.SERVER, frame_max=4096)
    client.send_header()
    pump(client, server)
    server.send_method(0, m.ConnectionStart())
    pump(client, server)
    client.send_method(0, m.ConnectionStartOk({}, "EXTERNAL", token, ""))
    pump(client, server)
    server.send_method(0, m.ConnectionTune(1, 4096, 0))
    pump(client, server)
    # in the same buffer as tune-ok
    error = refused(server, encode_method(0, m.ConnectionTuneOk(1, 4096)) + encode_frame(1, 0, b"x" * 4097))
    assert error.reply_text == "FRAME_ERROR - type 1, all octets = <<>>: {frame_too_large,4097,4088}"


def test_after_broken_framing_nothing_is_received() -> None:
    engine = server_on_channel_1()
    assert not engine.deaf
    refused(engine, PUBLISH[:-1] + b"\0")
    assert engine.deaf
    engine.receive_data(PUBLISH)
    assert not engine.events()


def test_the_least_frame_is_the_specifications() -> None:
    assert m.FRAME_MIN_SIZE == FRAME_MIN


def test_what_is_too_large_is_not_sent() -> None:
    client, _ = opened(1, tune=(10, 4096, 0))
    with pytest.raises(errors.LocalProtocolError, match="shorten its arguments"):
        client.send_method(1, m.QueueDeclare("q", arguments={"x": "y" * 4096}))
    with pytest.raises(errors.LocalProtocolError, match="shorten its properties"):
        client.send_content(1, m.BasicPublish(), Properties(headers={"x": "y" * 4096}), b"")
    assert client.data_to_send() == b""
    client.send_content(1, m.BasicPublish(), Properties(headers={"x": "y" * 4000}), b"x" * 9000)
    assert client.data_to_send()


# -- frames ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method",
    [
        m.ConnectionStartOk({}, "PLAIN", b"\0u\0secret", "en_US"),
        m.ConnectionSecureOk(b"secret"),
        m.ConnectionUpdateSecret(b"secret", "why"),
    ],
)
def test_a_login_with_a_bad_end_is_not_shown(method: m.Method) -> None:
    error = refused(server_on_channel_1(), encode_method(0, method)[:-1] + b"\0")
    assert error.reply_text == "FRAME_ERROR - type 1, all octets = <<...>>: {invalid_frame_end_marker,0}"


@pytest.mark.parametrize(
    "data, code, text",
    [
        (
            encode_frame(1, 1, b"abcd")[:-1] + b"\0",
            501,
            'type 1, all octets = <<"abcd">>: {invalid_frame_end_marker,0}',
        ),
        (encode_frame(1, 1, b"\1\2")[:-1] + b"\0", 501, "type 1, all octets = <<1,2>>: {invalid_frame_end_marker,0}"),
        (b"\3\0\1\0\2\0\x64x", 501, "type 3, all octets = <<>>: {frame_too_large,131172,131064}"),
        (encode_frame(8, 1, b""), 505, "type 8, all octets = <<>>"),
        (encode_frame(8, 0, b"abc"), 501, 'type 8, all octets = <<"abc">>: unknown_frame'),
        (encode_frame(9, 1, b"abc"), 501, 'type 9, all octets = <<"abc">>: unknown_frame'),
        (header(0), 505, "expected method frame, got non method frame instead"),
        (body(b"x"), 505, "expected method frame, got non method frame instead"),
        (PUBLISH + body(b"x"), 505, "expected content header for class 60, got non content header frame instead"),
        (PUBLISH * 2, 505, "expected content header for class 60, got non content header frame instead"),
        (
            PUBLISH + encode_method(1, m.BasicQos()),
            505,
            "expected content header for class 60, got non content header frame instead",
        ),
        (
            PUBLISH + header(1, weight=1),
            505,
            "expected content header for class 60, got non content header frame instead",
        ),
        (PUBLISH + header(1, class_id=10), 505, "expected content header for class 60, got one for class 10 instead"),
        (PUBLISH + header(2) + header(2), 505, "expected content body, got non content body frame instead"),
        (PUBLISH + header(2) + PUBLISH, 505, "expected content body, got non content body frame instead"),
        (PUBLISH + header(2) + body(b"xyz"), 501, "content body exceeds the 2 bytes of its header"),
        (PUBLISH + encode_frame(2, 1, b"\0<\0\0"), 501, "type 2, all octets = <<0,60,0,0>>: unknown_frame"),
        (encode_method(1, m.ChannelOpen()), 504, "second 'channel.open' seen"),
        (encode_method(2, m.QueueDeclare("q")), 504, "expected 'channel.open'"),
        (encode_method(2, m.BasicPublish()), 504, "expected 'channel.open'"),
        (encode_method(0, m.BasicPublish()), 504, "unexpected method in connection state running"),
        (encode_method(1, m.ConnectionClose()), 503, "connection.close on channel 1: it belongs on channel 0"),
        (encode_method(1, m.BasicDeliver()), 503, "basic.deliver does not go from the client to the server"),
        (encode_frame(1, 1, b"\0\x3c\0\xff"), 540, "unknown method 60.255"),
        (encode_frame(1, 1, b"\0\x3c\0\x0a\0"), 502, "malformed basic.qos: "),
    ],
)
def test_refusals_and_their_texts(data: bytes, code: int, text: str) -> None:
    for pieces in ([data], [data[i : i + 1] for i in range(len(data))], [data + HEARTBEAT_FRAME * 3]):
        server = server_on_channel_1()
        with pytest.raises(errors.RemoteProtocolError) as caught:
            for piece in pieces:
                server.receive_data(piece)
        assert caught.value.reply_code == code
        assert caught.value.answer.detail.startswith(text)
        assert server.events() == []


def test_a_refusal_quotes_no_more_than_a_reply_text_holds() -> None:
    error = refused(server_on_channel_1(), encode_frame(9, 1, b"\0" * 100_000))
    assert len(str(error.answer.detail)) < 1000
    assert len(error.reply_text) == 255


def test_heartbeats_are_silent() -> None:
    client, server = opened(1)
    client.send_heartbeat()
    server.receive_data(client.data_to_send() + PUBLISH + header(1) + HEARTBEAT_FRAME + body(b"x"))
    assert len(server.events()) == 1
    for engine in (Engine(Role.CLIENT), server):
        engine.state = ConnectionState.CLOSED if engine is server else engine.state
        with pytest.raises(errors.LocalProtocolError, match="heartbeat"):
            engine.send_heartbeat()
        assert engine.data_to_send() == b""


def test_what_came_before_a_refusal_is_kept_and_the_close_is_understood_after_it() -> None:
    client, server = opened(1)
    client.send_method(1, m.BasicQos())
    good = client.data_to_send()
    refused(server, good + encode_method(1, m.ChannelOpen()) + good + encode_method(0, m.ConnectionClose())[:9])
    assert server.events() == [(1, m.BasicQos())]
    server.send_method(0, m.ConnectionClose(504, "x"))
    server.receive_data(encode_method(0, m.ConnectionClose())[9:] + encode_method(0, m.ConnectionCloseOk()) + b"late")
    assert server.events() == [(0, m.ConnectionClose()), (0, m.ConnectionCloseOk())]
    server.send_method(0, m.ConnectionCloseOk())
    assert server.state is ConnectionState.CLOSED


def test_nothing_is_received_after_framing_was_lost() -> None:
    server = server_on_channel_1()
    assert not server.deaf
    assert refused(server, encode_frame(9, 1, b"")).reply_code == 501
    assert server.deaf
    server.receive_data(encode_method(0, m.ConnectionClose()) + b"\xff" * 100)
    assert server.events() == []
    server.send_method(0, m.ConnectionClose(501, "x"))
    assert server.data_to_send() == encode_method(0, m.ConnectionClose(501, "x"))


def test_sending_the_wrong_kind() -> None:
    client, server = opened(1)
    with pytest.raises(errors.LocalProtocolError, match="send_content sends it"):
        client.send_method(1, m.BasicPublish())
    with pytest.raises(errors.LocalProtocolError, match="send_method sends it"):
        client.send_content(1, m.BasicQos(), b"\0\0", b"")
    with pytest.raises(errors.LocalProtocolError, match="does not send"):
        server.send_content(1, m.BasicPublish(), Properties(), b"")
    assert client.data_to_send() + server.data_to_send() == b""


# -- channels ----------------------------------------------------------------------------------------------------


def test_channel_max() -> None:
    client, server = opened(1, 2, tune=(2, 4096, 0))
    error = refused(server, encode_method(3, m.ChannelOpen()))
    text = "number of channels opened (2) has reached the negotiated channel_max (2)"
    assert (error.reply_code, error.answer.detail) == (530, text)
    with pytest.raises(errors.LocalProtocolError, match="has reached"):
        client.send_method(3, m.ChannelOpen())
    _, other = opened(1, tune=(2, 4096, 0))
    assert refused(other, encode_method(9, m.ChannelOpen())).answer.detail == (
        "channel number 9 is above the negotiated channel_max (2)"
    )


def test_a_channel_number_is_used_again_after_close_ok() -> None:
    client, server = opened(1)
    for first, second in ((client, server), (server, client)):
        first.send_method(1, m.ChannelClose())
        pump(client, server)
        with pytest.raises(errors.LocalProtocolError):
            client.send_method(1, m.ChannelOpen())
        second.send_method(1, m.ChannelCloseOk())
        pump(client, server)
        assert client.channels == server.channels == {}
        client.send_method(1, m.ChannelOpen())
        pump(client, server)
        server.send_method(1, m.ChannelOpenOk())
        pump(client, server)
        assert client.channels == server.channels == {1: ChannelState.OPEN}


def test_crossing_channel_closes() -> None:
    """As RabbitMQ: it closes for the publication, answers the client's close, and waits for the client's answer."""
    client, server = opened(1)
    client.send_content(1, m.BasicPublish("nowhere"), b"\0\0", b"")
    client.send_method(1, m.ChannelClose(200, "bye"))
    server.receive_data(client.data_to_send())
    assert len(server.events()) == 2
    server.send_method(1, m.ChannelClose(404, "no exchange"))
    server.send_method(1, m.ChannelCloseOk())
    client.receive_data(server.data_to_send())
    assert client.events() == [(1, m.ChannelClose(404, "no exchange")), (1, m.ChannelCloseOk())]
    assert client.channels == server.channels == {1: ChannelState.CLOSED_BY_SERVER}
    client.send_method(1, m.ChannelCloseOk())
    with pytest.raises(errors.LocalProtocolError):
        client.send_method(1, m.ChannelCloseOk())
    pump(client, server)
    assert client.channels == server.channels == {}


def test_the_client_may_run_ahead() -> None:
    client, server = started()
    client.send_method(0, m.ConnectionTuneOk(2047, 131_072))
    client.send_method(0, m.ConnectionOpen("/"))
    client.send_method(1, m.ChannelOpen())
    client.send_method(1, m.QueueDeclare("q"))
    client.send_content(1, m.BasicPublish("", "q"), b"\0\0", b"hello")
    with pytest.raises(errors.LocalProtocolError):
        server.send_method(1, m.ChannelOpenOk())
    server.receive_data(client.data_to_send())
    *methods, (_, content) = server.events()
    assert [event.NAME for _, event in methods if isinstance(event, m.Method)][1:] == [
        "connection.open", "channel.open", "queue.declare",
    ]  # fmt: skip
    assert isinstance(content, Content)
    assert content.body == b"hello"
    server.send_method(0, m.ConnectionOpenOk())
    with pytest.raises(errors.LocalProtocolError):
        server.send_method(1, m.QueueDeclareOk("q"))
    server.send_method(1, m.ChannelOpenOk())
    server.send_method(1, m.QueueDeclareOk("q"))
    client.receive_data(server.data_to_send())
    assert len(client.events()) == 3


# -- closing: rule 3 ---------------------------------------------------------------------------------------------


def test_after_channel_close_its_frames_are_dropped() -> None:
    client, server = opened(1, 2)
    server.receive_data(PUBLISH + header(10) + body(b"12345"))
    server.send_method(1, m.ChannelClose(404, "x"))
    rest = body(b"67890") + PUBLISH + header(2) + body(b"ab") + encode_method(1, m.BasicQos())
    server.receive_data(rest + encode_method(2, m.BasicQos()) + encode_frame(1, 1, b"\0\x3c\0\xff"))
    assert server.events() == [(2, m.BasicQos())]
    server.receive_data(encode_method(1, m.ChannelCloseOk()))
    assert server.events() == [(1, m.ChannelCloseOk())]
    assert refused(server, body(b"x")).reply_code == 505
    del client


def test_after_connection_close_everything_is_dropped() -> None:
    _, server = opened(1)
    server.receive_data(PUBLISH + header(10) + body(b"12345"))
    server.send_method(0, m.ConnectionClose(320, "x"))
    server.receive_data(body(b"67890") + PUBLISH + header(2) + encode_method(0, m.ConnectionOpen()) + HEARTBEAT_FRAME)
    server.receive_data(encode_method(7, m.BasicQos()) + encode_method(0, m.ConnectionCloseOk()) + PUBLISH)
    assert server.events() == [(0, m.ConnectionCloseOk())]
    assert server.state is ConnectionState.CLOSED


def test_each_close_of_a_client_is_answered() -> None:
    client, server = opened(1, 2)
    channel = encode_method(1, m.ChannelClose(200, "bye"))
    connection = encode_method(0, m.ConnectionClose(200, "bye"))
    server.receive_data(channel * 3)
    assert server.events() == [(1, m.ChannelClose(200, "bye"))]
    server.send_method(1, m.ChannelCloseOk())
    assert server.data_to_send() == encode_method(1, m.ChannelCloseOk()) * 3
    server.receive_data(encode_method(2, m.ChannelClose(200, "bye")))
    server.events()
    server.send_method(2, m.ChannelCloseOk())
    assert server.data_to_send() == encode_method(2, m.ChannelCloseOk())
    server.receive_data(connection + encode_method(1, m.ChannelOpen()) + connection)
    assert server.events() == [(0, m.ConnectionClose(200, "bye"))]
    server.send_method(0, m.ConnectionCloseOk())
    assert server.data_to_send() == encode_method(0, m.ConnectionCloseOk()) * 2
    client.receive_data(channel * 2)
    assert client.events() == [(1, m.ChannelClose(200, "bye"))]
    client.send_method(1, m.ChannelCloseOk())
    assert client.data_to_send() == encode_method(1, m.ChannelCloseOk())


def test_a_channel_that_the_server_closed_is_not_opened_before_close_ok() -> None:
    _, server = opened(1)
    server.send_method(1, m.ChannelClose(404, "x"))
    error = refused(server, encode_method(1, m.ChannelOpen()))
    assert (error.reply_code, error.answer.detail) == (504, "second 'channel.open' seen")


@pytest.mark.parametrize("cut", range(3))
def test_what_a_peer_sends_behind_its_close_is_dropped(cut: int) -> None:
    """To the end of the message that it has begun; RabbitMQ drops it, too, until it has answered."""
    _, server = opened(1)
    frames = [PUBLISH, header(4), body(b"ab"), body(b"cd")]
    server.receive_data(b"".join([encode_method(1, m.ChannelClose()), encode_method(1, m.BasicQos()), *frames[:cut]]))
    assert server.events() == [(1, m.ChannelClose())]
    server.send_method(1, m.ChannelCloseOk())
    if not cut:
        assert refused(server, PUBLISH).reply_code == 504
        assert refused(server, header(4)).reply_code == 505
        return
    server.receive_data(b"".join(frames[cut:]))
    assert server.events() == []
    assert refused(server, PUBLISH).reply_code == 504
    assert refused(server, header(4)).reply_code == 505
    server.receive_data(encode_method(1, m.ChannelOpen()))
    assert server.events() == [(1, m.ChannelOpen())]


def test_a_message_that_a_close_cuts_off_is_an_error() -> None:
    _, server = opened(1)
    assert refused(server, PUBLISH + encode_method(1, m.ChannelClose())).reply_code == 505


def test_deliveries_that_cross_a_close_are_dropped() -> None:
    """RabbitMQ sends some after its channel.close, and after its client has answered it."""
    client, _ = opened(1, 2)
    delivery = encode_method(1, m.BasicDeliver("c", 1)) + header(4) + body(b"ab") + body(b"cd")
    client.receive_data(encode_method(1, m.ChannelClose(404, "gone")) + delivery)
    assert client.events() == [(1, m.ChannelClose(404, "gone"))]
    client.send_method(1, m.ChannelCloseOk())
    for piece in (delivery, delivery[:-3], delivery[-3:] + encode_method(2, m.BasicCancelOk("d"))):
        client.receive_data(piece)
    client.send_method(1, m.ChannelOpen())
    client.receive_data(delivery + encode_method(1, m.ChannelOpenOk()) + delivery)
    events = client.events()
    assert events[:2] == [(2, m.BasicCancelOk("d")), (1, m.ChannelOpenOk())]
    assert [channel for channel, event in events[2:] if isinstance(event, Content)] == [1]


def test_what_crosses_a_close_of_the_connection_is_dropped() -> None:
    client, _ = opened(1)
    delivery = encode_method(1, m.BasicDeliver("c", 1)) + header(2) + body(b"ab")
    client.receive_data(
        encode_method(0, m.ConnectionClose(320, "bye")) + delivery + encode_method(0, m.ConnectionBlocked())
    )
    assert client.events() == [(0, m.ConnectionClose(320, "bye"))]
    client.send_method(0, m.ConnectionCloseOk())
    assert client.state is ConnectionState.CLOSED


# -- content -----------------------------------------------------------------------------------------------------


def test_oversized_content() -> None:
    server = server_on_channel_1(max_message_size=10)
    server.receive_data(
        PUBLISH + header(11) + body(b"123456") + body(b"78901") + PUBLISH + header(10) + body(b"x" * 10)
    )
    (_, oversized), (_, content) = server.events()
    assert isinstance(oversized, OversizedContent)
    assert (oversized.method, oversized.body_size) == (PUBLISH[7:-1], 11)
    assert isinstance(content, Content)
    server.receive_data(PUBLISH + header((1 << 64) - 1) + body(b"x"))
    assert plain(server.events()) == [(1, PUBLISH[7:-1], (1 << 64) - 1)]


def test_contents_of_several_channels_interleave() -> None:
    client, server = opened(1, 2)
    two = encode_method(2, m.BasicPublish("e2"))
    server.receive_data(PUBLISH + two + header(2) + header(4, channel=2) + body(b"a") + body(b"zyxw", 2) + body(b"b"))
    (second, first) = server.events()
    assert [(channel, event.body) for channel, event in (first, second) if isinstance(event, Content)] == [
        (1, b"ab"),
        (2, b"zyxw"),
    ]
    del client


@pytest.mark.parametrize("raw", [b"\0\0", *MALFORMED_PROPERTIES])
def test_properties_are_not_looked_at(raw: bytes) -> None:
    server = server_on_channel_1()
    server.receive_data(PUBLISH + header(0, raw))
    assert len(server.events()) == 1


# Where the fast path must give way to the slow one, which knows what is wrong; split at any place.
CONVERSATION = b"".join(
    [
        encode_method(1, m.QueueDeclare("q", arguments={"x-max-length": 5})),
        PUBLISH + header(5) + body(b"hello"),
        PUBLISH + header(0, b"\x10\0\2"),
        HEARTBEAT_FRAME,
        PUBLISH + header(6) + body(b"abc") + body(b"def"),
        encode_method(2, m.BasicPublish("two"))
        + PUBLISH
        + header(1, channel=2)
        + header(3)
        + body(b"xyz")
        + body(b"1", 2),
        PUBLISH + header(100) + b"".join(body(bytes([65 + i])) for i in range(100)),
        encode_method(1, m.BasicAck(7, True)),
        PUBLISH + header(300) + body(b"o" * 300),  # over the limit
        encode_method(1, m.ChannelClose(200, "bye")),
        encode_method(0, m.ConnectionClose(200, "bye")),
    ]
)


def fed(pieces: list[bytes]) -> list[object]:
    _, server = opened(1, 2, max_message_size=200)
    for piece in pieces:
        server.receive_data(piece)
    return plain(server.events())


WHOLE = fed([CONVERSATION])


def test_the_whole_conversation() -> None:
    assert len(WHOLE) == 11


def test_byte_by_byte_is_the_same() -> None:
    assert fed([CONVERSATION[i : i + 1] for i in range(len(CONVERSATION))]) == WHOLE


@pytest.mark.parametrize("at", range(0, len(CONVERSATION), 3))
def test_any_single_cut_is_the_same(at: int) -> None:
    assert fed([CONVERSATION[:at], CONVERSATION[at:]]) == WHOLE
    assert fed([CONVERSATION[:at], b"", CONVERSATION[at : at + 1], CONVERSATION[at + 1 :]]) == WHOLE


@given(strategies.cuts(CONVERSATION))
def test_random_cuts_are_the_same(pieces: list[bytes]) -> None:
    assert fed(pieces) == WHOLE


@given(st.binary(max_size=6))
def test_trailing_data_waits(tail: bytes) -> None:
    _, server = opened(1, 2, max_message_size=200)
    server.receive_data(CONVERSATION[: -len(encode_method(0, m.ConnectionClose(200, "bye")))] + tail)
    assert plain(server.events()) == WHOLE[:-1]


def test_the_client_gathers_what_the_server_sends() -> None:
    client, server = opened(3)
    sent = [m.BasicDeliver("c", 1), m.BasicReturn(312, "NO_ROUTE"), m.BasicGetOk(2)]
    for method in sent:
        server.send_content(3, method, Properties(type="t"), b"x" * 200_000)
    client.receive_data(server.data_to_send())
    contents = [event for _, event in client.events() if isinstance(event, Content)]
    assert [content.decode_method() for content in contents] == sent
    assert all(content.body == b"x" * 200_000 for content in contents)


@given(st.lists(st.tuples(strategies.properties, st.binary(max_size=9000)), min_size=1, max_size=4))
def test_any_messages_survive(messages: list[tuple[Properties, bytes]]) -> None:
    client, server = opened(1, tune=(10, 8192, 0))
    for properties, payload in messages:
        client.send_content(1, m.BasicPublish("e", "k"), properties, payload)
    server.receive_data(client.data_to_send())
    got = [(event.properties, event.body) for _, event in server.events() if isinstance(event, Content)]
    assert got == messages


def test_wrong_parts_behind_a_good_start_are_seen_by_the_slow_path() -> None:
    for bad in (
        PUBLISH + header(2) + b"\3\0\2" + body(b"ab")[3:],  # the body on another channel
        PUBLISH + header(2)[:-1] + b"\0" + body(b"ab"),
        PUBLISH + header(2) + body(b"ab")[:-1] + b"\0",
        PUBLISH + header(2, b"\0\0")[:1] + short(2) + header(2)[3:] + body(b"ab"),  # the header on another channel
        PUBLISH + encode_frame(2, 1, HEADER_FIXED.pack(60, 0, 2)) + body(b"ab"),
        PUBLISH + b"\2\0\1\0\2\0\0" + header(2)[7:] + body(b"ab"),
    ):
        assert refused(opened(1, 2)[1], bad).reply_code in (501, 505)
