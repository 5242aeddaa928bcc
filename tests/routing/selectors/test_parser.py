"""Selectors as a whole: a table of conditions and outcomes, what is refused and where, and a naive evaluator beside."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, strategies as st

from harebell.routing.selectors import BadSelector, parse_selector
from harebell.routing.selectors.like import MAX_SEARCHED
from harebell.routing.selectors.parser import MAX_DEPTH
from harebell.routing.selectors.tokens import MAX_LENGTH
from tests.routing.selectors.facts import Message

MESSAGE = Message(
    {
        "A": 42.0, "B": 39, "S": "Bye, bye cruel world", "K": "hello kitty", "T": True, "F": False, "empty": "",
        "big": 2**63 - 1, "half": 0.5, "nan": math.nan, "x-route": "north", "void": None, "list": [1],
    },
    priority=6, type="news", delivery_mode=2, correlation_id="c-1",
)  # fmt: skip


def wants(selector: str, message: Message = MESSAGE) -> bool:
    found = parse_selector(selector)
    return found is None or found.wants(message)


TRUE = """
    TRUE
    T
    true = T
    NOT F
    not not T
    (((T)))
    S IS NOT NULL
    C IS NULL
    void IS NULL
    list IS NULL
    13 IS NOT NULL
    'Daft' is not null
    (C = 1) IS NULL
    S = 'Bye, bye cruel world'
    S <> 'hello kitty'
    S<>K
    'it''s' = 'it''s'
    S = 'Bye, bye cruel world' OR nothing
    nothing OR T
    S IS NULL OR S = 'Bye, bye cruel world'
    Z is null OR S is not null and S <> 'Bye, bye cruel world'
    NOT C is not null OR C is null
    Not S = '' or K = z
    empty = ''
    A > B
    A = 42
    42 = A
    B = 39.0
    A >= 42 AND A <= 42 AND NOT A < 42 AND NOT A > 42
    Not A=17 or B=5.6
    20 >= 19.0 and 20 > 19
    3 BETWEEN -17 and 98.5
    A BETWEEN B and 98.5
    A NOT BETWEEN 43 AND 50
    42 BETWEEN 42 AND 42
    (A BETWEEN 40 and C) IS NULL
    (A BETWEEN C and 45) IS NULL
    (C BETWEEN 1 AND 2) IS NULL
    ('a' BETWEEN 1 AND 2) = FALSE
    17/4 = 4
    -17/4 = -4
    17/-4 = -4
    -17/-4 = 4
    17/4.0 = 4.25
    (B/0) IS NULL
    A/0 > 1e308
    -A/0 < -1e308
    A/-0.0 < -1e308
    (A-42)/0 <> 0
    A*B+19 < A*(B+19)
    2+3*4 = 14
    10-4-3 = 3
    100/5/2 = 10
    -A = 0-A
    --A = A
    +A = A
    -+-B = 39
    - B = -39
    B - 1 = 38
    B-1=38
    (S + 1) IS NULL
    (1 + S) IS NULL
    (1 * S + 1) IS NULL
    (-S) IS NULL
    (+S) IS NULL
    (+T) IS NULL
    big = 9223372036854775807
    -9223372036854775808 < 0
    -big - 1 = -9223372036854775808
    big + 1 = 9223372036854775808.0
    big + 1 > big
    big * big > 8e37
    big = 0x7FFFFFFFFFFFFFFF
    big = 9223372036854775807L
    nan <> nan
    half = .5
    half*2 = 1
    5e-1 = half
    K LIKE 'hello%'
    K NOT LIKE 'hallo%'
    K LIKE '%_kitty'
    '_%%_hello.th_re%' LIKE 'z_%.%z_%z%' escape 'z'
    'a_c' LIKE 'a\\_c' ESCAPE '\\'
    (B LIKE '39') IS NULL
    (C LIKE '%') IS NULL
    (C NOT LIKE '%') IS NULL
    K IN ('hello kitty', 'x')
    K NOT IN ('x', 'y')
    B IN (38, 39)
    A IN (38, B + 3)
    TRUE IN ('hello', 'there', 1 , true, (1-17))
    -16 IN ('hello', 'there', 1 , true, (1-17))
    (C IN ('hello', 1)) IS NULL
    ('hell' IN ('hello', C)) IS NULL
    'hello' IN ('hello', C)
    ('hello' > 42) = FALSE
    ('hello' <> 42) = FALSE
    ('a' < 'b') = FALSE
    (TRUE > FALSE) = FALSE
    (T = 1) = FALSE
    NOT (T = 1)
    P > 19.0 or (P is null)
    P > 19.0 or 17 <= 19.0
    (P = Q) IS NULL
    (NOT P = Q) IS NULL
    (NOT 'text') IS NULL
    (NOT NOT 'text') IS NULL
    (T AND 'text') IS NULL
    (F AND 'text') = FALSE
    (F OR 'text') IS NULL
    T = TRUE AND F = FALSE
    (A = 42) = TRUE
    "x-route" = 'north'
    "NULL" IS NULL
    JMSPriority > 5 AND JMSType = 'news'
    JMSDeliveryMode = 'PERSISTENT' AND JMSCorrelationID LIKE 'c-%'
    JMSPriority = amqp.priority
    JMSRedelivered = FALSE
    NOT JMSRedelivered
    a.b IS NULL
    $x IS NULL
    T aNd nOt F
"""
NOT_TRUE = """
    FALSE
    F
    NOT T
    unknown
    NOT unknown
    42
    'text'
    S
    -354
    S IS NULL
    C IS NOT NULL
    S = C
    S <> C
    C = D
    s = 'Bye, bye cruel world'
    S = 'bye, bye cruel world'
    A <> 17 and B = 5.6e17
    A BETWEEN B and 40
    A BETWEEN C and 40
    A BETWEEN 45 and C
    B NOT BETWEEN 35 AND 100
    A/0 = 0
    nan = nan
    17 > 19.0
    'hello' > 19.0
    'hello' < 19.0
    'hello' = 19.0
    'hello'>42 or 'hello'<42 or 'hello'=42 or 'hello'<>42
    'b' > 'a'
    'hell' IN ('hello', 'there', 1 , true, (1-17))
    P = Q
    not P = Q
    not P = Q and not P = Q
    P = Q or not P = Q
    P > 19.0 or P <= 19.0
    C LIKE '%'
    C NOT LIKE '%'
    C IN (1)
    C NOT IN (1)
    T AND unknown
    F OR unknown
    JMSPriority > 6
    A is null and 'hello out there'
"""


@pytest.mark.parametrize("selector", [line.strip() for line in TRUE.strip().splitlines()])
def test_what_is_true(selector: str) -> None:
    assert wants(selector)


@pytest.mark.parametrize("selector", [line.strip() for line in NOT_TRUE.strip().splitlines()])
def test_what_is_false_or_unknown(selector: str) -> None:
    assert not wants(selector)


def test_blanks_select_everything() -> None:
    assert parse_selector("") is None
    assert parse_selector(" \n ") is None


def test_text_and_steps() -> None:
    found = parse_selector("  a = 1 ")
    assert found is not None
    assert (found.text, found.steps) == ("a = 1", 4)


EXPECTED = "a name, a number, a text or ( is expected"
REFUSED = [
    ("a is null not", "AND, OR or the end is expected", 10),
    ("a is null or not", EXPECTED, 16),
    ("a is null or and", EXPECTED, 13),
    ("a is null and (b = 'x'", "AND, OR or ) is expected", 22),
    ("in = 'hello kitty'", EXPECTED, 0),
    ("a = ", EXPECTED, 4),
    ("a = = 1", EXPECTED, 4),
    ("= 1", EXPECTED, 0),
    ("a b", "AND, OR or the end is expected", 2),
    ("a = 1 = TRUE", "AND, OR or the end is expected", 6),
    ("a)", "AND, OR or the end is expected", 1),
    ("()", EXPECTED, 1),
    ("a is 1", "NULL or NOT NULL is expected behind IS", 5),
    ("a is not 1", "NULL or NOT NULL is expected behind IS", 9),
    ("a like 234", "a text in single quotes is expected behind LIKE", 7),
    ("a like b", "a text in single quotes is expected behind LIKE", 7),
    ("a not 234", "LIKE, BETWEEN or IN is expected behind NOT", 6),
    ("a not = 1", "LIKE, BETWEEN or IN is expected behind NOT", 6),
    ("a like 'x_' escape 'happy'", "ESCAPE names one character", 19),
    ("a like 'x_' escape ''", "ESCAPE names one character", 19),
    ("a like 'x_' escape happy", "a text in single quotes is expected behind ESCAPE", 19),
    ("a like 'x!' escape '!'", "the pattern ends with its ESCAPE character", 7),
    ("a escape '!'", "AND, OR or the end is expected", 2),
    ("a between and 'true'", EXPECTED, 10),
    ("a not between 34 or 3.9", "AND is expected behind BETWEEN and a value", 17),
    ("a in 1", "( is expected behind IN", 5),
    ("a in ()", EXPECTED, 6),
    ("a in ('x' 'y')", ", or ) is expected in the list of IN", 10),
    ("a in ('x',)", EXPECTED, 10),
    ("a = 9223372036854775808", "a number of more than 64 bits", 4),
    ("a = -9223372036854775809", "a number of more than 64 bits", 5),
    ("a = --9223372036854775808", "a number of more than 64 bits", 6),
    ("JMSFoo = 1", "no message has a property 'JMSFoo'", 0),
    ("a = 1 AND amqp.foo IS NULL", "no message has a property 'amqp.foo'", 10),
    ("a = 1;", "a character that means nothing here", 5),
    (
        "(" * (MAX_DEPTH + 1) + "a" + ")" * (MAX_DEPTH + 1),
        f"more than {MAX_DEPTH} parentheses in each other",
        MAX_DEPTH,
    ),
    ("a" * (MAX_LENGTH + 1), f"more than {MAX_LENGTH} characters", MAX_LENGTH),
    (
        f"a LIKE '%{'_' * MAX_SEARCHED}%' OR a LIKE '%_%'",
        f"more than {MAX_SEARCHED} characters with _ between two % in patterns",
        MAX_SEARCHED + 22,
    ),
]


@pytest.mark.parametrize("selector, problem, at", REFUSED)
def test_what_is_refused_and_where(selector: str, problem: str, at: int) -> None:
    with pytest.raises(BadSelector) as caught:
        parse_selector(selector)
    assert (caught.value.problem, caught.value.at) == (problem, at)
    assert str(caught.value).startswith(f"{problem} at character {at}")


@pytest.mark.parametrize(
    "selector, expected",
    [
        (" OR ".join(["a = 1"] * 3000) + " OR T", True),
        (" AND ".join(["T"] * 5000), True),
        ("NOT " * 8001 + "F", True),
        ("-" * 30_000 + "B = 39", True),
        ("1" + "+1" * 15_000 + " = 15001", True),
        ("B" + "*B" * 15_000 + " > 1e308", True),
        ("B IN (" + ",".join(["1"] * 15_000) + ", 39)", True),
        ("(" * MAX_DEPTH + "T" + ")" * MAX_DEPTH, True),
        ("(NOT -B * 1 + 1 = 1 AND T OR " * MAX_DEPTH + "T" + ")" * MAX_DEPTH, True),
    ],
)
def test_long_selectors_are_evaluated_without_nesting(selector: str, expected: bool) -> None:
    assert wants(selector) is expected


@given(st.text("ab1.'\"()=<>+-*/,_% eINOTRL", max_size=60))
def test_any_text_is_read_or_refused(selector: str) -> None:
    with suppress(BadSelector):
        found = parse_selector(selector)
        assert found is None or found.wants(Message()) in (True, False)


# -- a naive evaluator: trees, their text, and what they are ---------------------------------------------------------

Tree = tuple[Any, ...]
HEADERS = ("a", "b", "c")
PATTERNS = ("", "a", "%", "a%", "_", "%b", "it_s")
TEXTS = ("", "a", "ab", "it's")
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([2**63 - 1, -(2**63), 2**40]),
    st.sampled_from([0.0, -0.5, 1.0, 1e300]), st.sampled_from(TEXTS),
)  # fmt: skip
LEAVES = st.one_of(
    st.tuples(st.just("name"), st.sampled_from(HEADERS)),
    st.tuples(st.just("value"), VALUES.filter(lambda value: value is not None)),
)


def grown(trees: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    some = st.lists(trees, min_size=2, max_size=3)
    return st.one_of(
        st.tuples(st.sampled_from(("AND", "OR")), some),
        st.tuples(st.sampled_from(("=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/")), trees, trees),
        st.tuples(st.sampled_from(("NOT", "minus", "plus", "IS NULL", "IS NOT NULL")), trees),
        st.tuples(st.sampled_from(("BETWEEN", "NOT BETWEEN")), trees, trees, trees),
        st.tuples(st.sampled_from(("IN", "NOT IN")), trees, some),
        st.tuples(st.sampled_from(("LIKE", "NOT LIKE")), trees, st.sampled_from(PATTERNS)),
    )  # fmt: skip


TREES = st.recursive(LEAVES, grown, max_leaves=12)


def literal(value: bool | int | float | str) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value).upper() if isinstance(value, bool) else repr(value)


def text_of(tree: Tree) -> str:
    kind, *parts = tree
    match kind:
        case "name":
            return str(parts[0])
        case "value":
            return f"({literal(parts[0])})"
        case "AND" | "OR":
            return "(" + f" {kind} ".join(map(text_of, parts[0])) + ")"
        case "NOT":
            return f"(NOT {text_of(parts[0])})"
        case "minus" | "plus":
            return f"({'-' if kind == 'minus' else '+'}{text_of(parts[0])})"
        case "IS NULL" | "IS NOT NULL":
            return f"({text_of(parts[0])} {kind})"
        case "BETWEEN" | "NOT BETWEEN":
            one, low, high = map(text_of, parts)
            return f"({one} {kind} {low} AND {high})"
        case "IN" | "NOT IN":
            return f"({text_of(parts[0])} {kind} ({', '.join(map(text_of, parts[1]))}))"
        case "LIKE" | "NOT LIKE":
            return f"({text_of(parts[0])} {kind} {literal(parts[1])})"
    return f"({text_of(parts[0])} {kind} {text_of(parts[1])})"


def kind_of(value: object) -> str:
    return "number" if type(value) in (int, float) else type(value).__name__


def truth(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def either(truths: list[bool | None]) -> bool | None:
    return True if True in truths else None if None in truths else False


def opposite(value: bool | None) -> bool | None:
    return None if value is None else not value


def compare(sign: str, one: Any, other: Any) -> bool | None:
    if one is None or other is None:
        return None
    if kind_of(one) != kind_of(other) or (sign not in ("=", "<>") and kind_of(one) != "number"):
        return False
    results: dict[str, bool] = {
        "=": one == other, "<>": one != other, "<": one < other, "<=": one <= other, ">": one > other,
        ">=": one >= other,
    }  # fmt: skip
    return results[sign]


def calculate(sign: str, one: Any, other: Any) -> int | float | None:
    if kind_of(one) != "number" or kind_of(other) != "number":
        return None
    exact = isinstance(one, int) and isinstance(other, int)
    if sign == "/":
        if exact:
            if other == 0:
                return None
            result: Any = int(abs(one) // abs(other)) * (1 if one * other >= 0 else -1)
        elif other == 0:
            number = one if one else math.nan
            result = number * math.inf * math.copysign(1, other)
        else:
            result = one / other
    else:
        result = {"+": one + other, "-": one - other, "*": one * other}[sign]
    return float(result) if exact and not -(2**63) <= result < 2**63 else result


def value_of(tree: Tree, headers: dict[str, Any]) -> Any:
    kind, *parts = tree
    match kind:
        case "name":
            return headers[parts[0]]
        case "value":
            return parts[0]
        case "AND":
            return opposite(either([opposite(truth(value_of(each, headers))) for each in parts[0]]))
        case "OR":
            return either([truth(value_of(each, headers)) for each in parts[0]])
        case "IN":
            one = value_of(parts[0], headers)
            return either([compare("=", one, value_of(each, headers)) for each in parts[1]])
        case "LIKE":
            one, pattern = value_of(parts[0], headers), parts[1]
            if not isinstance(one, str):
                return None
            return {
                "": one == "", "a": one == "a", "%": True, "a%": one.startswith("a"), "_": len(one) == 1,
                "%b": one.endswith("b"), "it_s": len(one) == 4 and one[:2] == "it" and one[3] == "s",
            }[pattern]  # fmt: skip
        case "NOT IN" | "NOT LIKE" | "NOT BETWEEN":
            return opposite(value_of((kind.removeprefix("NOT "), *parts), headers))
    values = [value_of(each, headers) for each in parts]
    match kind:
        case "NOT":
            return opposite(truth(values[0]))
        case "plus":
            return calculate("*", values[0], 1)
        case "minus":
            return calculate("*", values[0], -1)
        case "IS NULL":
            return values[0] is None
        case "IS NOT NULL":
            return values[0] is not None
        case "BETWEEN":
            low, high = compare(">=", values[0], values[1]), compare("<=", values[0], values[2])
            return opposite(either([opposite(low), opposite(high)]))
        case "+" | "-" | "*" | "/":
            return calculate(kind, *values)
    return compare(kind, *values)


@given(TREES, st.fixed_dictionaries(dict.fromkeys(HEADERS, VALUES)))
def test_it_agrees_with_a_naive_evaluator(tree: Tree, headers: dict[str, Any]) -> None:
    message = Message({name: value for name, value in headers.items() if value is not None})
    assert wants(text_of(tree), message) is (value_of(tree, headers) is True)
    assert wants(f"{text_of(tree)} IS NULL", message) is (value_of(tree, headers) is None)
