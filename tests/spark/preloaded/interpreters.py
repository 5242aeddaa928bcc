"""An interpreter for Spark to start, whose processes are forks of one that has imported what they need.

Spark starts Python some ten times in a session and once more for each streaming query; importing PySpark, pyarrow and
harebell.spark takes more time than what most of these processes then do. `Interpreters.executable` takes what
`python -m module ...` takes, in the place of sys.executable.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.spark.preloaded import launcher

__all__ = ["Interpreters"]

PATIENCE: Final = 60.0  # seconds for the end of a process that was told to end


class Interpreters:
    """Use it in a `with` block; `folder` takes the executable and the socket of the server."""

    def __init__(self, folder: Path) -> None:
        self.executable = folder / "python"
        self._socket = folder / "socket"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        source = Path(launcher.__file__).read_text(encoding="utf-8")
        # Without the folders of packages, whose .pth files would begin to measure this process too.
        self.executable.write_text(f"#!{sys.executable} -IS\n{source}\nmain({str(self._socket)!r})\n", encoding="utf-8")
        self.executable.chmod(stat.S_IRWXU)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.preloaded.server", str(self._socket)],
            # A library with a thread of its own would not have it in a fork.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "OMP_NUM_THREADS": "1",
                 "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n", "the interpreters of Spark do not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()  # the end of its input is the end of the server
        process.wait(PATIENCE)
        process.stdout.close()
