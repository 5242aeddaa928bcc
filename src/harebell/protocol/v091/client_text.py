"""The short strings of a client's methods have to be UTF-8: names, keys, tags and reply texts.

RabbitMQ's rule (3.10, probed): such a method ends the connection with 501. It does not hold for basic.publish, whose
exchange and routing key are any bytes, nor for properties, and the keys and values of tables: these are a publisher's,
and go on to consumers as they came (`fields`). What a broker sends may thus hold any bytes, so a client checks nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from harebell import errors
from harebell.protocol.v091 import methods as m
from harebell.protocol.v091.codec import decode_method

__all__ = ["CHECKED", "checked_decode", "decode_client_method"]

CHECKED: Final = {
    cls: names for cls, names in m.SHORT_STRINGS.items() if cls in m.CLIENT_SENDS and cls is not m.BasicPublish
}
"""The short strings that are checked, by method."""


def decode_client_method(payload: bytes, channel: int = 0) -> m.Method:
    """As `codec.decode_method`, and RemoteProtocolError (501) for a short string that is not UTF-8."""
    method = decode_method(payload, channel)
    _check(method, CHECKED.get(type(method), ()))
    return method


def checked_decode(cls: type[m.Method]) -> Callable[[bytes], m.Method]:
    """The decoding of one method on a channel: the bare one where there is nothing to check."""
    names = CHECKED.get(cls)
    if names is None:
        return cls.decode

    def decode(payload: bytes) -> m.Method:
        method = cls.decode(payload)
        _check(method, names)
        return method

    return decode


def _check(method: m.Method, names: tuple[str, ...]) -> None:
    for name in names:
        text: str = getattr(method, name)
        if not text.isascii() and not _is_utf8(text):
            ids = (method.CLASS_ID, method.METHOD_ID) if method.CLASS_ID == m.ConnectionOpen.CLASS_ID else (0, 0)
            raise errors.RemoteProtocolError(errors.FrameError, "Malformed UTF-8 in shortstr", *ids)


def _is_utf8(text: str) -> bool:
    """Whether the text was read from UTF-8, which makes no surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
