"""Positions in a stream queue, as a user writes them: where a reader begins or ends.

A position is a message number; "earliest", "latest" or "last" (the broker's last batch of messages); a moment, as a
datetime in whole seconds, which is what AMQP can say; or a span such as "1h" before now, in the broker's units. Moments
are those at which the broker stored a message, not what publishers wrote into its property timestamp.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Final

from harebell.errors import InvalidArgument
from harebell.spark.options.values import suggested

__all__ = ["Position", "Positions", "check_known", "moment", "position_of", "positions"]

Position = int | str | datetime
Positions = Position | dict[str, Position]
"""One position for all queues, or one for each queue by name."""

WORDS: Final = {"earliest": "earliest", "first": "earliest", "latest": "latest", "next": "latest", "last": "last"}
SHOWN: Final = 20  # names of queues in an error: a pattern may have found thousands
_SPAN: Final = re.compile(r"[0-9]{1,9}[YMDhms]")


def positions(name: str, text: str, queues: Collection[str], words: Collection[str] = tuple(WORDS)) -> Positions:
    """What the option `name` says: one position, or JSON with a position for each queue.

    queues  the names that JSON is to have; none where they are not known yet
    words   what is allowed beside numbers, in the option's text and in JSON

    Raises InvalidArgument, which says what is allowed.
    """
    given: object = text.strip()
    if isinstance(given, str) and given.startswith("{"):
        try:
            given = json.loads(given)
        except ValueError:
            raise _refusal(name, text, queues, words) from None
    if not isinstance(given, dict):
        position = position_of(given, words)
        if position is None or isinstance(position, int):
            raise _refusal(name, text, queues, words)
        return position
    found = {queue: position_of(value, words) for queue, value in given.items()}
    known = {queue: position for queue, position in found.items() if position is not None}
    if len(known) < len(found):
        raise _refusal(name, text, queues, words)
    if queues:
        _check_names(name, known, queues)
    return known


def check_known(name: str, known: Collection[str], queues: Collection[str]) -> None:
    """Raises InvalidArgument when there is a position for another queue than these."""
    unknown = [queue for queue in known if queue not in queues]
    if unknown:
        near = suggested(unknown[0], dict(zip(queues, queues, strict=True)))
        some = ", ".join(list(queues)[:SHOWN]) + (f" and {len(queues) - SHOWN} more" if len(queues) > SHOWN else "")
        raise InvalidArgument(
            f"option '{name}' has a position for '{unknown[0]}'{near}, which is none of the queues that are read: "
            f"{some}"
        )


def _check_names(name: str, known: Collection[str], queues: Collection[str]) -> None:
    """Raises InvalidArgument unless there is a position for each queue, and none for another."""
    check_known(name, known, queues)
    missing = [queue for queue in queues if queue not in known]
    if missing:
        raise InvalidArgument(f"option '{name}' has no position for queue '{missing[0]}': give one for each queue")


def position_of(value: object, words: Collection[str] = tuple(WORDS)) -> Position | None:
    """The position that a number or a text means; None when it means none."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if value >= 0 else None
    if not isinstance(value, str):
        return None
    if value.lower() in words:
        return WORDS[value.lower()]
    if _SPAN.fullmatch(value) and "last" in words:  # a span is for beginnings
        return value
    return None


def moment(name: str, text: str) -> datetime:
    """The option's moment: ISO 8601, UTC where no zone is given, or seconds since 1970; whole seconds.

    Raises InvalidArgument.
    """
    try:
        if text.strip().isdigit():
            return datetime.fromtimestamp(int(text), UTC)
        found = datetime.fromisoformat(text.strip())
        found = found.replace(tzinfo=UTC) if found.tzinfo is None else found
    except (ValueError, OverflowError, OSError):
        found = None
    if found is None or found.microsecond or found.timestamp() < 0:
        raise InvalidArgument(
            f"option '{name}' is {text!r}; it takes a time such as 2026-01-05T10:00:00Z, or seconds since 1970, "
            "without a fraction: AMQP has whole seconds"
        )
    return found


def _refusal(name: str, text: str, queues: Collection[str], words: Collection[str]) -> InvalidArgument:
    allowed = ", ".join(f"'{word}'" for word in words) + (", a span such as '1h'" if "last" in words else "")
    example = json.dumps(dict.fromkeys(queues or ["queue"], 0))
    return InvalidArgument(
        f"option '{name}' is {text!r}; it takes {allowed} or JSON with one message number per queue: {example}"
    )
