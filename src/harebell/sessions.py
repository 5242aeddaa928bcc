"""The client of AMQP 0-10: `import harebell.sessions`. It lives in `harebell.client.sessions`.

A name is loaded with its module at the first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harebell.client.sessions import *  # noqa: F403  # all that it has


def __getattr__(name: str) -> object:
    return getattr(import_module("harebell.client.sessions"), name)


def __dir__() -> list[str]:
    return dir(import_module("harebell.client.sessions"))
