"""A client's publish, ack, nack, reject and deliver from and to bytes, without a Method object per message.

The method frames of publish differ only by exchange, routing key and flags: `ClientFrames` builds one for each such
triple and caches it. The payloads of deliver differ by their tag: `DeliverReader` decodes the exchange and routing key
behind the tag once and caches them. Full caches are emptied, because there may be as many routing keys as messages.
"""

from __future__ import annotations

from typing import Final, cast

from harebell.protocol.v091 import methods as m
from harebell.protocol.v091.codec import decode_method, encode_method

__all__ = ["DELIVER", "GET_OK", "IMMEDIATE", "MANDATORY", "RETURN", "ClientFrames", "DeliverReader"]

DELIVER: Final = b"\x00\x3c\x00\x3c"  # the keys of the methods that carry content to a client
RETURN: Final = b"\x00\x3c\x00\x32"
GET_OK: Final = b"\x00\x3c\x00\x47"

MANDATORY: Final = 1  # flags of basic.publish, which may be added up
IMMEDIATE: Final = 2

MAX_CACHED: Final = 10_000  # entries; some 200 bytes each

_REDELIVERED_AND_NAMES: Final = 8  # offset of these from the delivery tag


class ClientFrames:
    """Encoded frames of one channel for publish, ack, nack and reject.

    renamed     the present name of a queue by the name that the program knows; a publication to the queue through the
                default exchange gets the present name as its routing key
    known       frames of basic.publish by exchange, routing key and flags; `publish` adds missing ones
    ack_prefix  the frame of basic.ack up to its tag
    """

    __slots__ = ("_channel", "_nack", "_reject", "_renamed", "ack_prefix", "known")

    def __init__(self, channel: int, renamed: dict[str, str] | None = None) -> None:
        self._channel = channel
        self._renamed = {} if renamed is None else renamed
        self.known: dict[tuple[str, str, int], bytes] = {}
        # A frame up to its tag: prefix, class id, method id.
        self.ack_prefix = encode_method(channel, m.BasicAck(0))[:11]
        self._nack = encode_method(channel, m.BasicNack(0))[:11]
        self._reject = encode_method(channel, m.BasicReject(0))[:11]

    def publish(self, exchange: str, routing_key: str, flags: int) -> bytes:
        """The method frame of basic.publish. Raises LocalProtocolError for a name of more than 255 bytes.

        flags  MANDATORY and IMMEDIATE; True is mandatory
        """
        key = (exchange, routing_key, flags)
        frame = self.known.get(key)
        if frame is None:
            if len(self.known) >= MAX_CACHED:
                self.known.clear()
            if not exchange:
                routing_key = self._renamed.get(routing_key, routing_key)
            frame = encode_method(
                self._channel, m.BasicPublish(exchange, routing_key, flags & MANDATORY != 0, flags & IMMEDIATE != 0)
            )
            self.known[key] = frame
        return frame

    def forget(self) -> None:
        """Drop the frames of publish, because a queue has another name now."""
        self.known.clear()

    def ack(self, delivery_tag: int, multiple: bool) -> bytes:
        return b"%b%b%b" % (self.ack_prefix, delivery_tag.to_bytes(8, "big"), b"\x01\xce" if multiple else b"\x00\xce")

    def nack(self, delivery_tag: int, multiple: bool, requeue: bool) -> bytes:
        return b"%b%b%c\xce" % (self._nack, delivery_tag.to_bytes(8, "big"), multiple | requeue << 1)

    def reject(self, delivery_tag: int, requeue: bool) -> bytes:
        return b"%b%b%b" % (self._reject, delivery_tag.to_bytes(8, "big"), b"\x01\xce" if requeue else b"\x00\xce")


class DeliverReader:
    """A reader of payloads of basic.deliver.

    names  (exchange, routing key) by the bytes that follow the delivery tag and its flag
    """

    __slots__ = ("names",)

    def __init__(self) -> None:
        self.names: dict[bytes, tuple[str, str]] = {}

    def read(self, payload: bytes) -> tuple[bytes, int, bool, str, str]:
        """(consumer tag as bytes, delivery tag, redelivered, exchange, routing key) of a payload.

        Raises RemoteProtocolError (502) when it is malformed.
        """
        at = 5 + payload[4] if len(payload) > 4 else 0  # for a short payload, decoding the names raises the error
        names = self.names.get(payload[at + 9 :])
        if names is None:
            names = self._decode_names(payload, at + 9)
        return (
            payload[5:at],
            int.from_bytes(payload[at : at + 8], "big"),
            payload[at + _REDELIVERED_AND_NAMES] & 1 != 0,
            names[0],
            names[1],
        )

    def _decode_names(self, payload: bytes, at: int) -> tuple[str, str]:
        method = cast(m.BasicDeliver, decode_method(payload))
        if len(self.names) >= MAX_CACHED:
            self.names.clear()
        names = self.names[payload[at:]] = (method.exchange, method.routing_key)
        return names
