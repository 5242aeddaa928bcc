"""Log records: one line of printable characters each, whatever a peer sends, wherever it can send it."""

from __future__ import annotations

import io
import logging
import re
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import example, given, settings, strategies as st

import harebell
from harebell.errors import LocalProtocolError
from harebell.logs import LOGGERS, MOST_LINE, MOST_PART, Lines
from harebell.protocol.v091 import Engine, Role, methods as m
from harebell.protocol.v091.fields import write_table
from harebell.routing.definitions import parse_definitions
from tests.broker.kit import Client, FakeTransport, NodeKit, connect
from tests.fixtures.profiles import scaled

SOURCES = Path(str(harebell.__file__)).parent

EVIL = (
    "x\n2026-01-01 00:00:00 INFO harebell.broker.login: 10.0.0.1: user 'admin' logged in",
    "a\r\n\0\x1b[2J\x1b[31m\x9b1m\x07\x7f",
    "\u2028\u2029\x85\x0b\x0c",
    "\u202egnihton",
    "é" * 120,
    "%s %d %(x)s {}",
)
TEXTS = st.one_of(st.sampled_from(EVIL), st.text(st.characters(codec="utf-8"), max_size=60))


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeKit]:
    kit = NodeKit(tmp_path_factory.mktemp("logs") / "data", events=True)
    yield kit
    kit.stop()


Place = Callable[[NodeKit, str], object]


def login(
    kit: NodeKit, mechanism: str = "PLAIN", response: bytes = b"", properties: dict[str, object] | None = None
) -> None:
    engine, transport = Engine(Role.CLIENT), FakeTransport()
    connection = connect(kit.node, transport)
    engine.send_header()
    connection.receive_data(engine.data_to_send())
    engine.receive_data(bytes(transport.written))
    list(engine.events())
    engine.send_method(0, m.ConnectionStartOk(properties or {}, mechanism, response))
    connection.receive_data(engine.data_to_send())
    while kit.node.logins.verifier.running:
        kit.run_sync()
    connection.lost()


def user(kit: NodeKit, text: str) -> None:
    login(kit, "AMQPLAIN", write_table({"LOGIN": text, "PASSWORD": "secret"})[4:])


def sent(*methods: Callable[[str], m.Method]) -> Place:
    """What a client that is logged in sends."""

    def send(kit: NodeKit, text: str) -> None:
        client = Client(kit.node)
        for method in methods:
            client.send(1, method(text))
        client.connection.lost()

    return send


def published(kit: NodeKit, text: str) -> None:
    client = Client(kit.node)
    client.publish(text, b"", "amq.topic", headers={text[:100]: text, "CC": [text, 5]})
    client.connection.lost()


def keyed(kit: NodeKit, text: str) -> None:
    client = Client(kit.node)
    client.publish(text, b"", text)
    client.connection.lost()


def vhost(kit: NodeKit, text: str) -> None:
    Client(kit.node, vhost=text)


def defined(kit: NodeKit, text: str) -> None:
    entry = {"vhost": "/", "component": text or "x", "name": "p", "value": text}
    harebell_import(kit, {"parameters": [entry]})


def harebell_import(kit: NodeKit, definitions: dict[str, object]) -> None:
    from harebell.broker.operations.definitions import import_definitions

    import_definitions(kit.node, parse_definitions(definitions))


PLACES: dict[str, Place] = {
    "mechanism": lambda kit, text: login(kit, text),
    "response": lambda kit, text: login(kit, "PLAIN", text.encode()),
    "scram": lambda kit, text: login(kit, "SCRAM-SHA-256", text.encode()),
    "user": user,
    "client properties": lambda kit, text: login(kit, "NONE", b"", {"product": text, text[:100]: {"x": text}}),
    "vhost": vhost,
    "queue": sent(lambda text: m.QueueDeclare(queue=text, passive=True)),
    "declared queue": sent(
        lambda text: m.QueueDeclare(queue=text, exclusive=True), lambda text: m.QueueDeclare(queue=text, durable=True)
    ),
    "queue to purge": sent(lambda text: m.QueuePurge(queue=text)),
    "exchange": sent(lambda text: m.ExchangeDeclare(exchange=text, type="direct", passive=True)),
    "exchange type": sent(lambda text: m.ExchangeDeclare(exchange="x", type=text)),
    "arguments": sent(lambda text: m.QueueDeclare(queue="", arguments={"x-queue-type": text, "x-max-length": text})),
    "binding": sent(
        lambda text: m.QueueDeclare(queue=""), lambda text: m.QueueBind(queue="", exchange=text, routing_key=text)
    ),
    "consumer tag": sent(
        lambda text: m.QueueDeclare(queue=""),
        lambda text: m.BasicConsume(queue="", consumer_tag=text),
        lambda text: m.BasicConsume(queue="", consumer_tag=text),
    ),
    "routing key": keyed,
    "headers": published,
    "close": lambda kit, text: Client(kit.node).send(0, m.ConnectionClose(320, text)),
    "channel close": sent(lambda text: m.ChannelClose(320, text)),
    "definitions": defined,
}


@pytest.mark.parametrize("place", PLACES)
@settings(max_examples=scaled(25))
@given(text=TEXTS)
@example(text=EVIL[0])
@example(text=EVIL[1])
@example(text=EVIL[2])
def test_whatever_a_peer_sends(kit: NodeKit, caplog: pytest.LogCaptureFixture, place: str, text: str) -> None:
    caplog.clear()
    text = text.encode()[:255].decode(errors="ignore")  # what a shortstr takes
    with caplog.at_level(logging.DEBUG, "harebell"):
        try:
            PLACES[place](kit, text)
        except (LocalProtocolError, ValueError):  # our own end refuses to send it
            return
    for record in caplog.records:
        said = record.getMessage()
        assert said.isprintable(), said
        assert len(said) <= MOST_LINE


def test_the_places_are_logged(kit: NodeKit, caplog: pytest.LogCaptureFixture) -> None:
    """Most of them say something: the test above sees what it is about."""
    silent = []
    for place, come in PLACES.items():
        caplog.clear()
        with caplog.at_level(logging.DEBUG, "harebell"):
            come(kit, "forged-by-a-peer\t")
        if not any("forged-by-a-peer" in record.getMessage() for record in caplog.records):
            silent.append(place)
    assert set(silent) <= {
        "response",
        "client properties",
        "headers",
        "consumer tag",
        "close",
        "channel close",
        "scram",
    }


def test_every_logger_is_in_the_table() -> None:
    sources = (path.read_text() for path in SOURCES.rglob("*.py"))
    used = {name for text in sources for name in re.findall(r'getLogger\("(harebell[^"]*)"', text)}
    assert used == set(LOGGERS)


def test_no_logger_has_a_name_that_is_made_up() -> None:
    named = re.compile(r'getLogger\((?:"harebell[^"]*"|_name|)\)')
    for path in SOURCES.rglob("*.py"):
        if "PySparkLogger" not in (text := path.read_text()):
            assert len(named.findall(text)) == text.count("getLogger("), f"{path}: name the logger where it is made"


@pytest.mark.parametrize("package", sorted({each.split(".")[1] for each in LOGGERS} - {"serve"}))
def test_every_package_has_its_records_in_lines(package: str) -> None:
    assert "import harebell.logs" in Path(str(import_module(f"harebell.{package}").__file__)).read_text()


def logged(message: str, *arguments: object, error: Exception | None = None) -> str:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(Lines("%(levelname)s %(message)s"))
    logger = logging.getLogger("harebell.broker")
    logger.addHandler(handler)
    try:
        logger.error(message, *arguments, exc_info=error)
    finally:
        logger.removeHandler(handler)
    return stream.getvalue()


def test_a_time_has_its_distance_from_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    record = logging.makeLogRecord({"created": 1_700_000_000.25})
    try:
        for zone, shown in (("UTC0", "2023-11-14 22:13:20.250+00:00"), ("XYZ-5:30", "2023-11-15 03:43:20.250+05:30")):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            assert Lines("%(asctime)s").format(record) == shown
    finally:
        monkeypatch.undo()
        time.tzset()


def test_arguments_are_escaped_and_cut() -> None:
    assert logged("%s of %r: %d, %.1f", "a\nb", "c\n", 5, 1.25) == "ERROR a\\nb of 'c\\n': 5, 1.2\n"
    assert logged("%s end", "x" * 5000) == f"ERROR {'x' * (MOST_PART - 3)}... end\n"
    assert logged("100 %") == "ERROR 100 %\n"
    assert len(logged("%s" * 10, *("x" * 5000 for _ in range(10)))) < MOST_LINE + 20
    assert logged("%(a)s", {"a": "x\ny"}) == "ERROR x\\ny\n"


def test_a_traceback_is_indented() -> None:
    def fail() -> None:
        raise ValueError("first\nERROR forged\x1b[2J")

    with pytest.raises(ValueError) as caught:
        fail()
    first, *more = logged("failed", error=caught.value).splitlines()
    assert first == "ERROR failed"
    assert all(line.startswith("    ") and line.isprintable() for line in more)
    assert more[-1] == "    ERROR forged\\x1b[2J"


def test_a_wrong_format_is_the_handlers_to_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    assert logged("%d", "no number") == ""
