from __future__ import annotations

import gzip
import warnings
import zlib
from encodings.aliases import aliases

import pyarrow as pa
import pytest
from hypothesis import example, given, strategies as st

from harebell.spark.options.payload import PayloadOptions
from harebell.spark.payload import content as module
from harebell.spark.payload.content import Content, contents, is_charset
from harebell.spark.payload.text import text_column


def gzipped(data: bytes) -> bytes:
    """Without the time in it: parameters of tests must not change."""
    return gzip.compress(data, mtime=0)


TEXT = "Grüße"
UTF8 = TEXT.encode()
LATIN = TEXT.encode("latin-1")
BARE = zlib.compressobj(wbits=-15)
BARE_DEFLATE = BARE.compress(UTF8) + BARE.flush()


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def read(
    bodies: list[bytes],
    encodings: list[str | None] | None = None,
    types: list[str | None] | None = None,
    options: PayloadOptions | None = None,
) -> tuple[list[str | None], Content]:
    columns = {"body": pa.array(bodies, pa.binary())}
    if encodings is not None:
        columns["content_encoding"] = pa.array(encodings, pa.string())
    if types is not None:
        columns["content_type"] = pa.array(types, pa.string())
    content = contents(pa.RecordBatch.from_pydict(columns), options or PayloadOptions("text"))
    return text_column(content).to_pylist(), content


@pytest.mark.parametrize(
    "encoding, body",
    [
        (None, UTF8),
        ("", UTF8),
        ("identity", UTF8),
        ("binary", UTF8),
        ("utf-8", UTF8),
        ("us-ascii", UTF8),  # which UTF-8 contains: nothing is gained by refusing
        ("ISO-8859-1", LATIN),
        ("gzip", gzipped(UTF8)),
        ("x-gzip", gzipped(UTF8[:3]) + gzipped(UTF8[3:])),
        ("GZIP", gzipped(UTF8)),
        ("deflate", zlib.compress(UTF8)),
        ("deflate", BARE_DEFLATE),
        ("zstd", zstd(UTF8)),
        ("latin-1, gzip", gzipped(LATIN)),
        ("deflate, gzip", gzipped(zlib.compress(UTF8))),
    ],
)
def test_what_content_encoding_says(encoding: str | None, body: bytes) -> None:
    assert read([body, body], [encoding, encoding])[0] == [TEXT, TEXT]
    assert read([body, UTF8], [encoding, None])[0] == [TEXT, TEXT]


@pytest.mark.parametrize(
    "content_type, body",
    [
        ("text/plain", UTF8),
        ("text/plain; charset=UTF-8", UTF8),
        ('text/plain; format=flowed; Charset="iso-8859-1"', LATIN),
        ("text/plain; charset=", UTF8),
        ("text/plain; charset=utf-16", TEXT.encode("utf-16")),
    ],
)
def test_what_content_type_says(content_type: str, body: bytes) -> None:
    assert read([body], ["latin-1"] if body == LATIN else [None], [content_type])[0] == [TEXT]
    assert read([body, UTF8], None, [content_type, None])[0] == [TEXT, TEXT]


@pytest.mark.parametrize(
    "encoding, content_type, body, reason",
    [
        (None, None, b"ab\xff", "not utf-8 text: invalid start byte at byte 2"),
        ("br", None, b"", "content_encoding 'br' is not known (known: gzip, deflate, zstd, identity and charsets)"),
        (
            "base64",
            None,
            b"",
            "content_encoding 'base64' is not known (known: gzip, deflate, zstd, identity and charsets)",
        ),
        (None, "text/plain; charset=klingon", b"", "charset 'klingon' of the content_type is not known"),
        ("gzip", None, b"", "not gzip: empty"),
        ("gzip", None, b"plain", "not gzip: Error -3 while decompressing data: incorrect header check"),
        ("gzip", None, gzipped(UTF8)[:-3], "not gzip: it ends too early"),
        ("deflate", None, b"plain", "not deflate: Error -3 while decompressing data: incorrect header check"),
        ("deflate", None, zlib.compress(UTF8) + b"??", "not deflate: 2 bytes after its end"),
        (None, "text/plain; charset=utf-16", b"\x00\xd8", "not utf-16 text: unexpected end of data at byte 0"),
        (None, "text/plain; charset=utf-7", b"+2AA-", "not text: surrogates not allowed"),
    ],
)
def test_bodies_that_cannot_be_read(encoding: str | None, content_type: str | None, body: bytes, reason: str) -> None:
    texts, content = read([UTF8, body], [None, encoding], [None, content_type])
    assert texts == [TEXT, None]
    assert content.reasons == {1: reason}


def test_damaged_zstd() -> None:
    texts, content = read([b"plain", zstd(UTF8)[:-3]], ["zstd", "zstd"])
    assert texts == [None, None]
    assert all(reason.startswith("not zstd: ") for reason in content.reasons.values())


@pytest.mark.parametrize(
    "encoding, body",
    [("gzip", gzipped(b"x" * 60) * 2), ("deflate", zlib.compress(b"x" * 101)), ("zstd", zstd(b"x" * 101))],
)
def test_a_small_message_does_not_become_a_large_one(
    encoding: str, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_INFLATED", 100)
    assert read([body], [encoding])[1].reasons == {0: "inflates to more than 100 bytes"}


def test_options_overrule_the_message() -> None:
    assert read([gzipped(UTF8)], [None], None, PayloadOptions("text", compression="gzip"))[0] == [TEXT]
    assert read([UTF8], ["gzip"], None, PayloadOptions("text", compression="none"))[0] == [TEXT]
    assert read([UTF8], ["br"], None, PayloadOptions("text", compression="none"))[0] == [TEXT]
    assert read([LATIN], ["utf-8"], ["text/plain; charset=utf-8"], PayloadOptions("text", charset="latin-1"))[0] == [
        TEXT
    ]


CHARSETS = sorted({name for name in aliases.values() if is_charset(name)} | {"idna", "punycode", "undefined"})


@given(st.sampled_from(CHARSETS), st.binary(max_size=20))
@example("punycode", b"abc-9")
@example("idna", b"xn--a")
@example("undefined", b"a")
def test_whatever_bytes_a_charset_gets_the_row_is_read_or_named(charset: str, body: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # unicode_escape's
        (text, other), content = read([body, b"x"], types=[f"text/plain; charset={charset}", "text/plain"])
    assert other == "x"
    assert (text is None) == (0 in content.reasons)
