"""The files of the spool: a segment is written once, synced before it has its name, and marked when it is acknowledged.

What the order of these steps is good for is written in `spool`. This module knows files only: no broker, no Spark.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from harebell.errors import SpoolError
from harebell.synced_files import sync_folder

__all__ = ["is_acked", "mark_acked", "read_segment", "write_once", "writing"]


def write_once(
    path: Path,
    batch: pa.RecordBatch,
    step: Callable[[str], None],
    naming: Callable[[], contextlib.AbstractContextManager[None]],
) -> bool:
    """Makes a segment durable under its name; False when it has one already.

    `naming` is entered when the bytes are on disk, and left when the file has its name. Raises SpoolError when the
    folder does not take it: then there is no file, not even a temporary one.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{time.monotonic_ns()}.tmp")
    try:
        with writing(path.parent), temporary.open("wb") as file:
            step("writing")
            with pa.ipc.new_file(file, batch.schema) as writer:
                writer.write_batch(batch)
            file.flush()
            os.fsync(file.fileno())
        step("written")
        with naming(), writing(path.parent):
            try:
                os.link(temporary, path)
            except FileExistsError:
                return False
    finally:
        with contextlib.suppress(OSError):  # the folder may be the very thing that is gone
            temporary.unlink(missing_ok=True)
    with writing(path.parent):
        sync_folder(path.parent)
    return True


def read_segment(path: Path) -> pa.RecordBatch:
    """A segment's only batch. Raises SpoolError when the file is damaged, FileNotFoundError when it is not there."""
    try:
        with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as reader:
            return reader.get_batch(0)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, ValueError, IndexError) as error:
        lost = (
            "its messages are acknowledged and nowhere else: put the file back from a backup, or delete it to go on "
            "without them"
            if path.with_suffix(".acked").exists()
            else "its messages were not acknowledged, as far as is known, so the broker delivers them again: delete it"
        )
        raise SpoolError(f"the spool file {path} is damaged ({error}); {lost}") from error


def mark_acked(segment: Path) -> None:
    """Notes that the broker has taken the acknowledgement of this segment; the time is the file's.

    A mark that cannot be written is left out: it only saves work when something is delivered again.
    """
    with contextlib.suppress(OSError):
        segment.with_suffix(".acked").touch()


def is_acked(segment: Path) -> bool:
    """Whether the broker has surely taken the acknowledgement of this segment."""
    return segment.with_suffix(".acked").exists()


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Raises SpoolError in place of what the operating system says, with the folder and the space that is left."""
    try:
        yield
    except OSError as error:
        raise SpoolError(
            f"the spool folder {folder} does not take what was drained: {error.strerror or error} ({_free(folder)}); "
            "what was not written was not acknowledged and is still in its queue: make room, or correct option "
            "'spool', and run again"
        ) from error


def _free(folder: Path) -> str:
    for place in (folder, *folder.parents):
        try:
            usage = shutil.disk_usage(place)
        except OSError:
            continue
        return f"{usage.free / 1e6:,.1f} MB free of {usage.total / 1e6:,.1f} MB"
    return "free space unknown"
