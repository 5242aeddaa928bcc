"""Runs the job of a `harebell spark` command in a Spark session, so that Ctrl-C ends it.

Rules: a separate thread makes Spark's calls, because PySpark does not survive an interrupt in the middle of a call into
Java: the main thread waits, and stops the session. The output of Java and Spark goes into a file, whose end is shown
when the job fails.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

from cyclopts import Parameter

from harebell.cli.spark.checks import check_broker
from harebell.cli.terminal.consoles import new_console
from harebell.cli.terminal.display import Display
from harebell.cli.terminal.log_file import logging_into, stderr_into, tail
from harebell.cli.validators import file_name
from harebell.errors import HarebellError, InvalidArgument

if TYPE_CHECKING:
    from harebell.spark.runtime.session import SparkSession

__all__ = ["DEFAULT_URL", "Cluster", "JsonFile", "ReportFile", "Url", "run_job"]

T = TypeVar("T")

_MASTER: Final = re.compile(r"local|local\[(\d+|\*)(,\d+)?\]|local-cluster\[.+\]|yarn|(spark|k8s|sc)://.+")

DEFAULT_URL: Final = "amqp://guest:guest@127.0.0.1:5672/"
OURS: Final = ("local", "sc://")  # masters whose Python has the package: this Python, or that of a Connect server
PY_FILES: Final = "spark.submit.pyFiles"

Url = Annotated[
    str, Parameter(env_var="HAREBELL_URL", help="The broker; the variable keeps a password off the command line.")
]
"""The option `--url` of a job; its default is DEFAULT_URL."""

ReportFile = Annotated[Path | None, Parameter(help="Write an HTML page to this file.")]
"""The option `--report` of a job."""

JsonFile = Annotated[
    str | None,
    Parameter(
        name="--json",
        allow_leading_hyphen=True,
        validator=file_name,
        help="Write everything as JSON to this file; - is standard output.",
    ),
]
"""The option `--json` of a job, whose parameter is `json_file`."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Cluster:
    """The options about Spark's master and settings."""

    master: Annotated[str, Parameter(help="local[*], spark://host:7077, k8s://..., sc://host (Connect).")] = "local[*]"
    conf: Annotated[tuple[str, ...], Parameter(help="A Spark setting as KEY=VALUE; may be repeated.")] = ()

    def settings(self) -> dict[str, str]:
        """The settings of `conf` by name. Raises InvalidArgument for one that is not KEY=VALUE, and for no master."""
        settings = {}
        if not _MASTER.fullmatch(self.master):
            raise InvalidArgument(
                f"--master is {self.master!r}; it takes local, local[2], local[*], spark://host:7077, yarn, "
                "k8s://https://host:443 or sc://host"
            )
        for text in self.conf:
            key, equals, value = text.partition("=")
            if not (key and equals):
                raise InvalidArgument(f"--conf takes KEY=VALUE, not {text!r}")
            settings[key] = value
        return settings


def run_job(
    name: str,
    cluster: Cluster,
    work: Callable[[SparkSession, Display], T],
    display: Display | None = None,
    *,
    broker: str | None = None,
    local: Mapping[str, str] | None = None,
) -> T:
    """Call `work` with a session and the display, in Spark's thread; returns its result.

    `broker` is the URL of the broker that the job needs. It is checked first, because Spark starts slowly and then
    retries an unavailable broker for a minute. `local` are settings for Spark on this machine, unless the user gives
    others. Raises HarebellError when the broker, Spark or Java is missing, and
    what `work` raises: a HarebellError that Spark has wrapped is unwrapped; otherwise the end of the log is shown
    first. KeyboardInterrupt stops the session, and with it the job.
    """
    from harebell.spark import session
    from harebell.spark.jobs.failures import our_error, silence_pyspark
    from harebell.spark.runtime import packaging

    settings = cluster.settings()
    if broker is not None:
        check_broker(broker)
    shown = display or Display(new_console(stderr=True, highlight=True))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="harebell-", ignore_cleanup_errors=True)))
        log = folder / "log"
        stack.enter_context(logging_into(log))
        executor = stack.enter_context(ThreadPoolExecutor(1, "spark"))
        if not cluster.master.startswith(OURS):
            # Executors get this package, unless the user's settings provide another one.
            settings = {PY_FILES: str(packaging.package(folder)), **settings}
        elif cluster.master.startswith("local"):
            settings = {**(local or {}), **settings}
        with shown.stage("start Spark"), stderr_into(log):
            spark = executor.submit(session, f"harebell spark {name}", cluster.master, **settings).result()
            silence_pyspark()
        stack.callback(spark.stop)
        try:
            return executor.submit(work, spark, shown).result()
        except HarebellError:
            raise
        except Exception as error:
            if (ours := our_error(error)) is not None:
                raise ours from error
            shown.say(tail(log))
            raise
