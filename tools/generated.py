"""What the generators of Python modules share: imports for the annotations that they copy, ruff's form, `--check`.

A generator gives `run` the text of each file that it is responsible for.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"


def path_of(module: str) -> Path:
    return SOURCE / Path(*module.split(".")).with_suffix(".py")


@functools.cache
def imports_of(module: ModuleType) -> dict[str, str]:
    """The statement that imports each name of a module elsewhere: its own names, and those that it imports itself."""
    found: dict[str, str] = {}
    # All of it: types may be imported under TYPE_CHECKING.
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
    """The imports that these annotations and defaults, written in that module, need in another one."""
    names = {
        node.id
        for expression in expressions
        if expression is not None
        # All of it: types may be imported under TYPE_CHECKING.
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
    """The text in ruff's form, its imports sorted."""
    ruff = [sys.executable, "-m", "ruff"]
    named = ["--quiet", "--stdin-filename", str(path), "-"]
    for command in (["check", "--select", "I,F401", "--fix-only"], ["format"]):
        done = subprocess.run([*ruff, *command, *named], input=text, capture_output=True, text=True, cwd=ROOT)
        if done.returncode:
            raise SystemExit(f"ruff {command[0]} cannot read what is to be {path}: {done.stderr}")
        text = done.stdout
    return text


def outdated(files: dict[Path, str]) -> list[Path]:
    """The committed files that differ from what they should be."""
    return [
        path for path, text in files.items() if not path.exists() or path.read_text("utf-8") != formatted(text, path)
    ]


def run(files: dict[Path, str]) -> int:
    """Write the files, or with --check name the committed ones that differ. Gives the exit status."""
    if "--check" in sys.argv[1:]:
        for path in (differing := outdated(files)):
            print(f"{path.relative_to(ROOT)} differs from its source: run python -m tools.{Path(sys.argv[0]).stem}")
        return 1 if differing else 0
    for path, text in files.items():
        path.write_text(formatted(text, path), "utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    return 0
