"""Probes of a worker."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

import tests.django.conftest  # noqa: F401  Django has to be set up
from harebell.django.worker.health import Health, free_port, state_of_all


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


def test_several_processes_are_well_when_each_is() -> None:
    states: list[dict[str, object]] = [{"ok": True, "running": 1, "done": 5}, {"ok": True, "running": 2}]
    servers = [Health("127.0.0.1", 0, lambda state=state: state) for state in states]  # type: ignore[misc]
    ports = [server.port for server in servers]
    assert state_of_all(2, ports) == {"ok": True, "processes": 2, "well": 2, "running": 3, "done": 5}
    assert not state_of_all(3, ports)["ok"]
    states[1]["ok"] = False  # as without a broker
    assert not state_of_all(2, ports)["ok"]
    states[1]["ok"] = True
    assert not state_of_all(3, [*ports, free_port()])["ok"]  # one that starts still
    for server in servers:
        server.close()
    assert state_of_all(2, ports) == {"ok": False, "processes": 2, "well": 0}
