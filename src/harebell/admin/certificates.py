"""When a certificate ends: the one fact of X.509 that a health check needs, read from its DER (X.690).

A certificate is a sequence whose first part is a sequence too: version (in [0], may be missing), serial number,
algorithm, issuer, validity; the validity is a sequence of two times.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

__all__ = ["expires_at"]

BEGIN: Final = "-----BEGIN CERTIFICATE-----"
END: Final = "-----END CERTIFICATE-----"
VERSION: Final = 0xA0
UTC_TIME: Final = 0x17
FORMS: Final = {UTC_TIME: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}


def expires_at(file: Path) -> float | None:
    """The end of the first certificate in a PEM file, in seconds since 1970; None when it cannot be read."""
    try:
        text = file.read_text("ascii", "replace")
        start = text.index(BEGIN)
        pem = text[start : text.index(END, start) + len(END)]
        (_, certificate), *_ = _parts(ssl.PEM_cert_to_DER_cert(pem))
        (_, signed), *_ = _parts(certificate)
        parts = [value for tag, value in _parts(signed) if tag != VERSION]
        tag, ends = list(_parts(parts[3]))[1]
        return datetime.strptime(ends.decode("ascii"), FORMS[tag]).replace(tzinfo=UTC).timestamp()
    except (OSError, ValueError, IndexError, KeyError):
        return None


def _parts(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The elements one after the other: tag and content. IndexError for what ends too early."""
    at = 0
    while at < len(data):
        tag, size = data[at], data[at + 1]
        at += 2
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[at : at + count], "big")
            at += count
        if at + size > len(data):
            raise IndexError
        yield tag, data[at : at + size]
        at += size
