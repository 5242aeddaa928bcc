"""Charts: every figure is in them, in its place, and they are well-formed pictures for light and dark."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from benchmarks.figures import Growth, Limit
from tools.charts.draw import draw_growth, draw_limit, draw_peers, peers
from tools.charts.page import tables, with_table
from tools.charts.svg import STYLE, WIDTH, LogScale, Svg

NAMES = "{http://www.w3.org/2000/svg}"

GROWTH: Growth = {
    "machine": "one",
    "broker": "harebell",
    "curves": {
        "queues": {"message": {"1": [4.0], "10": [4.0], "100": [8.0]}, "more": {}, "memory": {}},
        "consumers of a queue, one is free": {"message": {"1": [2.0], "10": [40.0]}, "more": {}, "memory": {}},
        "alone": {"message": {"1": [2.0]}, "more": {}, "memory": {}},
        "message size": {"message": {"16": [2.0], "256": [4.0]}, "more": {}, "memory": {}},
    },
}
LIMIT: Limit = {
    "machine": "one",
    "cases": {"<100 B>": {"loopback": [0.1], "disk": [], "harebell": [4.0], "read": [5000.0], "write": [4000.0]}},
}
PEERS = """\
| case | CPU us each: better by | harebell: CPU us each | rabbitmq: CPU us each |
|------|-----------------------:|----------------------:|----------------------:|
| a    |                   4.0x |                   2.5 |                  10.0 |
| b    |                   2.0x |                 1,000 |                 2,000 |

| case | CPU us, compiled |
|------|-----------------:|
| c    |              1.0 |
"""


def words(picture: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(picture).iter(f"{NAMES}text")]


def dots(picture: str) -> list[tuple[float, float]]:
    found = ElementTree.fromstring(picture).iter(f"{NAMES}circle")
    return [(float(dot.attrib["cx"]), float(dot.attrib["cy"])) for dot in found]


def test_a_panel_for_each_curve_that_has_two_points() -> None:
    picture = draw_growth(GROWTH)
    said = words(picture)
    assert {"queues", "exponent 0.15", "1: 4.0", "100: 8.0"} <= set(said)
    assert {"consumers of a queue", "one is free", "exponent 1.30", "10: 40.0"} <= set(said)
    assert "alone" not in said
    assert "message size" not in said
    points = dots(picture)
    assert len(points) == 5
    assert points[0][1] == points[1][1] > points[2][1]  # the same cost, and then twice that
    height = points[0][1] - points[2][1]
    assert points[3][1] - points[4][1] == pytest.approx(height * 4.32, rel=0.03)  # 20 times: log2 of that


def test_the_limit_beside_the_broker() -> None:
    picture = draw_limit(LIMIT)
    assert {"<100 B>", "0.10 / 4.00: 40.0x", "limit", "harebell"} <= set(words(picture))
    right, left = dots(picture)[2:]  # after the legend's
    assert left[0] < right[0]


def test_peers_are_read_from_the_tables_that_have_both() -> None:
    found = peers(tables(PEERS))
    assert found == {"a": ("2.5", "10.0", "4.0x"), "b": ("1,000", "2,000", "2.0x")}
    picture = draw_peers(found)
    assert "1,000 / 2,000: 2.0x" in words(picture)
    assert len(dots(picture)) == 2 + 4


@pytest.mark.parametrize("picture", [draw_growth(GROWTH), draw_limit(LIMIT), draw_peers(peers(tables(PEERS)))])
def test_pictures_stay_on_their_card_and_have_a_title(picture: str) -> None:
    root = ElementTree.fromstring(picture)
    _, _, width, height = map(int, root.attrib["viewBox"].split())
    assert width == WIDTH
    assert root.find(f"{NAMES}title") is not None
    for x, y in dots(picture):
        assert 5 <= x <= width - 5
        assert 5 <= y <= height - 5
    assert all(0 < float(element.attrib["y"]) < height for element in root.iter(f"{NAMES}text"))


def test_every_colour_has_one_for_dark_screens() -> None:
    light, dark = STYLE.split("@media (prefers-color-scheme: dark)")
    coloured = {line.split("{")[0].strip() for line in light.splitlines() if "#" in line}
    again = {line.split("{")[0].strip() for line in dark.splitlines() if "#" in line}
    assert coloured == again


def test_words_are_escaped() -> None:
    svg = Svg("a < b", 20)
    svg.text(1, 10, "c & d")
    assert words(svg.written()) == ["c & d"]


def test_a_logarithmic_scale() -> None:
    scale = LogScale(1, 100, 10, 30)
    assert [round(scale(figure), 6) for figure in (1, 10, 100)] == [10, 20, 30]


def test_a_table_takes_the_place_of_the_one_with_its_title() -> None:
    page = f"before\n\n{PEERS}\nafter\n\n| other | x |\n|---|---|\n| a | b |\n"
    changed = with_table(page, "| other | y |\n|---|---|\n| c | d |")
    assert changed == page.replace("| other | x |", "| other | y |").replace("| a | b |", "| c | d |")
    with pytest.raises(ValueError, match="'third'"):
        with_table(page, "| third | y |\n|---|---|")
