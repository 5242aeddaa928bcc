"""`harebell completion`: the script that completes commands and options in a shell."""

from __future__ import annotations

from typing import Annotated, Any, Final, cast

from cyclopts import Parameter

from harebell.cli.terminal.output import say_lines
from harebell.errors import InvalidArgument

__all__ = ["completion"]

SHELLS: Final = ("bash", "zsh", "fish")


def completion(shell: Annotated[str, Parameter(help=f"{', '.join(SHELLS[:-1])} or {SHELLS[-1]}.")]) -> int:
    """Print the script that completes this command in a shell; the manual says which file to write it to.

    It has the commands and options of this version: write it again after an update.
    """
    if shell not in SHELLS:
        raise InvalidArgument(f"no completion for {shell!r}: known shells are {', '.join(SHELLS)}")
    from harebell.cli.main import application

    return say_lines(application().generate_completion(shell=cast("Any", shell)))
