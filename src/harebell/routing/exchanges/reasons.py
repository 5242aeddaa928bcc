"""Why a binding matches a message, or does not: one sentence for a person.

Whether it matches is known from the exchange itself (`harebell.routing.explain`); this module only finds the words. It
decides nothing, and no route depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from harebell.routing.exchanges.exchange import (
    Binding,
    DefaultExchange,
    DirectExchange,
    Exchange,
    FanoutExchange,
    HeadersExchange,
    TopicExchange,
)
from harebell.routing.exchanges.hashing import ConsistentHashExchange, ModulusHashExchange, RandomExchange
from harebell.routing.exchanges.own_exchange import OwnExchange
from harebell.routing.exchanges.storing_exchanges import DelayedMessageExchange
from harebell.routing.exchanges.topic_matcher import TopicMatcher
from harebell.routing.table_values import Table, canonical

__all__ = ["reason"]

MOST_KEYS: Final = 3  # keys that a sentence is about; CC and BCC may have thousands
LONGEST: Final = 60  # characters of a value in a sentence


def reason(at: Exchange, binding: Binding, routing_keys: Sequence[str], headers: Table, *, matches: bool) -> str:
    """Why a binding of the exchange matches a message with these keys (at least one) and headers, or does not."""
    inner = at.inner if isinstance(at, DelayedMessageExchange) else at
    match inner:
        case HeadersExchange():
            return _of_headers(binding.arguments, headers, matches)
        case ConsistentHashExchange() | ModulusHashExchange():
            return f"the hash of the message picks {'this one' if matches else 'another binding'}"
        case RandomExchange():
            return "each message picks a binding by chance"
        case TopicExchange():
            return _of_keys(binding.binding_key, routing_keys, matches, topic=True)
        case DirectExchange() | DefaultExchange():
            return _of_keys(binding.binding_key, routing_keys, matches, topic=False)
        case FanoutExchange():
            return "the exchange uses all of its bindings, whatever the key"
        case OwnExchange():
            return f"the program's own type {inner.type} {'picks' if matches else 'does not pick'} it"
    return "the exchange answers the message itself, and uses no bindings"


def _of_keys(wanted: str, routing_keys: Sequence[str], matches: bool, *, topic: bool) -> str:
    if matches:
        matcher = TopicMatcher([(wanted, True)])
        key = next((key for key in routing_keys if (matcher.match(key) if topic else key == wanted)), routing_keys[0])
        same = f"the key is {_shown(wanted)}"
        return same if key == wanted else f"the pattern {_shown(wanted)} matches the key {_shown(key)}"
    found = [_topic_miss(wanted, key) if topic else f"the key is {_shown(key)}, not {_shown(wanted)}"
             for key in routing_keys[:MOST_KEYS]]  # fmt: skip
    more = len(routing_keys) - len(found)
    return "; ".join(found) + (f"; {more} more keys do not match either" if more else "")


def _topic_miss(pattern: str, key: str) -> str:
    wanted, given = _words(pattern), _words(key)
    head = wanted.index("#") if "#" in wanted else len(wanted)
    for number, word in enumerate(wanted[:head], 1):
        if number > len(given):
            return f"the key {_shown(key)} ends before word {number}, which has to be {_meant(word)}"
        if word not in ("*", given[number - 1]):
            return f"word {number} of the key is {_shown(given[number - 1])}, not {_shown(word)}"
    if head == len(wanted):
        return f"the key {_shown(key)} has {_count(given)}, and the pattern ends after {head}"
    tail = wanted[len(wanted) - wanted[::-1].index("#") :]
    least = len([word for word in wanted if word != "#"])
    if len(given) < least:
        return f"the key {_shown(key)} has {_count(given)}, and the pattern needs {least} or more"
    for back, word in enumerate(reversed(tail), 1):
        if word not in ("*", given[-back]):
            place = "the last word" if back == 1 else f"word {back} from the end"
            return f"{place} of the key is {_shown(given[-back])}, not {_shown(word)}"
    return f"the key {_shown(key)} does not have the words between the signs # in their order"


def _words(text: str) -> list[str]:
    return text.split(".") if text else []


def _count(words: list[str]) -> str:
    return "1 word" if len(words) == 1 else f"{len(words)} words"


def _meant(word: str) -> str:
    return "any word" if word == "*" else _shown(word)


def _of_headers(arguments: Table, headers: Table, matches: bool) -> str:
    mode = str(arguments.get("x-match", "all"))
    compared = {
        name: value
        for name, value in arguments.items()
        if name != "x-match" and (mode.endswith("-with-x") or not name.startswith("x-"))
    }
    hits = [name for name, value in compared.items() if _has(headers, name, value)]
    if mode.startswith("any"):
        if matches:
            return f"one is enough (x-match {mode}), and header {_fact(hits[0], headers)}"
        if not compared:
            return f"it has no header to compare, and x-match {mode} needs one"
        return f"one would be enough (x-match {mode}): {_misses(compared, headers)}"
    if not compared:
        return "it has no header to compare, so that every message matches"
    if matches:
        return f"all of its headers are there: {'; '.join(_fact(name, headers) for name in hits[:MOST_KEYS])}"
    return f"all are needed (x-match {mode}): {_misses(compared, headers)}"


def _has(headers: Table, name: str, wanted: object) -> bool:
    if name not in headers:
        return False
    return wanted is None or canonical(headers[name]) == canonical(wanted)


def _fact(name: str, headers: Table) -> str:
    return f"{_shown(name)} is {_shown(headers[name])}"


def _misses(compared: Table, headers: Table) -> str:
    found = list[str]()
    for name, wanted in compared.items():
        if name not in headers:
            found.append(f"header {_shown(name)} is missing")
        elif not _has(headers, name, wanted):
            same = _shown(headers[name]) == _shown(wanted)
            found.append(f"header {_fact(name, headers)}, {'and differs' if same else f'not {_shown(wanted)}'}")
    more = len(found) - MOST_KEYS
    return "; ".join(found[:MOST_KEYS]) + (f"; and {more} more" if more > 0 else "")


def _shown(value: object) -> str:
    """The value as text, short; texts in quotes, so that they differ from numbers."""
    text = f"'{value}'" if isinstance(value, str) else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
