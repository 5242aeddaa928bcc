"""Schema registries for payload=avro: which Avro schema has which id, and a registry that is a folder.

Rules: a registry is named by an option's text, which travels to the executors; each task opens its own there, and asks
it for each id once. Bodies have Confluent's wire format: a byte 0, the id in four bytes (big-endian), the record.
It knows nothing of Avro beyond that a schema is JSON text.
"""

from __future__ import annotations

import importlib
import json
import re
import struct
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from harebell.errors import InvalidArgument

__all__ = ["FolderRegistry", "SchemaRegistry", "framed", "open_registry", "unframed"]

ENTRY_POINTS: Final = "harebell.schema_registries"
MAGIC: Final = 0
MAX_ID: Final = 0xFFFF_FFFF
_PREFIX: Final = struct.Struct(">BI")
_ATTRIBUTE: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


@runtime_checkable
class SchemaRegistry(Protocol):
    """Avro schemas by id. An id always means the same schema.

    A registry is asked from one thread at a time. What it raises other than LookupError fails the task, which Spark
    then tries again: a server that is away, for example.
    """

    def schema_by_id(self, schema_id: int) -> str:
        """The schema with that id (0 to 4294967295), as JSON text. Raises LookupError when there is none."""
        ...

    def id_of(self, schema: str) -> int:
        """The id of that schema, JSON text, however it is spaced. Raises LookupError when it is not registered."""
        ...


class FolderRegistry:
    """The registry that is a folder with a file `<id>.avsc` for each schema, for example `7.avsc`.

    Raises InvalidArgument when there is no such folder. Files may be added while it is used, and are never changed.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        if not self._folder.is_dir():
            raise InvalidArgument(f"the schema registry {str(folder)!r} is no folder on this machine")

    def schema_by_id(self, schema_id: int) -> str:
        try:
            return (self._folder / f"{schema_id}.avsc").read_text("utf-8")
        except FileNotFoundError:
            raise LookupError(f"there is no file {schema_id}.avsc in {self._folder}") from None

    def id_of(self, schema: str) -> int:
        """As the protocol says; the lowest one when several ids have the schema."""
        wanted = json.loads(schema)
        for schema_id in sorted(int(path.stem) for path in self._folder.glob("*.avsc") if path.stem.isdecimal()):
            try:
                found = json.loads(self.schema_by_id(schema_id))
            except ValueError:
                continue  # whoever reads a body of that id is told
            if found == wanted:
                return schema_id
        raise LookupError(f"no file in {self._folder} has that schema")


def open_registry(option: str) -> SchemaRegistry:
    """The registry that option schemaRegistry names: an entry point, `module:attribute`, or else a folder.

    An entry point (of the group harebell.schema_registries) and an attribute are a registry, or what makes one when it
    is called without arguments. Raises InvalidArgument when there is no such thing.
    """
    for point in entry_points(group=ENTRY_POINTS, name=option):
        return _made(point.load(), option)
    if not _ATTRIBUTE.fullmatch(option):
        return FolderRegistry(option)
    module, _, attribute = option.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for name in attribute.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError) as error:
        raise InvalidArgument(f"option 'schemaRegistry' is {option!r}, which cannot be imported: {error}") from error
    return _made(found, option)


def _made(found: Any, option: str) -> SchemaRegistry:
    if callable(found) and (isinstance(found, type) or not isinstance(found, SchemaRegistry)):
        found = found()
    if not isinstance(found, SchemaRegistry):
        raise InvalidArgument(
            f"option 'schemaRegistry' is {option!r}, which is no registry: it needs the methods schema_by_id and id_of"
        )
    return found


def unframed(body: bytes) -> tuple[int, int]:
    """The schema's id, and where the record begins. Raises ValueError when the body has not the wire format."""
    if len(body) < _PREFIX.size:
        raise ValueError(f"{len(body)} bytes are too few for a schema's id")
    magic, schema_id = _PREFIX.unpack_from(body)
    if magic != MAGIC:
        raise ValueError(f"the first byte is {magic}, and is 0 before a schema's id")
    return schema_id, _PREFIX.size


def framed(schema_id: int) -> bytes:
    """The bytes before a record of that schema. Raises InvalidArgument when it is no id."""
    if not isinstance(schema_id, int) or not 0 <= schema_id <= MAX_ID:
        raise InvalidArgument(f"the schema registry gave the id {schema_id!r}, which is not one of 0 to {MAX_ID}")
    return _PREFIX.pack(MAGIC, schema_id)
