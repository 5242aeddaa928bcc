from __future__ import annotations

import json
from typing import Any

from harebell.spark import lag, lost


class Query:
    def __init__(self, *sources: dict[str, Any]) -> None:
        self.lastProgress = {"sources": list(sources)} if sources else None


def source(end: object, latest: object) -> dict[str, Any]:
    return {"endOffset": json.dumps(end), "latestOffset": None if latest is None else json.dumps(latest)}


def test_how_far_behind() -> None:
    end = {"a": {"base": 0, "next": 70}, "b": {"base": 0, "next": 5}}
    latest = {"a": {"base": 100, "next": 100}, "b": {"base": 5, "next": 5}, "new": {"base": 8, "next": 8}}
    query = Query(source(end, latest))
    assert query.lastProgress is not None
    assert lag(query) == lag(query.lastProgress) == {"a": 30, "b": 0, "new": 0}


def test_other_sources_and_no_progress_count_nothing() -> None:
    assert lag(Query()) == lost(Query()) == {}
    assert lag(Query(source({"n": 3}, None), source(7, None))) == {}
    assert lag(Query(source({"a": {"base": 0, "next": 1}}, None))) == {}


def test_what_was_lost() -> None:
    assert lost(Query(source({"a": {"base": 0, "next": 70, "lost": 12}, "b": {"base": 0, "next": 1}}, None))) == {
        "a": 12
    }
