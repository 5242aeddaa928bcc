"""Write the table of endpoints in docs/reference/http-api.md from `harebell.admin`.

python tools/http_api.py            # writes the page
python tools/http_api.py --check    # exits 1 when the committed page differs
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from harebell.admin.documents.endpoints import ENDPOINTS
from harebell.admin.http.endpoint import Endpoint
from tests.repository.elsewhere import ELSEWHERE

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "http-api.md"
TABLE = re.compile(r"(<!-- endpoints -->\n).*?(<!-- end -->)", re.DOTALL)


def rendered(page: str) -> str:
    """The page with a new table."""
    return TABLE.sub(lambda match: f"{match[1]}{table()}{match[2]}", page)


def table() -> str:
    lines = ["| endpoint | RabbitMQ | Harebell | needs | test |", "|---|---|---|---|---|"]
    for each in ENDPOINTS:
        about = each.about + (f". Body: `{each.reads}`" if each.reads else "")
        about += f". Parameters: `{each.query}`" if each.query else ""
        cells = (f"`{each.method} {each.path}`", "yes" if each.rabbitmq else "no", about, each.needs.value, _test(each))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _test(it: Endpoint) -> str:
    """The test of the handler's module."""
    module = Path(*it.run.__module__.split(".")[1:]).with_suffix(".py")
    place = ELSEWHERE.get(module.as_posix(), f"{module.parent.as_posix()}/test_{module.name}")
    return f"[{Path(place).stem}](../../tests/{place})"


def main() -> int:
    page = PAGE.read_text("utf-8")
    if "--check" in sys.argv:
        return int(rendered(page) != page)
    PAGE.write_text(rendered(page), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
