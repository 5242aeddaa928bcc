"""The files of the console, read once, and the answers to requests for them.

Rules:

- "/" is the page. It names its files by paths with a hash of all of them, /console/HASH/..., which browsers may keep
  for ever; the page itself they ask for each time, and have it unless it changed.
- A file below another hash is the one of today: a page that was opened before an update may still need a part. It is
  not kept.
- No request reads the disk: a path that no file has is not the console's.
- The page may load, run and connect to nothing but this server, and runs no script or style that is not a file.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

from harebell.admin.answers import Answer

__all__ = ["POLICY", "Files"]

WEB: Final = Path(__file__).parent / "web"
PAGE: Final = "index.html"
PLACE: Final = "/console/"
HASH: Final = 16  # characters
MEDIA: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
TAG: Final = re.compile(r'"[^"]*"')
FOR_EVER: Final = "public, max-age=31536000, immutable"
VARY: Final = "accept-encoding"


class _File(NamedTuple):
    media: str
    plain: bytes
    packed: bytes


class Files:
    """The console's files in a folder; they are read at the first request."""

    def __init__(self, folder: Path = WEB) -> None:
        self._folder = folder

    @cached_property
    def _contents(self) -> Mapping[str, bytes]:
        paths = sorted(path for path in self._folder.rglob("*") if path.is_file() and path.suffix in MEDIA)
        return {path.relative_to(self._folder).as_posix(): path.read_bytes() for path in paths}

    @cached_property
    def hash(self) -> str:
        """The hash of all files."""
        digest = hashlib.sha256()
        for name, content in self._contents.items():
            digest.update(hashlib.sha256(name.encode()).digest() + hashlib.sha256(content).digest())
        return digest.hexdigest()[:HASH]

    @cached_property
    def _files(self) -> Mapping[str, _File]:
        found = {name: _file(name, content) for name, content in self._contents.items()}
        page = self._contents[PAGE].replace(b'"@/', f'"{PLACE[1:]}{self.hash}/'.encode())
        return {**found, PAGE: _file(PAGE, page)}

    def answer(self, method: str, path: bytes, headers: Mapping[str, str]) -> Answer | None:
        """The answer to a request for a raw path; None for one that is not the console's."""
        if method not in ("GET", "HEAD"):
            return None
        if path == b"/":
            return self._page(headers)
        if not path.startswith(PLACE.encode()):
            return None
        hash_, _, name = path[len(PLACE) :].decode("ascii", "replace").partition("/")
        file = self._files.get(name)
        if file is None or name == PAGE:
            return None
        return _answer(file, headers, {"cache-control": FOR_EVER if hash_ == self.hash else "no-store"})

    def _page(self, headers: Mapping[str, str]) -> Answer:
        tag = f'"{self.hash}"'
        about = {"cache-control": "no-cache", "etag": tag, "content-security-policy": POLICY}
        if _has(headers.get("if-none-match", ""), tag):
            return Answer(304, headers={**about, "vary": VARY})
        return _answer(self._files[PAGE], headers, about)


def _has(header: str, tag: str) -> bool:
    """Whether If-None-Match names the tag: among others, as a weak one, or as any (RFC 9110, 13.1.2)."""
    return header.strip() == "*" or tag in TAG.findall(header)


def _file(name: str, content: bytes) -> _File:
    return _File(MEDIA[Path(name).suffix], content, gzip.compress(content, 9, mtime=0))


def _answer(file: _File, headers: Mapping[str, str], about: Mapping[str, str]) -> Answer:
    if "gzip" in headers.get("accept-encoding", ""):
        packed = {"content-encoding": "gzip", "vary": VARY}
        return Answer(200, (file.packed,), media=file.media, headers={**about, **packed})
    return Answer(200, (file.plain,), media=file.media, headers={**about, "vary": VARY})
