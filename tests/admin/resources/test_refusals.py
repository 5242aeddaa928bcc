"""GET /api/refusals: why an act was denied, and a grant after which it is not."""

from __future__ import annotations

import pytest

from harebell.protocol.v091 import methods as m
from tests.admin.kit import Api, ApiThread
from tests.wire import Wire


def refused(own: ApiThread, *requests: m.Method) -> None:
    """Let ann make these requests, each of which closes its channel."""
    with Wire(own.port).log_in(user="ann", password="ann") as wire:
        for number, request in enumerate(requests, 1):
            wire.channel(number)
            wire.call(number, request, m.ChannelClose)
            wire.send(number, m.ChannelCloseOk())


@pytest.fixture
def ann(own: ApiThread) -> Api:
    """A user who may read what begins with "mine", and publish to topics that begin with "a"."""
    user = own.add_user("ann", "management")
    api = own.api()
    assert api.put("/api/permissions/%2F/ann", {"configure": "", "write": "^amq.topic$", "read": "^mine"}) == 201
    assert api.put("/api/topic-permissions/%2F/ann", {"exchange": "amq.topic", "write": "^a", "read": ""}) == 201
    api.put("/api/queues/%2F/orders.eu")
    return user


def test_the_grant_that_is_named_allows_it(own: ApiThread, ann: Api) -> None:
    api = own.api()
    refused(own, m.QueueDeclare("new"), m.BasicConsume("orders.eu"), m.BasicConsume("orders.eu"))
    consume, declare = api.get("/api/refusals")
    assert (declare["act"], declare["right"], declare["pattern"]) == ("declare-queue", "configure", "")
    assert declare["grant"] == {"configure": "^new$", "write": "^amq.topic$", "read": "^mine"}
    assert (consume["act"], consume["kind"], consume["name"], consume["count"]) == ("consume", "queue", "orders.eu", 2)
    assert (consume["pattern"], consume["allowed"]) == ("^mine", False)
    assert consume["grant"]["read"] == r"^mine|^orders\.eu$"
    assert consume["first_at"] <= consume["last_at"]
    assert api.put("/api/permissions/%2F/ann", consume["grant"]) == 204
    with Wire(own.port).log_in(user="ann", password="ann") as wire:
        wire.channel()
        wire.call(1, m.BasicConsume("orders.eu"), m.BasicConsumeOk)
    assert [each["allowed"] for each in api.get("/api/refusals")] == [True, False]


def test_of_a_routing_key(own: ApiThread, ann: Api) -> None:
    api = own.api()
    with Wire(own.port).log_in(user="ann", password="ann") as wire:
        wire.channel()
        wire.publish("amq.topic", "b.c", b"x")
        wire.call(1, m.QueueDeclare("mine", passive=True), m.ChannelClose)
    (row,) = api.get("/api/refusals")
    assert (row["kind"], row["name"], row["exchange"], row["pattern"]) == ("topic", "b.c", "amq.topic", "^a")
    assert row["grant"] == {"exchange": "amq.topic", "write": r"^a|^b\.c$", "read": ""}
    assert api.put("/api/topic-permissions/%2F/ann", row["grant"]) == 204
    assert api.get("/api/refusals")[0]["allowed"] is True
    api("DELETE", "/api/topic-permissions/%2F/ann")
    assert api.get("/api/refusals")[0]["grant"] == {}


def test_who_sees_them(own: ApiThread, ann: Api) -> None:
    refused(own, m.QueueDeclare("new"))
    other = own.add_user("bob", "management", vhosts=("/",))
    assert [row["user"] for row in ann.get("/api/refusals")] == ["ann"]
    assert other.get("/api/refusals") == []
    own.api()("DELETE", "/api/permissions/%2F/ann")
    (row,) = own.api().get("/api/refusals?name=x")
    assert (row["pattern"], row["grant"]) == (None, {"configure": "^new$", "write": "", "read": ""})
    assert own.api().get("/api/refusals?page=1&name=nothing")["items"] == []
