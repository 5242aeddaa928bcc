"""The table of property flags and the walks that are generated from it, compared with what Properties encodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given

from harebell.protocol.v091 import Properties, property_flags as flags
from tests.protocol.v091 import strategies

LOCATED: dict[str, Callable[[bytes, int], int]] = {
    "headers": flags.headers_at,
    "delivery_mode": flags.delivery_mode_at,
    "priority": flags.priority_at,
    "reply_to": flags.reply_to_at,
    "expiration": flags.expiration_at,
}
NAMES = tuple(name for _, name, _ in flags.FIELDS)
VALUES: dict[int, Any] = {flags.SHORT_STRING: "abc", flags.TABLE: {"a": 1}, 1: 2, 8: 3}


def test_the_table_has_every_property_in_order() -> None:
    assert Properties.__slots__ == NAMES
    assert [flag for flag, _, _ in flags.FIELDS] == [1 << bit for bit in range(15, 1, -1)]
    assert sum(flag for flag, _, _ in flags.FIELDS) + flags.UNUSED == 0xFFFF


@pytest.mark.parametrize("flag, name, size", flags.FIELDS)
def test_each_has_its_flag_and_its_size(flag: int, name: str, size: int) -> None:
    assert getattr(flags, name.upper()) == flag
    raw = Properties(**{name: VALUES[size]}).encode()
    assert int.from_bytes(raw[:2], "big") == flag
    if size > 0:
        assert len(raw) == 2 + size


ALL = Properties(
    content_type="t", content_encoding="e", headers={"h": 1}, delivery_mode=2, priority=3, correlation_id="c",
    reply_to="r", expiration="1", message_id="m", timestamp=1, type="y", user_id="u", app_id="a",
)  # fmt: skip


@pytest.mark.parametrize("name", LOCATED)
@given(properties=strategies.properties)
@example(properties=ALL)
@example(properties=Properties())
def test_a_property_is_where_the_ones_before_it_end(name: str, properties: Properties) -> None:
    before = Properties(**{each: getattr(properties, each) for each in NAMES[: NAMES.index(name)]}).encode()
    assert LOCATED[name](b"xyz" + properties.encode(), 3) == 3 + len(before)
