"""The page on middlewares has every hook, as the code has it."""

from __future__ import annotations

from pathlib import Path

from harebell.client.middleware.hooks import HOOKS
from harebell.client.middleware.registry import FEATURES

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "middleware.md").read_text("utf-8")


def table(first_column: str) -> list[list[str]]:
    lines = PAGE[PAGE.index(f"| {first_column} |") :].splitlines()
    rows = lines[2 : next(at for at, line in enumerate(lines) if not line.startswith("|"))]
    return [[cell.strip().strip("`") for cell in row.strip("|").split("|")] for row in rows]


def test_the_table_of_hooks() -> None:
    told = {hook: (original, levels, kind, record) for original, hook, levels, kind, record, _ in table("original")}
    assert told == {
        hook.name: (
            hook.original,
            " and ".join(hook.levels),
            hook.kind,
            hook.record.__name__ if isinstance(hook.record, type) else "an event of `harebell.events",
        )
        for hook in HOOKS.values()
    }


def test_the_table_of_features() -> None:
    assert {row[0] for row in table("feature")} == set(FEATURES)
