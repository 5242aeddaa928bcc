"""Bodies: what is written is read back, and what cannot be read or written is reported as one kind of error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from harebell import errors
from harebell.channels.messages.serializers import Serializer, Unreadable, serializer_of
from tests.fixtures.profiles import scaled

FORMATS = ["msgpack", "json"]
KEYS: list[list[str | bytes] | None] = [None, ["a"], [b"\0\xff", "a"]]


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("format", FORMATS)
def test_every_kind_of_value_comes_back(format: str, keys: list[str | bytes] | None) -> None:
    message = {"type": "x", "text": "grüße", "bytes": b"\0\xff", "int": -(2**63), "float": 0.5, "none": None,
               "list": [1, [True, b""]], "dict": {"a": {"b": b"c"}, "empty": {}}}  # fmt: skip
    serializer = serializer_of(format, keys)
    body = serializer.dumps(message)
    assert serializer.loads(body) == message
    assert (b"type" in body) is (keys is None)


def test_the_kinds_of_bytes_arrive_as_bytes() -> None:
    for name in FORMATS:
        serializer = serializer_of(name, None)
        for value in (b"x", bytearray(b"x"), memoryview(b"x")):
            assert serializer.loads(serializer.dumps({"type": value})) == {"type": b"x"}, name


WORDS = st.sampled_from(["__bytes__", "__bytes__~", "__bytes__~~", "__bytes__x", "~", "a", "YWJj"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.binary(max_size=3) | WORDS | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=8,
)


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=scaled(200))
@given(message=st.dictionaries(WORDS, VALUES, max_size=2))
def test_no_content_is_taken_for_something_else(format: str, message: dict[str, Any]) -> None:
    serializer = serializer_of(format, None)
    assert serializer.loads(serializer.dumps(message)) == message


class Running(dict[str, Any]):
    """A dict that runs code while it is written, as a QueryDict does."""

    def __init__(self, values: dict[str, Any], runs: Callable[[], object]) -> None:
        super().__init__(values)
        self.runs = runs

    def items(self) -> Any:
        for item in super().items():
            self.runs()
            yield item


def here(function: Callable[[], object]) -> object:
    return function()


def in_another_thread(function: Callable[[], object]) -> object:
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(function).result(60)


@pytest.mark.parametrize("call", [here, in_another_thread])
@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("format", FORMATS)
def test_a_message_is_written_in_the_midst_of_another(
    format: str, keys: list[str | bytes] | None, call: Callable[[Callable[[], object]], object]
) -> None:
    serializer = serializer_of(format, keys)
    inner, bodies = {"type": "inner", "list": [1, b"x"]}, list[bytes]()
    values = {"a": 1, "b": {"c": "d"}}
    outer = {"type": "outer", "get": Running(values, lambda: call(lambda: bodies.append(serializer.dumps(inner))))}
    assert serializer.loads(serializer.dumps(outer)) == {"type": "outer", "get": values}
    assert [serializer.loads(body) for body in bodies] == [inner] * len(values)


@pytest.mark.parametrize(
    "format, body",
    [
        ("json", b'"text"'),
        ("json", b"[]"),
        ("json", b"null"),
        ("json", b'{"__bytes__":"eA=="}'),  # bytes alone
        ("json", b'{"type":{"__bytes__":"e"}}'),  # no base64
        ("json", b'{"type":{"__bytes__":1}}'),
        ("json", b"\xff"),
        ("json", b""),
        ("json", b'{"type":'),
        ("msgpack", b"\xa1x"),
        ("msgpack", b"\x90"),
        ("msgpack", b"\xc0"),
        ("msgpack", b""),
        ("msgpack", b"\x81\xa1"),  # cut off
        ("msgpack", b"\x80\x80"),  # and something behind it
        ("msgpack", b"\xc1"),
    ],
)
def test_a_body_that_is_no_message(format: str, body: bytes) -> None:
    with pytest.raises(Unreadable):
        serializer_of(format, None).loads(body)


@pytest.mark.parametrize("format", FORMATS)
def test_each_beginning_of_a_body_is_unreadable(format: str) -> None:
    serializer = serializer_of(format, None)
    body = serializer.dumps({"type": "x", "bytes": b"abc", "list": [1, {}]})
    for length in range(len(body)):
        with pytest.raises(Unreadable):
            serializer.loads(body[:length])


@pytest.mark.parametrize("value", [object(), {1, 2}, 1j, [object()], {"a": object()}, 2**64, "\ud800"])
def test_a_message_that_cannot_be_written_is_named_by_its_keys(value: object) -> None:
    with pytest.raises(TypeError, match=r"cannot be written: .*it has \['other', 'type'\]"):
        serializer_of("msgpack", None).dumps({"type": "x", "other": value})


@pytest.mark.parametrize("value", [object(), {1, 2}, 1j, [object()], {"a": object()}])
def test_neither_can_json(value: object) -> None:
    with pytest.raises(TypeError, match=r"cannot be written: .*no part of a message; it has \['other', 'type'\]"):
        serializer_of("json", None).dumps({"type": "x", "other": value})


def test_a_message_in_itself() -> None:
    message: dict[str, Any] = {"type": "x"}
    message["self"] = message
    for name in FORMATS:
        with pytest.raises(TypeError, match="cannot be written"):
            serializer_of(name, None).dumps(message)


@pytest.mark.parametrize("format", FORMATS)
def test_keys_are_changed_in_turn(format: str) -> None:
    old, both, new = (serializer_of(format, keys) for keys in (["a"], ["b", "a"], ["b"]))
    message = {"type": "x"}
    assert both.loads(old.dumps(message)) == message
    assert new.loads(both.dumps(message)) == message
    for one, other in ((old, new), (new, old), (old, both)):
        with pytest.raises(Unreadable, match="another key, or not at all"):
            one.loads(other.dumps(message))
    with pytest.raises(Unreadable, match="another key, or not at all"):
        old.loads(serializer_of(format, None).dumps(message))
    with pytest.raises(Unreadable):
        serializer_of(format, None).loads(old.dumps(message))


class Own:
    """A serializer of the program's, which fails as it likes."""

    def dumps(self, message: dict[str, Any]) -> bytes:
        return json.dumps(message).encode()

    def loads(self, body: bytes) -> dict[str, Any]:
        if body == b"cannot":
            raise Unreadable("it says so itself")
        return {"type": json.loads(body)["type"]}


def test_a_serializer_of_the_program() -> None:
    own: Serializer = Own()
    for keys in KEYS:
        serializer = serializer_of(own, keys)
        assert serializer.loads(serializer.dumps({"type": "x"})) == {"type": "x"}
    serializer = serializer_of(own, None)
    with pytest.raises(Unreadable, match="it says so itself"):
        serializer.loads(b"cannot")
    with pytest.raises(Unreadable, match="KeyError: 'type'"):
        serializer.loads(b"{}")
    with pytest.raises(TypeError, match=r"cannot be written.*\['type'\]"):
        serializer.dumps({"type": b""})


@pytest.mark.parametrize("name", ["pickle", "", "JSON"])
def test_a_format_there_is_not(name: str) -> None:
    with pytest.raises(errors.InvalidArgument, match="msgpack, json, or an object with dumps and loads"):
        serializer_of(name, None)


@pytest.mark.parametrize("key", ["one", b"one"])
def test_one_key_instead_of_a_list(key: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match="a list of keys is needed"):
        serializer_of("json", key)


@pytest.mark.parametrize(
    "package, format, keys, told",
    [
        ("msgpack", "msgpack", None, r"pip install 'harebell\[channels\]', or say serializer=\"json\""),
        ("cryptography.fernet", "json", ["a"], r"pip install 'harebell\[channels\]'"),
    ],
)
def test_a_package_that_is_missing(
    package: str, format: str, keys: list[str | bytes] | None, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(errors.InvalidArgument, match=told):
        serializer_of(format, keys)
    assert serializer_of("json", None).loads(b"{}") == {}


class Writes:
    """A serializer that writes what it is told to."""

    def __init__(self, body: Any) -> None:
        self.body = body

    def dumps(self, message: dict[str, Any]) -> Any:
        return b"{}" if message["type"] == "good" else self.body

    def loads(self, body: bytes) -> dict[str, Any]:
        return {"type": "good"}


NO_BODIES: list[Any] = ["text", None, 5, bytearray(b"{}"), memoryview(b"{}"), {}, ["{}"], ("{}", "json"), Unreadable]


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("body", NO_BODIES)
def test_what_is_no_bytes_is_written_by_nobody(body: Any, keys: list[str | bytes] | None) -> None:
    serializer = serializer_of(Writes(body), keys)
    with pytest.raises(TypeError, match=r"dumps gave a \w+, and bytes are needed"):
        serializer.dumps({"type": "bad"})
    assert serializer.loads(serializer.dumps({"type": "good"})) == {"type": "good"}
    with pytest.raises(TypeError, match="dumps gave a str, and bytes are needed"):
        serializer_of(json, keys).dumps({"type": "x"})  # type: ignore[arg-type]
