"""The test of a module is found by its name: src/harebell/a/b.py is tested by tests/a/test_b.py.

A module whose tests are elsewhere stands in ELSEWHERE, with the file or the folder where they are; a module that is new
needs a test of its name or an entry. `python -m tests.repository.test_mirror` prints what is missing and what is stale.
"""

from __future__ import annotations

from pathlib import Path

from tests.repository.elsewhere import ELSEWHERE

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "harebell"
TESTS = ROOT / "tests"


def modules() -> list[str]:
    """What needs a test, as a path below src/harebell; a package that only gathers names does not."""
    found = (path for path in SOURCES.rglob("*.py") if path.name != "__init__.py" or defines(path))
    return sorted(path.relative_to(SOURCES).as_posix() for path in found)


def defines(path: Path) -> bool:
    return any(line.startswith(("def ", "class ", "async def ")) for line in path.read_text().splitlines())


def namesake(module: str) -> str:
    """The test that a module has by its name; a package's own __init__.py has test_PACKAGE.py beside its folder."""
    path = Path(module)
    if path.name == "__init__.py":
        path = path.parent
    return (path.parent / f"test_{path.stem}.py").as_posix()


def missing() -> list[str]:
    """Modules without a test of their name and without an entry."""
    return [module for module in modules() if module not in ELSEWHERE and not (TESTS / namesake(module)).exists()]


def stale() -> list[str]:
    """Entries for what is gone, or has a test of its name now, or whose tests are no longer there."""
    known = set(modules())
    return [
        module
        for module, place in ELSEWHERE.items()
        if module not in known or (TESTS / namesake(module)).exists() or not (TESTS / place).exists()
    ]


def test_every_module_has_its_test() -> None:
    assert missing() == [], "write tests/" + ", tests/".join(map(namesake, missing()[:3]))


def test_no_exception_is_stale() -> None:
    assert stale() == []


def test_exceptions_are_sorted() -> None:
    assert list(ELSEWHERE) == sorted(ELSEWHERE)


if __name__ == "__main__":
    print(*(f"missing: {module}" for module in missing()), *(f"stale: {module}" for module in stale()), sep="\n")
