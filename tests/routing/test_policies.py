from __future__ import annotations

import itertools

import pytest
from hypothesis import given, strategies as st

from harebell.errors import InvalidArgument
from harebell.routing.patterns import Patterns, standard
from harebell.routing.policies import (
    APPLY_TO,
    FEDERATION_KEYS,
    LEAST,
    OPERATOR_KEYS,
    POLICY_KEYS,
    Policy,
    Setting,
    check_policy,
    effective,
    explained,
    matching,
    merged,
    parse_policy,
)
from harebell.routing.settings import ARGUMENTS, QueueSettings, settings_of

PATTERNS = Patterns(standard)


def policy(name: str = "p", pattern: str = "", definition: dict[str, object] | None = None, **more: object) -> Policy:
    return Policy("/", name, pattern, definition or {"max-length": 1}, **more)  # type: ignore[arg-type]


def problem(body: dict[str, object], *, operator: bool = False) -> str:
    with pytest.raises(InvalidArgument) as caught:
        parse_policy("/", "p", {"pattern": ".*"} | body, PATTERNS, operator=operator)
    text = str(caught.value)
    assert text.startswith("Validation failed\n\n")
    assert text.endswith("\n")
    return text.removeprefix("Validation failed\n\n")[:-1]


def test_a_parsed_policy() -> None:
    body = {"pattern": "^a", "definition": {"max-length": 3, "overflow": "drop-head"}, "extra": 1}
    assert parse_policy("v", "p", body, PATTERNS) == Policy("v", "p", "^a", {"max-length": 3, "overflow": "drop-head"})
    body |= {"priority": 1.5, "apply-to": "streams"}
    assert parse_policy("v", "p", body, PATTERNS).priority == 1.5
    assert parse_policy("v", "p", body, PATTERNS).apply_to == "streams"
    check_policy(parse_policy("v", "p", body, PATTERNS), PATTERNS)


GOOD: dict[str, list[object]] = {
    "alternate-exchange": [""],
    "dead-letter-exchange": ["x"],
    "dead-letter-routing-key": ["k"],
    "dead-letter-strategy": ["at-most-once", "at-least-once"],
    "message-ttl": [0, 10**13],
    "expires": [1],
    "max-length": [0],
    "max-length-bytes": [0],
    "max-in-memory-length": [0],
    "max-in-memory-bytes": [0],
    "queue-mode": ["default", "lazy"],
    "queue-version": [1, 2],
    "overflow": ["drop-head", "reject-publish", "reject-publish-dlx", "drop-lowest-priority", "delete-queue"],
    "delivery-limit": [-1, 0],
    "max-age": ["1D"],
    "stream-max-segment-size-bytes": [0, 3_000_000_000],
    "stream-filter-size-bytes": [16, 255],
    "queue-leader-locator": ["client-local", "balanced", "random", "least-leaders"],
    "queue-master-locator": ["client-local", "min-masters", "random", "balanced"],
    "initial-cluster-size": [0],
    "target-group-size": [1],
    "federation-upstream": [""],
    "federation-upstream-set": ["all"],
    "federation-upstream-pattern": ["^eu"],
    "consumer-timeout": [1],
    "delayed-retry-type": ["disabled", "all", "failed", "returned"],
    "delayed-retry-min": [1],
    "delayed-retry-max": [1],
    "alert-length": [1],
    "alert-length-clear": [0],
    "alert-length-bytes": [1],
    "alert-length-bytes-clear": [0],
    "alert-repeat-gap": [1],
}


@pytest.mark.parametrize("key", sorted(POLICY_KEYS))
def test_values(key: str) -> None:
    for value in GOOD[key]:
        parse_policy("/", "p", {"pattern": "", "definition": {key: value}}, PATTERNS)
    for value, shown in [
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
        (-2, "-2"),
        ([1], "[1]"),
        ({"a": 1}, '#{<<"a">> => 1}'),
    ]:
        assert problem({"definition": {key: value}}) == f"{shown} is not a valid {POLICY_KEYS[key].called}"
    if key not in ("alternate-exchange", "dead-letter-exchange", "dead-letter-routing-key", *FEDERATION_KEYS):
        assert problem({"definition": {key: "zz"}}) == f'<<"zz">> is not a valid {POLICY_KEYS[key].called}'


@pytest.mark.parametrize(
    "body, text",
    [
        ({"definition": {}}, "no policy provided"),
        ({"definition": "x"}, 'definition must be a dictionary: <<"x">>'),
        ({"definition": {"max-length": -1, "expires": 0}}, "0 is not a valid queue expiry"),
        ({"definition": {"zz": 1, "yy": "a"}}, '[{<<"yy">>,<<"a">>},{<<"zz">>,1}] are not recognised policy settings'),
        ({"definition": {"max-length": -1, "aa": 1}}, "-1 is not a valid maximum length"),
        ({"definition": {"max-length": 1}, "priority": "5"}, 'priority should be a number, actually was <<"5">>'),
        ({"definition": {"max-length": 1}, "priority": True}, "priority should be a number, actually was true"),
        ({"definition": {"max-length": 1}, "pattern": 1}, "pattern should be a binary but was 1"),
        (
            {"definition": {"max-length": 1}, "apply-to": "zz"},
            "apply-to 'zz' unrecognised; should be one of: 'queues', 'classic_queues', 'quorum_queues', 'streams', "
            "'exchanges', or 'all'",
        ),
        (
            {"definition": {"federation-upstream": "a", "federation-upstream-set": "b"}},
            "cannot specify federation-upstream, federation-upstream-set or federation-upstream-pattern together",
        ),
        (
            {"definition": {}, "priority": None, "pattern": 1},
            "priority should be a number, actually was null\npattern should be a binary but was 1\nno policy provided",
        ),
    ],
)
def test_what_is_refused(body: dict[str, object], text: str) -> None:
    assert problem(body) == text


def test_a_pattern_that_is_none() -> None:
    assert problem({"definition": {"expires": 1}, "pattern": "("}).startswith(
        'pattern should be regular expression but is invalid: {"missing )'
    )
    assert problem({"definition": {"expires": 1}, "apply-to": 1}).startswith("apply-to '1' unrecognised")


@pytest.mark.parametrize("missing", ["pattern", "definition"])
def test_what_must_be_there(missing: str) -> None:
    body = {"pattern": "", "definition": {"max-length": 1}}
    del body[missing]
    with pytest.raises(InvalidArgument, match=rf"^\[\{{key_missing,{missing}\}}\]$"):
        parse_policy("/", "p", body, PATTERNS)


def test_operators_may_set_less() -> None:
    for key, values in GOOD.items():
        if key in OPERATOR_KEYS:
            parse_policy("/", "p", {"pattern": "", "definition": {key: values[0]}}, PATTERNS, operator=True)
        else:
            assert "not recognised" in problem({"definition": {key: values[0]}}, operator=True)


def test_the_highest_priority_applies_then_the_first_name() -> None:
    policies = [policy("b", priority=1), policy("a", priority=1), policy("c", priority=0), policy("d", pattern="^x")]
    for order in itertools.permutations(policies):
        found = matching(order, "/", "q", "classic", PATTERNS)
        assert found is not None
        assert found.name == "a"
    assert matching(policies, "other", "q", "classic", PATTERNS) is None
    assert matching([policy(pattern="^q$")], "/", "q1", "classic", PATTERNS) is None
    assert matching([policy(pattern="1")], "/", "q1", "classic", PATTERNS) is not None  # anywhere in the name


@pytest.mark.parametrize("apply_to", sorted(APPLY_TO))
def test_what_apply_to_covers(apply_to: str) -> None:
    definition: dict[str, object] = {"max-length-bytes": 1}
    covered = {
        kind
        for kind in ("exchange", "classic", "quorum", "stream")
        if matching([policy(definition=definition, apply_to=apply_to)], "/", "n", kind, PATTERNS) is not None
    }
    assert covered == APPLY_TO[apply_to]


def test_a_key_that_means_nothing_to_a_queue_keeps_the_whole_policy_away() -> None:
    both = policy("both", definition={"max-length": 5, "max-age": "1D"}, priority=9)
    plain = policy("plain", definition={"max-length": 7})
    assert matching([both, plain], "/", "q", "classic", PATTERNS) is plain
    assert matching([both, plain], "/", "q", "stream", PATTERNS) is None
    assert matching([policy(definition={"max-age": "1D"})], "/", "q", "stream", PATTERNS) is not None


def test_policy_and_operator_policy() -> None:
    def of(ours: dict[str, object], theirs: dict[str, object]) -> dict[str, Setting]:
        return merged(policy(definition=ours), policy("o", definition=theirs))

    assert of({"max-length": 5}, {"max-length": 3}) == {"max-length": Setting(3, "operator")}
    assert of({"max-length": 3}, {"max-length": 5}) == {"max-length": Setting(3, "policy")}
    assert of({"overflow": "drop-head"}, {"overflow": "reject-publish"}) == {
        "overflow": Setting("reject-publish", "operator")
    }
    assert of({"delivery-limit": -1}, {"delivery-limit": 5}) == {"delivery-limit": Setting(5, "operator")}
    assert of({"delivery-limit": 5}, {"delivery-limit": -1}) == {"delivery-limit": Setting(-1, "operator")}
    assert of({"expires": 1}, {"max-length": 2}) == {
        "expires": Setting(1, "policy"),
        "max-length": Setting(2, "operator"),
    }
    assert merged(None, None) == {}


def test_arguments_and_policies() -> None:
    ours = policy(
        "ours", definition={"max-length": 5, "dead-letter-exchange": "p", "max-age": "1D", "delivery-limit": 4}
    )
    theirs = policy("theirs", definition={"max-length": 3, "expires": 100})
    arguments = {
        "x-max-length": 4,
        "x-dead-letter-exchange": "a",
        "x-max-age": "2h",
        "x-delivery-limit": -1,
        "x-queue-type": "classic",
        "x-foo": 1,
        "x-expires": 100,
    }
    got = effective(arguments, ours, theirs)
    assert got == {
        "dead-letter-exchange": Setting("a", "argument"),
        "delivery-limit": Setting(4, "policy"),
        "expires": Setting(100, "argument"),
        "max-age": Setting("2h", "argument"),
        "max-length": Setting(3, "operator"),
        "queue-type": Setting("classic", "argument"),
    }
    assert list(got) == sorted(got)
    assert explained(got, ours, theirs).splitlines()[:2] == [
        "dead-letter-exchange = a (argument)",
        "delivery-limit = 4 (policy 'ours')",
    ]
    assert "max-length = 3 (operator policy 'theirs')" in explained(got, ours, theirs)
    assert explained(effective({"x-max-length": 4}, None, None), None, None) == "max-length = 4 (argument)"
    assert settings_of({key: setting.value for key, setting in got.items()}) == QueueSettings(
        dead_letter_exchange="a", delivery_limit=4, expires=100, max_age=7_200_000, max_length=3
    )


numbers = st.none() | st.integers(-1, 5)


@given(key=st.sampled_from(sorted(LEAST - {"max-age"})), argument=numbers, ours=numbers, theirs=numbers)
def test_the_smallest_number_is_in_force(key: str, argument: int | None, ours: int | None, theirs: int | None) -> None:
    values = {"argument": argument, "policy": ours, "operator": theirs}
    got = effective(
        {} if argument is None else {f"x-{key}": argument},
        None if ours is None else policy(definition={key: ours}),
        None if theirs is None else policy(definition={key: theirs}),
    )
    given = [value for value in values.values() if value is not None]
    assert bool(got) is bool(given)
    if got:
        assert got[key].value == values[got[key].source]
        if min(given) >= 0:
            assert got[key].value == min(given)
        elif max(given) >= 0 and theirs is None:
            assert got[key].value == max(given) if len(given) == 2 else min(given)


def test_the_keys_that_are_no_arguments() -> None:
    others = {key for key in POLICY_KEYS if f"x-{key}" not in ARGUMENTS}
    assert others == {"alternate-exchange", "target-group-size", *FEDERATION_KEYS}
    assert set(POLICY_KEYS) >= OPERATOR_KEYS
    assert set(POLICY_KEYS) >= LEAST
