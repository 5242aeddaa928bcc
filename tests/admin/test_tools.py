"""Programs that know RabbitMQ's HTTP API, unmodified: pyrabbit2, and the page of Celery's Flower about the broker."""

from __future__ import annotations

import asyncio
import gc
import inspect
from typing import Any

import pytest

from harebell.protocol.v091 import methods as m
from tests.admin.kit import ApiThread
from tests.wire import Wire

api = pytest.importorskip("pyrabbit2.api")

# Needs a component that an ApiThread does not have; the shovels' own tests have it.
NOT_HERE = {"create_shovel", "get_all_shovels", "get_shovel", "delete_shovel"}
EMPTY = {"get_bindings_from_exchange", "get_bindings_to_exchange", "get_bindings_between_exch_and_queue"}  # no code


class Noting:
    """A client of pyrabbit2 that notes which of its methods were called."""

    def __init__(self, port: int) -> None:
        self.client = api.Client(f"127.0.0.1:{port}", "guest", "guest")
        self.called: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.called.add(name)
        return getattr(self.client, name)


@pytest.mark.filterwarnings("ignore:unclosed")  # requests' connections are left to the collector
def test_pyrabbit2(own: ApiThread) -> None:
    it = Noting(own.api_port)
    assert it.is_alive()
    assert it.get_whoami()["name"] == "guest"
    assert it.get_overview()["product_name"] == "Harebell"
    assert [node["running"] for node in it.get_nodes()] == [True]
    assert it.get_cluster_name()["name"]
    assert isinstance(it.get_extensions(), list)

    it.create_vhost("shop")
    assert sorted(it.get_vhost_names()) == ["/", "shop"] == sorted(vhost["name"] for vhost in it.get_all_vhosts())
    assert it.get_vhost("shop")["name"] == "shop"
    it.create_user("ann", "secret", "monitoring")
    assert "ann" in [user["name"] for user in it.get_users()]
    it.set_vhost_permissions("shop", "ann", ".*", ".*", ".*")
    it.set_vhost_permissions("shop", "guest", ".*", ".*", ".*")
    assert it.get_permission("shop", "ann")["read"] == ".*"
    assert {"vhost": "shop", "user": "ann", "configure": ".*", "write": ".*", "read": ".*"} in it.get_permissions()
    assert {each["user"] for each in it.get_vhost_permissions("shop")} == {"ann", "guest"}
    assert [each["vhost"] for each in it.get_user_permissions("ann")] == ["shop"]

    it.create_exchange("shop", "orders", "topic")
    assert it.get_exchange("shop", "orders")["type"] == "topic"
    assert "orders" in [exchange["name"] for exchange in it.get_exchanges("shop")]
    it.create_queue("shop", "eu", durable=True)
    assert it.get_queue("shop", "eu")["durable"] is True
    assert [queue["name"] for queue in it.get_queues("shop")] == ["eu"]
    it.create_binding("shop", "orders", "eu", "eu.#")
    assert [each["routing_key"] for each in it.get_queue_bindings("shop", "eu")] == ["eu", "eu.#"]
    assert len(it.get_bindings()) >= 2

    assert it.publish("shop", "orders", "eu.de", "hello") is True
    assert it.publish("shop", "orders", "us", "hello") is False
    assert it.get_queue_depth("shop", "eu") == 1
    it.get_queue_depths("shop", ["eu"])  # prints them
    assert [message["payload"] for message in it.get_messages("shop", "eu", requeue=True)] == ["hello"]
    it.purge_queue("shop", "eu")
    it.publish("shop", "orders", "eu.de", "again")
    it.purge_queues([("eu", "shop")])
    assert it.get_queue_depth("shop", "eu") == 0

    it.create_policy("shop", "short", pattern="^eu", definition={"max-length": 3}, priority=1)
    assert it.get_policy("shop", "short")["definition"] == {"max-length": 3}
    assert [policy["name"] for policy in it.get_all_policies()] == ["short"]
    it.delete_policy("shop", "short")
    assert "eu" in [queue["name"] for queue in it.get_definitions()["queues"]]

    with Wire(own.port).log_in() as wire:
        wire.channel()
        wire.call(1, m.QueueDeclare(passive=False), m.QueueDeclareOk)
        own.sample()
        (connection,) = it.get_connections()
        (channel,) = it.get_channels()
        assert it.get_connection(connection["name"])["user"] == "guest"
        assert it.get_channel(channel["name"])["number"] == 1
        it.delete_connection(connection["name"])

    it.delete_binding("shop", "orders", "eu", "eu.%2523")  # the key of its properties, quoted
    it.delete_queue("shop", "eu")
    it.delete_exchange("shop", "orders")
    it.delete_permission("shop", "ann")
    it.delete_user("ann")
    it.delete_vhost("shop")
    assert it.get_vhost_names() == ["/"]
    methods = {name for name, _ in inspect.getmembers(api.Client, inspect.isfunction) if not name.startswith("_")}
    assert methods - it.called == NOT_HERE | EMPTY
    gc.collect()


@pytest.mark.filterwarnings("ignore:unclosed")
def test_flower_sees_the_queues(own: ApiThread) -> None:
    broker = pytest.importorskip("flower.utils.broker")
    with Wire(own.port).log_in() as wire:
        wire.channel()
        for name in ("celery", "other"):
            wire.call(1, m.QueueDeclare(name), m.QueueDeclareOk)
        wire.publish("", "celery", b"task")
        wire.call(1, m.QueueDeclare("celery", passive=True), m.QueueDeclareOk)

        async def look() -> list[dict[str, Any]]:
            flower = broker.Broker(
                f"amqp://guest:guest@127.0.0.1:{own.port}//",
                http_api=f"http://guest:guest@127.0.0.1:{own.api_port}/api/",
            )
            found: list[dict[str, Any]] = await flower.queues(["celery"])
            return found

        (queue,) = asyncio.run(look())
    # What its page shows of a queue.
    shown = {key: queue[key] for key in ("name", "messages", "messages_unacknowledged", "messages_ready", "consumers")}
    assert shown == {
        "name": "celery", "messages": 1, "messages_unacknowledged": 0, "messages_ready": 1, "consumers": 0
    }  # fmt: skip
    assert "idle_since" in queue or queue["messages"]
    gc.collect()
