r"""Patterns of payloads: the SQL of a text that payloads of one kind share.

    {"id": 7, "total": 1.5}                         OBJECT<id: NUMBER, total: NUMBER>
    order 4711 failed at 2026-01-05T12:00:00Z       order <n> failed at <time>
    b"\xff\xd8..."                                  binary ffd8ffe0

Rules: JSON objects and arrays are known by the types of their fields, all numbers being one type; text has what varies
replaced: UUIDs, times, e-mail addresses, hexadecimal ids of eight digits and more, numbers. Only the first 2,000
characters are examined. It is an expression of Spark SQL: no row goes through Python.
"""

from __future__ import annotations

from typing import Final

__all__ = ["shape"]

LOOKED_AT: Final = 2000  # characters
SHOWN: Final = 300  # characters of a pattern

REPLACED: Final = (
    (r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}", "<uuid>"),
    (r"\\d{4}-\\d\\d-\\d\\d[T ]\\d\\d:\\d\\d(:\\d\\d([.,]\\d+)?)?(Z|[+-]\\d\\d:?\\d\\d)?", "<time>"),
    (r"[\\w.+-]+@[\\w-]+(\\.[\\w-]+)+", "<email>"),
    (r"\\b(?=[0-9a-fA-F]*\\d)(?=[0-9a-fA-F]*[a-fA-F])[0-9a-fA-F]{8,}\\b", "<hex>"),
    (r"[+-]?\\d+([.,]\\d+)*", "<n>"),
    (r"\\s+", " "),
)
NUMBER: Final = r"DECIMAL\\(\\d+,\\d+\\)|BIGINT|DOUBLE"


def shape(body: str) -> str:
    """An SQL expression: the pattern of the binary column `body`."""
    text = f"try_validate_utf8(CAST({body} AS STRING))"
    plain = f"left({text}, {LOOKED_AT})"
    for pattern, name in REPLACED:
        plain = f"regexp_replace({plain}, '{pattern}', '{name}')"
    json = f"try_parse_json({text})"
    kind = f"regexp_replace(schema_of_variant({json}), '{NUMBER}', 'NUMBER')"
    return (
        f"CASE WHEN {body} IS NULL OR octet_length({body}) = 0 THEN '(empty)' "
        f"WHEN {text} IS NULL THEN 'binary ' || lower(left(hex({body}), 8)) "
        rf"WHEN {text} RLIKE '^\\s*[\\[{{]' AND {json} IS NOT NULL "
        f"THEN IF(length({kind}) > {SHOWN}, left({kind}, {SHOWN - 1}) || '…', {kind}) "
        f"ELSE left(trim({plain}), {SHOWN}) END"
    )
