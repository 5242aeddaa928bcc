"""When a certificate ends."""

from __future__ import annotations

import ssl
from pathlib import Path

__all__ = ["expires_at"]


def expires_at(file: Path) -> float | None:
    """The end of the first certificate in a PEM file, in seconds since 1970; None when it cannot be read."""
    try:
        # The standard library's only way to read a certificate that no connection has shown.
        found = ssl._ssl._test_decode_cert(str(file))  # type: ignore[attr-defined]
        return ssl.cert_time_to_seconds(found["notAfter"])
    except (AttributeError, KeyError, OSError, ValueError):
        return None
