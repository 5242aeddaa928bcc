from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from harebell.routing import Binding, Router, to_queue
from harebell.routing.exchanges.exchange import Dependence
from harebell.routing.exchanges.exchange_types import EXCHANGE_TYPES, KEEPING_TYPES, types_with
from harebell.routing.exchanges.reasons import reason
from harebell.routing.exchanges.system_exchange import SYSTEM_EXCHANGE

HASH = {"x-consistent-hash", "x-modulus-hash"}


def said(type_: str, key: str, keys: list[str], arguments: Any = None, headers: Any = None) -> tuple[bool, str]:
    """Whether an exchange with that one binding, and another one, matches it, and the reason."""
    router = Router(types=EXCHANGE_TYPES | KEEPING_TYPES)
    router.add_queue("q")
    router.declare_exchange("e", type_, arguments={"x-delayed-type": "topic"} if "delayed" in type_ else None)
    router.bind("e", to_queue("q"), key, arguments)
    at = router.exchange("e")
    (binding,) = at.bindings()
    matches = bool(at.match(keys, headers or {}))
    return matches, reason(at, binding, keys, headers or {}, matches=matches)


@pytest.mark.parametrize("type_, key, keys, expected", [
    ("fanout", "x", ["y"], "the exchange uses all of its bindings, whatever the key"),
    ("x-recent-history", "x", ["y"], "the exchange uses all of its bindings, whatever the key"),
    ("direct", "a", ["a"], "the key is 'a'"),
    ("direct", "a", ["b"], "the key is 'b', not 'a'"),
    ("direct", "a", ["b", "c", "d", "e", "f"],
     "the key is 'b', not 'a'; the key is 'c', not 'a'; the key is 'd', not 'a'; 2 more keys do not match either"),
    ("direct", "a", ["b", "a"], "the key is 'a'"),
    ("topic", "a.b", ["a.b"], "the key is 'a.b'"),
    ("topic", "order.#", ["order.eu.big"], "the pattern 'order.#' matches the key 'order.eu.big'"),
    ("topic", "*.b", ["x", "a.b"], "the pattern '*.b' matches the key 'a.b'"),
    ("topic", "order.us", ["order.eu"], "word 2 of the key is 'eu', not 'us'"),
    ("topic", "order.*", ["order"], "the key 'order' ends before word 2, which has to be any word"),
    ("topic", "order.eu.#", ["order"], "the key 'order' ends before word 2, which has to be 'eu'"),
    ("topic", "order.*", ["order.eu.big"], "the key 'order.eu.big' has 3 words, and the pattern ends after 2"),
    ("topic", "", ["order"], "the key 'order' has 1 word, and the pattern ends after 0"),
    ("topic", "a", [""], "the key '' ends before word 1, which has to be 'a'"),
    ("topic", "a.#.a", ["a"], "the key 'a' has 1 word, and the pattern needs 2 or more"),
    ("topic", "#.eu", ["order.us"], "the last word of the key is 'us', not 'eu'"),
    ("topic", "#.eu.*", ["order.us.x"], "word 2 from the end of the key is 'us', not 'eu'"),
    ("topic", "#.b.#", ["a.c"], "the key 'a.c' does not have the words between the signs # in their order"),
    ("x-delayed-message", "a", ["b"], "word 1 of the key is 'b', not 'a'"),
    ("x-consistent-hash", "1", ["b"], "the hash of the message picks this one"),
    ("x-random", "1", ["b"], "each message picks a binding by chance"),
    ("direct", "k" * 99, ["b"], f"the key is 'b', not '{'k' * 58}…"),
])  # fmt: skip
def test_by_the_key(type_: str, key: str, keys: list[str], expected: str) -> None:
    assert said(type_, key, keys)[1] == expected


@pytest.mark.parametrize("arguments, headers, expected", [
    ({"kind": "big"}, {"kind": "big"}, "all of its headers are there: 'kind' is 'big'"),
    ({"kind": "big"}, {}, "all are needed (x-match all): header 'kind' is missing"),
    ({"kind": "big", "eu": None}, {"kind": "small", "eu": 1},
     "all are needed (x-match all): header 'kind' is 'small', not 'big'"),
    ({"n": 1}, {"n": True}, "all are needed (x-match all): header 'n' is True, not 1"),
    ({"n": b"1"}, {"n": 1}, "all are needed (x-match all): header 'n' is 1, not b'1'"),
    ({"n": 1.0}, {"n": 1}, "all are needed (x-match all): header 'n' is 1, not 1.0"),
    ({"x-n": 1}, {}, "it has no header to compare, so that every message matches"),
    ({"x-match": "all-with-x", "x-n": 1}, {}, "all are needed (x-match all-with-x): header 'x-n' is missing"),
    ({"x-match": "any", "a": 1, "b": 2}, {"b": 2}, "one is enough (x-match any), and header 'b' is 2"),
    ({"x-match": "any", "a": 1, "b": 2}, {"b": 3},
     "one would be enough (x-match any): header 'a' is missing; header 'b' is 3, not 2"),
    ({"x-match": "any", "x-a": 1}, {"x-a": 1}, "it has no header to compare, and x-match any needs one"),
    ({str(n): 1 for n in range(9)}, {},
     "all are needed (x-match all): header '0' is missing; header '1' is missing; header '2' is missing; and 6 more"),
])  # fmt: skip
def test_by_headers(arguments: Any, headers: Any, expected: str) -> None:
    matches, text = said("headers", "", ["k"], arguments, headers)
    assert text == expected
    assert matches == ("needed" not in text and "would be" not in text and "needs one" not in text)


def test_values_that_differ_in_their_type_alone() -> None:
    text = said("headers", "", ["k"], {"n": [1]}, {"n": "[1]"})[1]
    assert text == "all are needed (x-match all): header 'n' is '[1]', not [1]"
    assert said("headers", "", ["k"], {"n": [True]}, {"n": [1]})[1].endswith("'n' is [1], not [True]")
    long = "x" * 99
    assert said("headers", "", ["k"], {"n": long + "a"}, {"n": long + "b"})[1].endswith("…, and differs")


class Never:
    """An own type that matches nothing."""

    depends_on = Dependence.KEY

    def add(self, binding: Binding) -> None: ...

    def remove(self, binding: Binding) -> None: ...

    def match(self, message: object) -> tuple[()]:
        return ()


def test_the_default_exchange_the_system_exchange_and_a_program_s_own() -> None:
    own = types_with({"x-own": lambda _: Never()}, lambda *_: None)
    router = Router(types=own)
    router.add_queue("q")
    (binding,) = router.exchange("").bindings()
    assert reason(router.exchange(""), binding, ["r"], {}, matches=False) == "the key is 'r', not 'q'"
    system = router.exchange(SYSTEM_EXCHANGE)
    assert reason(system, binding, ["q"], {}, matches=False).startswith("the exchange answers the message itself")
    for name, verb in (("x-consistent-hash", "another binding"), ("x-modulus-hash", "another binding")):
        router.declare_exchange(name, name)
        assert verb in reason(router.exchange(name), binding, ["q"], {}, matches=False)
    router.declare_exchange("mine", "x-own")
    for matches, verb in ((True, "picks"), (False, "does not pick")):
        text = reason(router.exchange("mine"), binding, ["q"], {}, matches=matches)
        assert text == f"the program's own type x-own {verb} it"


WORDS = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=4).map(".".join)
PATTERNS = st.lists(st.sampled_from(["a", "b", "*", "#"]), max_size=4).map(".".join)
WORD = re.compile(r"(?:word (\d+)( from the end)?|the last word) of the key is '(.*?)', not '(.*?)'(?:;|$)")
TABLES = st.dictionaries(st.sampled_from(["a", "b", "x-c"]), st.sampled_from([1, True, "1", None, [1], 1.0]))


@example("topic", "#.a.a", ["b.a"])
@example("topic", "#.a", ["b"])
@given(st.sampled_from(["topic", "direct"]), PATTERNS, st.lists(WORDS, min_size=1, max_size=3))
def test_every_key_has_a_reason_that_is_true(type_: str, pattern: str, keys: list[str]) -> None:
    matches, text = said(type_, pattern, keys)
    assert matches == text.startswith((f"the key is '{pattern}'", f"the pattern '{pattern}' matches")) or (
        type_ == "direct" and not matches
    )
    if told := WORD.match(text):
        number, from_the_end, is_, wanted = told.groups()
        words, asked = keys[0].split("."), pattern.split(".")
        at = -1 if number is None else -int(number) if from_the_end else int(number) - 1
        assert (words[at], asked[at]) == (is_, wanted)
        assert is_ != wanted


@given(TABLES, TABLES, st.sampled_from(["all", "any", "all-with-x", "any-with-x"]))
def test_every_table_of_headers_has_a_reason(arguments: Any, headers: Any, mode: str) -> None:
    matches, text = said("headers", "", ["k"], {**arguments, "x-match": mode}, headers)
    assert text
    assert matches == (not any(word in text for word in ("are needed", "would be enough", "needs one")))
    if not matches and "needs one" not in text:
        assert text.split("): ")[1]
