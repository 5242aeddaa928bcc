"""The tutorial of Channels, word for word, on this layer: its code as its documentation (from Debian) has it, its shell
session, and its own tests in a browser. What is ours is the one setting that the tutorial leaves to the reader, which
layer is used, that the browser has no window, and that a wait of 2 seconds may take longer on a busy machine.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.conftest import broker_url, harebell_url  # noqa: F401

TUTORIAL = Path("/usr/share/doc/python-django-channels-doc/html/_sources/tutorial")
BLOCK = re.compile(r"^\.\. code-block:: (\w+)\n\n((?:(?: {4}.*)?\n)+)", re.M)
FILE = re.compile(r"(?:#|<!--) ((?:chat|mysite)/\S+)")

LAYER = """
CHANNEL_LAYERS = {{"default": {{"BACKEND": "harebell.channels.ChannelLayer", "CONFIG": {{"url": "{url}"}}}}}}
"""
HEADLESS = """
from selenium.webdriver.chrome import options

class Headless(options.Options):
    def __init__(self):
        super().__init__()
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
            self.add_argument(argument)

options.Options = Headless

from selenium.webdriver.support import wait

class Patient(wait.WebDriverWait):
    def __init__(self, driver, timeout):
        super().__init__(driver, max(timeout, 120))

    def until(self, method, message=""):
        found = super().until(method, message)
        super().until(lambda driver: driver.execute_script(CONNECTED), "the page has no connection")
        return found

# On a busy machine, the tutorial's tests are faster than the socket of the page, which sends nothing before it is open.
CONNECTED = (
    "return document.readyState == 'complete' && (typeof chatSocket == 'undefined' || chatSocket.readyState == 1)"
)

wait.WebDriverWait = Patient
"""
SHELL = """
import django, doctest, sys
django.setup()
failed, tried = doctest.testfile(sys.argv[1], module_relative=False)
sys.exit(failed or not tried)
"""

pytestmark = [
    pytest.mark.skipif(not TUTORIAL.exists(), reason="no python-django-channels-doc"),
    pytest.mark.skipif(shutil.which("chromedriver") is None, reason="no chromedriver"),
    pytest.mark.skipif(importlib.util.find_spec("selenium") is None, reason="no selenium"),
]


def blocks(part: int) -> Iterator[tuple[str, str]]:
    """The language and the text of each piece of code in a part of the tutorial."""
    for found in BLOCK.finditer((TUTORIAL / f"part_{part}.rst.txt").read_text()):
        yield found[1], textwrap.dedent(found[2])


class Site:
    """What somebody has on his disk who does what the tutorial says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sessions: list[str] = []
        (folder / "sitecustomize.py").write_text(HEADLESS)

    def run(self, *command: str) -> None:
        source = Path(__file__).parents[2] / "src"
        done = subprocess.run(
            [sys.executable, *command],
            cwd=self.folder,
            env={
                **os.environ,
                "PYTHONPATH": f"{self.folder}{os.pathsep}{source}",
                "DJANGO_SETTINGS_MODULE": "mysite.settings",
                "SE_OFFLINE": "true",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
        )
        assert not done.returncode, done.stdout

    def follow(self, part: int) -> None:
        """Write the files that a part shows; settings are added to what is there."""
        for language, text in blocks(part):
            if language == "pycon":
                self.sessions.append(text)
            elif (named := FILE.match(text)) is not None:
                path = self.folder / named[1]
                path.parent.mkdir(parents=True, exist_ok=True)
                before = path.read_text() if path.name == "settings.py" else ""
                path.write_text(f"{before}\n{text}")


@pytest.mark.parametrize(
    ("broker_url", "last"),
    [
        pytest.param("rabbitmq", 3, marks=pytest.mark.rabbitmq, id="rabbitmq-async"),
        pytest.param("harebell", 2, id="harebell-sync"),
    ],
    indirect=["broker_url"],
)
def test_the_tutorial(tmp_path: Path, broker_url: str, last: int) -> None:  # noqa: F811
    """As far as its second part, whose consumer is synchronous, or its third; the tests of its fourth are for both."""
    site = Site(tmp_path)
    site.run("-m", "django", "startproject", "mysite", ".", "--settings=")
    site.run("manage.py", "startapp", "chat")
    for part in (*range(1, last + 1), 4):
        site.follow(part)
    with (tmp_path / "mysite" / "settings.py").open("a") as settings:
        settings.write(LAYER.format(url=broker_url))
    (session,) = site.sessions
    (tmp_path / "session.txt").write_text(session)
    site.run("-c", SHELL, "session.txt")
    site.run("manage.py", "test", "--noinput", "chat.tests")
