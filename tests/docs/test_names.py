"""Names of the code in the documentation: what looks like a class's, a module's or a file's is there."""

from __future__ import annotations

import ast
import pkgutil
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FOLDERS = ("src", "tests", "benchmarks", "tools", "examples")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
OF_A_CLASS = re.compile(r"_?[A-Z]\w*[a-z]\w*\.[a-z_]\w*")  # Connection.unblock
OF_A_MODULE = re.compile(r"[a-z_]\w*\.[A-Z][A-Z0-9_]{2,}")  # connection.WAITING_BYTES
DOTTED = re.compile(r"harebell(\.\w+)+")  # harebell.broker.Broker
FILE = re.compile(r"[a-z_][\w/]*\.py")  # operations/alarms.py


class Code:
    """The files of the repository, and the names of the package.

    files     every file of Python
    classes   the names that the classes of a name have, without those of their bases
    bases     the names of their bases
    modules   the names at the top of the modules with a name, which is the last part of theirs
    """

    def __init__(self) -> None:
        self.files = [path.as_posix() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
        self.classes: dict[str, set[str]] = defaultdict(set)
        self.bases: dict[str, set[str]] = defaultdict(set)
        self.modules: dict[str, set[str]] = defaultdict(set)
        for path in (ROOT / "src" / "harebell").rglob("*.py"):
            tree = ast.parse(path.read_text())
            self.modules[path.parent.name if path.name == "__init__.py" else path.stem] |= set(names(tree.body))
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    self._add(node)

    def _add(self, made: ast.ClassDef) -> None:
        own = self.classes[made.name]
        own |= set(names(made.body))
        own |= {
            each.attr for each in ast.walk(made)
            if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "self"
            and isinstance(each.ctx, ast.Store)
        }  # fmt: skip
        for base in made.bases:
            base = base.value if isinstance(base, ast.Subscript) else base
            self.bases[made.name].add(base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", ""))

    def has(self, name: str, attribute: str) -> bool:
        """Whether a class of that name has the attribute, or one of its bases has."""
        if attribute in self.classes.get(name, ()):
            return True
        return any(base != name and self.has(base, attribute) for base in self.bases.get(name, ()))


def names(body: list[ast.stmt]) -> list[str]:
    """The names that statements of a module or a class define."""
    found: list[str] = []
    for node in body:
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                found.append(node.name)
            case ast.Assign():
                found += [each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.append(name)
            case ast.Import() | ast.ImportFrom():
                found += [(each.asname or each.name).partition(".")[0] for each in node.names]
            case ast.If() | ast.Try():
                found += names([*node.body, *node.orelse])
    return found


def is_found(dotted: str) -> bool:
    """Whether a dotted name leads to a module, or to something in one."""
    try:
        pkgutil.resolve_name(dotted)
    except (ImportError, AttributeError):
        return False
    return True


@cache
def code() -> Code:
    return Code()


def missing(text: str) -> list[str]:
    """What the text has between backticks, looks like a name of the code, and is none."""
    known, wrong = code(), list[str]()
    for found in CODE.findall(FENCED.sub("", text)):
        name = found.removesuffix("()")
        first, _, rest = name.partition(".")
        if FILE.fullmatch(name):
            there = any(file.endswith(f"/{name}") for file in known.files)
        elif DOTTED.fullmatch(name):
            there = is_found(name)
        elif OF_A_CLASS.fullmatch(name):
            there = known.has(first, rest)
        elif OF_A_MODULE.fullmatch(name):
            there = rest in known.modules.get(first, ())
        else:
            continue
        if not there:
            wrong.append(found)
    return wrong


@pytest.mark.parametrize("page", sorted((DOCS / "explanation").glob("*.md")), ids=lambda page: page.name)
def test_names_of_the_code_are_there(page: Path) -> None:
    assert missing(page.read_text()) == []


@pytest.mark.parametrize(
    "name",
    ["Connection._pause", "Conection.pause_or_resume()", "connection.WAITING_BYTES", "harebell.broker.Brokr",
     "harebell.brokers", "harebell.broker.Broker.begin", "operations/alarm.py"],
)  # fmt: skip
def test_a_name_that_nothing_has_is_found(name: str) -> None:
    assert missing(f"It is `{name}`.") == [name]


@pytest.mark.parametrize(
    "name",
    ["Connection.pause_or_resume", "base.WAITING_BYTES", "harebell.broker.Broker", "harebell.errors",
     "harebell.broker.Broker.start()", "operations/alarms.py", "basic.ack", "x-match", "amq.topic"],
)  # fmt: skip
def test_a_name_of_the_code_and_one_of_others_pass(name: str) -> None:
    assert missing(f"It is `{name}`.") == []
