"""What a client's protocol header is answered with by a server that does not speak that dialect, or no AMQP at all."""

from __future__ import annotations

from typing import Final

__all__ = ["LEAST", "foreign"]

LEAST: Final = 7  # octets to know it by: an alert of TLS has no more (RFC 8446, 5.1 and 6)


def foreign(dialect: str, answer: bytes) -> str:
    """The text of an error about such an answer, of LEAST octets or more: what it was, and what to do."""
    said = f"the server does not speak AMQP {dialect}; it answered {answer[: 8 if answer[:4] == b'AMQP' else LEAST]!r}"
    if answer.startswith(b"\x15\x03"):
        return f"{said}: it wants TLS, use amqps://"
    return f"{said}: a web server" if answer.startswith((b"HTTP/", b"<")) else said
