"""The stored state of a replay: its plan, and the progress of each task. Plain values in files; no Spark.

    <archive>/_archive/replays/<name>/plan.json       what was asked for, and what it came to
    <archive>/_archive/replays/<name>/<task>.json     how many messages of that task are confirmed
                                      <task>.lock     held by the one attempt at that task that publishes
                                      lock            held by the one process that runs the replay

Rules: the rows of a replay and their order are fixed when it is planned (a row that the archive gets later is not in
it), so a number of confirmed messages says where to go on. It is written after each chunk is confirmed: what a crash
leaves uncertain is at most one chunk a task.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from harebell.errors import InvalidArgument
from harebell.spark.file_locks import held_or_refused, held_when_free
from harebell.spark.jobs.archive.layout import OWN
from harebell.spark.jobs.archive.selection import Selection
from harebell.synced_files import make_folder, replace_file

__all__ = ["Ledger", "Pace", "QueuePlan", "ReplayPlan", "State", "Target"]

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class Target:
    """Where messages are published: to this exchange and key, or (None) to those they were published with."""

    exchange: str | None = None
    routing_key: str | None = None
    mandatory: bool = True


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast: at most `rate` messages a second, or `speed` times as fast as they came; neither: as fast as can be."""

    rate: float | None = None
    speed: float | None = None

    def __post_init__(self) -> None:
        if self.rate is not None and self.speed is not None:
            raise InvalidArgument("a replay goes at a rate or at a speed, not both")
        for name, value in (("rate", self.rate), ("speed", self.speed)):
            if value is not None and not 0 < value < math.inf:
                raise InvalidArgument(f"{name} is {value}, and must be a number of more than 0")


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """One queue's share: `rows` messages, of those that had been archived by `until` (Unix µs), in task `task`."""

    rows: int
    until: int
    task: int


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """The fixed plan of a replay."""

    archive: str
    selection: Selection
    target: Target
    pace: Pace
    tasks: int
    queues: dict[str, QueuePlan] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(queue.rows for queue in self.queues.values())

    def rows_of(self, task: int) -> int:
        return sum(queue.rows for queue in self.queues.values() if queue.task == task)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "selection": self.selection.to_json()}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        return cls(
            values["archive"],
            Selection.from_json(values["selection"]),
            Target(**values["target"]),
            Pace(**values["pace"]),
            values["tasks"],
            {name: QueuePlan(**queue) for name, queue in values["queues"].items()},
        )


class Ledger:
    """The progress of one task. `repeated` are messages that were published again after a lost connection.

    Whoever adds to it holds it (`State.ledger`): the counts are read once.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            known = json.loads(path.read_text())
        except FileNotFoundError:
            known = {"confirmed": 0, "repeated": 0}
        self.confirmed: int = known["confirmed"]
        self.repeated: int = known["repeated"]

    def add(self, confirmed: int, repeated: int) -> None:
        """Adds to the counts; they are on disk when it returns."""
        self.confirmed += confirmed
        self.repeated += repeated
        _write(self._path, {"confirmed": self.confirmed, "repeated": self.repeated})


class State:
    """The folder of one replay. Raises InvalidArgument for a name that is no file name."""

    def __init__(self, archive: Path, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise InvalidArgument(f"{name!r} is no name for a replay: letters, digits, '-', '_' and '.' are allowed")
        self.folder = archive / OWN / "replays" / name
        self.name = name

    def create(self, plan: ReplayPlan) -> None:
        """Writes the plan. Raises InvalidArgument when a replay of that name is there."""
        try:
            make_folder(self.folder, exist_ok=False)
        except FileExistsError:
            raise InvalidArgument(f"there is a replay '{self.name}' already; resume it, or give another name") from None
        _write(self.folder / "plan.json", plan.to_json())

    def plan(self) -> ReplayPlan:
        """The stored plan. Raises InvalidArgument when the replay does not exist."""
        try:
            return ReplayPlan.from_json(json.loads((self.folder / "plan.json").read_text()))
        except FileNotFoundError:
            known = ", ".join(sorted(each.name for each in self.folder.parent.glob("*"))) or "none"
            raise InvalidArgument(f"there is no replay '{self.name}' to go on with; known here: {known}") from None

    def held(self) -> AbstractContextManager[None]:
        """Holds the replay for this process. Raises InvalidArgument when another process runs it."""
        return held_or_refused(
            self.folder / "lock",
            f"replay '{self.name}' is running in another process: wait for its end, or stop it, and resume it then",
        )

    @contextmanager
    def ledger(self, task: int) -> Iterator[Ledger]:
        """The ledger of a task for one of its attempts; another one waits, and then goes on behind what this one did.

        Spark begins a second attempt while the first one runs, for speed (speculation) or because it lost sight of it.
        """
        with held_when_free(self.folder / f"{task}.lock"):
            yield Ledger(self._ledger_path(task))

    def ledgers(self, tasks: int) -> list[Ledger]:
        """The progress of all tasks as it is now, to be read only."""
        return [Ledger(self._ledger_path(task)) for task in range(tasks)]

    def confirmed(self, tasks: int) -> int:
        return sum(ledger.confirmed for ledger in self.ledgers(tasks))

    def _ledger_path(self, task: int) -> Path:
        return self.folder / f"{task}.json"


def _write(path: Path, values: dict[str, Any]) -> None:
    replace_file(path, [json.dumps(values)])
