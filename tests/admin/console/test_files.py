"""The console's files as a server gives them: paths with a hash, how long each is kept, the policy, compression."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from harebell.admin.answers import Answer
from harebell.admin.console.files import FOR_EVER, POLICY, WEB, Files
from tests.admin.kit import Api

ROOT = Path(__file__).parents[3]
VENDOR = WEB / "vendor"
IMPORT = re.compile(r'^(?:import|export)\b[^"\n]*?from "([^"]+)";$|^import "([^"]+)";$', re.MULTILINE)


def ask(files: Files, path: str, **headers: str) -> Answer:
    answer = files.answer("GET", path.encode(), {name.replace("_", "-"): value for name, value in headers.items()})
    assert answer is not None, path
    return answer


def body(answer: Answer) -> bytes:
    return b"".join(answer.pieces)


class Page(HTMLParser):
    """What a page names, and whatever a strict policy refuses in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.paths: list[str] = []
        self.inline: list[str] = []
        self._in_script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self._in_script = tag in ("script", "style")
        self.inline += [name for name in given if name == "style" or name.startswith("on")]
        if tag in ("link", "script", "img"):
            self.paths.append(str(given.get("src") or given.get("href")))

    def handle_data(self, data: str) -> None:
        if self._in_script and data.strip():
            self.inline.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False


def test_the_page_names_files_by_their_hash_and_each_is_there(api: Api) -> None:
    reply = api("GET", "/", login=False)
    assert reply.status == 200
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert reply.headers["cache-control"] == "no-cache"
    assert reply.headers["content-security-policy"] == POLICY
    assert reply.headers["x-content-type-options"] == "nosniff"
    page = Page(reply.body.decode())
    assert page.inline == []
    assert len(page.paths) > 3
    for path in page.paths:
        assert path.startswith(f"console/{Files().hash}/"), path
        file = api("GET", f"/{path}", login=False)
        assert (file.status, file.headers["cache-control"]) == (200, FOR_EVER), path
    assert api("HEAD", "/", login=False).headers["content-length"] == str(len(reply.body))


def test_a_browser_that_has_the_page_gets_it_again_only_after_a_change(api: Api, tmp_path: Path) -> None:
    tag = api("GET", "/", login=False).headers["etag"]
    again = api("GET", "/", headers={"if-none-match": tag}, login=False)
    assert (again.status, again.body) == (304, b"")
    for names_it in ("*", f"W/{tag}", f'"other", {tag}', f'W/"other",W/{tag} , "more"'):
        assert api("GET", "/", headers={"if-none-match": names_it}, login=False).status == 304, names_it
    for names_others in ('"other"', 'W/"other", "more"', tag.strip('"'), "", f'"{tag[2:]}', f"{tag[:-2]}*"):
        assert api("GET", "/", headers={"if-none-match": names_others}, login=False).status == 200, names_others
    for text in ("one", "two"):
        (tmp_path / "index.html").write_text(f'<script src="@/{text}.js"></script>')
        (tmp_path / "one.js").write_text(text)
        files = Files(tmp_path)
        assert f"console/{files.hash}/{text}.js".encode() in body(ask(files, "/"))
        assert ask(files, "/", if_none_match=tag).status == 200
        tag = ask(files, "/").headers["etag"]


@pytest.mark.parametrize("name", ["app/main.js", "vendor/preact.mjs", "style/base.css", "style/icon.svg"])
def test_a_file_is_compressed_for_those_that_can_read_it(name: str) -> None:
    files = Files()
    path = f"/console/{files.hash}/{name}"
    plain, packed = ask(files, path), ask(files, path, accept_encoding="br, gzip")
    assert body(plain) == gzip.decompress(body(packed)) == (WEB / name).read_bytes()
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert plain.headers["vary"] == packed.headers["vary"] == "accept-encoding"
    assert plain.media == packed.media


def test_a_file_below_another_hash_is_that_of_today_and_not_kept() -> None:
    files = Files()
    old = ask(files, "/console/0123456789abcdef/app/main.js")
    assert body(old) == (WEB / "app" / "main.js").read_bytes()
    assert old.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", [
    "/console", "/console/", "/console/x", "/console/x/", "/console/x/app/none.js", "/console/x/index.html",
    "/console/x/../files.py", "/console/x/%2e%2e/files.py", "/console/x/app/../../files.py", "/console//app/main.js/",
    "/console/x//app/main.js", "/console/x/app%2Fmain.js", "/console/x/app\\main.js", "/index.html", "//",
    "/console/x/\u00e9", "/console/x/app/main.js%00.css",
])  # fmt: skip
def test_another_path_is_not_the_consoles(path: str) -> None:
    assert Files().answer("GET", path.encode(), {}) is None


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_only_reading_is_the_consoles(method: str) -> None:
    assert Files().answer(method, b"/", {}) is None


def test_the_policy_allows_this_server_and_no_script_or_style_in_the_page() -> None:
    rules = dict(rule.strip().split(" ", 1) for rule in POLICY.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == rules["frame-ancestors"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert "unsafe" not in POLICY
    assert "http" not in POLICY


def test_every_module_imports_modules_that_are_there() -> None:
    files = Files()
    found = 0
    for path in sorted(WEB.rglob("*.*js")):
        for match in IMPORT.finditer(path.read_text()):
            name = match[1] or match[2]
            assert name.startswith("."), f"{path.name}: {name} is no path"
            target = (path.parent / name).resolve().relative_to(WEB).as_posix()
            ask(files, f"/console/{files.hash}/{target}")
            found += 1
    assert found > 100


def test_each_view_of_the_menu_is_described_and_has_its_picture() -> None:
    menu = (WEB / "app" / "views" / "menu.js").read_text()
    page = (ROOT / "docs" / "how-to" / "console-views.md").read_text()
    views = re.findall(r'title: "([^"]+)", to: \["([^"]+)"\]', menu)
    assert len(views) > 10
    sections = re.findall(r"^## (.+)\n\n(?:.+\n)+\n!\[(.+)\]\(pictures/console-(.+)\.png\)$", page, re.MULTILINE)
    assert sections == [(title, title, place) for title, place in views]
    pictures = {path.name for path in (ROOT / "docs" / "how-to" / "pictures").glob("console-*.png")}
    assert pictures == {f"console-{place}.png" for _, place in views}


def test_our_code_builds_no_markup_from_text() -> None:
    """What could make a name of the broker's into a node or a script: the console has none of it."""
    forbidden = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc")
    for path in (WEB / "app").rglob("*.js"):
        assert not forbidden.search(path.read_text()), path.name


def test_the_libraries_are_those_of_the_table() -> None:
    run = [sys.executable, str(ROOT / "tools" / "vendor_console.py"), "--check"]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_notice_names_every_library_and_each_has_its_licence() -> None:
    notice = (ROOT / "NOTICE").read_text()
    for package in json.loads((VENDOR / "table.json").read_text()):
        assert f"{package['name']} {package['version']}" in notice
        assert any(name.startswith("licences/") for name in package["files"]), package["name"]


def test_every_file_has_a_media_type_and_goes_into_the_wheel() -> None:
    """A wheel takes what git tracks below src/harebell; a file of another kind would be in it, and never be served."""
    files = Files()
    for path in WEB.rglob("*"):
        if path.is_file() and path.name != "index.html":
            ask(files, f"/console/{files.hash}/{path.relative_to(WEB).as_posix()}")
    ignored = subprocess.run(
        ["git", "check-ignore", "--no-index", *(str(path) for path in WEB.rglob("*") if path.is_file())],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ignored.stdout == ""
