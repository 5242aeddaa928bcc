"""The chat of examples/chat as people use it: two servers, two browser windows, and a broker that is restarted."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.torture.server import free_port

EXAMPLE = Path(__file__).parents[2] / "examples" / "chat"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Chat:
    """The running example."""

    def __init__(self, process: subprocess.Popen[str], pages: list[str]) -> None:
        self.process = process
        self.pages = pages

    def wait_for(self, text: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if text in line:
                return
        pytest.fail(f"the example ended before it said {text!r}")

    def restart_broker(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.wait_for("Enter kills")


@pytest.fixture
def chat() -> Iterator[Chat]:
    ports = [free_port(), free_port()]
    process = subprocess.Popen(
        [sys.executable, "run.py", "--ports", *map(str, ports)],
        cwd=EXAMPLE,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        start_new_session=True,
    )
    running = Chat(process, [f"http://127.0.0.1:{port}/" for port in ports])
    try:
        running.wait_for("Enter kills")
        yield running
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium")
@pytest.mark.skipif(importlib.util.find_spec("playwright") is None, reason="no playwright")
@pytest.mark.filterwarnings("ignore")
def test_two_windows_and_a_broker_that_is_restarted(chat: Chat) -> None:
    from playwright.sync_api import expect, sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        windows = [browser.new_page() for _ in range(2)]
        for window, page, name in zip(windows, chat.pages, ("ann", "bob"), strict=True):
            window.goto(page)
            expect(window.locator("#state")).to_have_text("connected", timeout=60_000)
            window.get_by_label("your name").fill(name)
        for window in windows:
            expect(window.locator("#people")).to_have_text("2", timeout=60_000)

        def say(number: int, text: str) -> None:
            windows[number].get_by_label("your message").fill(text)
            windows[number].get_by_role("button").click()

        said = ["ann: hello", "bob: hello, ann"]
        say(0, "hello")
        for window in windows:
            expect(window.locator("#messages li")).to_have_text(said[:1], timeout=60_000)
        say(1, "hello, ann")
        for window in windows:
            expect(window.locator("#messages li")).to_have_text(said, timeout=60_000)
        for turn in range(2):
            chat.restart_broker()
            said += [f"bob: after restart {turn}", f"ann: still here {turn}"]
            say(1, f"after restart {turn}")
            for window in windows:
                expect(window.locator("#messages li")).to_have_text(said[:-1], timeout=60_000)
            say(0, f"still here {turn}")
            for window in windows:
                expect(window.locator("#messages li")).to_have_text(said, timeout=60_000)
                expect(window.locator("#state")).to_have_text("connected")
        say(1, "/count one two three")
        said += ["bob: /count one two three", "worker: 3 words"]
        for window in windows:
            expect(window.locator("#messages li")).to_have_text(said, timeout=60_000)
        windows[1].close()
        expect(windows[0].locator("#people")).to_have_text("1", timeout=60_000)
        windows[0].evaluate("socket.close()")  # as when the server is restarted
        say(0, "back again")  # the page sends it when it is connected again
        expect(windows[0].locator("#messages li")).to_have_text([*said, "ann: back again"], timeout=60_000)
        expect(windows[0].locator("#state")).to_have_text("connected")
        browser.close()
