"""Progress of a running command: bars that move on a terminal, plain lines elsewhere (a pipe, a CI log).

    with display.bar("publish", total, lambda: tally.published): ...

Rules: a bar reads its number when it draws, so the code that counts does not know the display. A total may be unknown.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from harebell.cli.terminal.output import OutputFailed, lines

__all__ = ["Bar", "Display"]

DRAW_SECONDS: Final = 0.1
LINE_SECONDS: Final = 5.0  # between two lines about one bar, without a terminal
LABEL: Final = 34  # columns

Total = int | Callable[[], int | None]
Bar = tuple[str, Total, Callable[[], int]]


class Display:
    """Shows progress on a console: `stage` for work without a number, `bars` for work with one."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._moving = console.is_terminal

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True)

    @contextmanager
    def stage(self, text: str) -> Iterator[None]:
        """Show work without a number: a spinner, then a line with the time it took."""
        started = time.perf_counter()
        if self._moving:
            with self.console.status(Text(lines(text))):
                yield
        else:
            yield
        self.say(f"{text:<{LABEL}} {time.perf_counter() - started:6.1f} s")

    @contextmanager
    def bars(self, *bars: Bar) -> Iterator[None]:
        """Show bars for (label, total, current number) until the block ends."""
        if self._moving:
            with self._drawn(bars):
                yield
        else:
            with self._written(bars):
                yield

    @contextmanager
    def _drawn(self, bars: tuple[Bar, ...]) -> Iterator[None]:
        with Progress(
            TextColumn("{task.description}", markup=False), BarColumn(None), MofNCompleteColumn(), _Rate(),
            TimeElapsedColumn(), console=self.console, auto_refresh=False,
        ) as progress:  # fmt: skip
            tasks = [
                (progress.add_task(f"{lines(label):<{LABEL}}", total=_now(total)), total, number)
                for label, total, number in bars
            ]

            def draw() -> None:
                for task, total, number in tasks:
                    progress.update(task, total=_now(total), completed=number())
                progress.refresh()

            with _repeating(draw, DRAW_SECONDS):
                yield

    @contextmanager
    def _written(self, bars: tuple[Bar, ...]) -> Iterator[None]:
        started = time.perf_counter()

        def write() -> None:
            for label, total, number in bars:
                done, whole, seconds = number(), _now(total), time.perf_counter() - started
                of = "" if whole is None else f" of {whole:,}"
                rate = f"{done / seconds:>9,.0f}/s" if done and seconds else ""
                self.say(f"{label:<{LABEL}} {seconds:6.1f} s {done:>9,}{of} {rate}")

        with _repeating(write, LINE_SECONDS):
            yield


def _now(total: Total) -> int | None:
    return total if isinstance(total, int) else total()


class _Rate(TextColumn):
    """The column of rates per second, from the beginning to the last change."""

    def __init__(self) -> None:
        super().__init__("")

    def render(self, task: Task) -> Text:
        seconds = task.finished_time if task.finished_time is not None else task.elapsed
        rate = f"{task.completed / seconds:,.0f}/s" if seconds and task.completed else ""
        return Text(f"{rate:>11}")  # constant width, so that the bars do not jump


@contextmanager
def _repeating(what: Callable[[], None], seconds: float) -> Iterator[None]:
    """Call `what` periodically in a thread, and once more when the block ends without an error."""
    stop = threading.Event()

    def repeat() -> None:
        with suppress(OutputFailed):  # the last call is not in this thread, and fails too
            while not stop.wait(seconds):
                what()

    thread = threading.Thread(target=repeat, name="display", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    what()
