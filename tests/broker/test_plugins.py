"""Exchange types and services of plug-ins, in a broker: they take part in all that built-in ones do, or fail alone."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import harebell
from harebell.broker import Answer, Broker, Plugin, ServiceRequest, to_queue
from harebell.broker.auth.acts import ACTS
from harebell.broker.auth.users import make_user
from harebell.broker.operations.firehose import set_tracing
from harebell.broker.operations.statistics import vhost_statistics
from harebell.broker.plugins import Plugins
from harebell.broker.store.catalog.catalog import CatalogError
from harebell.errors import InvalidArgument, NotFound, PluginFailed, PreconditionFailed
from harebell.protocol.v091 import Content, Table, methods as m
from harebell.routing.definitions import Permission
from harebell.routing.policies import Policy
from harebell.routing.steps import complete
from tests.broker.kit import Client, NodeKit
from tests.broker.own_plugins import TYPES, Faulty, Prefix, Tenant, Word

REPLIES = "amq.rabbitmq.reply-to"


def echo(request: ServiceRequest) -> Answer:
    return request.body


def told(request: ServiceRequest) -> Answer:
    name = request.properties.app_id
    return {"user": request.user, "vhost": request.vhost, "service": request.service, "app": name,
            "headers": dict(request.headers)}  # fmt: skip


def refuse(request: ServiceRequest) -> Answer:
    raise NotFound("nothing of that kind")


def crash(request: ServiceRequest) -> Answer:
    raise ZeroDivisionError("in the service")


def unserializable(request: ServiceRequest) -> Answer:
    return {"what": object()}  # which JSON cannot say


def end_everything(request: ServiceRequest) -> Answer:
    raise harebell.errors.ConnectionForced("a service may not end a connection")


def may(request: ServiceRequest) -> Answer:
    asked = json.loads(request.body)
    bound = asked.get("resources", {})
    request.check(asked["act"], routing_key=asked.get("key"), **{
        part: to_queue(name) if part == "destination" else name for part, name in bound.items()
    })  # fmt: skip
    return True


SERVICES: dict[str, Callable[[ServiceRequest], Answer]] = {
    "echo": echo, "told": told, "refuse": refuse, "crash": crash, "unserializable": unserializable,
    "end": end_everything, "may": may,
}  # fmt: skip


@pytest.fixture
def plugins() -> Iterator[Plugins]:
    yield Plugins([TYPES, Plugin(services=SERVICES)])
    Faulty.fault = ""


@pytest.fixture
def kit(tmp_path: Path, plugins: Plugins) -> Iterator[NodeKit]:
    kit = NodeKit(tmp_path / "data", plugins=plugins)
    yield kit
    Faulty.fault = ""
    kit.stop()


def declare(client: Client, kind: str, name: str = "x", **arguments: Any) -> None:
    table: Table = {key.replace("_", "-"): value for key, value in arguments.items()}
    client.call(m.ExchangeDeclare(name, kind, durable=True, arguments=table), m.ExchangeDeclareOk)


def bind(client: Client, queue: str, key: str, exchange: str = "x") -> None:
    client.call(m.QueueDeclare(queue, durable=True), m.QueueDeclareOk)
    client.call(m.QueueBind(queue, exchange, key), m.QueueBindOk)


def bodies(client: Client, queue: str) -> list[bytes]:
    return [content.body for content in iter(lambda: client.get(queue), None) if isinstance(content, Content)]


def closed(client: Client, channel: int = 1) -> m.ChannelClose:
    """The channel.close that came; the channel is open again."""
    (close,) = client.take(m.ChannelClose)
    client.send(channel, m.ChannelCloseOk())
    client.open(channel)
    client.take(m.ChannelOpenOk)
    return close


# -- routing


def test_a_type_by_keys_is_asked_once_for_each_key(client: Client) -> None:
    declare(client, "x-prefix")
    bind(client, "eu", "eu.")
    bind(client, "all", "")
    Prefix.asked = 0
    for _ in range(10):
        client.publish("eu.paris", b"1", exchange="x")
        client.publish("us", b"2", exchange="x")
    assert Prefix.asked == 2
    assert bodies(client, "eu") == [b"1"] * 10
    assert len(bodies(client, "all")) == 20
    client.call(m.QueueUnbind("all", "x", ""), m.QueueUnbindOk)
    client.publish("eu.paris", b"3", exchange="x")
    assert (bodies(client, "eu"), bodies(client, "all")) == ([b"3"], [])


def test_a_type_by_headers_is_asked_once_for_each_table_of_headers(client: Client) -> None:
    declare(client, "x-tenant")
    bind(client, "a", "a")
    bind(client, "b", "b")
    Tenant.asked = 0
    for _ in range(10):
        client.publish("k", b"1", exchange="x", headers={"tenant": "a"})
        client.publish("k", b"2", exchange="x", headers={"tenant": "b"})
    client.publish("k", b"3", exchange="x")
    assert Tenant.asked <= 3
    assert (bodies(client, "a"), bodies(client, "b")) == ([b"1"] * 10, [b"2"] * 10)


def test_a_type_by_the_message_is_asked_for_each(client: Client) -> None:
    declare(client, "x-word")
    bind(client, "q", "fire")
    Word.asked = 0
    for body, kind in ((b"a fire", None), (b"water", None), (b"water", "fire"), (b"a fire", None)):
        client.publish("k", body, exchange="x", type=kind)
    assert Word.asked == 4
    assert bodies(client, "q") == [b"a fire", b"water", b"a fire"]


def test_mandatory_cc_alternate_and_bindings_between_exchanges(client: Client) -> None:
    declare(client, "x-prefix", alternate_exchange="amq.fanout")
    declare(client, "x-word", "words")
    bind(client, "q", "eu.")
    bind(client, "rest", "", "amq.fanout")
    bind(client, "fire", "fire", "words")
    client.call(m.ExchangeBind("words", "x", "us."), m.ExchangeBindOk)
    client.call(m.ExchangeBind("x", "amq.direct", "k"), m.ExchangeBindOk)
    client.publish("us.1", b"fire", exchange="x")
    client.publish("asia", b"lost", exchange="x", headers={"CC": ["eu.1"]})
    client.publish("africa", b"unmatched", exchange="x")
    client.publish("k", b"through", exchange="amq.direct")
    assert bodies(client, "fire") == [b"fire"]
    assert bodies(client, "q") == [b"lost"]
    assert bodies(client, "rest") == [b"unmatched", b"through"]
    client.engine.send_content(1, m.BasicPublish("words", "k", mandatory=True), b"\0\0", b"nothing")
    client.pump()
    assert len(client.take(m.BasicReturn)) == 1


def test_policies_dead_letters_transactions_and_delays(kit: NodeKit, client: Client) -> None:
    declare(client, "x-word", "dead")
    bind(client, "graves", "rip", "dead")
    client.declare("q", x_max_length=0, x_dead_letter_exchange="dead")
    client.publish("q", b"rip 1")
    client.publish("q", b"other")
    assert bodies(client, "graves") == [b"rip 1"]
    declare(client, "x-delayed-message", "later", x_delayed_type="x-tenant")
    bind(client, "tenants", "a", "later")
    client.publish("k", b"late", exchange="later", headers={"tenant": "a", "x-delay": 50})
    client.publish("k", b"late too", exchange="later", headers={"tenant": "b", "x-delay": 50})
    assert client.count("tenants") == 0
    kit.pass_time(50)
    assert bodies(client, "tenants") == [b"late"]
    kit.node.vhosts["/"].policies.set(Policy("/", "p", "^dead$", {"alternate-exchange": "amq.fanout"}))
    bind(client, "rest", "", "amq.fanout")
    client.publish("k", b"nobody's", exchange="dead")
    assert bodies(client, "rest") == [b"nobody's"]
    client.call(m.TxSelect(), m.TxSelectOk)
    client.publish("k", b"rip 2", exchange="dead")
    assert client.count("graves") == 0
    client.send(1, m.TxCommit())
    kit.run_syncs()
    client.receive()
    assert client.take(m.TxCommitOk)
    assert client.count("graves") == 1


def test_the_firehose_statistics_and_lists_know_it(kit: NodeKit, client: Client) -> None:
    declare(client, "x-prefix")
    bind(client, "q", "a")
    set_tracing(kit.node, "/", True)
    bind(client, "traced", "publish.x", "amq.rabbitmq.trace")
    client.publish("a", b"1", exchange="x")
    traced = client.get("traced")
    assert traced is not None
    assert (traced.decode_properties().headers or {})["routed_queues"] == ["q"]
    counts = complete(vhost_statistics(kit.node, kit.node.vhosts["/"]))["exchanges"]["x"]
    assert counts["type"] == "x-prefix"
    client.call(m.BasicConsume(REPLIES, "r", no_ack=True), m.BasicConsumeOk)
    client.publish("amq.routes", b"", "amq.system", reply_to=REPLIES)
    ((*_, answer),) = client.deliveries()
    assert json.loads(answer)["exchanges"]["x"] == "x-prefix"


# -- declarations, restarts, definitions


def test_declarations_are_checked(client: Client) -> None:
    declare(client, "x-prefix", longest=3)
    declare(client, "x-prefix", longest=3)
    for method, text in (
        (m.ExchangeDeclare("x", "x-word", durable=True), "inequivalent arg 'type'"),
        (m.ExchangeDeclare("y", "x-prefix", arguments={"longest": "a"}), "longest must be a number"),
        (m.ExchangeDeclare("y", "x-unknown"), "unknown exchange type 'x-unknown'"),
    ):
        client.send(1, method)
        close = closed(client)
        assert close.reply_code == 406
        assert text in close.reply_text
    client.call(m.QueueDeclare("q"), m.QueueDeclareOk)
    client.send(1, m.QueueBind("q", "x", "long"))
    assert "binding key 'long' is longer than 3" in closed(client).reply_text
    client.publish("long", b"1", exchange="x")
    assert client.count() == 0
    client.call(m.ExchangeDelete("x"), m.ExchangeDeleteOk)


def restarted(kit: NodeKit, folder: Path, plugins: Plugins | None) -> NodeKit:
    kit.stop()
    return NodeKit(folder, plugins=plugins)


def test_a_restart_restores_it_or_says_which_plug_in_is_missing(tmp_path: Path, plugins: Plugins) -> None:
    kit = NodeKit(tmp_path / "data", plugins=plugins)
    client = kit.client()
    declare(client, "x-prefix", longest=3)
    bind(client, "q", "eu")
    client.call(m.ExchangeDelete("x"), m.ExchangeDeleteOk)
    declare(client, "x-delayed-message", x_delayed_type="x-prefix", longest=2)
    bind(client, "q", "eu")
    for unfit in (None, Plugins([Plugin(services={"echo": echo})])):
        kit.stop()
        with pytest.raises(
            CatalogError, match=r"'x' in vhost '/'.* no plug-in has its type 'x-prefix': start .*--plugins"
        ):
            NodeKit(tmp_path / "data", plugins=unfit)
    kit = NodeKit(tmp_path / "data", plugins=plugins)
    client = kit.client()
    client.publish("eu.1", b"1", exchange="x")
    assert bodies(client, "q") == [b"1"]
    client.send(1, m.QueueBind("q", "x", "long"))
    assert closed(client).reply_code == 406
    kit.stop()


def test_definitions_out_and_in(tmp_path: Path) -> None:
    async def move() -> None:
        async with Broker(plugins=[TYPES]) as broker:
            async with harebell.connect(broker.url) as connection, connection.channel() as channel:
                await channel.exchange_declare("x", "x-prefix", durable=True)
                await channel.queue_declare("q", durable=True)
                await channel.queue_bind("q", "x", "eu.")
            exported = broker.export_definitions()
        async with Broker(plugins=[TYPES], definitions=exported) as broker:
            async with harebell.connect(broker.url) as connection, connection.channel() as channel:
                await channel.publish(harebell.Message(b"1"), "x", "eu.1", mandatory=True)
                assert await channel.get("q", no_ack=True) is not None
        with pytest.raises(harebell.errors.HarebellError, match="unknown exchange type 'x-prefix'"):
            await Broker(definitions=exported).start()

    asyncio.run(move())


# -- failures


@pytest.fixture
def faulty(client: Client) -> Client:
    declare(client, "x-faulty")
    bind(client, "q", "")
    return client


def check_alive(client: Client) -> None:
    Faulty.fault = ""
    client.publish("k", b"alive", exchange="x")
    assert bodies(client, "q") == [b"alive"]


@pytest.mark.parametrize("fault", ["match", "wrong", "peek"])
def test_a_match_that_fails_closes_the_channel_of_the_publisher_alone(
    faulty: Client, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    faulty.open(2)
    faulty.take(m.ChannelOpenOk)
    Faulty.fault = fault
    faulty.publish("k", b"1", exchange="x", channel=2)
    close = closed(faulty, 2)
    assert close.reply_code == 541
    assert "exchange 'x' of type 'x-faulty' cannot match: its plug-in failed" in close.reply_text
    (record,) = [each for each in caplog.records if "plug-in failed" in each.message and each.exc_info]
    assert record.levelno == logging.ERROR
    check_alive(faulty)


def test_an_exchange_that_cannot_be_made_or_bound(faulty: Client) -> None:
    Faulty.fault = "make"
    faulty.send(1, m.ExchangeDeclare("y", "x-faulty"))
    assert closed(faulty).reply_code == 541
    faulty.send(1, m.ExchangeDeclare("y", "x-faulty", passive=True))
    assert closed(faulty).reply_code == 404
    faulty.send(1, m.ExchangeDeclare("y", "x-undecided"))
    assert closed(faulty).reply_code == 541
    Faulty.fault = "add"
    faulty.send(1, m.QueueBind("q", "x", "more"))
    assert closed(faulty).reply_code == 541
    Faulty.fault = "remove"
    faulty.call(m.QueueUnbind("q", "x", ""), m.QueueUnbindOk)
    Faulty.fault = ""
    faulty.publish("k", b"1", exchange="x")  # the matcher still has the binding that the exchange has not
    assert closed(faulty).reply_code == 541
    faulty.call(m.ExchangeDelete("x"), m.ExchangeDeleteOk)


def test_a_match_may_refuse_a_message(faulty: Client) -> None:
    Faulty.fault = "refuse"
    faulty.publish("k", b"1", exchange="x")
    assert closed(faulty).reply_text == "PRECONDITION_FAILED - no such message"
    check_alive(faulty)


@pytest.mark.parametrize("fault", ["match", "wrong", "refuse"])
def test_dead_letters_and_delays_find_no_match_in_an_exchange_that_fails(
    kit: NodeKit, faulty: Client, fault: str
) -> None:
    faulty.declare("dying", x_max_length=0, x_dead_letter_exchange="between")
    declare(faulty, "fanout", "between")
    faulty.call(m.ExchangeBind("x", "between"), m.ExchangeBindOk)
    bind(faulty, "beside", "", "between")
    declare(faulty, "x-delayed-message", "later", x_delayed_type="x-faulty")
    bind(faulty, "late", "", "later")
    faulty.publish("k", b"late", exchange="later", headers={"x-delay": 10})
    Faulty.fault = fault
    faulty.publish("dying", b"letter")
    kit.pass_time(10)
    assert bodies(faulty, "beside") == [b"letter"]
    assert (faulty.count("q"), faulty.count("late")) == (0, 0)
    check_alive(faulty)


def test_at_least_once_dead_letters_wait_until_the_plug_in_works(kit: NodeKit, faulty: Client) -> None:
    faulty.declare(
        "dying", x_dead_letter_exchange="x", x_dead_letter_strategy="at-least-once", x_overflow="reject-publish",
        x_message_ttl=10,
    )  # fmt: skip
    Faulty.fault = "match"
    faulty.publish("dying", b"letter", delivery_mode=2)
    kit.pass_time(10)
    assert faulty.count("q") == 0
    Faulty.fault = ""
    kit.pass_time(10_000)
    kit.run_syncs()
    assert bodies(faulty, "q") == [b"letter"]


# -- services


def ask(client: Client, service: str, body: bytes = b"", **rest: Any) -> Any:
    client.publish(service, body, "amq.system", reply_to=REPLIES, **rest)
    contents = [event for _, event in client.events if isinstance(event, Content)]
    client.events = [each for each in client.events if not isinstance(each[1], Content)]
    (content,) = contents
    kind = content.decode_properties().content_type
    return content.body if kind == "application/octet-stream" else json.loads(content.body)


@pytest.fixture
def asker(client: Client) -> Client:
    client.call(m.BasicConsume(REPLIES, "r", no_ack=True), m.BasicConsumeOk)
    return client


def test_services_answer(asker: Client) -> None:
    assert ask(asker, "echo", b"\0\1") == b"\0\1"
    assert ask(asker, "told", headers={"a": 1}, app_id="me") == {
        "user": "guest", "vhost": "/", "service": "told", "app": "me", "headers": {"a": 1},
    }  # fmt: skip
    assert ask(asker, "amq.ping", b"1") == 1  # the built-in ones are there


@pytest.mark.parametrize(
    ("service", "error", "code"),
    [
        ("refuse", {"error": "not_found", "reason": "NOT_FOUND - nothing of that kind"}, 404),
        ("crash", {"error": "internal_error"}, 541),
        ("unserializable", {"error": "internal_error"}, 541),
        ("end", {"error": "internal_error"}, 541),
    ],
)
def test_a_service_that_refuses_or_fails(
    asker: Client, service: str, error: dict[str, str], code: int, caplog: pytest.LogCaptureFixture
) -> None:
    answer = ask(asker, service)
    assert answer | error == answer
    logged = [each for each in caplog.records if f"service '{service}' failed" in each.message]
    assert len(logged) == (code == 541)
    assert "in the service" not in answer["reason"]
    asker.publish(service, b"", "amq.system")
    assert closed(asker).reply_code == code
    assert asker.connection.phase.name == "OPEN"


def test_an_unknown_service_reaches_no_queue(client: Client) -> None:
    client.engine.send_content(1, m.BasicPublish("amq.system", "nothing", mandatory=True), b"\0\0", b"")
    client.pump()
    assert len(client.take(m.BasicReturn)) == 1


RESOURCES = {
    "queue": "q", "exchange": "x", "source": "x", "destination": "q", "alternate": "a", "dead_letter_exchange": "d",
}  # fmt: skip
KEYED = ("publish", "bind", "unbind")


@pytest.mark.parametrize("act", ACTS)
def test_a_service_checks_every_act_as_the_broker_does(kit: NodeKit, act: str) -> None:
    """Each need of the act alone is refused, and all together suffice."""
    kit.node.users.put(make_user("u", "u", (), "rabbit_password_hashing_sha256"))
    needs = ACTS[act]
    asked: dict[str, object] = {"act": act, "resources": {need.of: RESOURCES[need.of] for need in needs}}
    if act in KEYED:
        asked["key"] = "k"
    for missing in (*needs, None):
        rights = {"configure": "^$", "write": "^amq.system$", "read": "^$"}
        for need in needs:
            if need is not missing:
                rights[need.right] += f"|^{RESOURCES[need.of]}$"
        kit.node.users.set_permission(Permission("/", "u", rights["configure"], rights["write"], rights["read"]))
        client = kit.client(user="u")
        client.call(m.BasicConsume(REPLIES, "r", no_ack=True), m.BasicConsumeOk)
        answer = ask(client, "may", json.dumps(asked).encode())
        assert answer is True if missing is None else answer["error"] == "access_refused"


@pytest.mark.parametrize(
    "asked",
    [
        {"act": "fly", "resources": {}},
        {"act": "get", "resources": {}},
        {"act": "get", "resources": {"exchange": "x"}},
        {"act": "get", "resources": {"queue": "q"}, "key": "k"},
        {"act": "publish", "resources": {"exchange": "x"}},
    ],
)
def test_a_check_of_what_is_no_act_fails(asker: Client, asked: dict[str, object]) -> None:
    assert ask(asker, "may", json.dumps(asked).encode())["error"] == "internal_error"


# -- what may be added


async def later(request: ServiceRequest) -> Answer:
    return None


@pytest.mark.parametrize(
    ("plugins", "text"),
    [
        ([Plugin(exchange_types={"geo": Prefix})], "'geo' must begin with 'x-'"),
        ([Plugin(exchange_types={"direct": Prefix})], "'direct' must begin with 'x-'"),
        ([Plugin(exchange_types={"x-random": Prefix})], "'x-random' is built in"),
        ([Plugin(exchange_types={"x-delayed-message": Prefix})], "'x-delayed-message' is built in"),
        ([Plugin(exchange_types={"x-" + "a" * 254: Prefix})], "255"),
        ([Plugin(exchange_types={"x-a": Prefix}), Plugin(exchange_types={"x-a": Prefix})], "two plug-ins have it"),
        ([Plugin(services={"amq.mine": echo})], "'amq.mine': names that begin with 'amq.' are AMQP's"),
        ([Plugin(services={"": echo})], "name"),
        ([Plugin(services={"s": later})], "'s' is a coroutine function"),  # type: ignore[dict-item]
        ([Plugin(services={"s": 5})], "must be a function"),  # type: ignore[dict-item]
        ([Plugin(services={5: echo})], "must be a text"),  # type: ignore[dict-item]
        ([Plugin(services={"s": echo}), Plugin(services={"s": echo})], "two plug-ins have it"),
        ([TYPES, Prefix], "is none"),
    ],
)
def test_what_a_plug_in_may_not_have(plugins: list[Plugin], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        Broker(plugins=plugins)


def test_the_client_sees_a_failed_plug_in_as_an_error_of_its_channel() -> None:
    async def run() -> None:
        async with Broker(plugins=[TYPES]) as broker, harebell.connect(broker.url) as connection:
            async with connection.channel() as channel:
                with pytest.raises(PluginFailed):
                    await channel.exchange_declare("x", "x-undecided")
            async with connection.channel() as channel:
                with pytest.raises(PreconditionFailed):
                    await channel.exchange_declare("x", "x-prefix", arguments={"longest": "a"})

    asyncio.run(run())
