"""Avro bodies as a struct column, and back: one record a body as `schemaless` writers make it, with no file's header.

Rules: the schema is the writer's too, unless bodies say which one of a registry they were written with: then that one
is resolved against it, field by field, as Avro has it. A logical type that Spark has no type for (uuid, time-*,
duration, ...-nanos) is read as the type under it. A union is a nullable type, or int with long, or float with double;
others, and records inside themselves, have no column type and are refused. So is what takes no bytes (an array of it
could be endless).
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from harebell.errors import InvalidArgument, MissingDependency
from harebell.spark.payload.columns import fitting, key
from harebell.spark.payload.content import Content
from harebell.spark.payload.registry import SchemaRegistry, unframed

__all__ = ["AvroDecoder", "AvroEncoder", "avro_type"]

_PRIMITIVES: Final[dict[str, DataType]] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
}
_LOGICAL: Final[dict[tuple[str, str], DataType]] = {
    ("int", "date"): DateType(),
    ("long", "timestamp-millis"): TimestampType(),
    ("long", "timestamp-micros"): TimestampType(),
    ("long", "local-timestamp-millis"): TimestampNTZType(),
    ("long", "local-timestamp-micros"): TimestampNTZType(),
}
_MAX_PRECISION: Final = 38  # of Spark's decimals


class AvroDecoder:
    """Decodes the bodies of batches into records of one schema. Raises what `avro_type` does.

    With a registry, each body begins with the id of the schema that it was written with.
    """

    def __init__(self, schema: str, arrow: pa.DataType, registry: SchemaRegistry | None = None) -> None:
        self._schema = _parsed(schema)
        self._arrow = arrow
        self._registry = registry
        self._writers: dict[int, Any] = {}

    def __call__(self, content: Content) -> pa.Array:
        """The column, null where a body is not one record of the schema; the reasons are added to the content's.

        Raises what the registry raises when it cannot be asked.
        """
        if self._registry is not None:
            return self._resolved(content, self._registry)
        from fastavro import schemaless_reader

        records: list[Any] = []
        for row, body in enumerate(content.bodies):
            record = None
            if body is not None:
                stream = io.BytesIO(body)
                try:
                    record = schemaless_reader(stream, self._schema, None)
                except Exception as error:  # fastavro lets through whatever hostile bytes make Python raise
                    content.reasons[row] = f"not Avro of the schema: {type(error).__name__}: {error}".rstrip(": ")
                else:
                    if stream.tell() != len(body):
                        record = None
                        content.reasons[row] = (
                            f"not Avro of the schema: {len(body) - stream.tell()} bytes after the record"
                        )
            records.append(record)
        return fitting(records, self._arrow, key, content.reasons)

    def _resolved(self, content: Content, registry: SchemaRegistry) -> pa.Array:
        from fastavro import schemaless_reader

        records: list[Any] = []
        unknown: dict[int, str] = {}  # of this batch: a schema may be registered later
        for row, body in enumerate(content.bodies):
            record = None
            if body is not None:
                stream = io.BytesIO(body)
                try:
                    schema_id, begin = unframed(body)
                except ValueError as error:
                    content.reasons[row] = f"not Avro with a schema's id: {error}"
                    records.append(None)
                    continue
                writer = self._writer(schema_id, registry, unknown)
                if writer is None:
                    content.reasons[row] = unknown[schema_id]
                    records.append(None)
                    continue
                stream.seek(begin)
                try:
                    record = schemaless_reader(stream, writer, self._schema)
                except Exception as error:  # as above; a schema that cannot be resolved, too
                    content.reasons[row] = f"not Avro of schema {schema_id}: {type(error).__name__}: {error}".rstrip(
                        ": "
                    )
                else:
                    if stream.tell() != len(body):
                        record = None
                        content.reasons[row] = (
                            f"not Avro of schema {schema_id}: {len(body) - stream.tell()} bytes after the record"
                        )
            records.append(record)
        return fitting(records, self._arrow, key, content.reasons)

    def _writer(self, schema_id: int, registry: SchemaRegistry, unknown: dict[int, str]) -> Any:
        """The parsed schema with that id; None when there is none, with the reason in `unknown`."""
        found = self._writers.get(schema_id)
        if found is None and schema_id not in unknown:
            try:
                found = self._writers[schema_id] = _writers_schema(registry.schema_by_id(schema_id))
            except LookupError as error:
                said = str(error.args[0]) if error.args else ""  # a KeyError's text is quoted
                unknown[schema_id] = f"schema {schema_id} is not in the registry: {said}".rstrip(": ")
            except (InvalidArgument, UnicodeDecodeError) as error:
                unknown[schema_id] = f"schema {schema_id} of the registry cannot be used: {error}"
        return found


class AvroEncoder:
    """Encodes columns of the type of one schema; each body begins with `prefix`. Raises what `avro_type` does."""

    def __init__(self, schema: str, prefix: bytes = b"") -> None:
        self._schema = _parsed(schema)
        self._prefix = prefix

    def __call__(self, column: pa.Array) -> pa.Array:
        """The bodies, a binary column. Raises InvalidArgument for a row that is no record of the schema."""
        from fastavro import schemaless_writer

        bodies = []
        maps = "map<" in str(column.type)
        for row in column.to_pylist():
            if row is None:
                raise InvalidArgument("column 'payload' is null in a row; a body is a record")
            stream = io.BytesIO()
            stream.write(self._prefix)
            try:
                schemaless_writer(stream, self._schema, _with_dicts(row, column.type) if maps else row)
            except Exception as error:  # fastavro lets through what a value that does not fit makes Python raise
                said = f"{type(error).__name__}: {error}".rstrip(": ")
                raise InvalidArgument(f"column 'payload' is no record of 'payloadSchema' in a row: {said}") from error
            bodies.append(stream.getvalue())
        return pa.array(bodies, pa.binary())


def _with_dicts(value: Any, kind: pa.DataType) -> Any:
    """The value with a dict for each map, which Arrow gives as a list of pairs."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {name: _with_dicts(inner, kind.field(name).type) for name, inner in value.items()}
    if pa.types.is_list(kind):
        return [_with_dicts(inner, kind.value_type) for inner in value]
    if pa.types.is_map(kind):
        return {name: _with_dicts(inner, kind.item_type) for name, inner in value}
    return value


def _writers_schema(schema: str) -> Any:
    """The schema parsed. Raises InvalidArgument when it is none, or a few bytes could be an endless array of it."""
    parsed = _parsed(schema, "it")
    _check_sizes(parsed, {})
    return parsed


def _check_sizes(schema: Any, empty: dict[str, bool]) -> bool:
    """Whether a value takes no bytes. Raises InvalidArgument for an array of such values. `empty`: by named type."""
    if isinstance(schema, str):
        return schema == "null" or empty.get(schema, False)
    if isinstance(schema, list):
        for branch in schema:
            _check_sizes(branch, empty)
        return False
    kind = schema["type"]
    if kind == "record":
        empty[schema["name"]] = False
        sizes = [_check_sizes(field["type"], empty) for field in schema["fields"]]
        empty[schema["name"]] = all(sizes)
        return all(sizes)
    if kind == "array":
        if _check_sizes(schema["items"], empty):
            raise InvalidArgument("it has an array of what takes no bytes")
        return False
    if kind == "map":
        _check_sizes(schema["values"], empty)
        return False
    if kind == "fixed":
        empty[schema["name"]] = schema["size"] == 0
        return bool(schema["size"] == 0)
    return _check_sizes(kind, empty)


def schema_text(option: str) -> str:
    """The Avro schema that option payloadSchema gives: its JSON, or the name of a file that holds it."""
    if option.lstrip().startswith(("{", "[", '"')):
        return option
    try:
        return Path(option).read_text("utf-8")
    except OSError as error:
        raise InvalidArgument(
            f"option 'payloadSchema' is {option[:80]!r}, neither an Avro schema in JSON nor a file: {error.strerror}"
        ) from error


def avro_type(schema: str) -> StructType:
    """The struct type of an Avro record schema in JSON.

    Raises InvalidArgument for a schema that is wrong or has no column type, MissingDependency without fastavro.
    """
    parsed = _parsed(schema)
    kind = _Types().of(parsed, "payload")
    if not isinstance(kind, StructType):
        raise InvalidArgument(f"option 'payloadSchema' describes {kind.simpleString()}; payload=avro takes a record")
    return kind


def _parsed(schema: str, called: str = "option 'payloadSchema'") -> Any:
    try:
        import fastavro
        from fastavro.schema import SchemaParseException, UnknownType
    except ImportError as error:
        raise MissingDependency("payload=avro needs fastavro: pip install 'harebell[avro]'") from error
    try:
        return fastavro.parse_schema(_known_logical(json.loads(schema)), {}, _write_hint=False)
    except (ValueError, SchemaParseException, UnknownType, KeyError, TypeError, AttributeError) as error:
        raise InvalidArgument(f"{called} is no Avro schema: {type(error).__name__}: {error}") from error


def _known_logical(schema: Any) -> Any:
    """The schema without the logical types that Spark has no type for."""
    if isinstance(schema, list):
        return [_known_logical(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: _known_logical(value) if name in _NESTING else value for name, value in schema.items()}
    if "logicalType" in kept and kept["logicalType"] != "decimal":
        if not isinstance(kept["type"], str) or (kept["type"], kept["logicalType"]) not in _LOGICAL:
            del kept["logicalType"]
    return kept


_NESTING: Final = frozenset({"type", "fields", "items", "values"})


class _Types:
    """Walks a parsed schema; remembers the named types that it is inside of or has seen."""

    def __init__(self) -> None:
        self._named: dict[str, DataType | None] = {}

    def of(self, schema: Any, where: str) -> DataType:
        if isinstance(schema, list):
            return self._union(schema, where)
        if isinstance(schema, str):
            return self._name(schema, where)
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.of(kind, where)
        if kind == "record":
            return self._record(schema, where)
        if kind == "array":
            return ArrayType(self.of(schema["items"], f"{where}[]"))
        if kind == "map":
            return MapType(StringType(), self.of(schema["values"], f"{where}{{}}"))
        if schema.get("logicalType") == "decimal":
            if schema["precision"] > _MAX_PRECISION:
                raise InvalidArgument(f"'{where}' has {schema['precision']} digits; Spark's decimals have 38 at most")
            return self._remember(schema, DecimalType(schema["precision"], schema.get("scale", 0)))
        if kind == "enum":
            return self._remember(schema, StringType())
        if kind == "fixed":
            if schema["size"] == 0:
                raise InvalidArgument(f"'{where}' is fixed with no bytes, which has no column type")
            return self._remember(schema, BinaryType())
        return _LOGICAL.get((kind, schema.get("logicalType", ""))) or self._name(kind, where)

    def _remember(self, schema: Any, kind: DataType) -> DataType:
        if "name" in schema:
            self._named[schema["name"]] = kind
        return kind

    def _name(self, name: str, where: str) -> DataType:
        if name in self._named:
            found = self._named[name]
            if found is None:
                raise InvalidArgument(f"'{where}' is {name} inside of itself, which has no column type")
            return found
        if name not in _PRIMITIVES:
            raise InvalidArgument(f"'{where}' is {name}, which has no column type")
        return _PRIMITIVES[name]

    def _record(self, schema: Any, where: str) -> DataType:
        self._named[schema["name"]] = None
        fields = [
            StructField(field["name"], self.of(field["type"], f"{where}.{field['name']}")) for field in schema["fields"]
        ]
        if not fields:
            raise InvalidArgument(f"'{where}' is a record without fields, which has no column type")
        kind = StructType(fields)
        self._named[schema["name"]] = kind
        return kind

    def _union(self, schema: list[Any], where: str) -> DataType:
        branches = [branch for branch in schema if branch != "null"]
        if len(branches) == 1:
            return self.of(branches[0], where)
        names = {branch if isinstance(branch, str) else "" for branch in branches}
        if names == {"int", "long"}:
            return LongType()
        if names == {"float", "double"}:
            return DoubleType()
        raise InvalidArgument(f"'{where}' is a union of several types, which has no column type")
