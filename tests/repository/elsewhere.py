"""The tests, below tests/, of modules without a test file of their name; test_mirror.py uses this table."""

from __future__ import annotations

from typing import Final

ELSEWHERE: Final[dict[str, str]] = {}
