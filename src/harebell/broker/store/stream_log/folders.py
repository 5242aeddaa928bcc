"""The folders of stream queues, one for each log. The catalog says which queue a folder belongs to.

Versions before the catalog stored the declaration in the folder, as `queue.json`: `declared` reads those, so that they
can be put into the catalog.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harebell.broker.store.files import Files
from harebell.broker.store.group_commit import GroupCommit
from harebell.broker.store.stream_log.log import StreamLog
from harebell.routing.definitions import QueueDefinition

__all__ = ["DeclaredStream", "StreamStore"]

FORMAT: Final = 1
DECLARATION: Final = "queue.json"
FOLDER: Final = "streams"


@dataclass(frozen=True, slots=True)
class DeclaredStream:
    """A stream whose declaration is in its folder."""

    queue: QueueDefinition
    folder: str
    declaration: Path


class StreamStore:
    """The streams below the data folder `data`. Folders are named by their path from there.

    `clean`: the last broker has synced everything. `files`: the operating system.
    """

    def __init__(self, data: Path, commit: GroupCommit, *, clean: bool = False, files: Files = os) -> None:
        self._data, self._commit, self._clean, self._files = data, commit, clean, files

    def new_folder(self) -> str:
        """A new folder's name, never used before, so that remains of a deleted stream are not taken for this one's."""
        return f"{FOLDER}/{secrets.token_hex(8)}"

    def create(self, folder: str) -> StreamLog:
        """Create an empty log. OSError when the disk refuses: then nothing of it stays, if the disk lets it go."""
        files, path = self._files, str(self._data / folder)
        try:
            log = StreamLog(self._data / folder, self._commit, files=files)
            try:
                self._sync_parent(log)
            except OSError:
                log.close()
                raise
        except OSError:
            with suppress(OSError):
                for name in files.listdir(path):
                    files.unlink(f"{path}/{name}")
                files.rmdir(path)
            raise
        return log

    def _sync_parent(self, log: StreamLog) -> None:
        fd = self._files.open(str(log.path.parent), os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._files.fsync(fd)
        finally:
            self._files.close(fd)

    def recover(self, folder: str) -> StreamLog:
        """Open an existing log, cut its torn tail and note its damages.

        FileNotFoundError when it does not exist, OSError when the disk refuses.
        """
        path = self._data / folder
        self._files.listdir(str(path))
        return StreamLog(path, self._commit, clean=self._clean, files=self._files)

    def folders(self) -> list[str]:
        """The folders of streams on disk, whether or not a queue uses them."""
        return [f"{FOLDER}/{name}" for name in sorted(self._files.listdir(str(self._data / FOLDER)))]

    def declared(self) -> Iterator[DeclaredStream]:
        """The streams of a version before the catalog. OSError for a declaration that cannot be read."""
        for declaration in sorted((self._data / FOLDER).glob(f"*/{DECLARATION}")):
            try:
                stored = json.loads(declaration.read_text())
                if stored["format"] != FORMAT:
                    raise OSError(
                        f"{declaration}: store format {stored['format']}, this version reads {FORMAT}: use the "
                        "version that wrote it, or another data folder"
                    )
                queue = QueueDefinition(
                    stored["vhost"], stored["name"], durable=True, arguments=stored["arguments"], type="stream"
                )
            except (ValueError, KeyError, TypeError) as error:
                raise OSError(f"{declaration} is unreadable: restore it from a backup ({error})") from None
            yield DeclaredStream(queue, f"{FOLDER}/{declaration.parent.name}", declaration)
