"""`harebell data`: the data folder of a broker that does not run: what is damaged, and its repair."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from harebell.broker.store.catalog.check import CatalogError
from harebell.broker.store.data_folder import has_data, hold_folder, shared_folder
from harebell.broker.store.examination import examine
from harebell.broker.store.repair import repair as mend
from harebell.cli.server.folders import data_folder, way_out
from harebell.cli.terminal.output import in_words, say
from harebell.errors import HarebellError

__all__ = ["check", "repair"]

Folder = Annotated[Path | None, Parameter(name="--data", help="The data folder. [default: that of `harebell serve`]")]


class Unusable(HarebellError):
    """The folder cannot be examined or mended; the text says why, and what to do."""


@contextmanager
def _held(given: Path | None, hold: Callable[[Path], AbstractContextManager[object]]) -> Iterator[Path]:
    """The folder, locked against brokers by `hold`."""
    folder = data_folder() if given is None else given
    with ExitStack() as stack:
        try:
            if not has_data(folder):
                raise Unusable(f"{folder} is no data folder of a broker: name one with --data")
            stack.enter_context(hold(folder))
        except BlockingIOError:
            raise Unusable(f"{folder} is in use by a broker that runs: stop that one first") from None
        except OSError as error:
            raise Unusable(f"{folder} cannot be used: {error.strerror}") from error
        try:
            yield folder
        except CatalogError as error:
            raise Unusable(error.strerror or str(error)) from error
        except OSError as error:
            raise Unusable(f"{in_words(error)}: {way_out(error)}") from error


def check(*, data: Folder = None) -> int:
    """Say what is damaged in a data folder, and change nothing. Ends with status 1 when something is lost."""
    bad = 0
    with _held(data, shared_folder) as folder:
        for finding in examine(folder):
            bad += finding.bad
            say(f"{'LOST' if finding.bad else 'ok  '}  {finding.text}")
    say(f"{bad} damages" if bad else "nothing is damaged")
    return 1 if bad else 0


def repair(
    *,
    data: Folder = None,
    new_catalog: Annotated[
        bool, Parameter(negative=(), help="Begin an empty catalog where there is no whole one; messages stay.")
    ] = False,
) -> int:
    """Mend the catalog of a data folder, so that a broker can start on it. What is replaced is moved, not deleted."""
    with _held(data, hold_folder) as folder:
        for line in mend(folder, new_catalog=new_catalog):
            say(line)
    return 0
