"""The store of one node: the folders of messages, and the logs opened in them.

- `queues/NAME` is the log of a durable queue; no other queue ever has that NAME.
- `streams/NAME` is the log of a stream.
- `sessions` says how far the sessions are that survive a restart.
- `transactions` has the distributed transactions that are prepared.
- `delays/NAME` has the messages of a durable delayed exchange; no other exchange ever has that NAME, but for those of
  the first versions (`catalog.first_delay_folder`).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path

from harebell.broker.store.data_folder import LastStop, make_folders
from harebell.broker.store.files import Files
from harebell.broker.store.group_commit import GroupCommit
from harebell.broker.store.inventory import sizes_of_records
from harebell.broker.store.positions import Positions
from harebell.broker.store.prepared import PreparedBranches
from harebell.broker.store.queue_log.journal import Journal
from harebell.broker.store.queue_log.log import QueueLog
from harebell.broker.store.stream_log.folders import StreamStore

__all__ = ["Store"]


class Store:
    """The folders of a node's messages.

    `suspect`: the machine stopped with the last broker, so any message may have been delivered. `now` gives
    milliseconds of the node's clock.
    """

    def __init__(
        self,
        data: Path,
        commit: GroupCommit,
        now: Callable[[], int],
        changed: Callable[[Positions | PreparedBranches], None],
        *,
        last_stop: LastStop,
        files: Files,
    ) -> None:
        make_folders(data, "queues", "delays", "streams")
        self.suspect = last_stop is LastStop.POWER_CUT
        self.streams = StreamStore(data, commit, clean=last_stop is LastStop.CLEAN, files=files)
        sizes = sizes_of_records(data)
        self.positions = Positions(data / "sessions", commit, changed, files=files, expected=sizes.get("sessions"))
        self.positions.recover()
        self.prepared = PreparedBranches(
            data / "transactions", commit, changed, files=files, expected=sizes.get("transactions")
        )
        self.prepared.recover()
        self._data, self._commit, self._now, self._files = data, commit, now, files

    def new_queue_folder(self) -> str:
        """A new folder's name, never used before, so that remains of a deleted queue are not taken for this one's."""
        return f"queues/{secrets.token_hex(8)}"

    def new_delay_folder(self) -> str:
        """The same for a delayed exchange."""
        return f"delays/{secrets.token_hex(16)}"

    def journal_folders(self) -> list[str]:
        """The folders of queues and delayed exchanges on disk, whether or not one uses them."""
        return [
            f"{kind}/{name}"
            for kind in ("queues", "delays")
            for name in sorted(self._files.listdir(str(self._data / kind)))
        ]

    def queue_journal(self, name: str, folder: str, changed: Callable[[], None]) -> Journal:
        """The journal of a queue or a delayed exchange.

        `name` is for log lines, `changed` is called when there is something to write.
        """
        queue_log = QueueLog(self._data / folder, self._commit, files=self._files)
        return Journal(name, queue_log, changed, self._now, partial(self._note, name))

    def _note(self, queue: str, numbers: list[bytes]) -> bool:
        """Note that a queue has the messages with these numbers. Returns whether any of them may come again."""
        of_session = self.positions.note(queue, numbers)
        return self.prepared.note(queue, numbers) or of_session
