"""The pages of the API reference: one for each public module, made from its `__all__` when the site is built."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any, Final

from tools.site.docstrings import as_rest

__all__ = ["MODULES", "page_of", "setup", "write", "written"]

MODULES: Final = {
    "harebell": "The client: connections, channels, consumers, patterns.",
    "harebell.blocking": "The same client for programs without asyncio.",
    "harebell.sessions": "The client of AMQP 0-10: sessions, exactly once.",
    "harebell.blocking.sessions": "Sessions for programs without asyncio.",
    "harebell.middleware": "Middlewares around the client's calls.",
    "harebell.events": "What a connection tells its listeners.",
    "harebell.errors": "The errors.",
    "harebell.broker": "The broker inside a program.",
    "harebell.admin": "The HTTP API and the console inside a program.",
    "harebell.testing": "Brokers, proxies and harnesses for tests.",
    "harebell.channels": "The layer of Django Channels.",
    "harebell.django": "The backend of Django's tasks.",
    "harebell.spark": 'Sessions and helpers for Spark; the data source itself is `format("amqp")`.',
}
"""The public modules, and what each is for."""
FOLDER: Final = "api"
FOREIGN: Final = "Exception, object, dict, list, tuple, str, int, Enum, TestCase, Protocol, Generic, Mapping"
"""Classes of others, whose members are not listed below ours."""
LEFT_OUT: Final = ("ChannelFull", "MessageTooLarge")
"""Channels' own exceptions, which its layers have as members."""


def page_of(module: str) -> str:
    return module.replace(".", "-")


def names_of(module: str) -> list[str]:
    """The public names, in the module's order: `__all__`, or what it has of ours."""
    found = importlib.import_module(module)
    if hasattr(found, "__all__"):
        return list(found.__all__)
    return [name for name in dir(found) if not name.startswith("_") and _is_ours(getattr(found, name))]


def _is_ours(it: object) -> bool:
    return str(getattr(it, "__module__", "")).startswith("harebell") and not inspect.ismodule(it)


def _home_of(it: object, name: str) -> str:
    """The first module that has this object by this name."""
    return next(each for each in MODULES if getattr(importlib.import_module(each), name, None) is it)


def written(module: str) -> str:
    """The page of a module."""
    lines = [f"# {module}", "", MODULES[module], "", "```{eval-rst}", f".. currentmodule:: {module}", ""]
    home = importlib.import_module(module)
    for name in names_of(module):
        it = getattr(home, name)
        if inspect.ismodule(it):
            continue  # it has a page of its own
        earlier = _home_of(it, name)
        if earlier != module:
            lines += [f"``{name}``: see :py:obj:`{earlier}.{name}`", ""]
        elif inspect.isclass(it):
            lines += [f".. autoclass:: {module}.{name}", "   :members:", f"   :inherited-members: {FOREIGN}"]
            lines += [f"   :exclude-members: {', '.join(LEFT_OUT)}", ""]
        elif callable(it):
            lines += [f".. autofunction:: {module}.{name}", ""]
        else:
            lines += [f".. autodata:: {module}.{name}", "   :no-value:", ""]
    return "\n".join([*lines, "```", ""])


def write(docs: Path) -> None:
    """Write the pages below the folder of all pages."""
    folder = docs / FOLDER
    folder.mkdir(exist_ok=True)
    listed = [f"- [{module}]({page_of(module)}.md): {about}" for module, about in MODULES.items()]
    pages = {page_of(module): written(module) for module in MODULES}
    pages["README"] = "\n".join(["# API reference", "", "Made from the docstrings.", "", *listed, ""])
    for name, text in pages.items():
        (folder / f"{name}.md").write_text(text, "utf-8")


def _docstring(app: Any, what: str, name: str, it: object, options: object, lines: list[str]) -> None:
    lines[:] = as_rest(lines)


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", _docstring)
