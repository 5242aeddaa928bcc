"""What permissions refuse is noted, and a widened pattern allows that and little more."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from harebell.broker.auth.access import Access
from harebell.broker.auth.refusals import MOST, Refusal, Refusals, widened
from harebell.broker.auth.users import Users, found, make_user
from harebell.errors import AccessRefused
from harebell.routing import Router, to_queue
from harebell.routing.definitions import Permission, TopicPermission


def test_each_refused_act_is_noted_with_what_it_lacked() -> None:
    users, router = Users(), Router()
    users.put(make_user("ann", "x"))
    users.set_permission(Permission("/", "ann", "^mine", "^mine|^amq.topic$", ""))
    users.set_topic_permission(TopicPermission("/", "ann", "amq.topic", "^a", "^a"))
    access = Access(users, "ann", "/", router)
    router.add_queue("mine")
    acts: tuple[Callable[[], None], ...] = (
        lambda: access.declare_queue("other", {}, new=True, server_named=False),
        lambda: access.read_queue("consume", "mine"),
        lambda: access.publish("", "mine"),
        lambda: access.publish("amq.topic", "b"),
        lambda: access.bind("bind", "amq.topic", to_queue("mine"), "a"),
        lambda: access.read_queue("consume", "mine"),
    )
    for act in acts:
        with pytest.raises(AccessRefused):
            act()
    access.publish("amq.topic", "a")
    assert not access.sees_queue("mine")  # a list leaves it out; nobody was refused
    assert [(it, times.count) for it, times in users.refusals] == [
        (Refusal("ann", "/", "declare-queue", "configure", "queue", "other"), 1),
        (Refusal("ann", "/", "publish", "write", "exchange", "amq.default"), 1),
        (Refusal("ann", "/", "publish", "write", "topic", "b", "amq.topic"), 1),
        (Refusal("ann", "/", "bind", "read", "exchange", "amq.topic"), 1),
        (Refusal("ann", "/", "consume", "read", "queue", "mine"), 2),
    ]


def test_a_name_that_nothing_can_have_is_not_kept() -> None:
    users = Users()
    users.put(make_user("ann", "x"))
    users.set_permission(Permission("/", "ann", ".*", "^$", ".*"))
    access = Access(users, "ann", "/", Router())
    for size in (255, 256, 100_000):
        with pytest.raises(AccessRefused):
            access.declare_queue("q", {"x-dead-letter-exchange": "x" * size}, new=True, server_named=False)
    assert [len(it.name) for it, _ in users.refusals] == [255]


def test_the_latest_are_kept() -> None:
    now = 5.0
    refusals = Refusals(lambda: now)
    for number in range(MOST + 10):
        refusals.note(Refusal("ann", "/", "get", "read", "queue", f"q{number}"))
        if number == MOST - 1:
            now = 7.0
            refusals.note(Refusal("ann", "/", "get", "read", "queue", "q0"))
    kept = {it.name: times for it, times in refusals}
    assert len(kept) == MOST
    assert "q0" in kept
    assert not {f"q{number}" for number in range(1, 11)} & kept.keys()
    again = kept["q0"]
    assert (again.count, again.first_at, again.last_at) == (2, 5000, 7000)


NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
PATTERNS = st.sampled_from([None, "", "^$", ".*", "^a", "a|b", "^(a|b)c$", "(?i)^x"])


@given(pattern=PATTERNS, name=NAMES, other=NAMES)
def test_a_widened_pattern_matches_the_name_and_what_it_did(pattern: str | None, name: str, other: str) -> None:
    wide = widened(pattern, name)
    assert found(wide, name)
    before = pattern is not None and found(pattern, other)
    if not (pattern or "").startswith("(?i)"):  # which holds for the name too
        assert found(wide, other) is (before or other == name)
    assert found(wide, other) or not before
