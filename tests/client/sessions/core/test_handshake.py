"""The opening of AMQP 0-10 between two engines: ours in the client's role, one in the server's."""

from __future__ import annotations

import pytest

from harebell import errors
from harebell.client.sessions.core.handshake import Handshake, close_error
from harebell.client.url import ConnectionParameters
from harebell.protocol.v010 import Control, Engine, Role, controls as k


class Opening:
    def __init__(self, **wishes: object) -> None:
        self.client, self.server = Engine(Role.CLIENT), Engine(Role.SERVER)
        self.handshake = Handshake(self.client, ConnectionParameters(**wishes))  # type: ignore[arg-type]
        self.handshake.start()
        self.server.receive_data(self.client.data_to_send())

    def say(self, control: Control) -> list[Control]:
        """What the client answers."""
        self.server.send_control(0, control)
        self.client.receive_data(self.server.data_to_send())
        for _, event in self.client.events():
            assert isinstance(event, Control)
            self.handshake.receive(event)
        self.server.receive_data(self.client.data_to_send())
        return [event for _, event in self.server.events() if isinstance(event, Control)]

    def start(self, *mechanisms: str) -> k.ConnectionStartOk:
        (answer,) = self.say(k.ConnectionStart({"product": "P"}, list(mechanisms) or ["PLAIN"], ["en_US"]))
        assert isinstance(answer, k.ConnectionStartOk)
        return answer

    def tune(self, tune: k.ConnectionTune) -> k.ConnectionTuneOk:
        self.start()
        answer, opening = self.say(tune)
        assert isinstance(answer, k.ConnectionTuneOk)
        assert isinstance(opening, k.ConnectionOpen)
        assert opening.virtual_host == "v"
        return answer


def test_the_whole_of_it() -> None:
    opening = Opening(vhost="v")
    opening.tune(k.ConnectionTune(2047, 65_535, 0, 120))
    assert not opening.handshake.done
    assert opening.say(k.ConnectionOpenOk()) == []
    assert (opening.handshake.done, opening.handshake.stage) == (True, "open")
    assert opening.handshake.server_properties == {"product": "P"}


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        ("PLAIN", "\0ü\0p".encode()),
        ("AMQPLAIN", b"\x05LOGINS\0\0\0\x02\xc3\xbc\x08PASSWORDS\0\0\0\x01p"),
        ("EXTERNAL", b""),
        ("ANONYMOUS", b"anonymous"),
    ],
)
def test_mechanisms(mechanism: str, response: bytes) -> None:
    answer = Opening(username="ü", password="p", mechanisms=(mechanism,)).start("OTHER", mechanism)
    assert (answer.mechanism, answer.response) == (mechanism, response)


def test_no_common_mechanism() -> None:
    with pytest.raises(errors.AccessRefused, match="offers GSSAPI, asked for is PLAIN, AMQPLAIN"):
        Opening().start("GSSAPI")


def test_its_name() -> None:
    properties = Opening(name="my program").start().client_properties or {}
    assert properties["connection_name"] == "my program"
    assert "connection_name" not in (Opening().start().client_properties or {})


def test_required_fields() -> None:
    properties = Opening().start().client_properties or {}
    assert {"product", "version", "platform", "copyright", "information"} <= set(properties)


def test_what_the_program_adds() -> None:
    properties = Opening(client_properties={"product": "Mine", "team": "orders"}).start().client_properties or {}
    assert (properties["product"], properties["team"]) == ("Mine", "orders")
    assert "version" in properties
    assert Opening().start().locale == "en_US"
    with pytest.raises(errors.LocalProtocolError, match="no locale 'de_DE': it offers en_US"):
        Opening(locale="de_DE").start()


@pytest.mark.parametrize(
    ("theirs", "wishes", "agreed"),
    [
        ((2047, 65_535, 0, 120), {"heartbeat": 60}, (2047, 65_535, 60)),
        ((2047, 65_535, 0, 120), {"heartbeat": 500}, (2047, 65_535, 120)),
        ((2047, 65_535, 20, 120), {"heartbeat": 5}, (2047, 65_535, 20)),
        ((2047, 65_535, 0, 120), {"heartbeat": 0}, (2047, 65_535, 120)),
        ((None, None, None, None), {"heartbeat": 0, "channel_max": 0, "frame_max": 0}, (None, 65_535, None)),
        ((None, None, None, None), {"heartbeat": 7, "channel_max": 9, "frame_max": 5000}, (9, 5000, 7)),
        ((3, 4096, 0, 0), {"heartbeat": 7}, (3, 4096, 7)),
    ],
)
def test_tuning(
    theirs: tuple[int | None, int | None, int | None, int | None],
    wishes: dict[str, int],
    agreed: tuple[int | None, int | None, int | None],
) -> None:
    opening = Opening(vhost="v", **wishes)
    answer = opening.tune(k.ConnectionTune(*theirs))
    assert (answer.channel_max, answer.max_frame_size, answer.heartbeat) == agreed
    assert opening.handshake.heartbeat == (agreed[2] or 0)


def test_a_second_step_is_refused() -> None:
    opening = Opening()
    opening.start()
    with pytest.raises(errors.AccessRefused, match="second login step"):
        opening.say(k.ConnectionSecure(b"?"))


def test_a_redirect_is_told() -> None:
    opening = Opening(vhost="v")
    opening.tune(k.ConnectionTune())
    with pytest.raises(errors.ConnectionForced, match=r"elsewhere\.example"):
        opening.say(k.ConnectionRedirect("elsewhere.example"))


def test_refusals() -> None:
    opening = Opening()
    opening.start()
    with pytest.raises(errors.AccessRefused, match="no") as caught:
        opening.say(k.ConnectionClose(320, "no"))
    assert "logging in" in caught.value.__notes__[0]
    assert opening.handshake.lost_reason() == ""
    assert "wants TLS" in Opening().handshake.lost_reason()
    assert "TLS" not in Opening(tls=True).handshake.lost_reason()


@pytest.mark.parametrize(
    ("code", "text", "kind", "detail"),
    [
        (320, "ACCESS_REFUSED - Login was refused", errors.AccessRefused, "Login was refused"),
        (320, "NOT_ALLOWED - vhost", errors.NotAllowed, "vhost"),
        (320, "CONNECTION_FORCED - shutdown", errors.ConnectionForced, "shutdown"),
        (320, "bye", errors.ConnectionForced, "bye"),
        (402, "INVALID_PATH - none", errors.InvalidPath, "none"),
        (501, "", errors.FrameError, ""),
        (200, "done", errors.ConnectionError, "done"),
    ],
)
def test_codes_of_close(code: int, text: str, kind: type[errors.AmqpError], detail: str) -> None:
    error = close_error(k.ConnectionClose(code, text))
    assert (type(error), error.detail) == (kind, detail)
