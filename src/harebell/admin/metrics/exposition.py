"""The text form of Prometheus, version 0.0.4: families of samples.

Written here and not by prometheus_client, whose writer takes some 10 microseconds a sample, all of them in one go: with
10,000 queues the broker's loop would stand still for a second. Samples are added as lines, and `encoding` joins them in
steps. The tests read what is written by prometheus_client's parser.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from harebell.broker.counts import Histogram
from harebell.routing.steps import Steps

__all__ = ["MEDIA", "Family", "Kind", "Page", "kind_of", "labels"]

MEDIA: Final = "text/plain; version=0.0.4; charset=utf-8"
STEP: Final = 4096  # lines joined in one step

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]

_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def labels(**values: str) -> str:
    """Labels as a sample has them, in braces."""
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in values.items()) + "}"


def kind_of(name: str) -> Kind:
    """What a name says: a counter ends with _total."""
    return "counter" if name.endswith("_total") else "gauge"


class Family:
    """The samples of one name."""

    __slots__ = ("about", "kind", "lines", "name")

    def __init__(self, name: str, kind: Kind, about: str) -> None:
        self.name, self.kind, self.about = name, kind, about
        self.lines: list[str] = []

    def add(self, value: float, labels: str = "") -> None:
        """A sample; its labels have the braces (`labels`)."""
        self.lines.append(f"{self.name}{labels} {value}\n")

    def add_histogram(self, histogram: Histogram) -> None:
        """The buckets, the sum and the number of values."""
        below = 0
        for bound, count in zip((*histogram.bounds, "+Inf"), histogram.counts, strict=True):
            below += count
            self.lines.append(f'{self.name}_bucket{{le="{bound}"}} {below}\n')
        self.lines.append(f"{self.name}_sum {histogram.total}\n{self.name}_count {below}\n")


class Page:
    """What one request gets: the families in the order in which they were first asked for.

    prefix  what all names begin with
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._families: dict[str, Family] = {}

    def family(self, name: str, kind: Kind, about: str) -> Family:
        """The family of that name below the prefix. The name of a counter ends with _total, or the page is invalid."""
        whole = self.prefix + name
        found = self._families.get(whole)
        if found is None:
            found = self._families[whole] = Family(whole, kind, about)
        return found

    def encoding(self) -> Steps[list[bytes]]:
        """The page in pieces, once: its samples are gone then. A family without samples is left out."""
        pieces = []
        for family in self._families.values():
            if not family.lines:
                continue
            head = f"# HELP {family.name} {family.about}\n# TYPE {family.name} {family.kind}\n"
            pieces.append(head.encode())
            for start in range(0, len(family.lines), STEP):
                pieces.append("".join(family.lines[start : start + STEP]).encode("utf-8", "replace"))
                yield
            family.lines = []  # freed here, and not all lines of a page at its end
            yield
        return pieces
