"""Two import-linter contracts that its own types cannot express.

PureContract: the named modules reach none of the forbidden ones, directly or through others of ours. Unlike
import-linter's `forbidden`, a module that does not exist yet is no error, and `standard_library_only` also forbids
every third-party package, known or not.

ThirdPartyContract: each third-party package is imported in its one place only; a package without a place is an error.
"""

from __future__ import annotations

import sys
from typing import cast

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

OWN_PACKAGES = ("harebell", "pyspark_harebell")


def third_party(graph: ImportGraph) -> list[str]:
    """The top-level packages in the graph that are neither ours nor the standard library's, in order."""
    names = {module.partition(".")[0] for module in graph.modules}
    return sorted(names - set(OWN_PACKAGES) - set(sys.stdlib_module_names))


def is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


class _ListingContract(Contract):
    """A contract whose errors are lines of text, which `findings` gives."""

    def findings(self, graph: ImportGraph) -> list[str]:
        raise NotImplementedError

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        del verbose  # the checks are short and report no progress
        found = self.findings(graph)
        return ContractCheck(kept=not found, metadata={"findings": found})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for line in check.metadata["findings"]:
            output.print_error(f"  {line}", bold=False)
        output.new_line()


class PureContract(_ListingContract):
    """No chain of imports leads from `modules` to `forbidden`.

    Options: modules (a list of our packages; one that is missing is skipped), forbidden (a list of ours, or of
    the standard library's), standard_library_only (true forbids every third-party package too).
    """

    type_name = "pure"

    modules = fields.ListField(subfield=fields.StringField())
    forbidden = fields.ListField(subfield=fields.StringField())
    standard_library_only = fields.BooleanField(required=False, default=False)

    def findings(self, graph: ImportGraph) -> list[str]:
        forbidden = list(cast("list[str]", self.forbidden))
        if self.standard_library_only:
            forbidden += third_party(graph)
        found = []
        for module in cast("list[str]", self.modules):
            for target in forbidden:
                if module not in graph.modules or target not in graph.modules:
                    continue
                chains = graph.find_shortest_chains(importer=module, imported=target, as_packages=True)
                found += [" -> ".join(chain) for chain in sorted(chains)]
        return found


class ThirdPartyContract(_ListingContract):
    """Each third-party package is imported below its place only.

    Option: places, a list of "package: place" or "package: place, place".
    """

    type_name = "third_party"

    places = fields.ListField(subfield=fields.StringField())

    def findings(self, graph: ImportGraph) -> list[str]:
        places: dict[str, list[str]] = {}
        for entry in cast("list[str]", self.places):
            package, _, where = entry.partition(":")
            places[package.strip()] = [place.strip() for place in where.split(",")]
        found = []
        for package in third_party(graph):
            for importer in sorted(graph.find_modules_that_directly_import(package)):
                if package not in places:
                    found.append(f"{importer} imports {package}, which has no place: give it one in pyproject.toml")
                elif not any(is_within(importer, place) for place in places[package]):
                    found.append(f"{importer} imports {package}, whose place is {', '.join(places[package])}")
        return found
