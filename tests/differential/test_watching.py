"""Firehose, event exchange and statistics, compared with a RabbitMQ that has the plugins for them."""

from __future__ import annotations

import base64
import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import pika
import pytest

from harebell.broker.auth.passwords import RABBITMQ_SHA256
from harebell.routing.definitions import GlobalParameter
from harebell.testing.rabbitmq import RabbitMQ, free_ports
from tests.fixtures.rabbitmq import OLDER, Nodes
from tests.wire import BrokerThread

pytestmark = pytest.mark.rabbitmq
PATIENCE = 5.0
OWN = (
    "node", "connection", "connection_name", "connected_at", "timestamp_in_ms", "pid", "owner_pid", "channel", "port",
    "peer_port", "timeout",
)  # fmt: skip
"""Headers of events in which each broker, or each connection, says something of its own."""


class Watched(Protocol):
    """A broker, and what is done to it beside AMQP."""

    port: int

    def trace(self, on: bool) -> None: ...
    def set_policy(self, operator: bool) -> None: ...
    def clear_policy(self, operator: bool) -> None: ...
    def people(self) -> None: ...
    def alarm(self) -> None: ...


class OurBroker:
    def __init__(self, thread: BrokerThread) -> None:
        self.thread, self.port = thread, thread.port

    def trace(self, on: bool) -> None:
        self.thread.run(lambda: self.thread.broker.set_tracing("/", on))

    def set_policy(self, operator: bool) -> None:
        self.thread.run(lambda: self.thread.broker.set_policy("p", "^z", {"max-length": 5}, operator=operator))

    def clear_policy(self, operator: bool) -> None:
        self.thread.run(lambda: self.thread.broker.clear_policy("p", operator=operator))

    def people(self) -> None:
        def manage() -> None:
            broker = self.thread.broker
            broker.add_vhost("w", user=None)
            broker.add_user("u", "one")
            broker.add_user("u", "one", tags=("management", "monitoring"), hashing_algorithm=RABBITMQ_SHA256)
            broker.set_permissions("u", "a", "b", "c", vhost="w")
            broker.set_permissions("u", "a", "b", "", vhost="w")
            broker.set_topic_permissions("u", "amq.topic", "w", "r", vhost="w")
            broker.clear_topic_permissions("u", vhost="w")
            broker.clear_permissions("u", vhost="w")
            broker.set_vhost_limits("w", {"max-queues": 5})
            broker.node.parameters.clear("w", "vhost-limits", "limits")
            broker.set_user_limits("u", {"max-channels": 5})
            broker.node.parameters.set_global(GlobalParameter("g", {"a": 1}))
            broker.node.parameters.clear_global("g")
            broker.set_policy("p", "^z", {"max-length": 5}, vhost="w")
            broker.set_vhost_limits("w", {"max-queues": 6})
            broker.set_permissions("u", "a", "b", "c", vhost="w")
            broker.set_topic_permissions("u", "amq.topic", "w", "r", vhost="w")
            broker.delete_vhost("w")
            broker.add_vhost("w", description="text", user=None)
            broker.set_permissions("u", "a", "b", "c", vhost="w")
            broker.remove_user("u")
            broker.delete_vhost("w")

        self.thread.run(manage)

    def alarm(self) -> None:
        def ring() -> None:
            self.thread.broker.node.raise_alarm("memory")
            self.thread.broker.node.clear_alarm("memory")

        self.thread.run(ring)


class Rabbit:
    def __init__(self, server: RabbitMQ, management: int) -> None:
        self.server, self.port, self.management = server, server.port, management

    def api(self, path: str) -> Any:
        with urllib.request.urlopen(self._request(path), timeout=60) as answer:
            return json.load(answer)

    def _request(self, path: str, method: str = "GET", data: bytes | None = None) -> urllib.request.Request:
        login = base64.b64encode(b"guest:guest").decode()
        url = f"http://127.0.0.1:{self.management}/api/{path}"
        headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
        return urllib.request.Request(url, data, headers, method=method)

    def change(self, method: str, path: str, body: object = None) -> None:
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(self._request(path, method, data), timeout=60) as answer:
            assert answer.status in (201, 204)

    def trace(self, on: bool) -> None:
        self.server.evaluate(f'rabbit_trace:{"start" if on else "stop"}(<<"/">>)')

    def set_policy(self, operator: bool) -> None:
        function = "parse_set_op" if operator else "parse_set"
        self.call(f"policy:{function}", "/", "p", "^z", r"{\"max-length\":5}", "0", "all")

    def clear_policy(self, operator: bool) -> None:
        function = "delete_op" if operator else "delete"
        self.call(f"policy:{function}", "/", "p")

    def call(self, function: str, *values: str | tuple[str, ...]) -> None:
        """A function of RabbitMQ's: texts are binaries, tuples lists of atoms; the last argument is who acts."""
        said = [
            f'<<"{value}">>' if isinstance(value, str) else f"[{', '.join(value)}]" for value in (*values, "rmq-cli")
        ]
        self.server.evaluate(f"rabbit_{function}({', '.join(said)})")

    def people(self) -> None:
        """By HTTP where it tells the same as rabbitmqctl, otherwise by what rabbitmqctl calls."""
        change, everything, users = self.change, {"configure": "a", "write": "b", "read": "c"}, "auth_backend_internal"
        topic = {"exchange": "amq.topic", "write": "w", "read": "r"}
        self.call("vhost:add", "w", "", "")
        self.call(f"{users}:add_user", "u", "one")
        self.call(f"{users}:change_password", "u", "one")  # which makes another hash of it
        self.call(f"{users}:set_tags", "u", ("management", "monitoring"))
        change("PUT", "permissions/w/u", everything)
        change("PUT", "permissions/w/u", {**everything, "read": ""})
        change("PUT", "topic-permissions/w/u", topic)
        change("DELETE", "topic-permissions/w/u")
        change("DELETE", "permissions/w/u")
        change("PUT", "vhost-limits/w/max-queues", {"value": 5})
        self.call("vhost_limit:clear", "w")
        change("PUT", "user-limits/u/max-channels", {"value": 5})
        change("PUT", "global-parameters/g", {"value": {"a": 1}})
        change("DELETE", "global-parameters/g")
        change("PUT", "policies/w/p", {"pattern": "^z", "definition": {"max-length": 5}})
        change("PUT", "vhost-limits/w/max-queues", {"value": 6})
        change("PUT", "permissions/w/u", everything)
        change("PUT", "topic-permissions/w/u", topic)
        change("DELETE", "vhosts/w")
        self.call("vhost:add", "w", "text", "")
        change("PUT", "permissions/w/u", everything)
        change("DELETE", "users/u")
        change("DELETE", "vhosts/w")

    def alarm(self) -> None:
        self.server.evaluate("vm_memory_monitor:set_vm_memory_high_watermark(0.00001)")
        self.server.evaluate("vm_memory_monitor:set_vm_memory_high_watermark(0.9)")


@pytest.fixture(scope="module")
def brokers(version: str, rabbitmq_nodes: Nodes) -> Iterator[tuple[OurBroker, Rabbit]]:
    (port,) = free_ports(1)
    config = {
        "management.tcp.ip": "127.0.0.1", "management.tcp.port": str(port), "collect_statistics_interval": "1000",
    }  # fmt: skip
    plugins = ["rabbitmq_event_exchange", "rabbitmq_management"]
    with BrokerThread(events=True) as thread, rabbitmq_nodes.fresh(version, config, plugins) as server:
        yield OurBroker(thread), Rabbit(server, port)


@dataclass(frozen=True)
class Copy:
    """What the watcher got; comparable between brokers."""

    routing_key: str
    headers: dict[str, Any]
    body: bytes
    properties: tuple[object, ...]


class Watcher:
    """A queue that is bound to one of the broker's exchanges with `#`."""

    def __init__(self, broker: Watched, exchange: str) -> None:
        self._connection = connect(broker)
        self._channel = self._connection.channel()
        self.queue = self._channel.queue_declare("", exclusive=True).method.queue
        self._channel.queue_bind(self.queue, exchange, "#")

    def take(self, count: int) -> list[Copy]:
        """The next `count` copies that are neither of this consumer nor of RabbitMQ's inner life."""
        found: list[Copy] = []
        for method, properties, body in self._channel.consume(self.queue, auto_ack=True, inactivity_timeout=PATIENCE):
            if method is None:
                break
            headers = dict(properties.headers)
            if headers.get("component") == "exchange-delete-in-progress" or headers.get("queue") == self.queue:
                continue
            if method.routing_key == "vhost.down" or headers.get("name") == "amq.system":
                continue
            if method.routing_key.startswith("node"):  # gauges, every few seconds
                continue
            found.append(Copy(method.routing_key, headers, body, (properties.delivery_mode, properties.content_type)))
            if len(found) == count:
                break
        self._channel.cancel()
        return found


@contextmanager
def watching(broker: Watched, exchange: str) -> Iterator[Watcher]:
    watcher = Watcher(broker, exchange)
    yield watcher
    watcher._connection.close()


def connect(broker: Watched) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port))


def without(headers: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in headers.items() if name not in names}


# ------------------------------------------------------------------------------------------------------ firehose


def traced(broker: Watched) -> list[Copy]:
    with watching(broker, "amq.rabbitmq.trace") as watcher:
        connection = connect(broker)
        channel = connection.channel()
        channel.exchange_declare("x", "topic")
        channel.queue_declare("q")
        channel.queue_bind("q", "x", "a.*")
        channel.basic_publish("x", "a.b", b"before")
        channel.basic_get("q", auto_ack=True)
        broker.trace(True)
        properties = pika.BasicProperties(
            headers={"h": 1, "CC": ["c1"], "BCC": ["b1"]}, content_type="text/plain", content_encoding="none",
            delivery_mode=2, priority=3, correlation_id="c", reply_to="r", expiration="50000", message_id="m",
            timestamp=5, type="t", user_id="guest", app_id="a",
        )  # fmt: skip
        channel.basic_publish("x", "a.b", b"body", properties)
        channel.basic_publish("x", "nowhere", b"unroutable")
        channel.basic_publish("", "q", b"second")
        method, _, _ = channel.basic_get("q")
        channel.basic_reject(method.delivery_tag, requeue=True)
        for wanted in range(2):
            method, _, _ = next(channel.consume("q"))
            assert method.redelivered is (wanted == 0)
            channel.basic_ack(method.delivery_tag)
        channel.cancel()
        channel.basic_publish("", "q", b"third")
        channel.basic_get("q", auto_ack=True)
        broker.trace(False)
        channel.basic_publish("", "q", b"after")
        channel.queue_delete("q")
        channel.exchange_delete("x")
        connection.close()
        return watcher.take(8)


def test_the_firehose_is_the_same(brokers: tuple[Watched, Watched]) -> None:
    ours, theirs = (traced(broker) for broker in brokers)
    assert len(theirs) == 8
    for one, other in zip(ours, theirs, strict=True):
        assert one.headers.keys() == other.headers.keys()
        assert one.headers["connection"].count(" -> ") == other.headers["connection"].count(" -> ") == 1
    assert comparable(ours, "node", "connection") == comparable(theirs, "node", "connection")


def comparable(copies: list[Copy], *left_out: str) -> list[Copy]:
    """RabbitMQ's queues are processes of their own, so what they say may come before or after what publishers say."""
    found = [Copy(each.routing_key, without(each.headers, *left_out), each.body, each.properties) for each in copies]
    return sorted(found, key=lambda copy: (copy.routing_key, copy.body, repr(sorted(copy.headers.items(), key=repr))))


# -------------------------------------------------------------------------------------------------------- events


def happened(broker: Watched) -> list[Copy]:
    with watching(broker, "amq.rabbitmq.event") as watcher:
        watcher.take(1)  # its own binding
        connection = connect(broker)
        channel = connection.channel()
        channel.exchange_declare("x", "topic")
        channel.exchange_declare("y", "fanout", durable=True, auto_delete=True, arguments={"k": 1})
        channel.queue_declare("q", durable=True, arguments={"x-max-length": 5, "x-overflow": "drop-head"})
        channel.queue_declare("q", passive=True)
        channel.queue_bind("q", "x", "a.*", arguments={"z": 1})
        channel.queue_bind("q", "x", "a.*", arguments={"z": 1})
        channel.exchange_bind("y", "x", "e")
        channel.basic_qos(prefetch_count=7)
        channel.basic_consume("q", lambda *_: None, consumer_tag="c", arguments={"x-priority": 2})
        channel.basic_cancel("c")
        channel.queue_unbind("q", "x", "a.*", arguments={"z": 1})
        channel.queue_bind("q", "x", "b")
        channel.queue_delete("q")
        channel.queue_declare("mine", exclusive=True)
        channel.exchange_delete("x")
        channel.exchange_delete("y")
        channel.close()
        for operator in (False, True):
            broker.set_policy(operator)
            broker.clear_policy(operator)
        broker.alarm()
        connection.close()
        return watcher.take(29)


@pytest.mark.parametrize("version", [OLDER], indirect=True, scope="session")
def test_the_events_are_the_same(brokers: tuple[Watched, Watched]) -> None:
    ours, theirs = (happened(broker) for broker in brokers)
    assert [each.routing_key for each in ours] == [each.routing_key for each in theirs]
    assert len(theirs) == 29
    for one, other in zip(ours, theirs, strict=True):
        left_out = list(OWN)
        if one.routing_key.startswith(("connection", "channel")):
            left_out.append("name")
        if one.routing_key.startswith(("policy", "operator", "parameter")):
            left_out.append("user_who_performed_action")  # rabbitmqctl has a name for itself
        assert set(one.headers) == set(other.headers), one.routing_key
        assert without(one.headers, *left_out) == without(other.headers, *left_out), one.routing_key
        assert (one.body, one.properties) == (other.body, other.properties)


def managed(broker: Watched) -> list[Copy]:
    with watching(broker, "amq.rabbitmq.event") as watcher:
        watcher.take(1)  # its own binding
        broker.people()
        return watcher.take(1000)  # to the last


@pytest.mark.parametrize("version", [OLDER], indirect=True, scope="session")
def test_the_events_of_virtual_hosts_users_and_parameters_are_the_same(brokers: tuple[Watched, Watched]) -> None:
    ours, theirs = (managed(broker) for broker in brokers)

    def said(copies: list[Copy]) -> list[tuple[str, dict[str, Any]]]:
        """The server's exchanges of a virtual host come and go in an order of each broker's own."""
        found = [(each.routing_key, without(each.headers, *OWN, "user_who_performed_action")) for each in copies]
        for _, headers in found:
            if "cluster_state" in headers:
                headers["cluster_state"] = list(headers["cluster_state"].values())
        exchanges = [each for each in found if each[0].startswith("exchange")]
        others = [each for each in found if not each[0].startswith("exchange")]
        return others + sorted(exchanges, key=lambda each: (each[0], each[1]["name"]))

    assert len(theirs) > 50
    assert [name for name, _ in said(ours)] == [name for name, _ in said(theirs)]
    for one, other in zip(said(ours), said(theirs), strict=True):
        assert one == other
    assert all(set(one.headers) >= {"user_who_performed_action", "timestamp_in_ms"} for one in ours)


# ---------------------------------------------------------------------------------------------------- statistics


def load(broker: Watched) -> pika.BlockingConnection:
    """Some of everything that is counted; on a connection that stays open, because statistics go with it.

    Names that no other test uses: RabbitMQ may add what it counted for an earlier queue of that name.
    """
    connection = connect(broker)
    channel = connection.channel()
    channel.exchange_declare("counted", "fanout")
    for queue in ("one", "two"):
        channel.queue_declare(queue)
        channel.queue_bind(queue, "counted")
    channel.confirm_delivery()
    for _ in range(5):
        channel.basic_publish("counted", "", b"1")
    for _ in range(3):
        channel.basic_publish("", "one", b"1")
    channel.basic_publish("amq.direct", "nobody", b"1")
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("amq.direct", "nobody", b"1", mandatory=True)
    channel.basic_publish("counted", "", b"1", pika.BasicProperties(headers={"CC": ["two"]}))
    for settle in (channel.basic_ack, channel.basic_nack, partial(channel.basic_reject, requeue=False)):
        method, _, _ = channel.basic_get("one")
        settle(method.delivery_tag)
    channel.basic_get("one", auto_ack=True)
    for count, (method, _, _) in enumerate(channel.consume("one"), 1):
        channel.basic_ack(method.delivery_tag)
        if count == 6:
            break
    channel.cancel()
    for count, _ in enumerate(channel.consume("two", auto_ack=True), 1):
        if count == 6:
            break
    channel.cancel()
    channel.basic_get("two")
    return connection


def our_counts(broker: OurBroker) -> dict[str, dict[str, int]]:
    report = broker.thread.run(broker.thread.broker.statistics)
    vhost = report["vhosts"]["/"]
    (channel,) = (channel for connection in report["connections"] for channel in connection["channels"])
    return {
        **{f"queue {name}": counts(vhost["queues"][name]) for name in ("one", "two")},
        **{f"exchange {name}": counts(vhost["exchanges"][name]) for name in ("counted", "amq.direct", "")},
        "channel": counts(channel),
    }


def their_counts(broker: Rabbit) -> dict[str, dict[str, int]]:
    channels = broker.api("channels")
    return {
        **{f"queue {name}": counts(broker.api(f"queues/%2F/{name}")) for name in ("one", "two")},
        **{f"exchange {name}": counts(broker.api(f"exchanges/%2F/{name}")) for name in ("counted", "amq.direct")},
        "exchange ": counts(broker.api("exchanges/%2F/amq.default")),
        "channel": counts(channels[0]) if channels else {},
    }


def counts(of: dict[str, Any]) -> dict[str, int]:
    """Those that are not zero, without rates."""
    return {name: count for name, count in of.get("message_stats", {}).items() if isinstance(count, int) and count}


def test_the_counts_are_the_same(brokers: tuple[OurBroker, Rabbit]) -> None:
    ours, theirs = brokers
    with load(ours) as _, load(theirs) as connection:
        expected = our_counts(ours)
        deadline = time.monotonic() + 30  # RabbitMQ gathers them once a second, from one process after the other
        while (found := their_counts(theirs)) != expected and time.monotonic() < deadline:
            connection.sleep(0.2)
        assert found == expected
