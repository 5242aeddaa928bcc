"""The web console: the files in `web`, and how they are served. What it shows comes from the HTTP API.

The libraries in `web/vendor` are others'. `web/vendor/table.json` lists them; `tools/vendor_console.py` writes them.
"""

from harebell.admin.console.files import Files

__all__ = ["Files"]
