"""The ages of unacknowledged deliveries over HTTP: of both dialects, by range, sorted, cut, and for whom they are."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from harebell.admin.history.ack_ages import Ages
from harebell.admin.shapes.ack_ages import LIMITS, deliveries_by_age
from harebell.broker.v091.channel import Channel
from harebell.client.blocking.sessions import connect
from harebell.protocol.v091 import methods as m
from tests.admin.kit import ApiThread
from tests.wire import PATIENCE, Wire

PATH = "/api/ack-ages"
NONE = dict.fromkeys((*LIMITS, "more"), 0)


class Times:
    """The clock of the samples, which a test moves."""

    def __init__(self, own: ApiThread) -> None:
        self.own, self.now = own, 0
        self.ages = own.management.context.sampler.ages
        self.ages._now = lambda: self.now

    def pass_by(self, milliseconds: int) -> None:
        self.now += milliseconds

    def sample(self, milliseconds: int = 5_000) -> None:
        """Take a sample after so long, and wait for its end."""
        self.pass_by(milliseconds)
        sampler = self.own.management.context.sampler
        wanted = sampler.tick + 1
        self.own.sample()
        end = time.monotonic() + PATIENCE
        while sampler.tick < wanted:
            assert time.monotonic() < end
            time.sleep(0.005)


@pytest.fixture
def times(own: ApiThread) -> Times:
    own.run(own.management.context.sampler.stop)  # samples are the test's
    return Times(own)


@pytest.fixture
def wire(own: ApiThread) -> Iterator[Wire]:
    """A client with two queues, and a consumer of each on one channel."""
    with Wire(own.port).log_in() as wire:
        wire.channel()
        for name in ("slow", "quick"):
            wire.call(1, m.QueueDeclare(name), m.QueueDeclareOk)
            wire.call(1, m.BasicQos(0, 5), m.BasicQosOk)
            wire.call(1, m.BasicConsume(name, f"of {name}"), m.BasicConsumeOk)
        yield wire


def deliver(wire: Wire, queue: str, count: int) -> list[int]:
    """Publish so many messages, and take as many deliveries. Returns their tags."""
    for _ in range(count):
        wire.publish("", queue, b"x")
    return [each.method.delivery_tag for each in wire.take(m.BasicDeliver, count)]  # type: ignore[attr-defined]


def settled(wire: Wire) -> None:
    wire.barrier(1)


def test_each_consumer_with_its_ages(own: ApiThread, times: Times, wire: Wire) -> None:
    api = own.api()
    first = deliver(wire, "slow", 2)
    times.sample()
    deliver(wire, "quick", 1)
    times.sample(3_600_000)
    deliver(wire, "slow", 3)
    times.pass_by(3_000)
    slow, quick = api.get(PATH)
    assert slow["queue"] == {"name": "slow", "vhost": "/"}
    assert (slow["consumer_tag"], slow["prefetch_count"], slow["global_prefetch_count"]) == ("of slow", 5, 0)
    assert slow["channel_details"]["number"] == 1
    assert slow["ack_required"] is True
    assert slow["messages_unacknowledged"] == 5
    assert (slow["oldest_age"], slow["median_age"], slow["p90_age"], slow["p99_age"]) == (
        3_603_000,
        0,
        *[3_603_000] * 2,
    )
    assert slow["deliveries_by_age"] == NONE | {"10s": 3, "more": 2}
    assert (quick["messages_unacknowledged"], quick["oldest_age"], quick["median_age"]) == (1, 3_000, 3_000)
    wire.send(1, m.BasicAck(first[-1], multiple=True))
    settled(wire)
    slow, quick = sorted(api.get(PATH), key=lambda it: -it["messages_unacknowledged"])
    assert (slow["messages_unacknowledged"], slow["oldest_age"]) == (3, 0)


def test_a_consumer_without_deliveries_and_one_without_acknowledgements(
    own: ApiThread, times: Times, wire: Wire
) -> None:
    wire.call(1, m.BasicConsume("slow", "free", no_ack=True), m.BasicConsumeOk)
    found = {each["consumer_tag"]: each for each in own.api().get(PATH)}
    assert sorted(found) == ["free", "of quick", "of slow"]
    assert found["free"]["ack_required"] is False
    for each in found.values():
        assert each["messages_unacknowledged"] == 0
        assert each["oldest_age"] is each["median_age"] is each["p90_age"] is each["p99_age"] is None
        assert each["deliveries_by_age"] == NONE


def test_deliveries_of_basic_get_are_no_consumers(own: ApiThread, times: Times, wire: Wire) -> None:
    wire.call(1, m.QueueDeclare("got"), m.QueueDeclareOk)
    wire.publish("", "got", b"x")
    wire.call(1, m.BasicGet("got"), m.BasicGetOk)
    assert [each["messages_unacknowledged"] for each in own.api().get(PATH)] == [0, 0]


def test_a_subscription_of_a_session(own: ApiThread, times: Times) -> None:
    """AMQP 0-10: transfers have the session's numbers of commands."""
    with connect(f"amqp://127.0.0.1:{own.port}") as connection, connection.session() as session:
        session.queue_declare("q")
        for body in (b"1", b"2"):
            session.publish(body, "", "q")
        with session.consume("q", window=10) as deliveries:
            first, _ = next(deliveries), next(deliveries)
            times.sample()
            times.pass_by(45_000)
            session.publish(b"3", "", "q")
            next(deliveries)
            times.sample()
            (found,) = own.api().get(PATH)
            assert (found["queue"]["name"], found["messages_unacknowledged"]) == ("q", 3)
            assert (found["oldest_age"], found["median_age"]) == (50_000, 50_000)
            assert found["deliveries_by_age"] == NONE | {"10s": 1, "1m": 2}
            first.accept()
            session.sync()
            assert own.api().get(PATH)[0]["deliveries_by_age"] == NONE | {"10s": 1, "1m": 1}


def test_the_list_is_sorted_cut_and_filtered(own: ApiThread, times: Times, wire: Wire) -> None:
    api = own.api()
    deliver(wire, "quick", 1)
    times.sample()
    deliver(wire, "slow", 2)
    times.sample()

    def tags(query: str) -> list[str]:
        return [each["consumer_tag"] for each in api.get(f"{PATH}?{query}")]

    assert tags("") == ["of quick", "of slow"]
    assert tags("sort=messages_unacknowledged&sort_reverse=true") == ["of slow", "of quick"]
    assert tags("sort=deliveries_by_age.10s") == ["of quick", "of slow"]
    assert tags("sort=oldest_age") == ["of slow", "of quick"]
    assert api.get(f"{PATH}?columns=consumer_tag,oldest_age")[0] == {"consumer_tag": "of quick", "oldest_age": 5_000}
    page = api.get(f"{PATH}?page=1&page_size=1&name=slow")
    assert (page["total_count"], page["filtered_count"]) == (2, 1)
    assert page["items"][0]["queue"]["name"] == "slow"
    assert api("GET", f"{PATH}?page=0").status == 400


def test_only_those_in_virtual_hosts_that_the_user_sees(own: ApiThread, times: Times, wire: Wire) -> None:
    assert own.api().put("/api/vhosts/other") == 201
    stranger = own.add_user("stranger", "management", vhosts=("other",))
    assert stranger.get(PATH) == []
    assert stranger("GET", f"{PATH}/%2F").status == 401
    assert stranger.get(f"{PATH}/other") == []
    neighbour = own.add_user("neighbour", "management", vhosts=("/",))
    assert len(neighbour.get(PATH)) == len(neighbour.get(f"{PATH}/%2F")) == 2, "consumers of others are listed, too"
    assert own.add_user("nobody")("GET", PATH).status == 401


def test_many_deliveries_are_looked_at_in_steps(own: ApiThread, times: Times, wire: Wire) -> None:
    """A full prefetch of 65,535 on the channel of a consumer."""
    count = 65_535
    (channel,) = own.run(lambda: [each for it in own.broker.node.connections for each in it.channels.values()])
    assert isinstance(channel, Channel)
    consumer = channel.consumers["of slow"]

    def fill() -> None:
        channel.unacked.entries |= {tag: (consumer.queue, consumer, tag, None) for tag in range(1, count + 1)}
        channel.tag = count

    own.run(fill)
    times.sample()
    times.pass_by(60_000)
    steps = own.run(lambda: sum(1 for _ in times.ages.of(channel)))
    assert steps >= 100
    assert own.api().get(PATH)[0]["deliveries_by_age"] == NONE | {"5m": count}
    own.run(channel.unacked.entries.clear)


@pytest.mark.parametrize(
    ("age", "name"),
    [
        (0, "10s"),
        (9_999, "10s"),
        (10_000, "30s"),
        (59_999, "1m"),
        (60_000, "5m"),
        (3_599_999, "1h"),
        (3_600_000, "more"),
    ],
)
def test_ranges(age: int, name: str) -> None:
    assert deliveries_by_age(Ages([(age, 3)])) == NONE | {name: 3}


def test_the_reset_of_the_history_makes_all_young(own: ApiThread, times: Times, wire: Wire) -> None:
    deliver(wire, "slow", 1)
    times.sample()
    times.pass_by(60_000)
    assert own.api().get(PATH)[0]["oldest_age"] == 60_000
    assert own.api()("DELETE", "/api/reset").status == 204
    assert own.api().get(PATH)[0]["oldest_age"] == 0
