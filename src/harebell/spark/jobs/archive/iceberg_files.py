"""The files of an Iceberg table's own metadata, on the disk before the catalog names them.

pyiceberg writes manifests and metadata files through a `FileIO`, and its own does not sync. It loads this one by the
name `FILE_IO`. Only local files are written; what is read, and how a file is deleted, is pyiceberg's own.
"""

from __future__ import annotations

import os
from io import BufferedWriter, FileIO as RawFile
from pathlib import Path
from typing import Final
from urllib.parse import urlparse

from pyiceberg.io import InputFile, OutputFile, OutputStream
from pyiceberg.io.pyarrow import PyArrowFileIO

from harebell.synced_files import make_folder, sync_folder

__all__ = ["FILE_IO", "SyncedFileIO"]

FILE_IO: Final = f"{__name__}.SyncedFileIO"


class SyncedFileIO(PyArrowFileIO):
    """Files as pyiceberg reads them; a file that is written to a local folder is synced when it is closed."""

    def new_output(self, location: str) -> OutputFile:  # type: ignore[override]  # another class of file
        if urlparse(location).scheme not in ("", "file"):
            return super().new_output(location)
        return _LocalFile(location, super().new_input(location))


class _LocalFile(OutputFile):
    def __init__(self, location: str, same: InputFile) -> None:
        super().__init__(location)
        self._same = same
        self._path = Path(urlparse(location).path)

    def __len__(self) -> int:
        return len(self._same)

    def exists(self) -> bool:
        return self._path.exists()

    def to_input_file(self) -> InputFile:
        return self._same

    def create(self, overwrite: bool = False) -> OutputStream:
        make_folder(self._path.parent)
        return _SyncedStream(self._path, "w" if overwrite else "x")


class _SyncedStream(BufferedWriter):
    def __init__(self, path: Path, mode: str) -> None:
        super().__init__(RawFile(path, mode))
        self._folder = path.parent

    def close(self) -> None:
        if self.closed:
            return
        try:
            self.flush()
            os.fsync(self.fileno())
        finally:
            super().close()
        sync_folder(self._folder)
