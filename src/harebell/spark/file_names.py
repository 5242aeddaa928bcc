"""Names of files and folders made of AMQP's names: any name gives one that a file system takes, no two the same."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final
from urllib.parse import quote

__all__ = ["file_name"]

LONGEST: Final = 200  # a name has up to 255 bytes, and quoting may triple them; a file's name has 255, with its ending
KEPT: Final = 160  # characters of a longer one


def file_name(name: str) -> str:
    """The name, quoted as in a URL; of a long one the beginning, and a digest of the whole.

    It is neither "." nor "..", and no hidden file. "+" is in no quoted name.
    """
    quoted = quote(name, safe="")
    if quoted.startswith("."):
        quoted = "%2E" + quoted[1:]
    if len(quoted) > LONGEST:
        quoted = f"{quoted[:KEPT]}+{blake2b(name.encode(), digest_size=8).hexdigest()}"
    return quoted
