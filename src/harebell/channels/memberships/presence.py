"""Finds the channels in a group by asking the processes that have members in it. In the I/O thread.

Each process knows the memberships of its own channels only. A Harebell broker lists the process queues bound to a
group, so that exactly these get the question and are awaited, and the normal channels in the group. RabbitMQ does not
list bindings over AMQP: the question goes to the whole group, and the result has the answers that arrive within
`seconds`, without normal channels.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from typing import Final

from harebell.channels.links.batch import Publish
from harebell.channels.links.connection import LayerConnection
from harebell.channels.links.link import Link
from harebell.channels.local_members import LocalMembers
from harebell.channels.messages.controls import ASKED_HEADER, CONTROL_HEADER, Controls
from harebell.channels.names import is_local
from harebell.client.messages import Delivery, Message
from harebell.protocol.v091 import Table, methods as m

__all__ = ["Presence"]

SYSTEM: Final = "amq.system"
GROUP_HEADER: Final = "asgi_group"


class Presence:
    """Asks other processes for the members of a group, and answers such questions."""

    def __init__(self, connection: LayerConnection, members: LocalMembers, controls: Controls) -> None:
        self._connection = connection
        self._members = members
        self._controls = controls
        self._numbers = itertools.count(1)
        self._open: dict[int, _Question] = {}
        controls.other["who"] = self._answer
        controls.other["members"] = self._answered

    async def of(self, group: str, seconds: float) -> list[str]:
        """The channels in a group, sorted."""
        await self._controls.ensure()
        number = next(self._numbers)
        question = self._open[number] = _Question()
        headers: Table = {CONTROL_HEADER: "who", GROUP_HEADER: group, ASKED_HEADER: number}
        expiration = str(max(1, round(seconds * 1000)))
        message = Message(b"", headers=headers, reply_to=self._controls.queue, expiration=expiration)
        try:
            found = await self._connection.over_links(lambda link: self._ask(link, group, message, question))
            if question.awaited is None or question.answers < question.awaited:
                try:
                    async with asyncio.timeout(seconds):
                        await question.complete.wait()
                except TimeoutError:
                    pass  # a process has died, or the broker does not list the processes
        finally:
            del self._open[number]
        return sorted({*found, *question.channels})

    async def _ask(self, link: Link, group: str, message: Message, question: _Question) -> list[str]:
        """Ask the processes with members in a group; returns the other channels in it, as far as the broker tells."""
        if not link.on_harebell:
            await link.ask([Publish(message, self._connection.names.groups, group)])
            return []
        asked, normal = await self._routes(link, group)
        if asked:
            await link.ask([Publish(message, "", process) for process in asked])
        question.awaited = len(asked)
        return normal

    async def _routes(self, link: Link, group: str) -> tuple[list[str], list[str]]:
        """The queues of the processes with members in a group, and the other channels in it."""
        names = self._connection.names
        queue = f"{names.prefix}:routes:{self._connection.client_id}"
        *_, reply, _ = await link.ask(
            [
                m.QueueDeclare(queue, arguments={"x-expires": 60_000}),
                Publish(Message(b"", reply_to=queue), SYSTEM, "amq.routes"),
                m.BasicGet(queue, True),
                m.QueueDelete(queue),
            ]
        )
        processes: set[str] = set()
        channels: list[str] = []
        for binding in json.loads(reply.body)["bindings"] if isinstance(reply, Delivery) else []:
            if binding["source"] != names.group(group):
                continue
            destination = str(binding["destination"])
            for kind in ("channel", "member", "queue"):
                name = names.channel_of(kind, destination)
                if name is not None and kind == "queue" and is_local(name):
                    processes.add(destination)
                elif name is not None:
                    channels.append(name)
        return sorted(processes), channels

    def _answer(self, process: str, headers: Table, body: bytes, reply_to: str) -> None:
        group, now = str(headers.get(GROUP_HEADER)), time.monotonic()
        channels = [channel for channel in self._members.of(group, now) if channel.startswith(process)]
        answer: Table = {ASKED_HEADER: headers.get(ASKED_HEADER)}
        if reply_to:
            self._controls.say_later("members", json.dumps(channels).encode(), reply_to, answer)

    def _answered(self, process: str, headers: Table, body: bytes, reply_to: str) -> None:
        question = self._open.get(int(str(headers.get(ASKED_HEADER))))
        if question is not None:
            question.channels.update(json.loads(body))
            question.answers += 1
            if question.answers == question.awaited:
                question.complete.set()


class _Question:
    """The answers so far to one question."""

    def __init__(self) -> None:
        self.channels: set[str] = set()
        self.answers = 0
        self.awaited: int | None = None
        self.complete = asyncio.Event()
