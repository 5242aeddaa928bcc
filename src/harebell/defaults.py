"""Numbers that more than one package uses: the sizes of frames and tables, and longest times."""

from __future__ import annotations

from typing import Final

__all__ = ["FRAME_MAX", "FRAME_MIN", "GOODBYE_SECONDS", "MAX_TABLE_DEPTH", "MAX_TIME"]

FRAME_MIN: Final = 4096  # bytes; the least frame_max that may be agreed on (specification 4.2.3, frame-min-size)
FRAME_MAX: Final = 131_072  # bytes; proposed where nothing else is configured, as by RabbitMQ, and used for storing
GOODBYE_SECONDS: Final = 5.0  # to wait for the peer's close-ok, for the last confirms, and for the output to be written
MAX_TABLE_DEPTH: Final = 64  # x-death nests 2 deep, people's headers 3 or 4; recursion must end before Python's does
MAX_TIME: Final = 315_360_000_000  # milliseconds, ten years: the longest TTL, expiration and lease that RabbitMQ takes
