"""Headers that brokers add are left out, in a stated order, where a header frame is too long with them."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given, strategies as st

from harebell.errors import LocalProtocolError
from harebell.protocol.v091 import Content, FieldValue, Properties, Table, encode_content
from harebell.protocol.v091.fields import write_table
from harebell.protocol.v091.fitting import fits, fitting_frames, shortened, without_long_headers
from harebell.protocol.v091.splice import header_frame_size
from harebell.protocol.v091.typed_values import Int64
from tests.headers import entries_of
from tests.protocol.v091 import strategies

DEATHS: Final[list[FieldValue]] = [{"count": Int64(number), "queue": "q" * 20} for number in range(4)]
ADDED: Final[Table] = {
    "x-stream-offset": Int64(1),
    "x-death": DEATHS,
    **{
        f"x-{which}-death-{what}": "of a queue"
        for which in ("first", "last")
        for what in ("reason", "queue", "exchange")
    },
    "x-delay": -5,
    "x-delivery-count": Int64(7),
}
# What is left, step by step: the number of deaths, and the other headers.
STEPS: Final = [
    (4, sorted({*ADDED} - {"x-death"})),
    *((deaths, sorted({*ADDED} - {"x-death", "x-delivery-count"})) for deaths in (4, 3, 2, 1)),
    *(
        (1, sorted({*ADDED} - {"x-death", "x-delivery-count", *gone}))
        for gone in [
            [f"x-last-death-{what}" for what in ("reason", "queue", "exchange")][:count]
            + [f"x-first-death-{what}" for what in ("reason", "queue", "exchange")][: max(0, count - 3)]
            for count in range(1, 7)
        ]
    ),
    (0, ["x-delay", "x-stream-offset"]),
    (0, ["x-stream-offset"]),
    (0, []),
]  # fmt: skip


def content(headers: Table | None, body: bytes = b"body") -> Content:
    properties = Properties(content_type="text/plain", headers=headers, message_id="m")
    return Content(1, b"", encode_content(1, properties, body, 0), len(body))


def headers_of(frames: bytes) -> Table:
    return Content(1, b"", frames, 0).decode_properties().headers or {}


def test_the_order_in_which_headers_are_left_out() -> None:
    mine: Table = {"mine": 1, "x-mine": "x" * 3000}
    whole = content({**ADDED, **mine}).frames
    seen = []
    for frame_max in range(header_frame_size(whole), 0, -1):
        frames = shortened(whole, frame_max)
        if frames is None:
            break
        assert header_frame_size(frames) <= frame_max
        left = headers_of(frames)
        assert {name: left.pop(name) for name in mine} == mine
        deaths = left.pop("x-death", [])
        assert isinstance(deaths, list)
        assert deaths == DEATHS[: len(deaths)]
        step = len(deaths), sorted(left)
        if step not in seen:
            seen.append(step)
    assert seen == STEPS
    assert frame_max == header_frame_size(content(mine).frames) - 1


@given(mine=strategies.tables, frame_max=st.integers(60, 600))
def test_what_fits_without_them_fits(mine: Table, frame_max: int) -> None:
    mine = {name: value for name, value in mine.items() if name not in ADDED}
    bare, whole = content(mine), content({**mine, **ADDED})
    assert fits(whole.frames, frame_max) == (header_frame_size(bare.frames) <= frame_max)
    if fits(whole.frames, frame_max):
        frames = fitting_frames(whole, 3, frame_max)
        assert isinstance(frames, bytes)
        assert header_frame_size(frames) <= frame_max
        entries = entries_of(Content(3, b"", frames, 0).raw_headers)
        assert {name: value for name, value in entries.items() if name not in ADDED} == entries_of(write_table(mine))
    else:
        with pytest.raises(LocalProtocolError, match="frame_max"):
            fitting_frames(whole, 3, frame_max)


@pytest.mark.parametrize("deaths", ["none", [], ["x"], [[]], 5, {"x": "y"}])
def test_an_x_death_of_somebody_else(deaths: object) -> None:
    whole = content({"x-death": deaths, "mine": "x" * 50})  # type: ignore[dict-item]
    bare = header_frame_size(content({"mine": "x" * 50}).frames)
    frames = shortened(whole.frames, bare)
    assert frames is not None
    assert headers_of(frames) == {"mine": "x" * 50}
    assert shortened(whole.frames, bare - 1) is None


def test_without_headers_nothing_can_be_left_out() -> None:
    assert shortened(content(None).frames, 10) is None
    alone = content({"x-delay": 5})
    frames = shortened(alone.frames, header_frame_size(content(None).frames))
    assert frames == content(None).frames
    assert shortened(alone.frames, header_frame_size(content(None).frames) - 1) is None


def test_a_message_of_our_own_goes_without_its_longest_headers() -> None:
    table: Table = {"a": "x" * 1000, "b": "y" * 3000, "c": 1}
    assert without_long_headers(table, 8000) is table
    assert without_long_headers(table, 6000) == {"a": "x" * 1000, "c": 1}
    assert without_long_headers(table, 2800) == {"c": 1}


def test_what_is_short_enough_goes_as_it_is() -> None:
    whole = content(ADDED)
    for frame_max in (0, len(whole.frames), header_frame_size(whole.frames)):
        assert fits(whole.frames, frame_max)
        frames = fitting_frames(whole, 1, frame_max)
        assert isinstance(frames, bytes)
        assert headers_of(frames) == ADDED
    assert not fits(content({"mine": "x" * 3000}).frames, 1000)
