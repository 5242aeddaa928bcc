"""The routing rules written down as plainly as possible, slow: what the real thing is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harebell.routing.exchanges.exchange import Destination


def topic_matches(pattern: str, key: str) -> bool:
    return _words_match(pattern.split(".") if pattern else [], key.split(".") if key else [])


def _words_match(pattern: Sequence[str], words: Sequence[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "#":
        return _words_match(pattern[1:], words) or (bool(words) and _words_match(pattern, words[1:]))
    return bool(words) and pattern[0] in ("*", words[0]) and _words_match(pattern[1:], words[1:])


def headers_match(arguments: Mapping[str, object], headers: Mapping[str, object]) -> bool:
    mode = str(arguments.get("x-match", "all"))
    results = []
    for name, value in arguments.items():
        if name == "x-match" or (name.startswith("x-") and not mode.endswith("with-x")):
            continue
        if value is None:
            results.append(name in headers)
        else:
            results.append(name in headers and type(headers[name]) is type(value) and headers[name] == value)
    return any(results) if mode.startswith("any") else all(results)


@dataclass
class NaiveExchange:
    type: str
    auto_delete: bool
    alternate: str | None


Made = tuple[str, Destination, str, tuple[tuple[str, object], ...]]


@dataclass
class NaiveRouter:
    """Exchanges, queues and one flat list of bindings. `gone` are queues of which only bindings are left."""

    exchanges: dict[str, NaiveExchange] = field(default_factory=dict)
    queues: set[str] = field(default_factory=set)
    bindings: list[Made] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)

    def listed(self) -> set[Made]:
        return {binding for binding in self.bindings if not self._leads_nowhere(binding)}

    def _leads_nowhere(self, binding: Made) -> bool:
        return binding[1].kind == "queue" and binding[1].name in self.gone

    def reach(self, exchange: str, keys: Sequence[str], headers: Mapping[str, object]) -> set[str]:
        """The queues, by growing the set of reached exchanges until it grows no more."""
        if exchange == "":
            return {key for key in keys if key in self.queues}
        reached, queues = {exchange}, set()
        while True:
            before = len(reached)
            for name in list(reached):
                at = self.exchanges[name]
                to = {
                    binding[1]
                    for binding in self.listed()
                    if binding[0] == name and any(self._wants(at, binding, key, headers) for key in keys)
                }
                if not to and at.alternate in self.exchanges:
                    reached.add(at.alternate)
                queues |= {destination.name for destination in to if destination.kind == "queue"}
                reached |= {destination.name for destination in to if destination.kind == "exchange"}
            if len(reached) == before:
                return queues

    def _wants(self, at: NaiveExchange, binding: Made, key: str, headers: Mapping[str, object]) -> bool:
        match at.type:
            case "direct":
                return binding[2] == key
            case "fanout":
                return True
            case "topic":
                return topic_matches(binding[2], key)
            case _:
                return headers_match(dict(binding[3]), headers)

    def drop(self, unwanted: Sequence[Made]) -> None:
        """Remove bindings, then the auto_delete exchanges that lost their last one, and so on."""
        self.bindings = [binding for binding in self.bindings if binding not in unwanted]
        self.gone &= {binding[1].name for binding in self.bindings if binding[1].kind == "queue"}
        for source in dict.fromkeys(binding[0] for binding in unwanted):
            at = self.exchanges.get(source)
            if at is not None and at.auto_delete and not any(binding[0] == source for binding in self.bindings):
                self.delete(source)

    def delete(self, name: str) -> None:
        del self.exchanges[name]
        self.drop([b for b in self.bindings if b[0] == name or b[1] == Destination("exchange", name)])
