"""Docstrings as reStructuredText."""

from __future__ import annotations

import importlib
import inspect
import re

import pytest

from tools.site.api import MODULES, names_of
from tools.site.docstrings import PARAMETER, as_rest

CASES: list[tuple[str, str]] = [
    ("One line.", "One line."),
    ("`a_` and b_ and *c* of x_y", ":py:obj:`a_ <a_>` and b\\_ and \\*c\\* of x_y"),
    ("several `Queue`s | `", "several :py:obj:`Queue <Queue>`\\ s \\| \\`"),
    ("a\\b", "a\\\\b"),
    ("`call()` and `x.y` and `x = 1`", ":py:obj:`call() <call>` and :py:obj:`x.y <x.y>` and ``x = 1``"),
    (
        "Nacked's, not e.Nacked, Nacked.x or UnNacked",
        ":py:obj:`Nacked <errors.Nacked>`'s, not e.Nacked, Nacked.x or UnNacked",
    ),
    (
        "Raises `Nacked`.\n\nx  Nacked",
        "Raises :py:obj:`Nacked <errors.Nacked>`.\n\n``x``\n    :py:obj:`Nacked <errors.Nacked>`",
    ),
    (
        "Do it.\n\nurl      where to\ntimeout  seconds, or\n         for ever\na, b     both\n\nEnd.",
        "Do it.\n\n``url``\n    where to\n``timeout``\n    seconds, or\n    for ever\n``a``, ``b``\n    both\n\nEnd.",
    ),
    ("As in\n\n    x = 1\n    y = *x\n\nso", "As in\n\n::\n\n    x = 1\n    y = *x\n\nso"),
    ("Rules:\n\n- one\n  more\n- two", "Rules:\n\n- one\n  more\n- two"),
    ("Rules:\n- one\n- two", "Rules:\n\n- one\n- two"),
    ("Which:\n*args  all of them", "Which:\n\n``*args``\n    all of them"),
    ("", ""),
]


@pytest.mark.parametrize(("plain", "rest"), CASES)
def test_as_rest(plain: str, rest: str) -> None:
    assert "\n".join(as_rest(plain.split("\n"), {"Nacked": "errors.Nacked"})) == rest


@pytest.mark.parametrize("module", MODULES)
def test_columns_in_docstrings_are_parameters(module: str) -> None:
    """A line with a gap that is no list of parameters would be shown with its columns run together."""
    home = importlib.import_module(module)
    classes = [it for name in names_of(module) if inspect.isclass(it := getattr(home, name))]
    members = [member for it in classes for _, member in inspect.getmembers(it, inspect.isroutine)]
    # Since Python 3.13 a cached property has its module, but no name: its function has both.
    members = [getattr(member, "func", member) for member in members]
    functions = [it for name in names_of(module) if inspect.isroutine(it := getattr(home, name))]
    ours = [it for it in (*classes, *members, *functions) if str(getattr(it, "__module__", "")).startswith("harebell")]
    lines = {(it.__qualname__, line) for it in ours for line in inspect.cleandoc(it.__doc__ or "").split("\n")}
    gaps = {each for each in lines if re.match(r"\S.* {2,}\S", each[1])}
    assert {each for each in gaps if not PARAMETER.fullmatch(each[1])} == set()
