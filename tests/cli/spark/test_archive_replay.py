"""`harebell spark archive` and `replay` without Spark: what is refused before anything starts."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import pytest
from rich.console import Console

from harebell.cli.spark import archive as archive_command
from harebell.cli.spark.replay import Chosen, How
from harebell.cli.terminal.display import Display
from harebell.client.blocking import connect
from harebell.errors import InvalidArgument
from harebell.spark.jobs.archive import Archived
from harebell.spark.jobs.archive.manifest import Manifest
from harebell.spark.jobs.replay import Pace, Selection, Target
from harebell.spark.jobs.replay.state import ReplayPlan, State
from tests.cli.administering import Command, runner
from tests.spark.jobs.filling import archive_of, data
from tests.wire import BrokerThread


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    def started(*arguments: object) -> None:
        raise AssertionError("Spark was asked for")

    monkeypatch.setattr("harebell.cli.spark.archive.run_job", started)
    monkeypatch.setattr("harebell.cli.spark.replay.run_job", started)
    return runner(monkeypatch, capsys)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["archive", "box"], "harebell: name the queues to archive, or say --compact or --verify\n"),
        (["archive", "--tap", "--compact", "box"], "harebell: --tap is for queues: name them\n"),
        (
            ["archive", "box", "q", "--management-url", "http://localhost"],
            "harebell: --management-url is for --tap: give --tap too\n",
        ),
        (["replay", "box", "--header", "x"], "harebell: --header takes NAME=VALUE, not 'x'\n"),
        (["replay", "box", "--speed", "fast"], "harebell: --speed takes a number such as 10x, not 'fast'\n"),
        (["replay", "box", "--speed", "0x"], "harebell: speed is 0.0, and must be a number of more than 0\n"),
        (
            ["replay", "box", "--speed", "1x", "--rate", "5"],
            "harebell: a replay goes at a rate or at a speed, not both\n",
        ),
        (
            ["replay", "box", "--resume", "one", "--key", "a.#"],
            "harebell: --resume goes on with what was asked for at first: leave the other options out\n",
        ),
    ],
)
def test_one_clear_line(run: Command, arguments: list[str], text: str) -> None:
    result = run("spark", *arguments)
    assert (result.status, result.output, result.error) == (1, "", text)


@pytest.mark.parametrize(
    "arguments",
    [["archive"], ["archive", "box", "q", "--batch", "0"], ["replay", "box", "--rate", "0"],
     ["replay", "box", "--since", "yesterday"], ["replay", "box", "--limit", "0"]],
)  # fmt: skip
def test_values_that_are_none(run: Command, arguments: list[str]) -> None:
    assert run("spark", *arguments).status == 2


def test_options_of_a_replay() -> None:
    since = datetime(2026, 1, 5)
    chosen = Chosen(since=since, queue=("q",), key="a.#", header=("x=1=2", "y="), where="true", limit=3)
    assert chosen.selection() == Selection(since, None, ("q",), "a.#", (("x", "1=2"), ("y", "")), "true", 3)
    how = How(to_exchange="", to_key="q", mandatory=False, speed="2.5x")
    assert (how.target(), how.pace()) == (Target("", "q", False), Pace(None, 2.5))
    with pytest.raises(InvalidArgument):
        How(rate=1.0, speed="1").pace()


@pytest.mark.parametrize("arguments", [["replay"], ["archive", "--verify"], ["archive", "--compact"]])
def test_what_needs_an_archive_says_so_at_once(run: Command, tmp_path: Path, arguments: list[str]) -> None:
    result = run("spark", *arguments, str(tmp_path))
    expected = f"harebell: there is no archive in {tmp_path}; `harebell spark archive` makes one\n"
    assert (result.status, result.output, result.error) == (1, "", expected)


def test_a_replay_that_runs_is_not_resumed(run: Command, tmp_path: Path) -> None:
    root = archive_of(tmp_path / "box", [{"queue": "q", "offset": 0}]).root
    state = State(root, "one")
    state.create(ReplayPlan("box", Selection(), Target(), Pace(), 1))
    with state.held():
        result = run("spark", "replay", root, "--resume", "one")
    assert result.status == 1
    assert result.error.startswith("harebell: replay 'one' is running in another process: wait for its end")


def test_a_tap_takes_the_place_of_a_work_queue(
    broker: BrokerThread, monkeypatch: pytest.MonkeyPatch, run: Command, tmp_path: Path
) -> None:
    url = f"amqp://guest:guest@127.0.0.1:{broker.port}/"
    archived: list[str] = []

    def job(name: str, cluster: object, work: Callable[[object, Display], int], **more: object) -> int:
        assert name == "archive"
        return work(None, Display(Console(file=io.StringIO())))

    class Nothing:
        def run(self, *arguments: object) -> Archived:
            return Archived((), 0, 0)

    def prepare(at: str, queues: Sequence[str], folder: Path, **options: object) -> Nothing:
        assert at == url
        archived.extend(queues)
        Manifest.make(folder)
        return Nothing()

    monkeypatch.setattr("harebell.cli.spark.archive.run_job", job)
    monkeypatch.setattr("harebell.spark.jobs.archive.prepare", prepare)
    with connect(url, timeout=60) as connection, connection.channel() as channel:
        for name, kind in (("work", "classic"), ("log", "stream"), ("aged.tap", "stream"), ("aged", "classic")):
            channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind})
            channel.queue_bind(name, "amq.topic", "#")
        command = ("spark", "archive", str(tmp_path / "box"), "work", "log", "--tap", "--url", url)
        for _ in range(2):
            result = run(*command)
            assert (result.status, result.error) == (0, "")
            assert "'work' keeps its messages: archiving 'work.tap'" in result.output
        assert archived == ["work.tap", "log"] * 2
        channel.confirm_select()
        channel.publish(b"x", "amq.topic", "orders.1")
        assert [channel.message_count(name) for name in ("work", "work.tap")] == [1, 1]
        refused = run("spark", "archive", str(tmp_path / "box"), "aged", "--tap", "--url", url)
        assert refused.status == 1
        assert "archive it by its own name, without --tap" in refused.error


def test_an_archive_that_is_not_there(tmp_path: Path) -> None:
    from harebell.spark.jobs.replay import replay

    with pytest.raises(InvalidArgument, match="there is no archive in"):
        replay(None, "amqp://localhost/", tmp_path / "none")  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [2, 3])
def test_many_small_files_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(archive_command, "MANY_SMALL", 3)
    table = Manifest.make(tmp_path / "box")
    table.add([data(table, 1) for _ in range(count)], "w", 0)
    written = io.StringIO()
    archive_command._warn_of_small_files(Display(Console(file=written, width=400)), table.root, 1 << 20)
    said = (
        "3 of the archive's 3 files are small and of past days: reading them takes long, and "
        f"`harebell spark archive {table.root}"
    )
    assert (said in written.getvalue()) == (count == 3)
