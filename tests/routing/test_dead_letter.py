from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, strategies as st

from harebell.routing.dead_letter import (
    Reason,
    dead_letter_headers,
    dead_letter_keys,
    deaths,
    without_cycles,
)


def die(
    headers: dict[str, object],
    queue: str = "work",
    reason: Reason = "rejected",
    *,
    exchange: str = "in",
    routing_keys: tuple[str, ...] = ("k",),
    time: int = 1000,
    expiration: str | None = None,
    bcc: tuple[str, ...] = (),
    again: bool = True,
) -> dict[str, object]:
    return dead_letter_headers(
        headers,
        queue=queue,
        reason=reason,
        exchange=exchange,
        routing_keys=routing_keys,
        time=time,
        expiration=expiration,
        bcc=bcc,
        died_before=again,
    )


def test_a_first_death() -> None:
    sent = {"mine": 1, "CC": ["c"], "BCC": ["b"]}
    after = die(sent, routing_keys=("k", "c", "b"), bcc=("b",), expiration="60000", again=False)
    assert after == {
        "mine": 1,
        "CC": ["c"],
        "x-death": [
            {
                "original-expiration": "60000",
                "count": 1,
                "reason": "rejected",
                "queue": "work",
                "time": datetime(1970, 1, 1, 0, 16, 40, tzinfo=UTC),
                "exchange": "in",
                "routing-keys": ["k", "c"],
            }
        ],
        "x-first-death-reason": "rejected",
        "x-first-death-queue": "work",
        "x-first-death-exchange": "in",
        "x-last-death-reason": "rejected",
        "x-last-death-queue": "work",
        "x-last-death-exchange": "in",
    }
    assert "BCC" in sent  # what came in is left alone


def test_a_bcc_hides_itself_only() -> None:
    (death,) = deaths(die({}, routing_keys=("k", "c", "k", "b"), bcc=("k", "b", "elsewhere"), again=False))
    assert death.routing_keys == ("c", "k")


def test_the_order_of_fields() -> None:
    entries = die({}, expiration="1", again=False)["x-death"]
    assert isinstance(entries, list)
    assert list(entries[0]) == ["original-expiration", "count", "reason", "queue", "time", "exchange", "routing-keys"]
    plain = die({}, again=False)["x-death"]
    assert isinstance(plain, list)
    assert list(plain[0]) == ["count", "reason", "queue", "time", "exchange", "routing-keys"]


def test_dying_again_counts_and_keeps_the_first_time() -> None:
    once = die({}, time=1000, routing_keys=("k",), expiration="5", again=False)
    twice = die(once, time=2000, exchange="retry", routing_keys=("other",))
    (death,) = deaths(twice)
    assert (death.count, death.time, death.exchange, death.routing_keys) == (2, 1000, "in", ("k",))
    assert death.original_expiration == "5"
    assert twice["x-first-death-exchange"] == "in"
    assert twice["x-last-death-exchange"] == "retry"


def test_another_queue_or_reason_is_another_death_and_the_newest_comes_first() -> None:
    headers = die({}, "work", "rejected", again=False)
    headers = die(headers, "wait", "expired", exchange="retry")
    headers = die(headers, "work", "maxlen")
    headers = die(headers, "wait", "expired", exchange="retry")
    assert [(d.queue, d.reason, d.count) for d in deaths(headers)] == [
        ("wait", "expired", 2),
        ("work", "maxlen", 1),
        ("work", "rejected", 1),
    ]
    assert headers["x-first-death-queue"] == "work"
    assert headers["x-last-death-queue"] == "wait"
    assert headers["x-last-death-reason"] == "expired"


def test_what_a_publisher_sends_as_history_is_replaced() -> None:
    forged = die({}, "work", "rejected", again=False) | {"x-first-death-queue": "elsewhere"}
    after = die(forged, "work", "rejected", time=5, again=False)
    (death,) = deaths(after)
    assert (death.count, death.time) == (1, 5)
    assert after["x-first-death-queue"] == "work"


@pytest.mark.parametrize(
    "value",
    [
        None,
        "rejected",
        {},
        [1],
        [{"queue": "work", "reason": "rejected"}],
        [{"queue": 1, "reason": "rejected", "exchange": ""}],
        [{"queue": "work", "reason": "rejected", "exchange": "", "count": 1, "time": 5, "routing-keys": []}],
    ],
)
def test_a_history_in_another_form_is_passed_over(value: object) -> None:
    assert deaths({"x-death": value}) == ()
    (death,) = deaths(die({"x-death": value}))
    assert death.count == 1


def test_keys() -> None:
    assert dead_letter_keys(None, ("k", "cc", "bcc")) == ("k", "cc", "bcc")
    assert dead_letter_keys("dead", ("k", "cc")) == ("dead",)
    assert dead_letter_keys("", ("k", "cc")) == ("",)  # set to the empty key is not the same as not set


def test_an_automatic_cycle_is_cut() -> None:
    headers = die({}, "a", "expired", again=False)
    assert without_cycles("expired", headers, ("a", "b")) == ("b",)  # straight back to where it died
    headers = die(headers, "b", "expired")
    assert without_cycles("expired", headers, ("a", "b", "c")) == ("c",)


def test_a_rejection_goes_anywhere() -> None:
    headers = die({}, "a", "rejected", again=False)
    assert without_cycles("rejected", headers, ("a",)) == ("a",)


def test_a_rejection_on_the_way_breaks_the_cycle() -> None:
    headers = die({}, "work", "rejected", again=False)
    headers = die(headers, "wait", "expired")
    assert without_cycles("expired", headers, ("work", "wait")) == ("work",)  # the retry loop that everybody builds


def test_an_older_rejection_does_not_excuse_a_newer_cycle() -> None:
    headers = die({}, "other", "rejected", again=False)
    headers = die(headers, "a", "expired")
    headers = die(headers, "b", "maxlen")
    assert without_cycles("maxlen", headers, ("a", "b", "other", "new")) == ("other", "new")


queues = st.sampled_from(["a", "b", "c"])
reasons: st.SearchStrategy[Reason] = st.sampled_from(["rejected", "expired", "maxlen", "delivery_limit"])


@given(st.lists(st.tuples(queues, reasons), min_size=1, max_size=12))
def test_a_history_is_a_count_of_what_happened_newest_first(happened: list[tuple[str, Reason]]) -> None:
    headers: dict[str, object] = {"mine": "kept"}
    for time, (queue, reason) in enumerate(happened):
        headers = die(headers, queue, reason, exchange=f"to {queue}", time=time, again=time > 0)
    newest_first = list(dict.fromkeys(reversed(happened)))
    history = deaths(headers)
    assert [(death.queue, death.reason) for death in history] == newest_first
    for death in history:
        times = [time for time, pair in enumerate(happened) if pair == (death.queue, death.reason)]
        assert (death.count, death.time) == (len(times), times[0])
    assert headers["mine"] == "kept"
    assert (headers["x-first-death-queue"], headers["x-first-death-reason"]) == happened[0]
    assert (headers["x-last-death-queue"], headers["x-last-death-reason"]) == happened[-1]
    assert [death.table() for death in history] == headers["x-death"]


@given(st.lists(st.tuples(queues, reasons), min_size=1, max_size=8), queues)
def test_a_cycle_is_a_return_without_a_rejection(happened: list[tuple[str, Reason]], target: str) -> None:
    headers: dict[str, object] = {}
    for time, (queue, reason) in enumerate(happened):
        headers = die(headers, queue, reason, again=time > 0)
    last = happened[-1][1]
    pairs = list(dict.fromkeys(reversed(happened)))
    names = [queue for queue, _ in pairs]
    segment = pairs[: names.index(target) + 1] if target in names else []
    cycle = bool(segment) and all(reason != "rejected" for _, reason in segment)
    allowed = without_cycles(last, headers, (target,))
    assert allowed == (() if cycle and last != "rejected" else (target,))
