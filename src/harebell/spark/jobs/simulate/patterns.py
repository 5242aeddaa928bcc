"""Which of many topic patterns match which of many keys: the keys of a batch go through the patterns' trie at once.

Rules: those of `harebell.routing.exchanges.topic_matcher`, whose trie this walks, node by node as its automaton does; a
test holds the two together on random patterns and keys.

Theory of operation. The automaton of `TopicMatcher` pays off when its states come again. Of 200,000 keys that come once
most states are new, and a state costs more than a key. Here no states are made: the keys' words become numbers, and one
step of numpy takes all keys a word further, as pairs (prefix of keys, node that it reaches). Keys that begin alike are
one prefix as long as that is worth finding out. A node that nothing leaves is dropped, once its values are noted.

The pairs of one batch are bounded by MAX_PAIRS; `TooMany` tells the caller to give the keys in smaller batches.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harebell.routing.exchanges.topic_matcher import TopicMatcher
from harebell.spark.jobs.simulate.totals import Numbers

__all__ = ["MAX_PAIRS", "Patterns", "TooMany", "expanded"]

MAX_PAIRS: Final = 2_000_000  # some 100 MB while a step lasts
DENSE_CELLS: Final = 4_000_000  # of a table node x word, 32 MB; beyond it the edges are searched


class TooMany(Exception):
    """These keys reach too many nodes, or bindings, to be held at once."""


class Patterns:
    """The patterns of a matcher of numbers, each with one pattern, laid out for batches."""

    def __init__(self, matcher: TopicMatcher[int]) -> None:
        trie = matcher.trie()
        words: dict[str, int] = {}
        edges: list[tuple[int, int, int]] = []
        size = len(trie)
        self._star, self._more, self._loops = np.full(size, -1), np.full(size, -1), np.zeros(size, bool)
        for node, (children, _) in enumerate(trie):
            for word, child in children.items():
                if word == "*":
                    self._star[node] = child
                elif word == "#":
                    self._more[node] = child
                    self._loops[child] = True
                else:
                    edges.append((node, words.setdefault(word, len(words)), child))
        self._size = size
        self._words = pa.array(list(words), pa.string())
        self._unknown = len(words)  # the number of every word that no pattern has
        nodes, labels, after = np.array(edges, np.int64).reshape(-1, 3).T
        codes = nodes * (self._unknown + 1) + labels
        order = np.argsort(codes)
        # one more that no code reaches, so that a search always ends at one
        self._codes = np.append(codes[order], size * (self._unknown + 1))
        self._children = np.append(after[order], -1)
        self._table: Numbers | None = None
        if size * (self._unknown + 1) <= DENSE_CELLS:
            self._table = np.full(size * (self._unknown + 1), -1)
            self._table[codes] = after
        literal = np.zeros(size, bool)
        literal[nodes] = True
        self._left = literal | (self._star >= 0) | self._loops  # a next word leads somewhere; `#` was followed already
        self._lengths = np.array([len(values) for _, values in trie])
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._values = np.array([value for _, values in trie for value in values], np.int64)
        self._again = _below_loops(trie)

    def match(self, keys: pa.StringArray) -> tuple[Numbers, Numbers]:
        """The pairs (place of the key, value that matches it), each once, in no order. Raises TooMany for more than
        one key."""
        count = len(keys)
        words, starts, lengths = self._split(keys)
        live = np.arange(count)  # the keys that have more words
        prefix = np.zeros(count, np.int64)  # of each, at this depth
        prefixes = 1 if count else 0
        owners, nodes = self._entered(np.zeros(prefixes, np.int64), np.zeros(prefixes, np.int64), None)
        shared = True
        found: list[tuple[Numbers, Numbers]] = []
        depth = 0
        while len(live):
            ends = lengths[live] == depth
            if ends.any():
                ending, live = live[ends], live[~ends]
                found.append(self._ended(owners, nodes, prefix[ending], ending, prefixes))
                if not len(live):
                    break
            stays = self._left[nodes]
            owners, nodes = owners[stays], nodes[stays]
            if not len(nodes):
                break  # no pattern has another word
            labels = words[starts[live] + depth]
            before = prefix[live]
            if shared:
                parents, labels, prefix[live] = self._distinct(before, labels, prefixes)
                shared = 2 * len(parents) <= len(live)
            else:
                order = np.argsort(before, kind="stable")
                live, parents, labels = live[order], before[order], labels[order]
                prefix[live] = np.arange(len(live))
            first = np.searchsorted(parents, np.arange(prefixes + 1))
            prefixes = len(parents)
            owners, nodes = self._step(owners, nodes, first, labels, limit=MAX_PAIRS if count > 1 else None)
            depth += 1
        if not found:
            nothing = np.zeros(0, np.int64)
            return nothing, nothing
        return np.concatenate([at for at, _ in found]), np.concatenate([values for _, values in found])

    def _split(self, keys: pa.StringArray) -> tuple[Numbers, Numbers, Numbers]:
        """The numbers of all keys' words, where each key's begin, and how many it has."""
        split = pc.split_pattern(keys, ".")
        words = pc.fill_null(pc.index_in(split.flatten(), value_set=self._words), self._unknown)
        offsets = split.offsets.to_numpy()
        lengths = np.diff(offsets)
        lengths[pc.equal(keys, "").to_numpy(zero_copy_only=False)] = 0
        return words.to_numpy(zero_copy_only=False).astype(np.int64), (offsets[:-1] - offsets[0]), lengths

    def _distinct(self, before: Numbers, labels: Numbers, prefixes: int) -> tuple[Numbers, Numbers, Numbers]:
        """The distinct prefixes, one word longer: their parents (sorted) and last words; and which one each key has."""
        base = self._unknown + 1
        codes = before * base + labels
        if prefixes * base <= 16 * len(codes):
            there = np.zeros(prefixes * base, bool)
            there[codes] = True
            distinct = np.flatnonzero(there)
            number = np.empty(prefixes * base, np.int64)
            number[distinct] = np.arange(len(distinct))
            places = number[codes]
        else:
            distinct, places = np.unique(codes, return_inverse=True)
        parents = distinct // base
        return parents, distinct - parents * base, places

    def _step(
        self, owners: Numbers, nodes: Numbers, first: Numbers, labels: Numbers, limit: int | None
    ) -> tuple[Numbers, Numbers]:
        """The pairs a word further: prefix p goes on as the prefixes first[p] to first[p + 1], by these words."""
        begin = first[owners]
        counts = first[owners + 1] - begin
        if limit is not None and counts.sum() > limit:
            raise TooMany
        rows, after = expanded(begin, counts)
        here = nodes[rows]
        loops = self._loops[here]
        star = self._star[here]
        starred = star >= 0
        codes = here * (self._unknown + 1) + labels[after]
        if self._table is not None:
            child = self._table[codes]
            known = child >= 0
            known_after, child = after[known], child[known]
        else:
            places = np.searchsorted(self._codes, codes)
            known = self._codes[places] == codes
            known_after, child = after[known], self._children[places[known]]
        new = np.concatenate([after[starred], known_after]), np.concatenate([star[starred], child])
        return self._entered(*new, (after[loops], here[loops]))

    def _entered(
        self, owners: Numbers, nodes: Numbers, looping: tuple[Numbers, Numbers] | None
    ) -> tuple[Numbers, Numbers]:
        """These pairs, those that stay where they are, and the `#` that follow without a word; each pair once."""
        parts = [(owners, nodes)]
        stay = np.zeros(0, np.int64)
        if looping is not None and len(looping[0]):
            parts.append(looping)
            again = self._again[looping[1]]
            stay = np.sort(looping[0][again] * self._size + looping[1][again])
        while True:
            more = self._more[nodes]
            there = more >= 0
            if not there.any():
                break
            owners, nodes = owners[there], more[there]
            if len(stay):  # what follows one that stays, stays too
                codes = owners * self._size + nodes
                fresh = stay[np.minimum(np.searchsorted(stay, codes), len(stay) - 1)] != codes
                owners, nodes = owners[fresh], nodes[fresh]
            parts.append((owners, nodes))
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([each for each, _ in parts]), np.concatenate([each for _, each in parts])

    def _ended(
        self, owners: Numbers, nodes: Numbers, prefix: Numbers, keys: Numbers, prefixes: int
    ) -> tuple[Numbers, Numbers]:
        """The pairs (key, value) of the keys that end here, with these prefixes."""
        ending = np.zeros(prefixes, bool)
        ending[prefix] = True
        counts = self._lengths[nodes]
        chosen = np.flatnonzero((counts > 0) & ending[owners])
        chosen = chosen[np.argsort(owners[chosen], kind="stable")]
        rows, places = expanded(self._starts[nodes[chosen]], counts[chosen])
        values = self._values[places]
        first = np.searchsorted(owners[chosen][rows], np.arange(prefixes + 1))
        counts = first[prefix + 1] - first[prefix]
        if len(keys) > 1 and counts.sum() > MAX_PAIRS:
            raise TooMany
        rows, places = expanded(first[prefix], counts)
        return keys[rows], values[places]


def expanded(starts: Numbers, counts: Numbers) -> tuple[Numbers, Numbers]:
    """Every range start, start + 1, ... of so many numbers, one after the other: whose each is, and the numbers."""
    rows = np.repeat(np.arange(len(counts)), counts)
    return rows, np.arange(len(rows)) + np.repeat(starts - np.cumsum(counts) + counts, counts)


def _below_loops(trie: list[tuple[dict[str, int], tuple[int, ...]]]) -> Numbers:
    """The nodes that can be entered while a key is in them already: those below a `#`."""
    below = np.zeros(len(trie), bool)
    loops = np.zeros(len(trie), bool)
    for node, (children, _) in enumerate(trie):  # parents come before children
        for word, child in children.items():
            below[child] = below[node] or loops[node]
            loops[child] = word == "#"
    return below
