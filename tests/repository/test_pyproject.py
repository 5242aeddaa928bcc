"""pyproject.toml has requirements that pip can read, no dependencies of the base install, and extras that agree."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
GROUPS: dict[str, list[str]] = {
    name: [line for line in lines if isinstance(line, str)] for name, lines in PYPROJECT["dependency-groups"].items()
}


def test_the_base_install_has_no_dependencies() -> None:
    assert PROJECT["dependencies"] == []


def test_the_extras_are_the_documented_ones() -> None:
    assert set(EXTRAS) == {
        "server", "admin", "spark", "avro", "delta", "iceberg", "connect", "channels", "django", "demo", "json", "otel",
        "postgres", "speed", "all",
    }  # fmt: skip


@pytest.mark.parametrize("line", sorted({line for lines in (EXTRAS | GROUPS).values() for line in lines}))
def test_every_requirement_parses_and_fits_what_is_installed(line: str) -> None:
    requirement = Requirement(line)
    if requirement.name == PROJECT["name"]:
        assert requirement.extras <= set(EXTRAS)
        return
    if requirement.marker is not None and not requirement.marker.evaluate():
        return
    try:
        installed = version(requirement.name)
    except PackageNotFoundError:
        return  # a development install without this extra
    assert requirement.specifier.contains(installed, prereleases=True)


def test_all_means_every_other_extra() -> None:
    (requirement,) = (Requirement(line) for line in EXTRAS["all"])
    assert requirement.name == PROJECT["name"]
    assert requirement.extras == set(EXTRAS) - {"all"}


def test_the_running_python_is_one_of_the_supported() -> None:
    assert SpecifierSet(PROJECT["requires-python"]).contains(".".join(map(str, sys.version_info[:3])))


def test_the_version_can_be_read_without_importing() -> None:
    source = (ROOT / PYPROJECT["tool"]["hatch"]["version"]["path"]).read_text()
    assert re.search(r'^__version__ = "\d+\.\d+\.\d+\S*"$', source, re.MULTILINE)


def test_every_lint_exception_has_its_reason() -> None:
    """Each ignored code in the ruff tables has a comment on its line."""
    text = (ROOT / "pyproject.toml").read_text()
    ruff = text[text.index("[tool.ruff.lint]") : text.index("[tool.mypy]")]
    ignored = ruff[ruff.index("\nignore = [") :]
    codes = [line for line in ignored.splitlines() if re.match(r'\s+"[A-Z]+\d*",', line)]
    assert codes
    assert [line for line in codes if "#" not in line] == []


def test_changelog_fragments_have_a_known_type() -> None:
    types = {entry["directory"] for entry in PYPROJECT["tool"]["towncrier"]["type"]}
    names = [path.name for path in (ROOT / "changelog.d").iterdir() if path.name != "README.md"]
    assert [name for name in names if not re.fullmatch(rf"[+\w-]+\.({'|'.join(types)})(\.\d+)?\.md", name)] == []
