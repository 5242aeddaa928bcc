"""Names of a package whose modules are loaded at the first use of a name (PEP 562).

A package lists its names three times: in `__all__` for people, under `if TYPE_CHECKING` for type checkers, and in the
argument of `lazy_names` for the interpreter. A test compares the three.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

__all__ = ["lazy_names"]


def lazy_names(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], object]:
    """The `__getattr__` of a package, which imports a name from its module at the name's first use.

    modules  the names by module; a module with a dot in its name is absolute, any other is relative to the package
    """
    homes = {
        name: module if "." in module else f"{package}.{module}" for module, names in modules.items() for name in names
    }

    def lookup(name: str) -> object:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(home), name)
        setattr(sys.modules[package], name, value)
        return value

    return lookup
