"""benchmarks/limit.py relays the bytes of every case, and writes what it prints."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.figures import limit_table, markdown
from tests.benchmarks.programs import FOLDER, run

LIMIT = FOLDER / "limit.py"


def test_the_command_prints_what_it_writes(tmp_path: Path) -> None:
    file = tmp_path / "limit.json"
    said = run(LIMIT, "--rounds", 1, "--scale", 0.01, "--json", file, "--data", tmp_path)
    limit = json.loads(file.read_text())
    assert list(limit["cases"]) == run(LIMIT, "--list").splitlines()
    for name, case in limit["cases"].items():
        assert len(case["loopback"]) == len(case["harebell"]) == 1
        assert len(case["disk"]) == ("persistent" in name)
        assert min(case["loopback"] + case["harebell"] + case["read"] + case["write"]) > 0
    assert markdown(limit_table(limit)) in said
    assert list(tmp_path.iterdir()) == [file]
