"""Where the tests are of modules that have none of their name, below tests/. See test_mirror.py."""

from __future__ import annotations

from typing import Final

ELSEWHERE: Final[dict[str, str]] = {}
