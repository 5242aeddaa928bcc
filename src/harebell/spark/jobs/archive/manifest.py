"""The log of a Parquet archive: which data files count, one JSON file a commit.

    _archive/log/000000000012.json       commit 12: files added, files removed, the writer
    _archive/log/000000000064.state.json everything up to commit 64, so that reading the log stays short

Rules: a commit's file is written and fsync'ed under another name and linked to its number; os.link fails when the
number is taken, so of two writers one wins and the other looks again. What a reader sees is the state after some
commit, never half of one. A state file is only a shortcut: it is renamed into place, and may be missing.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from harebell.errors import DataLoss
from harebell.spark.jobs.archive.layout import OWN, DataFile, Format, Written, data_file
from harebell.synced_files import make_folder, sync_folder

__all__ = ["Manifest"]

STATE_EVERY: Final = 64  # commits
_DIGITS: Final = 12


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
        """Nothing: a checkpoint drops the commits before it."""

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
        """The archive as it is now."""
        names = {path.name for path in self._log.iterdir()}
        states = sorted(name for name in names if name.endswith(".state.json"))
        state = State.from_json(json.loads((self._log / states[-1]).read_text())) if states else State()
        while (name := _name(state.version + 1)) in names:
            state.apply(json.loads((self._log / name).read_text()))
        return state

    def _commit(self, make: Callable[[State], dict[str, Any] | None]) -> bool:
        while True:
            state = self.state()
            commit = make(state)
            if commit is None:
                return False
            commit["version"] = state.version + 1
            commit["at"] = time.time()
            temporary = self._write(commit)
            try:
                self._step("commit")
                os.link(temporary, self._log / _name(commit["version"]))
            except FileExistsError:
                continue
            finally:
                temporary.unlink()
            sync_folder(self._log)
            self._step("committed")
            if commit["version"] % STATE_EVERY == 0:
                state.apply(commit)
                state.removed = {path: at for path, at in state.removed.items() if (self.root / path).exists()}
                self._write(state.to_json()).replace(self._log / _name(state.version, ".state.json"))
            return True

    def _write(self, content: dict[str, Any]) -> Path:
        path = self._log / f"{uuid.uuid4().hex}.tmp"
        with path.open("w") as file:
            json.dump(content, file, separators=(",", ":"))
            file.flush()
            os.fsync(file.fileno())
        return path


def _name(version: int, end: str = ".json") -> str:
    return f"{version:0{_DIGITS}d}{end}"


def _listed(files: Sequence[DataFile]) -> list[list[object]]:
    return [[file.path, file.rows, file.size] for file in files]
