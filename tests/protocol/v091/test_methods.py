"""Every method and property: bytes written down by hand, both ways; and that methods.py is as generated."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given

from harebell import errors
from harebell.protocol.v091 import Method, Properties, methods as m
from harebell.protocol.v091.codec import (
    check_properties,
    decode_method,
    decode_properties,
    encode_frame,
    encode_method,
    encode_properties,
)
from tests.protocol.v091 import strategies
from tests.protocol.v091.samples import MALFORMED_PROPERTIES, METHODS, PROPERTIES

ROOT = Path(__file__).resolve().parents[3]


def test_generated_file_is_current() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.generate_v091", "--check"], capture_output=True, text=True, cwd=ROOT
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_method_has_a_sample() -> None:
    assert {type(method) for method, _ in METHODS} == set(m.METHODS.values())
    assert all(key == raw[:4] for method, raw in METHODS for key in [short_key(type(method))])


def short_key(cls: type[Method]) -> bytes:
    return cls.CLASS_ID.to_bytes(2, "big") + cls.METHOD_ID.to_bytes(2, "big")


@pytest.mark.parametrize("method, raw", METHODS, ids=lambda value: getattr(value, "NAME", ""))
def test_method(method: Method, raw: bytes) -> None:
    assert method.encode() == raw
    assert decode_method(raw) == method
    assert type(decode_method(raw)) is type(method)
    assert encode_method(3, method) == encode_frame(1, 3, raw)
    assert repr(decode_method(raw)) == repr(method)
    for end in range(4, len(raw)):
        with pytest.raises(errors.RemoteProtocolError) as caught:
            decode_method(raw[:end], 3)
        assert (caught.value.reply_code, caught.value.channel) == (502, 3)
        assert (caught.value.answer.class_id, caught.value.answer.method_id) == (method.CLASS_ID, method.METHOD_ID)
    with pytest.raises(errors.RemoteProtocolError, match="1 bytes after the last field"):
        decode_method(raw + b"\0")


@given(strategies.methods)
def test_any_method_survives(method: Method) -> None:
    assert decode_method(method.encode()) == method


@pytest.mark.parametrize("raw", [b"", b"\0", b"\0\x3c\0\xff", b"\0\1\0\1xyz"])
def test_unknown_method(raw: bytes) -> None:
    with pytest.raises(errors.RemoteProtocolError) as caught:
        decode_method(raw)
    assert caught.value.reply_code == 540
    assert caught.value.scope == "connection"


def test_flags_count_by_truth() -> None:
    assert m.QueueDeclare("q", passive=2).encode() == m.QueueDeclare("q", passive=True).encode()  # type: ignore[arg-type]


def test_methods_differ_by_class_and_value() -> None:
    assert m.BasicAck(1) != m.BasicAck(2)
    assert m.BasicAck(1) != m.BasicReject(1)
    assert m.TxSelect() == m.TxSelect()
    assert m.BasicAck(1) != 1
    with pytest.raises(NotImplementedError):
        Method().encode()
    with pytest.raises(NotImplementedError):
        Method.decode(b"")


def test_who_says_what() -> None:
    assert set(m.METHODS.values()) == m.CLIENT_SENDS | m.SERVER_SENDS
    both = {method.NAME for method in m.CLIENT_SENDS & m.SERVER_SENDS}
    assert both == {
        "connection.close", "connection.close-ok", "channel.flow", "channel.flow-ok", "channel.close",
        "channel.close-ok", "basic.cancel", "basic.cancel-ok", "basic.ack", "basic.nack",
    }  # fmt: skip
    assert {method.NAME for method in m.CARRIES_CONTENT} == {
        "basic.publish", "basic.return", "basic.deliver", "basic.get-ok",
    }  # fmt: skip


def test_every_reply_has_a_request() -> None:
    replies = {reply for answers in m.REPLIES.values() for reply in answers}
    assert {cls.NAME for cls in m.METHODS.values() if cls.NAME.endswith("-ok")} == {
        cls.NAME for cls in replies if cls is not m.BasicGetEmpty
    }
    assert m.REPLIES[m.BasicGet] == (m.BasicGetOk, m.BasicGetEmpty)
    assert m.REPLIES[m.BasicRecover] == (m.BasicRecoverOk,)


@pytest.mark.parametrize(
    "channel, method",
    [
        (1, m.BasicAck(-1)),
        (1, m.BasicAck(1 << 64)),
        (1, m.BasicQos(prefetch_count=65_536)),
        (1, m.QueueDeclare(5)),  # type: ignore[arg-type]
        (1, m.QueueDeclare("\ud800")),
        (1, m.QueueDeclare("q", arguments=[1])),  # type: ignore[arg-type]
        (1, m.QueueDeclare("q", arguments={1: 1})),  # type: ignore[dict-item]
        (1, m.BasicAck("1")),  # type: ignore[arg-type]
        (65_536, m.TxSelect()),
        (-1, m.TxSelect()),
    ],
)
def test_what_does_not_fit_is_a_local_error(channel: int, method: Method) -> None:
    with pytest.raises(errors.LocalProtocolError):
        encode_method(channel, method)


# -- properties --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("properties, raw", PROPERTIES, ids=repr)
def test_properties(properties: Properties, raw: bytes) -> None:
    assert encode_properties(properties) == raw
    assert decode_properties(b"??" + raw, 2) == properties
    check_properties(b"??" + raw, 2)
    for end in range(len(raw)):
        both_refuse(raw[:end])
    both_refuse(raw + b"\0")


@pytest.mark.parametrize("raw", MALFORMED_PROPERTIES)
def test_malformed_properties(raw: bytes) -> None:
    both_refuse(raw)


def both_refuse(raw: bytes) -> None:
    with pytest.raises(errors.RemoteProtocolError) as decoding:
        decode_properties(raw, 0, 7)
    with pytest.raises(errors.RemoteProtocolError) as checking:
        check_properties(raw, 0, 7)
    assert str(checking.value) == str(decoding.value)
    assert (decoding.value.reply_code, decoding.value.channel) == (502, 7)
    assert checking.value.channel == 7


@given(strategies.properties)
def test_any_properties_survive(properties: Properties) -> None:
    raw = properties.encode()
    assert decode_properties(raw, 0) == properties
    check_properties(raw, 0)


def test_a_repr_has_all_fields_but_secrets() -> None:
    assert repr(m.BasicQos(0, 5)) == "BasicQos(prefetch_size=0, prefetch_count=5, global_=False)"
    for method in (
        m.ConnectionStartOk({}, "PLAIN", b"secret"), m.ConnectionSecureOk(b"secret"),
        m.ConnectionUpdateSecret(b"secret", ""),
    ):  # fmt: skip
        assert "..." in repr(method)
        assert "secret" not in repr(method)


def test_properties_as_values() -> None:
    assert Properties(type="a") != Properties()
    assert Properties() != 1
    assert repr(Properties(type="a", priority=0)) == "Properties(priority=0, type='a')"


@pytest.mark.parametrize(
    "properties",
    [
        Properties(priority=256),
        Properties(priority="5"),  # type: ignore[arg-type]
        Properties(type="x" * 256),
        Properties(type=b"x"),  # type: ignore[arg-type]
        Properties(type="\ud800"),
        Properties(headers={"a": ...}),
        Properties(timestamp=-1),
    ],
    ids=repr,
)
def test_properties_that_do_not_fit(properties: Properties) -> None:
    with pytest.raises(errors.LocalProtocolError):
        encode_properties(properties)
