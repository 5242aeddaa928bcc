"""Typed bodies: a codec turns a value into a body and back. `JSON` is built in; anything with its two methods will do.

    orders = harebell.JSON(Order)                      # a type; JSON() takes and gives plain JSON values
    async with connection.producer(codec=orders) as producer: ...
    async with connection.consume("orders", handle, codec=orders): ...

A codec does no I/O and knows no queue. What it cannot read it refuses with UndecodableBody, or any other exception: the
caller decides what becomes of the message.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Callable
from types import UnionType
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from harebell import errors
from harebell.client.callbacks import check_methods
from harebell.client.messages import Delivery, Message
from harebell.client.patterns.json_types import reader_of, written

__all__ = ["JSON", "Codec", "check_codec", "message_of"]

T = TypeVar("T")

CONTENT_TYPE: Final = "application/json"
CODECS: Final = "give JSON(), JSON(Order), or an object with encode(value) and decode(delivery)"
SHOWN: Final = 60  # characters of a value in an error text


class Codec(Protocol[T]):
    """Values to bodies and back."""

    def encode(self, value: T, /) -> tuple[bytes, str]:
        """(body, content type)"""
        ...

    def decode(self, delivery: Delivery, /) -> T:
        """The value in the body. UndecodableBody when there is none."""
        ...


def message_of(value: object, codec: Codec[Any] | None) -> Message | bytes:
    """What to publish for a value: a Message is taken as it is; without a codec, so are bytes."""
    if codec is None or isinstance(value, Message):
        return cast("Message | bytes", value)  # anything else is refused when it is encoded
    encoded: object = codec.encode(value)
    if not isinstance(encoded, tuple) or len(encoded) != 2:
        raise errors.InvalidArgument(f"the codec's encode gave {_shown(encoded)}: (body, content type) is needed")
    return Message(encoded[0], content_type=encoded[1])


def check_codec(codec: object) -> None:
    """InvalidArgument for what is no codec: each body would count as one that it cannot read, and cost its message."""
    if codec is not None:
        check_methods("codec", codec, {"encode": "value", "decode": "delivery"}, CODECS)


class JSON(Generic[T]):
    """Bodies in JSON, as UTF-8.

    type  of the values: a dataclass, TypedDict, NamedTuple, list[Order], dict[str, int], UUID, a union, a Struct of
          msgspec, a model of pydantic, ...; left out, what the json module makes of them. msgspec reads the type, or
          pydantic what msgspec does not know (`pip install 'harebell[json]'`), by their rules for defaults and for
          fields that are not known

    Raises, when it is made, InvalidArgument for a type that neither library reads, and MissingDependency without both;
    later InvalidArgument for a value that JSON cannot hold, UndecodableBody for a body that is no such value.
    """

    @typing.overload
    def __init__(self: JSON[object]) -> None: ...
    @typing.overload
    def __init__(self, type: type[T] | UnionType) -> None: ...  # for type checkers, a union is no class
    @typing.overload
    def __init__(
        self: JSON[Any], type: UnionType
    ) -> None: ...  # of which type checkers tell nothing: `JSON[A | B](A | B)`
    def __init__(self, type: object = object) -> None:
        self._read: Callable[[bytes], Any] = _plain if type is object or type is Any else reader_of(type)

    def encode(self, value: T, /) -> tuple[bytes, str]:
        try:
            body = written(value).encode()
        except (TypeError, ValueError, RecursionError, NotImplementedError) as error:
            raise errors.InvalidArgument(f"{_shown(value)} cannot be written as JSON: {error}") from error
        return body, CONTENT_TYPE

    def decode(self, delivery: Delivery, /) -> T:
        said = delivery.properties.content_type
        if said is not None and not _is_json(said):
            raise errors.UndecodableBody(f"the body is {said!r}, and {CONTENT_TYPE} was expected")
        return cast(T, self._read(delivery.body))


def _plain(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise errors.UndecodableBody(f"the body is no JSON: {error}") from error


def _is_json(content_type: str) -> bool:
    media = content_type.partition(";")[0].strip().lower()
    return media in (CONTENT_TYPE, "text/json") or media.endswith("+json")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."
