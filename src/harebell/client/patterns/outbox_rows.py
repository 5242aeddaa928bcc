"""What an outbox's row keeps of a message: its properties and its body as they go over the wire, with a key."""

from __future__ import annotations

import uuid
from typing import Final

from harebell.client.messages import Message, copy_of_properties, encoded
from harebell.client.patterns.deduplication import with_key

__all__ = ["prepared"]

PERSISTENT: Final = 2


def prepared(body: Message | bytes, key: str | None) -> tuple[bytes, bytes]:
    """(properties, body) of a message, with this key or one of its own, persistent unless it says otherwise.

    InvalidArgument and LocalProtocolError for a message that does not fit the wire.
    """
    message = with_key(body, uuid.uuid4().hex if key is None else key)
    if message.properties.delivery_mode is None:
        properties = copy_of_properties(message.properties)
        properties.delivery_mode = PERSISTENT
        message = Message(message.body, properties=properties)
    return encoded(message)
