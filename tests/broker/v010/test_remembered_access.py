"""What a publisher remembers of its user's permissions and tags, of either dialect: a change makes it ask again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from harebell.protocol.v010 import DeliveryProperties, MessageProperties, commands as c
from harebell.protocol.v091 import Properties, methods as m
from harebell.routing.definitions import Permission, TopicPermission
from tests.broker.v010.kit import Client, Kit, add_user

Publishing = Callable[[Kit, int], bool]  # publishes the message of that number; whether it was allowed

KEY = "mine.k"


def tag(kit: Kit, *tags: str) -> None:
    kit.node.users.put(replace(kit.node.users.users["eve"], tags=tags))


@pytest.fixture
def ready(kit: Kit) -> Kit:
    add_user(kit, "eve", "mine.*|amq.topic")
    kit.node.users.set_topic_permission(TopicPermission("/", "eve", "amq.topic", "mine.*", "mine.*"))
    tag(kit, "impersonator")
    client = kit.peer().session(b"setup")
    client.call(c.QueueDeclare("mine"))
    client.call(c.ExchangeBind("mine", "amq.topic", "#"))
    return kit


def of_0_10(kit: Kit, *, count: int = 1, ids: bool = False) -> Publishing:
    client = kit.peer(user="eve").session(b"s")

    def item(number: int) -> tuple[object, ...]:
        message = MessageProperties(user_id=b"alice", correlation_id=b"%08d" % number if ids else None)
        return c.MessageTransfer("amq.topic", sync=True), [DeliveryProperties(routing_key=KEY), message], b"m"

    def publish(kit: Kit, number: int) -> bool:
        for each in range(count):
            sent = item(number * count + each)
            client.state.sending.send(sent, 100)
            client._put(sent)
        client.peer.pump()  # all of them together
        kit.settle()
        return allowed(client)

    return publish


def allowed(client: Client) -> bool:
    if client.exception is not None:
        assert client.exception.error_code == 403
    return client.exception is None


def of_0_9_1(kit: Kit, *, count: int = 1) -> Publishing:
    kit.peer(user="eve")  # its password is verified, by another thread
    client = kit.client(user="eve")

    def publish(kit: Kit, number: int) -> bool:
        for _ in range(count):
            properties = Properties(user_id="alice")
            client.engine.send_content(1, m.BasicPublish("amq.topic", KEY), properties, b"m")
        client.pump()
        kit.settle()
        return not any(isinstance(event, m.ChannelClose) for _, event in client.events)

    return publish


REMEMBERING: dict[str, Callable[[Kit], Publishing]] = {
    "0-10, the same header": of_0_10,
    "0-10, headers of one shape": lambda kit: of_0_10(kit, ids=True),
    "0-10, messages together": lambda kit: of_0_10(kit, count=3),
    "0-10, messages of one shape together": lambda kit: of_0_10(kit, count=3, ids=True),
    "0-9-1": of_0_9_1,
    "0-9-1, messages together": lambda kit: of_0_9_1(kit, count=3),
}
CHANGES: dict[str, Callable[[Kit], None]] = {
    "no tags": tag,
    "another tag": lambda kit: tag(kit, "administrator"),
    "permission": lambda kit: kit.node.users.set_permission(Permission("/", "eve", ".*", "other", ".*")),
    "no permission": lambda kit: kit.node.users.clear_permission("/", "eve"),
    "topic permission": lambda kit: kit.node.users.set_topic_permission(
        TopicPermission("/", "eve", "amq.topic", "other", "other")
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("what", REMEMBERING)
def test_a_change_is_asked_for(ready: Kit, what: str, change: str) -> None:
    publish = REMEMBERING[what](ready)
    assert all(publish(ready, number) for number in range(3))
    count = ready.node.vhosts["/"].queues["mine"].message_count
    assert count >= 3
    CHANGES[change](ready)
    assert not publish(ready, 3)
    assert ready.node.vhosts["/"].queues["mine"].message_count == count


@pytest.mark.parametrize("what", REMEMBERING)
def test_what_the_user_keeps_is_allowed(ready: Kit, what: str) -> None:
    publish = REMEMBERING[what](ready)
    assert publish(ready, 0)
    tag(ready, "administrator", "impersonator")
    assert publish(ready, 1)


@pytest.mark.parametrize("what", REMEMBERING)
def test_a_tag_that_is_given_counts_at_once(ready: Kit, what: str) -> None:
    tag(ready)
    assert not REMEMBERING[what](ready)(ready, 0)
    publish = REMEMBERING[what](ready)
    tag(ready, "impersonator")
    assert publish(ready, 1)
