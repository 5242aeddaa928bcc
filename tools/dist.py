"""Build what is published into dist/, and try each of it in a clean environment.

    python -m tools.dist                   sdist, pure wheel, a compiled wheel for each Python from 3.11 to 3.14 here
    python -m tools.dist --only pure       only these: sdist, pure, compiled
    python -m tools.dist --quick           try without the protocol's tests and the demo

A compiled wheel has the same sources as the pure one, and beside them what mypyc made of the modules in pyproject.toml.
Its platform is this machine's own (linux_x86_64, ...): what older systems can load is not examined.

A trial installs the file into a new virtual environment, far from this folder: `pip check`, `harebell doctor`, a
message through an embedded broker, `harebell serve`, the tests of the protocol, and `harebell demo flights`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
DIST: Final = ROOT / "dist"
KINDS: Final = ("sdist", "pure", "compiled")
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
FLIGHTS: Final = 20_000
OF_THE_REPOSITORY: Final = "tests/protocol/v091/test_methods.py::test_generated_file_is_current"
TRIAL: Final = """
import asyncio, sys
import harebell
from harebell.broker import Broker

async def main():
    async with Broker() as broker, harebell.connect(broker.url) as connection, connection.channel() as channel:
        await channel.confirm_select()
        await channel.queue_declare("q")
        await channel.publish(b"x", "", "q")
        assert (await channel.get("q", no_ack=True)).body == b"x"

asyncio.run(main())
print(harebell.build, harebell.__file__)
"""
SERVE: Final = """
import signal, subprocess, sys
run = subprocess.Popen([sys.argv[1], "serve", "--port", "0", "--data", sys.argv[2], "--no-management"],
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
line = next(line for line in run.stdout if " ready at " in line)
run.send_signal(signal.SIGTERM)
run.communicate(timeout=60)
sys.exit(run.returncode or (sys.argv[3] == "compiled") != ("+compiled" in line))
"""


class Failed(Exception):
    """A step failed; its output is the text."""


def step(words: str) -> None:
    print(f"dist: {words}", flush=True)


def run(command: Sequence[str | Path], cwd: Path, **more: str) -> str:
    """Run it without this folder's paths. Returns what it said. Raises Failed."""
    names = ("PYTHONPATH", "HAREBELL_PURE", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in names} | more
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=environment, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command))}\n{done.stdout[-4000:]}")
    return done.stdout


def pythons() -> Iterator[tuple[str, Path]]:
    """Each Python of `PYTHONS` that is here, on PATH or in pyenv's folder, with its version."""
    folder = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for version in PYTHONS:
        candidates = [f"python{version}", *map(str, sorted(folder.glob(f"{version}.*/bin/python"))), sys.executable]
        for each in candidates:
            found = shutil.which(each)
            if found is not None and version_of(found) == version:
                yield version, Path(found)
                break
        else:
            step(f"Python {version}: not on this machine")


def version_of(python: str) -> str:
    """ "3.12"; "" for what is no Python: version managers put names on PATH that only print an error."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def environment(python: Path, folder: Path, *packages: str) -> Path:
    """A new virtual environment with these packages. Returns its Python."""
    run([python, "-m", "venv", folder], ROOT)
    made = folder / "bin" / "python"
    run([made, "-m", "pip", "install", "--quiet", "--upgrade", "pip>=25.1", *packages], folder)
    return made


def build(kind: str, into: Path, root: Path = ROOT) -> Path:
    """Build the sdist or the pure wheel. Returns its path."""
    target = "sdist" if kind == "sdist" else "wheel"
    into.mkdir(parents=True, exist_ok=True)
    before = set(into.iterdir())
    run([sys.executable, "-m", "hatchling", "build", "-t", target, "-d", into], root)
    (made,) = set(into.iterdir()) - before
    return made


def compiled(pure: Path, python: Path, work: Path) -> Path:
    """The pure wheel with compiled modules beside its sources, for that Python and this machine. Returns its path."""
    builder = environment(python, work / "builder", "mypy==2.4.*", "setuptools>=75")
    run([builder, ROOT / "tools" / "compile.py", "--into", work / "modules"], ROOT)
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    tag = "cp" + version_of(str(python)).replace(".", "")
    return with_modules(pure, work / "modules", f"{tag}-{tag}-{platform}", work)


def with_modules(pure: Path, modules: Path, tag: str, work: Path) -> Path:
    """A copy of the wheel in `work` that has the files below `modules` too, with another tag."""
    run([sys.executable, "-m", "wheel", "unpack", "-d", work / "unpacked", pure], work)
    (folder,) = (work / "unpacked").iterdir()
    shutil.copytree(modules, folder, dirs_exist_ok=True)
    (said,) = folder.glob("*.dist-info/WHEEL")
    lines = [line for line in said.read_text("utf-8").splitlines() if line and not line.startswith("Tag:")]
    lines = ["Root-Is-Purelib: false" if line.startswith("Root-Is-Purelib:") else line for line in lines]
    said.write_text("\n".join([*lines, f"Tag: {tag}", ""]), "utf-8")
    packed = work / "packed"
    packed.mkdir()
    run([sys.executable, "-m", "wheel", "pack", "-d", packed, folder], work)
    (made,) = packed.iterdir()
    return made


def trial(file: Path, python: Path, build: str, work: Path, *, quick: bool) -> list[str]:
    """Install the file and use it. Returns what was tried. Raises Failed."""
    own = environment(python, work / "venv", f"{file}[server]")
    run([own, "-m", "pip", "check"], work)
    said, _, place = run([own, "-c", TRIAL], work).strip().rpartition("\n")[2].partition(" ")
    if said != build or not Path(place).is_relative_to(work):
        raise Failed(f"{file.name} runs {said} from {place}, not {build} from {work}")
    words = {"pure": "pure Python", "compiled": "compiled"}[build]
    if words not in run([own.with_name("harebell"), "doctor"], work, COLUMNS="200"):
        raise Failed(f"{file.name}: `harebell doctor` does not say {words!r}")
    run([own, "-c", SERVE, own.with_name("harebell"), work / "data", build], work)
    tried = ["install", "doctor", "a message", "serve"]
    if not quick:
        for name in ("tests", "spec", "pyproject.toml"):
            source = ROOT / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, work / name)
        run([own, "-m", "pip", "install", "--quiet", "--group", "test"], work)
        closing = run(
            [own, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "logical", "-o", "pythonpath=.",
             "--hypothesis-profile", "quick", "--deselect", OF_THE_REPOSITORY, "tests/protocol"], work,
        )  # fmt: skip
        tried.append(f"protocol: {closing.strip().rpartition(chr(10))[2]}")
        run([own, "-m", "pip", "install", "--quiet", f"{file}[demo]"], work)
        run([own.with_name("harebell"), "demo", "flights", "--limit", str(FLIGHTS)], work)
        tried.append(f"demo of {FLIGHTS} flights")
    return tried


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", choices=KINDS, action="append")
    options.add_argument("--quick", action="store_true")
    asked = options.parse_args()
    wanted, began, failed = asked.only or KINDS, time.monotonic(), list[str]()
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="harebell-dist-") as name:
        folder = Path(name)
        made = list[tuple[Path, Path, str]]()  # the file, a Python for it, and the build that it has
        try:
            step("the pure wheel")
            pure = build("pure", folder / "pure")
            if "sdist" in wanted:
                step("the sdist")
                made.append((build("sdist", DIST), Path(sys.executable), "pure"))
            if "pure" in wanted:
                DIST.mkdir(exist_ok=True)
                made.append((Path(shutil.copy(pure, DIST)), Path(sys.executable), "pure"))
        except Failed as error:
            sys.exit(f"dist: {error}")
        for version, python in pythons() if "compiled" in wanted else ():
            step(f"the wheel that is compiled for Python {version}, about two minutes")
            try:
                DIST.mkdir(exist_ok=True)
                work = folder / version
                work.mkdir()
                made.append((Path(shutil.copy(compiled(pure, python, work), DIST)), python, "compiled"))
            except Failed as error:
                failed.append(f"Python {version}: not compiled: {error}")
        for number, (file, python, kind) in enumerate(made):
            step(f"trying {file.name}, {file.stat().st_size / 1e6:.1f} MB")
            work = folder / f"trial-{number}"
            work.mkdir()
            try:
                step(f"{file.name}: {', '.join(trial(file, python, kind, work, quick=asked.quick))}")
            except Failed as error:
                failed.append(f"{file.name}: {error}")
            shutil.rmtree(work, ignore_errors=True)
    for text in failed:
        step(f"FAILED: {text}")
    step(f"{len(made)} files in dist/, {len(failed)} failures, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
