"""Our errors found again in what Spark raises."""

from __future__ import annotations

import pytest

from harebell import errors
from harebell.errors import DataLoss, HarebellError, InvalidArgument, NotFound, Unroutable
from harebell.spark.jobs.failures import SPEAKERS, error_named, our_error, silence_pyspark, unwrapped_errors

TEXT = """Job aborted due to stage failure: Task 0 failed
Traceback (most recent call last):
  File "x.py", line 1, in read
{}

\tat org.apache.spark.api.python.BasePythonRunner"""


@pytest.mark.parametrize(
    ("line", "kind", "text"),
    [
        ("harebell.errors.DataLoss: messages 1 to 2 are gone", DataLoss, "messages 1 to 2 are gone"),
        ("harebell.errors.NotFound: 404 NOT_FOUND - no queue 'q'", NotFound, "404 NOT_FOUND - no queue 'q'"),
        ("harebell.errors.Unroutable: 312 NO_ROUTE", Unroutable, "312 NO_ROUTE"),
        ("harebell.errors.Gone: what it was", HarebellError, "what it was"),
    ],
)
def test_the_last_error_of_ours(line: str, kind: type[HarebellError], text: str) -> None:
    found = our_error(RuntimeError(TEXT.format("harebell.errors.ConnectionLost: gone\n" + line)))
    assert (type(found), str(found)) == (kind, text)
    with pytest.raises(kind), unwrapped_errors():
        raise RuntimeError(TEXT.format(line))


def test_every_class_of_error_that_a_text_can_make_is_found_again() -> None:
    kinds = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, HarebellError)]
    plain = set()
    for kind in kinds:
        found = error_named(kind.__name__, "what it says")
        assert "what it says" in str(found), kind
        if type(found) is not kind:
            assert type(found) is HarebellError, kind
            plain.add(kind.__name__)
    assert plain <= {"AcknowledgeOrphans", "ArchiveIncomplete", "PublishesFailed", "RemoteProtocolError"}


def test_others_stay_what_they_are() -> None:
    assert our_error(RuntimeError(TEXT.format("ValueError: no"))) is None
    with pytest.raises(KeyError), unwrapped_errors():
        raise KeyError("x")
    mine = InvalidArgument("harebell.errors.DataLoss: in a text")
    with pytest.raises(InvalidArgument) as caught, unwrapped_errors():
        raise mine
    assert caught.value is mine


def test_pyspark_says_nothing_on_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    from pyspark.logger import PySparkLogger

    loggers = [PySparkLogger.getLogger(name) for name in SPEAKERS]
    before = [(logger.handlers[:], logger.propagate) for logger in loggers]
    try:
        silence_pyspark()
        for logger in loggers:
            logger.propagate = False  # as PySpark does before it speaks
            logger.exception("no such column", errorClass="UNRESOLVED_COLUMN")
        assert capfd.readouterr().err == ""
    finally:
        for logger, (handlers, propagate) in zip(loggers, before, strict=True):
            logger.handlers[:], logger.propagate = handlers, propagate
