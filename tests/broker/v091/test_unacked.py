"""Deliveries that return to their queue in several steps: whatever returns them, newer messages come after them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from harebell.broker.connections import base
from harebell.broker.queues.settling import DELIVERIES_PER_STEP
from harebell.broker.v091 import unacked
from harebell.broker.v091.unacked import Unacked
from harebell.errors import PreconditionFailed
from harebell.protocol.v091 import methods as m
from tests.broker.kit import Client, NodeKit, cut_finely
from tests.fixtures.profiles import scaled

BODIES = [b"%d" % number for number in range(6)]
NEW = b"new"
TIMEOUT = 1000


def nack(kit: NodeKit, client: Client) -> None:
    client.send(1, m.BasicNack(0, multiple=True, requeue=True))


def nack_up_to_the_last(kit: NodeKit, client: Client) -> None:
    client.send(1, m.BasicNack(len(BODIES), multiple=True, requeue=True))


def recover(kit: NodeKit, client: Client) -> None:
    client.send(1, m.BasicRecover(requeue=True))


def redeliver(kit: NodeKit, client: Client) -> None:
    client.send(1, m.BasicRecover(requeue=False))


def close_the_channel(kit: NodeKit, client: Client) -> None:
    client.send(1, m.ChannelClose(200, "bye", 0, 0))


def leave(kit: NodeKit, client: Client) -> None:
    client.connection.lost()
    kit.clients.remove(client)


def commit(kit: NodeKit, client: Client) -> None:
    client.send(1, m.TxSelect())
    nack(kit, client)
    for _ in kit_calls(kit):
        pass
    client.send(1, m.TxCommit())


def run_out_of_time(kit: NodeKit, client: Client) -> None:
    kit.pass_time(TIMEOUT // 2)  # so that the node has seen the deliveries
    kit.stopwatch.step = 1.0
    kit.clock.now += TIMEOUT
    kit.node.run_timers()


WAYS: list[Callable[[NodeKit, Client], None]] = [
    nack,
    nack_up_to_the_last,
    recover,
    redeliver,
    close_the_channel,
    leave,
    commit,
    run_out_of_time,
]


def got(client: Client) -> None:
    for _ in BODIES:
        client.send(1, m.BasicGet("q"))


def consumed(client: Client) -> None:
    client.send(1, m.BasicQos(0, len(BODIES)))
    client.send(1, m.BasicConsume("q", "c"))


def consumed_and_cancelled(client: Client) -> None:
    consumed(client)
    client.send(1, m.BasicCancel("c"))


def kit_calls(kit: NodeKit) -> Iterator[None]:
    """Run what the loop would run, one call at a time."""
    while not kit.calls.empty():
        kit.calls.get()()
        yield


@pytest.mark.repeats
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("take", [got, consumed, consumed_and_cancelled])
@pytest.mark.parametrize("after", [0, 3, 7, 10])
def test_newer_messages_do_not_overtake(
    kit: NodeKit,
    monkeypatch: pytest.MonkeyPatch,
    way: Callable[[NodeKit, Client], None],
    take: Callable[[Client], None],
    after: int,
) -> None:
    holder, other, third = kit.client(), kit.client(), kit.client()
    holder.declare(x_consumer_timeout=TIMEOUT)
    for body in BODIES:
        holder.publish("q", body)
    take(holder)
    holder.events.clear()
    other.send(1, m.BasicConsume("q", "o", no_ack=True))
    cut_finely(monkeypatch)
    monkeypatch.setattr(base, "PART", 1 << 16)  # a publication is read at once
    if way is not run_out_of_time:
        kit.stopwatch.step = 1.0
    way(kit, holder)
    steps = kit_calls(kit)
    for _, _ in zip(range(after), steps, strict=False):
        pass
    third.publish("q", NEW)
    for _ in steps:
        pass
    shares = []
    for client in (holder, other):
        client.receive()
        shares.append([body for _, _, body in client.deliveries()])
    assert sorted(shares[0] + shares[1]) == [*BODIES, NEW]
    for share in shares:
        in_order = sorted(share)
        assert share in (in_order, in_order[-1:] + in_order[:-1])  # the new one may have come before the first return
    if take is not consumed or way not in (nack, nack_up_to_the_last, recover, redeliver, commit):
        assert shares[0] == []  # else a consumer is left to share them


def test_rejected_deliveries_are_dead_lettered_a_few_at_a_time(kit: NodeKit, client: Client) -> None:
    client.declare("dead")
    client.declare("q", x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    for number in range(600):
        client.publish("q", b"%d" % number)
    client.send(1, m.BasicConsume("q", "c"))
    other = kit.client()
    kit.stopwatch.step = 1.0
    client.send(1, m.BasicNack(0, multiple=True, requeue=False))
    counts = []
    while not kit.node.batch.slices.idle:
        counts.append(other.count("dead"))
        kit.node.batch.slices._turn()
    kit.stopwatch.step = 0.0
    assert len(set(counts)) > 600 // 16
    assert other.count("dead") == 600
    assert [message.body for _ in range(600) if (message := other.get("dead")) is not None] == [
        b"%d" % number for number in range(600)
    ]


def in_transaction(kit: NodeKit, client: Client, count: int) -> None:
    """Deliver messages to the client, which acknowledges each in a transaction."""
    client.declare()
    for number in range(count):
        client.publish("q", b"%d" % number)
    client.call(m.TxSelect(), m.TxSelectOk)
    client.send(1, m.BasicConsume("q", "c"))
    assert len(client.deliveries()) == count
    for tag in [*range(1, count, 2), *range(2, count + 1, 2)]:
        client.send(1, m.BasicAck(tag))
    client.events.clear()


@pytest.mark.parametrize("step", [0.0, 1.0], ids=["at once", "in slices"])
def test_a_rollback_of_many_acknowledgements(kit: NodeKit, client: Client, step: float) -> None:
    other = kit.client()
    in_transaction(kit, client, 1200)
    kit.stopwatch.step = step
    client.send(1, m.TxRollback())
    assert bool(client.take(m.TxRollbackOk)) == (not step)
    other.publish("q", b"new")
    kit.node.batch.slices.finish()
    client.receive()
    assert bool(client.take(m.TxRollbackOk)) == bool(step)
    kit.stopwatch.step = 0.0
    assert client.deliveries() == [(1201, False, b"new")]
    client.send(1, m.BasicAck(1200, multiple=True))
    client.call(m.TxCommit(), m.TxCommitOk)
    client.send(1, m.ChannelClose(200, "bye", 0, 0))
    assert other.count() == 1


@pytest.mark.parametrize("rolled_back", [False, True])
@pytest.mark.parametrize("end", [close_the_channel, leave])
def test_the_end_of_a_channel_with_many_acknowledgements_in_a_transaction(
    kit: NodeKit, client: Client, end: Callable[[NodeKit, Client], None], rolled_back: bool
) -> None:
    other = kit.client()
    in_transaction(kit, client, 1200)
    kit.stopwatch.step = 1.0
    if rolled_back:
        client.send(1, m.TxRollback())
    end(kit, client)
    assert other.count() < 1200, "it takes more slices"
    kit.node.batch.slices.finish()
    kit.stopwatch.step = 0.0
    got = [message.body for _ in range(1200) if (message := other.get()) is not None]
    assert got == [b"%d" % number for number in range(1200)]


def test_a_channel_that_the_broker_closes_while_it_rolls_back(kit: NodeKit, client: Client) -> None:
    in_transaction(kit, client, 1200)
    kit.stopwatch.step = 1.0
    client.send(1, m.TxRollback())
    client.connection.refuse_channel(client.connection.channels[1], PreconditionFailed("late"))
    kit.node.batch.slices.finish()
    kit.stopwatch.step = 0.0
    client.receive()
    assert not client.take(m.TxRollbackOk)
    assert len(client.take(m.ChannelClose)) == 1
    assert kit.client().count() == 1200


STEPS = st.lists(
    st.tuples(st.sampled_from(["deliver", "one", "up to", "all", "shares", "roll back"]), st.integers(0, 60)),
    max_size=60,
)


@pytest.mark.pure
@settings(max_examples=scaled(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, share=st.sampled_from([1, 8, DELIVERIES_PER_STEP]))
def test_a_tag_and_multiple_mean_all_that_are_outstanding_up_to_it(
    monkeypatch: pytest.MonkeyPatch, steps: list[tuple[str, int]], share: int
) -> None:
    monkeypatch.setattr(unacked, "DELIVERIES_PER_STEP", share)
    table, outstanding, last = Unacked(None), list[int](), 0  # type: ignore[arg-type]
    settled: list[dict[int, object]] = []

    def deliver() -> None:
        nonlocal last
        last += 1
        table.entries[last] = (None, None, last, None)  # type: ignore[assignment]
        outstanding.append(last)

    for step, number in steps:
        tag = outstanding[number % len(outstanding)] if outstanding else 0
        if step == "deliver":
            for _ in range(number):
                deliver()
            continue
        if step == "roll back":
            table.restore(iter(list(settled)), sum(map(len, settled)))  # type: ignore[arg-type]
            outstanding = sorted([*outstanding, *(each for taken in settled for each in taken)])
            assert len(table) == len(outstanding)
            for count, _ in enumerate(table.restoring()):
                if number % 2 and count < number:
                    deliver()
                    assert len(table) == len(outstanding)
            settled.clear()
        elif not outstanding:
            with pytest.raises(PreconditionFailed):
                table.take(last or 1, True)
        elif step == "one":
            settled.append(dict(table.take(tag, False)))
            outstanding.remove(tag)
        else:
            upto = outstanding[-1] if step == "all" else tag
            assert table.tags(tag, True) == [each for each in outstanding if each <= tag]
            if step == "shares":
                settled += [dict(share) for share in table.shares(tag)]
            else:
                settled.append(dict(table.take(0 if step == "all" else tag, True)))
            outstanding = [each for each in outstanding if each > upto]
        assert list(table.entries) == outstanding
        assert not outstanding or table.first <= outstanding[0]


def test_a_few_of_many_are_acknowledged_at_once(client: Client) -> None:
    """Only a settlement of more than one share is done in shares, however many are outstanding."""
    client.declare()
    for number in range(3 * DELIVERIES_PER_STEP):
        client.publish("q", b"%d" % number)
    client.send(1, m.BasicConsume("q", "c"))
    unacked = client.connection.channels[1].unacked
    assert unacked.is_long(True, 3 * DELIVERIES_PER_STEP)
    assert unacked.is_long(True)
    for tag in range(10, DELIVERIES_PER_STEP, 10):
        assert not unacked.is_long(True, tag)
        client.send(1, m.BasicAck(tag, multiple=True))
        assert next(iter(unacked.entries)) == tag + 1
    client.send(1, m.BasicAck(3 * DELIVERIES_PER_STEP, multiple=True))
    assert len(unacked) == 0
    assert unacked.first == 3 * DELIVERIES_PER_STEP + 1
