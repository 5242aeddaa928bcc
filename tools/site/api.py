"""The pages of the API reference: one for each public module, made from its `__all__` when the site is built."""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tools.site.docstrings import as_rest

__all__ = ["MODULES", "about_data", "names_of", "page_of", "setup", "write", "written"]

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
GUIDES: Final = {
    "harebell": "reference/client.md",
    "harebell.blocking": "how-to/threads.md",
    "harebell.sessions": "how-to/sessions.md",
    "harebell.blocking.sessions": "how-to/sessions.md",
    "harebell.middleware": "reference/middleware.md",
    "harebell.events": "how-to/recovery.md",
    "harebell.broker": "reference/features.md",
    "harebell.admin": "reference/http-api.md",
    "harebell.testing": "how-to/test-kit.md",
    "harebell.channels": "reference/channels.md",
    "harebell.django": "reference/tasks.md",
    "harebell.spark": "reference/spark.md",
}
"""The page that says how a module is used; its title is the text of the link."""
INTRODUCED: Final = ("harebell.errors", "harebell.broker", "harebell.testing", "harebell.spark")
"""Modules whose docstrings are for users; those of the others say how the code is organised."""
LONGEST_VALUE: Final = 300  # characters: all type aliases are shorter
LEFT_OUT: Final = ("ChannelFull", "MessageTooLarge")
"""Channels' own exceptions, which its layers have as members."""


def page_of(module: str) -> str:
    return module.replace(".", "-")


def names_of(module: str) -> list[str]:
    """The public names, in the module's order: `__all__`, or what it imports under its own name, or defines."""
    found = importlib.import_module(module)
    if hasattr(found, "__all__"):
        return list(found.__all__)
    tree = _tree(module)
    imports = [node for node in tree if isinstance(node, ast.ImportFrom)]
    exported = [each.asname for node in imports for each in node.names if each.asname]
    if exported:
        return exported
    for node in imports:
        if node.names[0].name == "*":  # a short name of another module
            return names_of(str(node.module))
    return [name for node in tree for name in _names(node) if not name.startswith("_")]


def _tree(module: str) -> list[ast.stmt]:
    """The statements of a module, with those that type checkers alone read."""
    lines = ast.parse(Path(str(importlib.import_module(module).__file__)).read_text("utf-8")).body
    return [each for line in lines for each in (line.body if isinstance(line, ast.If) else [line])]


def _names(node: ast.stmt) -> list[str]:
    """What a statement defines."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def about_data(module: str, name: str) -> tuple[str, str] | None:
    """The value of a constant ("" when it is no use to readers), and its docstring; None: the module has none."""
    tree = _tree(module)
    for node, following in zip(tree, [*tree[1:], ast.Pass()], strict=True):
        if isinstance(node, ast.ImportFrom) and {"*", name} & {each.name for each in node.names}:
            found = about_data(str(node.module), name)
            if found:
                return found
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value and name in _names(node):
            words = following.value if isinstance(following, ast.Expr) else None
            said = str(words.value) if isinstance(words, ast.Constant) else ""
            return _shown(node.value), said
    return None


def _home_of(it: object, name: str) -> str:
    """The first module that has this object by this name."""
    return next(each for each in MODULES if getattr(importlib.import_module(each), name, None) is it)


def _shown(value: ast.expr) -> str:
    """The value as the module writes it; "" where it is computed or long."""
    if any(isinstance(part, ast.Call | ast.comprehension) for part in ast.walk(value)):
        return ""
    text = str(value.value) if isinstance(value, ast.Constant) else ast.unparse(value)
    return text if len(text) <= LONGEST_VALUE else ""


def _foreign(it: type) -> str:
    """The classes of others that a class is derived from: their members are not listed below it."""
    return ", ".join(each.__name__ for each in it.__mro__ if not each.__module__.startswith("harebell"))


@functools.cache
def _linked() -> Mapping[str, str]:
    """The errors, which docstrings name without backticks; those that Python has too may be Python's."""
    errors = importlib.import_module("harebell.errors")
    names = [name for name in names_of("harebell.errors") if inspect.isclass(getattr(errors, name))]
    return {name: f"{_home_of(getattr(errors, name), name)}.{name}" for name in names if not hasattr(builtins, name)}


def written(module: str) -> str:
    """The page of a module."""
    guide = f" How it is used: [](../{GUIDES[module]})." if module in GUIDES else ""
    lines = [f"# {module}", "", MODULES[module] + guide, "", "```{eval-rst}", f".. currentmodule:: {module}", ""]
    home = importlib.import_module(module)
    if module in INTRODUCED:
        lines += [*as_rest(inspect.cleandoc(home.__doc__ or "").split("\n"), _linked()), ""]
    for name in names_of(module):
        it = getattr(home, name)
        if inspect.ismodule(it):
            continue  # it has a page of its own
        earlier = _home_of(it, name) if inspect.isclass(it) or inspect.isroutine(it) else module
        if earlier != module:
            lines += [f"``{name}``: see :py:obj:`{earlier}.{name}`", ""]
        elif inspect.isclass(it):
            lines += [f".. autoclass:: {module}.{name}", "   :members:", f"   :inherited-members: {_foreign(it)}"]
            lines += ["   :show-inheritance:"] if issubclass(it, Exception) else []
            lines += [f"   :exclude-members: {', '.join(LEFT_OUT)}", ""]
        elif inspect.isroutine(it):
            lines += [f".. autofunction:: {module}.{name}", ""]
        else:
            value, words = about_data(module, name) or ("", "")
            lines += [f".. py:data:: {name}"]
            lines += [f"   :value: {value}"] if value else []
            lines += ["", *(f"   {line}" for line in as_rest(inspect.cleandoc(words).split("\n"), _linked())), ""]
    return "\n".join([*lines, "```", ""])


def write(docs: Path) -> None:
    """Write the pages below the folder of all pages."""
    folder = docs / FOLDER
    folder.mkdir(exist_ok=True)
    listed = [f"- [{module}]({page_of(module)}.md): {about}" for module, about in MODULES.items()]
    pages = {page_of(module): written(module) for module in MODULES}
    pages["index"] = "\n".join(["# API reference", "", "Made from the docstrings.", "", *listed, ""])
    for name, text in pages.items():
        (folder / f"{name}.md").write_text(text, "utf-8")


def _docstring(app: Any, what: str, name: str, it: object, options: object, lines: list[str]) -> None:
    said = [line for line in lines if not line.startswith("Alias for field number")]  # collections.namedtuple's
    if not any(said) and inspect.isclass(it):
        said = list(_instead_of_words(it))
    else:
        said = as_rest(said, _linked())
    lines[:] = said


def _instead_of_words(it: type) -> Iterator[str]:
    """For an error that is nothing but its reply code, and for a record of a hook, which is generated."""
    code, name = (vars(it).get(each) for each in ("reply_code", "reply_name"))
    if code and name:
        yield f"Reply code {code}, ``{name}``."
    hooks = importlib.import_module("harebell.middleware").HOOKS.values()
    named = [f"``{hook.name}``" for hook in hooks if issubclass(it, hook.record)]
    if named:
        yield f"What functions around {', '.join(named)} are called with."


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", _docstring)
