"""Opens the table of an archive in a folder, or makes it: Harebell's own log, a Delta log or an Iceberg table."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from harebell.errors import InvalidArgument
from harebell.spark.jobs.archive.layout import ICEBERG_NAME, OWN, CatalogTable, Format, Table
from harebell.spark.jobs.archive.manifest import Manifest

__all__ = ["check_table", "find_table", "find_writable_table", "make_table"]

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # a Path has lost one of its slashes


def local(path: str | os.PathLike[str]) -> Path:
    """The archive's folder, absolute. Raises InvalidArgument for a URL: commits need a file system's own link."""
    text = os.fspath(path)
    if _URL.match(text):
        raise InvalidArgument(f"an archive is a folder on a (shared) file system, not {text!r}")
    return Path(text).absolute()


def check_table(path: str | os.PathLike[str], kind: Format, name: CatalogTable | None = None) -> None:
    """Raises what `make_table` would raise; makes nothing."""
    root = local(path)
    if name is not None and kind != "iceberg":
        raise InvalidArgument(f"catalog_table is for an Iceberg archive, not for {kind}")
    found = _kind(root)
    if found is not None and found != kind:
        raise InvalidArgument(f"the archive {root} is {found}, not {kind}")
    if found is not None:
        _check_writable(root)
    else:
        try:
            if root.exists() and any(root.iterdir()):
                raise InvalidArgument(f"{root} is not empty and no archive; name a new or an empty folder")
        except OSError as error:
            raise InvalidArgument(f"{root} can be no archive: {error.strerror}") from error
    if kind == "delta":
        from harebell.spark.jobs.archive.delta import Delta

        Delta(root)
    if kind == "iceberg":
        from harebell.spark.jobs.archive.iceberg import Iceberg, named_catalog

        Iceberg(root, name).check()
        if found is not None and name is not None and (there := named_catalog(root)) != name:
            its_own = "in a catalog of its own" if there is None else str(there)
            raise InvalidArgument(f"the archive {root} is an Iceberg table {its_own}, not {name}")


def make_table(path: str | os.PathLike[str], kind: Format, name: CatalogTable | None = None) -> Table:
    """The archive in that folder, made where there is none; `name` is that of an Iceberg table in a named catalog.

    Raises InvalidArgument when it is there in the other format, the folder holds something else or cannot be made, and
    MissingDependency for a format that needs a package which is not installed.
    """
    check_table(path, kind, name)
    root = local(path)
    try:
        if kind == "parquet":
            return Manifest.make(root)
        if kind == "iceberg":
            from harebell.spark.jobs.archive.iceberg import Iceberg

            return Iceberg.make(root, name)
        from harebell.spark.jobs.archive.delta import Delta

        return Delta.make(root)
    except OSError as error:
        raise InvalidArgument(f"the archive {root} cannot be made: {error.strerror}") from error


def find_table(path: str | os.PathLike[str]) -> Table:
    """The archive in that folder. Raises InvalidArgument when there is none."""
    root = local(path)
    found = _kind(root)
    if found is None:
        raise InvalidArgument(f"there is no archive in {root}; `harebell spark archive` makes one")
    if found == "delta":
        from harebell.spark.jobs.archive.delta import Delta

        return Delta(root)
    if found == "iceberg":
        from harebell.spark.jobs.archive.iceberg import Iceberg

        return Iceberg(root)
    return Manifest(root)


def find_writable_table(path: str | os.PathLike[str]) -> Table:
    """As `find_table`; raises InvalidArgument for an archive that this process may not write, too."""
    table = find_table(path)
    _check_writable(table.root)
    return table


def _check_writable(root: Path) -> None:
    for folder in (root, root / OWN):
        if folder.exists() and not os.access(folder, os.W_OK | os.X_OK):
            raise InvalidArgument(
                f"the archive {root} cannot be written: no permission for {folder}, or its file system is read-only; "
                "allow it, or use a copy of the archive"
            )


def _kind(root: Path) -> Format | None:
    if (root / "_delta_log").is_dir():
        return "delta"
    if (root / OWN / ICEBERG_NAME).is_file():
        return "iceberg"
    return "parquet" if (root / OWN / "log").is_dir() else None
