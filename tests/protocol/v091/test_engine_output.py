"""Every way out of the engine: no frame is longer than the peer takes, and what is refused leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from harebell.errors import LocalProtocolError
from harebell.protocol.v091 import ConnectionState, Engine, Properties, Role, methods as m
from harebell.protocol.v091.assembly import LARGE
from harebell.protocol.v091.codec import FRAME_OVERHEAD, HEARTBEAT_FRAME, encode_frame, encode_method
from harebell.protocol.v091.content import HEADER_FIXED, encode_content
from harebell.protocol.v091.deliver import DeliverPrefixes, encode_get_ok, pack_tag
from tests.protocol.v091 import strategies
from tests.protocol.v091.samples import opened, pump

PUBLISH = encode_method(1, m.BasicPublish("e", "k"))
ADDRESS = b"\1e\1k"
END = b"\0" + ADDRESS + b"\xce"
HEADER_OVERHEAD = FRAME_OVERHEAD + HEADER_FIXED.size


def padded(frame: Callable[[str], bytes], size: int) -> str:
    """A text that makes the frame exactly as long."""
    return "y" * (size - len(frame("")))


def properties(size: int) -> bytes:
    """Encoded properties that make a header frame of that size."""

    def encode(text: str) -> bytes:
        return Properties(headers={"x": text}).encode()

    return encode(padded(encode, size - HEADER_OVERHEAD))


def declaration(size: int) -> m.QueueDeclare:
    def method(text: str) -> m.QueueDeclare:
        return m.QueueDeclare("q", arguments={"x": text})

    return method(padded(lambda text: encode_method(1, method(text)), size))


def declare(engine: Engine, size: int) -> None:
    engine.send_method(1, declaration(size))


def bind(engine: Engine, size: int) -> None:
    def method(text: str) -> m.QueueBind:
        return m.QueueBind("q", "e", "k", arguments={"x": text})

    engine.send_method(1, method(padded(lambda text: encode_method(1, method(text)), size)))


def update_secret(engine: Engine, size: int) -> None:
    secret = padded(lambda text: encode_method(0, m.ConnectionUpdateSecret(text.encode(), "old")), size)
    engine.send_method(0, m.ConnectionUpdateSecret(secret.encode(), "old"))


def content(method: m.Method) -> Callable[[Engine, int], None]:
    return lambda engine, size: engine.send_content(1, method, properties(size), b"body")


def messages(body: bytes) -> Callable[[Engine, int], None]:
    def send(engine: Engine, size: int) -> None:
        engine.send_messages(1, [PUBLISH, PUBLISH], [b"\0\0", properties(size)], [b"first", body])

    return send


def checked(engine: Engine, size: int) -> None:
    engine.check_properties([b"\0\0", properties(size), b"\0\0"])
    engine.send_messages(1, [PUBLISH], [properties(size)], [b"body"])


def deliveries(engine: Engine, size: int) -> None:
    prefix = DeliverPrefixes(1, "c")[len(END)]
    first, second = encode_content(1, b"\0\0", b"first", 0), encode_content(1, properties(size), b"", 0)
    engine.send_deliveries([prefix, pack_tag(1), END, first, prefix, pack_tag(2), END, second])


CLIENT: dict[str, Callable[[Engine, int], None]] = {
    "arguments of queue.declare": declare,
    "arguments of queue.bind": bind,
    "a new secret": update_secret,
    "send_content": content(m.BasicPublish("e", "k")),
    "send_message": lambda engine, size: engine.send_message(1, PUBLISH, properties(size), b"body"),
    "send_messages": messages(b"second"),
    "send_messages with an empty body": messages(b""),
    "check_properties": checked,
    "send_frame": lambda engine, size: engine.send_frame(encode_method(1, declaration(size))),
    "send_frames, a header": lambda engine, size: engine.send_frames(
        PUBLISH, encode_content(1, properties(size), b"body", 4096)
    ),
    "send_frames, a body": lambda engine, size: engine.send_frames(
        PUBLISH, encode_content(1, b"\0\0", b"y" * (size - 8), 0)
    ),
}
SERVER: dict[str, Callable[[Engine, int], None]] = {
    "send_content, a delivery": content(m.BasicDeliver("c", 1)),
    "send_content, a return": content(m.BasicReturn(312, "NO_ROUTE")),
    "send_frames, a header": lambda engine, size: engine.send_frames(
        encode_get_ok(1, 1, False, ADDRESS, 0), encode_content(1, properties(size), b"body", 4096)
    ),
    "send_deliveries": deliveries,
}
long_properties = st.one_of(
    strategies.properties.map(Properties.encode), st.integers(4000, 4200).map(lambda size: properties(size))
)
bodies = st.one_of(st.binary(max_size=50), st.integers(4080, 9000).map(lambda size: b"y" * size))
parts = st.lists(st.tuples(long_properties, bodies), min_size=0, max_size=4)


WAYS = [
    pytest.param(role, send, id=f"{role.name.lower()}: {name}")
    for role, ways in ((Role.CLIENT, CLIENT), (Role.SERVER, SERVER))
    for name, send in ways.items()
]


def frame_sizes(data: bytes) -> list[int]:
    sizes, at = [], 0
    while at < len(data):
        size = FRAME_OVERHEAD + int.from_bytes(data[at + 3 : at + 7], "big")
        assert data[at + size - 1] == 206
        sizes.append(size)
        at += size
    return sizes


@pytest.mark.parametrize("frame_max", [4096, 131_072])
@pytest.mark.parametrize("role, send", WAYS)
def test_what_fits_goes_out_and_what_does_not_leaves_nothing(
    role: Role, send: Callable[[Engine, int], None], frame_max: int
) -> None:
    client, server = opened(1, tune=(10, frame_max, 0))
    engine, peer = (client, server) if role is Role.CLIENT else (server, client)
    for size in (frame_max - 1, frame_max):
        send(engine, size)
        data = engine.data_to_send()
        assert max(frame_sizes(data)) == size
        peer.receive_data(data)
        assert peer.events()
    with pytest.raises(LocalProtocolError, match=rf"a frame of {frame_max + 1} bytes.* frame_max is {frame_max}"):
        send(engine, frame_max + 1)
    assert not engine.pending
    assert engine.data_to_send() == b""
    send(engine, frame_max)  # it goes on
    peer.receive_data(engine.data_to_send())
    assert peer.events()


def test_a_body_in_several_frames_that_fit_goes_out() -> None:
    _, server = opened(1, tune=(10, 4096, 0))
    prefix, frames = DeliverPrefixes(1, "c")[len(END)], encode_content(1, b"\0\0", b"y" * 9000, 4096)
    server.send_deliveries([prefix, pack_tag(1), END, frames])
    server.send_frames(encode_get_ok(1, 2, False, ADDRESS, 0), frames)
    assert frame_sizes(server.data_to_send())[1::5] == [22, 22]


def test_a_content_that_fits_whole_goes_out_without_a_look_at_its_frames() -> None:
    _, server = opened(1, tune=(10, 4096, 0))
    method, content = encode_get_ok(1, 2, False, ADDRESS, 0), encode_content(1, b"\0\0", b"body", 4096)
    server.send_frames(method, content)
    assert server.data_to_send() == method + content


def test_a_method_in_front_of_a_content_fits_too() -> None:
    client, _ = opened(1, tune=(10, 4096, 0))
    with pytest.raises(LocalProtocolError, match="a frame of 4097 bytes"):
        client.send_frames(encode_method(1, declaration(4097)), encode_content(1, b"\0\0", b"", 0))
    assert client.data_to_send() == b""


@given(strategies.properties.map(Properties.encode), bodies, st.sampled_from([4096, 8192]))
def test_a_message_is_what_its_parts_make(raw: bytes, body: bytes, frame_max: int) -> None:
    one, many = opened(1, tune=(10, frame_max, 0))[0], opened(1, tune=(10, frame_max, 0))[0]
    one.send_message(1, PUBLISH, raw, body)
    many.send_messages(1, [PUBLISH], [raw], [body])
    assert one.data_to_send() == many.data_to_send() == PUBLISH + encode_content(1, raw, body, frame_max)


@given(st.lists(st.tuples(st.sampled_from([1, 2]), st.sampled_from([b"\0\0", b"\x10\0\2"]), bodies), max_size=8))
def test_nothing_of_a_message_gets_into_the_next_one(messages: list[tuple[int, bytes, bytes]]) -> None:
    client, _ = opened(2, tune=(10, 4096, 0))
    for channel, raw, body in messages:
        client.send_message(channel, PUBLISH, raw, body)
    expected = [PUBLISH + encode_content(channel, raw, body, 4096) for channel, raw, body in messages]
    assert client.data_to_send() == b"".join(expected)


def test_before_tuning_frames_may_be_as_long_as_any_peer_of_this_kind_takes() -> None:
    client, server = Engine(Role.CLIENT, frame_max=4096), Engine(Role.SERVER, frame_max=4096)
    client.send_header()
    pump(client, server)
    start = m.ConnectionStart(server_properties={"x": "y" * 131_072})
    with pytest.raises(LocalProtocolError, match="frame_max is 131072: shorten its arguments"):
        server.send_method(0, start)
    server.send_method(0, m.ConnectionStart(server_properties={"x": "y" * 100_000}))
    pump(client, server)
    assert client.state is server.state is ConnectionState.AWAIT_START_OK


def test_a_client_that_runs_ahead_of_open_ok_keeps_to_what_was_agreed() -> None:
    client, server = Engine(Role.CLIENT), Engine(Role.SERVER)
    client.send_header()
    pump(client, server)
    server.send_method(0, m.ConnectionStart())
    pump(client, server)
    client.send_method(0, m.ConnectionStartOk())
    pump(client, server)
    server.send_method(0, m.ConnectionTune(1, 4096, 0))
    pump(client, server)
    client.send_method(0, m.ConnectionTuneOk(1, 4096, 0))
    client.send_method(0, m.ConnectionOpen("/"))
    client.send_method(1, m.ChannelOpen())
    client.data_to_send()
    with pytest.raises(LocalProtocolError, match="frame of 4097 bytes"):
        declare(client, 4097)
    assert client.data_to_send() == b""


@given(data=st.data(), role=st.sampled_from(list(Role)))
def test_no_frame_is_ever_longer_than_the_peer_takes(data: st.DataObject, role: Role) -> None:
    engine = opened(1, tune=(10, 4096, 0))[role is Role.SERVER]
    carrier = PUBLISH if role is Role.CLIENT else encode_method(1, m.BasicReturn(312, "NO_ROUTE", "e", "k"))
    prefix = DeliverPrefixes(1, "c" * data.draw(st.integers(0, 255)))[len(END)]
    for _ in range(data.draw(st.integers(1, 5))):
        some = data.draw(parts)
        raws, texts = [raw for raw, _ in some], [text for _, text in some]
        cut = data.draw(st.sampled_from([0, 4096, 8192]))
        frames = [encode_content(1, raw, text, cut) for raw, text in some]
        way = data.draw(st.integers(0, 6))
        try:
            match way:
                case 0:
                    engine.send_method(1, data.draw(strategies.methods))
                case 1 if some:
                    method = m.BasicPublish("e", "k") if role is Role.CLIENT else m.BasicDeliver("c", 1)
                    engine.send_content(1, method, raws[0], texts[0])
                case 2 if some:
                    engine.send_message(1, carrier, raws[0], texts[0])
                case 3:
                    engine.send_messages(1, [carrier] * len(some), raws, texts)
                case 4 if some:
                    engine.send_frames(carrier, frames[0])
                case 5:
                    engine.send_deliveries([piece for each in frames for piece in (prefix, pack_tag(1), END, each)])
                case _:
                    engine.send_frame(encode_frame(1, 1, data.draw(bodies)))
        except LocalProtocolError:
            pass
    assert all(size <= 4096 for size in frame_sizes(engine.data_to_send()))


def test_a_large_message_goes_out_uncopied() -> None:
    client, _ = opened(1)
    large, small = HEARTBEAT_FRAME * (LARGE // len(HEARTBEAT_FRAME) + 1), HEARTBEAT_FRAME
    client._outgoing += [small, small, large, small, large, large, small]
    pieces = client.pieces_to_send()
    assert pieces == [small + small, large, small, large, large, small]
    assert pieces[1] is large
    assert client.pieces_to_send() == []
    assert client.data_to_send() == b""


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 30), st.booleans(), st.integers(0, 3)), max_size=8))
def test_what_a_thread_wrote_leaves_once(turns: list[tuple[int, int, bool, int]]) -> None:
    """Gathered, written in part or not at all, and taken into account once, twice or by the next who sends."""
    client = Engine(Role.CLIENT)
    client.data_to_send()
    expected, wire = bytearray(), bytearray()
    for frames, size, said, times in turns:
        for number in range(frames):
            frame = b"frame %d %d " % (len(expected), number)
            client.send_frame(frame)
            expected += frame
        piece, written = client.gather()
        if said:
            wire += piece[:size]
            written.append(len(piece[:size]))
        for _ in range(times):
            client.leave_out_written()
    assert bytes(wire) + client.data_to_send() == expected
    assert client.pending == 0


def test_what_is_taken_back_does_not_leave() -> None:
    client = Engine(Role.CLIENT)
    client.data_to_send()
    client.send_frame(b"stays")
    client.send_message(1, b"method", b"\0\0", b"body")
    client.take_back(1)
    assert client.data_to_send() == b"stays"
