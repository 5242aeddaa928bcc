"""Spark's types on both ends of a decoder: as msgspec types that check JSON, and Python objects into Arrow columns.

Rules: a type that cannot be filled is refused when the job is planned, not when its first row comes. Structs are read
with a getter, attributes of msgspec structs for JSON, keys of dicts for Avro, so one builder serves both.

JSON is taken strictly by its type: numbers are not text, text is not a number, 1.5 is no whole number, a whole number
has to fit. A timestamp is RFC 3339 text with a zone, a timestamp_ntz without, a date is 2026-01-05, binary is base64,
a decimal is a number or its text. null and a missing field are the same.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from harebell.errors import InvalidArgument

__all__ = ["Getter", "array", "attribute", "fitting", "key", "msgspec_type"]

# The value of field number `n`, called `name`, of a record.
Getter = Callable[[int, str], Callable[[Any], Any]]

_FLOAT_MAX: Final = 3.4028234663852886e38


def _whole(bits: int) -> Any:
    return Annotated[int, msgspec.Meta(ge=-(1 << bits - 1), le=(1 << bits - 1) - 1)]


_SCALARS: Final[dict[type[DataType], Any]] = {
    StringType: str,
    BooleanType: bool,
    ByteType: _whole(8),
    ShortType: _whole(16),
    IntegerType: _whole(32),
    LongType: _whole(64),
    FloatType: Annotated[float, msgspec.Meta(ge=-_FLOAT_MAX, le=_FLOAT_MAX)],
    DoubleType: float,
    DecimalType: decimal.Decimal,
    TimestampType: Annotated[datetime.datetime, msgspec.Meta(tz=True)],
    TimestampNTZType: Annotated[datetime.datetime, msgspec.Meta(tz=False)],
    DateType: datetime.date,
    BinaryType: bytes,
}


def msgspec_type(kind: DataType, strict: bool, where: str = "payload") -> Any:
    """The msgspec type that decodes JSON into what `array` takes. `strict` refuses fields that the type has not.

    Raises InvalidArgument for a type that JSON cannot fill, naming the field.
    """
    if isinstance(kind, StructType):
        fields, names = [], {}
        for number, field in enumerate(kind.fields):
            if not field.nullable:
                raise InvalidArgument(
                    f"field '{where}.{field.name}' is NOT NULL, which a payload cannot promise; leave it out and "
                    "filter on it"
                )
            inner = msgspec_type(field.dataType, strict, f"{where}.{field.name}")
            # Names of our own: a field of JSON need not be a name that Python knows.
            fields.append((f"f{number}", inner | None, None))
            names[f"f{number}"] = field.name
        if len(set(names.values())) < len(fields):
            raise InvalidArgument(f"two fields of '{where}' have the same name: {', '.join(names.values())}")
        # gc=False: they live for one batch and hold no cycles, so the collector need not walk them.
        return msgspec.defstruct("Record", fields, rename=names, forbid_unknown_fields=strict, gc=False)
    if isinstance(kind, ArrayType):
        return list[msgspec_type(kind.elementType, strict, f"{where}[]") | None]  # type: ignore[misc]
    if isinstance(kind, MapType):
        if not isinstance(kind.keyType, StringType):
            raise InvalidArgument(f"'{where}' is {kind.simpleString()}; the names of a JSON object are strings")
        return dict[str, msgspec_type(kind.valueType, strict, f"{where}{{}}") | None]  # type: ignore[misc]
    found = _SCALARS.get(type(kind))
    if found is None:
        raise InvalidArgument(
            f"'{where}' is {kind.simpleString()}, which payload=json cannot fill; leave it out and take it from the "
            "column body in Spark"
        )
    return found


def attribute(number: int, name: str) -> Callable[[Any], Any]:
    """The getter of msgspec_type's records."""
    return attrgetter(f"f{number}")


def key(number: int, name: str) -> Callable[[Any], Any]:
    """The getter of dicts, None where a key is missing."""
    return lambda record: record.get(name)


def array(values: Sequence[Any], kind: pa.DataType, getter: Getter) -> pa.Array:
    """An Arrow column of that type. Raises one of _MISFITS for what does not fit."""
    if pa.types.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        missing = None in values  # records are compared by identity first; None is the only one that matters
        if missing:
            mask = pa.array([value is None for value in values], pa.bool_())
        columns = []
        for number, field in enumerate(fields):
            get = getter(number, field.name)
            inner = [None if value is None else get(value) for value in values] if missing else list(map(get, values))
            columns.append(array(inner, field.type, getter))
        if not fields:
            return pa.array([None if value is None else {} for value in values], kind)
        return pa.StructArray.from_arrays(columns, fields=fields, mask=mask if missing else None)
    if pa.types.is_list(kind):
        if not _has_records(kind.value_type):
            return pa.array(values, kind)
        offsets, flat = _flattened(values)
        return pa.ListArray.from_arrays(offsets, array(flat, kind.value_type, getter), type=kind)
    if pa.types.is_map(kind):
        offsets, pairs = _flattened([None if value is None else list(value.items()) for value in values])
        return pa.MapArray.from_arrays(
            offsets,
            array([name for name, _ in pairs], kind.key_type, getter),
            array([value for _, value in pairs], kind.item_type, getter),
            type=kind,
        )
    return pa.array(values, kind)


def _has_records(kind: pa.DataType) -> bool:
    """Whether pa.array alone would meet a record or a dict in it."""
    if pa.types.is_list(kind):
        return _has_records(kind.value_type)
    return bool(pa.types.is_struct(kind) or pa.types.is_map(kind))


def _flattened(values: Sequence[Sequence[Any] | None]) -> tuple[pa.Array, list[Any]]:
    """The elements of all lists, and where each begins; a null where there is no list."""
    flat: list[Any] = []
    offsets: list[int | None] = []
    for value in values:
        if value is None:
            offsets.append(None)
        else:
            offsets.append(len(flat))
            flat += value
    offsets.append(len(flat))
    return pa.array(offsets, pa.int32()), flat


def fitting(values: list[Any], kind: pa.DataType, getter: Getter, reasons: dict[int, str]) -> pa.Array:
    """As `array`, with null in place of each value that does not fit, and the reason under its row number."""
    try:
        return array(values, kind, getter)
    except _MISFITS:
        pass
    for row, value in enumerate(values):
        try:
            array([value], kind, getter)
        except _MISFITS as error:
            values[row] = None
            reasons[row] = f"does not fit: {error}"
    return array(values, kind, getter)


# What Arrow raises for a decimal with too many digits, a date before its time, text with lone surrogates, and so on.
_MISFITS: Final = (pa.ArrowException, ArithmeticError, ValueError, TypeError)
