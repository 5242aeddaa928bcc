"""Questions to all layers of a prefix, and their answers. In the I/O thread.

The registry tells which layers there were lately; those that read their queue of control messages are asked, and each
of them answers.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections.abc import Callable
from typing import Any

from harebell.channels.links.batch import Publish
from harebell.channels.links.connection import LayerConnection
from harebell.channels.links.link import Link
from harebell.channels.links.registry import Registered
from harebell.channels.messages.controls import ASKED_HEADER, CONTROL_HEADER, Controls
from harebell.client.messages import Message
from harebell.protocol.v091 import Table

__all__ = ["Questions"]

logger = logging.getLogger("harebell.channels")

# Answers a question: takes what was asked, and returns what JSON can say.
Answerer = Callable[[Any], Any]


class Questions:
    """Asks, and answers.

    on  who answers, by the word of the question
    """

    def __init__(self, connection: LayerConnection, controls: Controls) -> None:
        self._connection = connection
        self._controls = controls
        self._numbers = itertools.count(1)
        self._open: dict[int, _Question] = {}
        self.on: dict[str, Answerer] = {}
        controls.other["ask"] = self._answer
        controls.other["answer"] = self._answered

    async def ask(self, word: str, asked: Any, seconds: float) -> tuple[list[Any], Registered]:
        """The answers of all layers that give one within `seconds`, this one too, and what the registry says."""
        await self._controls.ensure()
        number = next(self._numbers)
        question = self._open[number] = _Question()
        try:
            registered = await self._connection.over_links(
                lambda link: self._ask(link, number, question, word, asked, seconds)
            )
            try:
                async with asyncio.timeout(seconds):
                    await question.complete.wait()
            except TimeoutError:
                pass  # a process has ended meanwhile
        finally:
            del self._open[number]
        return question.answers, registered

    async def _ask(
        self, link: Link, number: int, question: _Question, word: str, asked: Any, seconds: float
    ) -> Registered:
        connection, names = self._connection, self._connection.names
        registered = await connection.registry.read(link)
        headers: Table = {CONTROL_HEADER: "ask", ASKED_HEADER: number}
        message = Message(
            json.dumps([word, asked]).encode(),
            headers=headers,
            reply_to=self._controls.queue,
            expiration=str(max(1, round(seconds * 1000))),
        )
        queues = [names.control(layer) for layer in sorted({*registered.layers, connection.client_id})]
        found = await asyncio.gather(*(link.queue(queue) for queue in queues))
        alive = [queue for queue, info in zip(queues, found, strict=True) if info is not None and info.consumer_count]
        question.answers.clear()
        question.expect(len(alive))
        await link.ask([Publish(message, "", queue) for queue in alive])
        return registered

    def _answer(self, process: str, headers: Table, body: bytes, reply_to: str) -> None:
        word, asked = json.loads(body)
        answerer = self.on.get(word)
        if answerer is None or not reply_to:
            return  # a later version's
        answer: Table = {ASKED_HEADER: headers.get(ASKED_HEADER)}
        self._controls.say_later("answer", json.dumps(answerer(asked)).encode(), reply_to, answer)

    def _answered(self, process: str, headers: Table, body: bytes, reply_to: str) -> None:
        question = self._open.get(int(str(headers.get(ASKED_HEADER))))
        if question is not None:
            question.answers.append(json.loads(body))
            question.check()


class _Question:
    """The answers so far to one question."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.complete = asyncio.Event()
        self._expected: int | None = None

    def expect(self, count: int) -> None:
        self._expected = count
        self.check()

    def check(self) -> None:
        if self._expected is not None and len(self.answers) >= self._expected:
            self.complete.set()
