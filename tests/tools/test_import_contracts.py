"""The contracts find forbidden imports, in graphs made by hand."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from typing import Any

import pytest
from grimp import ImportGraph
from importlinter import ContractCheck

from tools.import_contracts import PureContract, ThirdPartyContract


def graph(*imports: str) -> ImportGraph:
    """An import graph from lines such as "harebell.routing.router -> asyncio", with the packages of each module."""
    made = ImportGraph()
    for line in imports:
        importer, imported = line.split(" -> ")
        for module in (importer, imported):
            parts = module.split(".")
            for depth in range(1, len(parts) + 1):
                name = ".".join(parts[:depth])
                if name not in made.modules:
                    made.add_module(name, is_squashed=parts[0] != "harebell")
        made.add_import(importer=importer, imported=imported, line_number=1, line_contents=line)
    return made


def pure(**options: Any) -> PureContract:
    return PureContract(
        "pure", {}, {"modules": ["harebell.protocol", "harebell.routing"], "forbidden": ["time"]} | options
    )


def places(*entries: str) -> ThirdPartyContract:
    return ThirdPartyContract("places", {}, {"places": list(entries)})


def findings(check: ContractCheck) -> list[str]:
    assert check.kept == (not check.metadata["findings"])
    found: list[str] = check.metadata["findings"]
    return found


def test_pure_finds_a_direct_import() -> None:
    check = pure().check(graph("harebell.routing.router -> time"), verbose=False)
    assert findings(check) == ["harebell.routing.router -> time"]


def test_pure_finds_an_import_through_another_package() -> None:
    check = pure().check(graph("harebell.protocol.frames -> harebell.errors", "harebell.errors -> time"), verbose=False)
    assert findings(check) == ["harebell.protocol.frames -> harebell.errors -> time"]


def test_pure_finds_a_forbidden_package_of_ours_by_its_modules() -> None:
    contract = pure(modules=["harebell.spark"], forbidden=["harebell.broker"])
    check = contract.check(graph("harebell.spark.reader -> harebell.broker.queues.classic"), verbose=False)
    assert findings(check) == ["harebell.spark.reader -> harebell.broker.queues.classic"]


def test_pure_leaves_others_and_missing_packages_alone() -> None:
    check = pure().check(graph("harebell.broker.net -> time", "harebell.broker.net -> harebell.routing"), verbose=False)
    assert findings(check) == []


@pytest.mark.parametrize(("only", "expected"), [("true", ["harebell.routing.router -> numpy"]), ("false", [])])
def test_pure_can_forbid_all_third_party_packages(only: str, expected: list[str]) -> None:
    check = pure(standard_library_only=only).check(
        graph("harebell.routing.router -> numpy", "harebell.routing.router -> re"), verbose=False
    )
    assert findings(check) == expected


def test_third_party_accepts_the_place_and_what_is_below_it() -> None:
    check = places("rich: harebell.cli, harebell.spark").check(
        graph(
            "harebell.cli -> rich", "harebell.cli.serve -> rich", "harebell.spark.show -> rich", "harebell.cli -> json"
        ),
        verbose=False,
    )
    assert findings(check) == []


def test_third_party_finds_the_wrong_place_and_the_package_without_one() -> None:
    check = places("rich: harebell.cli").check(
        graph("harebell.client.api -> rich", "harebell.clip -> rich", "harebell.cli -> requests"), verbose=False
    )
    assert findings(check) == [
        "harebell.cli imports requests, which has no place: give it one in pyproject.toml",
        "harebell.client.api imports rich, whose place is harebell.cli",
        "harebell.clip imports rich, whose place is harebell.cli",
    ]


def test_a_broken_contract_prints_its_findings() -> None:
    contract = pure()
    check = contract.check(graph("harebell.routing.router -> time"), verbose=False)
    printed = io.StringIO()
    with redirect_stdout(printed):
        contract.render_broken_contract(check)
    assert "harebell.routing.router -> time" in printed.getvalue()
