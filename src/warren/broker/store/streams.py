"""The folder of the stream queues: one subfolder each, with its declaration (`queue.json`) and its log.

Folders are named by a digest of vhost and queue name: a name may be 255 bytes of anything, a folder's may not.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from warren.broker.store.commit import GroupCommit
from warren.broker.store.log import SegmentLog

__all__ = ["StoredStream", "StreamStore"]

FORMAT: Final = 1
DECLARATION: Final = "queue.json"


@dataclass(frozen=True, slots=True)
class StoredStream:
    vhost: str
    name: str
    arguments: dict[str, str | int]
    log: SegmentLog


class StreamStore:
    def __init__(self, folder: Path, commit: GroupCommit) -> None:
        self._folder, self._commit = folder, commit
        folder.mkdir(parents=True, exist_ok=True)

    def create(self, vhost: str, name: str, arguments: Mapping[str, object]) -> SegmentLog:
        """A new, empty log. OSError when the disk refuses."""
        digest = hashlib.sha256(f"{vhost}\0{name}".encode("utf-8", "surrogateescape")).hexdigest()[:32]
        path = self._folder / digest
        path.mkdir(exist_ok=True)
        declaration = {"format": FORMAT, "vhost": vhost, "name": name, "arguments": dict(arguments)}
        temporary = path / (DECLARATION + ".new")
        with temporary.open("w") as file:
            json.dump(declaration, file, default=str)
            file.flush()
            os.fsync(file.fileno())
        log = SegmentLog(path, self._commit)
        temporary.rename(path / DECLARATION)  # last: a folder without it is not a stream
        _sync(path)
        _sync(self._folder)
        return log

    def recover(self) -> Iterator[StoredStream]:
        """The streams that are there, their torn tails cut."""
        for declaration in sorted(self._folder.glob(f"*/{DECLARATION}")):
            stored = json.loads(declaration.read_text())
            if stored["format"] != FORMAT:
                raise OSError(
                    f"{declaration}: store format {stored['format']}, this version reads {FORMAT}: use the version "
                    "that wrote it, or another data folder"
                )
            log = SegmentLog(declaration.parent, self._commit)
            yield StoredStream(stored["vhost"], stored["name"], stored["arguments"], log)

    def delete(self, log: SegmentLog) -> None:
        (log.path / DECLARATION).unlink(missing_ok=True)  # first: what is half deleted must not come back
        log.delete()
        log.path.rmdir()


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
