"""How `make docs` builds the site from these pages: sphinx with myst-parser, in furo's look."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

import harebell  # noqa: E402
from tools.site import api, pages  # noqa: E402

project, author, copyright = "Harebell", "The Harebell authors", "The Harebell authors"  # noqa: A001  sphinx's name
release = version = harebell.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "index"  # tools/site copies these pages, and names each README so
exclude_patterns = ["how-to/prometheus/*.json"]
smartquotes = False  # values in quotes can be copied
html_theme = "furo"
pygments_dark_style = "github-dark"  # furo's own underlines names of modules as if they were links
html_title = f"Harebell {release}"
html_favicon = html_logo = str(ROOT / "src" / "harebell" / "admin" / "console" / "web" / "style" / "icon.svg")
html_static_path = [str(ROOT / "tools" / "site" / "static")]
html_css_files = ["site.css"]
html_copy_source = False
myst_heading_anchors = 4
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = True
python_use_unqualified_type_names = True
maximum_signature_line_length = 88
suppress_warnings = ["ref.python"]  # both clients have a Delivery: a signature that names one is no link then


def setup(app: object) -> None:
    pages.setup(app)
    api.setup(app)
