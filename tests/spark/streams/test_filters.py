"""What a selection leaves, over blocks and over single deliveries."""

from __future__ import annotations

import numpy as np

from harebell.protocol.v091 import Properties
from harebell.spark.streams.blocks import marker, scan
from harebell.spark.streams.filters import Selection
from tests.spark.wire import delivered, one_by_one

KEYS = ["orders.de.new", "orders.fr.new", "orders.de.paid", "stock", ""]
# Message n: key n % 5, filter value "v<n % 3>" but for every third.
DATA = b"".join(
    delivered(
        n + 1, "c",
        Properties(
            headers=None if n % 3 == 2 else {"x-stream-filter-value": f"v{n % 3}", "n": n},
        ),
        b"%d" % n, number=n, key=KEYS[n % 5],
    )
    for n in range(20)
)  # fmt: skip
BLOCK, _ = scan(DATA, marker("c"))


def left(selection: Selection) -> list[int]:
    assert BLOCK is not None
    assert len(BLOCK) == 20
    rows = selection.chooser()("q", BLOCK, np.arange(20))
    single = selection.chooser()("q", one_by_one(DATA), np.arange(20))
    chosen: list[int] = rows.tolist()
    assert chosen == single.tolist()
    return chosen


def test_patterns_of_keys_and_values_of_filters() -> None:
    assert left(Selection(key_pattern="orders.*.new")) == [n for n in range(20) if n % 5 in (0, 1)]
    assert left(Selection(key_pattern="#")) == list(range(20))
    assert left(Selection(filter_values=("v1",))) == [n for n in range(20) if n % 3 == 1]
    assert left(Selection(filter_values=("v1",), match_unfiltered=True)) == [n for n in range(20) if n % 3]
    assert left(Selection(key_pattern="stock", filter_values=("v0",))) == [3, 18]
