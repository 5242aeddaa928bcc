"""The common part of the generators of Python modules: imports for copied annotations, ruff's format, `--check`.

A generator passes the text of each of its files to `run`.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import keyword
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"


# RabbitMQ's spelling in all its texts.
RENAMED = {"nowait": "no_wait"}


def identifier(name: str) -> str:
    """The Python name of a field of a specification."""
    snake = name.replace("-", "_")
    snake = RENAMED.get(snake, snake)
    return snake + "_" if keyword.iskeyword(snake) else snake


def camel(*names: str) -> str:
    """The name of a Python class, of names in a specification."""
    return "".join(part.capitalize() for name in names for part in name.split("-"))


def table_of(
    name: str, annotation: str, members: list[str], opening: str = "frozenset({", closing: str = "})"
) -> list[str]:
    """The lines of a constant that is a set, a dict or a tuple."""
    return ["", f"{name}: Final[{annotation}] = {opening}", *[f"    {m}," for m in members], closing]


def path_of(module: str) -> Path:
    return SOURCE / Path(*module.split(".")).with_suffix(".py")


@functools.cache
def imports_of(module: ModuleType) -> dict[str, str]:
    """The import statement for each name in a module, for another module: of its own names and of imported ones."""
    found: dict[str, str] = {}
    # The whole tree, because types may be imported under TYPE_CHECKING.
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found[alias.asname or alias.name] = f"from {node.module} import {ast.unparse(alias)}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name.partition(".")[0]] = f"import {ast.unparse(alias)}"
    for name in vars(module):
        if name not in found and not hasattr(builtins, name):
            found[name] = f"from {module.__name__} import {name}"
    return found


def needed(expressions: Iterable[ast.expr | None], module: ModuleType) -> set[str]:
    """The imports that a module needs when annotations and defaults of another `module` are copied into it."""
    names = {
        node.id
        for expression in expressions
        if expression is not None
        for node in ast.walk(expression)
        if isinstance(node, ast.Name)
    }
    return {imports_of(module)[name] for name in names if not hasattr(builtins, name)}


def definition(function: object) -> ast.FunctionDef | ast.AsyncFunctionDef:
    """The source of a function or method, as a tree."""
    node = ast.parse(inspect.cleandoc("\n" + inspect.getsource(inspect.unwrap(function)))).body[0]  # type: ignore[arg-type]
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return node


def formatted(text: str, path: Path) -> str:
    """The text as ruff formats it, with sorted imports."""
    ruff = [sys.executable, "-m", "ruff"]
    named = ["--quiet", "--stdin-filename", str(path), "-"]
    for command in (["check", "--select", "I,F401", "--fix-only"], ["format"]):
        done = subprocess.run([*ruff, *command, *named], input=text, capture_output=True, text=True, cwd=ROOT)
        if done.returncode:
            raise SystemExit(f"ruff {command[0]} cannot read what is to be {path}: {done.stderr}")
        text = done.stdout
    return text


def outdated(files: dict[Path, str]) -> list[Path]:
    """The committed files that differ from the generated texts."""
    return [
        path for path, text in files.items() if not path.exists() or path.read_text("utf-8") != formatted(text, path)
    ]


def run(files: dict[Path, str]) -> int:
    """Write the files, or with --check print the committed ones that differ; the result is the exit status."""
    if "--check" in sys.argv[1:]:
        for path in (differing := outdated(files)):
            print(f"{path.relative_to(ROOT)} differs from its source: run python -m tools.{Path(sys.argv[0]).stem}")
        return 1 if differing else 0
    for path, text in files.items():
        path.write_text(formatted(text, path), "utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    return 0
