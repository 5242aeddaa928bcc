"""What stands around calls and events: `import harebell.middleware`. It lives in `harebell.client.middleware`.

A name is loaded with its module at the first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harebell.client.middleware import *  # noqa: F403  # all that it has


def __getattr__(name: str) -> object:
    return getattr(import_module("harebell.client.middleware"), name)


def __dir__() -> list[str]:
    return dir(import_module("harebell.client.middleware"))
