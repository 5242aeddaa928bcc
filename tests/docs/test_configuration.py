"""The page on configuration says what the code says."""

from __future__ import annotations

import pytest

from harebell.broker.connections import base as connection, credit_flow as flow
from harebell.broker.net import transport
from harebell.broker.operations.alarms import EASE, MEASURE_MS
from harebell.broker.store import open_files
from harebell.broker.v091 import cached_targets
from harebell.defaults import MAX_TABLE_DEPTH
from tools.option_table import PAGE, rendered


def test_the_tables_are_those_of_the_code() -> None:
    page = PAGE.read_text("utf-8")
    assert rendered(page) == page, "run: python tools/option_table.py"
    assert page.count("| `--") > 25


@pytest.mark.parametrize(
    "says, value, is_",
    [
        ("routing keys | 255 bytes", 255, 255),
        ("nesting depth of tables and arrays | 64", MAX_TABLE_DEPTH, 64),
        ("remembered per connection | 16,384", cached_targets.MAX_TARGETS, 16_384),
        ("no sync covers | 8 MiB", flow.LIMIT, 8 << 20),
        ("during an alarm, per connection | 128 KiB", connection.WAITING_BYTES, 128 << 10),
        ("before its consumers wait | 1 MiB", transport.OUTPUT_HIGH_WATER, 1 << 20),
        ("before its requests wait | 8 MiB", connection.OUTPUT_BYTES, 8 << 20),
        ("reads none of its output | 10 heartbeats", transport.STUCK_BEATS, 2 * 10),
        ("`connection.close` | 30 s", connection.CLOSING_TIMEOUT, 30.0),
        ("store keeps 1,024", open_files.KEPT, 1024),
        ("looked at twice a second", MEASURE_MS, 500),
        ("5 % to spare", EASE, 0.05),
    ],
)
def test_limits_that_are_no_options(says: str, value: float, is_: float) -> None:
    assert says in " ".join(PAGE.read_text("utf-8").split())
    assert value == is_
