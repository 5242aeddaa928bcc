"""Exponents, tables and files of benchmarks/growth.py and limit.py."""

from __future__ import annotations

import pytest

from benchmarks.figures import (
    BYTES,
    MEGABYTE,
    Growth,
    Limit,
    exponent,
    growth_tables,
    in_bytes,
    least,
    limit_table,
    markdown,
    number,
    power,
)

TENS = (1, 10, 100, 1000)


@pytest.mark.parametrize("slope", [-1.0, 0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("cost", [0.001, 3.0, 5e6])
def test_the_exponent_of_a_power_is_that_power(slope: float, cost: float) -> None:
    assert exponent({size: cost * size**slope for size in TENS}) == pytest.approx(slope)


def test_the_exponent_is_the_slope_of_the_line_that_fits_best() -> None:
    assert exponent({1: 1.0, 10: 10.0, 100: 10.0}) == pytest.approx(0.5)
    assert exponent({1: 2.0, 10: 1.0, 100: 2.0}) == pytest.approx(0.0)
    assert exponent({1: 5.0, 1000: 5.0 + 1000 * 0.001}) == pytest.approx(0.026, abs=0.001)


def test_points_without_a_logarithm_do_not_count() -> None:
    assert exponent({0: 77.0, 1: 2.0, 10: 20.0, 100: 0.0}) == pytest.approx(1.0)


@pytest.mark.parametrize("points", [{}, {10: 3.0}, {0: 1.0, 10: 3.0}, {0: 1.0}, {1000: 1.0, 2000: 3.0}])
def test_points_that_are_near_each_other_have_no_exponent(points: dict[int, float]) -> None:
    assert exponent(points) is None
    assert power(exponent(points)) == ""


@pytest.mark.parametrize(("slope", "shown"), [(0.994, "0.99"), (-0.001, "0.00"), (-0.25, "-0.25"), (None, "")])
def test_how_an_exponent_is_shown(slope: float | None, shown: str) -> None:
    assert power(slope) == shown


@pytest.mark.parametrize(("figure", "shown"), [(0.34, "0.3"), (99.94, "99.9"), (100.2, "100"), (12345.6, "12,346")])
def test_how_a_figure_is_shown(figure: float, shown: str) -> None:
    assert number(figure) == shown


@pytest.mark.parametrize(("size", "shown"), [(16, "16 B"), (1024, "1 KiB"), (65_536, "64 KiB"), (1 << 20, "1 MiB")])
def test_how_a_size_is_shown(size: int, shown: str) -> None:
    assert in_bytes(size) == shown


GROWTH: Growth = {
    "machine": "one",
    "broker": "harebell",
    "curves": {
        "queues": {
            "message": {"1": [3.0, 9.0, 4.0], "10": [3.0], "1000": [3.0, 3.0]},
            "more": {"10": [210.0, 205.0]},
            "memory": {"1000": [300.0, 900.0, 400.0], "5000": [300.0, 900.0, 400.0], "10000": [400.0]},
        },
        "waiting messages": {"message": {"0": [1.0], "10": [1.0], "100": [10.0]}, "more": {}, "memory": {}},
        BYTES: {"message": {"16": [1.6], "1024": [102.4]}, "more": {}, "memory": {}},
    },
}


def test_the_least_of_the_rounds_counts() -> None:
    assert least(GROWTH["curves"]["queues"]["message"]) == {1: 3.0, 10: 3.0, 1000: 3.0}


def test_tables_of_growth() -> None:
    assert 1000 * 400 < MEGABYTE < 5000 * 400  # less than a megabyte is not told
    assert growth_tables(GROWTH) == [
        [
            ["CPU us per message", "0", "1", "10", "100", "1,000", "exponent"],
            ["queues", "", "3.0", "3.0", "", "3.0", "0.00"],
            ["waiting messages", "1.0", "", "1.0", "10.0", "", "1.00"],
        ],
        [["CPU us for one more", "10", "exponent"], ["queues", "205", ""]],
        [["bytes each", "5,000", "10,000", "exponent"], ["queues", "400", "400", ""]],
        [
            ["message size", "16 B", "1 KiB", "exponent"],
            ["CPU us per message", "1.6", "102", "1.00"],
            ["CPU ns per byte", "100", "100", "0.00"],
        ],
    ]


def test_table_of_the_limit() -> None:
    limit: Limit = {
        "machine": "one",
        "cases": {
            "100 B": {"loopback": [0.1], "disk": [], "harebell": [4.0], "read": [5000.0], "write": [4000.0]},
            "stored": {"loopback": [1.0], "disk": [1.0], "harebell": [4.0], "read": [5000.0], "write": [4000.0]},
        },
    }
    _, fast, stored = limit_table(limit)
    assert fast == ["100 B", "0.10", "", "0.10", "4.00", "40.0x", "5,000", "4,000"]
    assert stored == ["stored", "1.00", "1.00", "2.00", "4.00", "2.0x", "5,000", "4,000"]


def test_a_table_in_markdown() -> None:
    assert markdown([["what", "1", "10"], ["a", "2.0", ""]]).splitlines() == [
        "| what |   1 | 10 |",
        "|------|----:|---:|",
        "| a    | 2.0 |    |",
    ]
