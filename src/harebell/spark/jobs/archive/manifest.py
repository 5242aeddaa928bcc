"""The log of a Parquet archive: which data files count, one JSON file a commit.

    _archive/log/000000000064.state.json the state before the next one
    _archive/log/000000000128.state.json everything up to commit 128; the commits that it covers are deleted
    _archive/log/000000000129.json       commit 129: files added, files removed, the writer

Rules: a commit's file is on disk under another name and linked to its number; os.link fails when the number is taken,
so of two writers one wins and the other looks again. What a reader sees is the state after some commit, never half of
one.

A state is on disk before a commit that it covers is deleted, so a kill at any point leaves a state (or the beginning)
and every commit behind it. A number is free again once its commit is deleted. Hence two rules for those who were slow:
a reader begins anew when there is a later state than the one it began with; a writer that has linked its commit looks
for a state of that number or a later one, and commits again where that state lacks the commit. The state before the
last one stays, so that a listing of the folder finds one of the two, even if it is not made at one instant.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from harebell.errors import DataLoss
from harebell.spark.jobs.archive.layout import ORPHAN_SECONDS, OWN, DataFile, Format, Written, data_file
from harebell.synced_files import make_file, make_folder, replace_file

__all__ = ["Manifest"]

STATE_EVERY: Final = 64  # commits
COMMIT: Final = ".json"  # the end of a file's name, behind its number
STATE: Final = ".state.json"
_DIGITS: Final = 12
_FILE: Final = re.compile(rf"([0-9]{{{_DIGITS},}})({re.escape(STATE)}|{re.escape(COMMIT)})")


@dataclass(slots=True)
class State:
    """The archive after commit `version` (0: none yet). `removed` tells when a file was exchanged (Unix time)."""

    version: int = 0
    files: dict[str, DataFile] = field(default_factory=dict)
    writers: dict[str, Written] = field(default_factory=dict)
    removed: dict[str, float] = field(default_factory=dict)

    def apply(self, commit: dict[str, Any]) -> None:
        for path in commit["remove"]:
            del self.files[path]
            self.removed[path] = commit["at"]
        rows = 0
        for path, count, size in commit["add"]:
            self.files[path] = data_file(path, count, size)
            rows += count
        if commit["writer"] is not None:
            before = self.writers.get(commit["writer"])
            total = rows + (before.total if before else 0)
            self.writers[commit["writer"]] = Written(commit["batch"], rows, total)
        self.version = commit["version"]

    def has(self, commit: dict[str, Any]) -> bool:
        """Whether that commit counts in it: its batch, and its files, of which some may be exchanged again."""
        if commit["writer"] is not None:
            written = self.writers.get(commit["writer"])
            if written is None or written.batch < commit["batch"]:
                return False
        return all(path in self.files or path in self.removed for path, _, _ in commit["add"])

    def to_json(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "files": [[file.path, file.rows, file.size] for file in self.files.values()],
            "writers": {name: [w.batch, w.rows, w.total] for name, w in self.writers.items()},
            "removed": self.removed,
        }

    @classmethod
    def from_json(cls, text: dict[str, Any]) -> State:
        return cls(
            text["version"],
            {path: data_file(path, rows, size) for path, rows, size in text["files"]},
            {name: Written(*numbers) for name, numbers in text["writers"].items()},
            text["removed"],
        )


class Manifest:
    """The table of a Parquet archive. `step` is a test's place to crash: it is called with the name of each step."""

    format: Format = "parquet"

    def __init__(self, root: Path, step: Callable[[str], None] = lambda name: None) -> None:
        self.root = root
        self._log = root / OWN / "log"
        self._step = step

    @classmethod
    def make(cls, root: Path) -> Self:
        """The archive in that folder, made where there is none."""
        make_folder(root / OWN / "log")
        return cls(root)

    def files(self) -> list[DataFile]:
        return sorted(self.state().files.values())

    def written(self, writer: str) -> Written | None:
        return self.state().writers.get(writer)

    def expired(self, seconds: float) -> list[str]:
        before = time.time() - seconds
        return sorted(path for path, at in self.state().removed.items() if at <= before)

    def forget(self, seconds: float) -> None:
        """Nothing: each state drops the commits that it covers, and the names of files that were deleted."""

    def add(self, files: Sequence[DataFile], writer: str, batch: int) -> bool:
        def commit(state: State) -> dict[str, Any] | None:
            last = state.writers.get(writer)
            if last is not None and last.batch >= batch:
                return None
            return {"writer": writer, "batch": batch, "remove": [], "add": _listed(files)}

        return self._commit(commit)

    def replace(self, old: Sequence[DataFile], new: Sequence[DataFile]) -> None:
        def commit(state: State) -> dict[str, Any]:
            gone = [file.path for file in old if state.files.get(file.path) != file]
            if gone:
                raise DataLoss(f"{gone[0]} was exchanged or removed meanwhile; nothing was changed here")
            return {"writer": None, "batch": None, "remove": [file.path for file in old], "add": _listed(new)}

        self._commit(commit)

    def state(self) -> State:
        """The archive as it is now. Raises DataLoss when the log lacks a commit or its state."""
        while True:
            commits, states = self._numbers()
            newest = states[-1] if states else 0
            self._step("listed")
            state, behind = self._read(newest)
            if self._numbers()[1] == states:
                break  # nothing was deleted while it was read
        last = max(commits, default=0)
        if state is None or newest + len(behind) < last:
            missing = _name(newest, STATE) if state is None else _name(newest + len(behind) + 1)
            raise DataLoss(f"{self._log} lacks {missing}, though it has later commits: put the file back from a backup")
        for commit in behind:
            state.apply(commit)
        return state

    def _numbers(self) -> tuple[list[int], list[int]]:
        """The numbers of the commits and of the states, in their order."""
        found = [match for path in self._log.iterdir() if (match := _FILE.fullmatch(path.name)) is not None]
        commits = sorted(int(match[1]) for match in found if match[2] == COMMIT)
        return commits, sorted(int(match[1]) for match in found if match[2] == STATE)

    def _read(self, number: int) -> tuple[State | None, list[dict[str, Any]]]:
        """A state, None if it is deleted, and the commits behind it."""
        try:
            state = State.from_json(self._content(_name(number, STATE))) if number else State()
        except FileNotFoundError:
            return None, []
        behind: list[dict[str, Any]] = []
        try:
            while True:
                behind.append(self._content(_name(number + len(behind) + 1)))
        except FileNotFoundError:
            return state, behind

    def _content(self, name: str) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self._log / name).read_text())
        return content

    def _commit(self, make: Callable[[State], dict[str, Any] | None]) -> bool:
        while True:
            state = self.state()
            commit = make(state)
            if commit is None:
                return False
            version = commit["version"] = state.version + 1
            commit["at"] = time.time()
            self._step("commit")
            if not make_file(self._log / _name(version), [_text(commit)]):
                continue
            self._step("committed")
            if any(number >= version for number in self._numbers()[1]):
                if not self.state().has(commit):
                    continue  # the number was taken once, and free again
            elif version % STATE_EVERY == 0:
                state.apply(commit)
                self._sum_up(state)
            return True

    def _sum_up(self, state: State) -> None:
        """Write a state, then delete what it covers."""
        state.removed = {path: at for path, at in state.removed.items() if (self.root / path).exists()}
        replace_file(self._log / _name(state.version, STATE), [_text(state.to_json())])
        self._step("summed up")
        commits, states = self._numbers()
        covered = [_name(number) for number in commits if number <= state.version]
        covered += [_name(number, STATE) for number in [number for number in states if number <= state.version][:-2]]
        abandoned = [path for path in self._log.glob("*.tmp") if _age(path) > ORPHAN_SECONDS]  # of writers that died
        for path in [*(self._log / name for name in covered), *abandoned]:
            with suppress(OSError):  # the next state tries again
                path.unlink()


def _name(version: int, end: str = COMMIT) -> str:
    return f"{version:0{_DIGITS}d}{end}"


def _text(content: dict[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"))


def _age(path: Path) -> float:
    """Seconds since it was written; 0 when it is gone."""
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _listed(files: Sequence[DataFile]) -> list[list[object]]:
    return [[file.path, file.rows, file.size] for file in files]
