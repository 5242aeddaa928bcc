"""Typed bodies: a codec turns a value into a body and back. `JSON` is built in; anything with its two methods will do.

    orders = harebell.JSON(Order)                      # a dataclass; JSON() takes and gives plain JSON values
    async with connection.producer(codec=orders) as producer: ...
    async with connection.consume("orders", handle, codec=orders): ...

A codec does no I/O and knows no queue. What it cannot read it refuses with UndecodableBody, or any other exception: the
caller decides what becomes of the message.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from datetime import datetime
from enum import Enum
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from harebell import errors
from harebell.client.messages import Delivery, Message

__all__ = ["JSON", "Codec", "message_of"]

T = TypeVar("T")

CONTENT_TYPE: Final = "application/json"
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
    body, content_type = codec.encode(value)
    return Message(body, content_type=content_type)


class JSON(Generic[T]):
    """Bodies in JSON, as UTF-8.

    type  of the values: a dataclass, list[Order], dict[str, int], ...; left out, what the json module makes of them.
          Dataclasses may hold dataclasses, lists, tuples, dictionaries, enumerations, datetimes and unions; a field
          that is missing takes its default, and one that is not known is an error

    Raises InvalidArgument for a value that JSON cannot hold, UndecodableBody for a body that is no such value.
    """

    @typing.overload
    def __init__(self: JSON[object]) -> None: ...
    @typing.overload
    def __init__(self, type: type[T]) -> None: ...
    def __init__(self, type: object = object) -> None:
        if dataclasses.is_dataclass(type):
            try:
                _hints(cast(Any, type))
            except NameError as error:
                raise errors.InvalidArgument(
                    f"the fields of {_name(type)} have types that are not found ({error}): define them at module level"
                ) from error
        self._type = type

    def encode(self, value: T, /) -> tuple[bytes, str]:
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
        except (TypeError, ValueError, RecursionError) as error:
            raise errors.InvalidArgument(f"{_shown(value)} cannot be written as JSON: {error}") from error
        return text.encode(), CONTENT_TYPE

    def decode(self, delivery: Delivery, /) -> T:
        said = delivery.properties.content_type
        if said is not None and not _is_json(said):
            raise errors.UndecodableBody(f"the body is {said!r}, and {CONTENT_TYPE} was expected")
        try:
            plain = json.loads(delivery.body)
        except (ValueError, RecursionError) as error:
            raise errors.UndecodableBody(f"the body is no JSON: {error}") from error
        return cast(T, _typed(plain, self._type, "the body"))


def _is_json(content_type: str) -> bool:
    media = content_type.partition(";")[0].strip().lower()
    return media in (CONTENT_TYPE, "text/json") or media.endswith("+json")


def _plain(value: object) -> object:
    """What json.dumps writes for a value that it does not know."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is no type of JSON's")


def _typed(plain: object, wanted: Any, where: str) -> object:
    """The plain JSON value as the wanted type. UndecodableBody names the place that does not fit."""
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if wanted is object or wanted is Any:
        return plain
    if origin in (typing.Union, types.UnionType):
        return _one_of(plain, arguments, where)
    if origin is typing.Literal:
        return plain if plain in arguments else _misfit(plain, wanted, where)
    if dataclasses.is_dataclass(wanted):
        return _dataclass(plain, cast("type[object]", wanted), where)
    kind = origin or wanted
    if kind in (list, tuple, set, frozenset) and isinstance(plain, list):
        if kind is tuple and arguments and arguments[-1] is not ...:
            if len(arguments) != len(plain):
                return _misfit(plain, wanted, where)
            pairs = zip(plain, arguments, strict=True)
            return tuple(_typed(item, of, f"{where}[{n}]") for n, (item, of) in enumerate(pairs))
        of = arguments[0] if arguments else object
        return kind(_typed(item, of, f"{where}[{n}]") for n, item in enumerate(plain))
    if kind is dict and isinstance(plain, dict):
        of = arguments[1] if arguments else object
        return {key: _typed(item, of, f"{where}[{key!r}]") for key, item in plain.items()}
    if kind is float and isinstance(plain, int) and not isinstance(plain, bool):
        return float(plain)
    if kind is datetime or (isinstance(kind, type) and issubclass(kind, Enum)):
        try:
            return datetime.fromisoformat(cast(str, plain)) if kind is datetime else cast(Any, kind)(plain)
        except (TypeError, ValueError):
            return _misfit(plain, wanted, where)
    if wanted is None or wanted is type(None):
        return None if plain is None else _misfit(plain, wanted, where)
    if isinstance(kind, type) and isinstance(plain, kind) and not (kind is int and isinstance(plain, bool)):
        return plain
    return _misfit(plain, wanted, where)


def _one_of(plain: object, choices: tuple[Any, ...], where: str) -> object:
    for choice in choices:
        try:
            return _typed(plain, choice, where)
        except errors.UndecodableBody:
            continue
    return _misfit(plain, " | ".join(_name(choice) for choice in choices), where)


def _dataclass(plain: object, wanted: type[object], where: str) -> object:
    if not isinstance(plain, dict):
        return _misfit(plain, wanted, where)
    hints = _hints(cast(Any, wanted))
    fields = {field.name: field for field in dataclasses.fields(cast(Any, wanted)) if field.init}
    unknown = [name for name in plain if name not in fields]
    if unknown:
        raise errors.UndecodableBody(f"{where} has {unknown[0]!r}, which {wanted.__name__} has not")
    values = {name: _typed(plain[name], hints[name], f"{where}.{name}") for name in fields if name in plain}
    try:
        return wanted(**values)
    except (TypeError, ValueError) as error:  # a field without a default is missing, or its own checks refuse
        raise errors.UndecodableBody(f"{where} makes no {wanted.__name__}: {error}") from error


@functools.lru_cache(maxsize=256)
def _hints(wanted: Any) -> dict[str, Any]:
    return typing.get_type_hints(wanted)


def _misfit(plain: object, wanted: Any, where: str) -> object:
    raise errors.UndecodableBody(f"{where} is {_shown(plain)}, and {_name(wanted)} was expected")


def _name(wanted: Any) -> str:
    return wanted if isinstance(wanted, str) else getattr(wanted, "__name__", None) or str(wanted)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."
