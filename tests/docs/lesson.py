"""A tutorial, followed: its files are written, its commands run, and what it shows is compared with what they print.

A page has three kinds of blocks. One whose first line is a comment with the name of a file is that file, or, after the
words "at the end of", goes behind what is in it. A block `console` has commands behind `$`, each with what it prints. A
block `text` shows what a running program prints. Three periods stand for any text.

The test takes the blocks in the page's order: `run`, `start`, `kill` and `shown` each name the beginning of the block
they expect, and fail for another one. `finish` fails for blocks that are left. In each block `changes` are made first:
the test has other ports than the page.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Self

from tests.cli.command import environment

__all__ = ["TUTORIALS", "Lesson", "Program", "matches"]

TUTORIALS: Final = Path(__file__).parents[2] / "docs" / "tutorials"
PATIENCE: Final = 240.0  # seconds; what takes that long hangs
BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NAMED: Final = re.compile(r"# (at the end of )?([\w/]+\.\w+)\n")
COMMAND: Final = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
KILL: Final = re.compile(r"pkill -9 -f '([^']+)'")
MODULES: Final = {"django-admin": "django"}  # commands whose module has another name


def matches(shown: str, printed: str) -> bool:
    """Whether lines are those that a page shows; "..." alone on a line stands for any lines, or none."""
    pattern = "".join(
        r"(.*\n)*" if line == "..." else ".*".join(map(re.escape, line.split("..."))) + r"\n"
        for line in map(str.rstrip, shown.splitlines())
    )
    return re.fullmatch(pattern, "".join(f"{line.rstrip()}\n" for line in printed.splitlines())) is not None


class Program:
    """A command of the page while it runs, with all processes that it starts."""

    def __init__(self, command: str, folder: Path, variables: Mapping[str, str]) -> None:
        self.command = command
        first, *rest = shlex.split(command)
        started = [sys.executable] if first == "python" else [sys.executable, "-m", MODULES.get(first, first)]
        self._process = subprocess.Popen(
            [*started, *rest], cwd=folder, env=environment(PYTHONUNBUFFERED="1", **variables), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        self._lines: list[str] = []
        self._seen = 0
        self._printed = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._printed:
                self._lines.append(line.rstrip())
                self._printed.notify_all()
        with self._printed:
            self._ended = True
            self._printed.notify_all()

    def expect(self, shown: str) -> None:
        """Wait for these lines, in their order and behind those that were waited for before; others may be between."""
        for line in shown.splitlines():
            if line.strip() != "...":
                self._wait_for(line)

    def _wait_for(self, line: str) -> None:
        def known() -> bool:
            return self._ended or self._next(line) is not None

        with self._printed:
            self._printed.wait_for(known, PATIENCE)
            found = self._next(line)
            what = "ended and did not print" if self._ended else "has not printed"
            assert found is not None, f"{self.command!r} {what} {line!r}:\n{self.output()}"
            self._seen = found + 1

    def _next(self, line: str) -> int | None:
        """The place of the first such line that was not waited for yet."""
        return next((n for n in range(self._seen, len(self._lines)) if matches(line, self._lines[n])), None)

    def type(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def output(self) -> str:
        return "".join(f"{line}\n" for line in self._lines)

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def wait(self) -> str:
        """What it has printed when it has ended; AssertionError for one that does not end, or fails."""
        return self.end(None)

    def end(self, number: signal.Signals | None, *, status: int = 0) -> str:
        """The same after this signal, which Ctrl-C sends to all processes of a terminal, as `pkill -f` to all forks."""
        if number is not None and self.runs:
            os.killpg(self._process.pid, number)
        try:
            ended = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.command!r} does not end:\n{self.output()}") from None
        self._close()
        assert ended == status, f"{self.command!r} ended with {ended}:\n{self.output()}"
        return self.output()

    def kill(self) -> None:
        self.end(signal.SIGKILL, status=-signal.SIGKILL)

    def drop(self) -> None:
        """End it, whatever it does."""
        if self.runs:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(PATIENCE)
        self._close()

    def _close(self) -> None:
        self._reader.join(PATIENCE)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            try:
                stream.close()
            except BrokenPipeError:
                pass


class Lesson:
    """A page of docs/tutorials, followed in a folder; `changes` are texts of the page that are others in this test."""

    def __init__(self, page: str, folder: Path, changes: Mapping[str, str], variables: Mapping[str, str]) -> None:
        self.folder = folder
        self._changes, self._variables = changes, variables
        self._programs: list[Program] = []
        self._left: deque[tuple[str, str, str]] = deque()  # kind, name or command, text
        for language, text in BLOCK.findall((TUTORIALS / page).read_text("utf-8")):
            if language == "console":
                self._left.extend(("command", command, shown) for command, shown in COMMAND.findall(text))
            elif language == "text":
                self._left.append(("text", "", text))
            elif (named := NAMED.match(text)) is not None:
                self._left.append(("more" if named[1] else "file", named[2], text))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for program in self._programs:
            program.drop()

    def change(self, text: str) -> str:
        for old, new in self._changes.items():
            text = text.replace(old, new)
        return text

    def run(self, beginning: str, *, status: int = 0, within: Callable[[list[str]], str] | None = None) -> str:
        """Run the next command to its end; it prints what the page shows.

        `within` runs the words of the command in this process, and gives what they print.
        """
        command, shown = self._take("command", beginning)
        printed = within(shlex.split(command)) if within else self._start(command).end(None, status=status)
        assert matches(shown, printed), f"{command!r} printed\n{printed}and not\n{shown}"
        return printed

    def start(self, beginning: str) -> Program:
        """Start the next command; it goes on, and has printed what the page shows."""
        command, shown = self._take("command", beginning)
        program = self._start(command)
        program.expect(shown)
        return program

    def kill(self, beginning: str = "pkill") -> None:
        """The next command kills the one program whose command has its words."""
        command, _ = self._take("command", beginning)
        found = KILL.fullmatch(command)
        assert found is not None, command
        (program,) = [each for each in self._programs if found[1] in each.command and each.runs]
        program.kill()

    def skip(self, beginning: str) -> None:
        """Leave out the next command: the test does the same in another way."""
        self._take("command", beginning)

    def shown(self, beginning: str = "") -> str:
        """The next text that the page shows."""
        return self._take("text", beginning)[1]

    def finish(self) -> None:
        self._write_files()
        assert not self._left, f"the page goes on: {list(self._left)}"

    def _start(self, command: str) -> Program:
        program = Program(command, self.folder, self._variables)
        self._programs.append(program)
        return program

    def _take(self, kind: str, beginning: str) -> tuple[str, str]:
        self._write_files()
        assert self._left, f"the page has no more {kind}"
        found, name, text = self._left.popleft()
        name, text = self.change(name), self.change(text)
        assert found == kind, f"the page has a {found} {name or text!r}, not a {kind} {beginning!r}"
        assert (name or text).startswith(self.change(beginning)), f"the page has {name or text!r}, not {beginning!r}"
        return name, text

    def _write_files(self) -> None:
        while self._left and self._left[0][0] in ("file", "more"):
            kind, name, text = self._left.popleft()
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            before = path.read_text("utf-8") if kind == "more" else ""
            path.write_text(before + self.change(text), "utf-8")
