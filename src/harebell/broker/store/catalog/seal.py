"""The seal of a catalog: a small file beside it that says what the catalog must contain.

It has the identity of the catalog, the number of its last commit (the generation), and a digest of all records. SQLite
itself does not notice when the end of its journal is missing, when a file is replaced by an older copy, or when bytes
inside a record change; the seal does. The catalog contains the same three values, so each of the two checks the other.

The seal is written after each commit, before anybody is answered, in one of two slots in turn, so a torn write harms no
more than the seal being written. It is not synced with each commit: after a power cut it may be older than the catalog,
never newer. `synced`: the catalog was synced at each commit; without that, a power cut may leave an older catalog.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from struct import Struct
from typing import Final
from zlib import crc32

from harebell.broker.store.files import shows_damage
from harebell.broker.store.private import FILE

__all__ = ["Seal", "SealFile", "digest_of", "read_seal", "seal_if_whole"]

_SLOT: Final = Struct(">4sHHQQ16s")
_CRC: Final = Struct(">I")
_SIZE: Final = _SLOT.size + _CRC.size
_STEP: Final = 512  # a disk writes this much at once
_MAGIC: Final = b"WRNS"  # begins each slot that holds a seal; it means nothing, and stays for the files that have it
FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Seal:
    """What a catalog must contain: its identity, the number of its last commit, the digest of its records."""

    identity: int
    generation: int
    digest: int
    synced: bool = True


def digest_of(row: tuple[object, ...]) -> int:
    """The digest of one record. That of a catalog is the sum of them, modulo 2 ** 128."""
    return int.from_bytes(blake2b(repr(row).encode("utf-8", "backslashreplace"), digest_size=16).digest(), "big")


def read_seal(path: Path) -> Seal | None:
    """The newest whole seal in the file; None when it has none. OSError when it cannot be read."""
    data = path.read_bytes()
    found = []
    for at in (0, _STEP):
        slot = data[at : at + _SLOT.size]
        if data[at + _SLOT.size : at + _SIZE] == _CRC.pack(crc32(slot)) and slot[:4] == _MAGIC:
            _, form, synced, identity, generation, digest = _SLOT.unpack(slot)
            if form > FORMAT:
                raise OSError(
                    f"{path}: store format {form}, this version reads {FORMAT}: use the version that wrote it"
                )
            found.append(Seal(identity, generation, int.from_bytes(digest, "big"), bool(synced)))
    return max(found, key=lambda seal: seal.generation, default=None)


def seal_if_whole(path: Path) -> Seal | None:
    """The same; None too when the file is damaged or gone. OSError when that cannot be known."""
    try:
        return read_seal(path)
    except OSError as error:
        if not shows_damage(error):
            raise
        return None


class SealFile:
    """The open file of a seal."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE)

    def write(self, seal: Seal) -> None:
        """Write the seal. OSError when the disk refuses."""
        slot = _SLOT.pack(
            _MAGIC, FORMAT, seal.synced, seal.identity, seal.generation, seal.digest.to_bytes(16, "big")
        )  # fmt: skip
        os.pwrite(self._fd, slot + _CRC.pack(crc32(slot)), seal.generation % 2 * _STEP)

    def sync(self) -> None:
        os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)
