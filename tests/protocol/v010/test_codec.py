"""Every control, command and struct: recorded from Qpid's Python client, both ways; drawn ones; malformed ones."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings, strategies as st

from harebell import errors
from harebell.protocol.v010 import commands as c, controls as k, structs as s
from harebell.protocol.v010.codec import (
    decode_command,
    decode_control,
    decode_struct,
    encode_command,
    encode_control,
    encode_struct,
    unpack_struct,
)
from harebell.protocol.v010.compounds import Command, Compound, Control, Struct
from harebell.protocol.v010.domains import DetachCode, FileReturnCode, Track
from harebell.protocol.v010.typed_values import StructValue
from tests.fixtures.profiles import scaled
from tests.protocol.v010 import strategies

# What qpid-python 1.36 wrote: (name, fields, bytes). Its codec reads the specification at run time.
GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())
CLASSES: dict[str, type[Compound]] = {
    cls.__name__: cls
    for cls in [*k.CONTROLS.values(), *c.COMMANDS.values(), *s.STRUCTS.values(), s.ReplyTo]
}  # fmt: skip


def field(kind: str, value: Any) -> object:
    if kind in ("vbin8", "vbin16", "vbin32"):
        return bytes.fromhex(value)
    if kind == "datetime":
        return datetime.fromtimestamp(value, UTC)
    if kind == "uuid":
        return UUID(hex=value)
    if kind == "sequence-set":
        return tuple((low, high) for low, high in value)
    if kind == "struct32":
        return StructValue(int(value[0], 16), bytes.fromhex(value[1]))
    if kind in strategies.INNER:
        return built(strategies.INNER[kind], value)
    return value


def built(cls: type[Compound], values: dict[str, Any]) -> Compound:
    layout = dict(cls.LAYOUT)
    values = {name: False for name, kind in cls.LAYOUT if kind == "bit"} | values
    return cls(**{name: value if name == "sync" else field(layout[name], value) for name, value in values.items()})


def encode(compound: Compound) -> bytes:
    if isinstance(compound, Control):
        return encode_control(compound)
    if isinstance(compound, Command):
        return encode_command(compound)
    assert isinstance(compound, Struct)
    return compound.encode()


def decode(cls: type[Compound], raw: bytes) -> Compound:
    if issubclass(cls, Control):
        return decode_control(raw)
    if issubclass(cls, Command):
        return decode_command(raw)
    assert issubclass(cls, Struct)
    return decode_struct(cls, raw)


@pytest.mark.parametrize("line", GOLDEN, ids=lambda line: line["name"])
def test_as_qpid_writes_it(line: dict[str, Any]) -> None:
    cls, raw = CLASSES[line["name"]], bytes.fromhex(line["hex"])
    compound = built(cls, line["fields"])
    read = decode(cls, raw)
    assert read == compound
    assert decode(cls, encode(compound)) == compound
    if len(line["fields"].keys() - {"sync"}) == len(
        cls.LAYOUT
    ):  # with fewer, required ones are written that Qpid leaves out
        assert encode(read) == raw  # not of `compound`: its maps have another order


def test_qpid_has_all_but_file_and_stream() -> None:
    recorded = {line["name"] for line in GOLDEN}
    assert {name for name in CLASSES if name not in recorded} == {
        name for name, cls in CLASSES.items() if cls.NAME.startswith(("file.", "stream."))
    }


@settings(max_examples=scaled(60))
@given(strategies.compounds)
def test_compounds_are_read_as_written(compound: Compound) -> None:
    raw = encode(compound)
    read = decode(type(compound), raw)
    assert read == compound
    assert encode(read) == raw
    assert compound.NAME.partition(".")[2] in ("header", type(compound).NAME.partition(".")[2])


@pytest.mark.parametrize("cls", CLASSES.values(), ids=lambda cls: cls.NAME)
@settings(max_examples=scaled(10))
@given(data=st.data())
def test_each_with_all_fields_and_with_none(cls: type[Compound], data: st.DataObject) -> None:
    head = b"" if issubclass(cls, Struct) else (cls.KEY if issubclass(cls, Control) else cls.KEY + b"\1\0")  # type: ignore[attr-defined]
    bare = decode(cls, head + b"\0\0")
    assert decode(cls, encode(bare)) == bare
    full = data.draw(strategies.of_compound(cls, full=True))
    assert decode(cls, encode(full)) == full
    for wrong in (encode(full) + b"\0", encode(full)[:-1], head + b"\0\x80", head + b"\0", head + b"\xff\xff"):
        if cls.LAYOUT or wrong != encode(full):
            with pytest.raises(errors.RemoteProtocolError) as caught:
                decode(cls, wrong)
            assert caught.value.reply_code == (501 if issubclass(cls, Control) else 503)
            assert caught.value.scope == ("connection" if issubclass(cls, Control) else "channel")
            assert f"malformed {cls.NAME}: " in str(caught.value)


@pytest.mark.parametrize(
    "payload, where",
    [
        (b"\2\1\1\0\0\5ab", "field name (vbin16) at octet 4: it ends too early"),
        (b"\2\1\1\0\0", "field name (vbin16) at octet 4: it ends too early"),
        (b"\2\1\4\0", "packing flags 0x0004; the fields have 0x0003"),
        (b"\2\1\1", "it ends before its packing flags"),
        (b"\2\1\0\0abc", "3 octets after the last field"),
        (b"\2\7\3\0\0\0\0\1\0\0", "field command_offset (uint64) at octet 8: it ends too early"),
        (b"\1\2\1\0\0\0\0\x07\0\0\0\x01\1k\xb0", "field client_properties (map) at octet 4: type code 0xb0"),
    ],
)
def test_the_error_says_what_is_wrong_and_where(payload: bytes, where: str) -> None:
    with pytest.raises(errors.RemoteProtocolError) as caught:
        decode_control(payload, 3)
    assert where in str(caught.value)
    assert (caught.value.channel, caught.value.reply_code) == (3, 501)
    assert (caught.value.answer.class_id, caught.value.answer.method_id) == (payload[0], payload[1])


def test_malformed_commands() -> None:
    for payload, said in (
        (b"\4\1\2\0\0\0", "session.header is 0200"),
        (b"\4\1\1\2\0\0", "session.header is 0102"),
        (b"\4\1", "before its packing flags"),
        (b"\6\2\1\0\1\0\0\0\0\x06\6\5\0\0\0\0", "code 0605 in place of dtx.xid"),
        (b"\6\2\1\0\1\0\0\0\0\x06\6\4\0\0", "dtx.xid ends too early"),
    ):
        with pytest.raises(errors.RemoteProtocolError, match=said) as caught:
            decode_command(payload, 9)
        assert (caught.value.channel, caught.value.scope, caught.value.reply_code) == (9, "channel", 503)


def test_unknown_ones() -> None:
    for payload in (b"\1\x0d\0\0", b"\3\1\0\0", b"\2", b""):
        with pytest.raises(errors.RemoteProtocolError, match="unknown control") as caught:
            decode_control(payload)
        assert caught.value.reply_code == 501
    for payload in (b"\2\1\1\0\0\0", b"\4\x0d\1\0\0\0", b"\4", b""):
        with pytest.raises(errors.RemoteProtocolError, match="unknown command") as caught:
            decode_command(payload)
        assert (caught.value.reply_code, caught.value.scope) == (540, "channel")


def test_an_xid_of_the_specification_without_errata_is_read_too() -> None:
    xid = s.Xid(1, b"global", b"branch")
    raw = xid.encode()
    payload = c.DtxStart.KEY + b"\1\0\1\0" + len(raw).to_bytes(2, "big") + raw
    assert decode_command(payload) == c.DtxStart(xid)
    assert encode_command(c.DtxStart(xid)) != payload


def test_structs_as_values() -> None:
    result = s.XaResult(7)
    assert unpack_struct(result.packed()) == result
    assert encode_struct(result) == b"\0\0\0\6\6\1\1\0\0\7"
    unknown = StructValue(0x6301, b"\0\0")
    assert unpack_struct(unknown) is unknown
    with pytest.raises(errors.RemoteProtocolError, match=r"malformed dtx.xa-result: field status \(uint16\)"):
        unpack_struct(StructValue(0x0601, b"\1\0\0"))


@pytest.mark.parametrize(
    "compound",
    [
        k.SessionDetached(b"s", 256),
        k.SessionAttach("text"),  # type: ignore[arg-type]
        c.MessageFlow("d", -1),
        c.MessageAccept(((1, 1 << 32),)),
        c.QueueDeclare(None),  # type: ignore[arg-type]
        s.DeliveryProperties(ttl=-1),
        s.MessageProperties(message_id="text"),  # type: ignore[arg-type]
    ],
)
def test_what_does_not_fit_the_wire(compound: Compound) -> None:
    with pytest.raises(errors.LocalProtocolError):
        encode_struct(compound) if isinstance(compound, Struct) else encode(compound)


def test_secrets_are_not_shown() -> None:
    assert "hunter2" not in repr(k.ConnectionStartOk(response=b"hunter2"))
    assert repr(c.MessageCancel("d")) == "MessageCancel(destination='d', sync=False)"
    assert c.MessageCancel("d") != c.MessageFlush("d")


def test_codes_are_numbers() -> None:
    assert decode_control(encode_control(k.SessionDetached(b"", DetachCode.NOT_ATTACHED))) == k.SessionDetached(b"", 3)
    assert (Track.COMMAND, FileReturnCode.NO_ROUTE) == (1, 312)


def test_directions() -> None:
    assert k.ConnectionStart not in k.CLIENT_SENDS
    assert k.SessionAttach in k.CLIENT_SENDS & k.SERVER_SENDS
    assert c.MessageTransfer in c.CLIENT_SENDS & c.SERVER_SENDS
    assert c.QueueDeclare not in c.SERVER_SENDS
    assert c.RESULTS[c.QueueQuery] is s.QueueQueryResult


@pytest.mark.parametrize("base", [Control, Command, Struct])
def test_the_bases_alone_have_no_form(base: type[Any]) -> None:
    with pytest.raises(NotImplementedError):
        base().encode()
    with pytest.raises(NotImplementedError):
        base.decode(b"")
