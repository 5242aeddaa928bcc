"""A task of a write without a broker: losses, refusals, returns and waits, on a clock of the test's own."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

import pytest

from harebell import errors
from harebell.spark.options import sink_options
from harebell.spark.options.address import Address
from harebell.spark.sink.publisher import TaskPublisher, publish_in_transaction
from harebell.spark.sink.row_encoding import Part


class Returned:
    reply_code, reply_text = 312, "NO_ROUTE"


class Bulk:
    """Answers as told: a letter a message: a(cked), n(acked), r(eturned and acked), ?(no answer)."""

    def __init__(self, answers: str, error: Exception | None) -> None:
        self.answers = answers
        self.error = error
        self.settled = sum(answer != "?" for answer in answers)
        self.returns = {place: Returned() for place, answer in enumerate(answers) if answer == "r"}

    @property
    def acked(self) -> int:
        return self.answers.count("a") + self.answers.count("r")

    @property
    def nacked(self) -> list[int]:
        return [place for place, answer in enumerate(self.answers) if answer == "n"]

    @property
    def unanswered(self) -> list[int]:
        return [place for place, answer in enumerate(self.answers) if answer == "?"]

    def wait(self, *, timeout: float) -> None:
        if self.error is not None:
            if isinstance(self.error, errors.DeadlineExceeded):
                Broker.now += timeout
            raise self.error


class Broker:
    """Plays a script: for each part that is published its answers, with the error that waiting for them raises.

    What is not in the script is confirmed. An exception in place of answers is what publishing itself raises.
    """

    now = 0.0

    def __init__(self, *script: str | Exception | tuple[str, Exception], blocked: str | None = None) -> None:
        Broker.now = 0.0
        self.script = deque(script)
        self.taken: list[tuple[str, str, bool]] = []  # address and mandatory of what was published
        self.bodies: list[bytes] = []
        self.opened = self.closed = 0
        self.blocked = blocked
        self.ended: Exception = LOST
        self.returned = 0
        self.sleeps: list[float] = []

    def connect(self, url: Address, timeout: float) -> Any:
        self.opened += 1
        return self

    def confirm_select(self) -> None:
        pass

    begin = confirm_select

    def publish_part(self, part: Part, mandatory: bool, timeout: float) -> Bulk:
        answers = self.script.popleft() if self.script else "a" * len(part)
        if isinstance(answers, Exception):
            Broker.now += timeout if isinstance(answers, errors.DeadlineExceeded) else 0
            raise answers
        self.taken.append((*part.address(0), mandatory))
        self.bodies += part.bodies
        return Bulk(answers, None) if isinstance(answers, str) else Bulk(*answers)

    def commit(self, timeout: float) -> int:
        if self.script:
            answer = self.script.popleft()
            assert isinstance(answer, Exception)
            raise answer
        return self.returned

    def close(self) -> None:
        self.closed += 1

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        Broker.now += seconds


LOST = errors.ConnectionLost("cut")
LATE = errors.DeadlineExceeded("late")


def part(text: str, alternate: str | None = None) -> Part:
    """A message for each letter."""
    return Part([letter.encode() for letter in text], [b"\0\0"] * len(text), "ex", "key", alternate)


def run(broker: Broker, parts: Sequence[Part], **options: str) -> Counter[str]:
    checked = sink_options({"exchange": "ex", "routingKey": "key", **options})
    publisher = TaskPublisher(checked, broker.connect, lambda: Broker.now, broker.sleep)
    try:
        publisher.publish(parts)
    finally:
        assert broker.closed == broker.opened or not broker.opened
    return publisher.counts


def test_all_is_confirmed() -> None:
    broker = Broker()
    assert run(broker, [part("ab"), part("c")]) == {"confirmed": 3}
    assert (broker.bodies, broker.opened) == ([b"a", b"b", b"c"], 1)
    assert broker.taken[0] == ("ex", "key", True)


def test_without_mandatory() -> None:
    broker = Broker()
    run(broker, [part("a")], mandatory="false")
    assert broker.taken == [("ex", "key", False)]


@pytest.mark.parametrize("first, second", [(("a?", LOST), ("??", LOST)), ("a?", "??")], ids=["raised", "asked for"])
def test_only_what_has_no_answer_is_published_again_in_order(first: Any, second: Any) -> None:
    broker = Broker("aa", first, second)
    assert run(broker, [part("ab"), part("cd"), part("ef")]) == {"confirmed": 6, "repeated": 3}
    assert broker.bodies == [b"a", b"b", b"c", b"d", b"e", b"f", b"d", b"e", b"f"]
    assert broker.opened == 2


def test_a_loss_while_writing_repeats_what_is_under_way_first() -> None:
    broker = Broker("??", LOST)
    assert run(broker, [part("ab"), part("cd")]) == {"confirmed": 4, "repeated": 2}
    assert broker.bodies == [b"a", b"b", b"a", b"b", b"c", b"d"]


def test_a_broker_that_stays_away_fails_the_task() -> None:
    broker = Broker(*[LOST] * 100)
    with pytest.raises(errors.ConnectionLost):
        run(broker, [part("a")], retryTimeout="10")
    assert 7 <= sum(broker.sleeps) <= 10
    assert broker.sleeps[:3] == [0.1, 0.2, 0.4]


def test_progress_gives_it_all_the_time_again() -> None:
    script = [LOST] * 6 + [("a?", LOST)] + [LOST] * 6
    assert run(Broker(*script), [part("ab")], retryTimeout="10") == {"confirmed": 2, "repeated": 1}


@pytest.mark.parametrize(
    "error", [errors.NotFound("no exchange"), errors.AccessRefused("write"), errors.PreconditionFailed("too large")]
)
def test_what_trying_again_does_not_cure_fails_at_once(error: errors.AmqpError) -> None:
    closed = errors.ChannelClosed("channel 1 is closed")
    closed.__cause__ = error
    for raised in (error, closed):
        broker = Broker("?", raised)
        with pytest.raises(type(error)):
            run(broker, [part("a"), part("b")])
        assert broker.opened == 1
        with pytest.raises(type(error)):
            run(Broker(("?", raised)), [part("a")])
        broker = Broker("?")
        broker.ended = raised
        with pytest.raises(type(error)):
            run(broker, [part("a")])


def test_a_return_fails_the_task() -> None:
    with pytest.raises(errors.Unroutable, match=r"2 of 3 messages .* exchange 'ex' with routing key 'key' \(312"):
        run(Broker("rar"), [part("abc")])


def test_returns_are_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    assert run(Broker("rar"), [part("abc")], onUnroutable="drop") == {"confirmed": 1, "unroutable dropped": 2}
    assert "dropped: 2 of 3 messages reached no queue" in caplog.text


def test_returns_go_elsewhere() -> None:
    broker = Broker("rar")
    options = {"onUnroutable": "alternate", "alternateExchange": "unused"}
    assert run(broker, [part("abc", "lost")], **options) == {"confirmed": 3, "unroutable diverted": 2}
    assert broker.taken == [("ex", "key", True), ("lost", "key", True)]
    assert broker.bodies == [b"a", b"b", b"c", b"a", b"c"]
    with pytest.raises(errors.Unroutable, match="which is where alternate messages go"):
        run(Broker("r", "r"), [part("a", "lost")], **options)
    with pytest.raises(errors.Nacked):
        run(Broker("r", "n"), [part("a", "lost")], **options)


def test_what_came_back_before_a_loss_is_counted_once() -> None:
    bulk = ("a?", LOST)
    broker = Broker(bulk, "r")
    publish = broker.publish_part

    def came_back_early(part: Part, mandatory: bool, timeout: float) -> Bulk:
        made = publish(part, mandatory, timeout)
        if "?" in made.answers:
            made.returns = {1: Returned()}
        return made

    broker.publish_part = came_back_early  # type: ignore[method-assign]
    expected = {"confirmed": 1, "unroutable dropped": 1, "repeated": 1}
    assert run(broker, [part("ab")], onUnroutable="drop") == expected


def test_a_nack_fails_the_task() -> None:
    with pytest.raises(errors.Nacked, match=r"refused 1 of 2 messages, the first to exchange 'ex'"):
        run(Broker("an"), [part("ab")])


def test_nacked_messages_are_dropped_or_go_elsewhere(caplog: pytest.LogCaptureFixture) -> None:
    assert run(Broker("ann"), [part("abc")], onNack="drop") == {"confirmed": 1, "nacked dropped": 2}
    assert "dropped: the broker refused 2 of 3" in caplog.text
    broker = Broker("an")
    options = {"onNack": "alternate", "alternateExchange": "unused"}
    assert run(broker, [part("ab", "lost")], **options) == {"confirmed": 2, "nacked diverted": 1}
    assert broker.taken[1] == ("lost", "key", True)


def test_nacked_messages_are_tried_again_for_as_long_as_the_broker_may_be_away() -> None:
    assert run(Broker("an", "n"), [part("ab")], onNack="retry") == {"confirmed": 2, "nacked retried": 2}
    broker = Broker(*["n"] * 100)
    with pytest.raises(errors.Nacked, match="it did so for 10 s"):
        run(broker, [part("a")], onNack="retry", retryTimeout="10")
    assert sum(broker.sleeps) >= 10


def test_the_window_bounds_what_is_under_way() -> None:
    most = 0
    seen: list[int] = []

    class Watching(Broker):
        def publish_part(self, part: Part, mandatory: bool, timeout: float) -> Bulk:
            nonlocal most
            most = max(most, sum(len(p) for p, _ in publisher._under_way) + len(part))
            seen.append(len(part))
            return super().publish_part(part, mandatory, timeout)

    broker = Watching()
    publisher = TaskPublisher(sink_options({"exchange": "", "routingKey": "k", "window": "6"}), broker.connect)
    publisher.publish([part("abc")] * 10)
    assert (most, sum(seen)) == (6, 30)
    publisher.publish([part("abcdefgh")])  # one that is larger than the window goes alone
    assert sum(seen) == 38


@pytest.mark.parametrize("script", [[LATE] * 1000, [("?", LATE)]], ids=["not taken", "not answered"])
def test_a_broker_that_takes_nothing_has_its_time_and_no_more(script: list[Any]) -> None:
    broker = Broker(*script, blocked="low on memory")
    with pytest.raises(errors.DeadlineExceeded, match=r"taken no messages for 120 s .*blockedTimeout.*: low on memory"):
        run(broker, [part("a")], blockedTimeout="120")
    assert 120 <= Broker.now < 121
    assert broker.opened == 1


def test_a_broker_that_does_not_answer_is_connected_to_again() -> None:
    broker = Broker(("?", LATE))
    assert run(broker, [part("a")], timeout="5") == {"confirmed": 1, "repeated": 1}
    assert broker.opened == 2
    assert 5 <= Broker.now < 6


def test_the_rate_is_kept() -> None:
    run(Broker(), [part("ab")] * 10, maxRate="4")
    assert Broker.now == pytest.approx(5)


# -- transactions ---------------------------------------------------------------------------------------------------


def in_transaction(broker: Broker, parts: Sequence[Part], **options: str) -> Counter[str]:
    given = {"exchange": "ex", "routingKey": "key", "transactions": "partition", **options}
    return publish_in_transaction(sink_options(given), parts, broker.connect, lambda: Broker.now)


def test_a_transaction_is_counted_once_it_is_committed() -> None:
    broker = Broker()
    assert in_transaction(broker, [part("ab"), part("c")]) == {"confirmed": 3}
    assert broker.closed == 1


def test_a_transaction_that_is_cut_is_not_tried_again() -> None:
    with pytest.raises(errors.TransactionLost, match="nothing of what this task has published took effect"):
        in_transaction(Broker("aa", LOST), [part("ab"), part("c")])
    with pytest.raises(errors.TransactionLost, match="whole, or not at all"):
        in_transaction(Broker("aa", LOST), [part("ab")])
    with pytest.raises(errors.NotFound):
        in_transaction(Broker("aa", errors.NotFound("exchange")), [part("ab")])


def test_returns_of_a_transaction() -> None:
    made = Broker()
    made.returned = 2
    with pytest.raises(errors.Unroutable, match="2 of 3 messages reached no queue; the others have taken"):
        in_transaction(made, [part("abc")])
    made = Broker()
    made.returned = 2
    assert in_transaction(made, [part("abc")], onUnroutable="drop") == {"confirmed": 1, "unroutable dropped": 2}


def test_a_blocked_transaction_waits_for_as_long_as_it_may() -> None:
    assert in_transaction(Broker(*[LATE] * 200, blocked="low on disk"), [part("a")]) == {"confirmed": 1}
    assert Broker.now == 100
    for seconds in (5, 300):  # more or fewer than `timeout`
        with pytest.raises(
            errors.TransactionLost, match=rf"nothing .* no messages for {seconds} s .*blockedTimeout.*: low on disk"
        ):
            in_transaction(Broker(*[LATE] * 1000, blocked="low on disk"), [part("a")], blockedTimeout=str(seconds))
        assert Broker.now == seconds
    with pytest.raises(errors.TransactionLost, match="not answered for 30 s"):
        in_transaction(Broker(*[LATE] * 1000), [part("a")], blockedTimeout="5")


def test_a_block_that_is_over_gives_the_broker_its_time_again() -> None:
    class Unblocked(Broker):
        def publish_part(self, part: Part, mandatory: bool, timeout: float) -> Bulk:
            self.blocked = "low on disk" if Broker.now < 100 else None
            return super().publish_part(part, mandatory, timeout)

    assert in_transaction(Unblocked(*[LATE] * 250, blocked="low on disk"), [part("a")]) == {"confirmed": 1}
    assert run(Unblocked(*[LATE] * 250, blocked="low on disk"), [part("a")]) == {"confirmed": 1}


def test_a_commit_that_full_queues_refuse() -> None:
    refused = errors.PreconditionFailed("partial tx completion")
    with pytest.raises(errors.Nacked, match=r"some of the 3 messages .*partial tx.*The others have taken effect"):
        in_transaction(Broker("aaa", refused), [part("abc")])
