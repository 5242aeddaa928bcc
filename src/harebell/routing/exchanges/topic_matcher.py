"""Topic patterns compiled to one automaton: which of many patterns match a key, at one dict probe a word.

Rules (RabbitMQ's, probed):

- Keys and patterns are words between dots. `*` is exactly one word, `#` is any number of words, none included.
- The empty key has no words: it matches "", "#" and "#.#", not "*". Between, before and after dots a word may
  be empty: "." is two empty words, and "a..b" matches "a.#.b".

Theory of operation. The patterns form a trie whose nodes are the states of a nondeterministic automaton: a node is
left by the literal word, by `*` on any word; its `#` child is entered without a word and stays on any word. The
deterministic automaton over sets of nodes is built as keys need it. Words that no pattern has share one transition, the
state's `other`, so that the automaton's size follows from the patterns, whatever the keys are; a key costs its split
and one probe a word (two for a word that no pattern has).

Adding or removing a pattern drops the deterministic states; the next keys build them again. A pickled matcher holds its
patterns only. A value may be any hashable object; in an exchange it is a destination.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final, Generic, TypeVar

__all__ = ["MAX_DFA_CELLS", "TopicMatcher"]

MAX_DFA_CELLS: Final = 500_000
"""The largest size of a matcher's automaton: states, their nodes and their transitions, about 100 bytes each. Patterns
with many `#` can make a state for every subset of themselves. At this size the matcher drops all states and builds them
again, so that memory stays bounded and a key is at worst as slow as without a cache."""

_WORD: Final = "*"
_WORDS: Final = "#"

T = TypeVar("T", bound=Hashable)


class _Node(Generic[T]):
    """A prefix of patterns, and the values of the patterns that end here (value -> [order of arrival, times added])."""

    __slots__ = ("children", "loops", "values")

    def __init__(self, loops: bool) -> None:
        self.children: dict[str, _Node[T]] = {}
        self.values: dict[T, list[int]] = {}
        self.loops = loops  # the node of a `#`: any word comes back to it


class _State(Generic[T]):
    """A set of nodes: the transitions built so far, by word (`ways`) and by any unknown word (`other`), and values."""

    __slots__ = ("nodes", "other", "values", "ways")

    def __init__(self, nodes: frozenset[_Node[T]]) -> None:
        self.nodes = nodes
        self.ways: dict[str, _State[T]] = {}
        self.other: _State[T] | None = None
        first: dict[T, int] = {}
        for node in nodes:
            for value, (order, _) in node.values.items():
                first[value] = min(order, first.get(value, order))
        self.values: tuple[T, ...] = tuple(sorted(first, key=first.__getitem__))


class TopicMatcher(Generic[T]):
    """Patterns with values; `match` gives the values whose patterns match a key, each once, oldest pattern first.

    `cells` is the size of the automaton built so far, `patterns` the number of distinct (pattern, value) pairs.
    `effort` grows with the nodes of the states that had to be built; the caller may set it to 0.
    """

    __slots__ = ("_arrivals", "_known", "_max_cells", "_root", "_start", "_states", "cells", "effort", "patterns")

    def __init__(self, patterns: Iterable[tuple[str, T]] = (), *, max_cells: int = MAX_DFA_CELLS) -> None:
        self._root: _Node[T] = _Node(loops=False)
        self._known: dict[str, int] = {}  # word of a pattern -> nodes that it leads to
        self._states: dict[frozenset[_Node[T]], _State[T]] = {}
        self._start: _State[T] | None = None
        self._max_cells = max_cells
        self._arrivals = 0
        self.cells = self.effort = 0
        self.patterns = 0
        for pattern, value in patterns:
            self.add(pattern, value)

    def add(self, pattern: str, value: T) -> None:
        """Let `value` match what `pattern` matches. Added twice, a pair must be removed twice."""
        node = self._root
        for word in _words(pattern):
            child = node.children.get(word)
            if child is None:
                child = node.children[word] = _Node(loops=word == _WORDS)
                self._known[word] = self._known.get(word, 0) + 1
            node = child
        entry = node.values.get(value)
        if entry is not None:
            entry[1] += 1
            return
        node.values[value] = [self._arrivals, 1]
        self._arrivals += 1
        self.patterns += 1
        self._forget()

    def remove(self, pattern: str, value: T) -> bool:
        """Undo one `add`; False when there is nothing to undo."""
        path: list[tuple[_Node[T], str]] = []
        node = self._root
        for word in _words(pattern):
            child = node.children.get(word)
            if child is None:
                return False
            path.append((node, word))
            node = child
        entry = node.values.get(value)
        if entry is None:
            return False
        entry[1] -= 1
        if entry[1]:
            return True
        del node.values[value]
        self.patterns -= 1
        for parent, word in reversed(path):
            child = parent.children[word]
            if child.children or child.values:
                break
            del parent.children[word]
            self._known[word] -= 1
            if not self._known[word]:
                del self._known[word]
        self._forget()
        return True

    def match(self, key: str) -> tuple[T, ...]:
        """The values whose patterns match the routing key."""
        state = self._start or self._begin()
        if key:
            known = self._known
            for word in key.split("."):
                state = state.ways.get(word) or (word not in known and state.other) or self._step(state, word)
        return state.values

    def trie(self) -> list[tuple[dict[str, int], tuple[T, ...]]]:
        """The patterns as a trie, for a caller that matches many keys at once.

        Each node has its children, word -> node, and the values of the patterns that end there; node 0 is the empty
        prefix. The rules of the module say what `*`, `#` and empty words mean.
        """
        nodes = [self._root]
        made: list[tuple[dict[str, int], tuple[T, ...]]] = []
        for node in nodes:  # the loop appends to it
            children = {word: len(nodes) + number for number, word in enumerate(node.children)}
            nodes += node.children.values()
            made.append((children, tuple(node.values)))
        return made

    def __reduce__(self) -> tuple[object, ...]:
        made: list[tuple[int, str, T, int]] = []
        todo: list[tuple[tuple[str, ...], _Node[T]]] = [((), self._root)]
        while todo:
            words, node = todo.pop()
            made += ((order, ".".join(words), value, count) for value, (order, count) in node.values.items())
            todo += (((*words, word), child) for word, child in node.children.items())
        made.sort(key=lambda entry: entry[0])
        patterns = [(pattern, value) for _, pattern, value, count in made for _ in range(count)]
        return _rebuilt, (patterns, self._max_cells)

    def _forget(self) -> None:
        self._states = {}
        self._start = None
        self.cells = 0

    def _begin(self) -> _State[T]:
        self._start = self._state([self._root])
        return self._start

    def _step(self, state: _State[T], word: str) -> _State[T]:
        """The state after `word`, to which this adds a transition; the caller found none."""
        self.effort += 1 + len(state.nodes)
        if self.cells >= self._max_cells:
            self._forget()  # the local `state` stays alive until the key is matched
        # In a key, "*" and "#" are plain words that no pattern has.
        known = word in self._known and word != _WORD and word != _WORDS
        reached: list[_Node[T]] = []
        for node in state.nodes:
            if node.loops:
                reached.append(node)
            star = node.children.get(_WORD)
            if star is not None:
                reached.append(star)
            if known:
                child = node.children.get(word)
                if child is not None:
                    reached.append(child)
        after = self._state(reached)
        if word in self._known:
            state.ways[word] = after
            self.cells += 1
        else:
            state.other = after
        return after

    def _state(self, reached: list[_Node[T]]) -> _State[T]:
        """The state of these nodes and of the `#` nodes that follow them without a word."""
        closed: set[_Node[T]] = set()
        for start in reached:
            node: _Node[T] | None = start
            while node is not None and node not in closed:
                closed.add(node)
                node = node.children.get(_WORDS)
        nodes = frozenset(closed)
        self.effort += len(nodes)
        state = self._states.get(nodes)
        if state is None:
            state = self._states[nodes] = _State(nodes)
            self.cells += 1 + len(nodes)
        return state


def _rebuilt(patterns: list[tuple[str, T]], max_cells: int) -> TopicMatcher[T]:
    return TopicMatcher(patterns, max_cells=max_cells)


def _words(pattern: str) -> list[str]:
    return pattern.split(".") if pattern else []
