"""`harebell queue`: the messages in one queue: peek at them, move, purge, and send dead letters back.

Rules: what changes a queue is a dry run without --yes, which prints what --yes would do. RabbitMQ has no requests to
browse, move or redrive: there these are refused, and the error names what RabbitMQ has.
"""

from __future__ import annotations

import shlex
from collections import Counter
from typing import Annotated, Any, Final

from cyclopts import Parameter

from harebell.cli.http_api.client import HttpApi
from harebell.cli.http_api.failures import Missing
from harebell.cli.http_api.target import HttpTarget, connect_to
from harebell.cli.listing import View, show_rows
from harebell.cli.objects.lookup import Vhost, find, trying
from harebell.cli.terminal.output import say
from harebell.cli.validators import Number
from harebell.errors import InvalidArgument

__all__ = ["move", "peek", "purge", "redrive"]

Name = Annotated[str, Parameter(help="The queue.")]
Count = Annotated[int, Parameter(help="At most so many messages, the next ones to be delivered.")]
Filter = Annotated[
    str | None, Parameter(help="Only messages that this selector holds for, such as: JMSPriority > 3 AND kind = 'big'.")
]
Yes = Annotated[bool, Parameter(negative=(), help="Do it; without this nothing changes.")]

COLUMNS: Final = ("position", "exchange", "routing_key", "redelivered", "payload_bytes", "properties", "payload")
PAGE: Final = 500  # messages in one answer of browse
MOST_KEPT: Final = 604_800  # seconds, as of the HTTP API
REDRIVEN: Final = 10_000  # dead letters in one request
SHOWN_BYTES: Final = 200  # of a body in a table


def peek(
    name: Name,
    *,
    count: Count = 10,
    offset: Annotated[int, Parameter(help="Pass over so many first.")] = 0,
    filter: Filter = None,
    vhost: Vhost = "/",
    view: View | None = None,
    target: HttpTarget | None = None,
) -> int:
    """Show ready messages in the order of their delivery. None is taken, marked or counted.

    A table has the first 200 bytes of bodies, --json all; bodies that are not UTF-8 are in base64.
    """
    _positive(count)
    if offset < 0:
        raise InvalidArgument("--offset is a number of messages from 0 on")
    cut = None if view is not None and view.json else SHOWN_BYTES
    with connect_to(target) as api:
        api.need_harebell(
            "show messages without marking them as redelivered",
            f"`rabbitmqadmin get queue={name}` gets them and puts them back",
        )
        return show_rows(lambda: _browse(api, vhost, name, count, offset, filter, cut), COLUMNS, view)


def move(
    name: Name,
    destination: Annotated[str, Parameter(help="The queue to whose end they go, in the same virtual host.")],
    *,
    count: Count = 100,
    filter: Filter = None,
    yes: Yes = False,
    vhost: Vhost = "/",
    target: HttpTarget | None = None,
) -> int:
    """Move ready messages to another queue, as they are. Without --yes prints how many there are to move.

    A message leaves its queue when it is safe in the other one; their order stays.
    """
    _positive(count)
    if name == destination:
        raise InvalidArgument(f"queue '{name}' is both the source and the destination")
    with connect_to(target) as api:
        api.need_harebell("move messages", f"`harebell shovel` does: amqp://HOST/VHOST#{name}, --until-empty")
        if find(api, "queue", name, vhost).get("type") == "stream":
            raise InvalidArgument(f"queue '{name}' in vhost '{vhost}' is a stream: its messages stay")
        find(api, "queue", destination, vhost)
        found = [each["position"] for each in _browse(api, vhost, name, count, 0, filter, 0)]
        if not yes:
            return say(
                f"dry run: {_messages(len(found))} would move from '{name}' to '{destination}'; --yes moves them"
            )
        moved = 0
        for position in found:
            try:
                api.post("queues", vhost, name, "messages", str(position), "move", body={"destination": destination})
                moved += 1
            except Missing:
                find(api, "queue", destination, vhost)  # a queue that was deleted meanwhile is another thing
                find(api, "queue", name, vhost)
        say(f"{_messages(moved)} moved from '{name}' to '{destination}'")
        if moved < len(found):
            say(f"{_messages(len(found) - moved)} went elsewhere meanwhile: consumed, expired or purged")
    return 0


def purge(
    name: Name,
    *,
    keep: Annotated[
        int,
        Parameter(
            help="Keep them for so many seconds, a week at most, in a queue of their own; 0: drop them.",
            validator=Number(gte=0, lte=MOST_KEPT),
        ),
    ] = 0,
    yes: Yes = False,
    vhost: Vhost = "/",
    target: HttpTarget | None = None,
) -> int:
    """Drop all ready messages of a queue. Without --yes prints how many there are.

    With --keep they are moved into a new queue, which is deleted when nobody has used it for so long: to undo the
    purge, move them back.
    """
    with connect_to(target) as api:
        ready = find(api, "queue", name, vhost).get("messages_ready") or 0
        if keep:
            api.need_harebell(
                "keep what is purged", f"`harebell shovel` moves it: amqp://HOST/VHOST#{name}, --until-empty"
            )
            if not yes:
                return say(f"dry run: {_messages(ready)} of '{name}' would be kept for {keep} s; --yes purges")
            kept = api.request("DELETE", ("queues", vhost, name, "contents"), query={"keep": keep})
            say(f"{_messages(kept['count'])} of '{name}' are kept for {keep} s in '{kept['queue']}'")
            back = ["harebell", "queue", "move", kept["queue"], name, "--count", str(kept["count"]), "--yes"]
            back += [] if vhost == "/" else ["--vhost", vhost]
            return say(f"to undo it: {shlex.join(back)}") if kept["count"] else 0
        if not yes:
            return say(f"dry run: {_messages(ready)} would be dropped from '{name}'; --yes drops them")
        trying(api, "queue", name, vhost, lambda: api.delete("queues", vhost, name, "contents"))
    return say(f"queue '{name}' in vhost '{vhost}' is purged")


def redrive(
    name: Annotated[str, Parameter(help="The queue that has the dead letters.")],
    *,
    count: Annotated[int, Parameter(help="At most so many dead letters.")] = 100,
    reason: Annotated[
        str | None, Parameter(help="Only those that died so: rejected, expired, maxlen, delivery_limit.")
    ] = None,
    origin: Annotated[str | None, Parameter(name="--from", help="Only those that died in this queue.")] = None,
    yes: Yes = False,
    vhost: Vhost = "/",
    target: HttpTarget | None = None,
) -> int:
    """Move dead letters back to the queues in which they died last. Without --yes prints which would go where."""
    _positive(count)
    queues, left = Counter[str](), Counter[str]()
    with connect_to(target) as api:
        api.need_harebell("redrive dead letters", "`harebell spark deadletters --redrive` does, over AMQP")
        find(api, "queue", name, vhost)
        if not yes and count > REDRIVEN:
            raise InvalidArgument(f"a dry run looks at {REDRIVEN:,} dead letters at most: give --count {REDRIVEN}")
        while count > 0:
            limit = min(count, REDRIVEN)
            body = {"limit": limit, "dry_run": not yes, "reason": reason or "", "from": origin or ""}
            done = api.post("queues", vhost, name, "redrive", body=body)
            queues.update(done["queues"])
            left = Counter(done["left"])
            count -= limit
            if done["count"] < limit:
                break
    would = "would go" if not yes else "went"
    for queue, number in queues.items():
        say(f"{_messages(number)} {would} to '{queue}'")
    for why, number in left.items():
        say(f"{_messages(number)} {'would stay' if not yes else 'stay'}: {why}")
    if not queues and not left:
        say(f"queue '{name}' in vhost '{vhost}' has no dead letters")
    return say("dry run: --yes moves them") if queues and not yes else 0


def _browse(
    api: HttpApi, vhost: str, name: str, count: int, offset: int, selector: str | None, cut: int | None
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while len(found) < count:
        query = {
            "offset": offset, "limit": min(PAGE, count - len(found)), "truncate": cut, "filter": selector or None,
        }  # fmt: skip
        page = trying(
            api, "queue", name, vhost, lambda query=query: api.get("queues", vhost, name, "browse", **query)  # type: ignore[misc]
        )  # fmt: skip
        found += page["items"]
        if page["next_offset"] is None:
            break
        offset = page["next_offset"]
    return found


def _positive(count: int) -> None:
    if count < 1:
        raise InvalidArgument("--count is a number of messages from 1 on")


def _messages(count: int) -> str:
    return f"{count:,} message" + ("s" if count != 1 else "")
