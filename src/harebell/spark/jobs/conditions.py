"""A user's SQL condition over a DataFrame: applied, or refused with one line that says why."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException, ParseException

from harebell.errors import InvalidArgument

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["filtered"]

# The parts that Spark writes around the sentence about the error: its class, SQL's code for it, and a place.
_AROUND: Final = re.compile(r"^\[[A-Z_.]+\]\s*|\s*SQLSTATE: \w+.*$|;?\s*line \d+,? pos \d+;?\s*$")


def filtered(frame: DataFrame, condition: str) -> DataFrame:
    """The rows for which the condition is true. Raises InvalidArgument when it is no condition over these columns."""
    try:
        chosen = frame.where(condition)
        _ = chosen.schema  # Spark Connect would find out only when it runs
    except (ParseException, AnalysisException) as error:
        raise InvalidArgument(f"condition {condition!r}: {said(error)}") from error
    return chosen


def said(error: Exception) -> str:
    """The sentence of Spark's error text that says what is wrong."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return _AROUND.sub("", first) or "Spark refuses it"
