"""The marks of a message, the parts beside its address and content, come back as they were, from every file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harebell.broker.message import Address, MarkedMessage, Message
from harebell.broker.store.prepared import KeptBranch, KeptMessage
from harebell.broker.store.queue_log.journal import Journal
from harebell.broker.store.queue_log.log import QueueLog
from harebell.protocol.v091 import Content, Properties
from harebell.protocol.v091.content import encode_content
from tests.broker.store.faults import Disk, HandCommit

MANY = tuple("队列" * 20 + str(number) for number in range(2000))  # a few hundred KiB of JSON
MARKS: dict[str, dict[str, Any]] = {
    "no keys": {"keys": ()},
    "an empty key": {"keys": ("",)},
    "many keys": {"keys": MANY},
    "one bcc": {"keys": ("a",), "bcc": ("a",)},
    "many bcc": {"keys": MANY, "bcc": MANY},
    "died": {"died": True},
    "ttl of 0": {"ttl": 0},
    "ttl of 1": {"ttl": 1},
    "longest ttl": {"ttl": 2**32 - 1},
    "short origin": {"origin": b"\0"},
    "long origin": {"origin": bytes(range(256)) * 1000},
    "the smallest of each": {"keys": (), "ttl": 0, "origin": b"\0"},
    "the largest of each": {"keys": MANY, "bcc": MANY, "died": True, "ttl": 2**32 - 1, "origin": bytes(200_000)},
}
BODY = b"body " * 50


def message(number: bytes = b"", **marks: Any) -> MarkedMessage:
    frames = encode_content(1, Properties(delivery_mode=2), BODY, 4096)
    return MarkedMessage(Address("x", "k"), Content(1, b"", frames, len(BODY)), number=number, **marks)


def parts(it: Message) -> tuple[object, ...]:
    return it.address.wire, it.content.body, it.keys, it.bcc, it.died, it.ttl, it.origin


def journal(disk: Disk) -> Journal:
    log = QueueLog("/data/q", HandCommit(disk, on_synced=lambda: None), files=disk)
    return Journal("q", log, lambda: None, lambda: 0, lambda numbers: False)


def one(disk: Disk, given: Message, *, paged: bool) -> None:
    written = journal(disk)
    if paged:
        written.page_out(0, given)
    else:
        written.store(0, given)
    written.flush()


def several(disk: Disk, given: Message) -> None:
    plain = Message(given.address, given.content)
    written = journal(disk)
    written.store_all(0, [plain, given, plain])
    written.flush()


WRITERS: dict[str, Callable[[Disk, Message], None]] = {
    "one": lambda disk, given: one(disk, given, paged=False),
    "paged": lambda disk, given: one(disk, given, paged=True),
    "several": several,
}


@pytest.mark.parametrize("number", [b"", bytes(16)], ids=["", "numbered"])
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("marks", MARKS)
def test_in_a_journal(marks: str, writer: str, number: bytes) -> None:
    """The journal of a queue, and of a delayed exchange."""
    disk, given = Disk(), message(number, **MARKS[marks])
    WRITERS[writer](disk, given)
    disk.kill()
    read = journal(disk)
    read.recover(suspect=False)
    assert not read.log.cut
    assert not read.log.damages
    found = [read.message(stored) for _ in range(3) for stored in read.next_run()]
    assert len(found) == (3 if writer == "several" else 1)
    assert parts(found[len(found) // 2]) == parts(given)
    assert all(parts(each) == parts(message()) for each in found[:1] + found[2:] if writer == "several")


@pytest.mark.parametrize("marks", MARKS)
def test_in_a_prepared_branch(marks: str) -> None:
    given = message(**MARKS[marks])
    branch = KeptBranch((1, b"g", b"b"), "/", "u", [KeptMessage(given, ("q",))], [])
    (read,) = KeptBranch.decode(branch.encode()).messages
    assert parts(read.message) == parts(given)
