"""`harebell shovel SOURCE DESTINATION`: moves messages from one broker to another, until a signal or until all arrived.

Rules: faulty options are reported before anything is moved. After the first SIGINT or SIGTERM the command waits for
the confirms of messages on their way, and ends; a second one ends it at once, and those messages are delivered again.
"""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import unquote

from cyclopts import Parameter
from rich.table import Table

from harebell.bridge import Destination, Shovel, ShovelOptions, Source, declare_topology
from harebell.bridge.options import DEFAULT_PREFETCH, DEFAULT_RECONNECT_DELAY, MAX_PREFETCH, AckMode
from harebell.bridge.topology import durable_queues
from harebell.cli.entry import INTERRUPTED
from harebell.cli.server.serve import loop_factory
from harebell.cli.terminal.consoles import add_row, new_console
from harebell.cli.terminal.display import Display
from harebell.cli.terminal.output import say
from harebell.cli.validators import Number, Seconds, maybe_empty
from harebell.client.connection import connect
from harebell.client.url import parse_url
from harebell.errors import InvalidArgument, ShovelEnded
from harebell.protocol.v091.fields import FieldValue
from harebell.routing.definitions import Definitions, QueueDefinition, parse_definitions

__all__ = ["shovel"]

AT_ONCE: Final = 8  # queues that are moved at the same time, where each comes to its end


def shovel(
    source: Annotated[str, Parameter(help="Where from: amqp://user:password@host:port/vhost#queue")],
    destination: Annotated[str, Parameter(help="Where to: the same. Without a queue: one of the same name.")],
    *,
    source_queue: Annotated[str | None, Parameter(help="The queue, instead of the #queue of the URL.")] = None,
    source_exchange: Annotated[
        str | None, Parameter(help="Move the messages that this exchange routes, from now on.")
    ] = None,
    source_key: Annotated[str, Parameter(validator=maybe_empty, help="Binding key for --source-exchange.")] = "",
    dest_queue: Annotated[str | None, Parameter(help="The queue, instead of the #queue of the URL.")] = None,
    dest_exchange: Annotated[str | None, Parameter(validator=maybe_empty, help="Publish to this exchange.")] = None,
    dest_key: Annotated[
        str | None, Parameter(validator=maybe_empty, help="With this routing key; left out: the message's own.")
    ] = None,
    every: Annotated[
        bool,
        Parameter(name="--all", negative=(), help="Every durable queue of the file's vhost; streams with --offset."),
    ] = False,
    definitions: Annotated[
        Path | None, Parameter(help="A RabbitMQ definitions file: its vhost's topology is declared at the destination.")
    ] = None,
    until_empty: Annotated[bool, Parameter(negative=(), help="End when the source queue is empty.")] = False,
    count: Annotated[int | None, Parameter(help="End after so many messages.", validator=Number(gte=1))] = None,
    offset: Annotated[
        str | None, Parameter(help="Where to start in a stream: first, last, next, a number, or a span such as 1h.")
    ] = None,
    ack_mode: Annotated[AckMode, Parameter(help="When a message is acknowledged at the source.")] = "on-confirm",
    prefetch: Annotated[
        int,
        Parameter(help="How many messages may be on their way.", validator=Number(gte=1, lte=MAX_PREFETCH)),
    ] = DEFAULT_PREFETCH,
    reconnect_delay: Annotated[
        float,
        Parameter(
            help="Longest wait between two attempts, in seconds; 0: end at the first loss.", validator=Seconds(0)
        ),
    ] = DEFAULT_RECONNECT_DELAY,
    forward_headers: Annotated[bool, Parameter(negative=(), help="Add x-shovelled to the headers.")] = False,
    timestamp_header: Annotated[bool, Parameter(negative=(), help="Add x-shovelled-timestamp to the headers.")] = False,
) -> int:
    """Move messages from one broker to another, Harebell or RabbitMQ, so that none is lost.

    A message leaves the source when the destination has confirmed it. A lost connection is restored; then at most
    --prefetch messages arrive twice. Runs until Ctrl-C, unless --until-empty or --count ends it.

    Ends with 0 when done, 1 when it cannot continue, 130 when it was interrupted before it was done.
    """
    taken_from, given_to = end_of(source, source_queue, "source"), end_of(destination, dest_queue, "dest")
    options = ShovelOptions(
        Source(
            (taken_from[0],),
            queue=taken_from[1],
            exchange=source_exchange,
            key=source_key,
            consumer_arguments=at_offset(offset),
            prefetch=prefetch,
            delete_after=count,
            predeclared=True,
        ),
        Destination(
            (given_to[0],),
            queue=given_to[1],
            exchange=dest_exchange,
            key=dest_key,
            forward_headers=forward_headers,
            timestamp_header=timestamp_header,
            predeclared=True,
        ),
        ack_mode,
        reconnect_delay,
    )
    topology = None if definitions is None else read(definitions)
    shovels = [
        Shovel(each, name, patient=False, until_empty=until_empty, about=ABOUT)
        for name, each in jobs(options, topology, every=every)
    ]
    display = Display(new_console())
    logging.basicConfig(handlers=[_Said(display)], level=logging.WARNING, format="%(message)s")
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_Run(shovels, display, ends=until_empty or count is not None).run(options, topology))


ABOUT: Final[dict[str, FieldValue]] = {"shovelled-by": "harebell", "shovel-type": "command"}


def at_offset(offset: str | None) -> dict[str, FieldValue]:
    if offset is None:
        return {}
    return {"x-stream-offset": int(offset) if re.fullmatch("[0-9]{1,18}", offset) else offset}


def end_of(text: str, queue: str | None, what: str) -> tuple[str, str | None]:
    """(URL, queue) of an argument such as amqp://host/vhost#queue. InvalidArgument when it is not one."""
    url, _, fragment = text.partition("#")
    parse_url(url)
    if fragment and queue is not None:
        raise InvalidArgument(f"#{fragment} and --{what}-queue {queue} both name a queue: leave one of them out")
    return url, unquote(fragment) or queue


def jobs(options: ShovelOptions, topology: Definitions | None, *, every: bool) -> list[tuple[str, ShovelOptions]]:
    """Each shovel to run: its name and its options. InvalidArgument for contradictory options."""
    source, destination = options.source, options.destination
    if destination.queue is not None and destination.exchange is not None:
        raise InvalidArgument("the destination is a queue or --dest-exchange, not both")
    if options.ack_mode == "no-ack" and source.delete_after is not None:
        raise InvalidArgument("--count cannot be kept with --ack-mode no-ack: what was sent too much would be lost")
    if not every:
        if (source.queue is None) == (source.exchange is None):
            raise InvalidArgument("name one queue (amqp://host/vhost#queue) or --source-exchange to take messages from")
        if destination.queue is None and destination.exchange is None and source.queue is not None:
            destination = replace(destination, queue=source.queue)
        if source.queue is not None and (source.uris, source.queue) == (destination.uris, destination.queue):
            raise InvalidArgument(f"queue '{source.queue}' would be moved into itself: name another destination")
        return [(source.queue or str(source.exchange), replace(options, destination=destination))]
    if topology is None:
        raise InvalidArgument("--all needs a definitions file that says which queues there are: --definitions FILE")
    named = (source.queue, source.exchange, destination.queue, destination.exchange, source.delete_after)
    if any(each is not None for each in named):
        raise InvalidArgument("--all moves each queue into the one of its name: name no queue, exchange or --count")
    vhost = parse_url(source.uris[0]).vhost
    queues = durable_queues(topology, vhost)
    if not queues:
        raise InvalidArgument(f"the definitions file has no durable queue in vhost '{vhost}', which the URL names")
    return [
        (queue.name, one_of_all(options, queue)) for queue in queues
        if source.consumer_arguments or not is_stream(queue)  # a stream needs an offset to start at
    ]  # fmt: skip


def is_stream(queue: QueueDefinition) -> bool:
    return "stream" in (queue.type, queue.arguments.get("x-queue-type"))


def one_of_all(options: ShovelOptions, queue: QueueDefinition) -> ShovelOptions:
    source = replace(options.source, queue=queue.name)
    if not is_stream(queue):
        source = replace(source, consumer_arguments={})
    return replace(options, source=source, destination=replace(options.destination, queue=queue.name))


def read(path: Path) -> Definitions:
    try:
        return parse_definitions(path.read_bytes())
    except OSError as error:
        raise InvalidArgument(f"definitions file {path} cannot be read: {error.strerror}") from error
    except InvalidArgument as error:
        raise InvalidArgument(f"definitions file {path}: {error}") from None


class _Run:
    """The shovels of one command, from the first connection to the counts at the end."""

    def __init__(self, shovels: list[Shovel], display: Display, *, ends: bool) -> None:
        self._shovels = shovels
        self._display = display
        self._ends = ends
        self._failures: dict[str, str] = {}
        self._done: set[Shovel] = set()
        self._stopping = False

    async def run(self, options: ShovelOptions, topology: Definitions | None) -> int:
        loop, main = asyncio.get_running_loop(), asyncio.current_task()
        assert main is not None

        def interrupt() -> None:
            if self._stopping:
                main.cancel()
            self._stopping = True
            for each in self._shovels:
                each.stop()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, interrupt)
        started = time.perf_counter()
        try:
            if topology is not None:
                await self._declare(options, topology)
            label = f"shovel {self._shovels[0].name}" if len(self._shovels) == 1 else f"{len(self._shovels)} queues"
            with self._display.bars((label, self._expected, self._forwarded)):
                at_once = asyncio.Semaphore(AT_ONCE if self._ends else len(self._shovels))
                await asyncio.gather(*(self._one(each, at_once) for each in self._shovels))
        except asyncio.CancelledError:
            self._report(time.perf_counter() - started)
            return INTERRUPTED
        self._report(time.perf_counter() - started)
        for name, text in self._failures.items():
            say(f"harebell: {name}: {text}", sys.stderr)
        if self._failures:
            return 1
        return INTERRUPTED if self._ends and len(self._done) < len(self._shovels) else 0

    async def _declare(self, options: ShovelOptions, topology: Definitions) -> None:
        vhost = parse_url(options.source.uris[0]).vhost
        async with connect(options.destination.uris[0], recovery=None) as connection:
            for remark in await declare_topology(connection, topology, vhost):
                self._display.say(remark)

    async def _one(self, shovel: Shovel, at_once: asyncio.Semaphore) -> None:
        async with at_once:
            try:
                await shovel.run()
            except ShovelEnded as error:
                self._failures[shovel.name] = str(error)
            else:
                if not shovel.stopping.is_set():
                    self._done.add(shovel)

    def _expected(self) -> int | None:
        """How many messages are to be moved, as far as known; None without an end."""
        if not self._ends:
            return None
        known = [each.expected for each in self._shovels if each.expected is not None]
        return max(sum(known), self._forwarded()) if known else None

    def _forwarded(self) -> int:
        return sum(each.forwarded for each in self._shovels)

    def _report(self, seconds: float) -> None:
        """Print the exact counts of moved messages."""
        say, moved = self._display.say, self._forwarded()
        if len(self._shovels) > 1:
            table = Table(show_edge=False, pad_edge=False)
            table.add_column("queue")
            table.add_column("moved", justify="right")
            for each in self._shovels:
                add_row(table, each.name, f"{each.forwarded:,}")
            self._display.console.print(table)
        say(f"{moved:,} messages moved in {seconds:.1f} s")
        for each in self._shovels:
            if each.next_offset is not None:
                say(f"stream {each.name}: the next one would be --offset {each.next_offset}")
        lost = sum(each.lost for each in self._shovels)
        if lost:
            say(f"{lost:,} messages were refused by the destination, and are gone")
        redials = sum(each.redials for each in self._shovels)
        if redials:
            window = self._shovels[0].options.source.prefetch
            say(f"connections were lost {redials} times: each time up to {window:,} messages may have arrived twice")
        pending = sum(each.expected or 0 for each in self._shovels if each not in self._done) if self._ends else 0
        if pending and self._stopping:
            say("interrupted: what was not moved is still at the source")


class _Said(logging.Handler):
    """Prints log records as lines of the display, so that they do not break a bar."""

    def __init__(self, display: Display) -> None:
        super().__init__()
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        self._display.say(self.format(record))
