"""Compiles the hot modules with mypyc: in place for `make fast`, or into a folder for a wheel.

    python tools/compile.py                 into src/, beside the sources
    python tools/compile.py --into FOLDER   into a copy of the package's tree there, of compiled modules only
    python tools/compile.py --copy          into build/compiled, with a copy of the sources: what runs there is compiled
    python tools/compile.py --clean         removes what was compiled in place

Which modules: pyproject.toml, [tool.harebell] compiled. They are compiled as one group: a call from one to another is a
call in C. It needs a C compiler and mypy, and takes two to five minutes of one core, and two without optimization
(HAREBELL_OPTIMIZATION=0), for tests.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCES: Final = ROOT / "src"
PACKAGE: Final = SOURCES / "harebell"
COPY: Final = ROOT / "build" / "compiled"
GROUP: Final = "harebell"  # names the library with the code: harebell__mypyc
SUFFIX: Final = sysconfig.get_config_var("EXT_SUFFIX")
UNFINISHED: Final = [-1, -1]
"""The stamp of a module that is being compiled: no source has it, so that the build counts as stale."""
OPTIMIZATION: Final = os.environ.get("HAREBELL_OPTIMIZATION", "2")
FLAGS: Final = "-w -DNDEBUG -fwrapv"
"""For the C compiler. setuptools puts CFLAGS in the place of the flags that Python was compiled with; these are what an
extension module needs of those."""

sys.path.insert(0, str(SOURCES))
from harebell.builds import NOTE, stamp  # noqa: E402

SETUP: Final = """
import sys
from setuptools import setup
from mypyc.build import mypycify
_, config, group, level, *files = sys.argv
sys.argv = ["setup.py", "-q", "build_ext", "--inplace"]
options = dict(opt_level=level, debug_level="0", group_name=group)
setup(name=group, ext_modules=mypycify(["--config-file=" + config, *files], **options))
"""


def modules() -> list[str]:
    """The names of the modules to compile."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return [f"harebell.{name}" for name in settings["tool"]["harebell"]["compiled"]]


def source_of(module: str) -> Path:
    return SOURCES.joinpath(*module.split(".")).with_suffix(".py")


def compiled_files(folder: Path) -> list[Path]:
    """What a build has left in a folder of sources, relative to it."""
    found = [*folder.glob(f"{GROUP}__mypyc.*"), *(folder / "harebell").rglob(f"*{SUFFIX}")]
    return [path.relative_to(folder) for path in found]


def copy_sources(folder: Path, *more: str) -> None:
    """Copy what is no build: all but what these patterns match too."""
    ignored = shutil.ignore_patterns("*.so", "*.pyd", "__pycache__", NOTE, *more)
    shutil.copytree(SOURCES, folder, dirs_exist_ok=True, ignore=ignored)


def build(work: Path, names: list[str]) -> None:
    """Compile a copy of the sources in that folder. Ends the program when it fails."""
    copy_sources(work, "*.mjs", "*.js")
    # Not strict, which `make lint` is: here packages of some extras may be missing, and what they give has no types.
    config = work / "mypy.ini"
    config.write_text("[mypy]\nexplicit_package_bases = True\nmypy_path = .\nignore_missing_imports = True\n")
    files = [str(source_of(name).relative_to(SOURCES)) for name in names]
    script = work / "setup_compiled.py"
    script.write_text(SETUP)
    command = [sys.executable, str(script), str(config), GROUP, OPTIMIZATION, *files]
    flags = f"{FLAGS} {os.environ.get('CFLAGS', '')}"
    done = subprocess.run(
        command, cwd=work, env=os.environ | {"CFLAGS": flags}, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode:
        sys.exit(
            f"{done.stdout[-6000:]}\ncompile: mypyc or the C compiler failed, see above; pure Python works as before"
        )


def write_note(target: Path, stamps: Mapping[str, list[int] | None]) -> None:
    """Say in one step what is compiled there: whoever starts meanwhile reads the note before or the note after."""
    note = target / "harebell" / NOTE
    started = note.with_suffix(f".{os.getpid()}.tmp")
    started.write_text(json.dumps({"suffix": SUFFIX, "modules": stamps}))
    started.replace(note)


def clean() -> None:
    """Remove what any Python has compiled in place, the note last: without it a module that is left would count."""
    for path in [*SOURCES.glob(f"{GROUP}__mypyc.*"), *PACKAGE.rglob("*.so"), *PACKAGE.rglob("*.pyd")]:
        path.unlink()
    (PACKAGE / NOTE).unlink(missing_ok=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--into", type=Path, metavar="FOLDER")
    options.add_argument("--copy", action="store_true")
    options.add_argument("--clean", action="store_true")
    asked = options.parse_args()
    if asked.clean:
        clean()
        return
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        sys.exit(
            f"compile: there is no C compiler ({compiler}); on Debian and Ubuntu: apt-get install gcc python3-dev. "
            "Harebell works without, as pure Python"
        )
    names, began = modules(), time.monotonic()
    print(f"compile: {len(names)} modules, two to five minutes", flush=True)
    stamps: dict[str, list[int] | None] = {name: stamp(str(source_of(name))) for name in names}
    with tempfile.TemporaryDirectory(prefix="harebell-compile-") as folder:
        work = Path(folder)
        build(work, names)
        target = COPY if asked.copy else asked.into or SOURCES
        (target / "harebell").mkdir(parents=True, exist_ok=True)
        if asked.copy:
            shutil.rmtree(target)
            copy_sources(target)
        if target == SOURCES:
            write_note(target, dict.fromkeys(names, UNFINISHED))  # broken off from here on, it is pure Python
            clean()
            write_note(target, dict.fromkeys(names, UNFINISHED))
        for path in compiled_files(work):
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.move(work / path, target / path)
    write_note(target, stamps if target == SOURCES else dict.fromkeys(names))
    print(
        f"compile: done in {time.monotonic() - began:.0f} s; HAREBELL_PURE=1 runs Harebell as pure Python", flush=True
    )


if __name__ == "__main__":
    main()
