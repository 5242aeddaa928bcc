"""Streams: what each user is told, and when a stream begins anew or ends."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import cast

import pytest

from harebell.admin.live import feed
from harebell.admin.live.board import Entry
from harebell.broker.operations.events import Events
from harebell.protocol.v091 import methods as m
from harebell.routing.policies import Policy
from tests.admin.kit import Api, ApiThread
from tests.admin.live.streams import Watch
from tests.wire import Wire

ALL = ("node", "vhosts", "queues", "exchanges", "connections", "channels", "consumers", "shovels")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks follow each other fast."""
    monkeypatch.setattr(feed, "PERIOD", 0.05)


def publish(api: Api, queue: str, vhost: str = "%2F") -> None:
    body = {"properties": {}, "routing_key": queue, "payload": "x", "payload_encoding": "string"}
    assert api("POST", f"/api/exchanges/{vhost}/amq.default/publish", body).json == {"routed": True}


def watchers(own: ApiThread) -> int:
    return len(cast(Events, own.broker.node.events)._watchers)


@pytest.mark.parametrize(("spent", "pause"), [(0.0, 2.0), (0.01, 2.0), (0.1, 5.0), (1.0, 10.0)])
def test_long_looks_are_seldom(spent: float, pause: float) -> None:
    assert feed.pause_after(spent) == pytest.approx(pause)


def test_a_stream_begins_with_all_rows_and_goes_on_with_what_changes(own: ApiThread, quick: None) -> None:
    api = own.api()
    api.put("/api/queues/%2F/one", {"arguments": {"x-max-length": 5}})
    with Watch(api, *ALL) as watch:
        assert watch.status == 200
        assert watch.media == "text/event-stream; charset=utf-8"
        watch.until(lambda: watch.complete == set(ALL))
        one = watch.row("queues", "one")
        assert one["vhost"] == "/"
        assert one["arguments"] == {"x-max-length": 5}
        assert one["messages_ready"] == 0
        assert "amq.topic" in watch.list("exchanges")
        assert watch.list("vhosts") == ["/"]
        assert watch.list("node") == [own.broker.node.name]
        publish(api, "one")
        watch.until(lambda: watch.row("queues", "one")["messages_ready"] == 1)
        watch.until(lambda: watch.row("vhosts", "/")["messages_ready"] == 1)
        watch.until(lambda: watch.row("queues", "one")["publish"] == 0.0)
        api.put("/api/queues/%2F/two")
        watch.until(lambda: watch.list("queues") == ["one", "two"])
        api("DELETE", "/api/queues/%2F/one")
        watch.until(lambda: watch.list("queues") == ["two"])
        assert watch.resets == len(ALL), "a stream that keeps up is not begun anew"


def test_clients_have_rows(own: ApiThread, quick: None) -> None:
    api = own.api()
    api.put("/api/queues/%2F/q")
    with Watch(api, "connections", "channels", "consumers") as watch:
        watch.until(lambda: len(watch.complete) == 3)
        with Wire(own.port).log_in(properties={"product": "test"}) as wire:
            wire.channel()
            wire.call(1, m.BasicQos(0, 7, False), m.BasicQosOk)
            wire.call(1, m.BasicConsume("q", "tag"), m.BasicConsumeOk)
            watch.until(lambda: watch.list("consumers", "consumer_tag") == ["tag"])
            watch.until(lambda: watch.list("channels", "number") == [1])
            (connection,), (channel,), (consumer,) = (watch.rows[name].values() for name in watch.rows)
            watch.until(lambda: channel.get("consumers") == 1)
            assert connection["client_properties"] == {"product": "test"}
            assert (connection["user"], connection["vhost"]) == ("guest", "/")
            assert channel["connection"] == consumer["connection"] == connection["name"]
            assert (consumer["queue"], consumer["prefetch_count"], consumer["room"]) == ("q", 7, 7)
            assert consumer["active"] is True
            publish(api, "q")
            watch.until(lambda: consumer["room"] == 6)
            watch.until(lambda: channel["messages_unacknowledged"] == 1)
        watch.until(lambda: not watch.rows["consumers"] and not watch.rows["connections"])


def test_a_row_has_the_policies_in_force(own: ApiThread, quick: None) -> None:
    api = own.api()
    for name in ("a", "b"):
        api.put(f"/api/queues/%2F/{name}")
    with Watch(api, "queues", "exchanges") as watch:
        watch.until(lambda: len(watch.complete) == 2)
        assert {row["policy"] for row in watch.rows["queues"].values()} == {None}
        policies = own.broker.node.vhosts["/"].policies
        own.run(lambda: policies.set(Policy("/", "p", "^(a|amq.topic)$", {"message-ttl": 1000}, apply_to="all")))
        watch.until(lambda: watch.row("queues", "a")["policy"] == "p")
        watch.until(lambda: watch.row("exchanges", "amq.topic")["policy"] == "p")
        assert watch.row("queues", "b")["policy"] is None
        own.run(lambda: policies.clear("p"))
        watch.until(lambda: watch.row("queues", "a")["policy"] is None)


def test_a_user_sees_its_virtual_hosts_and_its_own_clients(own: ApiThread, quick: None) -> None:
    guest = own.api()
    for name in ("a", "b"):
        guest.put(f"/api/vhosts/{name}")
        guest.put(f"/api/queues/{name}/of-{name}")
    user = own.add_user("user", "management", vhosts=("a",))
    with Watch(user, *ALL) as watch, Wire(own.port).log_in(), contextlib.ExitStack() as clients:
        watch.until(lambda: watch.complete == set(ALL))
        assert watch.list("vhosts") == ["a"]
        assert watch.list("queues") == ["of-a"]
        assert set(watch.list("exchanges", "vhost")) == {"a"}
        assert watch.rows["node"] == {}
        clients.enter_context(Wire(own.port).log_in(user="user", password="user", vhost="a"))
        watch.until(lambda: watch.list("connections", "user") == ["user"])
        assert guest.put("/api/permissions/b/user", {"configure": "", "write": "", "read": ""}) == 201
        watch.until(lambda: watch.list("queues") == ["of-a", "of-b"])
        guest("DELETE", "/api/permissions/a/user")
        watch.until(lambda: watch.list("queues") == ["of-b"])
        assert own.api("user")("PUT", "/api/queues/a/x", {}).status == 401


@pytest.mark.parametrize("how", ["tags", "password", "deleted", "logout"])
def test_a_stream_ends_with_the_right_to_it(own: ApiThread, quick: None, how: str) -> None:
    guest, user = own.api(), own.add_user("user", "monitoring")
    login = user("POST", "/api/login", {"username": "user", "password": "user"}, login=False)
    cookie = {"cookie": login.headers["set-cookie"].partition(";")[0]}
    with Watch(user, "queues", headers=cookie) as watch:
        watch.until(lambda: "queues" in watch.complete)
        match how:
            case "tags":
                guest.put("/api/users/user", {"password": "user", "tags": ""})
            case "password":
                guest.put("/api/users/user", {"password": "other", "tags": "monitoring"})
            case "deleted":
                guest("DELETE", "/api/users/user")
            case "logout":
                assert user("POST", "/api/logout", headers=cookie, login=False).status == 204
        own.run(lambda: own.broker.node.vhosts["/"])
        guest.put("/api/queues/%2F/wakes")
        watch.drain()
        assert watch.ended


def test_a_client_that_is_too_slow_begins_anew(own: ApiThread, quick: None) -> None:
    api, stream = own.api(), own.management.context.feed
    for number in range(30):
        api.put(f"/api/queues/%2F/{number}")
    with Watch(api, "queues") as watch:
        watch.until(lambda: "queues" in watch.complete)

        def forget_the_last() -> None:
            (listener,) = stream._listeners
            number, groups = listener.seen["queues"]
            listener.seen["queues"] = number - 5, groups

        own.run(forget_the_last)
        api("DELETE", "/api/queues/%2F/7")
        watch.until(lambda: watch.resets == 2 and "queues" in watch.complete)
        watch.until(lambda: len(watch.rows["queues"]) == 29)


@pytest.mark.parametrize("error", [KeyError("x"), OSError(5, "x")], ids=["a defect", "the system"])
@pytest.mark.parametrize("rows", [0, 1, 2])
@pytest.mark.parametrize("begun", [False, True])
def test_a_look_that_fails_ends_no_view(
    own: ApiThread, quick: None, caplog: pytest.LogCaptureFixture, error: Exception, rows: int, begun: bool
) -> None:
    """`rows` are given before the error; the stream has begun before it, or begins with it."""
    api, failed = own.api(), 0
    for name in ("one", "two", "three"):
        api.put(f"/api/queues/%2F/{name}")
    board = own.management.context.feed._boards["queues"]
    kind = board.kind

    def look() -> Iterator[Entry | None]:
        nonlocal failed
        if failed == 3:
            yield from kind.look()
            return
        failed += 1
        yield from itertools.islice(kind.look(), rows)
        raise error

    def fail() -> None:
        board.kind = kind._replace(look=look)

    if not begun:
        own.run(fail)
    with Watch(api, "queues", "vhosts") as watch:
        if begun:
            watch.until(lambda: watch.complete == {"queues", "vhosts"})
            own.run(fail)
        publish(api, "one")
        watch.until(lambda: watch.row("vhosts", "/").get("messages_ready") == 1)
        api("DELETE", "/api/queues/%2F/two")
        watch.until(lambda: watch.list("queues") == ["one", "three"] and failed == 3)
        watch.until(lambda: watch.row("queues", "one").get("messages_ready") == 1)
        assert watch.resets == (3 if begun else 2)  # the queues' view begins anew, the other goes on
    assert caplog.text.count("a look at queues failed") == 3
    assert own.broker.node.batch.failed is None


def test_without_a_stream_nothing_looks(own: ApiThread, quick: None) -> None:
    api, stream = own.api(), own.management.context.feed
    with Watch(api, "queues", "changes") as watch:
        watch.until(lambda: "queues" in watch.complete)
        assert own.run(lambda: stream.listeners) == 1
        assert own.run(lambda: watchers(own)) == 1
    with Watch(api, "node") as other:  # the first one's end is noticed at the next thing that it is sent
        other.until(lambda: "node" in other.complete)
        api.put("/api/queues/%2F/q")
        other.until(lambda: own.run(lambda: stream.listeners) == 1)
        assert own.run(lambda: watchers(own)) == 0
        assert own.run(lambda: stream._boards["queues"].number) == 0


def test_streams_end_with_the_api() -> None:
    with ApiThread() as own:
        watch = Watch(own.api(), "node")
        watch.until(lambda: "node" in watch.complete)
        own.wait_for(own.management.stop())
        watch.drain()
        assert watch.ended
        watch.__exit__(None, None, None)


def test_topics_are_known_ones(own: ApiThread) -> None:
    answer = own.api()("GET", "/api/events?topics=queues,nonsense")
    assert answer.status == 400
    assert "not 'nonsense'" in answer.reason


def test_other_sites_get_no_stream(own: ApiThread) -> None:
    api = own.api()
    for headers in ({"sec-fetch-site": "cross-site"}, {"origin": "http://evil.example"}):
        answer = api("GET", "/api/events", headers=headers)
        assert answer.status == 403
