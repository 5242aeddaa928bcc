"""Write the tables of options in docs/reference/configuration.md from `harebell.config`.

python tools/option_table.py            # writes the page
python tools/option_table.py --check    # exits 1 when the committed page differs
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from harebell.config import OPTIONS, Limits

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "configuration.md"
TABLE = re.compile(r"(<!-- (options|limits) -->\n).*?(<!-- end -->)", re.DOTALL)


def rendered(page: str) -> str:
    """The page with new tables."""
    return TABLE.sub(lambda match: f"{match[1]}{table(limits=match[2] == 'limits')}{match[3]}", page)


def table(*, limits: bool) -> str:
    lines = ["| flag | variable | key | default | meaning |", "|---|---|---|---|---|"]
    for name, each in OPTIONS.items():
        if (name in Limits.__dataclass_fields__) == limits:
            live = " *Live.*" if each.live and not limits else ""
            names = " | ".join(f"`{name}`" for name in (each.flag, each.variable, each.name))
            default = "not set" if each.default_text is None else f"`{each.default_text}`"
            lines.append(f"| {names} | {default} | {each.about}{live} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    page = PAGE.read_text("utf-8")
    if "--check" in sys.argv:
        return int(rendered(page) != page)
    PAGE.write_text(rendered(page), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
