"""Wrong settings of every `harebell spark` command: each is told in one line, before Spark starts.

The table is (command, arguments, what is said). T stands for a folder with an archive `box`, an empty folder, a file
and definitions; the broker has a stream queue `log` and a classic queue `work`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

import harebell.spark
from harebell.cli.spark.checks import check_output, check_period, duration
from harebell.client.blocking import connect
from harebell.errors import InvalidArgument
from harebell.testing import EmbeddedBroker
from tests.cli.administering import Command, runner
from tests.spark.jobs.filling import archive_of

ARCHIVE: list[tuple[list[str], str]] = [
    (["T/new"], "name the queues to archive"),
    (["T/new", "lgo"], "404 NOT_FOUND - no queue 'lgo' in vhost '/'"),
    (["T/new", "log", "lgo"], "404 NOT_FOUND - no queue 'lgo' in vhost '/'"),
    (["T/new", "log", "log"], "queue 'log' is named twice"),
    (["T/new", "log,work"], "no queue 'log,work' in vhost '/'; name several queues as several arguments"),
    (["T/full", "log"], "full is not empty and no archive; name a new or an empty folder"),
    (["T/file", "log"], "file can be no archive: Not a directory"),
    (["T/box", "log", "--delta"], "is parquet, not delta"),
    (["T/box", "log", "--iceberg"], "is parquet, not iceberg"),
    (["T/new", "log", "--iceberg", "--delta"], "--delta or --iceberg, not both"),
    (["T/new", "log", "--catalog-table", "a.b.c"], "--catalog-table is for --iceberg: give --iceberg too"),
    (["T/new", "log", "--iceberg", "--catalog-table", "a.b"], "catalog_table is 'a.b'; it takes catalog.namespace"),
    (["T/new", "log", "--iceberg", "--catalog-table", "nope.b.c"], "the catalog of the Iceberg table nope.b.c cannot"),
    (["s3://bucket/x", "log"], "an archive is a folder on a (shared) file system, not 's3:/bucket/x'"),
    (["T/new", "log", "--every", "5"], "--every is '5'; it takes a number and its unit: 5s, 5m"),
    (["T/new", "log", "--every", "5x"], "--every is '5x'; it takes a time such as 30s, 5m, 1h"),
    (["T/new", "log", "--every", "0s"], "--every is '0s'; it takes a time such as 30s, 5m, 1h"),
    (["T/new", "log", "--every", "-5s"], "--every is '-5s'; it takes a time such as 30s, 5m, 1h"),
    (["T/new", "log", "--evry", "5s"], "Unknown option: --evry. Did you mean --every?"),
    (["T/new", "log", "--batch", "0"], 'Invalid value "0" for --batch. It must be at least 1'),
    (["T/new", "log", "--key-words", "-1"], 'Invalid value "-1" for --key-words. It must be at least 0'),
    (["T/new", "log", "--conf", "x"], "--conf takes KEY=VALUE, not 'x'"),
    (["T/new", "log", "--master", "lokal"], "--master is 'lokal'; it takes local, local[2]"),
    (["T/new", "work", "--tap"], "queue 'work' has no binding"),
    (["T/new", "nope", "--tap"], "404 NOT_FOUND - no queue 'nope' in vhost '/'"),
    (["T/new", "log", "--management-url", "http://x"], "--management-url is for --tap"),
    (["T/new", "log", "--url", "http://x"], "option 'url' must start with amqp:// or amqps://"),
    (["T/new", "log", "--url", "amqp://127.0.0.1:1/"], "amqp://guest@127.0.0.1:1/ cannot be reached"),
    (["T/new", "log", "--url", "WRONG"], "403 ACCESS_REFUSED"),
    (["T/new", "log", "--url", "VHOST"], "530 NOT_ALLOWED - vhost nope not found"),
    (["T/new", "--verify"], "there is no archive in"),
    (["T/new", "--compact"], "there is no archive in"),
]
REPLAY: list[tuple[list[str], str]] = [
    (["T/new"], "there is no archive in"),
    (["T/box", "--since", "2026-02-01", "--until", "2026-01-01"], "is not before --until 2026-01-01"),
    (["T/box", "--since", "yesterday"], 'unable to convert "yesterday" into datetime'),
    (["T/box", "--queue", "nope"], "has no messages of queue 'nope'; it has: q"),
    (["T/box", "--to-exchange", "nope"], "no exchange 'nope' in vhost '/': declare it, or give --to-exchange another"),
    (["T/box", "--resume", "nope"], "there is no replay 'nope' to go on with; known here: none"),
    (["T/box", "--resume", "a/b"], "'a/b' is no name for a replay"),
    (["T/box", "--name", "a/b"], "'a/b' is no name for a replay"),
    (["T/box", "--limit", "0"], 'Invalid value "0" for --limit'),
    (["T/box", "--connections", "0"], 'Invalid value "0" for --connections'),
    (["T/box", "--rate", "0"], 'Invalid value "0.0" for --rate'),
    (["T/box", "--master", "lokal"], "--master is 'lokal'"),
    (["T/box", "--url", "amqp://127.0.0.1:1/"], "cannot be reached"),
]
READING: list[tuple[list[str], str]] = [  # of deadletters and traffic
    ([], "name a queue, or a folder of messages with --archive"),
    (["nope"], "404 NOT_FOUND - no queue 'nope' in vhost '/'"),
    (["work", "--archive", "T/box"], "name a queue, or a folder of messages with --archive"),
    (["--archive", "T/new"], "there is no folder"),
    (["--archive", "T/empty"], "empty is empty"),
    (["work", "--ticket", "x"], "--ticket names what --take drains: give --take too"),
    (["work", "--take", "--ticket", "lock"], "option 'ticket' is 'lock', which the spool's own lock is called"),
    (["work", "--spool", "T/new"], "--spool is the folder that --take drains into: give --take too"),
    (["work", "--take", "--spool", "T/file"], "--spool: T/file is a file; it takes the name of a folder"),
    (["log", "--take", "--ticket", "x"], "queue 'log' is a stream queue, which is not drained: leave out --ticket"),
    (["work", "--folder", "T/new"], "--folder: there is no folder T/new: make it, or name another one"),
    (["work", "--folder", "T/file"], "--folder: there is no folder T/file"),
    (["work", "--report", "T/empty"], "--report: T/empty is a folder; it takes the name of a file"),
    (["work", "--report", "T/file/report.html"], "file/report.html cannot be written: T/file is not a folder"),
    (["work", "--json", "T/empty"], "--json: T/empty is a folder; it takes the name of a file"),
    (["work", "--conf", "x"], "--conf takes KEY=VALUE, not 'x'"),
    (["work", "--url", "WRONG"], "403 ACCESS_REFUSED"),
]
DEADLETTERS: list[tuple[list[str], str]] = [
    (["work", "--reason", "rejected"], "--reason is for --redrive: give --redrive too"),
    (["log", "--redrive"], "--redrive takes from a classic or quorum queue; a stream keeps what it has"),
    (["work", "--redrive", "--to-exchange", "nope"], "no exchange 'nope' in vhost '/'"),
    (["--archive", "T/box", "--redrive"], "--redrive takes from a queue"),
]
TRAFFIC: list[tuple[list[str], str]] = [
    (["log", "--window", "0"], "--window is '0'; it takes a time such as 30s, 5m, 1h"),
    (["log", "--window", "1.5"], "--window is '1.5'; it takes whole seconds"),
    (["log", "--gap", "x"], "--gap is 'x'; it takes a time"),
    (["log", "--watch", "5s"], "--watch is instead of a queue or an archive"),
    (["log", "--consumer-rate", "5"], "--consumer-rate is for --capacity"),
    (["log", "--by", "x"], 'Invalid value "x" for --by. Choose from'),
    (["log", "--since", "2026-02-01", "--until", "2026-02-01"], "nothing would be left"),
    (["log", "--csv", "T/file"], "--csv: T/file is a file; it takes the name of a folder"),
    (["--watch", "5s", "--url", "amqp://127.0.0.1:1/"], "cannot be reached"),
]
ROUTING: list[tuple[list[str], str]] = [  # of simulate and diff, behind their definitions
    ([], "name the messages with one of --archive, --queue and --profile"),
    (["--queue", "nope"], "404 NOT_FOUND - no queue 'nope' in vhost '/'"),
    (["--queue", "work"], "queue 'work' is no stream queue"),
    (["--archive", "T/new"], "there is no folder"),
    (["--queue", "log", "--window", "0"], "--window is above 0, not 0"),
    (["--profile", "x"], "there is no profile 'x'; there are: developer, production"),
    (["--queue", "log", "--html", "T/empty"], "--html: T/empty is a folder; it takes the name of a file"),
    (["--queue", "log", "--master", "lokal"], "--master is 'lokal'"),
]
DEFS = "T/defs.json"
OTHERS: list[tuple[list[str], str]] = [
    (["simulate", "T/none.json", "--queue", "log"], "none.json: No such file or directory"),
    (["simulate", "T/bad.json", "--queue", "log"], "bad.json: definitions: not JSON"),
    (["simulate", "--queue", "log"], "name a definitions file"),
    (["simulate", DEFS, "--queue", "log", "--consumer", "x"], "--consumer takes QUEUE=RATE, not 'x'"),
    (["simulate", "--profile", "developer", "--top", "0"], "--top is 1 or more, not 0"),
    (["diff", DEFS, "T/none.json", "--queue", "log"], "none.json: No such file or directory"),
    (["diff", DEFS, DEFS, "--queue", "log", "--fail-on", "x"], 'Invalid value "x" for --fail-on'),
    (["tap", "nope"], "404 NOT_FOUND - no queue 'nope' in vhost '/'"),
    (["tap"], "tap either a queue, whose bindings are copied, or an exchange"),
    (["spool", "list", "T/none"], "there is no spool folder"),
    (["spool", "prune", "T/empty", "--older-than", "5"], "--older-than is '5'; it takes a number and a unit"),
    (["package", "T/file"], "cannot be written"),
]
TABLE = [
    *((["archive", *arguments], text) for arguments, text in ARCHIVE),
    *((["replay", *arguments], text) for arguments, text in REPLAY),
    *(([job, *arguments], text) for job in ("deadletters", "traffic") for arguments, text in READING),
    *((["deadletters", *arguments], text) for arguments, text in DEADLETTERS),
    *((["traffic", *arguments], text) for arguments, text in TRAFFIC),
    *((["simulate", DEFS, *arguments], text) for arguments, text in ROUTING),
    *((["diff", DEFS, DEFS, *arguments], text) for arguments, text in ROUTING),
    *OTHERS,
]
ASKS = frozenset(("archive", "replay", "deadletters", "traffic", "simulate", "diff", "tap"))  # they have --url


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with EmbeddedBroker() as broker, connect(broker.url) as connection, connection.channel() as channel:
        channel.queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})
        channel.queue_declare("work", durable=True)
        yield broker.url


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wrong")
    archive_of(folder / "box", [{}])
    for name in ("empty", "full"):
        (folder / name).mkdir()
    (folder / "full" / "x").touch()
    (folder / "file").touch()
    (folder / "bad.json").write_text("{")
    (folder / "defs.json").write_text(json.dumps({"vhosts": [{"name": "/"}], "queues": []}))
    return folder


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    def started(*arguments: object, **settings: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(harebell.spark, "session", started)
    return runner(monkeypatch, capsys)


@pytest.mark.parametrize(("arguments", "text"), TABLE, ids=[" ".join(arguments) for arguments, _ in TABLE])
def test_told_before_spark_starts(run: Command, broker: str, folder: Path, arguments: list[str], text: str) -> None:
    urls = {"WRONG": broker.replace("guest:guest", "guest:wrong"), "VHOST": f"{broker}nope"}
    command = [urls.get(each, re.sub(r"^T/", f"{folder}/", each)) for each in arguments]
    if arguments[0] in ASKS and "--url" not in arguments:
        command += ["--url", broker]
    result = run("spark", *command)
    assert result.status in (1, 2)
    assert result.output == ""
    said = " ".join(result.error.replace("│", " ").replace(str(folder), "T").split())
    assert text in said
    assert "Traceback" not in said
    if result.status == 1:
        assert result.error.startswith("harebell: ")
        assert result.error.count("\n") == 1
    assert not (folder / "new").exists()


@pytest.mark.parametrize(
    "arguments",
    [["archive", "T/made", "log", "work", "--every", "1.5m"], ["traffic", "log", "--take"],
     ["traffic", "log", "--take", "--spool", "T/spool"], ["deadletters", "log", "--take"], ["traffic", "work"],
     ["replay", "T/box", "--queue", "q", "--dry-run"], ["traffic", "log", "--report", "T/made/by/it.html"],
     ["simulate", DEFS, "--queue", "log"], ["traffic", "log", "--master", "local[2,4]"]],
)  # fmt: skip
def test_what_is_right_starts_spark(run: Command, broker: str, folder: Path, arguments: list[str]) -> None:
    command = [re.sub(r"^T/", f"{folder}/", each) for each in arguments]
    with pytest.raises(AssertionError, match="Spark was started"):
        run("spark", *command, "--url", broker)


@pytest.mark.parametrize(
    "arguments", [["archive", "T/box", "log"], ["archive", "T/box", "--compact"], ["replay", "T/box"]]
)
@pytest.mark.parametrize("place", ["", "_archive"])
def test_an_archive_that_may_not_be_written(
    run: Command, broker: str, folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], place: str
) -> None:
    access = os.access
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != folder / "box" / place and access(path, mode))
    refused = run("spark", *[each.replace("T/", f"{folder}/") for each in arguments], "--url", broker)
    assert refused.status == 1
    assert f"{folder}/box cannot be written: no permission for {folder / 'box' / place}" in refused.error
    if arguments[0] == "replay":  # counting writes nothing
        with pytest.raises(AssertionError, match="Spark was started"):
            run("spark", "replay", folder / "box", "--dry-run")


def test_lengths_of_time() -> None:
    texts = {"90s": 90, "1.5m": 90, "2h": 7200, "1d": 86_400, " 5 min ": 300, "5M": 300, ".5s": 0.5}
    assert {text: duration("gap", text) for text in texts} == texts
    assert duration("gap", "90", plain="s") == 90
    for text in ("", "s", "5 weeks", "1e400s", "0s", "-1s", "inf", "nan"):
        with pytest.raises(InvalidArgument, match="--gap is"):
            duration("gap", text)


def test_a_period_with_and_without_zones() -> None:
    check_period(None, datetime(2026, 1, 1))
    check_period(datetime.fromisoformat("2026-01-01T00:00:00+00:00"), datetime(2026, 1, 2))
    with pytest.raises(InvalidArgument):
        check_period(datetime(2026, 1, 2), datetime.fromisoformat("2026-01-01T00:00:00+00:00"))
    earlier, later = (datetime.fromisoformat(f"2026-01-01T{text}") for text in ("10:00:00+02:00", "09:00:00+00:00"))
    check_period(earlier, later)
    check_period(earlier, later.replace(tzinfo=None))
    with pytest.raises(InvalidArgument):
        check_period(later, earlier)


def test_a_place_that_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(InvalidArgument, match=r"--report: .*x\.html cannot be written: permission denied"):
        check_output("--report", tmp_path / "x.html")
    check_output("--json", "-", None)
