"""The history itself: it sees each breach that it is there to see, and no others."""

from __future__ import annotations

import pytest

from tests.torture.history import Book, History, key


@pytest.fixture
def history() -> History:
    return History()


@pytest.fixture
def book(history: History) -> Book:
    history.book("dead")
    return history.book("q", dead="dead")


def published(history: History, count: int, *, confirmed: bool = True) -> list[int]:
    """Messages for queue q."""
    publisher = history.publisher([history.books["q"]])
    numbers = [publisher.next() for _ in range(count)]
    if confirmed:
        publisher.confirmed(numbers)
    return [key(publisher.number, number) for number in numbers]


def test_nothing_wrong(history: History, book: Book) -> None:
    first, second, third = published(history, 3)
    unconfirmed = published(history, 1, confirmed=False)
    consumer = history.consumer()
    for message in (first, second, third):
        book.received(message, redelivered=False, consumer=consumer)
    book.acked([first])
    book.taken([first])
    book.returned(second)
    book.received(second, redelivered=True, consumer=consumer)
    book.received(third, redelivered=True, consumer=history.consumer())
    book.acked([second, third])
    assert unconfirmed[0] in book.states
    verdict = history.verdict()
    assert verdict.breaches == []
    assert verdict.figures["lost"] == 0
    assert verdict.figures["published"] == 4
    assert verdict.figures["redeliveries, flagged"] == 2
    assert history.left == 0


def test_a_confirmed_message_that_never_came(history: History, book: Book) -> None:
    published(history, 2)
    verdict = history.verdict()
    assert verdict.figures["lost"] == 2
    assert "q: 2 confirmed messages are lost: message 1 of publisher 1" in verdict.breaches[0]


def test_a_confirmed_message_that_came_and_was_not_acknowledged_must_come_again(history: History, book: Book) -> None:
    (message,) = published(history, 1)
    book.received(message, redelivered=False, consumer=1)
    assert history.verdict().figures["lost"] == 1


def test_one_queue_of_two_lost_it(history: History) -> None:
    one, two = history.book("one"), history.book("two")
    publisher = history.publisher([one, two])
    message = key(publisher.number, publisher.next())
    publisher.confirmed([1])
    one.received(message, redelivered=False, consumer=1)
    one.acked([message])
    assert "two: 1 confirmed" in history.verdict().breaches[0]


def test_a_message_out_of_nowhere(history: History, book: Book) -> None:
    book.received(key(9, 9), redelivered=False, consumer=1)
    assert "message 9 of publisher 9 came and was never published" in history.verdict().breaches[0]


def test_a_message_that_was_rolled_back(history: History, book: Book) -> None:
    publisher = history.publisher([book])
    message = key(publisher.number, publisher.next())
    publisher.rolled_back([1])
    assert history.verdict().breaches == []
    book.received(message, redelivered=False, consumer=1)
    assert "rolled back" in history.verdict().breaches[0]


def test_a_transient_message_may_be_lost(history: History, book: Book) -> None:
    publisher = history.publisher([book], durable=False)
    publisher.next()
    publisher.confirmed([1])
    assert history.verdict().breaches == []


def test_what_comes_again_says_so(history: History, book: Book) -> None:
    (message,) = published(history, 1)
    book.received(message, redelivered=False, consumer=1)
    book.received(message, redelivered=False, consumer=2)
    book.acked([message])
    verdict = history.verdict()
    assert verdict.figures["redeliveries, unflagged"] == 1
    assert "came again without redelivered" in verdict.breaches[0]


@pytest.mark.parametrize("redelivered", [True, False])
def test_what_was_acknowledged_and_taken_stays_away(history: History, book: Book, redelivered: bool) -> None:
    (message,) = published(history, 1)
    book.received(message, redelivered=False, consumer=1)
    book.acked([message])
    book.received(message, redelivered=True, consumer=1)  # the acknowledgement may have been lost
    assert history.verdict().breaches == []
    book.taken([message])
    book.received(message, redelivered=redelivered, consumer=1)
    assert "after its acknowledgement was taken" in history.verdict().breaches[0]


def test_a_publishers_order(history: History, book: Book) -> None:
    first, second = published(history, 2, confirmed=False)
    book.received(second, redelivered=False, consumer=1)
    book.received(first, redelivered=False, consumer=2)
    assert history.verdict().breaches == [], "two consumers"
    third, fourth = published(history, 2, confirmed=False)
    book.received(fourth, redelivered=False, consumer=1)
    book.received(third, redelivered=False, consumer=1)
    verdict = history.verdict()
    assert verdict.figures["out of order"] == 1
    assert "came behind message 2 of publisher 2" in verdict.breaches[0]


def test_levels_have_orders_of_their_own(history: History, book: Book) -> None:
    first, second = published(history, 2, confirmed=False)
    book.received(second, redelivered=False, consumer=1, level=1)
    book.received(first, redelivered=False, consumer=1, level=0)
    assert history.verdict().breaches == []


def test_the_order_of_a_queue_that_has_one_consumer_at_a_time(history: History) -> None:
    book = history.book("q", sole=True)
    first, second, third = published(history, 3, confirmed=False)
    book.received(first, redelivered=False, consumer=1)
    book.received(third, redelivered=False, consumer=1)
    book.received(first, redelivered=True, consumer=2)
    assert history.verdict().breaches == []
    book.received(second, redelivered=True, consumer=2)  # it may have been under way to the first one: before the third
    assert "came behind message 3" in history.verdict().breaches[0]


def test_dead_letters(history: History, book: Book) -> None:
    dead = history.books["dead"]
    first, second = published(history, 2)
    for message in (first, second):
        book.received(message, redelivered=False, consumer=1)
        book.rejected(message)
    dead.received(first, redelivered=False, consumer=2)
    dead.acked([first])
    assert history.verdict().figures["lost"] == 1, "the second came to neither"
    book.received(second, redelivered=True, consumer=1)  # the rejection was lost with the broker
    book.rejected(second)
    dead.received(second, redelivered=False, consumer=2)
    dead.received(second, redelivered=False, consumer=2)
    dead.acked([second])
    assert history.figures["dead-lettered twice"] == 1
    assert history.figures["breaches"] == 1
    dead.received(first, redelivered=False, consumer=2)
    assert "dead: message 1 of publisher 1 came again" in history.verdict().breaches[1]


def test_a_dead_letter_that_nobody_rejected(history: History, book: Book) -> None:
    (message,) = published(history, 1)
    history.books["dead"].received(message, redelivered=False, consumer=1)
    assert "dead: message 1 of publisher 1 came and was never published" in history.verdict().breaches[0]


def test_what_was_held_back_comes_once_for_each_kill(history: History) -> None:
    book = history.book("q", held_back=True)
    first, second = published(history, 2)
    book.received(second, redelivered=False, consumer=1)
    book.received(first, redelivered=False, consumer=1)
    book.acked([first, second])
    book.taken([first, second])
    history.figures["kills"] += 1
    book.received(first, redelivered=False, consumer=2)
    verdict = history.verdict()
    assert verdict.breaches == []
    assert verdict.figures["released twice"] == 1
    book.received(first, redelivered=False, consumer=2)
    assert "came again without redelivered" in history.verdict().breaches[0]


def test_streams(history: History) -> None:
    stream = history.stream("s")
    publisher = history.publisher([stream])
    messages = [key(publisher.number, publisher.next()) for _ in range(4)]
    publisher.confirmed([1, 2, 3])
    stream.received(messages[0], 0)
    stream.read_whole(messages[:3])
    assert history.verdict().breaches == []
    assert stream.missing() == []
    stream.received(messages[3], 0)
    assert "offset 0 was message 1 of publisher 1, is message 4" in history.verdict().breaches[0]


def test_streams_with_a_hole_a_turn_or_a_copy(history: History) -> None:
    stream = history.stream("s")
    publisher = history.publisher([stream])
    first, second, _ = (key(publisher.number, publisher.next()) for _ in range(3))
    publisher.confirmed([1, 2, 3])
    stream.read_whole([second, first, first])
    text = "\n".join(history.verdict().breaches)
    assert "message 1 of publisher 1 stands behind message 2" in text
    assert "message 1 of publisher 1 stands at 1 and at 2" in text
    assert "s: 1 confirmed messages are lost: message 3" in text
