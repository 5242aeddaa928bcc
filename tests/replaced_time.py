"""Replaces functions of `time` for one module of Harebell.

`monkeypatch.setattr("time.sleep", ...)` would replace it for every thread of the process: py4j's and brokers' sleep,
too.
"""

from __future__ import annotations

import time
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


def replace_time(monkeypatch: pytest.MonkeyPatch, *modules: ModuleType, **functions: Any) -> None:
    """Let each module, which has `import time`, call these in place of the functions with their names."""
    for module in modules:
        assert module.time is time
        monkeypatch.setattr(module, "time", SimpleNamespace(**{**vars(time), **functions}))
