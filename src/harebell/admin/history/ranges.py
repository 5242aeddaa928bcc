"""Rates and samples of figures, as RabbitMQ's `..._details` objects have them.

Without a range, details are the rate of the last interval. With one (`lengths_age` and `lengths_incr`, ...: seconds),
they also have the samples, newest first, with their average and the average rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeVar

from harebell.admin.answers import bad_request
from harebell.admin.history.sampler import Group, Sampler
from harebell.admin.history.series import TICK

__all__ = ["NONE", "Range", "Ranges", "Rates", "ranges_of"]

K = TypeVar("K")

MOST_SAMPLES: Final = 500  # RabbitMQ's
MOST_DIGITS: Final = 18  # of a number of seconds


class Range(NamedTuple):
    """Samples of the last `age` seconds, every `step` seconds."""

    age: int
    step: int


def _range(query: Mapping[str, str], name: str) -> Range | None:
    """The range that a query asks for; None where it lacks a part, or one is no number, as with RabbitMQ."""
    age, step = _whole(query.get(f"{name}_age", "")), _whole(query.get(f"{name}_incr", ""))
    if age is None or step is None:
        return None
    if age <= 0 or step <= 0 or age // step > MOST_SAMPLES:
        raise bad_request(f"Invalid range parameters: age {age}, incr {step}")
    return Range(age, step)


def _whole(text: str) -> int | None:
    digits = text[1:] if text[:1] in ("-", "+") else text
    return int(text) if digits.isascii() and digits.isdecimal() and len(digits) <= MOST_DIGITS else None


class Ranges(NamedTuple):
    """The ranges that a request asks for."""

    lengths: Range | None
    msg_rates: Range | None
    data_rates: Range | None
    node_stats: Range | None


NONE: Final = Ranges(None, None, None, None)


def ranges_of(query: Mapping[str, str]) -> Ranges:
    """The ranges in a query. Raises Refused for one with no or too many samples."""
    if not any(name.endswith("_age") for name in query):
        return NONE
    return Ranges(*(_range(query, name) for name in ("lengths", "msg_rates", "data_rates", "node_stats")))


class Rates:
    """The rates and samples that a sampler has."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def details(self, group: Group[K], key: K, figure: str, value: int, span: Range | None = None) -> dict[str, Any]:
        """The details of a figure of an object, whose value now is `value`."""
        rate = self._sampler.rate(group, key, figure)
        if span is None:
            return {"rate": rate}
        sampler, record = self._sampler, group.records.get(key)
        count = span.age // span.step + 1
        ticks = [sampler.tick - round(number * span.step / TICK) for number in range(count)]
        values = [value] * count if record is None else record.values(group.figures[figure], ticks, value)
        at = sampler.at * 1000
        samples = [
            {"sample": each, "timestamp": round(at - number * span.step * 1000)} for number, each in enumerate(values)
        ]
        return {
            "rate": rate,
            "samples": samples,
            "avg": sum(values) / count,
            "avg_rate": (values[0] - values[-1]) / span.age,
        }
