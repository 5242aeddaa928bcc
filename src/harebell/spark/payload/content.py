"""Decompresses bodies and finds the charset of their text.

Rules: a message says both itself, in `content_encoding` and in the charset of `content_type`; an option overrules it.
content_encoding carries compressions (as in HTTP, several with commas, the last one applied last) and, from senders
such as Celery, a charset. A word that is neither is a reason not to read the body, and so is a body that inflates to
more than MAX_INFLATED bytes. A batch whose bodies inflate to more than BATCH_INFLATED bytes in all is done in parts.
"""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from harebell.spark.options.payload import PayloadOptions

__all__ = ["MAX_INFLATED", "Content", "contents", "decoded"]

MAX_INFLATED: Final = 256 << 20  # bytes: a small message must not fill a worker's memory
BATCH_INFLATED: Final = 64 << 20  # bytes: neither must ten thousand small ones
UTF8: Final = "utf-8"

# Words of content_encoding (and of transfer encodings, which senders put there) that change nothing.
_UNCHANGED: Final = frozenset({"", "identity", "binary", "7bit", "8bit", "none"})


class Content:
    """Bodies that are ready to be parsed; None where that failed, with the reason by row number.

    They are the batch's first ones: all, or as many as memory should hold at once. `charsets` has one entry a row (or
    more), or is a single name that holds for all.
    """

    __slots__ = ("bodies", "charsets", "reasons")

    def __init__(self, bodies: list[bytes | None], charsets: str | list[str]) -> None:
        self.bodies = bodies
        self.charsets = charsets
        self.reasons: dict[int, str] = {}


class Unreadable(Exception):
    """A body cannot be read; the text becomes the row's reason."""


def contents(batch: pa.RecordBatch, options: PayloadOptions) -> Content:
    """The bodies of a batch with the columns body and, where options leave it to the message, its two encodings."""
    bodies = batch.column("body").to_pylist()
    names = batch.schema.names
    encodings = _texts(batch, "content_encoding", names)
    types = _texts(batch, "content_type", names)
    if isinstance(encodings, list) or isinstance(types, list):
        rows = len(bodies)
        pairs = zip(
            encodings if isinstance(encodings, list) else [encodings] * rows,
            types if isinstance(types, list) else [types] * rows,
            strict=True,
        )
        recipes: dict[tuple[str | None, str | None], _Recipe] = {}
        each = [recipes.get(pair) or recipes.setdefault(pair, _Recipe(*pair, options)) for pair in pairs]
        content = Content(bodies, [recipe.charset for recipe in each])
        if all(recipe.plain for recipe in recipes.values()):
            return content
        _unpack(content, each)
        return content
    recipe = _Recipe(encodings, types, options)
    content = Content(bodies, recipe.charset)
    if not recipe.plain:
        _unpack(content, [recipe] * len(bodies))
    return content


def decoded(body: bytes, charset: str) -> str:
    """The body's text. Raises Unreadable when it is not in that charset."""
    try:
        return body.decode(charset)
    except UnicodeDecodeError as error:
        raise Unreadable(f"not {charset} text: {error.reason} at byte {error.start}") from None
    except UnicodeError as error:  # of idna, punycode and undefined
        raise Unreadable(f"not {charset} text: {error}") from None


def _texts(batch: pa.RecordBatch, name: str, names: list[str]) -> str | list[str | None] | None:
    """The column's one value when all rows have the same, else all of them."""
    if name not in names:
        return None
    column = batch.column(name)
    if column.null_count == len(column):
        return None
    distinct = pc.unique(column)
    if len(distinct) == 1:
        one: str = distinct[0].as_py()
        return one
    values: list[str | None] = column.to_pylist()
    return values


def _unpack(content: Content, recipes: Sequence[_Recipe]) -> None:
    size = 0
    for row, (body, recipe) in enumerate(zip(content.bodies, recipes, strict=True)):
        if recipe.plain or body is None:
            continue
        try:
            if recipe.unknown is not None:
                raise Unreadable(recipe.unknown)
            for inflate in recipe.inflaters:
                body = inflate(body)
            content.bodies[row] = body
            size += len(body)
        except Unreadable as error:
            content.bodies[row] = None
            content.reasons[row] = str(error)
        if size > BATCH_INFLATED:
            del content.bodies[row + 1 :]
            return


class _Recipe:
    """The steps that decode bodies of one content_encoding and content_type."""

    __slots__ = ("charset", "inflaters", "plain", "unknown")

    def __init__(self, encoding: str | None, content_type: str | None, options: PayloadOptions) -> None:
        self.inflaters: list[Callable[[bytes], bytes]] = []
        self.unknown: str | None = None
        charset = _charset_of(content_type)
        for word in reversed((encoding or "").split(",")):
            word = word.strip().lower()
            if word in _UNCHANGED:
                continue
            if word in _INFLATERS:
                if options.compression == "auto":
                    self.inflaters.append(_INFLATERS[word])
            elif is_charset(word):
                charset = charset or word
            elif options.compression == "auto":
                self.unknown = (
                    f"content_encoding '{word}' is not known (known: gzip, deflate, zstd, identity and charsets)"
                )
        if options.compression in _INFLATERS:
            self.inflaters.append(_INFLATERS[options.compression])
        self.charset = options.charset or charset or UTF8
        if options.format == "avro":
            self.charset = UTF8  # unused
        elif not is_charset(self.charset):
            self.unknown = f"charset '{self.charset}' of the content_type is not known"
        elif codecs.lookup(self.charset).name == "ascii":
            self.charset = UTF8  # of which it is a part
        else:
            self.charset = codecs.lookup(self.charset).name
        self.plain = not self.inflaters and self.unknown is None


def _charset_of(content_type: str | None) -> str | None:
    for parameter in (content_type or "").split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip('"').lower() or None
    return None


def is_charset(name: str) -> bool:
    """Whether Python knows a text encoding of that name."""
    try:
        "".encode(name)  # LookupError for codecs that are no text encodings too
    except (LookupError, ValueError):  # ValueError: a null character in it
        return False
    return True


def _too_large() -> Unreadable:
    return Unreadable(f"inflates to more than {MAX_INFLATED} bytes")


def _gzip(body: bytes) -> bytes:
    """All members of a gzip file."""
    pieces, size = [], 0
    while body:
        piece, body = _zlib(body, zlib.MAX_WBITS | 16, "gzip", MAX_INFLATED - size)
        pieces.append(piece)
        size += len(piece)
    if not pieces:
        raise Unreadable("not gzip: empty")
    return b"".join(pieces)


def _deflate(body: bytes) -> bytes:
    """zlib's format, as HTTP's "deflate" is defined, or the bare one that some senders mean."""
    try:
        piece, rest = _zlib(body, zlib.MAX_WBITS, "deflate", MAX_INFLATED)
    except Unreadable as first:
        try:
            piece, rest = _zlib(body, -zlib.MAX_WBITS, "deflate", MAX_INFLATED)
        except Unreadable:
            raise first from None
    if rest:
        raise Unreadable(f"not deflate: {len(rest)} bytes after its end")
    return piece


def _zlib(body: bytes, bits: int, name: str, most: int) -> tuple[bytes, bytes]:
    inflater = zlib.decompressobj(bits)
    try:
        piece = inflater.decompress(body, most + 1)
    except zlib.error as error:
        raise Unreadable(f"not {name}: {error}") from None
    if len(piece) > most:
        raise _too_large()
    if not inflater.eof:
        raise Unreadable(f"not {name}: it ends too early")
    return piece, inflater.unused_data


def _zstd(body: bytes) -> bytes:
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), "zstd") as stream:
            piece: bytes = stream.read(MAX_INFLATED + 1)
    except (OSError, pa.ArrowException) as error:
        raise Unreadable(f"not zstd: {error}") from None
    if len(piece) > MAX_INFLATED:
        raise _too_large()
    return piece


_INFLATERS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "zstd": _zstd,
}
