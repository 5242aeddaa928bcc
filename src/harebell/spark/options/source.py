"""The options of a reader of format("amqp"), for batch and streaming reads, as one checked record."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, cast

from harebell.errors import InvalidArgument
from harebell.spark.options import streams
from harebell.spark.options.address import Address, address
from harebell.spark.options.names import SPOOL, given_options
from harebell.spark.options.payload import BINARY, PayloadOptions, payload_options
from harebell.spark.options.streams import StreamOptions, stream_options
from harebell.spark.options.values import choice, first_patience, flag, number, number_if_given
from harebell.user_folders import user_folder

__all__ = ["SourceOptions", "check_read", "check_ticket", "default_spool", "queue_option", "refuse", "source_options"]

log = logging.getLogger("harebell.spark")

QueueType = Literal["auto", "stream", "classic", "quorum"]

DRAIN_PREFETCH: Final = 20_000
LONGEST_TICKET: Final = 255
LOCK_NAME: Final = "lock"  # beside the drains of a queue
MAX_PREFETCH: Final = 65_535  # basic.qos carries a short

# Options of one kind of queue that change nothing about which messages are read.
UNUSED: Final = frozenset(("spool", "dedupWindow", "failOnDataLoss"))
OBEYED: Final = frozenset(("ordered",))  # by both kinds

_said: set[tuple[str, str]] = set()  # (option, queues) that this process has logged as unused


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The checked options of a reader. Times are seconds, offsets are message numbers of a stream queue."""

    url: Address
    queues: tuple[str, ...]
    queue_type: QueueType
    stream: StreamOptions
    max_messages: int | None
    max_bytes: int | None  # of bodies
    min_messages: int
    max_delay: float  # how long fewer than min_messages may wait
    ordered: bool
    min_partitions: int
    prefetch: int
    batch_rows: int
    fail_on_data_loss: bool
    spool: Path
    ticket: str | None
    dedup_window: float
    timeout: float
    read_timeout: float
    retry_timeout: float
    first_patience: float  # for a broker that does not answer at the start of a read
    given: frozenset[str]  # the lower-cased names that the caller wrote, to refuse those that a queue type excludes
    payload: PayloadOptions = BINARY

    @property
    def drain_prefetch(self) -> int:
        """Messages in flight of a drain; more than a stream's, for each file costs two waits for the disk."""
        return self.prefetch if "prefetch" in self.given else DRAIN_PREFETCH

    @property
    def vhost(self) -> str:
        """The virtual host that the URL names ("/" when it names none)."""
        return self.url.vhost


def default_spool() -> Path:
    """The default of the option `spool`, the folder of drained messages: $XDG_STATE_HOME/harebell/spool."""
    return user_folder("state", "the spool", "name a folder with the option spool") / "spool"


def check_read(options: Mapping[str, str]) -> None:
    """Raises InvalidArgument for options that suit neither a batch read nor a streaming one."""
    given_options(options, "batch read", "streaming read")
    try:
        source_options(options, streaming=False)
    except InvalidArgument as refusal:
        try:
            source_options(options, streaming=True)
        except InvalidArgument:
            raise refusal from None


def source_options(options: Mapping[str, str], streaming: bool) -> SourceOptions:
    """The checked options of a reader. Raises InvalidArgument, whose text names the option and what it takes."""
    given = given_options(options, "streaming read" if streaming else "batch read")
    names = [given[key] for key in ("queue", "queues", "path") if key in given]
    if len(names) > 1:
        raise InvalidArgument("give the queues once: as option 'queue', as option 'queues' or as load()'s argument")
    queues = _queue_names(names[0]) if names else ()
    found = [name for name in ("queuePattern", "superstream") if name.lower() in given]
    if len(found) + bool(queues) > 1:
        raise InvalidArgument("give one of 'queue', 'queuePattern' and 'superstream': what to read")
    if not found and not queues:
        raise InvalidArgument("option 'queue' is missing: the name of the queue to read, or several with commas")
    if any(not name for name in queues):
        raise InvalidArgument("option 'queue' has an empty name in its list: a queue's name has at least one character")
    queue_type = choice(given, "queueType", "auto", ("auto", "stream", "classic", "quorum"))
    ticket = given.get("ticket")
    if ticket is not None:
        check_ticket(ticket)
    ordered = flag(given, "ordered", False)
    if ordered and "minpartitions" in given:
        raise InvalidArgument("with ordered=true each queue is read in one task: leave option 'minPartitions' out")
    if "maxtriggerdelay" in given and "minmessagespertrigger" not in given:
        raise InvalidArgument("option 'maxTriggerDelay' is for 'minMessagesPerTrigger', which is not given")
    return SourceOptions(
        url=address(given),
        queues=queues,
        queue_type=cast(QueueType, queue_type),
        stream=stream_options(given, queues, flag(given, "matchUnfiltered", False)),
        max_messages=number_if_given(given, "maxMessagesPerTrigger"),
        max_bytes=number_if_given(given, "maxBytesPerTrigger"),
        min_messages=number(given, "minMessagesPerTrigger", int, 1, 1),
        max_delay=number(given, "maxTriggerDelay", float, 0, 900.0),
        ordered=ordered,
        min_partitions=number(given, "minPartitions", int, 1, 2),
        prefetch=number(given, "prefetch", int, 1, 5000, MAX_PREFETCH),
        batch_rows=number(given, "batchRows", int, 1, 10_000),
        fail_on_data_loss=flag(given, "failOnDataLoss", True),
        spool=Path(given["spool"]) if "spool" in given else default_spool(),
        ticket=ticket,
        dedup_window=number(given, "dedupWindow", float, 0, 600.0),
        timeout=number(given, "timeout", float, 0.001, 30.0),
        read_timeout=number(given, "readTimeout", float, 0.001, 30.0),
        retry_timeout=number(given, "retryTimeout", float, 0, 60.0),
        first_patience=first_patience(given),
        given=frozenset(given),
        payload=payload_options(given),
    )


def queue_option(*names: str) -> str:
    """The value of the option `queue` that means these queues, whatever characters are in their names."""
    return json.dumps(names)


def _queue_names(text: str) -> tuple[str, ...]:
    """The names in the option `queue`: with commas between them, or as a JSON list, for names with commas or spaces."""
    listed: object = None
    if text.lstrip().startswith("["):
        with suppress(ValueError):
            listed = json.loads(text)
    if isinstance(listed, list) and listed and all(isinstance(name, str) for name in listed):
        return tuple(dict.fromkeys(listed))
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def check_ticket(ticket: str) -> None:
    """Raises InvalidArgument for a name that no drain can have: its folder in the spool has it."""
    if not ticket.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise InvalidArgument(f"option 'ticket' is {ticket!r}; letters, digits, '-', '_' and '.' are allowed")
    if (size := len(ticket.encode())) > LONGEST_TICKET:
        raise InvalidArgument(
            f"option 'ticket' has {size} bytes ({ticket[:20]}...); it takes {LONGEST_TICKET} at most, a file's name"
        )
    if ticket.lower() == LOCK_NAME:
        raise InvalidArgument(f"option 'ticket' is {ticket!r}, which the spool's own lock is called; take another name")


def refuse(options: SourceOptions, family: Literal["stream", "spool"]) -> None:
    """Raises InvalidArgument when an option was given that chooses messages, and cannot for this kind of queue.

    One that only says how the other kind is read is unused, which is logged: a job may be written for any queue.
    """
    others, kind, rest = (
        ((*SPOOL, "ticket"), "a stream queue", "classic and quorum queues")
        if family == "stream"
        else ((*streams.BOTH, *streams.BATCH), "a classic or quorum queue", "stream queues")
    )
    names = ", ".join(options.queues)
    for name in others:
        if name.lower() not in options.given or name in OBEYED:
            continue
        if name not in UNUSED:
            raise InvalidArgument(f"option '{name}' means nothing for {kind} ({names}); it is for {rest}")
        if (name, names) not in _said:
            _said.add((name, names))
            log.warning("option '%s' is unused for %s (%s); it is for %s", name, kind, names, rest)
