"""The options of `harebell.config` as flags of a command; reads settings from flags, environment and file."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

from cyclopts import Parameter

from harebell.cli.validators import any_text
from harebell.config import CONFIG_VARIABLE, OPTIONS, Option, Settings, config_file, load

__all__ = ["read_settings", "with_options"]

C = TypeVar("C", bound=Callable[..., object])


def with_options(command: C) -> C:
    """The command with every option as a flag; it receives the given ones by name, and `config`, the file."""
    parameters = [_parameter("config", str, f"Configuration file (TOML). [env: {CONFIG_VARIABLE}]")]
    parameters += [_parameter(each.name, _type(each), _help(each)) for each in OPTIONS.values()]
    setattr(command, "__signature__", inspect.Signature(parameters, return_annotation=int))  # noqa: B010
    return command


def _parameter(name: str, kind: Any, about: str) -> inspect.Parameter:
    annotation = Annotated[
        kind | None, Parameter(validator=any_text, help=about, show_default=False, negative_iterable=())
    ]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _type(each: Option) -> Any:
    return bool if each.is_switch else list[str] if each.is_list else str


def _help(each: Option) -> str:
    default = "" if each.default_text is None else f"{each.default_text}; "
    return f"{each.about} [{default}env: {each.variable}, file: {each.name}]"


def read_settings(given: dict[str, Any]) -> tuple[Settings, Path | None]:
    """The settings for a command's flags, and the file that was read. Raises InvalidArgument."""
    flags = dict(given)
    file = config_file(flags.pop("config", None), os.environ)
    return load(flags, os.environ, file), file
