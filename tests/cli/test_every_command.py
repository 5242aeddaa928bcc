"""What holds for every command: no value of an option, and no output that cannot be written, ends in a traceback."""

from __future__ import annotations

import datetime
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence, Set
from functools import partial
from importlib.util import find_spec
from io import BytesIO, TextIOWrapper
from pathlib import Path
from types import NoneType
from typing import Final, NamedTuple, NoReturn, TextIO, get_args
from urllib.parse import quote

import pytest
from cyclopts import App

from harebell.cli.ctl.main import main as harebellctl
from harebell.cli.main import application, main
from harebell.errors import InvalidArgument
from tests.admin.kit import ApiThread
from tests.cli.administering import Command, runner

NUMBERS: Final = (
    "nan",
    "inf",
    "-inf",
    "-1",
    "0",
    "1e400",
    "²",
    "\u0663",
    "9" * 20,
    "9" * 400,
    "9" * 5000,
    "",
    " ",
    "\x01",
)
TIMES: Final = (*NUMBERS, "nans", f"{'9' * 20}h", f"{'9' * 400}d", "-1s", "²s")
PATHS: Final = ("~nosuchuser/x", "", "\x01", "\udcff", "a" * 5000, "/dev/null/x", "/proc/x")
NAMED: Final = ("--offset", "--every", "--window", "--watch", "--gap", "--speed", "--max-age", "--older-than")
"""Options that take texts with numbers in them."""

ARGUMENTS: Final[dict[tuple[str, ...], tuple[str, ...]]] = {
    ("completion",): ("bash",),
    ("shovel",): ("{url}#q", "{url}#other", "--until-empty"),
    ("spark", "archive"): ("made", "q"),
    ("spark", "deadletters"): ("q",),
    ("spark", "simulate"): ("--profile", "developer"),
    ("spark", "spool", "prune"): ("--older-than", "1h"),
    ("spark", "tap"): ("q",),
    ("spark", "traffic"): ("q", "--take"),
    ("vhosts", "add"): ("/",),
    ("vhosts", "delete"): ("none",),
    ("queues", "delete"): ("none",),
    ("policies", "set"): ("p", "^x", "--define", "max-length=1"),
    ("queues", "declare"): ("q",),
    ("exchanges", "show"): ("amq.topic",),
    ("exchanges", "declare"): ("amq.direct",),
    ("bindings", "declare"): ("amq.topic", "q"),
    ("permissions", "set"): ("somebody",),  # guest keeps its permissions
    ("permissions", "set-topic"): ("somebody", "amq.topic"),
    ("users", "set-limits"): ("nobody", "--max-channels", "-1"),
    ("vhosts", "set-limits"): ("nowhere", "--max-queues", "-1"),
    ("definitions", "import"): ("-",),
    ("route", "explain"): ("amq.topic",),
}
"""The arguments with which a command does the same each time; others get the name of a queue for what they need."""

MAY_BE_EMPTY: Final = frozenset({
    "--body", "--configure", "--copy", "--description", "--dest-exchange", "--dest-key",
    "--pattern", "--read", "--reason", "--routing-key", "--source-key", "--to-exchange", "--to-key", "--write",
})  # fmt: skip
"""The texts that may be empty, of any command: keys, patterns, and what somebody reads."""
ALSO_REFUSED: Final[dict[tuple[str, ...], frozenset[str]]] = {
    ("queue", "redrive"): frozenset(["--reason"]),  # a variable that is not set would send all of them back
    ("spark", "deadletters"): frozenset(["--reason"]),
}
ALSO_EMPTY: Final[dict[tuple[str, ...], frozenset[str]]] = {
    ("bindings", "list"): frozenset(["--source"]),  # the default exchange
    ("exchanges", "show"): frozenset(["--name"]),
    ("route", "explain"): frozenset(["--exchange"]),
    ("spark", "diff"): frozenset(["--exchange"]),
    ("spark", "simulate"): frozenset(["--exchange"]),
    ("spark", "replay"): frozenset(["--key"]),
    ("spark", "tap"): frozenset(["--key"]),
}
FILES: Final = frozenset({"--file", "--json", "--password-file", "--spool"})
"""The texts that name files, which may have any bytes."""

SLOW: Final = {("serve",), ("demo", "flights")}  # `config` takes the options of serve, which then runs on


def leaves(app: App, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], App]]:
    for name in app:
        if name.startswith("-"):
            continue
        child = app[name]
        if child.default_command is None:
            yield from leaves(child, (*path, name))
        else:
            yield (*path, name), child


COMMANDS: Final = dict(leaves(application()))
STATUSES: Final = frozenset({0, 1, 2, 65, 69, 77, 130})  # the documented ones


def arguments(path: tuple[str, ...], url: str) -> list[str]:
    needed = ["q" for each in COMMANDS[path].assemble_argument_collection() if each.field_info.required]
    return [each.format(url=url) for each in ARGUMENTS.get(path, needed)]


def options(path: tuple[str, ...]) -> Iterator[tuple[str, Sequence[str]]]:
    """The options of a command that are numbers, sizes, times and paths, with the values to try."""
    for each in COMMANDS[path].assemble_argument_collection():
        kinds = {each.hint, *get_args(each.hint)} - {NoneType}
        name = each.names[0] if each.names else ""
        if not name.startswith("--") or each.field_info.kind is not each.field_info.KEYWORD_ONLY:
            continue
        if kinds & {int, float}:
            yield name, NUMBERS
        elif name in NAMED or kinds & {datetime.datetime, datetime.timedelta}:
            yield name, TIMES
        elif path == ("config",):
            yield name, (*PATHS[:3], *NUMBERS[-6:-4])  # tests/test_config.py reads more of them, without a command
        elif Path in kinds:
            yield name, PATHS


def texts(
    path: tuple[str, ...], needed: Sequence[str], kinds: Set[object] = frozenset({str, tuple[str, ...]})
) -> Iterator[tuple[str, Callable[[str], list[str]]]]:
    """The arguments and options of a command that take texts, and the command's arguments with a value for them."""
    for each in COMMANDS[path].assemble_argument_collection():
        if not kinds & {each.hint, *get_args(each.hint)}:
            continue
        kind = each.field_info.kind
        if kind is each.field_info.KEYWORD_ONLY:
            yield each.names[0], partial(with_option, needed, each.names[0])
        elif each.index is not None:
            yield each.names[0], partial(with_argument, needed, each.index)


def with_option(needed: Sequence[str], name: str, value: str) -> list[str]:
    at = needed.index(name) if name in needed else len(needed)
    return [*needed[:at], *needed[at + 2 :], f"{name}={value}"]


def with_argument(needed: Sequence[str], index: int, value: str) -> list[str]:
    return [*needed[:index], value, *needed[index + 1 :]]


@pytest.fixture(scope="module")
def serving() -> Iterator[ApiThread]:
    with ApiThread() as thread:
        for name in ("q", "other", "snow ☃ 📦 é"):
            assert thread.api().put(f"/api/queues/%2F/{quote(name)}", {"durable": True}) == 201
        assert thread.api().put("/api/users/somebody", {"password_hash": "", "tags": ""}) == 201
        yield thread


@pytest.fixture
def run(
    serving: ApiThread, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Command:
    """The command with a broker, without Spark, in a folder of its own."""
    monkeypatch.setenv("HAREBELL_HTTP_URL", f"http://guest:guest@127.0.0.1:{serving.api_port}")
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr("harebell.cli.listing.sleep", interrupt)
    if find_spec("pyspark") is not None:
        monkeypatch.setattr("harebell.spark.session", refuse)
    return runner(monkeypatch, capsys, serving.broker.url)


def interrupt(seconds: float) -> NoReturn:
    assert 0 <= seconds < 2**31, "time.sleep takes no more"
    raise KeyboardInterrupt


def refuse(*_: object, **__: object) -> NoReturn:
    raise InvalidArgument("a test starts no Spark")


@pytest.mark.repeats
@pytest.mark.parametrize("path", [path for path in COMMANDS if path not in SLOW], ids=" ".join)
def test_an_absurd_value_is_no_traceback(path: tuple[str, ...], run: Command, serving: ApiThread) -> None:
    needed = arguments(path, serving.broker.url)
    for name, values in options(path):
        at = needed.index(name) if name in needed else len(needed)
        given = needed[:at] + needed[at + 2 :]  # without a first value of the option
        for value in values:
            result = run(*path, *given, f"{name}={value}")  # any other exception than SystemExit fails the test
            assert "Traceback" not in result.error, (name, value, result.error)
            assert result.status in STATUSES, (name, value, result)


WHOLE: Final = {
    path: names
    for path in COMMANDS
    if (names := [
        each.names[0]
        for each in COMMANDS[path].assemble_argument_collection()
        if each.names and {int, float} & {each.hint, *get_args(each.hint)} == {int}
    ])
}  # fmt: skip
"""The commands with arguments that are whole numbers, and these."""


@pytest.mark.parametrize("path", WHOLE, ids=" ".join)
def test_a_fraction_is_no_whole_number(path: tuple[str, ...], run: Command, serving: ApiThread) -> None:
    needed = arguments(path, serving.broker.url)
    for name in WHOLE[path]:
        for value in ("1.5", "0.6", "2.0", "-1.5", "1."):
            result = run(*path, *with_option(needed, name, value))
            assert result.status == 2, (name, result)
            assert result.error.endswith(" It must be a whole number\n"), (name, result.error)
            assert (result.error.count("\n"), result.output) == (1, "")


@pytest.mark.repeats
@pytest.mark.parametrize("path", [path for path in COMMANDS if path not in SLOW], ids=" ".join)
def test_an_empty_text_is_refused(path: tuple[str, ...], run: Command, serving: ApiThread) -> None:
    """In the path of a request an empty name means the list, in a filter nothing; most often a variable is not set."""
    allowed = MAY_BE_EMPTY - ALSO_REFUSED.get(path, frozenset()) | ALSO_EMPTY.get(path, frozenset())
    for name, given in texts(path, arguments(path, serving.broker.url)):
        result = run(*path, *given(""))
        assert "Traceback" not in result.error, (name, result.error)
        if name in allowed:
            assert "It is empty" not in result.error, (name, result.error)
        elif path != ("config",):
            assert result.status == 2, (name, result)
            assert result.error.endswith(" It is empty\n"), (name, result.error)
            assert result.error.count("\n") == 1
            assert result.output == ""


@pytest.mark.parametrize("path", [path for path in COMMANDS if path != ("serve",)], ids=" ".join)
def test_an_empty_path_is_refused(path: tuple[str, ...], run: Command, serving: ApiThread) -> None:
    """It would be the current folder."""
    for name, given in texts(path, arguments(path, serving.broker.url), frozenset({Path})):
        result = run(*path, *given(""))
        assert result.status == 2, (name, result)
        assert result.error.endswith(" It is empty\n"), (name, result.error)
        assert (result.error.count("\n"), result.output) == (1, "")


@pytest.mark.repeats
@pytest.mark.parametrize("path", [path for path in COMMANDS if path not in SLOW], ids=" ".join)
def test_a_text_that_is_not_utf8_is_refused(path: tuple[str, ...], run: Command, serving: ApiThread) -> None:
    for name, given in texts(path, arguments(path, serving.broker.url)):
        for value in ("\udcff", "amqp://guest:s3cr3t\udcff@127.0.0.1/", "x=\udcff"):
            result = run(*path, *given(value))
            assert "Traceback" not in result.error, (name, result.error)
            assert "s3cr3t" not in result.error or name in FILES or path == ("config",), (name, result.error)
            if name not in FILES and path != ("config",):
                assert result.status == 2, (name, result)
                assert result.error.endswith(" It has no UTF-8 form\n"), (name, result.error)
                assert result.error.count("\n") == 1
                assert result.output == ""


LISTS: Final = [path for path in COMMANDS if path[-1] == "list" and path != ("spark", "spool", "list")]


@pytest.mark.parametrize("path", LISTS, ids=" ".join)
def test_columns_of_lists(path: tuple[str, ...], run: Command) -> None:
    """A column is one of this list, and the virtual host has a name, whether it is shown or not."""
    rows = run(*path, "--json").json
    for each in ("nope", "recv_oct_details.rate.x", "message_stats.nope"):
        for option in ("--columns", "--sort"):
            refused = run(*path, option, each)
            assert (refused.status, refused.output) == ((1, "") if rows else (0, refused.output))
            assert ("no column '" in refused.error) == bool(rows)
    if any(each.names[0] == "--vhost" for each in COMMANDS[path].assemble_argument_collection() if each.names):
        found = run(*path, "--vhost", "/", "--columns", "vhost", "--json").json
        assert all(each == {"vhost": "/"} for each in found)
        assert bool(found) == any(each.get("vhost", "/") == "/" for each in rows)


@pytest.mark.repeats
@pytest.mark.parametrize("path", [path for path in COMMANDS if path not in SLOW], ids=" ".join)
def test_a_line_end_in_a_text_begins_no_line(path: tuple[str, ...], run: Command, serving: ApiThread) -> None:
    for name, given in texts(path, arguments(path, serving.broker.url)):
        result = run(*path, *given("a\nEVIL"))
        if name not in ("--job", "--master"):  # of a command that is printed
            assert not re.search(r"^EVIL", result.output + result.error, re.MULTILINE), (name, result)


@pytest.mark.parametrize("variable", ["HAREBELL_URL", "HAREBELL_HTTP_URL"])
@pytest.mark.parametrize("url", ["amqp://guest:s3cr3t\udcff@127.0.0.1/", "http://s3cr3t\udcff", "amqp://h/\udcff"])
@pytest.mark.parametrize("path", [("queues", "list"), ("users", "list"), ("ping",), ("route", "explain", "x")])
def test_a_variable_that_is_not_utf8(
    path: tuple[str, ...], url: str, variable: str, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HAREBELL_URL", "HAREBELL_HTTP_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, url)
    if path == ("ping",) and variable != "HAREBELL_URL":
        return
    result = run(*path)
    assert result.status in (1, 2)
    assert "no UTF-8 form" in result.error
    assert "s3cr3t" not in result.error


EMPTY_NAMES: Final = (
    ("delete_queue", ""), ("purge_queue", ""), ("delete_user", ""), ("add_user", "", "secret"), ("delete_vhost", ""),
    ("set_permissions", "", ".*", ".*", ".*"), ("clear_policy", ""), ("set_policy", "", "^x", '{"max-length": 1}'),
    ("close_connection", "", "why"), ("set_user_limits", "", "{}"), ("clear_parameter", "shovel", ""),
    ("list_user_permissions", ""), ("list_queues", "-p", ""), ("clear_topic_permissions", "guest", ""),
)  # fmt: skip


@pytest.mark.parametrize("given", EMPTY_NAMES, ids=lambda given: given[0])
def test_an_empty_name_is_refused_by_harebellctl(
    given: tuple[str, ...], run: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = runner(monkeypatch, capsys, script=harebellctl)(*given)
    assert result.status == 64
    assert result.error.startswith("Error (argument validation): ")
    assert " is empty" in result.error or "It is empty" in result.error
    for at, value in enumerate(given):
        if value in ("", "-p"):
            continue
        cut = runner(monkeypatch, capsys, script=harebellctl)(*given[:at], f"{value}\udcff", *given[at + 1 :])
        assert "Traceback" not in cut.error
        assert cut.status == 64
        assert "UTF-8 form" in cut.error


@pytest.mark.parametrize(
    "given",
    [("list_queues", "--timeout"), ("set_policy", "p", "^x", '{"max-length": 1}', "--priority"),
     ("check_certificate_expiration", "--unit", "weeks", "--within")],
    ids=lambda given: " ".join(given[::3]),
)  # fmt: skip
def test_an_absurd_value_is_no_traceback_in_harebellctl(
    given: tuple[str, ...], run: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for value in (*NUMBERS, "1.5"):
        result = runner(monkeypatch, capsys, script=harebellctl)(*given[:-1], f"{given[-1]}={value}")
        assert "Traceback" not in result.error
        assert result.status in {*STATUSES, 64, 70}, (value, result)
        if value == "1.5" and given[-1] != "--timeout":  # a number of seconds
            assert result.status == 64
            assert result.error.endswith("It must be a whole number\n")


class Failing(NamedTuple):
    """A standard output, and what a command that writes to it ends with."""

    open: Callable[[], TextIO | None]
    status: int
    said: str


def writer(descriptor: int, *, buffered: bool) -> TextIO:
    return TextIOWrapper(os.fdopen(descriptor, "wb", -1 if buffered else 0), write_through=not buffered)


def full(*, buffered: bool) -> TextIO:
    return writer(os.open("/dev/full", os.O_WRONLY), buffered=buffered)


def pipe(*, buffered: bool) -> TextIO:
    reading, writing = os.pipe()
    os.close(reading)
    return writer(writing, buffered=buffered)


OUTPUTS: Final = {
    "a full disk": Failing(lambda: full(buffered=True), 1, "standard output cannot be written: No space left"),
    "a full disk, unbuffered": Failing(lambda: full(buffered=False), 1, "cannot be written: No space left on device"),
    "no descriptor": Failing(lambda: None, 1, "standard output cannot be written: Bad file descriptor"),
    "a pipe that nobody reads": Failing(lambda: pipe(buffered=True), 141, ""),
    "a pipe that nobody reads, unbuffered": Failing(lambda: pipe(buffered=False), 141, ""),
}


@pytest.mark.repeats
@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("path", [path for path in COMMANDS if path not in SLOW], ids=" ".join)
def test_output_that_cannot_be_written(
    path: tuple[str, ...],
    output: str,
    run: Command,
    serving: ApiThread,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = arguments(path, serving.broker.url)
    whole = run(*path, *given)
    out = OUTPUTS[output].open()
    monkeypatch.setattr("sys.stdout", out)
    with pytest.raises(SystemExit) as ended:
        main([*path, *given])
    monkeypatch.undo()
    if out is not None:
        out.close()  # nothing is left to be written
    error = capsys.readouterr().err
    assert "Traceback" not in error
    if not whole.output:
        assert ended.value.code == whole.status
        return
    assert ended.value.code == OUTPUTS[output].status
    assert error.count("\n") <= 1 + whole.error.count("\n")
    assert OUTPUTS[output].said in error


@pytest.mark.repeats
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-16"])
@pytest.mark.parametrize("path", [path for path in COMMANDS if path not in SLOW], ids=" ".join)
def test_output_in_any_encoding(
    path: tuple[str, ...], encoding: str, run: Command, serving: ApiThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = arguments(path, serving.broker.url)
    whole = run(*path, *given)
    out = TextIOWrapper(BytesIO(), encoding)
    monkeypatch.setattr("sys.stdout", out)
    with pytest.raises(SystemExit) as ended:
        main([*path, *given])
    assert (ended.value.code or 0) == whole.status
    out.seek(0)
    text = out.read()
    if path == ("definitions", "export"):
        assert "snow ☃ 📦 é" in [each["name"] for each in json.loads(text)["queues"]]
    if path == ("queues", "list"):
        assert ("snow ☃ 📦 é" if encoding == "utf-16" else "snow \\u2603 \\U0001f4e6 ") in text
