"""Packages whose names are loaded at the first use: `__all__`, the type checker's list and the table agree."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

PACKAGES = [
    "harebell.channels",
    "harebell.spark",
    *(f"harebell.spark.jobs.{job}" for job in ("archive", "deadletters", "replay", "simulate", "traffic")),
]


@pytest.mark.parametrize("name", PACKAGES)
def test_the_three_lists_agree(name: str) -> None:
    if name.startswith("harebell.spark"):
        pytest.importorskip("pyspark")
    package = import_module(name)
    tree = ast.parse(Path(str(package.__file__)).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    typed = {alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    calls = [node for other in block.orelse for node in ast.walk(other) if isinstance(node, ast.Call)]
    (table,) = (ast.literal_eval(call.args[1]) for call in calls if getattr(call.func, "id", "") == "lazy_names")
    found = {
        name_: module if "." in module else f"{name}.{module}" for module, names in table.items() for name_ in names
    }
    assert found == typed
    eager = {alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert set(package.__all__) == {*found, *eager} - {"TYPE_CHECKING", "annotations", "lazy_names"}
    for each, module in found.items():
        assert getattr(package, each) is getattr(import_module(module), each)
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'missing'"):
        package.missing  # noqa: B018


def test_a_part_of_a_job_loads_no_more_than_that_part() -> None:
    pytest.importorskip("pyspark")
    program = (
        "import sys, harebell.spark.jobs.archive.selection; print('harebell.spark.jobs.archive.run' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "False\n"


MODULES = {
    "harebell.blocking": "harebell.client.blocking",
    "harebell.blocking.sessions": "harebell.client.blocking.sessions",
    "harebell.events": "harebell.client.events",
    "harebell.middleware": "harebell.client.middleware",
    "harebell.sessions": "harebell.client.sessions",
}


@pytest.mark.parametrize("name", MODULES)
def test_the_public_modules_can_be_imported_as_modules(name: str) -> None:
    """In a process of its own: a module that is loaded is found by its name anyway."""
    home = MODULES[name]
    names = [each for each in dir(import_module(home)) if not each.startswith("_") and each[0].isupper()]
    assert names
    program = f"import {name}, {home}; from {name} import {names[0]}\n" + "\n".join(
        f"assert {name}.{each} is {home}.{each}" for each in names
    )
    program += f"\nassert {names[0]!r} in dir({name}) and not hasattr({name}, 'missing')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert set(dir(import_module(name))) >= set(names)
