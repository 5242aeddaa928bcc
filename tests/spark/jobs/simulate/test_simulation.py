"""simulate and diff in Spark, and their commands: one small archive through small topologies, exact numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from harebell.cli.spark import diff as diff_command, simulate as simulate_command
from harebell.cli.spark.simulate import Consumed, Node
from harebell.cli.spark.simulate_input import Messages
from harebell.cli.terminal.display import Display
from harebell.errors import InvalidArgument
from harebell.spark.jobs.diff import KeyChange, QueueChange, diff
from harebell.spark.jobs.simulate.simulation import BindingLoad, KeyLoad, Simulation, simulate, topology_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def definitions(eu: str = "*.eu", **others: Any) -> dict[str, Any]:
    bindings = [
        ("orders", "all", "#", {}),
        ("orders", "eu", eu, {}),
        ("orders", "never", "x.y.z", {}),
        ("kinds", "red", "", {"colour": "red"}),
    ]
    return {
        "exchanges": [
            {"vhost": "/", "name": "orders", "type": "topic"},
            {"vhost": "/", "name": "kinds", "type": "headers"},
            {"vhost": "/", "name": "quiet", "type": "direct", "internal": True},
        ],
        "queues": [{"vhost": "/", "name": name} for name in ("all", "eu", "red", "never")],
        "bindings": [
            {"vhost": "/", "source": source, "destination": queue, "destination_type": "queue", "routing_key": key,
             "arguments": arguments}
            for source, queue, key, arguments in bindings
        ],
        **others,
    }  # fmt: skip


SENT: list[tuple[str, str | None, str | None, int | None, int]] = [
    # exchange, routing key, headers, second, times
    ("orders", "order.eu", None, 0, 3),
    ("orders", "order.us", '{"CC":["order.eu"]}', 0, 1),
    ("orders", "order.us", '{"colour":"red"}', 61, 2),
    ("kinds", "", '{"colour":"red"}', 61, 4),
    ("kinds", "k", '{"colour":"blue"}', 61, 5),
    ("kinds", None, None, None, 1),
    ("quiet", "k", None, 130, 2),
    ("nowhere", "k", None, 130, 1),
    ("", "eu", None, 130, 1),
]


@pytest.fixture(scope="module")
def archive(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [
        (exchange, key, headers, second, bytes(10))
        for exchange, key, headers, second, times in SENT
        for _ in range(times)
    ]
    frame = spark.createDataFrame(rows, "exchange string, routing_key string, headers string, at long, body binary")
    folder = tmp_path_factory.mktemp("archive") / "messages"
    frame.selectExpr("*", "timestamp_seconds(at) as timestamp").drop("at").write.parquet(str(folder))
    return folder


@pytest.fixture
def frame(spark: SparkSession, archive: Path) -> DataFrame:
    return spark.read.parquet(str(archive))


def test_every_message_where_it_goes(frame: DataFrame) -> None:
    result = simulate(frame, topology_of(json.dumps(definitions())))
    assert (result.messages, result.bytes, result.undated) == (20, 200, 1)
    assert (result.start, result.published) == (0, (4, 11, 4))
    assert {queue.name: (queue.messages, queue.bytes, queue.arrivals) for queue in result.queues} == {
        "all": (6, 60, (4, 2, 0)),
        "eu": (5, 50, (4, 0, 1)),
        "red": (4, 40, (0, 4, 0)),
        "never": (0, 0, (0, 0, 0)),
    }
    assert (result.copies, result.copied_bytes, result.unroutable) == (15, 150, 6)
    assert result.unroutable_keys == (KeyLoad("kinds", "k", 5, 50), KeyLoad("kinds", "", 1, 10))
    assert result.refused == {
        "cannot publish to internal exchange 'quiet' in vhost '/'": 2,
        "no exchange 'nowhere' in vhost '/'": 1,
    }
    assert result.exchanges == {"kinds": 10, "orders": 6, "quiet": 2, "": 1, "nowhere": 1}
    assert [binding.messages for binding in result.bindings] == [6, 4, 4, 0]
    assert result.idle_bindings == (BindingLoad("orders", "queue", "never", "x.y.z", {}, 0),)


def test_columns_that_routing_looks_at_must_be_there(frame: DataFrame) -> None:
    topology = topology_of(json.dumps(definitions()))
    with pytest.raises(InvalidArgument, match="no column headers, which routing looks at"):
        simulate(frame.drop("headers"), topology)
    with pytest.raises(InvalidArgument, match="exchange \\(or name one for all messages\\)"):
        simulate(frame.drop("exchange"), topology)
    with pytest.raises(InvalidArgument, match="a window is longer than 0 s"):
        simulate(frame, topology, window=0)


def test_short_archives_have_short_windows(frame: DataFrame, tmp_path: Path) -> None:
    kept = Messages(archive=tmp_path)
    seconds = "CAST({} AS TIMESTAMP) AS timestamp"
    spans = {600: 1.0, 601: 60.0}
    for span, width in spans.items():
        ends = frame.sparkSession.sql(f"SELECT {seconds.format('0')} UNION ALL SELECT {seconds.format(str(span))}")
        assert kept.width(ends) == width
    assert kept.width(frame.drop("timestamp")) == 60.0
    assert Messages(archive=tmp_path, window=5.0).width(frame) == 5.0
    assert Messages(queue="log").width(frame) == 60.0


def test_what_is_different(frame: DataFrame) -> None:
    before = definitions()
    after = definitions(eu="*.us", queues=[{"vhost": "/", "name": name} for name in ("all", "eu", "never", "new")])
    found = diff(frame, topology_of(json.dumps(before)), topology_of(json.dumps(after)))
    assert found.queues == (
        QueueChange("red", "vanishes", 4, 0, 40, 0),
        QueueChange("eu", "fewer", 5, 4, 50, 40),
        QueueChange("new", "appears", 0, 0, 0, 0),
        QueueChange("all", "same", 6, 6, 60, 60),
        QueueChange("never", "same", 0, 0, 0, 0),
    )
    assert found.lost == KeyChange(4, 1, (KeyLoad("kinds", "", 4, 40),))
    assert found.gained == KeyChange(0, 0, ())
    assert found.moved == KeyChange(5, 2, (KeyLoad("orders", "order.eu", 3, 30), KeyLoad("orders", "order.us", 2, 20)))
    assert [change.name for change in found.losing] == ["red", "eu"]
    assert not found.same
    assert found.after.messages == found.before.messages == 20
    assert diff_command.failures(found, ()) == []
    assert diff_command.failures(found, ("unroutable", "loss", "change")) == [
        "4 messages of 1 keys reach no queue any more",
        "queues get fewer messages than before: red, eu",
        "the topologies differ for these messages",
    ]


@pytest.fixture
def here(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands work in this process's session, and print in wide lines."""

    def job(name: str, cluster: object, work: Callable[..., object], **options: object) -> object:
        return work(spark, Display(Console(stderr=True, width=100)))

    for module in (simulate_command, diff_command):
        monkeypatch.setattr(module, "run_job", job)


def write(folder: Path, name: str, document: object) -> Path:
    path = folder / name
    path.write_text(json.dumps(document))
    return path


@pytest.mark.usefixtures("here")
def test_the_command(archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, "definitions.json", definitions())
    rates = write(tmp_path, "consumers.json", {"all": 0, "*": 1})
    status = simulate_command.simulate(
        file, messages=Messages(archive=archive, window=60.0),
        consumed=Consumed(consumers=rates, consumer=("eu=0.05",)), html=tmp_path / "report.html",
    )  # fmt: skip
    assert status == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "20 messages, 200 B in 3 min; 15 copies in queues, 0.75 for each message" in lines
    assert "1 messages have no timestamp, and are in no rate" in lines
    assert "all classic 6 60 B 0.0 0.1 0 6 never" in lines
    assert "eu classic 5 50 B 0.0 0.1 0.1 1 0 s" in lines
    assert "unroutable: 6 messages, 30.00%, of 2 keys" in lines
    assert "kinds k 5" in lines
    assert "refused: 1 messages: no exchange 'nowhere' in vhost '/'" in lines
    assert "# orders queue all 6" in lines
    assert "1 of 4 bindings took no message" in lines
    assert "orders -> queue never: 'x.y.z'" in lines
    assert any(line.startswith("a RabbitMQ cluster of 1 node would carry it: decided by processor") for line in lines)
    page = (tmp_path / "report.html").read_text()
    assert (page.count('"scroll wide"'), page.count('"scroll narrow"'), page.count('class="ranking"')) == (2, 2, 1)
    for part in ("Backlog", "Nodes of a RabbitMQ cluster", "no exchange &#x27;nowhere&#x27;", "x.y.z"):
        assert part in page


@pytest.mark.usefixtures("here")
def test_the_command_with_a_profile_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "saved.json"
    chosen = Messages(profile="developer", hours=0.5, window=600)
    assert simulate_command.simulate(messages=chosen, json=True, save_definitions=saved) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["messages"], sum(told["published"]), len(told["published"])) == (1800, 1800, 3)
    assert told["plan"]["cluster"]["nodes"] == 1
    assert len(topology_of(saved.read_text()).queues) == 10


@pytest.mark.usefixtures("here")
def test_the_command_diff(archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = write(tmp_path, "before.json", definitions())
    after = write(tmp_path, "after.json", definitions(eu="*.us"))
    page = tmp_path / "diff.html"
    status = diff_command.diff(
        before, after, messages=Messages(archive=archive), fail_on=("unroutable", "loss"), html=page
    )
    assert status == 2
    out = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "eu fewer 5 4 -1" in lines
    assert "5 messages of 2 keys reach other queues:" in lines
    assert "failed: queues get fewer messages than before: eu" in lines
    assert "reach no queue any more" not in out
    assert "queues get fewer messages" in page.read_text()
    assert diff_command.diff(before, before, messages=Messages(archive=archive), fail_on=("change",)) == 0
    assert "every message goes where it went" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "one of --archive, --queue and --profile"),
        ({"messages": Messages(profile="developer", queue="q")}, "one of --archive"),
        ({"messages": Messages(profile="big")}, "no profile 'big'"),
        ({"messages": Messages(queue="q", hours=2)}, "--hours and --scale are for --profile"),
        ({"messages": Messages(profile="developer", duration=1)}, "--duration is for"),
        ({"messages": Messages(profile="developer", hours=-1)}, "--hours is above 0"),
        ({"messages": Messages(queue="q", window=0)}, "--window is above 0"),
        ({"messages": Messages(queue="q", duration=0)}, "--duration is above 0"),
        ({"messages": Messages(archive=Path("/none/at/all"))}, "there is no folder /none/at/all"),
        ({"messages": Messages(queue="q")}, "name a definitions file"),
        ({"messages": Messages(queue="q"), "definitions": Path("/none.json")}, "/none.json: No such file"),
        ({"messages": Messages(profile="developer"), "top": 0}, "--top is 1 or more"),
        ({"messages": Messages(profile="developer"), "consumed": Consumed(consumer=("q",))}, "takes QUEUE=RATE"),
        ({"messages": Messages(profile="developer"), "consumed": Consumed(consumer=("q=-1",))}, "takes QUEUE=RATE"),
        ({"messages": Messages(profile="developer"), "consumed": Consumed(consumers=Path("/no.json"))}, "/no.json"),
        ({"messages": Messages(profile="developer"), "node": Node(cores=0)}, "a node's cores"),
        (
            {"messages": Messages(queue="q"), "definitions": Path("x.json"), "save_definitions": Path("y.json")},
            "--save-definitions writes a profile's topology",
        ),
    ],
)
def test_what_the_command_refuses(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        simulate_command.simulate(**options)
    assert text in str(refused.value)


def test_files_that_are_not_what_they_should_be(tmp_path: Path) -> None:
    file = tmp_path / "definitions.json"
    file.write_text("{")
    with pytest.raises(InvalidArgument, match="definitions: not JSON"):
        simulate_command.simulate(file, messages=Messages(queue="q"))
    with pytest.raises(InvalidArgument, match="json: not JSON"):
        simulate_command.simulate(messages=Messages(profile="developer"), consumed=Consumed(consumers=file))
    with pytest.raises(InvalidArgument, match="Is a directory"):
        simulate_command.simulate(messages=Messages(profile="developer"), save_definitions=tmp_path)
    with pytest.raises(InvalidArgument, match="--top is 1 or more"):
        diff_command.diff(file, file, messages=Messages(queue="q"), top=0)


def test_a_simulation_without_traffic() -> None:
    nothing = Simulation("/", 60, None, 0, 0, 0, (), 0, 0, 0, {}, {}, (), (), (), 0)
    assert (nothing.fan_out, nothing.unroutable_share, nothing.idle_bindings) == (0, 0, ())
