"""The record on disk of what a redrive has done, so that a run after a killed one does not repeat it.

The ledger is a file of JSON lines, each fsync'ed before what follows it. For a message, known by its digest:

    begun      before it is published
    confirmed  the broker has it; it may still be in the dead-letter queue
    settled    ... and the queue has certainly processed its acknowledgement
    failed     it was returned or refused, and stays in the queue

A later run removes from the queue, without publishing it again, what was confirmed and came back. What was only begun
may or may not have arrived; it is published again, and marked. A broker that is killed may forget acknowledgements
that it has taken: what has a message_id is recognised for FORGOTTEN seconds after it was settled; without a
message_id it could be a true twin, and a message must not be lost.

An incomplete last line counts as not written. One process at a time may hold a ledger.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from harebell.errors import InvalidArgument
from harebell.spark.file_locks import held_or_refused
from harebell.synced_files import make_folder, replace_file

__all__ = ["FORGOTTEN", "Ledger"]

FORGOTTEN: Final = 600.0
STATES: Final = ("begun", "confirmed", "settled", "failed")


class Ledger:
    """The ledger of one dead-letter queue; a context manager that locks it.

    Raises InvalidArgument when another process holds it, or when the file is not a ledger.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._uncertain: Counter[bytes] = Counter()
        self._confirmed: Counter[bytes] = Counter()
        self._forgettable: Counter[bytes] = Counter()
        self._times: dict[bytes, float] = {}  # time of the last known state

    def __enter__(self) -> Self:
        make_folder(self._path.parent)
        lock = self._path.with_name(self._path.name + ".lock")
        refusal = f"another process is redriving this queue: it holds {self._path}. Wait for its end"
        with ExitStack() as stack:
            stack.enter_context(held_or_refused(lock, refusal))
            self._read()
            self._rewrite()
            self._file = self._path.open("a", encoding="utf-8")
            self._held = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._held.close()

    @property
    def outstanding(self) -> int:
        """How many messages an earlier run may have left in the queue although they were published."""
        return self._confirmed.total() + self._uncertain.total()

    def was_redriven(self, mark: bytes, *, identified: bool) -> bool:
        """Whether a redelivered message was published by an earlier run; counts it off. `identified`: by message_id."""
        if self._confirmed[mark]:
            self._confirmed[mark] -= 1
            return True
        if identified and self._forgettable[mark]:
            self._forgettable[mark] -= 1
            return True
        return False

    def was_begun(self, mark: bytes) -> bool:
        """Whether an earlier run began this message, and may have published it; counts it off."""
        if not self._uncertain[mark]:
            return False
        self._uncertain[mark] -= 1
        return True

    def note(self, state: str, marks: Iterable[bytes]) -> None:
        """Record durably the state of these messages: one of begun, confirmed, settled, failed."""
        assert state in STATES
        names = [mark.hex() for mark in marks]
        if names:
            self._file.write(json.dumps({state: names, "time": self._clock()}) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())

    def finish(self) -> None:
        """Note the end of a pass over the whole queue: messages begun or confirmed that did not come back have left it.

        What is younger than FORGOTTEN is kept all the same: a broker may not have noticed yet that a killed run's
        connection is gone, and still hold what that one had.
        """
        self._file.close()
        self._read()
        limit = self._clock() - FORGOTTEN
        for counts in (self._uncertain, self._confirmed):
            for mark in [mark for mark in counts if self._times[mark] < limit]:
                del counts[mark]
        self._rewrite()
        self._file = self._path.open("a", encoding="utf-8")

    def _read(self) -> None:
        for counts in (self._uncertain, self._confirmed, self._forgettable):
            counts.clear()
        text = self._path.read_text(encoding="utf-8") if self._path.exists() else ""
        for line in text.splitlines(keepends=True):
            if not line.endswith("\n"):
                break  # torn: the process was killed while it wrote
            try:
                entry = json.loads(line)
                when = float(entry["time"])
                (state,) = entry.keys() & set(STATES)
                marks = [bytes.fromhex(name) for name in entry[state]]
            except (ValueError, KeyError, TypeError) as error:
                raise InvalidArgument(
                    f"{self._path} is not a redrive's ledger, or is damaged: {line[:60]!r}. Without it, a message that "
                    "an interrupted run has published may be published again"
                ) from error
            self._times.update(dict.fromkeys(marks, when))
            if state == "begun":
                self._uncertain.update(marks)
                continue
            before = self._confirmed if state == "settled" else self._uncertain
            before.subtract(marks)
            if state == "confirmed":
                self._confirmed.update(marks)
            elif state == "settled" and when > self._clock() - FORGOTTEN:
                self._forgettable.update(marks)
        self._uncertain, self._confirmed = +self._uncertain, +self._confirmed

    def _rewrite(self) -> None:
        """Write the file anew without entries that no longer matter."""
        lines = []
        for states, counts in (
            (("begun", "confirmed", "settled"), self._forgettable),
            (("begun", "confirmed"), self._confirmed),
            (("begun",), self._uncertain),
        ):
            by_time: dict[float, list[str]] = {}
            for mark in counts.elements():
                by_time.setdefault(self._times[mark], []).append(mark.hex())
            lines += [json.dumps({state: names, "time": when}) for when, names in by_time.items() for state in states]
        replace_file(self._path, (line + "\n" for line in lines))
