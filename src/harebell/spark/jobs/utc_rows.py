"""The rows of a DataFrame as dictionaries whose times are UTC.

`collect()` gives times of the driver's own time zone, whatever the session's is. Here they travel as numbers.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["utc_rows"]

EPOCH: Final = datetime(1970, 1, 1)


def utc_rows(frame: DataFrame) -> list[dict[str, Any]]:
    """All rows, in order. The timestamp columns become datetimes in UTC, without a zone."""
    from pyspark.sql import functions
    from pyspark.sql.types import TimestampType

    times = {field.name for field in frame.schema.fields if isinstance(field.dataType, TimestampType)}
    columns = [
        functions.unix_micros(frame[name]).alias(name) if name in times else frame[name] for name in frame.columns
    ]
    rows = [row.asDict(recursive=True) for row in frame.select(*columns).collect()]
    for row in rows:
        row.update({name: EPOCH + timedelta(microseconds=row[name]) for name in times if row[name] is not None})
    return rows
