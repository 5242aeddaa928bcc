"""The client for programs without a loop: `import harebell.blocking`. It lives in `harebell.client.blocking`.

A name is loaded with its module at the first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harebell.client.blocking import *  # noqa: F403  # all that it has


def __getattr__(name: str) -> object:
    if name == "sessions":
        return import_module("harebell.blocking.sessions")
    return getattr(import_module("harebell.client.blocking"), name)


def __dir__() -> list[str]:
    return dir(import_module("harebell.client.blocking"))
