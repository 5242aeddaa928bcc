"""Confirms and returns, against a naive model and by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from harebell import errors
from harebell.client.core.unconfirmed import Batch, Publishes
from harebell.client.messages import Returned
from harebell.protocol.v091 import Content, Properties, encode_content

METHOD = b"method frame"


class Waiter:
    def __init__(self) -> None:
        self.answers: list[bool] = []
        self.returns: list[Returned] = []
        self.failures: list[errors.HarebellError] = []

    def settle(self, publish_tag: int, acked: bool) -> None:
        self.answers.append(acked)

    def returned(self, publish_tag: int, returned: Returned) -> None:
        self.returns.append(returned)

    def orphaned(self, publish_tag: int) -> None:
        raise AssertionError("no publication of this test is cut by a loss")

    def fail(self, reason: errors.HarebellError) -> None:
        self.failures.append(reason)


def given_back(body: bytes, properties: Properties | None = None) -> tuple[bytes, Returned]:
    raw = (properties or Properties()).encode()
    content = Content(1, b"", encode_content(1, raw, body, 4096), len(body))
    return raw, Returned(content, 312, "NO_ROUTE", "x", "k")


def publish(publishes: Publishes, body: bytes = b"", properties: Properties | None = None) -> Waiter:
    waiter = Waiter()
    publishes.add(waiter, METHOD, (properties or Properties()).encode(), body, True)
    return waiter


@given(st.integers(0, 30), st.lists(st.tuples(st.integers(0, 35), st.booleans(), st.booleans())))
def test_confirms_settle_what_a_naive_model_settles(count: int, confirms: list[tuple[int, bool, bool]]) -> None:
    publishes = Publishes()
    waiters = [publish(publishes) for _ in range(count)]
    model: dict[int, bool] = {}
    for tag, multiple, acked in confirms:
        covered = [t for t in range(1, count + 1) if ((t <= tag or tag == 0 or tag > count) and multiple) or t == tag]
        for t in covered:
            model.setdefault(t, acked)
        publishes.settle(tag, multiple, acked)
    assert [w.answers for w in waiters] == [[model[t]] if t in model else [] for t in range(1, count + 1)]
    assert set(publishes.waiters) == set(range(1, count + 1)) - set(model)


def test_equal_publications_get_their_returns_in_order() -> None:
    publishes = Publishes()
    first, routed, second = publish(publishes, b"a"), publish(publishes, b"b"), publish(publishes, b"a")
    raw, one = given_back(b"a")
    _, two = given_back(b"a")
    assert publishes.returned(METHOD, raw, one)
    assert publishes.returned(METHOD, raw, two)
    assert (first.returns, routed.returns, second.returns) == ([one], [], [two])
    assert not publishes.returned(METHOD, raw, two)


def test_properties_tell_equal_bodies_apart() -> None:
    publishes = Publishes()
    first = publish(publishes, b"a", Properties(headers={"to": 1}))
    second = publish(publishes, b"a", Properties(headers={"to": 2}))
    raw, back = given_back(b"a", Properties(headers={"to": 2}))
    assert publishes.returned(METHOD, raw, back)
    assert (first.returns, second.returns) == ([], [back])


def test_properties_that_the_broker_rewrote_do_not_lose_the_return() -> None:
    publishes = Publishes()
    waiter = publish(publishes, b"a", Properties(headers={"BCC": ["q"]}))
    raw, back = given_back(b"a", Properties(headers={}))
    assert publishes.returned(METHOD, raw, back)
    assert waiter.returns == [back]


def test_a_settled_publication_is_no_candidate() -> None:
    publishes = Publishes()
    settled, waiting = publish(publishes, b"a"), publish(publishes, b"a")
    publishes.settle(1, False, True)
    raw, back = given_back(b"a")
    assert publishes.returned(METHOD, raw, back)
    assert (settled.returns, waiting.returns) == ([], [back])


def test_an_abandoned_publication_takes_its_own_return() -> None:
    publishes = Publishes()
    abandoned, waiting = publish(publishes, b"a"), publish(publishes, b"a")
    publishes.abandon(1)
    raw, back = given_back(b"a")
    assert publishes.returned(METHOD, raw, back)
    assert (abandoned.returns, waiting.returns) == ([], [])
    publishes.settle(2, True, True)
    assert (abandoned.answers, waiting.answers) == ([], [True])


def test_candidates_do_not_pile_up() -> None:
    publishes = Publishes()
    for tag in range(1, 1001):
        publish(publishes, b"a")
        publishes.settle(tag, False, True)
    assert len(publishes._mandatory) <= 1
    assert not publishes.waiters


def test_a_close_tells_each_waiter_once() -> None:
    publishes = Publishes()
    batch, single = Waiter(), Waiter()
    for waiter in (batch, batch, single):
        publishes.add(waiter, METHOD, b"\0\0", b"", False)
    publishes.fail(errors.ConnectionLost("gone"))
    assert (len(batch.failures), len(single.failures)) == (1, 1)


def test_a_batch_counts_what_was_refused() -> None:
    batch = Batch()
    batch.sent = 5
    for tag in range(1, 6):
        batch.settle(tag, tag % 2 == 1)
    _, back = given_back(b"a")
    batch.returned(1, back)
    with pytest.raises(errors.Nacked, match=r"2 of 5 .* 1 of 5 publications reached no queue") as caught:
        batch.raise_refused()
    assert caught.value.publish_tags == (2, 4)
