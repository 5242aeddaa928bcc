"""A plug-in of Harebell's broker: an exchange type that routes by place, and a service that measures distances.

A queue is bound to an exchange of the type `x-nearby` by a circle, "latitude,longitude,kilometres". A message with the
headers `latitude` and `longitude` goes to the queues whose circles it is in. The argument `default-kilometres` of the
exchange is for bindings that name no radius.

The service `nearby.distance` answers {"from": [latitude, longitude], "to": [latitude, longitude]} by the kilometres.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from harebell.broker import Binding, Dependence, Plugin, RoutedMessage, ServiceRequest
from harebell.errors import PreconditionFailed

EARTH_KM = 6371.0


class Place(NamedTuple):
    latitude: float
    longitude: float

    def kilometres_to(self, other: Place) -> float:
        """The distance on a sphere (the haversine formula)."""
        here, there = math.radians(self.latitude), math.radians(other.latitude)
        north, east = there - here, math.radians(other.longitude - self.longitude)
        share = math.sin(north / 2) ** 2 + math.cos(here) * math.cos(there) * math.sin(east / 2) ** 2
        return 2 * EARTH_KM * math.asin(math.sqrt(min(1.0, share)))


class Circle(NamedTuple):
    centre: Place
    kilometres: float


class Nearby:
    """The bindings of one exchange of the type: a circle each."""

    depends_on = Dependence.HEADERS  # so that messages with the same headers are matched once

    def __init__(self, arguments: Mapping[str, object]) -> None:
        radius = arguments.get("default-kilometres", 10)
        if isinstance(radius, bool) or not isinstance(radius, int) or radius <= 0:
            raise PreconditionFailed(f"default-kilometres must be a number above 0, and is {radius!r}")
        self._radius = radius
        self._circles: dict[Binding, Circle] = {}

    def add(self, binding: Binding) -> None:
        try:
            numbers = [float(part) for part in binding.binding_key.split(",")]
            latitude, longitude, kilometres = numbers if len(numbers) == 3 else (*numbers, self._radius)
        except ValueError:
            raise PreconditionFailed(
                f"the binding key '{binding.binding_key}' must be latitude,longitude or latitude,longitude,kilometres"
            ) from None
        self._circles[binding] = Circle(Place(latitude, longitude), kilometres)

    def remove(self, binding: Binding) -> None:
        del self._circles[binding]

    def match(self, message: RoutedMessage) -> Iterable[Binding]:
        place = place_of([message.headers.get("latitude"), message.headers.get("longitude")])
        if place is None:
            return []  # it goes to the alternate exchange, or back to its publisher if it is mandatory
        return [
            binding
            for binding, circle in self._circles.items()
            if circle.centre.kilometres_to(place) <= circle.kilometres
        ]


def distance(request: ServiceRequest) -> dict[str, float]:
    """The answer of `nearby.distance`."""
    try:
        asked = json.loads(request.body)
        start, end = place_of(asked["from"]), place_of(asked["to"])
    except (ValueError, KeyError, TypeError):
        start = end = None
    if start is None or end is None:
        raise PreconditionFailed('the body must be {"from": [latitude, longitude], "to": [latitude, longitude]}')
    return {"kilometres": round(start.kilometres_to(end), 1)}


def place_of(numbers: Sequence[object]) -> Place | None:
    """The place that two numbers are; None for anything else."""
    found = [float(each) for each in numbers if isinstance(each, (int, float)) and not isinstance(each, bool)]
    return Place(*found) if len(found) == len(numbers) == 2 else None


PLUGIN = Plugin(exchange_types={"x-nearby": Nearby}, services={"nearby.distance": distance})
