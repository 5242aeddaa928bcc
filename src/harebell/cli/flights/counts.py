"""The numbers that must agree: several places count the same thing, and their numbers must be equal."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Group", "agree"]


@dataclass(frozen=True, slots=True)
class Group:
    """One thing counted in several places, as pairs (place, number)."""

    what: str
    counted: tuple[tuple[str, int], ...]

    @property
    def agrees(self) -> bool:
        return len({number for _, number in self.counted}) == 1

    @property
    def difference(self) -> str:
        """The numbers that differ from the first one ("12 published, 11 in the log"); "" when all agree."""
        first, number = self.counted[0]
        others = [f"{other:,} {label}" for label, other in self.counted if other != number]
        return f"{number:,} {first}, but {', '.join(others)}" if others else ""


def agree(groups: tuple[Group, ...]) -> bool:
    return all(group.agrees for group in groups)
