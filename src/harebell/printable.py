"""Text of a peer in one line that a log, a terminal or an error text can show.

What is not printable (controls, line ends, marks that change the direction of writing, halves of characters) is written
as an escape of Python, so that nobody can begin a line, hide a part or steer a terminal. Long text is cut.
"""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str, most: int) -> str:
    """The text with escapes, in at most `most` characters; "..." at the end says that something was cut."""
    if len(text) <= most and text.isprintable():
        return text
    shown = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text[: most + 1])
    return shown if len(shown) <= most and len(text) <= most else f"{shown[: most - 3]}..."
