"""Plug-ins by name: the import of MODULE:NAME, with errors that say what to do."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from harebell.broker import Plugin
from harebell.errors import InvalidArgument

__all__ = ["load_plugins"]


def load_plugins(names: Sequence[str]) -> tuple[Plugin, ...]:
    """The plug-ins of these names, MODULE:NAME each. Raises InvalidArgument for one that cannot be had.

    Modules are found where Python finds them, and behind that in the working directory.
    """
    here = str(Path.cwd())
    if names and here not in sys.path:
        sys.path.append(here)
    return tuple(map(_load, names))


def _load(reference: str) -> Plugin:
    module, colon, name = reference.partition(":")
    if not (module and colon and name):
        raise InvalidArgument(f"plug-in '{reference}': write MODULE:NAME")
    try:
        plugin = getattr(import_module(module), name)
    except ImportError as error:
        raise InvalidArgument(f"plug-in '{reference}' cannot be imported: {error}") from error
    except AttributeError:
        raise InvalidArgument(f"plug-in '{reference}': the module {module} has no {name}") from None
    except Exception as error:  # of the module itself
        raise InvalidArgument(f"plug-in '{reference}' failed as it was imported: {error!r}") from error
    if not isinstance(plugin, Plugin):
        raise InvalidArgument(f"plug-in '{reference}' is {plugin!r}, and must be a harebell.broker.Plugin")
    return plugin
