"""Spark's part of the demonstration: the archive, the triage of the dead letters, statistics, and the alerts.

Rules: the archive and the triage are the jobs of harebell.spark.jobs, the rest is Spark SQL over format("amqp"), as a
user would write it; nothing here knows the protocol. The jobs need PySpark, and are imported once it is known to be
installed. The docstring of each step says what its number counts. A query that fails raises Spark's own exception.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harebell.cli.flights import topology
from harebell.cli.flights.data import ALERT_MINUTES
from harebell.errors import MissingDependency
from harebell.spark import find_java, session
from harebell.spark.runtime.queries import follow, start_query

if TYPE_CHECKING:
    from harebell.spark.jobs.sources import DataFrame

__all__ = ["Pipeline", "Row"]

Row = dict[str, Any]  # a Spark row, by column

FLIGHT: Final = (
    "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, sched_arr_time INT, "
    "arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, air_time INT, "
    "distance INT, hour INT, minute INT, time_hour STRING"
)
ALERT: Final = "carrier STRING, day STRING, flights BIGINT, mean_delay DOUBLE"

MESSAGES_PER_BATCH: Final = 100_000
TOP: Final = 10  # routing keys


class Pipeline:
    """A Spark session and the steps; `stop` it when done. Files go below `folder`, the archive into its own folder.

    Raises MissingDependency when Spark or Java is missing.
    """

    def __init__(self, url: str, folder: Path, archive: Path) -> None:
        self._url = url
        self._folder = folder
        self._archive = archive
        self._spark = session(
            "harebell demo flights",
            **{"spark.local.dir": str(folder / "local"), "spark.sql.warehouse.dir": str(folder / "warehouse")},
        )

    @staticmethod
    def check() -> None:
        """Raise MissingDependency when Spark or Java is missing; takes a tenth of a second."""
        for package in ("pyspark", "pyarrow"):
            if importlib.util.find_spec(package) is None:
                raise MissingDependency(f"the demonstration needs the package {package}: pip install 'harebell[demo]'")
        find_java()

    def stop(self) -> None:
        """End the session, and any step that runs in another thread; that step then raises an exception."""
        self._spark.stop()

    @property
    def version(self) -> str:
        return self._spark.version

    def archive(self, progress: Callable[[int], None], complete: Callable[[], bool]) -> int:
        """Archive flights.log; returns the number of messages archived.

        Each run of the job archives what the log has when the run begins. The last run is the one that began after
        `complete` returned True: nothing more will come. The checkpoint leads from one run to the next.
        """
        taken, last = 0, False
        while not last:
            last = complete()
            before = taken
            taken += self._archive_what_is_there(lambda rows, before=before: progress(before + rows))  # type: ignore[misc]
        return taken

    def _archive_what_is_there(self, progress: Callable[[int], None]) -> int:
        from harebell.spark.jobs.archive import archive

        done = archive(
            self._spark,
            self._url,
            [topology.LOG],
            self._archive,
            options={"maxMessagesPerTrigger": str(MESSAGES_PER_BATCH)},
            progress=progress,
        )
        return done.added

    def archived(self) -> tuple[int, int]:
        """(rows, distinct message ids) of the archive; makes its flights a table for the next steps."""
        from harebell.spark.jobs.archive import read

        messages = read(self._spark, self._archive).selectExpr(
            "message_id", f"from_json(CAST(body AS STRING), '{FLIGHT}') AS flight"
        )
        messages.select("message_id", "flight.*").cache().createOrReplaceTempView("flights")
        row = self._spark.sql("SELECT count(*) AS n, count(DISTINCT message_id) AS ids FROM flights").collect()[0]
        return row["n"], row["ids"]

    def triage(self) -> dict[str, list[Row]]:
        """Drain flights.dead and count why its messages died.

        "total" has one row with `n`, the messages that died in flights.ops because they were rejected; "reasons" and
        "origins" are those of the job, "months" has a row for each month and origin airport.
        """
        from harebell.spark.jobs import deadletters
        from harebell.spark.jobs.sources import Origin, messages

        origin = Origin(self._url, queue=topology.DEAD, take=True, spool=str(self._folder / "spool"))
        drained = messages(self._spark, origin, self._folder / "dead")
        dead = deadletters.dead_letters(drained.frame).cache()
        rejected = deadletters.hops(dead).where(f"reason = 'rejected' AND queue_of_death = '{topology.OPS}'")
        flights = dead.selectExpr(f"from_json(text, '{FLIGHT}') AS flight").select("flight.*")
        return {
            "total": _rows(rejected.selectExpr("count(DISTINCT message_id) AS n")),
            "reasons": _rows(deadletters.reasons(dead)),
            "origins": _rows(deadletters.origins(dead, TOP)),
            "months": _rows(
                flights.groupBy("month", "origin").count().withColumnRenamed("count", "n").orderBy("month", "origin")
            ),
        }

    def statistics(self) -> dict[str, list[Row]]:
        """Departure delays in minutes of the flights that departed: "carriers", "hours" and "cells" (both)."""
        numbers = (
            "count(*) AS flights, count(*) - count(dep_time) AS cancelled, avg(dep_delay) AS mean, "
            "percentile_approx(dep_delay, 0.5) AS median, percentile_approx(dep_delay, 0.9) AS p90"
        )
        return {
            "carriers": self._rows(f"SELECT carrier, {numbers} FROM flights GROUP BY carrier ORDER BY mean DESC"),
            "hours": self._rows(f"SELECT hour, {numbers} FROM flights GROUP BY hour ORDER BY hour"),
            "cells": self._rows(
                "SELECT carrier, hour, count(dep_delay) AS flights, avg(dep_delay) AS mean FROM flights "
                "GROUP BY ALL HAVING mean IS NOT NULL ORDER BY carrier, hour"
            ),
        }

    def publish_alerts(self, progress: Callable[[int], None]) -> int:
        """Publish one alert for each carrier and day with a mean delay of more than an hour; returns their number.

        Two steps, because an alert is right only when all flights of the day are counted: first the complete
        aggregate over the whole archive is written; then a stream reads and publishes it. A streaming aggregate would
        publish a mean too early and correct it later. The message ids are carrier and day, so that a stream started
        again after a crash repeats no alert under another id.
        """
        folder = str(self._folder / "alerts.parquet")
        self._spark.sql(
            "SELECT carrier, CAST(make_date(year, month, day) AS STRING) AS day, count(dep_delay) AS flights, "
            "avg(dep_delay) AS mean_delay FROM flights GROUP BY carrier, year, month, day "
            f"HAVING sum(dep_delay) > {ALERT_MINUTES} * count(dep_delay) ORDER BY day, carrier"
        ).coalesce(1).write.parquet(folder)
        alerts = (
            self._spark.readStream.schema(ALERT)
            .parquet(folder)
            .selectExpr(
                "concat('alert/', day, '/', carrier) AS message_id",
                "concat(carrier, '.delay') AS routing_key",
                "'application/json' AS content_type",
                "to_json(struct(*)) AS body",
            )
            .writeStream.format("amqp")
            .option("url", self._url)
            .option("exchange", topology.ALERTS)
            .option("ids", "column")
            .option("checkpointLocation", str(self._folder / "checkpoint" / "alerts"))
            .trigger(availableNow=True)
        )
        return follow(start_query(alerts.start), progress)

    def _rows(self, query: str) -> list[Row]:
        return _rows(self._spark.sql(query))


def _rows(frame: DataFrame) -> list[Row]:
    return [row.asDict() for row in frame.collect()]
