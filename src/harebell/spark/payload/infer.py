"""Infers the type that fits a sample of JSON payloads: bodies, or a DataFrame's column.

Rules: a type that fits every message of the sample, or an error that names the field that has none; nothing is guessed.
Whole numbers are bigint, others double, texts string (a date is a string unless the schema says otherwise). A field
that was always null is a string, a table that was always empty a map<string,string>: both take what was seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
)

from harebell.errors import InvalidArgument

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["ddl", "type_of_bodies", "type_of_column"]

_LARGEST: Final = 1 << 63  # of a bigint


def type_of_bodies(bodies: Iterable[bytes | None], where: str) -> StructType:
    """The type that fits all JSON objects among these bodies. Raises InvalidArgument when there are none."""
    found: list[StructType] = []
    for body in bodies:
        try:
            value = msgspec.json.decode(body or b"")
            kind = _type_of(value, "payload")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if isinstance(kind, StructType):
            found = [_struct(found[0], kind, "payload")] if found else [kind]
    if not found:
        raise InvalidArgument(f"there is no JSON object in the sample of {where}: give option 'payloadSchema'")
    return _settled_struct(found[0])


def ddl(kind: StructType) -> str:
    """A struct's fields as Spark's DDL, names quoted where they have to be."""
    return ", ".join(f"{_quoted(field.name)} {_ddl(field.dataType)}" for field in kind.fields)


def _ddl(kind: DataType) -> str:
    if isinstance(kind, StructType):
        return f"struct<{', '.join(f'{_quoted(field.name)}: {_ddl(field.dataType)}' for field in kind.fields)}>"
    if isinstance(kind, ArrayType):
        return f"array<{_ddl(kind.elementType)}>"
    return kind.simpleString()


def _quoted(name: str) -> str:
    # Plain names are quoted too when they are not letters only: cheaper than knowing all of Spark's keywords.
    return name if re.fullmatch(r"[a-z_][a-z0-9_]*", name) else f"`{name.replace('`', '``')}`"


def _type_of(value: Any, where: str) -> DataType:
    if isinstance(value, dict):
        return StructType([StructField(name, _type_of(inner, f"{where}.{name}")) for name, inner in value.items()])
    if isinstance(value, list):
        element: DataType = NullType()
        for inner in value:
            element = _merged(element, _type_of(inner, f"{where}[]"), f"{where}[]")
        return ArrayType(element)
    if value is None:
        return NullType()
    if isinstance(value, bool):
        return BooleanType()
    if isinstance(value, int):
        return LongType() if -_LARGEST <= value < _LARGEST else DoubleType()
    return DoubleType() if isinstance(value, float) else StringType()


def _merged(one: DataType, other: DataType, where: str) -> DataType:
    if one == other or isinstance(other, NullType):
        return one
    if isinstance(one, NullType):
        return other
    if isinstance(one, LongType | DoubleType) and isinstance(other, LongType | DoubleType):
        return DoubleType()
    if isinstance(one, StructType) and isinstance(other, StructType):
        return _struct(one, other, where)
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        return ArrayType(_merged(one.elementType, other.elementType, f"{where}[]"))
    raise _conflict(where, f"{one.simpleString()} and {other.simpleString()}")


def _conflict(where: str, kinds: str) -> InvalidArgument:
    return InvalidArgument(
        f"'{where}' is {kinds} in the sample, which no type covers: give option 'payloadSchema' without it"
    )


def _struct(one: StructType, other: StructType, where: str) -> StructType:
    fields = {field.name: field.dataType for field in one.fields}
    for field in other.fields:
        before = fields.get(field.name, NullType())
        fields[field.name] = _merged(before, field.dataType, f"{where}.{field.name}")
    return StructType([StructField(name, kind) for name, kind in fields.items()])


def _settled_struct(kind: StructType) -> StructType:
    return StructType([StructField(field.name, _settled(field.dataType)) for field in kind.fields])


def _settled(kind: DataType) -> DataType:
    if isinstance(kind, NullType):
        return StringType()
    if isinstance(kind, ArrayType):
        return ArrayType(_settled(kind.elementType))
    if isinstance(kind, StructType):
        return _settled_struct(kind) if kind.fields else MapType(StringType(), StringType())
    return kind


def type_of_column(frame: DataFrame, column: str) -> StructType:
    """The type that fits all JSON objects in a column (binary or string), found by Spark. Raises InvalidArgument."""
    from pyspark.sql import functions as f

    variants = f.schema_of_variant_agg(f.try_parse_json(f.col(column).cast("string")))
    row = frame.select(variants.alias("kind")).first()
    kind = variant_type(row["kind"] if row is not None and row["kind"] is not None else "VOID")
    if not isinstance(kind, StructType):
        raise InvalidArgument(
            f"column '{column}' holds {kind.simpleString()} where JSON objects are wanted: give option 'payloadSchema'"
        )
    return _settled_struct(kind)


_TOKEN: Final = re.compile(r"\s*(`(?:[^`]|``)*`|[\w$-]+|[<>(),:])")
_VARIANT_SCALARS: Final[dict[str, DataType]] = {
    "VOID": NullType(),
    "BOOLEAN": BooleanType(),
    "BIGINT": LongType(),
    "DOUBLE": DoubleType(),
    "FLOAT": DoubleType(),
    "STRING": StringType(),
}


def variant_type(text: str) -> DataType:
    """The type that schema_of_variant_agg describes: OBJECT<...>, ARRAY<...> or a scalar."""
    tokens = _TOKEN.findall(text)
    if "".join("".join(tokens).split()) != "".join(text.split()):
        raise InvalidArgument(f"Spark described the sample as {text!r}, in a form that is not known here")
    kind = _variant(tokens, "payload")
    if tokens:
        raise InvalidArgument(f"Spark described the sample as {text!r}, which ends too late")
    return kind


def _variant(tokens: list[str], where: str) -> DataType:
    word = tokens.pop(0) if tokens else ""
    if word == "OBJECT":
        fields = []
        _expect(tokens, "<")
        while tokens and tokens[0] != ">":
            name = tokens.pop(0)
            if name.startswith("`"):
                name = name[1:-1].replace("``", "`")
            _expect(tokens, ":")
            fields.append(StructField(name, _variant(tokens, f"{where}.{name}")))
            if tokens and tokens[0] == ",":
                tokens.pop(0)
        _expect(tokens, ">")
        return StructType(fields)
    if word == "ARRAY":
        _expect(tokens, "<")
        element = _variant(tokens, f"{where}[]")
        _expect(tokens, ">")
        return ArrayType(element)
    if word == "DECIMAL":  # as wide as the sample's numbers; the next one may be wider
        if tokens and tokens[0] == "(":
            del tokens[:5]  # ( precision , scale )
        return DoubleType()
    if word == "VARIANT":
        raise _conflict(where, "of several types")
    found = _VARIANT_SCALARS.get(word)
    if found is None:
        raise InvalidArgument(f"'{where}' is {word or 'nothing'} in the sample, which payload=json has no type for")
    return found


def _expect(tokens: list[str], token: str) -> None:
    if not tokens or tokens.pop(0) != token:
        raise InvalidArgument(f"Spark described the sample in a form that is not known here: {token!r} is missing")
