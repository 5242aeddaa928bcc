"""`warren config`: the configuration that `warren serve` would run with, and where each value comes from."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.table import Table

from warren.cli.options import read_settings, with_options
from warren.config import OPTIONS

__all__ = ["config"]


@with_options
def config(**given: Any) -> int:
    """Print every option, its value and where that comes from. It takes the flags of `warren serve`.

    The first two columns are lines of a configuration file.
    """
    settings, file = read_settings(given)
    table = Table(show_edge=False, show_header=False, box=None, pad_edge=False)
    for name, each in OPTIONS.items():
        value = getattr(settings.config, name)
        text = each.shown(value)
        line = f"{name} = {_toml(text, value)}" if text != "none" or value is not None else f"{name} is not set"
        table.add_row(f"# {line}" if settings.sources[name] == "default" else line, f"# {settings.sources[name]}")
    console = Console(highlight=False, soft_wrap=True, markup=False)
    console.print(f"# file: {file or 'none'}")
    console.print(table)
    for remark in settings.remarks:
        console.print(f"# {remark}")
    return 0


def _toml(text: str, value: object) -> str:
    return text if isinstance(value, bool | float) or text.isdecimal() else json.dumps(text)
