"""`--seed` gives a random order of tests, the same for a seed, in which folders and files stay together."""

from __future__ import annotations

from itertools import groupby

from tests.fixtures.order import place

TESTS = [
    f"tests/{folder}/test_{file}.py::{test}" for folder in "abcdef" for file in "uvwxyz" for test in ("1", "2[x::y]")
]


def drawn(seed: int, tests: list[str] = TESTS) -> list[str]:
    return sorted(tests, key=lambda test: place(seed, test))


def test_each_seed_draws_another_order_and_the_same_one_again() -> None:
    orders = {tuple(drawn(seed)) for seed in range(20)}
    assert len(orders) == 20
    assert drawn(7, TESTS[::-1]) == drawn(7)


def test_tests_of_a_folder_or_file_stay_together() -> None:
    for depth in (2, 3):
        runs = [key for key, _ in groupby(drawn(3), key=lambda test: test.partition("::")[0].split("/")[:depth])]
        assert len(runs) == 6 ** (depth - 1)


def test_the_order_of_two_does_not_depend_on_others() -> None:
    few = TESTS[5::9]
    assert [test for test in drawn(4) if test in few] == drawn(4, few)
