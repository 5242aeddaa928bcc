"""Permissions count for tests that run as root too."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_VERSION = 0x20080522  # of the kernel's interface for 64 capabilities
_OVERRIDES = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


@contextmanager
def unreadable(path: Path) -> Iterator[None]:
    """In the block, this thread may neither read nor write what is there, root's neither."""
    mode = path.stat().st_mode & 0o777
    path.chmod(0)
    try:
        with _permissions_count():
            yield
    finally:
        path.chmod(mode)


@contextmanager
def _permissions_count() -> Iterator[None]:
    if os.geteuid() or sys.platform != "linux":
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_VERSION, 0)
    kept = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable: of the first 32, and of the others
    assert libc.capget(header, kept) == 0
    fewer = (ctypes.c_uint32 * 6)(kept[0] & ~_OVERRIDES, *kept[1:])
    assert libc.capset(header, fewer) == 0
    try:
        yield
    finally:
        assert libc.capset(header, kept) == 0
