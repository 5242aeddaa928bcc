"""What the tasks of one transaction and backend have in common when they are published after its commit.

Knows no broker.
"""

from __future__ import annotations

from typing import Any, Final
from weakref import WeakKeyDictionary

from harebell.errors import HarebellError

__all__ = ["Commit"]

_next: Final[WeakKeyDictionary[Any, dict[str, Commit]]] = WeakKeyDictionary()  # of each connection to the database


class Commit:
    """A commit that is to come, or whose hooks run now, for one backend.

    A transaction that is rolled back leaves it to the next one.

    begun        its hooks run: what is enqueued from now on has another commit
    unreachable  why the broker could not be reached for one of the tasks: the others do not wait for it as long again
    """

    def __init__(self) -> None:
        self.begun = False
        self.unreachable: HarebellError | None = None

    @classmethod
    def of(cls, connection: Any, backend: str) -> Commit:
        """The next commit of a connection to the database, for the tasks of a backend."""
        commits = _next.setdefault(connection, {})
        if backend not in commits or commits[backend].begun:
            commits[backend] = cls()
        return commits[backend]
