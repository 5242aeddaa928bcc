"""Write the table of commands over the HTTP API in docs/reference/command.md from the commands themselves.

python tools/command_table.py            # writes the page
python tools/command_table.py --check    # exits 1 when the committed page differs
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from cyclopts import App

from harebell.cli.main import OBJECTS, application

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "command.md"
TABLE = re.compile(r"(<!-- objects -->\n).*?(<!-- end -->)", re.DOTALL)
COMMON = frozenset({"--columns", "--sort", "--reverse", "--json", "--watch", "--url", "--timeout", "--ca-file"})


def rendered(page: str) -> str:
    """The page with a new table."""
    return TABLE.sub(lambda match: f"{match[1]}{table()}{match[2]}", page)


def table() -> str:
    app = application()
    lines = ["| command | its own options | |", "|---|---|---|"]
    for noun, (_, commands) in OBJECTS.items():
        for verb in commands:
            command = app[noun][verb]
            positional, options = parts(command)
            name = " ".join(("harebell", noun, verb, *positional))
            about = " ".join(str(command.help).split())
            lines.append(f"| `{name}` | {', '.join(f'`{option}`' for option in options)} | {about} |")
    return "\n".join(lines) + "\n"


def parts(command: App) -> tuple[list[str], list[str]]:
    """The positional arguments, those that may be left out in brackets, and the options but the common ones."""
    positional, options = list[str](), list[str]()
    for name, is_option, required in arguments(command):
        if is_option and name not in COMMON:
            options.append(name)
        elif not is_option:
            positional.append(name if required else f"[{name}]")
    return positional, options


def arguments(command: App) -> Iterator[tuple[str, bool, bool]]:
    for each in command.assemble_argument_collection(parse_docstring=False):
        if not each.show:
            continue
        is_option = each.field_info.kind is each.field_info.KEYWORD_ONLY
        names = [name for name in each.names if name.startswith("--")]
        name = names[0] if is_option else each.field_info.name.upper()
        yield name, is_option, each.field_info.required


def main() -> int:
    page = PAGE.read_text("utf-8")
    if "--check" in sys.argv:
        return int(rendered(page) != page)
    PAGE.write_text(rendered(page), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
