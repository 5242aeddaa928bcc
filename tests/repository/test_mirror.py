"""Every module has a test file of its name: tests/a/test_b.py tests src/harebell/a/b.py.

The table ELSEWHERE names the test file or folder of any other module. A new module needs a test file of its name or an
entry there. `python -m tests.repository.test_mirror` prints modules without a test and entries that are stale.
"""

from __future__ import annotations

from pathlib import Path

from tests.repository.elsewhere import ELSEWHERE

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "harebell"
TESTS = ROOT / "tests"


def modules() -> list[str]:
    """The modules that need a test, as paths below src/harebell; a package that only imports names needs none."""
    found = (path for path in SOURCES.rglob("*.py") if path.name != "__init__.py" or defines(path))
    return sorted(path.relative_to(SOURCES).as_posix() for path in found)


def defines(path: Path) -> bool:
    return any(line.startswith(("def ", "class ", "async def ")) for line in path.read_text().splitlines())


def namesake(module: str) -> str:
    """The test file of a module's name; for a package's __init__.py, test_PACKAGE.py beside the package's folder."""
    path = Path(module)
    if path.name == "__init__.py":
        path = path.parent
    return (path.parent / f"test_{path.stem}.py").as_posix()


def missing() -> list[str]:
    """The modules without a test file of their name and without an entry."""
    return [module for module in modules() if module not in ELSEWHERE and not (TESTS / namesake(module)).exists()]


def stale() -> list[str]:
    """The entries of modules that do not exist or have a test file of their name, and those of missing tests."""
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
