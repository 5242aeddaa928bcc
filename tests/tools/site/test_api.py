"""The pages of the API reference."""

from __future__ import annotations

import importlib
import inspect

import pytest

from tools.site.api import GUIDES, MODULES, about_data, names_of, written
from tools.site.pages import DOCS


@pytest.mark.parametrize("module", MODULES)
def test_each_public_name_is_on_its_page(module: str) -> None:
    page = written(module)
    for name in names_of(module):
        if f"{module}.{name}" not in MODULES:
            listed = (f":: {module}.{name}\n", f".. py:data:: {name}\n", f"``{name}``: see ")
            assert any(each in page for each in listed)
            assert hasattr(importlib.import_module(module), name)
    assert names_of(module)


def test_names_that_are_loaded_late_are_listed() -> None:
    assert {"HOOKS", "FEATURES", "PublishArgs", "Middlewares"} <= set(names_of("harebell.middleware"))
    assert {"Event", "Recovered"} <= set(names_of("harebell.events"))
    names = names_of("harebell.errors")
    assert names.index("ChannelError") < names.index("AccessRefused")


@pytest.mark.parametrize("module", MODULES)
def test_each_constant_has_words(module: str) -> None:
    home = importlib.import_module(module)
    for name in names_of(module):
        it = getattr(home, name)
        if not (inspect.isclass(it) or inspect.isroutine(it) or inspect.ismodule(it)):
            about = about_data(module, name)
            assert about is not None, name
            assert about[1], name


def test_values_are_shown_where_they_are_written_down() -> None:
    assert about_data("harebell.testing", "Direction") == (
        "Literal['to_server', 'to_client', 'both']",
        "Which way the bytes go that a proxy delays, holds back or cuts.",
    )
    assert (about_data("harebell.events", "Event") or "")[0].startswith("Connecting | Open")
    assert (about_data("harebell.broker", "COMMANDS") or "-")[0] == ""
    assert about_data("harebell.testing", "FaultProxy") is None


def test_members_of_other_classes_are_left_out() -> None:
    assert ":inherited-members: Exception, BaseException, object\n" in written("harebell.errors")
    assert "IsolatedAsyncioTestCase, TestCase" in written("harebell.testing")


def test_guides_are_there() -> None:
    assert [guide for guide in GUIDES.values() if not (DOCS / guide).is_file()] == []
