"""Django 6's own tests of task backends, in a process of that Django, which needs a later Python than this one may be.

Python, Django and its tests are in a folder of their own (`tools/test_servers.sh`).
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DJANGO = Path(os.environ.get("HAREBELL_TEST_CACHE", "/var/cache/harebell-test")) / "django6"


@pytest.mark.skipif(not (DJANGO / "tests").exists(), reason="no Django 6: run tools/test_servers.sh")
def test_the_tests_of_django() -> None:
    environment = {**os.environ, "PYTHONPATH": f"{DJANGO / 'tests'}:{ROOT / 'src'}", "PYTHONWARNINGS": "ignore"}
    command = [str(DJANGO / "bin" / "python"), str(ROOT / "tests" / "django" / "django_suite.py")]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180)
    assert run.returncode == 0, run.stderr
    assert "Ran 39 tests" in run.stderr
