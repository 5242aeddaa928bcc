"""What happens to a connection: `import harebell.events`. They live in `harebell.client.events`.

A name is loaded with its module at the first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harebell.client.events import *  # noqa: F403  # all that it has


def __getattr__(name: str) -> object:
    return getattr(import_module("harebell.client.events"), name)


def __dir__() -> list[str]:
    return dir(import_module("harebell.client.events"))
