"""Build the site: python -m tools.site [FOLDER], build/docs when left out. A warning is an error.

The pages are copied beside it first, and those of the API reference are written there, so that docs/ stays as it is.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Final

from tools.site.api import write
from tools.site.pages import rename_indexes

ROOT: Final = Path(__file__).resolve().parents[2]


def main() -> int:
    try:
        from sphinx.cmd.build import build_main
    except ImportError:
        sys.exit("site: sphinx is not here: `make docs` installs it (dependency group `docs`)")
    target = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "docs").resolve()
    sources = target.parent / "docs-pages"
    shutil.rmtree(sources, ignore_errors=True)
    if (target / "objects.inv").is_file():  # an older site: pages that are gone would stay in it
        shutil.rmtree(target)
    shutil.copytree(ROOT / "docs", sources, ignore=shutil.ignore_patterns("conf.py", "__pycache__"))
    rename_indexes(sources)
    write(sources)
    options = ["-q", "-W", "--keep-going", "-b", "html", "-c", str(ROOT / "docs")]
    failed = build_main([*options, "-d", str(target.parent / "docs-trees"), str(sources), str(target)])
    print(f"site: {'warnings, see above' if failed else target / 'index.html'}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
