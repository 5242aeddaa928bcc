"""The checkpoint of one queue in an archive: how far it is read, and the name under which its batches are committed.

    _archive/checkpoints/<vhost>/<queue>/lock     held by the process that archives the queue
                                         writer   the queue's name in the archive's log, made with the checkpoint
                                         plan     the number and the end of the last batch that was begun

Rules: a plan is on disk before anything of its batch is read, and is replaced only after the archive's log has the
batch. So after a crash the log tells whether the planned batch is there: if it is, its end is the place; if it is not,
the same batch is made again, of the same messages. A batch without messages is in no log, and may be made again too.
Checkpoints that Spark wrote (a folder `offsets`) are read once, and then have a plan as well.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harebell.errors import DataLoss, InvalidArgument
from harebell.spark.file_locks import held_or_refused
from harebell.synced_files import make_folder, replace_file

__all__ = ["NOT_BEGUN", "Checkpoint", "Plan"]

NOT_BEGUN: Final = -1
"""The number of the batch before the first one: its plan says where reading begins."""

SPARKS: Final = "offsets"  # the folder of Spark's own checkpoint, a file a batch


@dataclass(frozen=True, slots=True)
class Plan:
    """A batch: its number, and the offset where it ends, as the readers of `harebell.spark` write it."""

    batch: int
    end: dict[str, Any]


class Checkpoint:
    """The checkpoint in a folder. `writer` and `plan` are for the time that it is `held`."""

    def __init__(self, folder: Path, queue: str) -> None:
        self.folder = folder
        self._queue = queue

    @contextmanager
    def held(self) -> Iterator[None]:
        """Holds it for this process, made if missing. Raises InvalidArgument when another process has it."""
        make_folder(self.folder)
        refusal = f"queue '{self._queue}' is being archived there by another process: wait for its end, or stop it"
        with held_or_refused(self.folder / "lock", refusal):
            yield

    def check_free(self) -> None:
        """Raises InvalidArgument when another process has it; makes nothing."""
        if (self.folder / "lock").exists():
            with self.held():
                pass

    def writer(self) -> str:
        """The name of this checkpoint in the archive's log: in a new checkpoint the batches count from 0 again."""
        name = self.folder / "writer"
        if not name.exists():
            if (self.folder / "plan").exists() or (self.folder / SPARKS).exists():
                raise InvalidArgument(f"{self.folder} is not a checkpoint of an archive: the file 'writer' is gone")
            replace_file(name, [uuid.uuid4().hex])
        return name.read_text()

    def plan(self, written: int) -> Plan | None:
        """The last plan, None in a new checkpoint. `written` is the last batch in the archive's log, or NOT_BEGUN.

        Raises DataLoss when it is older than the log: its batches would count under numbers that are taken.
        """
        path = self.folder / "plan"
        try:
            found = json.loads(path.read_text())
        except FileNotFoundError:
            plan = self._of_spark()
        except ValueError:
            raise InvalidArgument(f"{path} is damaged; delete {self.folder} to read the queue anew") from None
        else:
            plan = Plan(found["batch"], found["end"])
        if written > (NOT_BEGUN if plan is None else plan.batch):
            raise DataLoss(
                f"the checkpoint of queue '{self._queue}' is older than the archive: {self.folder} ends at batch "
                f"{NOT_BEGUN if plan is None else plan.batch}, the archive has {written}. Was it restored from a "
                "backup? Delete it to read the queue anew, from its beginning"
            )
        return plan

    def save(self, plan: Plan) -> None:
        """Makes it the last plan; it is on disk when this returns. OSError when the disk refuses."""
        replace_file(self.folder / "plan", [json.dumps({"batch": plan.batch, "end": plan.end}, sort_keys=True)])

    def _of_spark(self) -> Plan | None:
        """The plan in Spark's checkpoint: its last batch, written or not.

        Spark's files have a version and facts of its own in their first lines, and the source's offset in the last one.
        """
        numbers = [int(path.name) for path in (self.folder / SPARKS).glob("[0-9]*") if path.name.isdigit()]
        if not numbers:
            return None
        text = (self.folder / SPARKS / str(max(numbers))).read_text()
        return Plan(max(numbers), json.loads(text.splitlines()[-1]))
