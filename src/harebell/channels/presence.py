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
from typing import Final

from harebell import errors
from harebell.channels.connection import LayerConnection
from harebell.channels.local_members import LocalMembers
from harebell.channels.local_queues import LocalQueueReader
from harebell.channels.names import is_local
from harebell.channels.publishing import CONTROL_HEADER, GROUP_HEADER
from harebell.client.messages import Message
from harebell.protocol.v091 import Table

__all__ = ["Presence"]

SYSTEM: Final = "amq.system"
ASKED_HEADER: Final = "asgi_asked"


class Presence:
    """Asks other processes for the members of a group, and answers such questions."""

    def __init__(self, connection: LayerConnection, members: LocalMembers, local_queues: LocalQueueReader) -> None:
        self._connection = connection
        self._members = members
        self._local_queues = local_queues
        self._numbers = itertools.count(1)
        self._open: dict[int, _Question] = {}
        local_queues.on_control["who"] = self._answer
        local_queues.on_control["members"] = self._answered

    async def of(self, group: str, seconds: float) -> list[str]:
        """The channels in a group, sorted."""
        connection, names = self._connection, self._connection.names
        await connection.ready()
        mine = f"presence.{connection.client_id}!"
        await self._local_queues.ensure(mine)
        found: set[str] = set()
        number = next(self._numbers)
        question = self._open[number] = _Question()
        headers: Table = {
            CONTROL_HEADER: "who",
            GROUP_HEADER: group,
            ASKED_HEADER: number,
        }
        message = Message(
            b"", headers=headers, reply_to=names.queue(mine), expiration=str(max(1, round(seconds * 1000)))
        )
        try:
            if connection.on_harebell:
                asked, normal = await self._routes(group)
                found.update(normal)
                for process in asked:
                    await connection.publishing.publish(message, "", process)
                question.awaited = len(asked)
            else:
                await connection.publishing.publish(message, names.groups, group)
            if question.awaited is None or question.answers < question.awaited:
                try:
                    async with asyncio.timeout(seconds):
                        await question.complete.wait()
                except TimeoutError:
                    pass  # a process has died, or the broker does not list the processes
        finally:
            del self._open[number]
        return sorted(found | question.channels)

    async def _routes(self, group: str) -> tuple[list[str], list[str]]:
        """The queues of the processes with members in a group, and the other channels in it."""
        connection, names = self._connection, self._connection.names
        queue = await connection.declaring.queue_declare("", exclusive=True, auto_delete=True)
        try:
            await connection.publishing.publish(Message(b"", reply_to=queue.name), SYSTEM, "amq.routes")
            reply = await connection.declaring.get(queue.name, no_ack=True)
        finally:
            await connection.declaring.queue_delete(queue.name)
        processes: list[str] = []
        channels: list[str] = []
        for binding in json.loads(reply.body)["bindings"] if reply is not None else []:
            if binding["source"] != names.group(group):
                continue
            destination = str(binding["destination"])
            for kind in ("channel", "member", "queue"):
                name = names.channel_of(kind, destination)
                if name is not None and kind == "queue" and is_local(name):
                    processes.append(destination)
                elif name is not None:
                    channels.append(name)
        return processes, channels

    def _answer(self, process: str, headers: Table, body: bytes, reply_to: str) -> None:
        group = str(headers.get(GROUP_HEADER))
        channels = [channel for channel in self._members.of(group) if channel.startswith(process)]
        answer: Table = {CONTROL_HEADER: "members", ASKED_HEADER: headers.get(ASKED_HEADER)}
        self._connection.thread.start(self._say(Message(json.dumps(channels).encode(), headers=answer), reply_to))

    async def _say(self, message: Message, queue: str) -> None:
        try:
            await self._connection.publishing.publish(message, "", queue)
        except errors.HarebellError:
            pass  # the process that asked has a deadline

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
