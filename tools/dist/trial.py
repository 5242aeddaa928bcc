"""Installs a wheel or an sdist into a new virtual environment, and uses it there.

Rules: nothing of the repository can be imported. The tests are a copy, without the sources.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final, Literal

from tools.dist.commands import Failed, environment, run

__all__ = ["FLIGHTS", "trial"]

FLIGHTS: Final = 20_000
NEEDS_SOURCES: Final = "tests/protocol/v091/test_methods.py::test_generated_file_is_current"
WORDS: Final = {"pure": "pure Python", "compiled": "compiled"}
"""What `harebell doctor` calls a build."""

MESSAGE: Final = """
import asyncio
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
"""A message through an embedded broker; prints the build and where it was imported from."""

SERVE: Final = """
import signal, subprocess, sys
command = [sys.argv[1], "serve", "--port", "0", "--data", sys.argv[2], "--no-management"]
run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
said = []
for line in run.stdout:
    said.append(line)
    if " ready at " in line:
        run.send_signal(signal.SIGTERM)
        break
said.append(run.communicate(timeout=60)[0])
print("".join(said))
sys.exit(run.returncode or " ready at " not in "".join(said))
"""
"""Starts the server, and stops it when it is ready."""


def trial(
    file: Path, python: Path, build: Literal["pure", "compiled"], source: Path, work: Path, *, quick: bool
) -> list[str]:
    """Install the file for that Python, in `work`, and use it. Returns what was tried. Raises Failed.

    The tests come from `source`, the unpacked sdist; a quick trial is without them and without the demo.
    """
    own = environment(python, work / "venv", f"{file}[server]")
    command = own.with_name("harebell")
    run([own, "-m", "pip", "check"], work)
    for wanted, more in ((build, {}), ("pure", {"HAREBELL_PURE": "1"})):
        said, _, place = run([own, "-c", MESSAGE], work, **more).strip().rpartition("\n")[2].partition(" ")
        if said != wanted or not Path(place).is_relative_to(work):
            raise Failed(f"{file.name} runs {said} from {place}, not {wanted} from {work}")
    table = run([command, "doctor"], work, COLUMNS="200")
    if not re.search(rf"\bbuild\W+{WORDS[build]}", table):
        raise Failed(f"{file.name}: `harebell doctor` does not say {WORDS[build]!r}:\n{table}")
    started = run([own, "-c", SERVE, command, work / "data"], work)
    if (build == "compiled") != ("+compiled ready at " in started):
        raise Failed(f"{file.name}: `harebell serve` is not {build}:\n{started}")
    tried = [run([own, "-V"], work).strip(), build, "pip check", "doctor", "a message", "serve"]
    return tried if quick else [*tried, protocol_tests(file, own, build, source, work), demo(file, own, work)]


def protocol_tests(file: Path, own: Path, build: str, source: Path, work: Path) -> str:
    for name in ("tests", "spec", "pyproject.toml"):
        path = source / name
        (shutil.copytree if path.is_dir() else shutil.copy)(path, work / name)
    run([own, "-m", "pip", "install", "--quiet", "--group", "test"], work)
    said = run(
        [own, "-m", "pytest", "-p", "no:cacheprovider", "-n", "logical", "-o", "pythonpath=.", "--hypothesis-profile",
         "quick", "--deselect", NEEDS_SOURCES, "tests/protocol"], work,
    )  # fmt: skip
    if f"build: {build}" not in said:
        raise Failed(f"{file.name}: the tests did not run {build}:\n{said[:1000]}")
    closing = said.strip().rpartition("\n")[2].strip("= ")
    return f"protocol: {re.sub(r' in [0-9.]+s.*', '', closing)}"


def demo(file: Path, own: Path, work: Path) -> str:
    run([own, "-m", "pip", "install", "--quiet", f"{file}[demo]"], work)
    run([own, "-m", "pip", "check"], work)
    run([own.with_name("harebell"), "demo", "flights", "--limit", str(FLIGHTS)], work)
    return f"demo of {FLIGHTS:,} flights"
