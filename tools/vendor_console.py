"""Write the libraries of the web console, as `admin/console/web/vendor/table.json` lists them.

python tools/vendor_console.py            # gets the packages with `npm pack`, and writes the files
python tools/vendor_console.py --check    # exits 1 when a file is not the listed one; needs no network

A file is as it is in its package, but that modules name each other by paths: "preact" is "./preact.mjs". The table has
the SHA-256 of the file in the package, so the check turns the names back first.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

VENDOR: Final = Path(__file__).resolve().parent.parent / "src" / "harebell" / "admin" / "console" / "web" / "vendor"
TABLE: Final = VENDOR / "table.json"
NAMES: Final = {
    b'from"preact"': b'from"./preact.mjs"',
    b'from"preact/hooks"': b'from"./hooks.mjs"',
    b'from"@preact/signals-core"': b'from"./signals-core.mjs"',
}


class Wanted(NamedTuple):
    """A file: where it is here, where in its package, and the SHA-256 of it there."""

    package: str
    version: str
    here: str
    there: str
    sha256: str


def wanted() -> Iterator[Wanted]:
    for package in json.loads(TABLE.read_text()):
        for here, (there, sha256) in package["files"].items():
            yield Wanted(package["name"], package["version"], here, there, sha256)


def wrong() -> list[str]:
    """The files that are missing or not those of the table, and those that the table does not list."""
    listed = {each.here: each for each in wanted()}
    there = {path.relative_to(VENDOR).as_posix() for path in VENDOR.rglob("*") if path.is_file()} - {TABLE.name}
    bad = [f"{name}: not in {TABLE.name}" for name in sorted(there - listed.keys())]
    for name, each in listed.items():
        path = VENDOR / name
        if not path.exists():
            bad.append(f"{name}: missing")
        elif hashlib.sha256(as_packed(path.read_bytes())).hexdigest() != each.sha256:
            bad.append(f"{name}: not that of {each.package} {each.version}")
    return bad


def as_packed(content: bytes) -> bytes:
    """The content as it is in its package."""
    for packed, here in NAMES.items():
        content = content.replace(here, packed)
    return content


def as_here(content: bytes) -> bytes:
    for packed, here in NAMES.items():
        content = content.replace(packed, here)
    return content


def write() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for each in wanted():
            spec = f"{each.package}@{each.version}"
            packed = Path(folder, spec.replace("/", "-").lstrip("@") + ".tgz")
            if not packed.exists():
                command = ["npm", "pack", "--silent", "--pack-destination", folder, spec]
                made = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
                Path(folder, made).rename(packed)
            with tarfile.open(packed) as archive:
                member = archive.extractfile(f"package/{each.there}")
                assert member is not None, each.there
                content = member.read()
            if hashlib.sha256(content).hexdigest() != each.sha256:
                sys.exit(f"{spec}: {each.there} has another SHA-256 than the table")
            path = VENDOR / each.here
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(as_here(content))


def main() -> int:
    if "--check" not in sys.argv:
        write()
    bad = wrong()
    print(*bad, sep="\n", end="\n" if bad else "")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
