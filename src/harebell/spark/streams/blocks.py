"""Parses many deliveries at once: numpy finds every message in the bytes of a connection, without a Python step each.

A broker writes what it delivers to one consumer one after the other: basic.deliver, header frame, body frame. The frame
of basic.deliver holds the consumer tag, which the reader has made up, so that splitting the bytes at it finds nearly
every message; all else follows from the lengths in the frames, which are looked up for all messages in one go. Columns
then are slices of those same bytes, copied by Arrow.

Rules:

- Everything is verified: every length, frame end and channel is compared, and a message counts only when it begins
  where the one before it ended. What differs from the common form in any way (a body in several frames, another method
  in between, properties that do not add up) is left to the engine of `harebell.protocol`, which `feed` hands it to.
- Here are positions, no connections; which columns there are is `columns`' business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from harebell.client.messages import Delivery
from harebell.errors import LocalProtocolError
from harebell.protocol.v091.content import Content
from harebell.protocol.v091.fields import read_table
from harebell.protocol.v091.property_flags import (
    CONTENT_ENCODING,
    CONTENT_TYPE,
    FIELDS,
    HEADERS,
    SHORT_STRING,
    UNUSED,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harebell.client.messages import Acknowledger

    Int64Array = NDArray[np.int64]

__all__ = ["CHANNEL", "Block", "Irregular", "marker", "scan"]

CHANNEL: Final = 1
"""The only channel of a reader's connection."""

_PREFIX: Final = 7  # type, channel and payload length of a frame
_END: Final = 206
_DELIVER: Final = b"\0\x3c\0\x3c"
_FLAGS: Final = 12  # class, weight and body size stand before the property flags
_OFFSET_ENTRY: Final = b"\x0fx-stream-offsetl"  # the header's entry before its 8 bytes
OFFSET_SIZE: Final = len(_OFFSET_ENTRY) + 8
_OFFSET_FRONT: Final = int.from_bytes(_OFFSET_ENTRY[:8], "big", signed=True)
_OFFSET_BACK: Final = int.from_bytes(_OFFSET_ENTRY[-8:], "big", signed=True)


class Irregular(Exception):
    """These messages are not of the common form; they are to be decoded one by one."""


def marker(consumer_tag: str) -> bytes:
    """What stands in every basic.deliver for this consumer, from the payload's beginning to the delivery tag."""
    tag = consumer_tag.encode()
    return b"%b%c%b" % (_DELIVER, len(tag), tag)


def scan(data: bytes, mark: bytes) -> tuple[Block | None, int]:
    """The whole messages that `data` begins with, as far as they are of the common form, and how many bytes they take.

    `data` begins with a frame. (None, 0) when its first message is not whole, or of another form.
    """
    pieces = data.split(mark)
    if len(pieces) < 2 or len(pieces[0]) != _PREFIX:
        return None, 0
    sizes = np.fromiter(map(len, pieces), np.int64, len(pieces))[:-1]
    tag = np.cumsum(sizes + len(mark))
    view = _View(data)
    frame = tag - len(mark) - _PREFIX
    exchange = tag + 9
    key = exchange + 1 + view.octets(exchange)
    deliver_end = key + 1 + view.octets(key)
    header = deliver_end + 1
    kind_and_size = view.longs(header)
    properties = header + _PREFIX + _FLAGS
    header_end = header + _PREFIX + ((kind_and_size >> 8) & 0xFFFF_FFFF)
    body_size = view.longs(header + _PREFIX + 4) & 0xFFFF_FFFF
    empty = body_size == 0
    body = header_end + 1 + np.where(empty, 0, _PREFIX)
    body_end = body + body_size
    stop = np.where(empty, header_end + 1, body_end + 1)
    good = (
        (stop <= len(data))
        & (view.longs(frame) >> 8 == (0x01 << 48 | CHANNEL << 32) + deliver_end - frame - _PREFIX)
        & (view.octets(deliver_end) == _END)
        & (kind_and_size >> 40 == 0x02 << 16 | CHANNEL)
        & (properties + 2 <= header_end)
        & (view.longs(header + _PREFIX) == 60 << 48)  # class 60, weight 0, and a body of less than 4 GiB
        & (view.octets(header_end) == _END)
        & (empty | (view.longs(body - _PREFIX) >> 8 == (0x03 << 48 | CHANNEL << 32) + body_size))
        & (view.octets(stop - 1) == _END)
    )
    good[1:] &= stop[:-1] == frame[1:]
    count = len(good) if good.all() else int(good.argmin())
    if not count:
        return None, 0
    used = int(stop[count - 1])
    parts = (tag, exchange, key, header, properties, header_end, body, body_size)
    return Block(data, view, used, *(part[:count] for part in parts)), used


class _View:
    """Big-endian numbers at any positions of some bytes; behind the end there is always something, of no meaning."""

    __slots__ = ("_last", "_longs", "bytes")

    def __init__(self, data: bytes) -> None:
        self.bytes = np.frombuffer(data, np.uint8)
        # Every position as a number of 8 bytes: an array whose elements overlap.
        self._longs = np.ndarray((max(len(data) - 7, 1),), ">i8", data if len(data) > 7 else bytes(8), strides=(1,))
        self._last = len(self._longs) - 1

    def octets(self, at: Int64Array) -> Int64Array:
        return self.bytes.take(at, mode="clip").astype(np.int64)

    def longs(self, at: Int64Array) -> Int64Array:
        return self._longs[np.minimum(np.maximum(at, 0), self._last)].astype(np.int64)

    def words(self, at: Int64Array) -> Int64Array:
        """Numbers of 4 bytes, where at least 4 bytes stand before them."""
        return self.longs(at - 4) & 0xFFFF_FFFF


class Block:
    """Deliveries of one stream, as positions in the bytes they came in.

    tags       their delivery tags, ascending
    body_sizes in bytes
    used       how many of the bytes they take
    """

    __slots__ = (
        "_body", "_exchange", "_groups", "_header", "_header_end", "_key", "_numbers", "_properties", "_tag", "_view",
        "body_sizes", "buffer", "data", "used",
    )  # fmt: skip

    def __init__(
        self, data: bytes, view: _View, used: int, tag: Int64Array, exchange: Int64Array, key: Int64Array,
        header: Int64Array, properties: Int64Array, header_end: Int64Array, body: Int64Array, body_sizes: Int64Array,
    ) -> None:  # fmt: skip
        self.data = data
        self.buffer = pa.py_buffer(data)
        self.used = used
        self.body_sizes = body_sizes
        self._view = view
        self._tag, self._exchange, self._key = tag, exchange, key
        self._header, self._properties, self._header_end, self._body = header, properties, header_end, body
        self._numbers: Int64Array | None = None
        self._groups: dict[str, tuple[Int64Array, Int64Array, NDArray[np.bool_] | None]] | None = None

    def __len__(self) -> int:
        return len(self._tag)

    @property
    def last_tag(self) -> int:
        return int(self._view.longs(self._tag[-1:])[0])

    @property
    def numbers(self) -> Int64Array:
        """The messages' numbers in their stream (x-stream-offset). Raises Irregular when one has none."""
        if self._numbers is None:
            self._numbers = self._read_numbers()
        return self._numbers

    def _read_numbers(self) -> Int64Array:
        view, flags = self._view, self._flags()
        if not (flags & HEADERS).all():
            raise Irregular
        at = self._properties + 2
        for bit in (CONTENT_TYPE, CONTENT_ENCODING):  # these come before the headers
            if (flags & bit).any():
                at = at + np.where(flags & bit, 1 + view.octets(at), 0)
        at += 4
        numbers = view.longs(at + len(_OFFSET_ENTRY))
        for row in np.flatnonzero(~self.offset_leads(at)):  # headers of its own before it
            numbers[row] = self._number_among(int(at[row]) - 4, int(self._header_end[row]))
        return numbers

    def _number_among(self, at: int, end: int) -> int:
        try:
            table, stop = read_table(self.data, at)
        except Exception:  # the engine then finds and names the error
            raise Irregular from None
        number = table.get("x-stream-offset")
        if stop > end or not isinstance(number, int) or isinstance(number, bool):
            raise Irregular
        return number

    def _flags(self) -> Int64Array:
        return self._view.longs(self._properties - 6) & 0xFFFF

    def redelivered(self) -> NDArray[np.bool_]:
        flags: NDArray[np.bool_] = self._view.octets(self._tag + 8) & 1 != 0
        return flags

    def exchanges(self) -> tuple[Int64Array, Int64Array]:
        """(position, length) of every message's exchange name."""
        return self._exchange + 1, self._view.octets(self._exchange)

    def routing_keys(self) -> tuple[Int64Array, Int64Array]:
        return self._key + 1, self._view.octets(self._key)

    def bodies(self) -> tuple[Int64Array, Int64Array]:
        return self._body, self.body_sizes

    def property(self, name: str) -> tuple[Int64Array, Int64Array, NDArray[np.bool_] | None] | None:
        """(position, length, which messages have it: None is all) of a property's value; None when none has it.

        A table's position is that of its first entry. Raises Irregular when the properties of a message do not add up.
        """
        if self._groups is None:
            self._groups = self._walk()
        return self._groups.get(name)

    def _walk(self) -> dict[str, tuple[Int64Array, Int64Array, NDArray[np.bool_] | None]]:
        flags = self._flags()
        first = int(flags[0])
        if (flags == first).all():
            return {
                name: (at, size, None)
                for name, (at, size) in self._walk_alike(first, self._properties, self._header_end).items()
            }
        found: dict[str, tuple[Int64Array, Int64Array, NDArray[np.bool_] | None]] = {}
        for each in np.unique(flags):
            members = flags == each
            rows = np.flatnonzero(members)
            for name, (at, size) in self._walk_alike(int(each), self._properties[rows], self._header_end[rows]).items():
                if name not in found:  # a message without it has nothing, at a place of its own
                    found[name] = (self._properties.copy(), np.zeros(len(flags), np.int64), np.zeros(len(flags), bool))
                ats, sizes, present = found[name]
                assert present is not None
                ats[rows], sizes[rows], present[rows] = at, size, True
        return found

    def _walk_alike(self, flags: int, at: Int64Array, end: Int64Array) -> dict[str, tuple[Int64Array, Int64Array]]:
        """The values of messages that have the same property flags."""
        if flags & UNUSED:
            raise Irregular
        view, spans = self._view, {}
        at = at + 2
        for bit, name, width in FIELDS:
            if not flags & bit:
                continue
            if width > 0:
                spans[name] = (at, np.full(len(at), width, np.int64))
                at = at + width
                continue
            size, front = (view.octets(at), 1) if width == SHORT_STRING else (view.words(at), 4)
            spans[name] = (at + front, size)
            at = at + front + size
        if not (at == end).all():
            raise Irregular
        return spans

    def octets_at(self, at: Int64Array) -> Int64Array:
        return self._view.octets(at)

    def longs_at(self, at: Int64Array) -> Int64Array:
        return self._view.longs(at)

    def offset_leads(self, at: Int64Array) -> NDArray[np.bool_]:
        """Which of the header tables whose entries begin there have x-stream-offset as their first one."""
        view = self._view
        found: NDArray[np.bool_] = view.longs(at) == _OFFSET_FRONT
        found &= view.octets(at + 8) == _OFFSET_ENTRY[8]
        found &= view.longs(at + len(_OFFSET_ENTRY) - 8) == _OFFSET_BACK
        return found

    def deliveries(self, rows: Int64Array) -> list[Delivery]:
        """The messages of these rows one by one, for what has no fast way. They cannot be acknowledged."""
        data, names = self.data, []
        for at, size in (self.exchanges(), self.routing_keys()):
            names.append(
                [data[a : a + n].decode("utf-8", "surrogateescape") for a, n in zip(at[rows], size[rows], strict=True)]
            )
        stops = np.where(self.body_sizes == 0, self._header_end + 1, self._body + self.body_sizes + 1)
        return [
            Delivery(Content(CHANNEL, b"", data[start:stop], size), _NOBODY, "", tag, redelivered, exchange, key)
            for start, stop, size, tag, redelivered, exchange, key in zip(
                self._header[rows].tolist(), stops[rows].tolist(), self.body_sizes[rows].tolist(),
                self._view.longs(self._tag[rows]).tolist(), self.redelivered()[rows].tolist(), *names, strict=True,
            )
        ]  # fmt: skip


class _Nobody:
    """Takes the place of a delivery's channel: a block is acknowledged as a whole, by its last tag."""

    def ack(self, delivery_tag: int, *, multiple: bool = False) -> None:
        raise LocalProtocolError("a message of a block is acknowledged with its block")

    def nack(self, delivery_tag: int, *, multiple: bool = False, requeue: bool = True) -> None:
        raise LocalProtocolError("a message of a block is acknowledged with its block")

    def reject(self, delivery_tag: int, *, requeue: bool = False) -> None:
        raise LocalProtocolError("a message of a block is acknowledged with its block")


_NOBODY: Final[Acknowledger] = _Nobody()
