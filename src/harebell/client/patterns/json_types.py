"""JSON for values of a type: which library reads them, chosen when the codec is made, and what is written for a value.

msgspec reads dataclasses, TypedDict, NamedTuple, enumerations, UUID, Decimal, dates and its own Structs; what it does
not know, such as pydantic's models, pydantic reads. A type that neither installed library reads is refused at once, and
not message by message. This is the one place of both libraries in the client.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from harebell import errors

__all__ = ["Reader", "reader_of", "written"]

Reader = Callable[[bytes], Any]
"""The value in a body. UndecodableBody when it is none of the type."""

INSTALL: Final = "pip install 'harebell[json]'"


def reader_of(wanted: Any) -> Reader:
    """What reads values of this type. InvalidArgument for one that cannot be read, MissingDependency."""
    refusals: list[str] = []
    missing: list[str] = []
    for library, make in (("msgspec", _msgspec), ("pydantic", _pydantic)):
        try:
            return make(wanted)
        except ImportError:
            missing.append(library)
        except NameError as error:
            raise errors.InvalidArgument(
                f"{name_of(wanted)} has types that are not found ({error}): define them at module level"
            ) from error
        except (TypeError, ValueError) as error:
            refusals.append(f"{library}: {error}")
    if not refusals:
        raise errors.MissingDependency(f"JSON({name_of(wanted)}) needs the package msgspec, or pydantic: {INSTALL}")
    more = f"; {' and '.join(missing)} may: pip install {' '.join(missing)}" if missing else ""
    raise errors.InvalidArgument(f"JSON({name_of(wanted)}): no library reads that type ({'; '.join(refusals)}){more}")


def _msgspec(wanted: Any) -> Reader:
    import msgspec
    from msgspec import inspect as info

    unknown = next(_unknown(info, info.type_info(wanted), set()), None)
    if unknown is not None:
        raise TypeError(f"{name_of(unknown)} is not known to it")
    decode = msgspec.json.Decoder(wanted).decode

    def read(body: bytes) -> object:
        try:
            return decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise errors.UndecodableBody(f"the body is no {name_of(wanted)}: {error}") from error

    return read


def _unknown(info: Any, node: Any, seen: set[int]) -> Iterator[Any]:
    """The types in this one that msgspec takes and cannot make."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, info.CustomType):
        yield node.cls
    for field in getattr(node, "__struct_fields__", ()):
        value = getattr(node, field)
        for child in value if isinstance(value, tuple) else (value,):
            if isinstance(child, info.Type | info.Field):
                yield from _unknown(info, child, seen)


def _pydantic(wanted: Any) -> Reader:
    import pydantic

    try:
        adapter: Any = pydantic.TypeAdapter(wanted)
        if not getattr(adapter, "pydantic_complete", True):
            adapter.rebuild(raise_errors=True)
    except pydantic.errors.PydanticUndefinedAnnotation as error:
        raise NameError(str(error)) from error
    except pydantic.errors.PydanticUserError as error:
        raise TypeError(str(error).partition("\n")[0]) from error

    def read(body: bytes) -> object:
        try:
            return adapter.validate_json(body)
        except (pydantic.ValidationError, RecursionError) as error:
            raise errors.UndecodableBody(f"the body is no {name_of(wanted)}: {_in_one_line(error)}") from error

    return read


def _in_one_line(error: Any) -> str:
    details = error.errors(include_url=False) if hasattr(error, "errors") else []
    return "; ".join(f"{'.'.join(map(str, one['loc'])) or 'it'}: {one['msg']}" for one in details) or str(error)


def written(value: object) -> str:
    """The value as JSON. TypeError or ValueError for one that JSON cannot hold."""
    if isinstance(value, bytes | bytearray | memoryview):
        raise TypeError("it is bytes: publish them without a codec, or as a Message")
    try:
        return _dumped(value)
    except TypeError as error:
        if not isinstance(value, dict | list | tuple):
            raise
        try:
            return _dumped(_plain(value))  # keys of another type than text
        except TypeError:
            raise error from None


def _dumped(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)


def _plain(value: object) -> object:
    """What json.dumps is to write for a value that it does not know."""
    if hasattr(value, "model_dump"):
        return _of_model(value)
    try:
        import msgspec
    except ImportError:
        try:
            import pydantic_core
        except ImportError:
            raise TypeError(
                f"{type(value).__name__} is no type of JSON's; {INSTALL} for dataclasses, dates and the like"
            ) from None
        return pydantic_core.to_jsonable_python(value)
    return msgspec.to_builtins(value, str_keys=True, enc_hook=_of_model)


def _of_model(value: Any) -> object:
    """A model of pydantic's as plain values."""
    if not hasattr(value, "model_dump"):
        raise TypeError(f"{type(value).__name__} is no type of JSON's")
    return value.model_dump(mode="json")


def name_of(wanted: Any) -> str:
    """The type as a text names it."""
    return getattr(wanted, "__name__", None) or str(wanted)
