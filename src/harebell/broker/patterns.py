"""The engine that searches patterns in a broker, where everybody waits for a search.

RE2 takes time in proportion to the name, whatever the pattern is; the extra `server` installs it. Without it Python's
own engine searches, which tries one way after the other: patterns that have too many ways in a name of 255 characters
are refused, and the refusal names the extra. Both give the same verdicts.
"""

from __future__ import annotations

from typing import Any, Final

from harebell.routing.pattern_language import BadPattern, Reading
from harebell.routing.patterns import Engine, Patterns, Search, standard

__all__ = ["PATTERNS", "bounded", "linear"]

MOST_STEPS: Final = 10_000_000  # some 15 ms
MOST_MEMORY: Final = 4 << 20  # bytes in RE2: more than what the reader accepts needs


def bounded(reading: Reading) -> Search:
    """Python's engine, for patterns that it searches quickly."""
    if reading.steps > MOST_STEPS:
        raise BadPattern(
            "it needs RE2: pip install 'harebell[server]', or write fewer repeats, and none behind a group; refused", 0
        )
    return standard(reading)


def linear() -> Engine | None:
    """RE2, or None where it is not installed."""
    try:
        import re2
    except ImportError:
        return None
    options = re2.Options()
    options.max_mem = MOST_MEMORY
    options.never_capture = True
    options.log_errors = False

    def compiled(text: str) -> Any:
        try:
            return re2.compile(text, options).search
        except re2.error:
            raise BadPattern(f"more than {MOST_MEMORY >> 20} MiB for RE2", 0) from None

    def engine(reading: Reading) -> Search:
        wanted, unwanted = reading.written(r"\z")
        search = compiled(wanted)
        if unwanted is None:
            return lambda name: search(name) is not None
        excluded = compiled(unwanted)
        return lambda name: search(name) is not None and excluded(name) is None

    return engine


PATTERNS: Final = Patterns(linear() or bounded)
"""The patterns of all brokers of this process."""
