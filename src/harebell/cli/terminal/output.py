"""What the command prints as text: names and texts of a broker do not steer the terminal.

Controls, escapes and marks that change the direction of writing are shown as escapes (`harebell.printable`). Tables and
bars go through `harebell.cli.terminal.consoles`; this module works with the base install too.

Output that cannot be written ends the command (`standard_streams`): without a word where the reader of a pipe has gone,
as other commands end by SIGPIPE, else with a line on standard error. The signal itself cannot be let through: it would
end a broker or a client at the first connection that is lost.
"""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TextIO, cast

from harebell.printable import printable

__all__ = [
    "LONGEST", "OutputFailed", "in_unicode", "in_words", "line", "lines", "say", "say_drawn", "say_json", "say_lines",
    "say_row", "standard_streams",
]  # fmt: skip

LONGEST: Final = 1_000_000  # characters of a line: a terminal wraps it
READER_GONE: Final = 141  # 128 + SIGPIPE, as in shells
_NOT_ASCII: Final = re.compile(r"[^\x20-\x7e\n]")


def say(text: str, file: TextIO | None = None, *, flush: bool = False) -> int:
    """Print a line, on standard output unless there is a `file`. Returns 0, the exit status of success.

    Line ends in the text are shown as escapes: a name that has some begins no line. The line and its end are written
    together, so that nothing of another thread comes in between.
    """
    print(line(text) + "\n", end="", file=sys.stdout if file is None else file, flush=flush)
    return 0


def say_lines(text: str) -> int:
    """Print lines, which are ours: names in them have been made printable. Returns 0."""
    print(lines(text))
    return 0


def say_json(value: object, *, indent: int | None = None, default: Callable[[Any], Any] | None = None) -> int:
    """Print a value as JSON; what is not printable is written as \\uXXXX, so that it stays JSON. Returns 0."""
    text = json.dumps(value, indent=indent, default=default, ensure_ascii=not in_unicode())
    print(_NOT_ASCII.sub(_escaped, text))
    return 0


def say_row(cells: Sequence[str], separator: str) -> int:
    """Print cells in one line, each of them printable, with a separator that may be a tab. Returns 0."""
    print(separator.join(map(line, cells)))
    return 0


def say_drawn(text: str) -> int:
    """Print a line with the escapes of a drawing in it; texts in it must have been made printable. Returns 0."""
    print(text)
    return 0


def line(text: str) -> str:
    """The text in one line that is printable: for every name and text of a broker."""
    return printable(text, LONGEST)


def lines(text: str) -> str:
    """The text with every line printable."""
    return "\n".join(map(line, text.split("\n")))


def in_unicode() -> bool:
    """Whether standard output can show every character."""
    return (sys.stdout.encoding or "utf-8").lower().startswith("utf")


def in_words(error: OSError) -> str:
    """What a disk or a network refused, and for which file."""
    reason = error.strerror or str(error) or type(error).__name__
    return reason if error.filename is None else f"{error.filename}: {reason}"


class OutputFailed(Exception):
    """Standard output cannot be written. No OSError, which would be taken for one of a file or a connection."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"standard output cannot be written: {error.strerror or error}")
        self.reader_gone = isinstance(error, BrokenPipeError)


@contextmanager
def standard_streams(command: str) -> Iterator[None]:
    """In the block, what fails on standard output is an OutputFailed; after it, the process has ended in that case.

    What fails on standard error is dropped: there is no place left to report it. Standard descriptors that were closed
    when the process began lead nowhere: files and sockets would get their numbers, and libraries write to these.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    out, error = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = cast("TextIO", _Output(out)), cast("TextIO", _Errors(error))
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OutputFailed as failure:
        _discard(out)
        if failure.reader_gone:
            sys.exit(READER_GONE)
        say(f"{command}: {failure}", sys.stderr)
        sys.exit(1)
    finally:
        sys.stdout, sys.stderr = out, error


class _Stream:
    """A text stream; None is that of a descriptor which was closed when the process began."""

    def __init__(self, file: TextIO | None) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    @property
    def encoding(self) -> str:
        return (self._file and self._file.encoding) or "utf-8"

    def isatty(self) -> bool:
        return self._file is not None and self._file.isatty()

    def writelines(self, texts: Sequence[str]) -> None:
        self.write("".join(texts))

    def write(self, text: str) -> int:
        if self._file is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        try:
            return self._file.write(text)
        except UnicodeEncodeError:  # nothing is written then
            return self._file.write(text.encode(self.encoding, "backslashreplace").decode(self.encoding))

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()


class _Output(_Stream):
    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            raise OutputFailed(error) from error

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise OutputFailed(error) from error


class _Errors(_Stream):
    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError:
            _discard(self._file)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError:
            _discard(self._file)


def _discard(file: TextIO | None) -> None:
    """Let what is left in the buffers of a failed stream go nowhere: Python writes it at the end, and complains."""
    if file is None:
        return
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, file.fileno())
        os.close(nowhere)
        file.flush()


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if character.isprintable():
        return character
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]
