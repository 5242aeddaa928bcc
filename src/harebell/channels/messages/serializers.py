"""Turns messages into bytes and back: msgpack or JSON, encrypted or not. Knows no AMQP.

A message is a dict of str to values that both contracts allow: str, bytes, int, float, bool, None, lists and dicts of
them. A body of another format, or encrypted with another key, raises Unreadable.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from harebell import errors
from harebell.client.callbacks import check_methods

__all__ = ["Serializer", "Unreadable", "serializer_of"]

SERIALIZERS: Final = "give msgpack, json, or an object with dumps(message), which gives bytes, and loads(body)"

BYTES: Final = "__bytes__"
MARK: Final = "~"

ChannelMessage = dict[str, Any]


class Unreadable(Exception):
    """A body is not in the layer's format, or is encrypted with another key."""


class Serializer(Protocol):
    """Turns messages into bytes and back; the setting `serializer` takes one."""

    def dumps(self, message: ChannelMessage) -> bytes: ...

    def loads(self, body: bytes) -> ChannelMessage: ...


class MessagePack:
    def __init__(self) -> None:
        try:
            import msgpack
        except ImportError:
            raise errors.InvalidArgument(
                "the msgpack serializer needs the package msgpack: pip install 'harebell[channels]', or say "
                'serializer="json"'
            ) from None
        self._packb: Callable[[ChannelMessage], bytes] = msgpack.packb
        self._unpackb = msgpack.unpackb

    def dumps(self, message: ChannelMessage) -> bytes:
        # No Packer is kept: a message may run code of its own, and another thread may write one meanwhile.
        return self._packb(message)

    def loads(self, body: bytes) -> ChannelMessage:
        return _dict_or_unreadable(self._unpackb(body, strict_map_key=False))


class Json:
    """Messages as JSON. Bytes, which JSON lacks, become {"__bytes__": base64}.

    A dict of the program's whose only key begins with that word has a "~" behind the key, which the reader removes.
    """

    def dumps(self, message: ChannelMessage) -> bytes:
        text = _json(message)
        if f'"{BYTES}' in text:  # seldom: only then may a dict look like bytes
            text = _json(_marked(message))
        return text.encode()

    def loads(self, body: bytes) -> ChannelMessage:
        return _dict_or_unreadable(json.loads(body, object_hook=_unmarked))


class Encrypted:
    """Encrypts another serializer's bytes with Fernet. The first key encrypts; all are tried for decrypting."""

    def __init__(self, inner: Serializer, keys: Sequence[str | bytes]) -> None:
        try:
            from cryptography.fernet import Fernet, InvalidToken, MultiFernet
        except ImportError:
            raise errors.InvalidArgument(
                "symmetric_encryption_keys needs the package cryptography: pip install 'harebell[channels]'"
            ) from None
        fernets = []
        for key in keys:
            raw = key.encode() if isinstance(key, str) else key
            fernets.append(Fernet(base64.urlsafe_b64encode(hashlib.sha256(raw).digest())))
        self._inner, self._fernet, self._invalid = inner, MultiFernet(fernets), InvalidToken

    def dumps(self, message: ChannelMessage) -> bytes:
        return self._fernet.encrypt(_bytes_of(self._inner, message))

    def loads(self, body: bytes) -> ChannelMessage:
        try:
            return self._inner.loads(self._fernet.decrypt(body))
        except self._invalid:
            raise Unreadable("it was encrypted with another key, or not at all") from None


class Checked:
    """Wraps any serializer so that it raises Unreadable when reading fails and TypeError when writing fails."""

    def __init__(self, inner: Serializer) -> None:
        self._inner = inner

    def dumps(self, message: ChannelMessage) -> bytes:
        try:
            return _bytes_of(self._inner, message)
        except (TypeError, ValueError, OverflowError) as error:
            raise TypeError(f"the message cannot be written: {error}; it has {sorted(map(str, message))}") from error

    def loads(self, body: bytes) -> ChannelMessage:
        try:
            return self._inner.loads(body)
        except Unreadable:
            raise
        except Exception as error:  # of any library: all mean the same
            raise Unreadable(f"{type(error).__name__}: {error}") from error


def serializer_of(serializer: str | Serializer, keys: Sequence[str | bytes] | None) -> Checked:
    """The serializer of that name ("msgpack", "json"), or the object given; encrypted with the keys, if any."""
    inner: Serializer
    _check_keys(keys)
    if not isinstance(serializer, str):
        check_methods("serializer", serializer, {"dumps": "message", "loads": "body"}, SERIALIZERS)
        inner = serializer
    elif serializer == "msgpack":
        inner = MessagePack()
    elif serializer == "json":
        inner = Json()
    else:
        raise errors.InvalidArgument(f"serializer={serializer!r}: msgpack, json, or an object with dumps and loads")
    return Checked(Encrypted(inner, keys) if keys else inner)


def _check_keys(keys: object) -> None:
    """No key is told in the text of an error."""
    if keys is None:
        return
    if isinstance(keys, str | bytes) or not isinstance(keys, Sequence):
        raise errors.InvalidArgument(
            f"symmetric_encryption_keys is one {type(keys).__name__}: a list of keys is needed, of str or bytes"
        )
    for number, key in enumerate(keys):
        if not isinstance(key, str | bytes) or not key:
            found = f"a {type(key).__name__}" if not isinstance(key, str | bytes) else "empty"
            hint = " (is a setting or an environment variable missing?)" if not key else ""
            raise errors.InvalidArgument(
                f"symmetric_encryption_keys[{number}] is {found}{hint}: a key is needed, as str or bytes"
            )


def _bytes_of(serializer: Serializer, message: ChannelMessage) -> bytes:
    """What it writes. TypeError for what is no bytes: it is told to the sender, and nothing is sent."""
    body: object = serializer.dumps(message)
    if not isinstance(body, bytes):
        raise TypeError(f"the serializer's dumps gave a {type(body).__name__}, and bytes are needed")
    return body


def _dict_or_unreadable(value: object) -> ChannelMessage:
    if not isinstance(value, dict):
        raise Unreadable(f"a {type(value).__name__} instead of a dict")
    return value


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), default=_bytes_out)


def _bytes_out(value: object) -> object:
    if isinstance(value, bytes | bytearray | memoryview):
        return {BYTES: base64.b64encode(value).decode()}
    raise TypeError(f"a {type(value).__name__} is no part of a message")


def _marked(value: object) -> object:
    """The same, with each dict marked that would be read as bytes, or as a marked one."""
    if isinstance(value, list | tuple):
        return [_marked(item) for item in value]
    if not isinstance(value, dict):
        return value
    marked = {key: _marked(item) for key, item in value.items()}
    key = _only_key(marked)
    return {key + MARK: marked[key]} if key.startswith(BYTES) else marked


def _unmarked(value: dict[str, Any]) -> object:
    """What a dict stands for that was read."""
    key = _only_key(value)
    if key == BYTES:
        return base64.b64decode(value[key])
    if key.startswith(BYTES) and key.endswith(MARK):
        return {key.removesuffix(MARK): value[key]}
    return value


def _only_key(value: dict[Any, Any]) -> str:
    """The only key of a dict; "" when it has others, or none of str."""
    if len(value) != 1:
        return ""
    (key,) = value
    return key if isinstance(key, str) else ""
