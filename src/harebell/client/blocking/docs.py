"""Docstrings of the asyncio API for blocking methods that are written by hand and have none; others are generated."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["documented_by"]

_C = TypeVar("_C", bound=type)


def documented_by(model: type) -> Callable[[_C], _C]:
    """A class decorator: public members without a docstring get that of the same name in `model`."""

    def document(cls: _C) -> _C:
        for name, member in vars(cls).items():
            if not name.startswith("_") and member.__doc__ is None:
                member.__doc__ = getattr(model, name).__doc__
        return cls

    return document
