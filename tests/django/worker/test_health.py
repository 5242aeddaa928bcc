"""Probes of a worker."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

import tests.django.conftest  # noqa: F401  Django has to be set up
from harebell.django.worker.health import Health


def test_a_probe() -> None:
    state: dict[str, object] = {"ok": True, "running": 3}
    health = Health("127.0.0.1", 0, lambda: state)
    url = f"http://127.0.0.1:{health.port}/"
    with urllib.request.urlopen(url, timeout=60) as answer:
        assert json.loads(answer.read()) == state
    state["ok"] = False
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(url, timeout=60)
    assert caught.value.code == 503
    caught.value.close()
    health.close()
