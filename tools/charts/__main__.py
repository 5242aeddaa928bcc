"""Write the charts and the measured tables of docs/explanation/performance.md again: python -m tools.charts

The figures are in growth.json and limit.json beside this file, which the benchmarks write:

    python benchmarks/growth.py --json tools/charts/growth.json
    python benchmarks/limit.py --json tools/charts/limit.json

The chart of Harebell beside RabbitMQ is drawn from the page's own tables.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from benchmarks.figures import Growth, Limit, growth_tables, limit_table, markdown
from tools.charts.draw import draw_growth, draw_limit, draw_peers, peers
from tools.charts.page import tables, with_table

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "explanation" / "performance.md"
PICTURES: Final = PAGE.parent / "pictures"


def growth() -> Growth:
    read: Growth = json.loads(Path(__file__).with_name("growth.json").read_text("utf-8"))
    return read


def limit() -> Limit:
    read: Limit = json.loads(Path(__file__).with_name("limit.json").read_text("utf-8"))
    return read


def charts(page: str) -> dict[str, str]:
    """The content of each picture, by its name."""
    return {
        "growth.svg": draw_growth(growth()),
        "limit.svg": draw_limit(limit()),
        "peers.svg": draw_peers(peers(tables(page))),
    }


def with_figures(page: str) -> str:
    """The page with the tables of the figures that are here."""
    for rows in (*growth_tables(growth()), limit_table(limit())):
        page = with_table(page, markdown(rows))
    return page


def main() -> None:
    page = with_figures(PAGE.read_text("utf-8"))
    PAGE.write_text(page, "utf-8")
    PICTURES.mkdir(exist_ok=True)
    for name, picture in charts(page).items():
        (PICTURES / name).write_text(picture, "utf-8")
        print(PICTURES / name)


if __name__ == "__main__":
    main()
