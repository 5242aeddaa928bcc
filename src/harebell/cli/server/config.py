"""`harebell config`: the configuration that `harebell serve` would run with, and where each value comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from harebell.cli.server.folders import data_folder
from harebell.cli.server.options import read_settings, with_options
from harebell.cli.terminal.output import LONGEST, in_unicode, say
from harebell.config import OPTIONS, Config
from harebell.errors import InvalidArgument
from harebell.printable import printable

__all__ = ["config"]


def _folder(config: Config) -> Path | None:
    try:
        return data_folder()
    except InvalidArgument:  # a user without a home folder: serve says it too
        return None


STAND_INS: Final[Mapping[str, Callable[[Config], object]]] = {
    "data": _folder,
    "management_host": lambda config: config.host,
}
"""What `harebell serve` takes for an option that is not set."""


@with_options
def config(**given: Any) -> int:
    """Print every option, its value and the source of the value. Takes the flags of `harebell serve`.

    The output is a configuration file; the defaults are comments.
    """
    settings, file = read_settings(given)
    lines = []
    for name, each in OPTIONS.items():
        value, source = getattr(settings.config, name), settings.sources[name]
        if value is None and name in STAND_INS:
            value = STAND_INS[name](settings.config)
        if value is None and source == "default" and each.default_text is None:
            line = f"# {name} is not set"
        elif (text := _toml(value, each.shown(value))) is None:
            line = f"# {name} is {each.shown(value)!a}, and a file has only UTF-8: give {each.flag}"
        else:
            line = f"{'# ' if source == 'default' else ''}{name} = {text}"
        lines.append((line, source))
    width = max(len(line) for line, _ in lines)
    say(f"# file: {_comment(str(file or 'none'))}")
    for line, source in lines:
        say(f"{line:{width}}  # {_comment(source)}")
    for remark in settings.remarks:
        say(f"# {_comment(remark)}")
    return 0


def _toml(value: object, text: str) -> str | None:
    """The value in TOML; None for a path that TOML cannot have."""
    if isinstance(value, bool | float) and "%" not in text:
        return text
    if isinstance(value, int) and text.isdecimal():
        return text
    if any("\ud800" <= each <= "\udfff" for each in text):
        return None
    # TOML has no pairs of surrogates, as JSON has.
    return '"' + "".join(map(_character, text)) + '"'


def _character(each: str) -> str:
    if each in '"\\':
        return f"\\{each}"
    if each.isprintable() and (each.isascii() or in_unicode()):
        return each
    return f"\\u{ord(each):04x}" if ord(each) <= 0xFFFF else f"\\U{ord(each):08x}"


def _comment(text: str) -> str:
    return printable(text, LONGEST)
