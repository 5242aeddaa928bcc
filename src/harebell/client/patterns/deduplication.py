"""Keys by which a broker drops duplicates: the header that a queue declared with `x-message-deduplication` looks at.

Harebell's queues have it built in; RabbitMQ needs its plugin rabbitmq_message_deduplication. Elsewhere the header is
carried, and nothing looks at it.
"""

from __future__ import annotations

import uuid
from typing import Final

from harebell.client.messages import Message, copy_of_properties

__all__ = ["HEADER", "Keys", "with_key"]

HEADER: Final = "x-deduplication-header"


def with_key(message: Message | bytes, key: str) -> Message:
    """The message with this key; one that has a key already is left as it is."""
    if not isinstance(message, Message):
        return Message(message, headers={HEADER: key})
    if HEADER in message.headers:
        return message
    properties = copy_of_properties(message.properties)
    properties.headers = {**message.headers, HEADER: key}
    return Message(message.body, properties=properties)


class Keys:
    """Keys that nothing else makes: a random name, and numbers that go up."""

    def __init__(self) -> None:
        self._name = uuid.uuid4().hex
        self._last = 0

    def stamp(self, message: Message | bytes) -> Message:
        """The message with the next key, unless it has one."""
        self._last += 1
        return with_key(message, f"{self._name}-{self._last}")
