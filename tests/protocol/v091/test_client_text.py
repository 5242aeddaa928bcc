"""Every short string of every method with bytes that are not UTF-8: 501 from a client, taken from a server."""

from __future__ import annotations

from typing import Any

import pytest

from harebell.errors import RemoteProtocolError
from harebell.protocol.v091 import Content, Properties, methods as m
from harebell.protocol.v091.client_text import CHECKED, decode_client_method
from harebell.protocol.v091.codec import decode_method, encode_method
from tests.protocol.v091.samples import opened

BAD, GOOD = "a\udcff", "ä\U0001f426"
TEXTS = [(cls, name) for cls, names in m.SHORT_STRINGS.items() for name in names]
LEAST: dict[str, object] = {"str": "", "bytes": b"", "int": 0, "bool": False}


def made(cls: type[m.Method], **given: object) -> m.Method:
    """The method with these fields; the others have the least value of their type."""
    kinds = {name: kind for name, kind in cls.__init__.__annotations__.items() if name != "return"}
    make: Any = cls
    method: m.Method = make(**{name: given.get(name, LEAST.get(kind)) for name, kind in kinds.items()})
    return method


def channel_of(cls: type[m.Method]) -> int:
    return 0 if cls.CLASS_ID == m.ConnectionOpen.CLASS_ID else 1


@pytest.mark.parametrize("cls, name", [
    pytest.param(cls, name, id=f"{cls.NAME} {name}")
    for cls, name in TEXTS if cls in m.CLIENT_SENDS and cls is not m.BasicPublish
])  # fmt: skip
def test_text_of_a_client(cls: type[m.Method], name: str) -> None:
    channel = channel_of(cls)
    _, server = opened(1)
    with pytest.raises(RemoteProtocolError) as caught:
        server.receive_data(encode_method(channel, made(cls, **{name: BAD})))
    assert (caught.value.reply_code, caught.value.reply_text) == (501, "FRAME_ERROR - Malformed UTF-8 in shortstr")
    ids = (cls.CLASS_ID, cls.METHOD_ID) if channel == 0 else (0, 0)
    assert (caught.value.answer.class_id, caught.value.answer.method_id) == ids
    good = made(cls, **{name: GOOD})
    assert decode_client_method(good.encode(), channel) == good
    if cls.CLASS_ID not in (10, 20):  # whatever the state of the connection and the channel is
        _, server = opened(1)
        server.receive_data(encode_method(channel, good))
        assert server.events() == [(channel, good)]


@pytest.mark.parametrize("cls, name", [
    pytest.param(*each, id=f"{each[0].NAME} {each[1]}") for each in TEXTS if each[0] in m.SERVER_SENDS
])  # fmt: skip
def test_text_of_a_server(cls: type[m.Method], name: str) -> None:
    """A broker says what publishers and others have said to it."""
    method = made(cls, **{name: BAD})
    assert decode_method(method.encode()) == method
    client, _ = opened(1)
    client.receive_data(encode_method(channel_of(cls), method))
    assert client.events() in ([(channel_of(cls), method)], [])  # a message is complete with its content only


def test_a_publication_is_any_bytes() -> None:
    client, server = opened(1)
    sent = m.BasicPublish(BAD, BAD)
    names = ("content_type", "reply_to", "correlation_id", "message_id", "type", "app_id", "user_id", "expiration")
    properties = Properties(**dict.fromkeys(names, BAD), headers={BAD: b"\xff"})  # type: ignore[arg-type]
    client.send_content(1, sent, properties, b"")
    server.receive_data(client.data_to_send())
    ((_, content),) = server.events()
    assert isinstance(content, Content)
    assert content.decode_method() == sent
    assert content.decode_properties() == properties


def test_tables_of_a_client_are_any_bytes() -> None:
    method = m.QueueDeclare("q", arguments={BAD: 1, "x": b"\xff"})
    assert decode_client_method(method.encode(), 1) == method


def test_every_method_of_a_client_but_one_is_checked() -> None:
    assert set(CHECKED) == {cls for cls, _ in TEXTS if cls in m.CLIENT_SENDS} - {m.BasicPublish}
