from __future__ import annotations

import pickle

import pytest
from hypothesis import given, strategies as st

from harebell.routing.exchanges.topic_matcher import MAX_DFA_CELLS, TopicMatcher
from tests.routing.naive import topic_matches

PROBED = [  # pattern, key, matches: what RabbitMQ answers
    ("", "", True),
    ("#", "", True),
    ("#.#", "", True),
    ("*", "", False),
    ("*.#", ".", True),
    ("*.*", ".", True),
    ("*", ".", False),
    ("a.#.b", "a..b", True),
    ("#.b", "a..b", True),
    ("a.*", "a..b", False),
    ("a.*.b", "a..b", True),
    ("a.#", "a", True),
    ("#.a", "a", True),
    ("#.a.#", "a", True),
    ("a.#", "b", False),
    ("a", "a.b", False),
    ("a.b", "a", False),
    ("*.b", "a.b", True),
    ("#.*", "a", True),
    ("#.*", "", False),
    ("#.*.#", "a.b.c", True),
    ("a.#.#.b", "a.b", True),
    ("*", "*", True),
    ("#", "#", True),
    ("a.*", "a.#", True),
    ("ä.#", "ä.ö", True),
]


@pytest.mark.parametrize("pattern, key, matches", PROBED)
def test_one_pattern(pattern: str, key: str, matches: bool) -> None:
    assert TopicMatcher([(pattern, "q")]).match(key) == (("q",) if matches else ())
    assert topic_matches(pattern, key) is matches  # the naive matcher is held to the same table


def test_values_come_once_and_oldest_first() -> None:
    matcher = TopicMatcher([("z.#", "third"), ("#", "first"), ("*", "third"), ("z", "second")])
    assert matcher.match("z") == ("third", "first", "second")
    assert matcher.match("y") == ("first", "third")
    assert matcher.match("y.y") == ("first",)


def test_a_pair_added_twice_is_removed_twice() -> None:
    matcher = TopicMatcher([("a", 1), ("a", 1)])
    assert matcher.patterns == 1
    assert matcher.remove("a", 1)
    assert matcher.match("a") == (1,)
    assert matcher.remove("a", 1)
    assert matcher.match("a") == ()
    assert matcher.patterns == 0
    assert not matcher.remove("a", 1)


def test_removing_what_is_not_there() -> None:
    matcher = TopicMatcher([("a.b", 1)])
    assert not matcher.remove("a", 1)  # a node of the trie, but no pattern ends here
    assert not matcher.remove("a.b.c", 1)
    assert not matcher.remove("a.b", 2)
    assert matcher.match("a.b") == (1,)


def test_removing_a_longer_pattern_keeps_the_shorter() -> None:
    matcher = TopicMatcher([("a", 1), ("a.b.c", 2), ("a.b", 3)])
    assert matcher.remove("a.b.c", 2)
    assert (matcher.match("a"), matcher.match("a.b"), matcher.match("a.b.c")) == ((1,), (3,), ())
    assert matcher.remove("a", 1)
    assert matcher.match("a.b") == (3,)


def test_unknown_words_do_not_grow_the_automaton() -> None:
    matcher = TopicMatcher([("a.#", 1), ("*.b.*", 2), ("#.c", 3)])
    for word in ("a", "b", "c", "x"):
        for after in ("a", "b", "c", "x"):
            for last in ("a", "b", "c", "x"):
                matcher.match(f"{word}.{after}.{last}")
    size = matcher.cells
    for number in range(1000):
        assert matcher.match(f"a.{number}.c") == (1, 3)
        assert matcher.match(f"{number}.b.{number}") == (2,)
    assert matcher.cells == size


def test_the_automaton_stays_under_its_cap() -> None:
    patterns = [(f"#.{word}.#", word) for word in "abcdefgh"]  # 2**8 sets of words seen
    roomy, tight = TopicMatcher(patterns), TopicMatcher(patterns, max_cells=100)
    for number in range(2**8):
        words = [word for bit, word in enumerate("abcdefgh") if number >> bit & 1]
        key = ".".join(words)
        assert set(roomy.match(key)) == set(tight.match(key)) == set(words)
        assert tight.cells < 100 + 11  # under the cap, a step may still add a state, its nine nodes and the way to it
    assert 100 < roomy.cells <= MAX_DFA_CELLS


def test_a_cap_below_one_state_still_matches() -> None:
    matcher = TopicMatcher([("a.b", 1), ("c.#", 2)], max_cells=1)
    assert matcher.match("a.b") == (1,)
    assert matcher.match("c.d") == (2,)
    assert matcher.match("d") == ()


def test_a_pickled_matcher_is_the_same_and_carries_no_states() -> None:
    matcher = TopicMatcher([("#.b", "later"), ("", "empty"), (".", "dot"), ("a.*", "twice"), ("a.*", "twice")])
    fresh = len(pickle.dumps(matcher))
    for number in range(100):
        matcher.match(f"a.b.{number}")
    assert len(pickle.dumps(matcher)) == fresh
    twin = pickle.loads(pickle.dumps(matcher))
    for key in ("", ".", "a.b", "b"):
        assert twin.match(key) == matcher.match(key)
    assert twin.remove("a.*", "twice")
    assert twin.match("a.c") == ("twice",)
    assert twin.patterns == 4


words = st.sampled_from(["a", "b", "c", ""])
keys = st.lists(st.one_of(words, st.sampled_from(["x", "*", "#"])), max_size=5).map(".".join)
patterns = st.lists(st.one_of(words, st.sampled_from(["*", "#"])), max_size=5).map(".".join)
changes = st.lists(
    st.tuples(st.sampled_from(["add", "add", "remove"]), patterns, st.integers(0, 3), keys), min_size=1, max_size=30
)


@given(changes, st.sampled_from([3, 20, MAX_DFA_CELLS]))
def test_it_agrees_with_the_naive_matcher_while_patterns_come_and_go(
    steps: list[tuple[str, str, int, str]], max_cells: int
) -> None:
    matcher: TopicMatcher[int] = TopicMatcher(max_cells=max_cells)
    held: list[tuple[str, int]] = []
    for verb, pattern, value, key in steps:
        if verb == "add":
            matcher.add(pattern, value)
            held.append((pattern, value))
        else:
            # half of the time something that is held, so that removals do happen
            pair = held[len(held) // 2] if held and value % 2 else (pattern, value)
            assert matcher.remove(*pair) is (pair in held)
            if pair in held:
                held.remove(pair)
        found = matcher.match(key)
        assert len(found) == len(set(found))
        assert set(found) == {value for pattern, value in held if topic_matches(pattern, key)}
        assert matcher.patterns == len(set(held))


@given(st.lists(patterns, max_size=8, unique=True), st.lists(keys, max_size=8))
def test_values_keep_the_order_of_their_patterns(made: list[str], asked: list[str]) -> None:
    matcher = TopicMatcher([(pattern, pattern) for pattern in made])
    for key in asked:
        assert list(matcher.match(key)) == [pattern for pattern in made if topic_matches(pattern, key)]


def test_the_patterns_as_a_trie() -> None:
    matcher = TopicMatcher([("a.*", 1), ("", 2), ("a.#.b", 3), ("a.*", 4), ("c", 5)])
    matcher.remove("c", 5)
    made = matcher.trie()
    nodes = [({word: made[child][1] for word, child in children.items()}, values) for children, values in made]
    assert nodes == [
        ({"a": ()}, (2,)), ({"*": (1, 4), "#": ()}, ()), ({}, (1, 4)), ({"b": (3,)}, ()), ({}, (3,)),
    ]  # fmt: skip
    assert TopicMatcher[int]().trie() == [({}, ())]
