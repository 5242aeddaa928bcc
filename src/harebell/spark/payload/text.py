"""Bodies as a text column, each in its charset."""

from __future__ import annotations

import pyarrow as pa

from harebell.spark.payload.content import UTF8, Content, Unreadable, decoded

__all__ = ["text_column"]


def text_column(content: Content) -> pa.Array:
    """The column, null where a body is not text in its charset; the reasons are added to the content's."""
    charsets = content.charsets
    if charsets == UTF8:
        try:
            return pa.array(content.bodies, pa.binary()).cast(pa.string())  # checks all of it at once
        except pa.ArrowInvalid:
            pass
    texts: list[str | None] = []
    for row, body in enumerate(content.bodies):
        text = None
        if body is not None:
            try:
                text = decoded(body, charsets if isinstance(charsets, str) else charsets[row])
                text.encode()  # UTF-16 and UTF-7 may hold what no text column does
            except Unreadable as error:
                content.reasons[row] = str(error)
            except UnicodeEncodeError as error:
                text, content.reasons[row] = None, f"not text: {error.reason}"
        texts.append(text)
    return pa.array(texts, pa.string())
