"""Typed bodies: what JSON takes, gives and refuses."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import sys
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict

import msgspec
import pytest

import harebell
from harebell import blocking, errors
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.core.channel import ChannelCore
from harebell.client.messages import Delivery, Message
from harebell.client.patterns.codec import message_of
from harebell.protocol.v091 import Content, Properties, encode_content


class Colour(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    SMALL = 1


@dataclasses.dataclass(frozen=True)
class Line:
    item: str
    count: int = 1


@dataclasses.dataclass(frozen=True)
class Order:
    id: int
    lines: list[Line]
    price: float
    at: datetime
    colour: Colour
    note: str | None = None
    pair: tuple[int, str] = (0, "")
    tags: dict[str, int] = dataclasses.field(default_factory=dict)
    kind: Literal["a", "b"] = "a"

    def __post_init__(self) -> None:
        if self.price < 0:
            raise ValueError("a price is not negative")


@dataclasses.dataclass
class Tree:
    name: str
    children: list[Tree]


class Point(NamedTuple):
    x: int
    y: int = 0


class Settings(TypedDict):
    name: str
    debug: NotRequired[bool]


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    item: str


class Opaque:
    """A class that no library can make."""

    def __init__(self, secret: int) -> None:
        self.secret = secret


@dataclasses.dataclass
class WithOpaque:
    inner: list[Opaque]


def delivery(body: bytes, content_type: str | None = None) -> Delivery:
    frames = encode_content(1, Properties(content_type=content_type).encode(), body, 4096)
    channel: Any = ChannelCore
    return Delivery(Content(1, b"", frames, len(body)), channel, "", 1, False, "", "")


ORDER = Order(7, [Line("tea", 2), Line("süß")], 3.5, datetime(2026, 1, 2, tzinfo=UTC), Colour.RED, pair=(1, "x"))

VALUES: list[tuple[Any, Any]] = [
    (Order, ORDER),
    (Tree, Tree("root", [Tree("leaf", [])])),
    (list[Line], [Line("a")]),
    (Point, Point(1, 2)),
    (Settings, {"name": "x", "debug": True}),
    (Settings, {"name": "x"}),
    (Strict, Strict("tea")),
    (Colour, Colour.RED),
    (Size, Size.SMALL),
    (uuid.UUID, uuid.UUID(int=7)),
    (Decimal, Decimal("1.10")),
    (date, date(2026, 1, 2)),
    (datetime, datetime(2026, 1, 2, 3, 4, 5)),
    (time, time(3, 4)),
    (timedelta, timedelta(seconds=90)),
    (bytes, b"\x00\xff"),
    (float, 1.0),
    (int | None, None),
    (Line | None, Line("a", 3)),
    (dict[str, list[int]], {"a": [1]}),
    (dict[int, str], {1: "a"}),
    (dict[uuid.UUID, Decimal], {uuid.UUID(int=1): Decimal("0.1")}),
    (tuple[int, str], (1, "x")),
    (tuple[int, ...], (1, 2, 3)),
    (set[int], {1, 2}),
    (frozenset[Colour], frozenset([Colour.RED])),
    (Literal["a", 1], "a"),
    (type(None), None),
    (Any, {"a": [1, None]}),
]


@pytest.mark.parametrize("wanted, value", VALUES, ids=lambda given: str(getattr(given, "__name__", given))[:40])
def test_there_and_back(wanted: Any, value: Any) -> None:
    codec: harebell.JSON[Any] = harebell.JSON(wanted)
    if wanted is bytes:
        value = [value]  # bytes alone are no JSON body
        codec = harebell.JSON(list[bytes])
    body, content_type = codec.encode(value)
    assert content_type == "application/json"
    assert codec.decode(delivery(body, "application/x+json; charset=utf-8")) == value


@pytest.mark.parametrize("wanted, value", VALUES, ids=lambda given: str(getattr(given, "__name__", given))[:40])
def test_there_and_back_with_pydantic_alone(monkeypatch: pytest.MonkeyPatch, wanted: Any, value: Any) -> None:
    pytest.importorskip("pydantic")
    if wanted is Strict or (wanted is Settings and sys.version_info < (3, 12)):
        pytest.skip("a Struct is msgspec's own; before Python 3.12 pydantic wants another TypedDict")
    monkeypatch.setitem(sys.modules, "msgspec", None)
    codec: harebell.JSON[Any] = harebell.JSON(list[wanted])
    if wanted is bytes:
        value = b"plain"  # pydantic writes bytes as text
    body, _ = codec.encode([value])
    assert codec.decode(delivery(body)) == [value]


def test_models_of_pydantic() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Item(pydantic.BaseModel):  # type: ignore[misc, name-defined, unused-ignore]
        name: str
        price: Decimal
        at: date | None = None

    @dataclasses.dataclass
    class Basket:
        items: list[Any]

    item = Item(name="tea", price="1.10", at="2026-01-02")
    codec = harebell.JSON(Item)
    assert codec.encode(item)[0] == b'{"name":"tea","price":"1.10","at":"2026-01-02"}'
    assert codec.decode(delivery(codec.encode(item)[0])) == item
    many: harebell.JSON[Any] = harebell.JSON(list[Item])
    assert many.decode(delivery(many.encode([item])[0])) == [item]
    assert harebell.JSON(Basket).encode(Basket([item]))[0].startswith(b'{"items":[{"name":"tea"')
    with pytest.raises(errors.UndecodableBody, match=r"no Item: price: .*; at: "):
        codec.decode(delivery(b'{"name": "x", "price": "y", "at": 1.5}'))

    class Loose(pydantic.BaseModel):  # type: ignore[misc, name-defined, unused-ignore]
        model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
        inner: Opaque

    with pytest.raises(errors.UndecodableBody):
        harebell.JSON(Loose).decode(delivery(b'{"inner": 1}'))


@pytest.mark.parametrize(
    "wanted, body, said",
    [
        (object, b"\xff", "no JSON"),
        (object, b"{", "no JSON"),
        (object, b"[" * 100_000, "no JSON"),
        (int, b"true", "the body is no int: Expected `int`, got `bool`"),
        (int, b'"1"', "Expected `int`"),
        (int, b"\xff", "no int"),
        (list[Any], b"[" * 100_000, "the body is no list"),
        (Line, b"[]", "no Line: Expected `object`"),
        (Line, b'{"count": 1}', "missing required field `item`"),
        (Strict, b'{"item": "a", "colour": 1}', "unknown field `colour`"),
        (list[Line], b'[{"item": 1}]', r"Expected `str`, got `int` - at `\$\[0\].item`"),
        (tuple[int, str], b"[1]", "of length 2"),
        (dict[str, int], b'{"a": null}', "Expected `int`, got `null`"),
        (Colour, b'"blue"', "Invalid enum value 'blue'"),
        (datetime, b'"yesterday"', "no datetime"),
        (uuid.UUID, b'"no"', "Invalid UUID"),
        (Decimal, b'"no"', "Invalid decimal"),
        (Literal["a"], b'"c"', "Invalid enum value 'c'"),
        (type(None), b"0", "Expected `null`"),
        (Settings, b"{}", "missing required field `name`"),
        (Point, b"[]", "length"),
    ],
)
def test_what_does_not_fit_is_refused(wanted: Any, body: bytes, said: str) -> None:
    with pytest.raises(errors.UndecodableBody, match=said):
        harebell.JSON(wanted).decode(delivery(body))


def test_a_check_of_the_dataclass_itself_counts() -> None:
    body, _ = harebell.JSON(Order).encode(ORDER)
    with pytest.raises(errors.UndecodableBody, match="a price is not negative"):
        harebell.JSON(Order).decode(delivery(body.replace(b"3.5", b"-3.5")))


@pytest.mark.parametrize("wanted", [Opaque, WithOpaque, list[Opaque], dict[str, Opaque | int]])
def test_a_type_that_cannot_be_read_is_refused_at_once(wanted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.InvalidArgument, match=r"no library reads that type .*Opaque"):
        harebell.JSON(wanted)
    monkeypatch.setitem(sys.modules, "pydantic", None)
    with pytest.raises(errors.InvalidArgument, match="pydantic may: pip install pydantic"):
        harebell.JSON(wanted)


def test_without_both_libraries_a_type_is_refused_and_plain_values_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("msgspec", "pydantic", "pydantic_core"):
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(errors.MissingDependency, match=r"JSON\(Order\) needs the package msgspec, or pydantic: pip"):
        harebell.JSON(Order)
    plain = harebell.JSON()
    assert plain.decode(delivery(plain.encode({"a": [1, None]})[0])) == {"a": [1, None]}
    with pytest.raises(errors.InvalidArgument, match=r"Order is no type of JSON's; pip install 'harebell\[json\]'"):
        plain.encode(ORDER)


def test_types_that_cannot_be_found_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclasses.dataclass
    class Local:
        other: Missing  # type: ignore[name-defined]  # noqa: F821

    for _ in range(2):
        with pytest.raises(errors.InvalidArgument, match="define them at module level"):
            harebell.JSON(Local)
        pytest.importorskip("pydantic")
        monkeypatch.setitem(sys.modules, "msgspec", None)


def test_another_content_type_is_refused() -> None:
    with pytest.raises(errors.UndecodableBody, match="image/png"):
        harebell.JSON().decode(delivery(b"1", "image/png"))


class Endless:
    """An object that claims to be a model."""

    def model_dump(self, mode: str) -> object:
        return self


@pytest.mark.parametrize(
    "value",
    [b"bytes", float("nan"), {1j}, object(), [Opaque(1)], {"a": float("inf")}, Endless(), {(1, 2): 3}, "\ud800"],
)
def test_what_json_cannot_hold_is_refused(value: object) -> None:
    with pytest.raises(errors.InvalidArgument, match="cannot be written as JSON"):
        harebell.JSON().encode(value)


def test_a_message_is_taken_as_it_is() -> None:
    message = Message(b"x")
    assert message_of(message, harebell.JSON()) is message
    assert message_of(b"x", None) == b"x"
    encoded = message_of({"a": 1}, harebell.JSON())
    assert isinstance(encoded, Message)
    assert (encoded.body, encoded.properties.content_type) == (b'{"a":1}', "application/json")


class NoCodec:
    """What has both names, and is no codec."""

    def __init__(self, encode: object, decode: object) -> None:
        self.encode, self.decode = encode, decode


class Plain:
    """A codec all the same: of a class, without an object of it."""

    @staticmethod
    def encode(value: object) -> tuple[bytes, str]:
        return str(value).encode(), "text/plain"

    @classmethod
    def decode(cls, delivery: Delivery) -> str:
        return delivery.body.decode()


async def waits(given: object) -> tuple[bytes, str]:
    return b"", ""


NO_CODECS: list[tuple[Any, str]] = [
    (harebell.JSON, r"codec is the class JSON: give an object of it, as JSON\(\)"),
    (Order, "has no encode: give JSON"),
    ("json", "codec is 'json', which has no decode"),
    (b"json", "has no encode"),
    (5, "codec is 5, which has no encode"),
    (True, "has no encode"),
    (object(), "has no encode"),
    (lambda value: value, "has no encode"),
    (NoCodec(None, None), "has no encode"),
    (NoCodec("text", len), "the codec's encode 'text' cannot be called"),
    (NoCodec(lambda value: (b"", ""), None), "has no decode"),
    (NoCodec(lambda value: (b"", ""), lambda: None), "the codec's decode .* cannot be called with \\(delivery\\)"),
    (NoCodec(lambda: (b"", ""), lambda delivery: None), "the codec's encode .* cannot be called with \\(value\\)"),
    (NoCodec(waits, lambda delivery: None), "encode waits is a coroutine function"),
    (NoCodec(lambda value: (b"", ""), waits), "decode waits is a coroutine function"),
]


def handle(value: object, delivery: Delivery) -> None:
    """A handler beside a codec."""


TAKES_A_CODEC: dict[str, Callable[[Any, Any], object]] = {
    "consume": lambda connection, codec: connection.consume("q", handle, codec=codec),
    "consume, in batches": lambda connection, codec: connection.consume("q", handle, batch=2, codec=codec),
    "serve": lambda connection, codec: connection.serve("q", handle, codec=codec),
    "producer": lambda connection, codec: connection.producer(codec=codec),
    "rpc": lambda connection, codec: connection.rpc(codec=codec),
}


@pytest.mark.parametrize("call", TAKES_A_CODEC)
async def test_what_is_no_codec_is_refused_where_it_is_given(connection: Connection, call: str) -> None:
    for codec, text in NO_CODECS:
        with pytest.raises(errors.InvalidArgument, match=text):
            TAKES_A_CODEC[call](connection, codec)
    TAKES_A_CODEC[call](connection, Plain)


async def test_so_it_is_for_threads(harebell_url: str) -> None:
    def work() -> None:
        with blocking.connect(harebell_url) as connection:
            for call in TAKES_A_CODEC.values():
                for codec, text in NO_CODECS:
                    with pytest.raises(errors.InvalidArgument, match=text):
                        call(connection, codec)
                call(connection, Plain)

    await asyncio.to_thread(work)


async def test_a_codec_of_a_class_is_used(connection: Connection, channel: Channel, queue: str) -> None:
    seen: asyncio.Queue[tuple[str, Delivery]] = asyncio.Queue()
    async with connection.producer(codec=Plain) as producer:
        await producer.publish("5", queue)
    async with connection.consume(queue, lambda value, delivery: seen.put((value, delivery)), codec=Plain):
        assert (await asyncio.wait_for(seen.get(), 60))[0] == "5"


@pytest.mark.parametrize("encoded", [b"text", "text", None, (b"text",), (b"text", "text/plain", 1), 5])
async def test_what_a_codec_writes_is_checked(connection: Connection, encoded: object) -> None:
    codec: Any = NoCodec(lambda value: encoded, lambda delivery: None)
    async with connection.producer(codec=codec) as producer:
        with pytest.raises(errors.InvalidArgument, match=r"encode gave .*: \(body, content type\) is needed"):
            await producer.publish(1, "q")
