"""benchmarks/admin.py measures each of its parts, and writes what it prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harebell.errors import ServerUnavailable
from harebell.testing.rabbitmq import find_server
from tests.benchmarks.programs import FOLDER, run

ADMIN = FOLDER / "admin.py"
SCALE = 0.01


def measured(file: Path, *arguments: object) -> tuple[str, dict[str, Any]]:
    """What the program prints, and the figures of each part that it writes."""
    said = run(ADMIN, "--scale", SCALE, "--rounds", 1, "--json", file, *arguments)
    written = json.loads(file.read_text())
    assert said.startswith(written["machine"])
    return said, written["parts"]


def has_server() -> bool:
    try:
        find_server()
    except ServerUnavailable:
        return False
    return True


def test_requests(tmp_path: Path) -> None:
    arguments = () if has_server() else ("--broker", "harebell")
    said, parts = measured(tmp_path / "f.json", "--only", "requests", *arguments)
    assert list(parts) == ["requests"]
    for costs in parts["requests"].values():
        assert len(costs) == 6
        for name, brokers in costs.items():
            assert f"`{name.partition(', ')[0]}`" in said
            for (cost,) in brokers.values():
                assert cost["milliseconds"] > 0
                assert cost["size"] > 0
                assert cost["cpu_ms"] >= 0  # some kernels count CPU in steps of ten milliseconds
    assert list(parts["requests"]) == ["10", "100"]


def test_probe(tmp_path: Path) -> None:
    said, parts = measured(tmp_path / "f.json", "--only", "probe")
    assert len(parts["probe"]) == 5
    for name, trips in parts["probe"].items():
        assert f"| {name} " in said
        assert trips["maximum"] >= trips["p99"] >= trips["median"] > 0
        assert trips["count"] > 50
        assert trips["cpu"] >= 0


def test_throughput(tmp_path: Path) -> None:
    said, parts = measured(tmp_path / "f.json", "--only", "throughput")
    assert list(parts["throughput"]) == ["without management", "three consoles"]
    for name, (rate,) in parts["throughput"].items():
        assert f"| {name} " in said
        assert rate["per_second"] > 0
        assert rate["cpu_us"] > 0


def test_memory(tmp_path: Path) -> None:
    """A thousand objects are made at least: the memory of fewer cannot be told."""
    said, parts = measured(tmp_path / "f.json", "--only", "memory")
    assert list(parts["memory"]) == ["a queue", "a connection with a channel"]
    for name, figures in parts["memory"].items():
        assert f"| {name} " in said
        assert min(figures["without"], figures["managed"], figures["watched"]) > 0


def test_each_part_has_a_test() -> None:
    for part in run(ADMIN, "--list").split():
        assert f"test_{part}" in globals()
