"""The reference page of the client is up to date with the docstrings, and its Markdown is right."""

from __future__ import annotations

import inspect
import re

import pytest

import harebell
from tools.client_reference import PAGE, Page, fenced, linked, listed, methods, prose


def test_the_page_is_that_of_the_code() -> None:
    assert Page().write() == PAGE.read_text("utf-8"), "run: python tools/client_reference.py"


def test_every_exported_name_has_its_section_and_every_method_its_signature() -> None:
    page = PAGE.read_text("utf-8")
    for name in harebell.__all__:
        value = getattr(harebell, name)
        assert f"\n## {name}\n" in page or f"\n## `{name}`\n" in page or f"\n## `harebell.{name}`\n" in page, name
        if inspect.isclass(value):
            for method, function in methods(value):
                assert f"{method}: " in page if isinstance(function, property) else f"{method}(" in page, method


def test_every_link_within_the_page_leads_somewhere() -> None:
    page = PAGE.read_text("utf-8")
    targets = {part.split(")")[0] for part in page.split("](#")[1:]}
    headings = {line.lstrip("# ").strip("`").lower() for line in page.splitlines() if line.startswith("#")}
    assert targets <= headings


DOC = """One message.

    Goes on
    here.

queue      where it is
no_ack, x  two at once, and what is said of them
           goes on
"""


def test_prose() -> None:
    assert prose(DOC, {}) == [
        "One message.\n",
        "```text\nGoes on\nhere.\n```\n",
        "- `queue`: where it is\n- `no_ack`, `x`: two at once, and what is said of them goes on\n",
    ]
    assert prose(None, {}) == []


def test_long_names_with_one_space_behind_them() -> None:
    assert listed(["headers, content_type, ... the properties"], {}) == (
        "- `headers`, `content_type`, ...: the properties\n"
    )


SENTENCES = [
    "LocalProtocolError, and nothing is sent, when the message does not fit the wire: a property, or\nall of it.",
    "PublishesFailed, once all are answered, when some did not get through: it has each. Else,\nor so: no.",
    "Raises, when it is made, InvalidArgument for a type: none.",
    "Subscribe, unless that is done. NotFound for a missing queue, AccessRefused.",
    "Asks, on a channel: of its own.",
    "late, soon, now",
    "x, y: two",
    "headers, ...: all",
    "One word",
    "One",
    "is, and `drain` tells the failures before it",
]


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_sentence_with_commas_and_colons_is_one(sentence: str) -> None:
    assert prose(f"First.\n\n{sentence}", {}) == ["First.\n", sentence.replace("\n", " ") + "\n"]


def test_a_sentence_within_a_list_is_told() -> None:
    with pytest.raises(ValueError, match="leave an empty line before a sentence"):
        prose("queue  where it is\nAsks, on a channel: of its own.", {})


def test_no_parameter_of_the_page_is_a_sentence() -> None:
    """Of each item of a list, what stands before the colon are names."""
    names = re.compile(r"`\*{0,2}\w+`(, (`\*{0,2}\w+`|\.\.\.))*")
    items = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("- ")]
    assert [line for line in items if not names.fullmatch(line[2:].partition(": ")[0])] == []
    assert len(items) > 100


def test_links() -> None:
    anchors = {"NotFound": "notfound", "Open": "open"}
    assert linked("NotFound; Open `NotFound` `Open` `x NotFound`", anchors) == (
        "[`NotFound`](#notfound); Open [`NotFound`](#notfound) [`Open`](#open) `x NotFound`"
    )


def test_a_long_signature_takes_a_line_for_each_parameter() -> None:
    assert fenced("f", ["a: int"], " -> int") == "```python\nf(a: int) -> int\n```\n"
    long = ["a" * 60, "*", "b" * 60]
    assert fenced("f", long, "") == f"```python\nf(\n    {long[0]},\n    *,\n    {long[2]},\n)\n```\n"
