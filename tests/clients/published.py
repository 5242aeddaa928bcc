"""What client libraries publish beside their code (examples, test suites), as it is: fetched once, kept in a cache.

A source distribution comes from the package index by pip, in the version that is installed here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "harebell-tests"


def sources(package: str) -> Path:
    """The unpacked source distribution of the installed version; skips the test where the index cannot be reached."""
    name = f"{package.replace('-', '_')}-{version(package)}"
    folder = CACHE / name
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", package]
        fetched = subprocess.run(
            [*command, "--dest", str(CACHE), f"{package}=={version(package)}"],
            capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        if fetched.returncode:
            pytest.skip(f"no sources of {package}: {fetched.stderr.strip().splitlines()[-1:]}")
        with tarfile.open(CACHE / f"{name}.tar.gz") as archive:
            archive.extractall(CACHE, filter="data")
    return folder
