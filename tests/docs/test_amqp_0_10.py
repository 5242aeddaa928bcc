"""The table of the draft's sections: none is missing, and each row has a test that is there, or a reason."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.docs.tables import named_tests, rows

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "reference" / "amqp-0-10.md"
SECTIONS: Final = """
    1.3.3 1.3.4.1 1.3.4.2 1.3.5 1.3.6 1.5.1 1.5.2 1.5.3 2.1.1 2.1.1.1 2.1.1.2 2.1.1.3 2.1.2.1 2.1.2.2-3 2.1.2.4 2.1.3.2
    2.1.4.1 2.1.4.2 2.1.5 2.1.6 2.2.1 2.2.1.1.1 2.2.1.1.2 2.2.1.1.3 2.2.2 2.2.3 2.2.3.1-4 2.2.3.5 2.2.3.6 2.2.4 2.2.5
    2.2.6 2.2.7 2.2.8 3.1 3.1.1 3.2 3.2.1 3.2.2 3.2.3 3.2.4 3.3 (1) (2) (3) (4) 3.3.1 3.3.2 3.3.3 3.3.4 glossary
"""  # those with a requirement that can be tested; 2.1.6 and 2.2.8 are empty
ROWS: Final = rows(PAGE, "§")


def test_no_section_is_left_out() -> None:
    assert {name for section, *_ in ROWS for name in section.replace(",", " ").split()} == set(SECTIONS.split())


@pytest.mark.parametrize("row", ROWS, ids=[f"{row[0]} {row[1][:40]}" for row in ROWS])
def test_a_row_has_a_test_or_a_reason(row: list[str]) -> None:
    _, what, here, test = row
    assert what
    files = named_tests(PAGE, test)
    text = "".join(file.read_text("utf-8") for file in files)
    for name in re.findall(r"`(test_\w+)`", test):
        assert re.search(rf"^(async )?def {name}\(", text, re.MULTILINE), f"{name} is in none of {files}"
    reason = re.sub(r"\[[^]]*\]\([^)]*\)|`[^`]*`", "", test)
    assert files or len(re.findall(r"\w+", reason)) > 1, "neither a test nor a reason"
    assert here or not files, "it is tested, and does not say where it is"
    for path in re.findall(r"`([\w/]+(?:/\w+)*(?:\.py)?)`", here):
        if "/" in path:
            assert (ROOT / "src" / "harebell" / path).exists() or (ROOT / path).exists(), path


@pytest.mark.parametrize("row", rows(PAGE, "what"), ids=lambda row: row[0][:50])
def test_what_is_not_there_has_an_answer_and_a_reason(row: list[str]) -> None:
    assert all(row)
