"""A module uses no private name of another module, not even a base class's."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src"
MODULES = sorted(str(path.relative_to(SOURCES)) for path in SOURCES.rglob("*.py"))

# Private names of other libraries that have no public counterpart.
FOREIGN = {
    "harebell/client/blocking/loop.py": {
        "self._recursion_count",  # RLock: how often this thread has it; its __enter__ is overridden
    },
    "harebell/client/blocking/thread.py": {
        "asyncio._get_running_loop",  # asyncio.get_running_loop raises; this runs for each call
        "self.loop.lock._is_owned",  # RLock: whether this thread has it; threading.Condition asks it, too
        "awaited._asyncio_future_blocking",  # how a future tells asyncio's tasks to wait for it
    },
    "harebell/django/management/commands/harebell_worker.py": {
        "os._exit",  # the documented way out while threads run that cannot be ended
    },
}


def own_names(tree: ast.AST) -> set[str]:
    """The names that the module itself defines: functions, classes, attributes, slots, variables."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                names.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
    return names


def foreign_uses(source: str) -> Iterator[str]:
    tree = ast.parse(source)
    own = own_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            if node.attr not in own:
                yield ast.unparse(node)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("harebell"):
            yield from (name.name for name in node.names if name.name.startswith("_") and name.name != "__version__")


@pytest.mark.parametrize("module", MODULES)
def test_private_names_stay_in_their_module(module: str) -> None:
    uses = set(foreign_uses((SOURCES / module).read_text("utf-8")))
    assert uses == FOREIGN.get(module, set())


def test_the_check_finds_private_names_of_others() -> None:
    source = "def f(self, other):\n    self._mine = 1\n    return self._inherited, other._its, other._mine"
    assert sorted(foreign_uses(source)) == ["other._its", "self._inherited"]
    assert list(foreign_uses("from harebell.errors import _private, __version__")) == ["_private"]
