"""Locks of files: who is refused, who waits, and that a lock ends with its block."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harebell.errors import InvalidArgument
from harebell.spark.file_locks import held_if_free, held_or_refused, held_when_free


def test_who_does_not_wait_is_refused_while_another_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with held_or_refused(path, "first"), pytest.raises(InvalidArgument, match="busy"), held_or_refused(path, "busy"):
        pass
    with held_when_free(path), pytest.raises(InvalidArgument, match="busy"), held_or_refused(path, "busy"):
        pass
    with held_if_free(path) as first, held_if_free(path) as second:
        assert (first, second) == (True, False)
    with held_or_refused(path, "free again"):
        pass


def test_who_waits_gets_it_when_the_other_has_ended(tmp_path: Path) -> None:
    path, order = tmp_path / "lock", list[str]()

    def second() -> None:
        with held_when_free(path):
            order.append("second")

    with ThreadPoolExecutor(1) as pool:
        with held_when_free(path):
            waiting = pool.submit(second)
            with pytest.raises(TimeoutError):
                waiting.result(0.2)
            order.append("first")
        waiting.result(60)
    assert order == ["first", "second"]
