"""Blocks against the engine: the same messages, whatever they are and wherever the bytes end."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pytest

from harebell.protocol.v091 import Properties, Table
from harebell.protocol.v091.codec import HEARTBEAT_FRAME
from harebell.spark.schema import Rows, row_schema
from harebell.spark.streams.blocks import Block, Irregular, marker, scan
from harebell.spark.streams.columns import Columns
from tests.spark.wire import delivered, one_by_one

TAG = "harebell-abc"
MARK = marker(TAG)
SCHEMA = row_schema()

HEADERS: list[Table | None] = [
    None,
    {"k": 1},
    {"text": "ä", "deep": {"list": [1, None, {"x": True}]}, "when": datetime(2026, 1, 5, tzinfo=UTC)},
    {"bytes": b"\xff\xfe", "price": Decimal("1.5"), "big": 1 << 40},
    {"x": "\x0fx-stream-offsetl\0\0\0\0\0\0\0\1"},  # looks like the number, and is somebody's text
]


def messages(count: int, seed: int, *, last: bool = False, plain: bool = False) -> tuple[bytes, list[int]]:
    """So many different deliveries, and where each of them ends."""
    dice = random.Random(seed)
    data, ends, number = b"", [], 1000
    for tag in range(1, count + 1):
        number += dice.choice([1, 1, 1, 5])
        properties = Properties()
        if not plain:
            properties = Properties(
                headers=dice.choice(HEADERS),
                content_type=dice.choice([None, "text/plain", ""]),
                content_encoding=dice.choice([None, None, "gzip"]),
                delivery_mode=dice.choice([None, 1, 2]),
                priority=dice.choice([None, 0, 9]),
                correlation_id=dice.choice([None, "c\udcff", "c"]),  # bytes that are not UTF-8
                expiration=dice.choice([None, "60000"]),
                message_id=dice.choice([None, f"m{tag}"]),
                timestamp=dice.choice([None, datetime(2026, 1, 5, 10, tzinfo=UTC), 1_767_600_000_000, 2**63 + 5]),
                type=dice.choice([None, "t"]),
                app_id=dice.choice([None, "a" * 255]),
            )
        data += delivered(
            tag, TAG, properties, dice.choice([b"", b"x", bytes(200), MARK, MARK * 3, b"\x01\0\x01" + MARK]),
            number=number, last=last, key=dice.choice(["", "a.b", "z" * 255, "\udc80"]),
            exchange=dice.choice(["", "e"]), redelivered=dice.random() < 0.1,
        )  # fmt: skip
        ends.append(len(data))
    return data, ends


def blocks_of(data: bytes) -> list[Block]:
    found, at = [], 0
    while at < len(data):
        block, used = scan(data[at:], MARK)
        assert block is not None
        assert used == block.used
        found.append(block)
        at += used
    return found


@pytest.mark.parametrize("last", [False, True], ids=["number first", "number last"])
@pytest.mark.parametrize("seed", range(4))
def test_every_column_is_as_the_engine_has_it(seed: int, last: bool) -> None:
    data, _ = messages(150, seed, last=last)
    expected = one_by_one(data)
    done = 0
    for block in blocks_of(data):
        part = expected[done : done + len(block)]
        done += len(block)
        numbers = [delivery.stream_offset for delivery in part]
        assert block.numbers.tolist() == numbers
        assert block.last_tag == part[-1].delivery_tag
        rows = np.arange(len(block))
        assert Columns(SCHEMA).batch("q", block, rows).equals(Rows(SCHEMA).batch("q", part, numbers))  # type: ignore[arg-type]
        few = rows[::3]
        chosen = Rows(SCHEMA).batch("q", part[::3], numbers[::3])  # type: ignore[arg-type]
        assert Columns(SCHEMA).batch("q", block, few).equals(chosen)
        assert Columns(SCHEMA).batch("q", block.deliveries(few), np.arange(len(few))).equals(chosen)
    assert done == len(expected)


def test_messages_without_anything_of_their_own() -> None:
    data, _ = messages(50, 9, plain=True)
    [first, *_] = blocks_of(data)
    batch = Columns(SCHEMA).batch("q", first, np.arange(len(first)))
    assert batch.column("headers").null_count == len(first)
    assert batch.column("message_id").null_count == len(first)


def test_bytes_that_end_anywhere_give_the_whole_messages_before() -> None:
    data, ends = messages(6, 3)
    ends = [0, *ends]
    for cut in range(len(data) + 1):
        whole = [end for end in ends if end <= cut][-1]
        done = 0
        while True:
            block, used = scan(data[done:cut], MARK)
            if block is None:
                break
            done += used
        assert done == whole


@pytest.mark.parametrize(
    "what",
    [
        HEARTBEAT_FRAME,
        delivered(1, "another", Properties(), b"x", number=1),
        delivered(1, TAG, Properties(), bytes(5000), number=1, frame_max=4096),
    ],
    ids=["a heartbeat", "another consumer's", "several frames"],
)
def test_what_is_of_another_form_is_left(what: bytes) -> None:
    before = b"".join(delivered(tag, TAG, Properties(), b"x", number=tag) for tag in (1, 2, 3))
    block, used = scan(before + what + before, MARK)
    assert block is not None
    assert (len(block), used) == (3, len(before))
    assert scan(what + before, MARK) == (None, 0)


def test_a_wrong_byte_in_the_framing_is_never_passed_over() -> None:
    data = delivered(1, TAG, Properties(message_id="i"), b"body", number=7, key="key")
    whole, _ = scan(data, MARK)
    assert whole is not None
    header = data.index(b"\xce\x02\0\x01") + 1
    body = data.index(b"\xce\x03\0\x01") + 1
    # the prefix of each frame, the frame-end before it, class, weight and size of the body, and the last frame-end
    framing = [*range(7), *range(header - 1, header + 19), *range(body - 1, body + 7), len(data) - 1]
    for at in framing:
        broken = bytearray(data)
        broken[at] ^= 0x55
        block, _ = scan(bytes(broken) + data, MARK)
        assert block is None, at


def test_a_message_without_a_number_is_not_for_a_block() -> None:
    tables: tuple[Table | None, ...] = (None, {"x": 1}, {"x-stream-offset": "7"})
    for headers in tables:
        block, _ = scan(delivered(1, TAG, Properties(headers=headers), b"x"), MARK)
        assert block is not None
        with pytest.raises(Irregular):
            block.numbers  # noqa: B018
