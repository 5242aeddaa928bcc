"""Confirms and returns, against a naive model and by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from harebell import errors
from harebell.client.core.unconfirmed import FEWEST_RUNS, Batch, Publishes
from harebell.client.messages import Returned
from harebell.protocol.v091 import Content, Properties, encode_content, methods as m
from harebell.protocol.v091.codec import encode_method

METHOD = encode_method(1, m.BasicPublish("x", "k", mandatory=True))
ADDRESS = METHOD[:-2]


class Waiter:
    def __init__(self) -> None:
        self.answers: list[bool] = []
        self.returns: list[Returned] = []
        self.refusals: list[tuple[int, errors.HarebellError]] = []
        self.orphans: list[int] = []

    def settle(self, publish_tag: int, acked: bool) -> None:
        self.answers.append(acked)

    def returned(self, publish_tag: int, returned: Returned) -> None:
        self.returns.append(returned)

    def refused(self, publish_tag: int, error: errors.HarebellError) -> None:
        self.refusals.append((publish_tag, error))

    def orphaned(self, publish_tag: int, reason: errors.HarebellError) -> None:
        self.orphans.append(publish_tag)


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
    assert publishes.returned(ADDRESS, raw, one)
    assert publishes.returned(ADDRESS, raw, two)
    assert (first.returns, routed.returns, second.returns) == ([one], [], [two])
    assert not publishes.returned(ADDRESS, raw, two)


def test_properties_tell_equal_bodies_apart() -> None:
    publishes = Publishes()
    first = publish(publishes, b"a", Properties(headers={"to": 1}))
    second = publish(publishes, b"a", Properties(headers={"to": 2}))
    raw, back = given_back(b"a", Properties(headers={"to": 2}))
    assert publishes.returned(ADDRESS, raw, back)
    assert (first.returns, second.returns) == ([], [back])


def test_properties_that_the_broker_rewrote_do_not_lose_the_return() -> None:
    publishes = Publishes()
    waiter = publish(publishes, b"a", Properties(headers={"BCC": ["q"]}))
    raw, back = given_back(b"a", Properties(headers={}))
    assert publishes.returned(ADDRESS, raw, back)
    assert waiter.returns == [back]


def test_a_settled_publication_is_no_candidate() -> None:
    publishes = Publishes()
    settled, waiting = publish(publishes, b"a"), publish(publishes, b"a")
    publishes.settle(1, False, True)
    raw, back = given_back(b"a")
    assert publishes.returned(ADDRESS, raw, back)
    assert (settled.returns, waiting.returns) == ([], [back])


def test_an_abandoned_publication_takes_its_own_return() -> None:
    publishes = Publishes()
    abandoned, waiting = publish(publishes, b"a"), publish(publishes, b"a")
    publishes.abandon(1)
    raw, back = given_back(b"a")
    assert publishes.returned(ADDRESS, raw, back)
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


def to(exchange: str, key: str = "k") -> bytes:
    return encode_method(1, m.BasicPublish(exchange, key))


def blamed(exchange: str) -> errors.HarebellError:
    return errors.NotFound(f"no exchange '{exchange}' in vhost '/'", 60, 40)


LOST = errors.ConnectionLost("gone")
OF_ANOTHER_CALL = errors.NotFound("no queue 'q' in vhost '/'", 60, 70)
NO_NAME = errors.PreconditionFailed("invalid expiration 'soon'", 60, 40)
OF_THE_CONNECTION = errors.SyntaxError("malformed", 60, 40)


@pytest.mark.parametrize(
    "exchanges, reason, refused",
    [
        (["a", "b", "c"], LOST, None),
        (["a", "b", "c"], OF_ANOTHER_CALL, None),
        (["a", "b", "c"], blamed("b"), 1),
        (["a", "b", "b"], blamed("b"), None),  # one of the two, and nothing says which
        (["a", "b", "a"], blamed("a"), None),
        (["a", "b"], blamed("the broker's own name"), None),
        (["a"], blamed("the broker's own name"), 0),
        (["a", "b"], NO_NAME, None),
        (["a"], NO_NAME, 0),
        (["a"], OF_THE_CONNECTION, None),  # it may be of another channel
        ([], blamed("a"), None),
    ],
)
def test_a_channel_that_ends_tells_each_publication_once(
    exchanges: list[str], reason: errors.HarebellError, refused: int | None
) -> None:
    publishes = Publishes()
    frames = {exchange: to(exchange) for exchange in exchanges}
    waiters = [Waiter() for _ in exchanges]
    for waiter, exchange in zip(waiters, exchanges, strict=True):
        publishes.add(waiter, frames[exchange], b"\0\0", b"", False)
    publishes.end(reason)
    for n, waiter in enumerate(waiters):
        assert [tag for tag, _ in waiter.refusals] == ([n + 1] if n == refused else [])
        assert waiter.orphans == ([] if n == refused else [n + 1])
    assert (publishes.refused, publishes.orphaned) == (refused is not None, len(waiters) - (refused is not None))
    publishes.end(reason)
    assert sum(len(waiter.orphans) + len(waiter.refusals) for waiter in waiters) == len(waiters)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=300), st.sampled_from("abc"))
def test_the_one_at_fault_is_found_however_many_there_were(puts: list[tuple[str, bool]], missing: str) -> None:
    """Against a table of all addresses; what is confirmed is forgotten, so that the runs do not pile up."""
    publishes, frames, waiters = Publishes(), {exchange: to(exchange) for exchange in "abc"}, {}
    for exchange, confirmed in puts:
        waiter = Waiter()
        tag = publishes.add(waiter, frames[exchange], b"\0\0", b"", False)
        waiters[tag] = (exchange, waiter)
        if confirmed:
            publishes.settle(tag, False, True)
            del waiters[tag]
    assert len(publishes._runs) <= max(2 * len(waiters) + 2, FEWEST_RUNS)
    suspects = [tag for tag, (exchange, _) in waiters.items() if exchange == missing] or list(waiters)
    publishes.end(blamed(missing))
    for tag, (_, waiter) in waiters.items():
        assert len(waiter.refusals) == (suspects == [tag])
        assert len(waiter.orphans) == (suspects != [tag])


def test_many_at_once_are_found_too() -> None:
    publishes, waiter = Publishes(), Waiter()
    a, b = to("a"), to("b")
    publishes.add_many(waiter, [a, a], [b"\0\0"] * 2, [b""] * 2, False)
    publishes.add_many(waiter, [a, b, a], [b"\0\0"] * 3, [b""] * 3, False)
    publishes.end(blamed("b"))
    assert [tag for tag, _ in waiter.refusals] == [4]
    assert waiter.orphans == [1, 2, 3, 5]


def test_what_came_back_has_its_end_when_the_channel_ends() -> None:
    publishes = Publishes()
    back, abandoned = publish(publishes, b"a"), publish(publishes, b"b")
    for body in (b"a", b"b"):
        raw, returned = given_back(body)
        assert publishes.returned(ADDRESS, raw, returned)
    assert list(publishes.waiting_for(back)) == [1]
    publishes.abandon(2)
    publishes.end(LOST)
    assert (back.answers, back.orphans, len(back.returns)) == ([True], [], 1)
    assert (abandoned.answers, abandoned.orphans) == ([], [])
    publish(publishes, b"c")
    raw, returned = given_back(b"c")
    assert publishes.returned(ADDRESS, raw, returned)
    publishes.end(blamed("x"))  # it came back: what is blamed is another one
    assert (publishes.refused, publishes.orphaned) == (0, 3)


def test_a_batch_counts_what_was_refused() -> None:
    batch = Batch()
    batch.sent = 5
    batch.numbered(1, 0)
    for tag in range(1, 6):
        batch.settle(tag, tag % 2 == 1)
    _, back = given_back(b"a")
    batch.returned(1, back)
    with pytest.raises(errors.Nacked, match=r"2 of 5 .* 1 of 5 publications reached no queue") as caught:
        batch.raise_refused()
    assert caught.value.publish_tags == (2, 4)
    assert [type(error).__name__ for error in caught.value.failures.values()] == ["Unroutable", "Nacked", "Nacked"]


def test_a_batch_tells_positions() -> None:
    """Publications of others come between its own."""
    batch = Batch()
    batch.numbered(3, 0)  # 3, 4
    batch.numbered(7, 2)  # 7, 8, 9
    batch.sent = 5
    batch.settle(3, True)
    batch.settle(4, False)
    batch.refused(7, blamed("x"))
    batch.orphaned(8, blamed("x"))
    error = batch.error(unanswered=[9], late="late")
    assert isinstance(error, errors.ConfirmTimeout)
    assert isinstance(error, errors.DeadlineExceeded)
    assert (error.publish_tags, error.orphaned) == ((4, 7, 8, 9), (8, 9))
    failures = batch.failures([9])
    assert {position: type(error) for position, error in failures.items()} == {
        1: errors.Nacked, 2: errors.NotFound, 3: errors.PublishOrphaned, 4: errors.ConfirmTimeout,
    }  # fmt: skip
    assert len(failures) == 4
    assert "1 nacked, 2 orphaned, 0 returned, 1 refused" in repr(failures)
    alone = Batch()
    alone.sent = 1
    alone.numbered(1, 0)
    alone.refused(1, blamed("x"))
    with pytest.raises(errors.NotFound):
        alone.raise_refused()


def test_a_batch_that_sets_aside_has_not_failed() -> None:
    batch = Batch(parks=True, parks_nacked=True)
    batch.sent = 2
    batch.settle(1, False)
    batch.orphaned(2, LOST)
    batch.raise_refused()
