"""A user's SQL condition over a DataFrame: applied, or refused with one line that says why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, ParseException

from warren.errors import InvalidArgument

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["filtered"]


def filtered(frame: DataFrame, condition: str) -> DataFrame:
    """The rows for which the condition is true. Raises InvalidArgument when it is no condition over these columns."""
    try:
        chosen = frame.where(condition)
        _ = chosen.schema  # Spark Connect would find out only when it runs
    except (ParseException, AnalysisException) as error:
        said = next((line for line in str(error).splitlines() if line.strip()), "Spark refuses it")
        raise InvalidArgument(f"condition {condition!r}: {said}") from error
    return chosen
