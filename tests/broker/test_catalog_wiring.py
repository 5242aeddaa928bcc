"""What is declared, set and added outlives the broker, and nothing of it is acknowledged before it is kept."""

from __future__ import annotations

import errno
import logging
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from harebell.broker import Broker
from harebell.broker.connections.base import FLUSH_BYTES
from harebell.broker.node import CATALOG
from harebell.broker.operations.definitions import export_definitions, import_definitions
from harebell.broker.operations.recovery import log as recovery_log
from harebell.broker.operations.startup import start_node
from harebell.broker.rules.limits import set_user_limits
from harebell.broker.store.catalog.catalog import Catalog, CatalogError
from harebell.broker.store.data_folder import LastStop, mark_running
from harebell.protocol.v091 import methods as m
from harebell.routing.definitions import (
    BindingDefinition,
    Definitions,
    ExchangeDefinition,
    GlobalParameter,
    Parameter,
    Permission,
    QueueDefinition,
    TopicPermission,
    User,
    VirtualHost,
)
from harebell.routing.policies import Policy
from harebell.routing.steps import complete
from tests.broker.kit import Client, NodeKit

STREAM = {"x-queue-type": "stream"}
BEFORE_CATALOG = Path(__file__).parent / "store" / "before_catalog"


@contextmanager
def running(data: Path, *, events: bool = False) -> Iterator[NodeKit]:
    kit = NodeKit(data, events=events)
    yield kit
    kit.stop()


def fill(kit: NodeKit) -> None:
    """Something of every kind, by every way in."""
    node = kit.node
    node.add_vhost(VirtualHost("v", "text", ("a", "b"), "quorum", metadata={"team": "red"}, limits={"max-queues": 99}))
    node.users.put(User("u", "", tags=("management",), extra={"since": 2020}))
    set_user_limits(node.users, "u", {"max-channels": 7})
    node.users.set_permission(Permission("v", "guest", ".*", ".*", ".*"))
    node.users.set_permission(Permission("v", "u", "c", "w", "r"))
    node.users.set_topic_permission(TopicPermission("v", "u", "amq.topic", "w", "r"))
    node.parameters.set(Parameter("/", "shovel", "s", {"src": None}))
    node.parameters.set_global(GlobalParameter("g", [1, "two"]))
    node.vhosts["/"].policies.set(Policy("/", "p", "^q", {"max-length": 5}))
    node.vhosts["/"].policies.set(Policy("/", "p", "^q", {"message-ttl": 9}), operator=True)
    node.vhosts["/"].policies.set(Policy("/", "ae", "^direct", {"alternate-exchange": "amq.fanout"}))
    client = kit.client()
    for name, kind, more in (
        ("direct", "direct", {}),
        ("late", "x-delayed-message", {"x-delayed-type": "topic"}),
        ("recent", "x-recent-history", {"x-recent-history-length": 3}),
        ("named", "fanout", {"alternate-exchange": "direct", "bytes": b"\xff"}),
    ):
        client.call(m.ExchangeDeclare(name, kind, durable=True, arguments=more), m.ExchangeDeclareOk)
    inner = m.ExchangeDeclare("inner", "fanout", durable=True, auto_delete=True, internal=True)
    client.call(inner, m.ExchangeDeclareOk)
    client.declare("q", x_max_length=10)
    client.declare("quorum", x_queue_type="quorum")
    client.declare("s", x_queue_type="stream")
    client.declare("groups", x_message_group="k")
    client.call(m.QueueDeclare("shy", durable=True, auto_delete=True), m.QueueDeclareOk)
    client.call(m.QueueBind("q", "direct", "k", arguments={"one": 1}), m.QueueBindOk)
    client.call(m.QueueBind("q", "amq.topic", "a.#"), m.QueueBindOk)
    client.call(m.ExchangeBind("inner", "direct", ""), m.ExchangeBindOk)
    client.call(m.QueueBind("shy", "inner", ""), m.QueueBindOk)
    other = kit.client(vhost="v")
    other.declare("by default")
    node.batch.end()


def test_everything_durable_comes_back(tmp_path: Path) -> None:
    with running(tmp_path) as kit:
        fill(kit)
        before = export_definitions(kit.node)
    with running(tmp_path) as kit:
        assert export_definitions(kit.node) == before
        vhost = kit.node.vhosts["/"]
        assert vhost.queues["q"].settings.max_length == 5
        assert vhost.queues["q"].settings.message_ttl == 9
        assert vhost.router.exchange("direct").alternate == "amq.fanout"
        assert [type(vhost.queues[name]).__name__ for name in ("q", "s", "groups")] == [
            "ClassicQueue", "StreamQueue", "GroupQueue",
        ]  # fmt: skip
        client = kit.client()
        client.publish("k", b"1", exchange="direct")
        assert client.count() == 1
        client.declare("q", x_max_length=10)
    with running(tmp_path) as kit:
        assert export_definitions(kit.node) == before


def test_what_is_transient_or_exclusive_is_gone(tmp_path: Path) -> None:
    with running(tmp_path) as kit:
        before = export_definitions(kit.node)
        client = kit.client()
        client.call(m.ExchangeDeclare("x", "fanout"), m.ExchangeDeclareOk)
        client.call(m.QueueDeclare("t"), m.QueueDeclareOk)
        client.call(m.QueueDeclare("mine", durable=True, exclusive=True), m.QueueDeclareOk)
        client.call(m.QueueBind("mine", "amq.fanout", ""), m.QueueBindOk)
        client.call(m.QueueBind("t", "amq.fanout", ""), m.QueueBindOk)
        client.call(m.ExchangeBind("x", "amq.fanout", ""), m.ExchangeBindOk)
        client.declare("q")
        client.call(m.QueueBind("q", "x", ""), m.QueueBindOk)
    with running(tmp_path) as kit:
        assert export_definitions(kit.node) == replace(before, queues=(QueueDefinition("/", "q", type="classic"),))


def test_what_was_deleted_stays_deleted(tmp_path: Path) -> None:
    with running(tmp_path) as kit:
        before = export_definitions(kit.node)
        fill(kit)
    with running(tmp_path) as kit:
        client, node = kit.client(), kit.node
        client.call(m.QueueUnbind("q", "amq.topic", "a.#"), m.QueueUnbindOk)
        assert len(Catalog.open(tmp_path / CATALOG).load().definitions.bindings) == 3
        for name in ("q", "quorum", "s", "groups"):
            client.call(m.QueueDelete(name), m.QueueDeleteOk)
        client.call(m.BasicConsume("shy", "c"), m.BasicConsumeOk)
        client.call(m.BasicCancel("c"), m.BasicCancelOk)  # takes the queue, its binding, and with that "inner"
        for name in ("direct", "late", "recent", "named"):
            client.call(m.ExchangeDelete(name), m.ExchangeDeleteOk)
        node.vhosts["/"].policies.clear("p")
        node.vhosts["/"].policies.clear("ae")
        node.vhosts["/"].policies.clear("p", operator=True)
        node.parameters.clear("/", "shovel", "s")
        node.parameters.clear_global("g")
        node.delete_vhost("v")
        node.users.remove("u")
        assert export_definitions(node) == before
        assert list((tmp_path / "streams").iterdir()) == []
    with running(tmp_path) as kit:
        assert export_definitions(kit.node) == before
        client = kit.client()
        client.declare("s", x_queue_type="stream")
        kit.node.users.clear_permission("/", "guest")
        kit.node.users.remove("guest")
        kit.node.batch.end()
    with running(tmp_path) as kit:
        assert kit.node.users.users == {}
        assert list(kit.node.vhosts) == ["/"]


def test_a_changed_queue_comes_back_changed(tmp_path: Path) -> None:
    with running(tmp_path) as kit:
        kit.client().declare("q", x_max_length=10, x_overflow="reject-publish")
        kit.node.vhosts["/"].change_queue("q", {"x-max-length": 3, "x-overflow": None})
        kit.node.batch.end()
    with running(tmp_path) as kit:
        assert kit.node.vhosts["/"].queues["q"].arguments == {"x-max-length": 3}


def test_a_stream_keeps_its_messages_and_a_new_one_of_its_name_has_none(tmp_path: Path) -> None:
    with running(tmp_path) as kit:
        client = kit.client()
        client.declare("s", x_queue_type="stream")
        client.publish("s", b"1")
    with running(tmp_path) as kit:
        client = kit.client()
        assert client.count("s") == 1
        client.engine.send_method(1, m.QueueDelete("s"))
        client.engine.send_method(1, m.QueueDeclare("s", durable=True, arguments=STREAM))
        client.pump()
        assert client.count("s") == 0
        assert len(list((tmp_path / "streams").iterdir())) == 1
    with running(tmp_path) as kit:
        assert kit.client().count("s") == 0


def test_a_definitions_file_over_what_is_there(tmp_path: Path) -> None:
    file = Definitions(
        users=(User("u", "", tags=("monitoring",)),),
        queues=(QueueDefinition("/", "q"), QueueDefinition("/", "other")),
        exchanges=(ExchangeDefinition("/", "x", "fanout"),),
        bindings=(BindingDefinition("/", "x", "q", "queue"), BindingDefinition("/", "amq.fanout", "other", "queue")),
    )
    with running(tmp_path) as kit:
        import_definitions(kit.node, file)
        kit.client().declare("mine")
        complete(kit.node.vhosts["/"].deleting_queue(kit.node.vhosts["/"].queues["other"]))
        kit.node.batch.end()
        before = export_definitions(kit.node)
    with running(tmp_path) as kit:
        assert export_definitions(kit.node) == before
        import_definitions(kit.node, file)
        queues = {queue.name for queue in export_definitions(kit.node).queues}
        assert queues == {"q", "other", "mine"}
        assert len(export_definitions(kit.node).bindings) == 2


def test_an_import_is_one_transaction(tmp_path: Path) -> None:
    queues = tuple(QueueDefinition("/", f"q{number}") for number in range(50))
    policies = tuple(Policy("/", f"p{number}", "^x", {"max-length": 1}) for number in range(3))
    with running(tmp_path) as kit:
        statements: list[str] = []
        kit.node.catalog._connection.set_trace_callback(lambda text: statements.append(text.split()[0]))
        import_definitions(kit.node, Definitions(queues=queues, policies=policies))
        assert (statements.count("COMMIT"), statements.count("INSERT")) == (1, 53)


def test_an_answer_comes_after_the_commit(tmp_path: Path) -> None:
    """Also one that leaves before the end of its batch, because there is much to say."""
    with running(tmp_path) as kit:
        client = kit.client()
        client.call(m.QueueDeclare("big"), m.QueueDeclareOk)
        client.publish("big", bytes(FLUSH_BYTES + 1))
        order: list[str] = []
        commit, write = kit.node.catalog.commit, client.transport.write

        def committed() -> None:
            order.append("commit")
            commit()

        def written(data: bytes | memoryview) -> None:
            order.append("write")
            write(data)

        kit.node.catalog.commit = committed  # type: ignore[method-assign]
        client.transport.write = written  # type: ignore[method-assign]
        client.engine.send_method(1, m.QueueDeclare("q", durable=True))
        client.engine.send_method(1, m.BasicGet("big", no_ack=True))
        client.engine.send_method(1, m.QueueDeclare("r", durable=True))
        client.pump()
        assert order == ["commit", "write", "commit", "write"]


@pytest.mark.parametrize("where", ["BEGIN", "INSERT", "COMMIT"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_refuses(tmp_path: Path, where: str, error: int) -> None:
    """Nothing is acknowledged, nobody can go on, and the next broker has what was acknowledged before."""
    with running(tmp_path) as kit:
        client, other = kit.client(), kit.client()
        client.declare("kept")
        kit.node.catalog._connection = Refusing(kit.node.catalog._connection, where, error)  # type: ignore[assignment]
        client.engine.send_method(1, m.QueueDeclare("lost", durable=True))
        client.engine.send_method(1, m.QueueDeclare("too", durable=True))
        client.pump()
        for each in (client, other):
            each.receive()
            ((_, close),) = each.events
            assert isinstance(close, m.ConnectionClose)
            assert close.reply_code == 541
            assert "store failed" in close.reply_text
        late = NodeKit.client(kit)
        assert late.take(m.ConnectionClose)[0].reply_code == 541
        with pytest.raises(OSError) as caught:
            kit.node.save()
        assert caught.value.errno == error
    with running(tmp_path) as kit:
        assert set(kit.node.vhosts["/"].queues) == {"kept"}


class Refusing:
    """A connection to SQLite whose statements that begin so fail."""

    def __init__(self, connection: sqlite3.Connection, statement: str, error: int) -> None:
        self._connection, self._statement, self._error = connection, statement, error

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)

    def execute(self, statement: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
        if statement.startswith(self._statement):
            error = sqlite3.OperationalError("the disk refuses")
            error.sqlite_errorname = "SQLITE_FULL" if self._error == errno.ENOSPC else "SQLITE_IOERR_WRITE"
            raise error
        return self._connection.execute(statement, values)


def bodies(client: Client, queue: str) -> list[bytes]:
    client.call(m.BasicQos(0, 100), m.BasicQosOk)
    client.send(1, m.BasicConsume(queue, "c", arguments={"x-stream-offset": "first"}))
    return [body for _, _, body in client.deliveries()]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A data folder with streams "s" in "/" and "t" in "gone", of the first version that had streams."""
    return shutil.copytree(BEFORE_CATALOG, tmp_path / "data")


def test_streams_from_before_the_catalog_are_taken_over(old: Path) -> None:
    folders = {path.name for path in (old / "streams").iterdir()}
    for _ in range(2):
        with running(old) as kit:
            assert bodies(kit.client(), "s") == [b"0", b"1", b"2"]
            other = kit.node.vhosts["gone"].queues["t"]
            assert (other.message_count, other.arguments) == (2, {"x-queue-type": "stream", "x-max-age": "1h"})
            assert list(old.glob("streams/*/queue.json")) == []
            kept = Catalog.open(old / CATALOG).load().folders
            assert sorted(kept) == [("/", "s"), ("gone", "t")]
            assert set(kept.values()) == {f"streams/{name}" for name in folders}
    with running(old) as kit:
        kit.client().call(m.QueueDelete("s"), m.QueueDeleteOk)
        assert f"streams/{next((old / 'streams').iterdir()).name}" == kept["gone", "t"]
        assert len(list((old / "streams").iterdir())) == 1


def test_a_move_to_the_catalog_that_was_interrupted(old: Path) -> None:
    """The catalog has it already, the folder's own declaration is still there."""
    declarations = {path: path.read_text() for path in old.glob("streams/*/queue.json")}
    assert len(declarations) == 2
    with running(old):
        for path, text in declarations.items():
            path.write_text(text)
    with running(old) as kit:
        assert bodies(kit.client(), "s") == [b"0", b"1", b"2"]
        assert not any(path.exists() for path in declarations)
    another = old / "streams" / "another"
    another.mkdir()
    (another / "queue.json").write_text(next(text for text in declarations.values() if '"s"' in text))
    with pytest.raises(CatalogError, match="streams/another is another queue"):
        NodeKit(old)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"format": 2}', '{"format": 1}'])
def test_a_declaration_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "streams" / "x"
    folder.mkdir(parents=True)
    (folder / "queue.json").write_text(text)
    with pytest.raises(OSError, match=r"queue\.json"):
        NodeKit(tmp_path)


def test_a_binding_without_an_end_is_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with running(tmp_path, events=True) as kit:
        client = kit.client()
        client.declare("q")
        client.call(m.QueueBind("q", "amq.rabbitmq.event", "#"), m.QueueBindOk)
        client.call(m.QueueBind("q", "amq.topic", "#"), m.QueueBindOk)
    with running(tmp_path, events=True) as kit:
        assert len(kit.node.vhosts["/"].router.exchange("amq.rabbitmq.event")._bindings) == 1
    with caplog.at_level(logging.WARNING, recovery_log.name), running(tmp_path):
        assert "binding from 'amq.rabbitmq.event' to queue 'q' in vhost '/': dropped" in caplog.text
    caplog.clear()
    with running(tmp_path) as kit:
        assert caplog.text == ""
        assert [binding.source for binding in export_definitions(kit.node).bindings] == ["amq.topic"]


def test_a_folder_that_is_nobodys_and_one_that_is_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with running(tmp_path) as kit:
        client = kit.client()
        client.declare("s", x_queue_type="stream")
        client.publish("s", b"1")
    (folder,) = (tmp_path / "streams").iterdir()
    folder.rename(folder.with_name("elsewhere"))
    with running(tmp_path) as kit:
        assert f"stream 's' in vhost '/': {folder} is gone; the stream is empty" in caplog.text
        assert "streams/elsewhere belongs to no queue" in caplog.text
        assert kit.client().count("s") == 0
    assert (tmp_path / "streams" / "elsewhere").is_dir()


@pytest.mark.parametrize("put", [
    lambda catalog: catalog.put_exchange(ExchangeDefinition("/", "x", "x-later")),
    lambda catalog: catalog.put_queue(QueueDefinition("nowhere", "q"), "queues/1"),
    lambda catalog: catalog.put_queue(QueueDefinition("/", "q", arguments={"x-queue-type": "later"}), "queues/1"),
])  # fmt: skip
def test_what_cannot_be_made_again_stops_the_start(tmp_path: Path, put: Callable[[Catalog], None]) -> None:
    with running(tmp_path):
        pass
    catalog = Catalog.open(tmp_path / CATALOG)
    put(catalog)
    catalog.close()
    for _ in range(2):
        with pytest.raises(CatalogError, match="is kept there and cannot be made again"):
            NodeKit(tmp_path)


def test_a_temporary_broker_has_no_file(tmp_path: Path) -> None:
    node = start_node(tmp_path, lambda callback: None, temporary=True)
    node.vhosts["/"].declare_exchange(
        "x", "fanout", passive=False, durable=True, auto_delete=False, internal=False, arguments={}
    )
    node.save()
    node.stop()
    assert {path.name for path in tmp_path.iterdir()} == {"streams", "queues", "delays"}


async def test_how_the_broker_before_ended(tmp_path: Path) -> None:
    async def last_stop() -> LastStop:
        async with Broker(data=tmp_path) as broker:
            return broker.node.last_stop

    assert [await last_stop(), await last_stop()] == [LastStop.CLEAN, LastStop.CLEAN]
    mark_running(tmp_path)
    assert [await last_stop(), await last_stop()] == [LastStop.KILLED, LastStop.CLEAN]
    (tmp_path / "running").write_text("another boot")
    assert [await last_stop(), await last_stop()] == [LastStop.POWER_CUT, LastStop.CLEAN]
    async with Broker(data=tmp_path) as broker:
        broker.node.batch.fail(OSError(errno.EIO, "Input/output error"))
    assert await last_stop() is LastStop.KILLED


async def test_a_start_that_fails_leaves_a_power_cut_one(tmp_path: Path) -> None:
    async with Broker(data=tmp_path):
        pass
    (tmp_path / "running").write_text("another boot")
    catalog = (tmp_path / CATALOG).read_bytes()
    (tmp_path / CATALOG).write_bytes(b"spoiled" * 1000)
    for _ in range(2):
        with pytest.raises(CatalogError):
            await Broker(data=tmp_path).start()
    (tmp_path / CATALOG).write_bytes(catalog)
    async with Broker(data=tmp_path) as broker:
        assert broker.node.last_stop is LastStop.POWER_CUT
        mended = Broker(data=shutil.copytree(tmp_path, tmp_path.with_name("copy")))
    async with mended:
        assert mended.node.last_stop is LastStop.KILLED, "it was recovered, and had not stopped"


async def test_what_a_program_changes_is_kept_when_the_call_returns(tmp_path: Path) -> None:
    async with Broker(data=tmp_path) as broker:
        for change in (
            lambda: broker.add_vhost("v", description="text", tags=("a",)),
            lambda: broker.add_user("u", "one", hashing_algorithm="rabbit_password_hashing_sha256"),
            lambda: broker.set_permissions("u", vhost="v"),
            lambda: broker.set_topic_permissions("u", "amq.topic", "w", "r", vhost="v"),
            lambda: broker.set_vhost_limits("v", {"max-queues": 1}),
            lambda: broker.set_user_limits("u", {"max-channels": 1}),
            lambda: broker.set_policy("p", "^q", {"max-length": 1}, vhost="v"),
            lambda: broker.import_definitions({"queues": [{"vhost": "v", "name": "q", "durable": True}]}),
            lambda: broker.change_queue("q", {"x-expires": 10_000_000}, vhost="v"),
        ):
            change()
            assert not broker.node.catalog.changed
            other = Catalog.open(tmp_path / CATALOG)
            kept, now = other.load().definitions, export_definitions(broker.node)
            other.close()
            for section in ("users", "permissions", "topic_permissions", "parameters", "policies", "queues"):
                assert getattr(kept, section) == getattr(now, section)
            assert [vhost.description for vhost in kept.vhosts] == [vhost.description for vhost in now.vhosts]
        broker.node.catalog._connection = Refusing(broker.node.catalog._connection, "COMMIT", errno.EIO)  # type: ignore[assignment]
        with pytest.raises(OSError, match="the disk refuses"):
            broker.remove_user("u")
    async with Broker(data=tmp_path) as broker:
        assert "u" in broker.node.users.users
        changes: tuple[Callable[[], object], ...] = (
            lambda: broker.clear_topic_permissions("u", vhost="v"),
            lambda: broker.clear_permissions("u", vhost="v"),
            lambda: broker.clear_policy("p", vhost="v"),
            lambda: broker.delete_vhost("v"),
            lambda: broker.remove_user("u"),
        )
        for refused in changes:
            refused()
            assert not broker.node.catalog.changed
