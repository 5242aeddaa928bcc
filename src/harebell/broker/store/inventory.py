"""The inventory of a data folder: the segments that must be there, so that one that is gone is noticed.

A segment that was removed because all of its messages were settled looks like one that somebody deleted. So the file
`segments` has a line for each segment, and for each file of settlements, that was first written to or removed:

    + queues/3f.../00000000000000000000.log            it has data
    - queues/3f.../00000000000000000000.log            removed; written before the file goes
    = queues/3f.../00000000000000000000.log 52710      its size at a clean stop
    = transactions 412                                 that of a file of records (`record_file`), at a clean stop alone

The lines are written and not synced: after a power cut, a file may be missing that had been removed, and a line of the
inventory may be missing or torn. The module knows no queues.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from harebell.broker.store.files import is_full, shows_damage, status, write_all
from harebell.broker.store.private import FILE, private_opener

__all__ = ["INVENTORY", "RECORDS", "Inventory", "Missing", "missing_files", "sizes_of_records"]

INVENTORY: Final = "segments"  # in the data folder
RECORDS: Final = ("sessions", "transactions")
_SUFFIXES: Final = (".log", ".settled")
_KINDS: Final = ("queues", "streams", "delays")


class Missing(NamedTuple):
    """A file that is not as it should be. `path` is below the data folder; `how` is "gone", "empty" and the like."""

    path: str
    how: str

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]


def _read(path: Path) -> dict[str, int]:
    """The files that the inventory names, and their least sizes."""
    found: dict[str, int] = {}
    try:
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        if not shows_damage(error):
            raise
        return found
    for line in text.split("\n")[:-1]:  # the last one is torn, if it is not empty
        sign, _, rest = line.partition(" ")
        if not rest.startswith((*_KINDS, *RECORDS)):
            continue
        if sign == "+":
            found.setdefault(rest, 1)
        elif sign == "-":
            found.pop(rest, None)
        elif sign == "=":
            name, _, size = rest.rpartition(" ")
            if size.isdecimal():
                found[name] = int(size)
    return found


def sizes_of_records(data: Path) -> dict[str, int]:
    """The sizes of the files of records at the last stop, if that was a clean one."""
    found = _read(data / INVENTORY)
    return {name: found[name] for name in RECORDS if name in found}


def missing_files(data: Path) -> list[Missing]:
    """The files that are gone, are no files any more, are empty, or are shorter than at the last clean stop.

    Those of records are left out: who reads them knows more. OSError when this process cannot look.
    """
    missing = []
    for name, least in _read(data / INVENTORY).items():
        if name in RECORDS:
            continue
        path = data / name
        now = status(path)
        if now is None or not stat.S_ISREG(now.st_mode):
            missing.append(Missing(name, "gone" if now is None else "no file any more"))
            continue
        size = now.st_size
        if not size:
            missing.append(Missing(name, "empty"))
        elif size < least:
            missing.append(Missing(name, f"{least - size} bytes shorter than at the last stop"))
    return missing


class Inventory:
    """The inventory of the data folder, while a broker runs. It begins with the files that are there.

    `links` are the symbolic links that were found among them, and where they lead.
    """

    def __init__(self, data: Path) -> None:
        self._data, self._root = data, f"{data}/"
        self.links: list[tuple[str, str]] = []
        self._known: set[str] = set()
        self._fd = -1

    def begin(self) -> None:
        """Write what is there now, in place of the last inventory. OSError when the disk refuses."""
        self._known = {name for name, _ in self._there()}
        self._replace(f"+ {name}\n" for name in self._known)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._fd = os.open(self._data / INVENTORY, flags, FILE)

    def written(self, path: str) -> None:
        """Note a file that has data, if it is not known yet."""
        if path.endswith(_SUFFIXES) and (name := path.removeprefix(self._root)) not in self._known:
            self._known.add(name)
            self._note("+", name)

    def removing(self, path: str) -> None:
        """Note a file that is about to be removed or emptied."""
        name = path.removeprefix(self._root)
        if name in self._known:
            self._known.remove(name)
            self._note("-", name)

    def end(self) -> None:
        """Write the sizes of all files: the broker stops, and everything is synced."""
        self.close()
        records = [(name, path.stat().st_size) for name in RECORDS if (path := self._data / name).is_file()]
        self._replace(f"= {name} {size}\n" for name, size in (*self._there(), *records))

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def _note(self, sign: str, name: str) -> None:
        if self._fd >= 0:
            os.write(self._fd, f"{sign} {name}\n".encode())

    def _there(self) -> Iterator[tuple[str, int]]:
        """The files that have data, and their sizes."""
        self.links = [(each.name, str(Path(each).readlink())) for each in os.scandir(self._data) if each.is_symlink()]
        for kind in _KINDS:
            for folder in os.scandir(self._data / kind):
                if folder.is_symlink():
                    self.links.append((f"{kind}/{folder.name}", str(Path(folder).readlink())))
                if folder.is_dir():
                    for file in os.scandir(folder):
                        name = f"{kind}/{folder.name}/{file.name}"
                        if file.is_symlink():
                            self.links.append((name, str(Path(file).readlink())))
                        if file.name.endswith(_SUFFIXES) and file.is_file() and (size := file.stat().st_size):
                            yield name, size

    def _replace(self, lines: Iterator[str]) -> None:
        new, text = self._data / (INVENTORY + ".new"), "".join(lines).encode()
        path = self._data / INVENTORY
        try:
            with open(new, "wb", buffering=0, opener=private_opener) as file:
                write_all(os, file.fileno(), text, 0)
        except OSError as error:
            new.unlink(missing_ok=True)
            if not is_full(error) or not path.is_file():
                raise
            _overwrite(path, text)
            return
        if path.is_dir() and not path.is_symlink():  # not ours: it is moved out of the way
            path.rename(self._data / f"{INVENTORY}.{secrets.token_hex(4)}")
        new.rename(path)


def _overwrite(path: Path, text: bytes) -> None:
    """Write into the room that the file has already. Lines that find none are left out: those files are not missed."""
    with path.open("r+b", buffering=0) as file:
        size = 0
        try:
            while size < len(text):
                size += os.pwrite(file.fileno(), text[size:], size)
        except OSError as error:
            if not is_full(error):
                raise
        os.ftruncate(file.fileno(), text.rfind(b"\n", 0, size) + 1)
