"""docs/explanation/performance.md: its tables and charts are those of the measured figures in tools/charts."""

from __future__ import annotations

import pytest

from benchmarks.figures import growth_tables, limit_table
from tests.docs.tables import tables
from tools.charts.__main__ import PAGE, PICTURES, charts, growth, limit, with_figures

TEXT = PAGE.read_text("utf-8")
AGAIN = "python -m tools.charts"


def test_tables_have_the_figures_of_the_files() -> None:
    found = tables(PAGE)
    for rows in (*growth_tables(growth()), limit_table(limit())):
        assert rows in found, f"{rows[0][0]}: {AGAIN}"
    assert with_figures(TEXT) == TEXT, AGAIN


@pytest.mark.parametrize("name", charts(TEXT))
def test_a_chart_is_drawn_from_the_figures(name: str) -> None:
    assert (PICTURES / name).read_text("utf-8") == charts(TEXT)[name], AGAIN
    assert f"]({PICTURES.name}/{name})" in TEXT


def test_the_machine_of_the_figures_is_named() -> None:
    for machine in (growth()["machine"], limit()["machine"]):
        assert machine in " ".join(TEXT.split())


def test_every_curve_that_grows_is_explained() -> None:
    """An exponent above 0.1 has its reason on the page: the name of its curve, in italics."""
    for rows in growth_tables(growth()):
        if rows[0][0] == "CPU us per message":
            for name, *_, exponent in rows[1:]:
                assert float(exponent) <= 0.1 or f"*{name}*" in TEXT, name
