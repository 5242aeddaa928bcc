"""The grammar of selectors, read by recursive descent into one function of a message.

    condition   := conjunction ("OR" conjunction)*
    conjunction := test ("AND" test)*
    test        := "NOT"* (comparison)
    comparison  := sum ( ("=" | "<>" | "<" | "<=" | ">" | ">=") sum
                       | "IS" "NOT"? "NULL"
                       | "NOT"? "LIKE" TEXT ("ESCAPE" TEXT)?
                       | "NOT"? "BETWEEN" sum "AND" sum
                       | "NOT"? "IN" "(" sum ("," sum)* ")" )?
    sum         := product (("+" | "-") product)*
    product     := signed (("*" | "/") signed)*
    signed      := ("+" | "-")* value
    value       := NAME | TEXT | NUMBER | "TRUE" | "FALSE" | "(" condition ")"

This is the grammar of Qpid's C++ broker, which is wider than that of JMS: IS NULL, LIKE and IN test any value.

Rules:

- A selector of blanks alone selects every message, as none does.
- The length (`tokens.MAX_LENGTH`), the parentheses in parentheses and what LIKE has to search for are limited.
"""

from __future__ import annotations

from typing import Final

from harebell.routing.selectors import conditions
from harebell.routing.selectors.conditions import Part
from harebell.routing.selectors.identifiers import Facts, getter
from harebell.routing.selectors.like import MAX_SEARCHED, BadPattern, like
from harebell.routing.selectors.tokens import END, NAME, NUMBER, TEXT, BadSelector, Token, tokens_of
from harebell.routing.selectors.values import COMPARISONS, MAX_EXACT, OPERATIONS

__all__ = ["MAX_DEPTH", "Selector", "parse_selector"]

MAX_DEPTH: Final = 50
"""Parentheses in parentheses: far below Python's limit of recursion."""


class Selector:
    """A condition. `text` is as it was given, without blanks around it; `steps` is about the work of one test."""

    __slots__ = ("_condition", "steps", "text")

    def __init__(self, text: str, condition: Part, steps: int) -> None:
        self.text = text
        self.steps = steps
        self._condition = condition

    def wants(self, facts: Facts) -> bool:
        """Whether the condition is true of the message: neither false nor unknown."""
        return self._condition(facts) is True


def parse_selector(text: str) -> Selector | None:
    """Read a selector; None for one of blanks alone, which selects everything. Raises BadSelector."""
    tokens = tokens_of(text)
    if len(tokens) == 1:
        return None
    return Selector(text.strip(), _Parser(text, tokens).parse(), len(tokens))


class _Parser:
    def __init__(self, text: str, tokens: list[Token]) -> None:
        self._text = text
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._searched = 0

    def parse(self) -> Part:
        part = self._condition()
        if self._next.kind != END:
            raise self._bad("AND, OR or the end is expected")
        return part

    # -- words ---------------------------------------------------------------------------------------------------

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _accept(self, *kinds: str) -> Token | None:
        """The next word if it is of one of these kinds, which is taken then."""
        return self._take() if self._tokens[self._at].kind in kinds else None

    def _expect(self, kind: str, problem: str) -> Token:
        if self._next.kind != kind:
            raise self._bad(problem)
        return self._take()

    def _bad(self, problem: str, token: Token | None = None) -> BadSelector:
        return BadSelector(problem, self._text, (self._next if token is None else token).at)

    # -- conditions ----------------------------------------------------------------------------------------------

    def _condition(self) -> Part:
        parts = [self._conjunction()]
        while self._accept("OR"):
            parts.append(self._conjunction())
        return parts[0] if len(parts) == 1 else conditions.any_of(parts)

    def _conjunction(self) -> Part:
        parts = [self._test()]
        while self._accept("AND"):
            parts.append(self._test())
        return parts[0] if len(parts) == 1 else conditions.all_of(parts)

    def _test(self) -> Part:
        negations = 0
        while self._accept("NOT"):
            negations += 1
        part = self._comparison()
        for _ in range(min(negations, 2 - negations % 2)):  # more of them change nothing
            part = conditions.negated(part)
        return part

    def _comparison(self) -> Part:
        one = self._sum()
        if (sign := self._accept(*COMPARISONS)) is not None:
            return conditions.compared(one, COMPARISONS[sign.kind], self._sum())
        if self._accept("IS"):
            wanted = self._accept("NOT") is not None
            self._expect("NULL", "NULL or NOT NULL is expected behind IS")
            part = conditions.is_null(one)
            return conditions.negated(part) if wanted else part
        negates = self._accept("NOT") is not None
        if self._accept("LIKE"):
            part = self._like(one)
        elif self._accept("BETWEEN"):
            part = self._between(one)
        elif self._accept("IN"):
            part = self._in(one)
        elif negates:
            raise self._bad("LIKE, BETWEEN or IN is expected behind NOT")
        else:
            return one
        return conditions.negated(part) if negates else part

    def _like(self, one: Part) -> Part:
        pattern = self._expect(TEXT, "a text in single quotes is expected behind LIKE")
        escape = None
        if self._accept("ESCAPE"):
            said = self._expect(TEXT, "a text in single quotes is expected behind ESCAPE")
            escape = str(said.value)
            if len(escape) != 1:
                raise self._bad("ESCAPE names one character", said)
        try:
            matches, searched = like(str(pattern.value), escape)
        except BadPattern:
            raise self._bad("the pattern ends with its ESCAPE character", pattern) from None
        self._searched += searched
        if self._searched > MAX_SEARCHED:
            raise self._bad(f"more than {MAX_SEARCHED} characters with _ between two % in patterns", pattern)
        return conditions.is_like(one, matches)

    def _between(self, one: Part) -> Part:
        low = self._sum()
        self._expect("AND", "AND is expected behind BETWEEN and a value")
        return conditions.between(one, low, self._sum(), COMPARISONS[">="], COMPARISONS["<="])

    def _in(self, one: Part) -> Part:
        self._expect("(", "( is expected behind IN")
        others = [self._sum()]
        while self._accept(","):
            others.append(self._sum())
        self._expect(")", ", or ) is expected in the list of IN")
        return conditions.one_of(one, others, COMPARISONS["="])

    # -- values --------------------------------------------------------------------------------------------------

    def _sum(self) -> Part:
        first, steps = self._product(), []
        while (sign := self._accept("+", "-")) is not None:
            steps.append((OPERATIONS[sign.kind], self._product()))
        return conditions.calculated(first, steps) if steps else first

    def _product(self) -> Part:
        first, steps = self._signed(), []
        while (sign := self._accept("*", "/")) is not None:
            steps.append((OPERATIONS[sign.kind], self._signed()))
        return conditions.calculated(first, steps) if steps else first

    def _signed(self) -> Part:
        signs = minus = 0
        while (sign := self._accept("+", "-")) is not None:
            signs += 1
            minus += sign.kind == "-"
        if self._next.kind == NUMBER:
            return conditions.constant(self._number(negative=minus % 2 == 1))
        part = self._value()
        if not signs:
            return part
        return conditions.negative(part) if minus % 2 else conditions.positive(part)

    def _number(self, *, negative: bool) -> int | float:
        token = self._take()
        assert not isinstance(token.value, str)
        value = -token.value if negative else token.value
        if isinstance(value, int) and not -MAX_EXACT - 1 <= value <= MAX_EXACT:
            raise self._bad("a number of more than 64 bits", token)
        return value

    def _value(self) -> Part:
        token = self._take()
        if token.kind == NAME:
            known = getter(str(token.value))
            if known is None:
                raise self._bad(f"no message has a property '{token.value}'", token)
            return known
        if token.kind == TEXT:
            return conditions.constant(token.value)
        if token.kind in ("TRUE", "FALSE"):
            return conditions.constant(token.kind == "TRUE")
        if token.kind != "(":
            raise self._bad("a name, a number, a text or ( is expected", token)
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._bad(f"more than {MAX_DEPTH} parentheses in each other", token)
        part = self._condition()
        self._expect(")", "AND, OR or ) is expected")
        self._depth -= 1
        return part
