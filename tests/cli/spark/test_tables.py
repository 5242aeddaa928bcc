"""Tables of the Spark commands: names stay whole on a narrow terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from harebell.cli.spark.deadletters import table
from harebell.cli.spark.tables import listing, right

NAME = "orders.of.the.shop.in.a.country.far.away-"


@pytest.mark.parametrize("width", [80, 60])
def test_names_are_folded_and_never_cut(width: int) -> None:
    queues = listing("queue", "type", *map(right, ("messages", "bytes", "a second", "at most")))
    for number in (1, 2):
        queues.add_row(f"{NAME}{number}", "quorum", "12,345,678", "1.5 GiB", "1,234", "5,678")
    rows = [
        {"queue": f"{NAME}{number}", "reason": "rejected", "messages": 12_345_678, "deaths": 1} for number in (1, 2)
    ]
    for made in (queues, table(("queue", "reason", "messages", "deaths"), rows)):
        written = io.StringIO()
        Console(file=written, width=width).print(made)
        text = written.getvalue()
        assert "…" not in text
        assert text.count("12,345,678") == 2
        first = "".join(line.split(" ", 1)[0] for line in text.splitlines() if line)
        assert f"{NAME}1{NAME}2" in first.replace("queue", "", 1).replace("─", "").replace("━", "")
