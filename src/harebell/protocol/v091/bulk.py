"""Many messages at once: property flags and values from columns, and the frames of many contents.

`Properties.encode` and `encode_content` encode one message; these functions encode thousands, from columns of values.
A column costs one pass, a value that all rows share costs nothing, and a message makes no object but its bytes. The
result is the same to the byte, and a value that the wire cannot hold raises the same error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from struct import Struct
from typing import Any, Final

from harebell.errors import LocalProtocolError
from harebell.protocol.v091.codec import FRAME_OVERHEAD, too_long
from harebell.protocol.v091.content import BASIC_CLASS, CONTENT_HEAD, HEADER_FIXED, NEXT_BODY, encode_content
from harebell.protocol.v091.fields import FieldValue, write_octet, write_shortstr, write_table, write_timestamp
from harebell.protocol.v091.methods import FRAME_BODY, FRAME_HEADER
from harebell.protocol.v091.property_flags import FIELDS, RESERVED, SHORT_STRING, TABLE

__all__ = ["PROPERTY_NAMES", "encode_contents", "encode_property_columns"]

_FLAGS: Final = Struct(">H")
_SHORT: Final = tuple(bytes((length,)) for length in range(256))

_WRITERS: Final[dict[int, Callable[[Any, str], bytes]]] = {  # by the size of the value
    SHORT_STRING: write_shortstr,
    TABLE: lambda table, name: write_table(table),
    1: write_octet,
    8: lambda value, name: write_timestamp(value),
}
_FIELDS: Final = tuple((name, flag, _WRITERS[size]) for flag, name, size in FIELDS if flag != RESERVED)
PROPERTY_NAMES: Final = tuple(name for name, _, _ in _FIELDS)


def encode_property_columns(
    rows: int, columns: Mapping[str, Sequence[FieldValue]], constants: Mapping[str, FieldValue]
) -> list[bytes]:
    """The encoded properties of each of `rows` messages, as `Properties.encode` gives them.

    columns    by property, a value for each row; None is absent. A headers table may also be given encoded
    constants  by property, the value that all rows have; a property is in one of the two at most

    Raises LocalProtocolError, which names the property whose value does not fit its type.
    """
    unknown = (set(columns) | set(constants)) - set(PROPERTY_NAMES)
    if unknown:
        raise LocalProtocolError(f"no property is named {min(unknown)!r}: there are {', '.join(PROPERTY_NAMES)}")
    shared = 0
    varying: list[Iterable[int]] = []
    pieces: list[Iterable[bytes]] = []
    same = b""  # values that all rows share, since the last column
    for name, flag, write in _FIELDS:
        values = columns.get(name)
        if values is None:
            value = constants.get(name)
            if value is not None:
                shared |= flag
                same += write(value, name)
            continue
        if len(values) != rows:
            raise LocalProtocolError(f"column {name} has {len(values)} values, and there are {rows} messages")
        if same:
            pieces.append(repeat(same))
            same = b""
        if None in values:
            varying.append([0 if value is None else flag for value in values])
        else:
            shared |= flag
        pieces.append(_encoded(name, write, values))
    if same:
        pieces.append(repeat(same))
    if not varying:
        flags: Iterable[bytes] = repeat(_FLAGS.pack(shared))
    else:
        flags = [_FLAGS.pack(shared | sum(some)) for some in zip(*varying, strict=True)]
    if all(isinstance(piece, repeat) for piece in (flags, *pieces)):
        return [b"".join(next(iter(piece)) for piece in (flags, *pieces))] * rows
    # Not strict: `repeat` has no end.
    return list(map(b"".join, zip(flags, *pieces)))  # noqa: B905


def _encoded(name: str, write: Callable[[Any, str], bytes], values: Sequence[Any]) -> list[bytes]:
    if write is write_shortstr:
        try:
            if None in values:
                raws = [None if value is None else value.encode() for value in values]
                return [b"" if raw is None else _SHORT[len(raw)] + raw for raw in raws]
            return [_SHORT[len(raw)] + raw for raw in map(str.encode, values)]
        except (IndexError, UnicodeEncodeError):
            pass  # the slower loop below raises the error that names the value
    if name == "headers":
        return [b"" if value is None else value if isinstance(value, bytes) else write_table(value) for value in values]
    return [b"" if value is None else write(value, name) for value in values]


def _check_header(length: int, room: int) -> None:
    if HEADER_FIXED.size + length > room:
        raise too_long(
            "basic.publish", "properties", FRAME_OVERHEAD + HEADER_FIXED.size + length, room + FRAME_OVERHEAD
        )


def encode_contents(
    channel: int, raw_properties: Sequence[bytes], bodies: Sequence[bytes], frame_max: int
) -> list[bytes]:
    """Header and body frames of each message, as `encode_content` gives them one by one.

    Raises LocalProtocolError when the properties of one do not fit a frame.
    """
    room = (frame_max or 1 << 31) - FRAME_OVERHEAD
    sizes = list(map(len, bodies))
    if not sizes or min(sizes) == 0 or max(sizes) > room:
        for raw in raw_properties:
            _check_header(len(raw), room)
        return [encode_content(channel, raw, body, frame_max) for raw, body in zip(raw_properties, bodies, strict=True)]
    heads: dict[tuple[int, int], tuple[bytes, bytes]] = {}  # by lengths: there are few of them, messages being alike
    contents = []
    for raw, body, size in zip(raw_properties, bodies, sizes, strict=True):
        lengths = len(raw), size
        head = heads.get(lengths)
        if head is None:
            _check_header(lengths[0], room)
            head = heads[lengths] = (
                CONTENT_HEAD.pack(FRAME_HEADER, channel, HEADER_FIXED.size + lengths[0], BASIC_CLASS, 0, size),
                NEXT_BODY.pack(206, FRAME_BODY, channel, size),
            )
        contents.append(b"%b%b%b%b\xce" % (head[0], raw, head[1], body))
    return contents
