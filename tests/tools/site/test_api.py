"""The pages of the API reference."""

from __future__ import annotations

import importlib

import pytest

from tools.site.api import MODULES, names_of, written


@pytest.mark.parametrize("module", MODULES)
def test_each_public_name_is_on_its_page(module: str) -> None:
    page = written(module)
    for name in names_of(module):
        if f"{module}.{name}" not in MODULES:
            assert f":: {module}.{name}\n" in page or f"``{name}``: see " in page
            assert hasattr(importlib.import_module(module), name)
    assert names_of(module)
