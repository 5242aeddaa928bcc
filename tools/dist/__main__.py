"""Build what is published into dist/, and try each of it in a clean environment.

    python -m tools.dist                   sdist, pure wheel, a compiled wheel for each Python from 3.11 to 3.14 here
    python -m tools.dist --only pure       only these: sdist, pure, compiled
    python -m tools.dist --quick           try without the protocol's tests and the demo
    PYTHONS="3.12" python -m tools.dist    compiled wheels for these alone; one that is missing is then an error

A compiled wheel has the same sources as the pure one, and beside them what mypyc made of the modules in pyproject.toml.
Its platform is what auditwheel finds (manylinux_2_17_x86_64, ...), or this machine's own where it finds none.

A trial installs the file into a new virtual environment, far from this folder: `pip check`, `harebell doctor`, a
message through an embedded broker, `harebell serve`, the tests of the protocol, and `harebell demo flights`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tools.dist.build import build, check_metadata, compiled, find_python, lacks, leaks, strays, unpack
from tools.dist.commands import ROOT, Failed, say
from tools.dist.trial import trial

DIST: Final = ROOT / "dist"
KINDS: Final = ("sdist", "pure", "compiled")
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")


@dataclass(frozen=True, slots=True)
class Made:
    """A file in dist/, the Python that it is tried with, and the build that it has to be."""

    file: Path
    python: Path
    build: Literal["pure", "compiled"]


class Run:
    """One run of the program: what was built, and what failed."""

    def __init__(self, work: Path, *, quick: bool) -> None:
        self.made: list[Made] = []
        self.said: list[str] = []  # a line a file, for the end
        self.failed: list[str] = []
        self._work = work
        self._quick = quick

    def add(self, file: Path, python: Path, kind: Literal["pure", "compiled"]) -> None:
        DIST.mkdir(exist_ok=True)
        self.made.append(Made(Path(shutil.copy(file, DIST)), python, kind))

    def build(self, wanted: tuple[str, ...]) -> Path:
        """Build all that is wanted. Returns the unpacked sdist. Raises Failed when there is nothing to go on with."""
        say("the sdist, and the pure wheel from it")
        sdist = build("sdist", self._work / "sdist")
        if found := strays(sdist):
            raise Failed(f"the sdist would have files that git does not know: {', '.join(found[:10])}")
        source = unpack(sdist, self._work / "source")
        pure = build("pure", self._work / "pure", source)
        if "sdist" in wanted:
            self.add(sdist, Path(sys.executable), "pure")
        if "pure" in wanted:
            self.add(pure, Path(sys.executable), "pure")
        if "compiled" in wanted:
            self.compile(pure, source)
        return source

    def compile(self, pure: Path, source: Path) -> None:
        asked = os.environ.get("PYTHONS", "").split()
        for version in asked or PYTHONS:
            python = find_python(version)
            missing = "not on this machine" if python is None else lacks(python)
            if python is None or missing:
                self.said.append(f"Python {version}: not compiled: {missing}")
                if asked:
                    self.failed.append(self.said[-1])
                continue
            say(f"the wheel that is compiled for Python {version}, about three minutes")
            work = self._work / version
            work.mkdir()
            try:
                self.add(compiled(pure, python, source, work), python, "compiled")
            except Failed as error:
                self.said.append(f"Python {version}: FAILED")
                self.failed.append(f"Python {version}: not compiled: {error}")

    def check(self) -> None:
        """Check the metadata, and that no file has a path of this machine."""
        try:
            check_metadata([each.file for each in self.made])
        except Failed as error:
            self.failed.append(str(error))
        for each in self.made:
            if found := leaks(each.file, self._work):
                self.failed.append(f"{each.file.name} has paths of this machine: {', '.join(found[:10])}")

    def try_all(self, source: Path) -> None:
        for number, each in enumerate(self.made):
            name = f"{each.file.name}, {each.file.stat().st_size / 1e6:.1f} MB"
            say(f"trying {name}")
            work = self._work / f"trial-{number}"
            work.mkdir()
            try:
                tried = trial(each.file, each.python, each.build, source, work, quick=self._quick)
                self.said.append(f"{name}: {', '.join(tried)}")
            except Failed as error:
                self.said.append(f"{name}: FAILED")
                self.failed.append(f"{each.file.name}: {error}")
            shutil.rmtree(work, ignore_errors=True)  # PySpark alone is 450 MB


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", choices=KINDS, action="append")
    options.add_argument("--quick", action="store_true")
    asked, began = options.parse_args(), time.monotonic()
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="harebell-dist-") as work:
        this = Run(Path(work), quick=asked.quick)
        try:
            source = this.build(tuple(asked.only or KINDS))
            this.check()
            this.try_all(source)
        except Failed as error:
            this.failed.append(str(error))
    for text in this.failed:
        say(f"FAILED: {text}")
    for text in this.said:
        say(text)
    failures = f"{len(this.failed)} {'failure' if len(this.failed) == 1 else 'failures'}"
    say(f"{len(this.made)} files in dist/, {failures}, {time.monotonic() - began:.0f} s")
    return 1 if this.failed else 0


if __name__ == "__main__":
    sys.exit(main())
