"""A connection of psycopg whose `with` is a transaction, as sqlite3's is, and leaves it open."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import psycopg


class KeptConnection(psycopg.Connection[Any]):
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.commit()
        else:
            self.rollback()
