"""A forked interpreter is what a started one would be: streams, arguments, environment, folder, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.spark.preloaded import Interpreters

TELL = """
import json, os, sys
print(json.dumps([sys.argv[1:], os.getcwd(), os.environ["GIVEN"], sorted(os.environ), __name__, sys.stdin.read()]))
print("aside", file=sys.stderr)
print("pyarrow" in sys.modules, file=sys.stderr)
sys.exit(7)
"""


def start(
    interpreters: Interpreters, folder: Path, arguments: Sequence[str], code: str = TELL
) -> subprocess.Popen[str]:
    (folder / "told.py").write_text(code)
    return subprocess.Popen(
        [interpreters.executable, *arguments],
        cwd=folder, env={"PATH": os.environ["PATH"], "GIVEN": "a\nb=c", "EMPTY": ""},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_it_has_what_a_new_process_has(interpreters: Interpreters, tmp_path: Path) -> None:
    with start(interpreters, tmp_path, ["-m", "told", "x", "", "-c"]) as process:
        output, error = process.communicate("in", timeout=60)
    arguments, folder, given, names, name, read = json.loads(output)
    assert (process.returncode, error) == (7, "aside\nTrue\n")
    assert (arguments, folder, given, name, read) == (["x", "", "-c"], str(tmp_path), "a\nb=c", "__main__", "in")
    assert {"EMPTY", "GIVEN", "PATH"} <= set(names)
    assert "HOME" not in names


def test_other_code_is_run_by_the_interpreter_itself(interpreters: Interpreters, tmp_path: Path) -> None:
    with start(interpreters, tmp_path, ["-c", "import sys; print('pyarrow' in sys.modules)"]) as process:
        assert process.communicate(timeout=60) == ("False\n", "")


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_it(interpreters: Interpreters, tmp_path: Path, sent: signal.Signals) -> None:
    code = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_DFL)\nprint('up', flush=True)\ninput()"
    with start(interpreters, tmp_path, ["-m", "told"], code) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(sent)
        assert process.wait(timeout=60) == -sent & 0xFF


def test_it_is_killed_when_what_spark_started_is(interpreters: Interpreters, tmp_path: Path) -> None:
    code = "import os\nprint(os.getpid(), flush=True)\ninput()"
    with start(interpreters, tmp_path, ["-m", "told"], code) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert int(process.stdout.readline()) != process.pid
        process.kill()
        assert (process.stdout.read(), process.stderr.read()) == ("", "")  # its streams are at an end, its input is not
