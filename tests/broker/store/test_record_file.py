"""A file of records: a torn end is told from damage whatever its bytes are, in a time that grows with their number."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, strategies as st

from harebell.broker.store import checksums, record_file
from harebell.broker.store.record_file import Record, RecordFile, record

KEY = b"whose it"
BODIES = {
    "big-endian integers": struct.pack(">I", 50_000) * 25_000,
    "heads of records": struct.pack(">IIB8s", 0, 20_000, 1, KEY)[4:] * 8_000,
    "lengths at each byte": b"\0\0\1\1\1" * 20_000,
    "zeros": bytes(100_000),
    "random bytes": bytes(crc32(b"%d" % number) >> 24 for number in range(100_000)),
}


def read(path: Path, data: bytes) -> tuple[list[Record], int, str]:
    path.write_bytes(data)
    commit: Any = None
    return RecordFile(path, commit, os).read()


@pytest.mark.pure
@pytest.mark.parametrize("cut", [1, 5000])
@pytest.mark.parametrize("body", BODIES)
def test_a_torn_end_costs_the_same_for_each_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, cut: int
) -> None:
    summed = [0]

    def counting(data: bytes, crc: int = 0) -> int:
        summed[0] += len(data)
        return crc32(data, crc)

    for module in (checksums, record_file):
        monkeypatch.setattr(module, "crc32", counting)
    first, torn = record(1, KEY, b"first"), record(2, KEY, BODIES[body])[:-cut]
    assert read(tmp_path / "f", first + torn) == ([Record(1, KEY, b"first")], len(torn), "")
    assert summed[0] <= 1024 * len(torn) // 4, "of a part of any length, no more than this"
    found, cut_off, damage = read(tmp_path / "f", first + torn + record(3, KEY))
    assert (found, damage) == ([Record(1, KEY, b"first")], f"is damaged at byte {len(first)}")
    assert cut_off == len(torn) + len(record(3, KEY))


@given(
    st.lists(st.binary(max_size=40), min_size=1, max_size=5), st.binary(max_size=30), st.integers(0, 300),
    st.integers(1, 15),
)  # fmt: skip
def test_a_whole_record_behind_what_is_none_is_found(
    tmp_path_factory: pytest.TempPathFactory, payloads: list[bytes], noise: bytes, spoiled: int, kind: int
) -> None:
    """One byte of the file is another one: this is damage, unless it is in the last record, which may be torn."""
    path = tmp_path_factory.getbasetemp() / "records"
    records = [record(kind, KEY, payload) for payload in payloads]
    data = bytearray(b"".join(records) + noise[:12])
    at = spoiled % (len(data) - len(noise[:12]))
    data[at] ^= 1
    found, _, damage = read(path, bytes(data))
    last = len(data) - len(noise[:12]) - len(records[-1])
    assert bool(damage) is (at < last)
    assert len(found) < len(records)
