"""`harebell spark package`: the file that `spark-submit --py-files` takes, and the line that uses it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from harebell.cli.terminal.output import say, say_lines

__all__ = ["package"]


def package(
    to: Annotated[Path, Parameter(help="The folder to write into.")] = Path(),
    *,
    master: Annotated[str, Parameter(help="The cluster, for the line that is printed.")] = "spark://HOST:7077",
    job: Annotated[str, Parameter(help="Your program, for the line that is printed.")] = "JOB.py",
) -> int:
    """Write harebell as one pure Python zip, and print how to submit a program with it."""
    from harebell.spark.runtime import packaging

    zipped = packaging.package(to)
    say(f"wrote {zipped} ({zipped.stat().st_size / 1024:.0f} KiB)")
    say("")
    say_lines(packaging.submit_line(zipped, master, job))
    say("")
    say("The Python of the executors needs pyarrow; `PYSPARK_PYTHON=/path/to/python` before the line chooses it.")
    return 0
