"""Unwraps HarebellErrors that Spark has wrapped in Java exceptions and several tracebacks."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from harebell import errors

__all__ = ["error_named", "our_error", "silence_pyspark", "unwrapped_errors"]

SPEAKERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")

_OURS: Final = re.compile(r"harebell\.errors\.(\w+): (.*)")
_DETAIL: Final = re.compile(r"^\d+ [A-Z_]+ - ")


def our_error(error: BaseException) -> errors.HarebellError | None:
    """The last HarebellError named in the text of a Spark exception; None without one."""
    found = _OURS.findall(str(error))
    if not found:
        return None
    return error_named(*found[-1])


def error_named(name: str, text: str) -> errors.HarebellError:
    """The error of that class with that text; a plain HarebellError for a class that cannot be made of a text alone."""
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, errors.AmqpError):
        return kind(_DETAIL.sub("", text))
    if isinstance(kind, type) and issubclass(kind, errors.HarebellError):
        with suppress(TypeError):  # one that has to have more
            return kind(text)
    return errors.HarebellError(text)


def silence_pyspark() -> None:
    """Stops PySpark from writing each of its exceptions on standard error, with Java's stack in a line of JSON.

    They are raised as before."""
    from pyspark.logger import PySparkLogger

    for name in SPEAKERS:
        PySparkLogger.getLogger(name).handlers[:] = [logging.NullHandler()]


@contextmanager
def unwrapped_errors() -> Iterator[None]:
    """Raises the error of ours that Spark has wrapped, in place of Spark's."""
    try:
        yield
    except errors.HarebellError:
        raise
    except Exception as error:
        ours = our_error(error)
        if ours is None:
            raise
        raise ours from error
