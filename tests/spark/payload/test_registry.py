"""Schema registries: the wire format, the folder, registries of one's own, and bodies of other schemas resolved."""

from __future__ import annotations

import json
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql.types import StructField, StructType

from harebell.errors import InvalidArgument
from harebell.spark.options.payload import payload_options
from harebell.spark.payload import registry
from harebell.spark.payload.avro import AvroDecoder, avro_type
from harebell.spark.payload.content import Content
from harebell.spark.payload.registry import FolderRegistry, SchemaRegistry, framed, open_registry, unframed
from harebell.spark.schema import arrow_schema
from tests.spark.payload.test_avro import encode, record

OLD = record(("id", "int"), ("name", "string"), ("gone", ["int", "string"]))
NEW = {
    **record(("id", "long"), ("name", "string")),
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "title", "aliases": ["name"], "type": "string"},
        {"name": "seats", "type": "int", "default": 180},
    ],
}


class Books:
    """A registry of one's own."""

    def __init__(self, **schemas: Any) -> None:
        self.schemas = {1: OLD, 2: NEW}
        self.asked: list[int] = []

    def schema_by_id(self, schema_id: int) -> str:
        self.asked.append(schema_id)
        return json.dumps(self.schemas[schema_id])

    def id_of(self, schema: str) -> int:
        return next(number for number, each in self.schemas.items() if each == json.loads(schema))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, schema in ((1, OLD), (20, NEW), (3, NEW)):
        (tmp_path / f"{number}.avsc").write_text(json.dumps(schema, indent=2))
    (tmp_path / "2.avsc").write_text("{")
    (tmp_path / "README.avsc").write_text("not a number")
    return tmp_path


def parse(books: SchemaRegistry, *bodies: bytes | None) -> tuple[list[Any], dict[int, str]]:
    text = json.dumps(NEW)
    arrow = arrow_schema(StructType([StructField("payload", avro_type(text))])).field(0).type
    content = Content(list(bodies), "utf-8")
    return AvroDecoder(text, arrow, books)(content).to_pylist(), content.reasons


def test_the_wire_format() -> None:
    assert framed(7) == b"\x00\x00\x00\x00\x07"
    assert unframed(framed(0xFFFF_FFFF) + b"x") == (0xFFFF_FFFF, 5)
    with pytest.raises(ValueError, match="4 bytes are too few"):
        unframed(b"\0\0\0\0")
    with pytest.raises(ValueError, match="the first byte is 1, and is 0 before"):
        unframed(b"\1\0\0\0\7")
    for wrong in (-1, 1 << 32, "7"):
        with pytest.raises(InvalidArgument, match="which is not one of 0 to"):
            framed(wrong)  # type: ignore[arg-type]


def test_a_folder(folder: Path) -> None:
    books = FolderRegistry(folder)
    assert json.loads(books.schema_by_id(1)) == OLD
    assert (books.id_of(json.dumps(OLD)), books.id_of(json.dumps(NEW))) == (1, 3)
    with pytest.raises(LookupError, match=r"no file 4\.avsc in"):
        books.schema_by_id(4)
    with pytest.raises(LookupError, match="has that schema"):
        books.id_of('"long"')
    with pytest.raises(InvalidArgument, match="is no folder on this machine"):
        FolderRegistry(folder / "1.avsc")


def test_bodies_of_an_older_schema_are_resolved() -> None:
    books = Books()
    old = framed(1) + encode(OLD, {"id": 1, "name": "a", "gone": 5})
    new = framed(2) + encode(NEW, {"id": 2, "title": "b", "seats": 9})
    rows, reasons = parse(books, old, new, old, None)
    first = {"id": 1, "title": "a", "seats": 180}
    assert (rows, reasons) == ([first, {"id": 2, "title": "b", "seats": 9}, first, None], {})
    assert books.asked == [1, 2]  # each once


def test_what_is_wrong_with_a_body_is_its_rows_reason(folder: Path) -> None:
    (folder / "5.avsc").write_text(json.dumps(record(("id", "string"), ("title", "string"))))
    (folder / "6.avsc").write_text(json.dumps(record(("a", {"type": "array", "items": "null"}))))
    (folder / "7.avsc").write_bytes(b'{"type": "\xff"}')
    good = framed(3) + encode(NEW, {"id": 2, "title": "b", "seats": 9})
    other = framed(5) + encode(record(("id", "string"), ("title", "string")), {"id": "x", "title": "y"})
    endless = framed(6) + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"
    bodies = [b"", b"{}   ", framed(4) + b"x", framed(2) + b"x", good, good[:-1], good + b"!", other, endless]
    bodies.append(framed(7) + b"x")
    rows, reasons = parse(FolderRegistry(folder), *bodies)
    assert [row is not None for row in rows] == [n == 4 for n in range(10)]
    wanted = {
        0: "not Avro with a schema's id: 0 bytes are too few",
        1: "not Avro with a schema's id: the first byte is 123",
        2: "schema 4 is not in the registry: there is no file 4.avsc in",
        3: "schema 2 of the registry cannot be used: it is no Avro schema: JSONDecodeError",
        5: "not Avro of schema 3: ",
        6: "not Avro of schema 3: 1 bytes after the record",
        7: "not Avro of schema 5: SchemaResolutionError",
        8: "schema 6 of the registry cannot be used: it has an array of what takes no bytes",
        9: "schema 7 of the registry cannot be used: 'utf-8' codec can't decode byte 0xff",
    }
    assert {row: reasons[row].startswith(text) for row, text in wanted.items()} == dict.fromkeys(wanted, True), reasons
    assert reasons.keys() == wanted.keys()


@pytest.mark.parametrize(
    "items",
    [
        "null",
        {"type": "fixed", "name": "F", "size": 0},
        record(name="Empty"),
        record(("a", "null"), ("b", record(name="Empty")), name="Nulls"),
    ],
)
def test_endless_arrays_are_found_anywhere(items: Any) -> None:
    from harebell.spark.payload.avro import _writers_schema

    array = {"type": "array", "items": items}
    for schema in (
        array,
        {"type": "map", "values": array},
        record(("x", ["null", array])),
        record(("first", items), ("x", {"type": "array", "items": items if items == "null" else items["name"]})),
    ):
        with pytest.raises(InvalidArgument, match="takes no bytes"):
            _writers_schema(json.dumps(schema))
    _writers_schema(json.dumps(record(("next", ["null", "Flight"]), ("all", {"type": "array", "items": "Flight"}))))


def test_a_schema_that_is_registered_later_is_read_then() -> None:
    books = Books()
    body = framed(7) + encode(OLD, {"id": 1, "name": "a", "gone": 5})
    text = json.dumps(NEW)
    decode = AvroDecoder(text, arrow_schema(avro_type(text)).empty_table().to_struct_array().type, books)
    first = Content([body, body], "utf-8")
    assert decode(first).null_count == 2
    assert first.reasons == dict.fromkeys((0, 1), "schema 7 is not in the registry: 7")
    assert books.asked == [7]
    books.schemas[7] = OLD
    assert decode(Content([body], "utf-8")).null_count == 0


def test_a_registry_that_is_away_fails_the_task() -> None:
    class Away(Books):
        def schema_by_id(self, schema_id: int) -> str:
            raise ConnectionRefusedError("away")

    with pytest.raises(ConnectionRefusedError):
        parse(Away(), framed(1) + b"x")


def test_what_the_option_names(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("shop_books")
    module.Books, module.made, module.none = Books, Books(), object()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop_books", module)
    point = EntryPoint("shop", "shop_books:Books", registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "entry_points", lambda group, name: [point] if name == "shop" else [])
    assert isinstance(open_registry(str(folder)), FolderRegistry)
    assert isinstance(open_registry("shop"), Books)
    assert isinstance(open_registry("shop_books:Books"), Books)
    assert open_registry("shop_books:made") is module.made
    for wrong, said in (
        ("shop_books:none", "is no registry: it needs the methods schema_by_id and id_of"),
        ("shop_books:nothing", "cannot be imported"),
        ("no_such_module:x", "cannot be imported"),
        ("nowhere/at/all", "is no folder on this machine"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            open_registry(wrong)


def test_the_option_goes_with_avro() -> None:
    given = {"payload": "avro", "payloadSchema": "{}", "schemaRegistry": "books"}
    assert payload_options(given).registry == "books"
    with pytest.raises(InvalidArgument, match="'schemaRegistry' means nothing here: it goes with payload=avro"):
        payload_options({**given, "payload": "json"})
