"""From the path of a request to its endpoint, by the path's raw bytes: "%2F" is a part of a name, "/" is none.

Rules: a pattern is segments between slashes; one in braces takes any name, which is decoded from percent-encoded UTF-8.
A literal segment goes before a name. One slash at the end does not count. A path that only other methods have is told
from an unknown one, because the answer differs (405, 404). An octet FF at the start of a segment is no part of the
name: no UTF-8 has it, and browsers, which take "." and ".." out of a path, however they are written, leave "%FF.".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Generic, TypeVar
from urllib.parse import unquote_to_bytes

__all__ = ["BadPath", "Tree", "split", "without_authority"]

KEPT: Final = b"\xff"
_NO_OCTET: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")

T = TypeVar("T")


class BadPath(ValueError):
    """A path with a name that is no UTF-8, or with a percent sign that begins no octet."""


def without_authority(target: bytes) -> tuple[bytes, bytes | None]:
    """The path of a request's target, and the authority where it is a whole URL (RFC 9112, 3.2.2), else None."""
    scheme, separator, rest = target.partition(b"://")
    if not separator or scheme.lower() not in (b"http", b"https"):
        return target, None
    authority, slash, path = rest.partition(b"/")
    return slash + path or b"/", authority


def split(raw: bytes) -> list[str]:
    """The decoded segments of a raw path. Raises BadPath."""
    if _NO_OCTET.search(raw):  # RabbitMQ answers 400 too
        raise BadPath("a percent sign in the path is not followed by two hexadecimal digits: write %25 for it")
    try:
        segments = raw.split(b"/")[1:]
        if segments and not segments[-1]:
            segments.pop()
        return [unquote_to_bytes(segment).removeprefix(KEPT).decode() for segment in segments]
    except UnicodeDecodeError:
        raise BadPath("a name in the path is not UTF-8") from None


class _Branch(Generic[T]):
    __slots__ = ("leaves", "literal", "named")

    def __init__(self) -> None:
        self.literal: dict[str, _Branch[T]] = {}
        self.named: _Branch[T] | None = None
        self.leaves: dict[str, tuple[T, tuple[str, ...]]] = {}


class Tree(Generic[T]):
    """What stands behind patterns and methods: (method, pattern, what)."""

    def __init__(self, entries: Iterable[tuple[str, str, T]]) -> None:
        self._root = _Branch[T]()
        for method, pattern, what in entries:
            branch, names = self._root, list[str]()
            for segment in pattern.split("/")[1:]:
                if segment.startswith("{"):
                    names.append(segment[1:-1])
                    branch.named = branch.named or _Branch[T]()
                    branch = branch.named
                else:
                    branch = branch.literal.setdefault(segment, _Branch[T]())
            branch.leaves[method] = what, tuple(names)

    def find(self, method: str, segments: list[str]) -> tuple[T, Mapping[str, str]] | frozenset[str]:
        """What is there, and the names in the path by those in the pattern; or the methods that the path has: none
        means that it is unknown.
        """
        methods = set[str]()
        for branch, values in _ways(self._root, segments, 0, []):
            found = branch.leaves.get(method)
            if found is not None:
                what, names = found
                return what, dict(zip(names, values, strict=True))
            methods |= branch.leaves.keys()
        return frozenset(methods)


def _ways(branch: _Branch[T], segments: list[str], at: int, names: list[str]) -> Iterator[tuple[_Branch[T], list[str]]]:
    if at == len(segments):
        if branch.leaves:
            yield branch, names
        return
    literal = branch.literal.get(segments[at])
    if literal is not None:
        yield from _ways(literal, segments, at + 1, names)
    if branch.named is not None:
        yield from _ways(branch.named, segments, at + 1, [*names, segments[at]])
