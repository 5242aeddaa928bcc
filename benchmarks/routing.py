"""Routing keys per second with 1,000 topic bindings: the automaton beside naive matching, ratios first.

    python benchmarks/routing.py [--bindings 1000] [--queues 300] [--keys 20000] [--seconds 2]

Naive matching compares a key with every binding in turn, word by word; the regular expressions are one compiled
pattern a binding. "Cold" builds the automaton's states as it runs, "warm" finds them built; both include splitting the
key.
Answers are compared before anything is timed.
"""

from __future__ import annotations

import argparse
import platform
import random
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from harebell.routing import Router, TopicMatcher, to_queue

WORDS = [f"w{number}" for number in range(60)]


def made_patterns(count: int, queues: int, chance: random.Random) -> list[tuple[str, str]]:
    """Patterns of two to five words, a fifth of them wild, over a known vocabulary."""
    patterns: dict[tuple[str, str], None] = {}
    while len(patterns) < count:
        words = [
            "*" if (dice := chance.random()) < 0.12 else "#" if dice < 0.2 else chance.choice(WORDS)
            for _ in range(chance.randint(2, 5))
        ]
        if any(word not in "*#" for word in words):
            patterns[".".join(words), f"q{chance.randrange(queues)}"] = None
    return list(patterns)


def made_keys(count: int, chance: random.Random) -> list[str]:
    """Keys of two to five words; one word in ten is in no pattern."""
    return [
        ".".join(
            f"unknown{chance.randrange(10**6)}" if chance.random() < 0.1 else chance.choice(WORDS)
            for _ in range(chance.randint(2, 5))
        )
        for _ in range(count)
    ]


def naive(patterns: Sequence[tuple[str, str]]) -> Callable[[str], set[str]]:
    split = [(pattern.split("."), queue) for pattern, queue in patterns]

    def matches(pattern: list[str], at: int, words: list[str], of: int) -> bool:
        while at < len(pattern):
            word = pattern[at]
            if word == "#":
                return any(matches(pattern, at + 1, words, after) for after in range(of, len(words) + 1))
            if of == len(words) or word not in ("*", words[of]):
                return False
            at, of = at + 1, of + 1
        return of == len(words)

    def match(key: str) -> set[str]:
        words = key.split(".") if key else []
        return {queue for pattern, queue in split if matches(pattern, 0, words, 0)}

    return match


def regular_expressions(patterns: Sequence[tuple[str, str]]) -> Callable[[str], set[str]]:
    def compiled(pattern: str) -> re.Pattern[str]:
        # every word is written with a dot before it, in the key too, so that `#` may stand for none
        parts = {"*": r"\.[^.]*", "#": r"(?:\.[^.]*)*"}
        return re.compile("".join(parts.get(word, re.escape("." + word)) for word in pattern.split(".")))

    made = [(compiled(pattern).fullmatch, queue) for pattern, queue in patterns]
    return lambda key: {queue for match, queue in made if match("." + key)}


def rate(work: Callable[[str], object], keys: Sequence[str], seconds: float) -> float:
    """Keys a second, over whole chunks of keys until the time is up."""
    done, start = 0, perf_counter()
    while True:
        for key in keys[done % len(keys) : done % len(keys) + 100]:
            work(key)
        done += 100
        if (spent := perf_counter() - start) >= seconds:
            return done / spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bindings", type=int, default=1000)
    parser.add_argument("--queues", type=int, default=300)
    parser.add_argument("--keys", type=int, default=20_000, help="distinct keys, a multiple of 100")
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each row")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    patterns = made_patterns(options.bindings, options.queues, chance)
    keys = made_keys(options.keys, chance)

    matcher = TopicMatcher(patterns)
    router = Router()
    for queue in dict.fromkeys(queue for _, queue in patterns):
        router.add_queue(queue)
    for pattern, queue in patterns:
        router.bind("amq.topic", to_queue(queue), pattern)
    by_words, by_expressions = naive(patterns), regular_expressions(patterns)
    for key in keys[:1000]:
        expected = by_words(key)
        assert set(matcher.match(key)) == expected == by_expressions(key), key
        assert set(router.route("amq.topic", key).queues) == expected, key
    per_key = sum(len(matcher.match(key)) for key in keys) / len(keys)

    cold_matcher = TopicMatcher(patterns)
    start = perf_counter()
    for key in keys:
        cold_matcher.match(key)
    cold = len(keys) / (perf_counter() - start)
    base = rate(by_words, keys, options.seconds)
    rows = [
        ("naive, word by word", base),
        ("1 regular expression a binding", rate(by_expressions, keys, options.seconds)),
        ("automaton, cold", cold),
        ("automaton, warm", rate(matcher.match, keys, options.seconds)),
        ("Router.route, warm", rate(lambda key: router.route("amq.topic", key), keys, options.seconds)),
    ]
    print(f"{len(patterns)} bindings, {options.queues} queues, {len(keys)} keys, {per_key:.1f} queues a key, ", end="")
    print(f"{matcher.cells} cells; Python {platform.python_version()}, {platform.machine()}")
    print(f"{'':32}{'x naive':>10}{'keys/s':>12}")
    for name, value in rows:
        print(f"{name:32}{value / base:>10.1f}{value:>12,.0f}")


if __name__ == "__main__":
    main()
