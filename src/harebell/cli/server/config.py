"""`harebell config`: the configuration that `harebell serve` would run with, and where each value comes from."""

from __future__ import annotations

import json
from typing import Any

from harebell.cli.server.options import read_settings, with_options
from harebell.cli.terminal.output import say
from harebell.config import OPTIONS

__all__ = ["config"]


@with_options
def config(**given: Any) -> int:
    """Print every option, its value and the source of the value. Takes the flags of `harebell serve`.

    The output is a configuration file; the defaults are comments.
    """
    settings, file = read_settings(given)
    lines = []
    for name, each in OPTIONS.items():
        value, source = getattr(settings.config, name), settings.sources[name]
        text = each.shown(value)
        line = f"{name} is not set" if value is None and text == "none" else f"{name} = {_toml(value, text)}"
        lines.append((f"# {line}" if source == "default" else line, source))
    width = max(len(line) for line, _ in lines)
    say(f"# file: {file or 'none'}")
    for line, source in lines:
        say(f"{line:{width}}  # {source}")
    for remark in settings.remarks:
        say(f"# {remark}")
    return 0


def _toml(value: object, text: str) -> str:
    return text if isinstance(value, bool | float) or text.isdecimal() else json.dumps(text)
