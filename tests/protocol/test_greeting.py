"""Servers that answer a client's protocol header with something else, to both engines, in one piece and in any two."""

from __future__ import annotations

import pytest

from harebell import errors
from harebell.protocol import v010, v091
from harebell.protocol.roles import Role

ENGINES: dict[str, type[v091.Engine] | type[v010.Engine]] = {"0-9-1": v091.Engine, "0-10": v010.Engine}
ANSWERS = [
    (b"\x15\x03\x01\x00\x02\x02\x46", "b'\\x15\\x03\\x01\\x00\\x02\\x02F': it wants TLS, use amqps://"),
    (b"\x15\x03\x03\x00\x02\x02\x0a", "b'\\x15\\x03\\x03\\x00\\x02\\x02\\n': it wants TLS, use amqps://"),
    (b"HTTP/1.0 400 Bad Request", "b'HTTP/1.': a web server"),
    (b"<!DOCTYPE html>", "b'<!DOCTY': a web server"),
    (b"SSH-2.0-OpenSSH_9.2\r\n", "b'SSH-2.0'"),
    (b"220 mail ESMTP\r\n", "b'220 mai'"),
    (b"-ERR unknown command\r\n", "b'-ERR un'"),
    (b"A patchy server", "b'A patch'"),
    (b"AMQP\x03\x01\x00\x00", "b'AMQP\\x03\\x01\\x00\\x00'"),
]
OTHERS = {"0-9-1": b"AMQP\x01\x01\x00\x0a", "0-10": b"AMQP\x00\x00\x09\x01"}


@pytest.mark.parametrize("dialect", ENGINES)
@pytest.mark.parametrize("answer, said", ANSWERS, ids=[str(answer) for answer, _ in ANSWERS])
def test_a_server_of_another_protocol(dialect: str, answer: bytes, said: str) -> None:
    for cut in range(len(answer)):
        client = ENGINES[dialect](Role.CLIENT)
        client.send_header()
        client.data_to_send()
        with pytest.raises(errors.RemoteProtocolError) as caught:
            for piece in (answer[:cut], answer[cut:]):
                client.receive_data(piece)
        assert caught.value.answer.detail == f"the server does not speak AMQP {dialect}; it answered {said}"
        assert caught.value.reply_code == 540
        client.receive_data(b"more")
        assert (client.events(), client.data_to_send()) == ([], b"")


@pytest.mark.parametrize("dialect", ENGINES)
def test_a_server_of_the_other_dialect(dialect: str) -> None:
    client = ENGINES[dialect](Role.CLIENT)
    client.send_header()
    with pytest.raises(errors.RemoteProtocolError) as caught:
        client.receive_data(OTHERS[dialect])
    assert caught.value.answer.detail.endswith(f"does not speak AMQP {dialect}; it answered {OTHERS[dialect]!r}")
