"""What the programs of tests that fork have in common, as text: each runs in a process of its own."""

from __future__ import annotations

from typing import Final

__all__ = ["REFUSED"]

REFUSED: Final = """
from harebell import errors

def refused(call):
    try:
        call()
    except errors.LocalProtocolError as error:
        assert "before a fork" in str(error), error
    else:
        raise AssertionError(f"{call} was not refused")

async def refused_awaiting(*calls):
    for call in calls:
        try:
            await call()
        except errors.LocalProtocolError as error:
            assert "before a fork" in str(error), error
        else:
            raise AssertionError(f"{call} was not refused")
"""
