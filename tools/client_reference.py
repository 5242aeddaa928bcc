"""Write docs/reference/client.md from the signatures and docstrings of the names in `harebell.__all__`.

    python tools/client_reference.py            # writes the page
    python tools/client_reference.py --check    # exits 1 when the committed page differs

The page has the order of `__all__`. A module in it contributes the names of its own `__all__` (without one, the public
classes and functions that it defines). Classes that have no name in `harebell`, but that a documented call gives,
follow at the end. Signatures come from the source, so that a default reads as it was written. The page shows a
constructor when a program could call it: when its annotations name no private type of the package.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import sys
import textwrap
import typing
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import harebell

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "client.md"
WIDTH = 100  # of a signature on one line

HEAD = """\
# The client

Everything that `import harebell` offers, with signatures and what may be raised. This page is written by
`python tools/client_reference.py` out of the docstrings. Guides: [how a connection comes back](../how-to/recovery.md),
[sessions of AMQP 0-10](../how-to/sessions.md), [what a message costs](../explanation/client-performance.md).

Calls that are awaited take `timeout` in seconds; without it the connection's counts. A `Table` is a dictionary of
AMQP's field values by name; a `TableLike` is any mapping that can be written as one.
"""
USES = {  # the use of a class, by a method that it has
    "__aenter__": "`async with`",
    "__enter__": "`with`",
    "__await__": "`await`",
    "__aiter__": "`async for`",
    "__iter__": "`for`",
}
OWN_NAMES = ("Self", "Table", "TableLike", "Timestamp", "ssl", "SSLContext", "socket", "field", "default_factory")
# Names with two spaces or more behind them; one is enough behind "...". A sentence may begin with a word and a comma.
FIELD = re.compile(r"(\*{0,2}\w+(?:, (?:\*{0,2}\w+|\.\.\.))*)(?: {2,}|(?<=, \.\.\.) )(\S.*)")


class Page:
    """The page while it is written: the documented names, and the lines so far."""

    def __init__(self) -> None:
        self.lines = [HEAD]
        self.exported: dict[str, object] = {name: getattr(harebell, name) for name in harebell.__all__}
        modules = {name: value for name, value in self.exported.items() if isinstance(value, ModuleType)}
        for name, module in tuple(modules.items()):
            inner = {each: getattr(module, each) for each in getattr(module, "__all__", ())}
            modules |= {f"{name}.{each}": value for each, value in inner.items() if isinstance(value, ModuleType)}
        self.members = {name: dict(public(value)) for name, value in modules.items()}
        self.inner = {name: value for name, value in modules.items() if "." in name}
        every = [self.exported, *self.members.values()]
        self.anchors = {
            name: name.lower() for found in every for name, value in found.items() if inspect.isclass(value)
        }
        self.given: dict[str, type] = {}  # classes that calls give, and that have no name in `harebell`

    def write(self) -> str:
        for name, value in self.exported.items():
            if isinstance(value, ModuleType):
                self.module(name, value)
            else:
                self.entry(name, value, 2)
        if self.given:
            self.lines.append("## What calls give\n\nThese have no name in `harebell`.\n")
        done = 0
        while done < len(self.given):  # each entry may add classes
            self.entry(*list(self.given.items())[done], 3)
            done += 1
        return "\n".join(self.lines).rstrip() + "\n"

    def module(self, name: str, module: ModuleType) -> None:
        self.lines.append(f"## `harebell.{name}`\n")
        self.lines += prose(module.__doc__, self.anchors)
        for each, value in self.members[name].items():
            self.entry(each, value, 3)
        for each, inner in self.inner.items():
            if each.rpartition(".")[0] == name:
                self.module(each, inner)

    def entry(self, name: str, value: object, level: int) -> None:
        self.lines.append(f"{'#' * level} `{name}`\n" if not inspect.isclass(value) else f"{'#' * level} {name}\n")
        if inspect.isclass(value):
            self.of_class(name, value, level)
        elif inspect.isfunction(value):
            self.of_function(name, value)
        else:
            self.lines.append(f"`{value!r}`\n")

    def of_class(self, name: str, cls: type, level: int) -> None:
        bases = [base.__name__ for base in cls.__bases__ if base.__name__ in self.anchors]
        if (parameters := self.constructor(cls)) is not None:
            self.lines.append(fenced(name, parameters, ""))
        facts = [f"A kind of {linked(f'`{bases[0]}`', self.anchors)}."] if bases else []
        uses = [use for method, use in USES.items() if _found(cls, method) is not None]
        if uses and not issubclass(cls, BaseException):
            facts.append(f"For {' and '.join(uses)}.")
        if issubclass(cls, harebell.errors.AmqpError) and "reply_code" in vars(cls):
            facts.append(f"Reply code {vars(cls)['reply_code']}, {vars(cls)['reply_name']}.")
        if facts:
            self.lines.append(" ".join(facts) + "\n")
        doc = cls.__dict__.get("__doc__") or ""
        if not doc.startswith(f"{name}("):  # the docstring that dataclass generates
            self.lines += prose(doc, self.anchors)
        for method, function in methods(cls):
            self.of_function(method, function)

    def constructor(self, cls: type) -> list[str] | None:
        init = cls.__dict__.get("__init__")
        if hasattr(cls, "__dataclass_fields__"):
            body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
            assert isinstance(body, ast.ClassDef)
            fields = [each for each in body.body if isinstance(each, ast.AnnAssign)]
            found = [(each.target, each.annotation, each.value) for each in fields if "ClassVar" not in ast.dump(each)]
            parameters = [_parameter(ast.unparse(target), note, value) for target, note, value in found]
            notes: list[ast.expr | None] = [note for _, note, _ in found]
        elif inspect.isfunction(init):
            node = _definition(init)
            parameters, notes = _parameters(node), [each.annotation for each in _arguments(node)]
        else:
            return None
        names = {name for note in notes if note is not None for name in re.findall(r"\w+", ast.unparse(note))}
        strange = {name for name in names if not self.known(name)}
        return None if strange else parameters

    def known(self, name: str) -> bool:
        return (
            hasattr(builtins, name)
            or hasattr(typing, name)
            or name in self.anchors
            or name in OWN_NAMES
            or name.islower()
        )

    def of_function(self, name: str, function: object) -> None:
        plain = inspect.unwrap(function.fget if isinstance(function, property) else function)  # type: ignore[arg-type]
        plain = getattr(plain, "__func__", plain)
        node = _definition(plain)
        returns = ast.unparse(node.returns) if node.returns is not None else ""
        if isinstance(function, property):
            self.lines.append(f"```python\n{name}: {returns}\n```\n")
        else:
            prefix = "await " if isinstance(node, ast.AsyncFunctionDef) else ""
            self.lines.append(fenced(f"{prefix}{name}", _parameters(node), f" -> {returns}" if returns else ""))
        self.lines += prose(plain.__doc__, self.anchors)
        for word in re.findall(r"\w+", returns):
            value = plain.__globals__.get(word)
            if inspect.isclass(value) and value.__module__.startswith("harebell.") and word not in self.anchors:
                self.anchors[word] = word.lower()
                self.given[word] = value


def public(module: ModuleType) -> Iterator[tuple[str, object]]:
    """The public names of a module, in its order."""
    names = getattr(module, "__all__", None)
    for name in vars(module) if names is None else names:
        value = getattr(module, name)
        own = getattr(value, "__module__", None) == module.__name__
        kind = inspect.isclass(value) or inspect.isfunction(value)
        if kind and not name.startswith("_") and (names is not None or own):
            yield name, value


def methods(cls: type) -> Iterator[tuple[str, object]]:
    """Public methods and properties with a docstring or a signature of their own, bases of this package first."""
    found: dict[str, object] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("harebell") and not (base is not cls and issubclass(cls, BaseException)):
            found |= {name: value for name, value in vars(base).items() if name[0] != "_" and _callable(value)}
    order = {name: at for at, name in enumerate(vars(cls))}
    yield from sorted(found.items(), key=lambda item: order.get(item[0], -1))


def _callable(value: object) -> bool:
    return inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)


def _found(cls: type, method: str) -> object:
    return next((vars(base)[method] for base in cls.__mro__ if method in vars(base) and base is not object), None)


def _definition(function: object) -> ast.FunctionDef | ast.AsyncFunctionDef:
    node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]  # type: ignore[arg-type]
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return node


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    found = node.args
    every = [*found.posonlyargs, *found.args, *([found.vararg] if found.vararg else []), *found.kwonlyargs]
    return [each for each in [*every, *([found.kwarg] if found.kwarg else [])] if each.arg not in ("self", "cls")]


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    found = node.args
    plain = [*found.posonlyargs, *found.args]
    defaults: list[ast.expr | None] = [*[None] * (len(plain) - len(found.defaults)), *found.defaults]
    lines = [
        _parameter(each.arg, each.annotation, default)
        for each, default in zip(plain, defaults, strict=True)
        if each.arg not in ("self", "cls")
    ]
    if found.vararg:
        lines.append("*" + _parameter(found.vararg.arg, found.vararg.annotation, None))
    elif found.kwonlyargs:
        lines.append("*")
    lines += [
        _parameter(each.arg, each.annotation, default)
        for each, default in zip(found.kwonlyargs, found.kw_defaults, strict=True)
    ]
    if found.kwarg:
        lines.append("**" + _parameter(found.kwarg.arg, found.kwarg.annotation, None))
    return lines


def _parameter(name: str, annotation: ast.expr | None, default: ast.expr | None) -> str:
    typed = f"{name}: {_source(annotation)}" if annotation is not None else name
    return typed if default is None else f"{typed} = {_source(default)}"


def _source(node: ast.expr) -> str:
    return ast.unparse(node).replace("'", '"')


def fenced(name: str, parameters: list[str], returns: str) -> str:
    line = f"{name}({', '.join(parameters)}){returns}"
    if len(line) > WIDTH:
        line = f"{name}(\n" + "".join(f"    {each},\n" for each in parameters) + f"){returns}"
    return f"```python\n{line}\n```\n"


def prose(doc: str | None, anchors: dict[str, str]) -> list[str]:
    """A docstring as Markdown: paragraphs, lists of arguments or attributes, drawings as they are."""
    blocks = re.split(r"\n\s*\n", inspect.cleandoc(doc or "").strip())
    lines = []
    for block in blocks:
        rows = block.split("\n")
        if not block:
            continue
        if rows[0].startswith("    "):
            lines.append("```text\n" + textwrap.dedent(block) + "\n```\n")
        elif FIELD.fullmatch(rows[0]):
            lines.append(listed(rows, anchors))
        else:
            lines.append(linked(" ".join(row.strip() for row in rows), anchors) + "\n")
    return lines


def listed(rows: list[str], anchors: dict[str, str]) -> str:
    """Rows of `name, name   explanation` as a list; an indented row continues the one above."""
    items: list[str] = []
    for row in rows:
        if row.startswith(" "):
            items[-1] += f" {row.strip()}"
            continue
        field = FIELD.fullmatch(row)
        if field is None:
            raise ValueError(f"a list of arguments goes on with {row!r}: leave an empty line before a sentence")
        names, text = field[1], field[2]
        shown = ", ".join(f"`{name}`" if name != "..." else name for name in names.split(", "))
        items.append(f"- {shown}: {linked(text.strip(), anchors)}")
    return "\n".join(items) + "\n"


def linked(text: str, anchors: dict[str, str]) -> str:
    """The text with the names of documented classes as links; other code stays as it is."""

    def link(match: re.Match[str]) -> str:
        return f"[`{match[1]}`](#{anchors[match[1]]})"

    names = "|".join(sorted(map(re.escape, anchors), key=len, reverse=True))
    parts = re.split(r"(`[^`]*`)", text)
    for at, part in enumerate(parts):
        if at % 2:
            parts[at] = re.sub(rf"^`({names})`$", link, part)
        else:
            parts[at] = re.sub(rf"\b({'|'.join(_distinctive(anchors))})\b", link, part)
    return "".join(parts)


def _distinctive(anchors: dict[str, str]) -> list[str]:
    """The names that cannot be English words, because they have a second capital inside."""
    return sorted((name for name in anchors if re.search(r"[a-z][A-Z]", name)), key=len, reverse=True) or ["\0"]


def main() -> int:
    page = Page().write()
    if "--check" in sys.argv:
        return int(not PAGE.exists() or PAGE.read_text("utf-8") != page)
    PAGE.write_text(page, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
