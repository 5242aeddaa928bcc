"""The site is built without a warning, and its pages fit wide windows and phones."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import harebell

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PAGES = (
    "index", "tutorials/first-steps", "how-to/console-views", "how-to/middleware", "reference/http-api",
    "reference/configuration", "api/index", "api/harebell", "api/harebell-errors", "api/harebell-blocking-sessions",
)  # fmt: skip
TITLE = f"Harebell {harebell.__version__}"
NOT_SHOWN = "[...document.images].filter(each => !each.naturalWidth).map(each => each.src)"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("sphinx") is None, reason="no sphinx: `make docs` installs it"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "docs"
    paths = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    done = subprocess.run(
        [sys.executable, "-m", "tools.site", str(folder)],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_site_has_each_page_and_the_words_of_docstrings(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        name = "index" if page.stem == "README" else page.stem
        assert (site / page.relative_to(ROOT / "docs")).with_name(f"{name}.html").is_file()
    text = (site / "api" / "harebell.html").read_text("utf-8")
    assert 'id="harebell.Channel.publish"' in text
    assert 'id="harebell.Consumer.receive"' not in text  # it is no public name of the package
    assert 'href="#harebell.Channel.get"' in text  # a name in backticks leads to what it names
    errors = (site / "api" / "harebell-errors.html").read_text("utf-8")
    assert 'id="harebell.errors.REPLY_CODES"' in errors
    assert "add_note" not in errors  # Python's own members are not ours to describe
    assert "What functions around" in (site / "api" / "harebell-middleware.html").read_text("utf-8")
    assert (site / "searchindex.js").stat().st_size > 100_000


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    """Where the site is served: the search reads pages, which a browser does not allow of files."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium")
def test_pages_fit_a_wide_window_and_a_phone(address: str) -> None:
    from playwright.sync_api import sync_playwright

    reports: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        for width in (1280, 390):
            page = browser.new_page(viewport={"width": width, "height": 900})
            page.on("console", lambda it: reports.append(it.text) if it.type in ("error", "warning") else None)
            page.on("pageerror", lambda error: reports.append(str(error)))
            for name in PAGES:
                page.goto(f"{address}/{name}.html")
                assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
                assert page.evaluate(NOT_SHOWN) == [], name
        page.goto(f"{address}/")
        assert page.title() == TITLE  # a web server finds the front page
        page.goto(f"{address}/search.html?q=middleware")
        page.get_by_text("Search finished").wait_for(timeout=60_000)
        assert page.locator("ul.search li").count() > 3
        browser.close()
    assert reports == [], reports
