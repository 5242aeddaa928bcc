"""Content: properties and body out of frames, frames for another channel and frame size, the cheap checks."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from harebell import errors
from harebell.protocol.v091 import Content, Properties, encode_content, methods as m
from harebell.protocol.v091.codec import encode_frame
from harebell.protocol.v091.fields import write_table
from tests.protocol.v091 import strategies
from tests.protocol.v091.samples import MALFORMED_PROPERTIES, PROPERTIES

METHOD = m.BasicPublish("e", "k").encode()
HEADER_5 = bytes.fromhex("02 0001 0000000e 003c 0000 0000000000000005 0000 ce".replace(" ", ""))
BODY_5 = bytes.fromhex("03 0001 00000005 68656c6c6f ce".replace(" ", ""))


def content_of(properties: Properties | bytes, body: bytes, frame_max: int = 0, channel: int = 1) -> Content:
    return Content(channel, METHOD, encode_content(channel, properties, body, frame_max), len(body))


def frame_sizes(frames: bytes) -> list[int]:
    sizes = []
    while frames:
        size = 8 + int.from_bytes(frames[3:7], "big")
        assert frames[size - 1] == 206
        sizes.append(size)
        frames = frames[size:]
    return sizes


@given(strategies.properties)
def test_flags_and_headers_without_decoding(properties: Properties) -> None:
    content, raw = content_of(properties, b"x"), properties.encode()
    assert content.flags == int.from_bytes(raw[:2], "big")
    assert content.raw_headers == (b"" if properties.headers is None else write_table(properties.headers))


@pytest.mark.parametrize("raw", [b"\xa0\0", b"\xa0\0\xff", b"\x20\0"])
def test_headers_of_malformed_properties_are_none(raw: bytes) -> None:
    assert content_of(raw, b"").raw_headers == b""


def test_bytes() -> None:
    content = content_of(Properties(), b"hello")
    assert content.frames == HEADER_5 + BODY_5
    assert (content.body, content.raw_properties, content.properties) == (b"hello", b"\0\0", Properties())
    assert content.decode_method() == m.BasicPublish("e", "k")
    assert repr(content) == "Content(channel=1, body_size=5, properties=b'\\x00\\x00')"


def test_empty_body_has_no_body_frame() -> None:
    content = content_of(Properties(), b"")
    assert content.frames == HEADER_5.replace(b"\0\5\0\0", b"\0\0\0\0")
    assert content.body == b""
    assert content.frames_for(1, 4096) is content.frames


@pytest.mark.parametrize("size", [1, 4087, 4088, 4089, 8176, 8177, 50_000])
def test_body_is_cut_to_frame_max(size: int) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    content = content_of(Properties(type="t"), body[:size], 4096)
    assert content.body == body[:size]
    assert max(frame_sizes(content.frames)) <= 4096
    assert len(frame_sizes(content.frames)) == 1 + -(-size // 4088)


@given(strategies.properties, st.binary(max_size=400), st.integers(9, 200), st.integers(0, 200), st.integers(0, 65_535))
def test_any_content_survives(props: Properties, body: bytes, came: int, goes: int, channel: int) -> None:
    content = content_of(props, body, came)
    assert content.decode_properties() == props == content.properties
    assert content.properties is content.properties
    assert content.body == body
    assert content.persistent == (props.delivery_mode == 2)
    assert content.priority == (props.priority or 0)
    assert content.expiration == (None if props.expiration is None else props.expiration.encode())
    assert content.raw_headers == (b"" if props.headers is None else write_table(props.headers))
    assert content.flags.to_bytes(2, "big") == props.encode()[:2]
    content.checked_properties()
    goes = goes if goes > 8 else 0
    sent = content.recut(channel, goes)
    again = Content(channel, METHOD, sent, len(body))
    assert (again.body, again.raw_properties) == (body, content.raw_properties)
    assert not goes or max(frame_sizes(sent)[1:], default=0) <= goes
    if came <= (goes or came):
        assert again.frames_for(1, 0) == content.frames  # only channel numbers were changed
    if not goes or frame_sizes(sent)[0] <= goes:
        assert content.frames_for(channel, goes) == sent
    else:
        with pytest.raises(errors.LocalProtocolError, match=f"negotiated frame_max is {goes}: shorten its properties"):
            content.frames_for(channel, goes)


def test_reframing_only_where_a_frame_is_too_large() -> None:
    content = content_of(Properties(), b"x" * 10_000, 4096)
    assert content.frames_for(1, 4096) is content.frames
    assert content.frames_for(1, 0) is content.frames
    assert content.frames_for(1, 131_072) is content.frames
    assert frame_sizes(content.recut(1, 100))[1:3] == [100, 100]
    assert len(content.frames_for(9, 4096)) == len(content.frames)


def test_a_header_frame_is_never_cut() -> None:
    content = content_of(Properties(headers={"k": "x" * 300}), b"y" * 200)
    sizes = frame_sizes(content.recut(2, 100))
    assert sizes[0] > 300
    assert max(sizes[1:]) == 100


def test_decoded_properties_are_kept_only_when_asked() -> None:
    content = content_of(Properties(type="t"), b"")
    assert content.decode_properties() is not content.decode_properties()
    assert content.properties is content.properties


def test_malformed_method() -> None:
    content = Content(3, METHOD + b"\0", HEADER_5 + BODY_5, 5)
    with pytest.raises(errors.RemoteProtocolError) as caught:
        content.decode_method()
    assert (caught.value.reply_code, caught.value.channel) == (502, 3)


@pytest.mark.parametrize("raw", MALFORMED_PROPERTIES)
def test_malformed_properties(raw: bytes) -> None:
    refused(content_of(raw, b"hello", channel=7))


def refused(content: Content) -> None:
    with pytest.raises(errors.RemoteProtocolError) as decoding:
        content.decode_properties()
    with pytest.raises(errors.RemoteProtocolError) as checking:
        content.checked_properties()
    with pytest.raises(errors.RemoteProtocolError):
        _ = content.properties
    assert str(checking.value) == str(decoding.value)
    assert (checking.value.reply_code, checking.value.channel) == (502, content.channel)
    assert content.persistent in (True, False)  # whatever it says, it does not raise
    assert "body_size" in repr(content)


def agree(content: Content) -> None:
    """checked_properties raises if and only if decode_properties does."""
    try:
        properties = content.decode_properties()
    except errors.RemoteProtocolError:
        refused(content)
    else:
        content.checked_properties()
        assert content.persistent == (properties.delivery_mode == 2)
        assert content.priority == (properties.priority or 0)
        expiration = properties.expiration
        assert content.expiration == (None if expiration is None else expiration.encode("utf-8", "surrogateescape"))


@given(st.binary(min_size=2, max_size=80))
def test_checking_and_decoding_agree_on_any_bytes(raw: bytes) -> None:
    agree(content_of(raw, b""))


@given(st.binary(max_size=40), st.sampled_from("tbBsuIilLfdDSATFVx?"), st.integers(0, 45))
def test_checking_and_decoding_agree_on_hostile_tables(value: bytes, letter: str, length: int) -> None:
    raw = b"\x20\0" + length.to_bytes(4, "big") + b"\1k" + letter.encode() + value
    agree(content_of(raw, b""))
    agree(content_of(b"\x20\0" + (3 + len(value)).to_bytes(4, "big") + raw[6:], b""))


@given(strategies.properties, st.data())
def test_checking_and_decoding_agree_on_mutations(properties: Properties, data: st.DataObject) -> None:
    raw = bytearray(properties.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    agree(content_of(bytes(raw), b""))


@pytest.mark.parametrize("mode, persistent", [(None, False), (1, False), (2, True)])
@pytest.mark.parametrize("properties, _", PROPERTIES)
def test_persistent(properties: Properties, _: bytes, mode: int | None, persistent: bool) -> None:
    values = {name: getattr(properties, name) for name in Properties.__slots__}
    assert content_of(Properties(**values | {"delivery_mode": mode}), b"x").persistent is persistent


@pytest.mark.parametrize("priority", [None, 0, 7, 255])
@pytest.mark.parametrize("properties, _", PROPERTIES)
def test_priority(properties: Properties, _: bytes, priority: int | None) -> None:
    values = {name: getattr(properties, name) for name in Properties.__slots__}
    assert content_of(Properties(**values | {"priority": priority}), b"x").priority == (priority or 0)


def test_encode_content_refuses_what_does_not_fit() -> None:
    with pytest.raises(errors.LocalProtocolError, match="priority"):
        encode_content(1, Properties(priority=300), b"", 0)


def test_frames_are_frames() -> None:
    assert encode_frame(3, 1, b"hello") == BODY_5


EVERYTHING = Properties(
    content_type="a/b", content_encoding="gzip", headers={"h": 1}, delivery_mode=2, priority=7, correlation_id="c",
    reply_to="r", expiration="60", message_id="m", type="t",
)  # fmt: skip


def test_one_property_is_read_behind_all_the_others_or_none() -> None:
    content = content_of(EVERYTHING, b"")
    assert (content.persistent, content.priority, content.expiration) == (True, 7, b"60")
    assert content.raw_headers == write_table({"h": 1})
    assert content.flags == 0b1111_1111_1010_0000
    alone = [content_of(Properties(priority=7), b""), content_of(Properties(expiration="60"), b"")]
    assert [(each.persistent, each.priority, each.expiration) for each in alone] == [
        (False, 7, None),
        (False, 0, b"60"),
    ]
    assert content_of(Properties(headers={"h": 1}), b"").raw_headers == write_table({"h": 1})
    assert content_of(Properties(delivery_mode=2), b"").persistent


@pytest.mark.parametrize("cut", range(2, 14))
def test_what_malformed_properties_hide_is_not_there(cut: int) -> None:
    """Nothing is raised: these are asked before the properties have been checked."""
    content = content_of(EVERYTHING.encode()[:cut], b"")
    assert content.persistent is False
    assert content.raw_headers in (b"", write_table({"h": 1})[: max(0, cut - 11)])
