"""The console in a real browser: every view with hostile names, in dark, light and on a phone, and what a person does.

One browser and one broker serve all tests. Whatever the browser reports (an error in its console, a violation of the
content security policy, an exception) fails the test in which it happens.

HAREBELL_SCREENSHOTS=FOLDER writes a picture of each view there.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harebell.protocol.v091 import Properties, methods as m
from tests.admin.kit import Api, ApiThread, part
from tests.wire import CAPABILITIES, Wire

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PICTURES = os.environ.get("HAREBELL_SCREENSHOTS")
PATIENCE = 60_000  # milliseconds
EVIL = '"><img src=x onerror=document.title=1>'
"""The name of everything; what would become a node if a view made markup of it."""

DEAD = f"{EVIL}d"
"""The queue that has a dead letter, from the queue DYING."""
DYING = f"{EVIL}x"

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium"),
    pytest.mark.skipif(importlib.util.find_spec("playwright") is None, reason="no playwright"),
    pytest.mark.filterwarnings("ignore"),
]

VIEWS = {
    "overview": "Overview",
    "wrong": "which does not exist",
    "history": "History",
    "changes": "Changes",
    "audit": EVIL,
    "node": "Health",
    "queues": EVIL,
    "streams": "Streams",
    "exchanges": EVIL,
    f"topology?vhost={part(EVIL)}": "dead letters",
    "route": "Nothing is published",
    f"route?tested=1&vhost={part(EVIL)}&exchange={part(EVIL)}&key={part(EVIL)}": "It reaches 1 queue",
    f"route?tested=1&vhost={part(EVIL)}&exchange={part(EVIL)}&key=other&as={part(EVIL)}s": "may not publish it",
    "browse": "Look at the messages of a queue",
    f"browse/{part(EVIL)}/{part(EVIL)}": "3 messages",
    f"browse/{part(EVIL)}/{part(DEAD)}?at=0": "What happened to it",
    "dead-letters": f"{DYING}",
    f"dead-letters/{part(EVIL)}/{part(DEAD)}?at=0": "What happened to it",
    "connections": EVIL,
    "channels": "127.0.0.1",
    "consumers": EVIL,
    "ack-ages": EVIL,
    "policies": EVIL,
    "shovels": "Shovels",
    "vhosts": EVIL,
    "users": EVIL,
    "definitions": "Definitions",
    f"queues/{part(EVIL)}/{part(EVIL)}": EVIL,
    f"queues/{part(EVIL)}/{part(EVIL)}?tab=messages": EVIL,
    f"queues/{part(EVIL)}/{part(EVIL)}?tab=history": EVIL,
    f"exchanges/{part(EVIL)}/{part(EVIL)}": EVIL,
    f"vhosts/{part(EVIL)}": EVIL,
    f"users/{part(EVIL)}": EVIL,
    "nothing": "There is no such view",
}
"""Each view by its place, and a text that it shows when it is complete."""
LOOKS = {"light": ("light", 1280), "phone": ("dark", 400)}
if PICTURES:
    LOOKS["dark"] = ("dark", 1280)


class Browser:
    """A page of a browser, and what the browser reports about it."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.reports: list[str] = []
        page.set_default_timeout(PATIENCE)
        page.on("console", self._report)
        page.on("pageerror", lambda error: self.reports.append(f"exception: {error}"))

    def _report(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.reports.append(f"{message.type}: {message.text}")

    def check(self, *allowed: str) -> None:
        """Fail on what was reported since the last check, unless it has one of these texts."""
        reports, self.reports = self.reports, []
        assert [each for each in reports if not any(text in each for text in allowed)] == []

    def log_in(self, url: str, user: str = "guest") -> None:
        """Open the console as a user; whoever had a session in this browser has none any more."""
        self.page.context.clear_cookies()
        self.page.goto("about:blank")
        self.page.goto(url)
        self.fill_in(user)
        self.live()
        self.check("401 (Unauthorized)")  # the question who is logged in: nobody was

    def fill_in(self, user: str) -> None:
        self.page.get_by_label("User").fill(user)
        self.page.get_by_label("Password").fill(user)
        self.page.keyboard.press("Enter")

    def live(self) -> None:
        self.page.get_by_text("live", exact=True).wait_for()

    def go(self, place: str, text: str) -> None:
        """Show a view, and wait for a text in it."""
        self.page.evaluate("place => { location.hash = place }", f"#/{place}")
        self.page.locator("main").get_by_text(text).first.wait_for()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def browser(chromium: Any) -> Iterator[Browser]:
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    yield Browser(context.new_page())
    context.close()


@pytest.fixture(scope="module")
def hostile() -> Iterator[ApiThread]:
    """A broker with an object of each kind whose name is EVIL, a consumer that has its prefetch, and a refusal."""
    with ApiThread() as serving:
        furnish(serving.api())
        with Wire(serving.port).log_in(user=EVIL, password=EVIL, vhost=EVIL) as wire:
            wire.channel()
            wire.publish(EVIL, EVIL, b"")
            wire.call(1, m.BasicQos(0, 1, global_=False), m.ChannelClose)
        client = {"capabilities": CAPABILITIES, "connection_name": EVIL, "product": EVIL}
        with Wire(serving.port).log_in(vhost=EVIL, properties=client) as wire:  # type: ignore[arg-type]
            wire.channel()
            about = Properties(headers={EVIL: EVIL}, message_id=EVIL, content_type=EVIL)
            for body in (b'{"a": [1, 2]}', EVIL.encode(), b"\x00\xff", b"\x81\xa1a\x01"):
                wire.publish(EVIL, EVIL, body, about)
            wire.call(1, m.BasicQos(0, 1, global_=False), m.BasicQosOk)
            wire.call(1, m.BasicConsume(EVIL, EVIL), m.BasicConsumeOk)
            serving.sample(3)
            yield serving


def furnish(api: Api) -> None:
    all_of_it = {"configure": ".*", "write": ".*", "read": ".*"}
    name = part(EVIL)
    for path, body in {
        f"vhosts/{name}": {"description": EVIL, "tags": EVIL},
        f"users/{name}": {"password": EVIL, "tags": f"monitoring,{EVIL}"},
        f"permissions/{name}/guest": all_of_it,
        f"permissions/{name}/{name}": all_of_it,
        f"topic-permissions/{name}/{name}": {"exchange": "amq.topic", "write": ".*", "read": ".*"},
        f"topic-permissions/{name}/{name}/": {"exchange": EVIL, "write": f"^{{username}}x{EVIL}", "read": ".*"},
        f"exchanges/{name}/{name}": {"type": "topic", "arguments": {"alternate-exchange": EVIL, EVIL: EVIL}},
        f"queues/{name}/{name}": {"durable": True, "arguments": {"x-dead-letter-exchange": EVIL, EVIL: EVIL}},
        f"queues/{name}/{name}s": {"durable": True, "arguments": {"x-queue-type": "stream"}},
        f"queues/{name}/{part(DEAD)}": {"durable": True},
        f"queues/{name}/{part(DYING)}": {
            "durable": True,
            "arguments": {
                "x-message-ttl": 1,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": DEAD,
            },
        },
        f"queues/{name}/{name}y": {"durable": True, "arguments": {"x-dead-letter-exchange": f"{EVIL}none"}},
        f"policies/{name}/{name}": {"pattern": ".*", "definition": {"dead-letter-routing-key": EVIL}},
        f"operator-policies/{name}/{name}": {"pattern": ".*", "definition": {"max-length": 9}, "apply-to": "queues"},
        f"vhost-limits/{name}/max-queues": {"value": 100},
    }.items():
        assert api.put(f"/api/{path}", body) in (201, 204), path
    letter = {
        "properties": {"headers": {EVIL: EVIL}},
        "routing_key": DYING,
        "payload": EVIL,
        "payload_encoding": "string",
    }
    assert api("POST", f"/api/exchanges/{name}/amq.default/publish", letter).status == 200
    until(lambda: api.get(f"/api/queues/{name}/{part(DEAD)}")["messages"] == 1)
    binding = {"routing_key": EVIL, "arguments": {EVIL: EVIL}}
    assert api("POST", f"/api/bindings/{name}/e/{name}/q/{name}", binding).status == 201
    assert api("POST", f"/api/bindings/{name}/e/{name}/e/amq.topic", binding).status == 201


def until(holds: Callable[[], bool]) -> None:
    """Wait until this is so on the broker."""
    end = time.monotonic() + PATIENCE / 1000
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_every_view_with_hostile_names_in_every_look(browser: Browser, hostile: ApiThread) -> None:
    page = browser.page
    browser.log_in(hostile.management.url)
    for number, (place, text) in enumerate(VIEWS.items()):
        browser.go(place, text)
        if place.endswith("tab=messages"):
            page.get_by_role("button", name="Get", exact=True).click()
            page.get_by_text("3 messages").wait_for()
        for look, (scheme, width) in LOOKS.items():
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": width, "height": 800})
            wait_until(page, "scheme => document.documentElement.dataset.theme === scheme", arg=scheme)
            # Charts take their width a moment later.
            wait_until(page, "() => document.documentElement.scrollWidth <= innerWidth", about=(place, look))
            if PICTURES:
                page.wait_for_timeout(300)
                page.screenshot(
                    path=Path(PICTURES, f"{number:02}-{place.partition('/')[0].partition('?')[0]}-{look}.png")
                )
        assert page.locator("img:not([src$='icon.svg'])").count() == 0, place
        assert "Harebell" in page.title(), place
        browser.check()


ODD: tuple[str, ...] = (
    ".", "..", "...", "/", "//", "../..", "?", "#", "%", "%2e", "%2F", "%FF", ";", "a;b", "+", "\\", " ", " a ", "&",
    "=", ":", "~", "ÿ", "contents", "\u2024", "@",
)  # fmt: skip
"""Names that a browser, or a reader of URLs, may take for something else."""

ENDPOINTS: tuple[tuple[str, tuple[str, ...], dict[str, Any]], ...] = (
    ("vhosts", (), {}),
    ("users", (), {"password": "x", "tags": ""}),
    ("queues", ("odd",), {"durable": True}),
    ("exchanges", ("odd",), {"type": "fanout"}),
    ("policies", ("odd",), {"pattern": "^nobody$", "definition": {"max-length": 1}}),
    ("operator-policies", ("odd",), {"pattern": "^nobody$", "definition": {"max-length": 1}, "apply-to": "queues"}),
    ("parameters", ("federation-upstream", "odd"), {"value": {}}),
)

MAKE = """async ([noun, where, body, names]) => {
  const main = document.querySelector("script[type=module]").src;
  const { path, request, get, getOrNull } = await import(new URL("core/api.js", main));
  const found = [];
  for (const name of names) await request("PUT", path(noun, ...where, name), body);
  for (const name of names) found.push((await get(path(noun, ...where, name))).name);
  await getOrNull(path(noun, ...where, ""));
  for (const name of names.slice(1)) await request("DELETE", path(noun, ...where, name));
  return found;
}"""


def test_names_that_a_url_may_change(browser: Browser, own: ApiThread) -> None:
    """Made, read and deleted one by one, each is the object with that name and no other."""
    api, page = own.api(), browser.page
    assert api.put("/api/vhosts/odd", {}) == 201
    assert api.put("/api/permissions/odd/guest", {"configure": ".*", "write": ".*", "read": ".*"}) in (201, 204)
    browser.log_in(own.management.url)
    for noun, where, body in ENDPOINTS:
        listed = "/".join(["/api", noun, *where[:-1]])
        before = {each["name"] for each in api.get(listed)}
        assert page.evaluate(MAKE, [noun, where, body, ODD]) == [*ODD], noun
        assert {each["name"] for each in api.get(listed)} - before == {ODD[0]}, noun
    browser.check("404 (Not Found)")


@pytest.mark.parametrize("name", [".", ".."])
def test_a_queue_whose_name_is_dots_is_purged(name: str, browser: Browser, own: ApiThread) -> None:
    """And no other queue is deleted."""
    api, page = own.api(), browser.page
    for queue in (f"%FF{name}", "contents"):
        assert api.put(f"/api/queues/%2F/{queue}", {"durable": True}) == 201
    message = {"properties": {}, "routing_key": name, "payload": "x", "payload_encoding": "string"}
    assert api("POST", "/api/exchanges/%2F/amq.default/publish", message).status == 200
    browser.log_in(own.management.url)
    browser.go(f"queues/%2F/{part(name)}", "durable")
    page.get_by_role("heading", name=name, exact=True).wait_for()
    page.get_by_role("button", name="Purge…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("1 message").first.wait_for()
    dialog.get_by_role("button", name="Purge", exact=True).click()
    dialog.wait_for(state="hidden")
    left = {each["name"]: each["messages"] for each in api.get("/api/queues") if not each["name"].startswith("amq.")}
    assert left == {name: 0, "contents": 0}
    browser.check()


def test_a_user_who_only_monitors(browser: Browser, hostile: ApiThread) -> None:
    """Sees no view of administrators in the menu, can open each that is there, and is refused in words elsewhere."""
    hostile.add_user("watcher", "monitoring", vhosts=(EVIL,))
    browser.log_in(hostile.management.url, "watcher")
    menu = browser.page.get_by_role("navigation", name="Views").get_by_role("link")
    titles = [text.split("\n")[0] for text in menu.all_inner_texts()]
    assert "Queues" in titles
    assert "Node" in titles
    assert not {"Users", "Definitions"} & set(titles)
    for title, place in zip(titles, [link.get_attribute("href") for link in menu.all()], strict=True):
        browser.go(place.removeprefix("#/"), title if title != "Node" else "Health")
        browser.check()
    for place in ("users", f"users/{part(EVIL)}"):
        browser.page.evaluate("place => { location.hash = place }", f"#/{place}")
        browser.page.locator("main").get_by_role("alert").first.wait_for()
        browser.check("401 (Unauthorized)")


def test_with_the_keyboard_alone(browser: Browser, own: ApiThread) -> None:
    """Log in, filter, open a queue, purge it, leave a dialog, go elsewhere by the palette, log out."""
    api, page = own.api(), browser.page
    for name in ("apples", "pears", "plums"):
        assert api.put(f"/api/queues/%2F/{name}", {"durable": True}) == 201
    for _ in range(3):
        message = {"properties": {}, "routing_key": "pears", "payload": "x", "payload_encoding": "string"}
        assert api("POST", "/api/exchanges/%2F/amq.default/publish", message).status == 200
    browser.log_in(own.management.url)
    keys = page.keyboard
    wait_until(page, "document.activeElement === document.body")
    keys.press("q")
    page.get_by_role("heading", name="Queues", exact=True).wait_for()
    page.get_by_text("3 queues").wait_for()
    keys.press("/")
    keys.type("pqe")  # letters that would be shortcuts elsewhere
    page.get_by_text("No row passes").wait_for()
    for _ in range(3):
        keys.press("Backspace")
    keys.type("pears")
    page.get_by_text("1 of 3 queues").wait_for()
    assert "q=pears" in page.url
    tab_to(page, "Rows of")
    keys.press("Enter")
    page.get_by_role("heading", name="pears", exact=True).wait_for()
    tab_to(page, "Purge…")
    keys.press("Enter")
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("3 messages").first.wait_for()
    keys.press("Escape")
    dialog.wait_for(state="hidden")
    assert api.get("/api/queues/%2F/pears")["messages"] == 3
    wait_until(page, "document.activeElement.innerText === 'Purge…'")  # the button has the focus again
    keys.press("Enter")
    dialog.get_by_text("3 messages").first.wait_for()
    wait_until(page, "!document.querySelector('dialog button.main').disabled")
    tab_to(page, "Purge")
    keys.press("Enter")
    dialog.wait_for(state="hidden")
    wait_until(page, "document.activeElement.innerText === 'Purge…'")
    assert api.get("/api/queues/%2F/pears")["messages"] == 0
    keys.press("Control+k")
    page.get_by_role("combobox").wait_for()
    keys.type("plums")
    keys.press("Enter")
    page.get_by_role("heading", name="plums", exact=True).wait_for()
    browser.check()
    tab_to(page, "Log out")
    keys.press("Enter")
    page.get_by_label("Password").wait_for()
    browser.check("401 (Unauthorized)")


def wait_until(page: Any, expression: str, arg: object = None, about: object = None) -> None:
    """Wait until this is so in the page; its policy forbids what playwright's own `wait_for_function` does."""
    end = time.monotonic() + PATIENCE / 1000
    while not page.evaluate(expression, arg):
        assert time.monotonic() < end, (expression, about)
        time.sleep(0.05)


def tab_to(page: Any, name: str) -> None:
    """Press Tab until the focus is where the label or text begins with the name."""
    focused = "(document.activeElement.getAttribute('aria-label') || document.activeElement.innerText || '').trim()"
    for _ in range(80):
        page.keyboard.press("Tab")
        text = page.evaluate(focused)
        if text == name or (name.startswith("Rows") and text.startswith(name)):
            return
    pytest.fail(f"the focus does not come to {name!r}")


def test_the_session_is_in_no_storage_and_ends(browser: Browser, own: ApiThread) -> None:
    page = browser.page
    admin = own.add_user("admin", "administrator", vhosts=("/",))
    browser.log_in(own.management.url, "admin")
    [cookie] = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert page.evaluate("document.cookie") == ""
    stored = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")
    assert cookie["value"] not in stored
    assert "admin" not in stored
    browser.go("policies", "Policies")
    page.get_by_role("button", name="Add a policy").click()
    page.get_by_role("textbox", name="Name", exact=True).fill("half-written")
    assert admin.put("/api/users/admin", {"password": "other", "tags": "administrator"}) == 204
    page.get_by_text("The session has ended").wait_for()
    page.get_by_label("Password").fill("wrong")
    page.keyboard.press("Enter")
    page.get_by_text("Login failed").wait_for()
    page.get_by_label("Password").fill("other")
    page.keyboard.press("Enter")
    page.get_by_text("The session has ended").wait_for(state="hidden")
    browser.live()
    assert page.get_by_role("textbox", name="Name", exact=True).input_value() == "half-written"
    browser.check("401 (Unauthorized)")


def test_a_broker_that_is_restarted(browser: Browser, tmp_path: Path) -> None:
    """What is on the screen stays while there is no broker; then the console asks for the password, and is live."""
    page = browser.page
    with ApiThread(tmp_path) as before:
        assert before.api().put("/api/queues/%2F/kept", {"durable": True}) == 201
        assert before.api().put("/api/queues/%2F/lost", {"durable": False}) == 201
        browser.log_in(before.management.url)
        browser.go("queues", "lost")
    page.get_by_text("no connection").wait_for()
    assert page.locator("main").get_by_text("lost").is_visible()
    after = ApiThread(tmp_path)
    after.http_port = before.api_port
    with after:
        page.get_by_text("The session has ended").wait_for()
        page.get_by_label("Password").fill("guest")
        page.keyboard.press("Enter")
        browser.live()
        page.locator("main").get_by_text("lost").wait_for(state="hidden")
        assert page.locator("main").get_by_text("kept").is_visible()
        browser.check("401 (Unauthorized)", "net::ERR_")


def test_messages_are_looked_at_and_dead_letters_sent_back(browser: Browser, own: ApiThread) -> None:
    """Looking marks nothing; a message is dropped by itself; letters go back after a preview of what goes where."""
    api, page = own.api(), browser.page
    dying = {"arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}}
    assert api.put("/api/queues/%2F/dead") == api.put("/api/queues/%2F/work", dying) == 201
    for body in ('{"n": 1, "same": true}', '{"n": 2, "same": true}', "spare"):
        message = {"properties": {}, "routing_key": "work", "payload": body, "payload_encoding": "string"}
        assert api("POST", "/api/exchanges/%2F/amq.default/publish", message).status == 200
    browser.log_in(own.management.url)
    browser.go("browse/%2F/work", "3 messages")
    page.get_by_role("checkbox", name="Choose 0", exact=True).check()
    page.get_by_role("checkbox", name="Choose 1", exact=True).check()
    page.get_by_role("button", name="Compare").click()
    page.get_by_label("Differences of the bodies").get_by_text('+ "n": 2').wait_for()
    browser.go("browse/%2F/work?at=2", "spare")
    page.get_by_label("Message", exact=True).get_by_role("button", name="Drop…").click()
    page.get_by_role("dialog").get_by_role("button", name="Drop", exact=True).click()
    page.get_by_text("2 messages").wait_for()
    get = {"count": 5, "ackmode": "reject_requeue_false", "encoding": "auto"}
    got = api("POST", "/api/queues/%2F/work/get", get).json
    assert [each["redelivered"] for each in got] == [False, False]
    until(lambda: api.get("/api/queues/%2F/dead")["messages"] == 2)
    browser.go("dead-letters", "Queues that collect them")
    page.locator("main").get_by_role("link", name="dead", exact=True).click()
    page.get_by_text("2 dead letters").wait_for()
    page.get_by_role("button", name="Send back…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("2 letters would go back").wait_for()
    dialog.get_by_text("2 letters: work").wait_for()
    assert api.get("/api/queues/%2F/dead")["messages"] == 2
    dialog.get_by_role("button", name="Send them back").click()
    page.get_by_text("2 letters sent back").wait_for()
    assert api.get("/api/queues/%2F/work")["messages"] == 2
    browser.check()


def test_the_topology_is_drawn_searched_opened_and_saved(browser: Browser, own: ApiThread, tmp_path: Path) -> None:
    api, page = own.api(), browser.page
    assert api.put("/api/exchanges/%2F/orders", {"type": "topic", "arguments": {"alternate-exchange": "none"}}) == 201
    for name in ("mail", "stock", "lonely"):
        assert api.put(f"/api/queues/%2F/{name}") == 201
    for name in ("mail", "stock"):
        binding = {"routing_key": f"order.{name}", "arguments": {}}
        assert api("POST", f"/api/bindings/%2F/e/orders/q/{name}", binding).status == 201
    browser.log_in(own.management.url)
    browser.go("topology", "1 exchange, 3 queues and 3 ways")
    ways = page.get_by_role("table", name="Ways")
    rows = [row.inner_text().split("\t")[:3] for row in ways.locator("tbody tr").all()]
    assert rows == [
        ["orders", "mail", "order.mail"], ["orders", "stock", "order.stock"],
        ["orders", "none missing", "alternate exchange: what no binding matches"],
    ]  # fmt: skip
    page.locator(".graph canvas").first.wait_for()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as PNG").click()
    download.value.save_as(tmp_path / "topology.png")
    assert (tmp_path / "topology.png").read_bytes().startswith(b"\x89PNG")
    page.get_by_label("Search").fill("lonely")
    page.get_by_text("0 exchanges, 1 queue and 0 ways").wait_for()
    panel = page.get_by_label("lonely", exact=True)

    def chosen() -> bool:
        page.locator(".graph").click()  # the only one is in the middle, once it is drawn
        page.wait_for_timeout(200)
        return bool(panel.is_visible())

    until(chosen)
    panel.get_by_text("Unacknowledged").wait_for()
    panel.get_by_role("link", name="Open its page").click()
    page.get_by_role("heading", name="lonely", exact=True).wait_for()
    browser.check()


def test_ten_thousand_queues(browser: Browser, own: ApiThread) -> None:
    """All are listed, few are drawn; what is typed, scrolled to and changed is there at once."""
    api, page, count = own.api(), browser.page, 10_000
    definition = [{"name": f"q{number:05}", "durable": False} for number in range(count)]
    assert api("POST", "/api/definitions/%2F", {"queues": definition}).status == 204
    browser.log_in(own.management.url)
    browser.go("queues", "10,000 queues")
    table = page.get_by_role("table", name="Queues")
    drawn = table.get_by_role("row")
    assert drawn.count() < 100
    table.get_by_role("rowgroup", name="Rows of Queues").evaluate("it => { it.scrollTop = it.scrollHeight }")
    table.get_by_text("q09999").wait_for()
    assert drawn.count() < 100
    page.get_by_placeholder("Filter").fill("q0777")
    page.get_by_text("10 of 10,000 queues").wait_for()
    body = {"properties": {}, "routing_key": "q07770", "payload": "x", "payload_encoding": "string"}
    assert api("POST", "/api/exchanges/%2F/amq.default/publish", body).status == 200
    page.get_by_placeholder("Filter").fill("ready:>0")
    page.get_by_text("1 of 10,000 queues").wait_for()
    assert "q07770" in drawn.nth(1).inner_text()
    browser.check()


def test_an_import_says_what_it_would_do(browser: Browser, own: ApiThread) -> None:
    api, page = own.api(), browser.page
    api.put("/api/queues/%2F/there", {"durable": True})
    queues = [{"vhost": "/", "name": EVIL, "durable": True}, {"vhost": "/", "name": "there", "durable": False}]
    browser.log_in(own.management.url)
    browser.go("definitions", "Definitions")
    page.get_by_label("or its text").fill(json.dumps({"queues": queues}))
    page.get_by_role("button", name="Look at it, and import…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("1 is made, 1 stays as it is, though the file differs").wait_for()
    kept = dialog.get_by_role("row").filter(has_text="there")
    assert [text in kept.inner_text() for text in ("kept", "durable: true → false")] == [True] * 2
    assert api.get("/api/definitions")["queues"][0]["name"] == "there"
    dialog.get_by_role("button", name="Import", exact=True).click()
    page.get_by_text("Imported").wait_for()
    assert sorted(each["name"] for each in api.get("/api/queues")) == [EVIL, "there"]
    browser.check()


def test_a_purge_is_undone(browser: Browser, own: ApiThread) -> None:
    api, page = own.api(), browser.page
    api.put("/api/queues/%2F/orders")
    for number in range(3):
        body = {"properties": {}, "routing_key": "orders", "payload": str(number), "payload_encoding": "string"}
        assert api("POST", "/api/exchanges/%2F/amq.default/publish", body).status == 200
    browser.log_in(own.management.url)
    browser.go("queues/%2F/orders", "orders")
    page.get_by_role("button", name="Purge…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("3 messages").wait_for()
    assert dialog.get_by_role("checkbox").is_checked()
    dialog.get_by_role("button", name="Purge", exact=True).click()
    page.get_by_role("button", name="Undo").wait_for()
    assert api.get("/api/queues/%2F/orders")["messages"] == 0
    page.get_by_role("button", name="Undo").click()
    page.get_by_text("3 messages given back").wait_for()
    assert [each["payload"] for each in api.get("/api/queues/%2F/orders/browse")["items"]] == ["0", "1", "2"]
    assert [each["name"] for each in api.get("/api/queues")] == ["orders"]
    browser.check()


def test_a_deletion_is_undone(browser: Browser, own: ApiThread) -> None:
    api, page = own.api(), browser.page
    api.put(f"/api/queues/%2F/{part(EVIL)}", {"durable": True, "arguments": {"x-max-length": 5}})
    assert api("POST", f"/api/bindings/%2F/e/amq.topic/q/{part(EVIL)}", {"routing_key": "a.*"}).status == 201
    body = {"properties": {}, "routing_key": "a.b", "payload": "kept", "payload_encoding": "string"}
    assert api("POST", "/api/exchanges/%2F/amq.topic/publish", body).json == {"routed": True}
    before = api.get("/api/definitions")
    browser.log_in(own.management.url)
    browser.go(f"queues/%2F/{part(EVIL)}", EVIL)
    page.get_by_role("button", name="Delete…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("1 message").wait_for()
    dialog.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("button", name="Undo").wait_for()
    assert api("GET", f"/api/queues/%2F/{part(EVIL)}").status == 404
    page.get_by_role("button", name="Undo").click()
    page.get_by_text("1 message given back").wait_for()
    assert api.get("/api/definitions") == before
    assert [each["payload"] for each in api.get(f"/api/queues/%2F/{part(EVIL)}/browse")["items"]] == ["kept"]
    browser.check("404 (Not Found)")


def test_what_was_refused_is_allowed_by_the_grant_that_is_offered(browser: Browser, own: ApiThread) -> None:
    api, page = own.api(), browser.page
    own.add_user("ann", "management")
    api.put("/api/permissions/%2F/ann", {"configure": "^mine$", "write": "", "read": ""})
    with Wire(own.port).log_in(user="ann", password="ann") as wire:
        wire.channel()
        wire.call(1, m.QueueDeclare("orders.eu"), m.ChannelClose)
    browser.log_in(own.management.url)
    browser.go("users/ann", "Refused lately")
    refused = page.get_by_role("table", name="Refused lately")
    row = refused.get_by_role("row").filter(has_text="orders.eu")
    assert [text in row.inner_text() for text in ("declare-queue", "configure ^mine$")] == [True] * 2
    row.get_by_role("button", name="Allow it").click()
    page.get_by_role("button", name="Set", exact=True).click()
    refused.get_by_text("allowed now").wait_for()
    assert api.get("/api/permissions/%2F/ann")["configure"] == r"^mine$|^orders\.eu$"
    browser.go("audit", "Refused lately")
    browser.check()


def test_the_audit_log_has_what_was_before_and_what_comes(browser: Browser, own: ApiThread) -> None:
    """Also refusals, which are no changes, and hostile details, as text."""
    api, page = own.api(), browser.page
    assert api.put("/api/queues/%2F/early", {"arguments": {"x-max-length": 7, EVIL: EVIL}}) == 201
    assert api("DELETE", "/api/queues/%2F/none").status == 404
    browser.log_in(own.management.url)
    browser.go("audit?q=kind:queue", "Audit log")
    log = page.get_by_role("table", name="Audit log")
    browser.go("audit", "early")
    row = log.get_by_role("row").filter(has_text="early")
    assert [text in row.inner_text() for text in ("guest", "queue created", "done")] == [True] * 3
    browser.go("audit?q=outcome:refused", "none")
    assert log.get_by_role("row").filter(has_text="early").count() == 0
    browser.go("audit", "early")
    assert api.put("/api/queues/%2F/late") == 201
    log.get_by_text("late").wait_for()  # without a question
    assert api("DELETE", "/api/queues/%2F/late/contents").status == 204
    page.get_by_role("button", name="Load again").click()
    log.get_by_text("queue purged").wait_for()
    browser.check()


def test_the_ages_of_deliveries_are_a_heatmap(browser: Browser, own: ApiThread) -> None:
    """The consumer with the oldest delivery first, its share of each range as a colour; up to date by itself."""
    api, page = own.api(), browser.page
    with Wire(own.port).log_in() as wire:
        wire.channel()
        for queue, count in (("slow", 4), ("idle", 0)):
            wire.call(1, m.QueueDeclare(queue), m.QueueDeclareOk)
            wire.call(1, m.BasicQos(0, 4), m.BasicQosOk)
            wire.call(1, m.BasicConsume(queue, f"of {queue}"), m.BasicConsumeOk)
            for _ in range(count):
                wire.publish("", queue, b"x")
        wire.call(1, m.BasicConsume("idle", "free", no_ack=True), m.BasicConsumeOk)
        tags = [each.method.delivery_tag for each in wire.take(m.BasicDeliver, 4)]  # type: ignore[attr-defined]
        ages = own.management.context.sampler.ages
        own.run(lambda: setattr(ages, "_now", lambda: 0))
        own.sample()
        own.run(lambda: setattr(ages, "_now", lambda: 400_000))
        wire.send(1, m.BasicAck(tags[0]))
        wire.publish("", "slow", b"x")
        wire.take(m.BasicDeliver, 1)
        browser.log_in(own.management.url)
        browser.go("ack-ages", "2 consumers")
        table = page.get_by_role("table", name="Ack ages")
        rows = [row.inner_text().split("\n") for row in table.get_by_role("row").all()[1:]]
        assert [row[:2] for row in rows] == [["of slow", "slow"], ["of idle", "idle"]]
        assert rows[0][-5:] == ["4", "4", *["6 min 40 s"] * 3]
        heat = table.get_by_role("img")
        assert heat.first.get_attribute("aria-label") == "under 10 s: 1, 5 to 10 min: 3"
        cells = [each.locator("span") for each in heat.all()]
        share = "cells => cells.map(each => each.style.getPropertyValue('--share'))"
        assert [each.evaluate_all(share) for each in cells] == [
            ["0.25", "0", "0", "0", "0.75", "0", "0", "0"],
            ["0"] * 8,
        ]
        colours = cells[0].evaluate_all("cells => cells.map(each => getComputedStyle(each).backgroundColor)")
        assert len(set(colours)) == 3, colours
        wire.send(1, m.BasicAck(tags[-1], multiple=True))
        table.get_by_label("under 10 s: 1", exact=True).wait_for()  # without a question
        tab_to(page, "Rows of")
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="slow", exact=True).wait_for()
        assert api.get("/api/ack-ages")[0]["messages_unacknowledged"] == 1
    browser.check()
