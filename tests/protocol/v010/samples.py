"""Engines in a known state, and bytes written down by hand from the specification's layout of a frame."""

from __future__ import annotations

from harebell.protocol.v010 import Command, Control, Engine, Event, Role, controls as k

NAME = b"orders"


def frame(flags: int, kind: int, payload: bytes = b"", *, track: int = 1, channel: int = 1, size: int = 0) -> bytes:
    """One frame: flags, type, size, 0, track, channel, 4 octets of 0, payload."""
    head = bytes([flags, kind]) + (size or 12 + len(payload)).to_bytes(2, "big") + bytes([0, track])
    return head + channel.to_bytes(2, "big") + bytes(4) + payload


def control(value: Control, channel: int = 1) -> bytes:
    return frame(0x0F, 0, value.encode(), track=0, channel=channel)


def command(value: Command, channel: int = 1) -> bytes:
    return frame(0x0F, 1, value.encode(), channel=channel)


def opened(
    channel_max: int = 100, max_frame_size: int = 65_535, max_message_size: int = 1 << 27
) -> tuple[Engine, Engine]:
    """A client's and a server's engine, with the connection open between them."""
    client = Engine(Role.CLIENT, max_message_size=max_message_size)
    server = Engine(Role.SERVER, max_message_size=max_message_size)
    client.send_header()
    pass_on(client, server)
    steps: list[tuple[Engine, Engine, Control]] = [
        (server, client, k.ConnectionStart({"product": "test"}, ["PLAIN"], ["en_US"])),
        (client, server, k.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest", "en_US")),
        (server, client, k.ConnectionTune(channel_max, max_frame_size, 0, 120)),
        (client, server, k.ConnectionTuneOk(channel_max, max_frame_size, 0)),
        (client, server, k.ConnectionOpen("/")),
        (server, client, k.ConnectionOpenOk()),
    ]
    for speaker, listener, said in steps:
        speaker.send_control(0, said)
        assert pass_on(speaker, listener) == [(0, said)]
    return client, server


def attached(**limits: int) -> tuple[Engine, Engine]:
    """The same, with a session on channel 1."""
    client, server = opened(**limits)
    client.send_control(1, k.SessionAttach(NAME))
    pass_on(client, server)
    server.send_control(1, k.SessionAttached(NAME))
    pass_on(server, client)
    return client, server


def pass_on(speaker: Engine, listener: Engine) -> list[Event]:
    listener.receive_data(speaker.data_to_send())
    return listener.events()
