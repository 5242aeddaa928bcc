"""The options that stream queues alone have: which ones, from where to where, which messages.

Rules: those of `options`, which knows all names and hands over what was given. Nothing here asks a broker.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from harebell.errors import InvalidArgument
from harebell.spark.options.positions import Position, Positions, check_known, moment, positions

__all__ = ["StreamOptions", "check_places", "position_for", "stream_options"]

BOTH: Final = (
    "queuePattern", "superstream", "managementUrl", "startingOffsets", "startingTimestamp", "failOnDataLoss",
    "routingKeyPattern", "filterValues", "matchUnfiltered",
)  # fmt: skip
BATCH: Final = ("endingOffsets", "endingTimestamp")


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The checked options about stream queues.

    pattern          matches the whole names of the queues to read; None when they are named
    superstream      the name whose partitions `name-0`, `name-1`, ... are read
    key_pattern      a topic pattern that a message's routing key has to match
    filter_values    of the header x-stream-filter-value; () is all messages
    match_unfiltered with filter_values: messages without that header too
    """

    starting: Positions
    ending: Positions
    pattern: re.Pattern[str] | None
    superstream: str | None
    management_url: str | None
    key_pattern: str | None
    filter_values: tuple[str, ...]
    match_unfiltered: bool


def stream_options(given: Mapping[str, str], queues: tuple[str, ...], match_unfiltered: bool) -> StreamOptions:
    """The checked options out of what was given, names lower-cased. Raises InvalidArgument."""
    for one, other in (("startingoffsets", "startingtimestamp"), ("endingoffsets", "endingtimestamp")):
        if one in given and other in given:
            kind = "starting" if one.startswith("s") else "ending"
            raise InvalidArgument(f"give either option '{kind}Offsets' or option '{kind}Timestamp'")
    starting: Positions
    ending: Positions
    if "startingtimestamp" in given:
        starting = moment("startingTimestamp", given["startingtimestamp"])
    else:
        starting = positions("startingOffsets", given.get("startingoffsets", "earliest"), queues)
    if "endingtimestamp" in given:
        ending = moment("endingTimestamp", given["endingtimestamp"])
    else:
        ending = positions("endingOffsets", given.get("endingoffsets", "latest"), queues, ("latest", "next"))
    values = tuple(dict.fromkeys(v.strip() for v in given.get("filtervalues", "").split(",") if v.strip()))
    if "filtervalues" in given and not values:
        raise InvalidArgument(
            f"option 'filterValues' is {given['filtervalues']!r}, without a value: leave it out to read all messages"
        )
    if "matchunfiltered" in given and not values:
        raise InvalidArgument("option 'matchUnfiltered' adds to 'filterValues', which is not given")
    return StreamOptions(
        starting=starting,
        ending=ending,
        pattern=_pattern(given.get("queuepattern")),
        superstream=given.get("superstream"),
        management_url=_management(given.get("managementurl"), "queuepattern" in given),
        key_pattern=given.get("routingkeypattern"),
        filter_values=values,
        match_unfiltered=match_unfiltered,
    )


def position_for(options: Positions, queue: str) -> Position:
    """The position where this queue begins or ends; a queue that JSON does not name begins at its beginning."""
    return options.get(queue, "earliest") if isinstance(options, dict) else options


def check_places(options: StreamOptions, queues: Collection[str]) -> None:
    """Raises InvalidArgument for a position of a queue that is none of these, found by a pattern or as a super-stream.

    Where the queues are named, that was checked with the options.
    """
    for name, given in (("startingOffsets", options.starting), ("endingOffsets", options.ending)):
        if isinstance(given, dict):
            check_known(name, given, queues)


def _pattern(text: str | None) -> re.Pattern[str] | None:
    if text is None:
        return None
    try:
        return re.compile(text)
    except re.error as error:
        raise InvalidArgument(f"option 'queuePattern' is {text!r}, which is no regular expression: {error}") from None


def _management(url: str | None, pattern: bool) -> str | None:
    if url is None:
        return None
    if not pattern:
        raise InvalidArgument("option 'managementUrl' is for 'queuePattern', which is not given")
    if urlsplit(url).scheme not in ("http", "https"):
        raise InvalidArgument("option 'managementUrl' must start with http:// or https://")
    return url
