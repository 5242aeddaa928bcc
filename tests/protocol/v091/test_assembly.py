"""An assembly: frames of one message added one by one, the limits of what it stores, and frames that do not belong."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from harebell import errors
from harebell.protocol.v091 import Content, assembly as module
from harebell.protocol.v091.assembly import Assembly
from harebell.protocol.v091.codec import encode_frame
from harebell.protocol.v091.content import HEADER_FIXED, encode_content
from tests.protocol.v091.samples import PUBLISH, body, header, opened

METHOD = PUBLISH[7:-1]


def begun(size: int, max_message_size: int = 1000) -> Assembly:
    assembly = Assembly(METHOD)
    assembly.add_header(header(size), 4088, max_message_size)
    return assembly


def test_the_content_has_all_frames() -> None:
    assembly = Assembly(METHOD)
    assert assembly.missing == -1
    assembly.add_header(header(5), 4088, 1000)
    assert (assembly.body_size, assembly.missing) == (5, 5)
    assembly.add_body(body(b"abc"))
    assert assembly.missing == 2
    assembly.add_body(body(b"de"))
    assert assembly.missing == 0
    content = assembly.content(1)
    assert (content.method, content.body, content.body_size) == (METHOD, b"abcde", 5)
    assert content.frames == header(5) + body(b"abc") + body(b"de")


def test_an_oversized_body_is_counted_and_not_stored() -> None:
    assembly = begun(11, 10)
    assert assembly.oversized
    assembly.add_body(body(b"x" * 11))
    assert (assembly.missing, assembly.frames) == (0, [header(11)])
    assert not begun(10, 10).oversized


@pytest.mark.pure
@pytest.mark.parametrize("large", [module.LARGE, 50])
@pytest.mark.parametrize("size, step", [(100, 1), (100, 99), (5000, 7), (20_000, 4088), (20_000, 4087)])
def test_many_small_pieces_are_joined_to_full_frames(
    size: int, step: int, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGE", large)
    _, server = opened(1, tune=(10, 4096, 0))
    whole = bytes(i % 251 for i in range(size))
    pieces = [body(b"") + body(whole[start : start + step]) for start in range(0, size, step)]
    server.receive_data(PUBLISH + header(size, b"\x10\0\2") + b"".join(pieces))
    ((_, content),) = server.events()
    assert isinstance(content, Content)
    assert (content.body, content.body_size, content.persistent) == (whole, size, True)
    full = encode_content(1, b"\x10\0\2", whole, 4096)
    assert len(content.frames) <= len(full) + 8 * (size // 4088 + 4)
    assert content.frames_for(5, 4096) == content.frames.replace(b"\3\0\1\0\0", b"\3\0\5\0\0").replace(
        b"\2\0\1", b"\2\0\5"
    )
    if large == 50:
        assert content.frames == full, "whatever frames it came in"


@pytest.mark.pure
@given(st.lists(st.integers(0, 600), max_size=30), st.integers(1, 700), st.integers(1, 900))
def test_a_large_body_is_stored_in_full_frames(sizes: list[int], payload: int, full: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LARGE", 1)
        patch.setattr(module, "FULL", full)
        whole = bytes(i % 251 for i in range(sum(sizes) + 2))
        assembly = Assembly(METHOD)
        assembly.add_header(encode_frame(2, 7, HEADER_FIXED.pack(60, 0, len(whole)) + b"\0\0"), payload, 1 << 20)
        at = 0
        for size in (*sizes, 2):
            assembly.add_body(encode_frame(3, 7, whole[at : at + size]))
            at += size
    content = assembly.content(7)
    assert content.channel == 1
    assert content.frames == encode_content(1, b"\0\0", whole, min(payload, full) + 8)


def test_empty_body_frames_cost_no_memory() -> None:
    _, server = opened(1)
    server.receive_data(PUBLISH + header(1) + body(b"") * 10_000)
    assert len(server._assemblies[1].frames) == 1
    server.receive_data(body(b"x"))
    ((_, content),) = server.events()
    assert isinstance(content, Content)
    assert (content.method, content.frames, content.body_size) == (PUBLISH[7:-1], header(1) + body(b"x"), 1)


@pytest.mark.parametrize(
    "frame, text",
    [
        (header(1, class_id=50), "expected content header for class 60, got one for class 50 instead"),
        (header(1, weight=1), "expected content header for class 60, got non content header frame instead"),
    ],
)
def test_a_wrong_header_is_refused(frame: bytes, text: str) -> None:
    with pytest.raises(errors.RemoteProtocolError, match=text) as caught:
        Assembly(METHOD).add_header(frame, 4088, 1000)
    assert (caught.value.reply_code, caught.value.answer.class_id, caught.value.answer.method_id) == (505, 60, 40)


def test_a_frame_out_of_order_is_refused() -> None:
    with pytest.raises(errors.RemoteProtocolError, match="expected content header for class 60, got non content"):
        Assembly(METHOD).add_body(body(b"a"))
    with pytest.raises(errors.RemoteProtocolError, match="expected content body, got non content body frame instead"):
        begun(1).add_header(header(1), 4088, 1000)


def test_a_body_longer_than_announced_is_refused() -> None:
    with pytest.raises(errors.RemoteProtocolError, match="content body exceeds the 1 bytes of its header") as caught:
        begun(1).add_body(body(b"ab"))
    assert caught.value.reply_code == 501


def test_a_second_header_that_is_cut_short_is_out_of_order_too() -> None:
    _, server = opened(1)
    with pytest.raises(errors.RemoteProtocolError, match="expected content body, got non content body frame instead"):
        server.receive_data(PUBLISH + header(1) + encode_frame(2, 1, b"\0\x3c"))


def test_a_large_body_is_gathered_as_it_comes() -> None:
    size = module.LARGE + 5
    whole = bytes(range(256)) * (size // 256 + 1)
    whole = whole[:size]
    _, server = opened(1, tune=(10, 131_072, 0))
    server.max_message_size = size
    frames = encode_content(1, b"\0\0", whole, 131_072)
    server.receive_data(PUBLISH + frames)
    ((_, content),) = server.events()
    assert isinstance(content, Content)
    assert content.frames == frames
    assert content.body == whole
