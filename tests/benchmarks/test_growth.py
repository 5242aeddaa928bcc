"""benchmarks/growth.py measures every curve, and writes what it prints."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.figures import BYTES, growth_tables, markdown
from tests.benchmarks.programs import FOLDER, run

GROWTH = FOLDER / "growth.py"

# 10,000 messages: some kernels count CPU time in steps of ten milliseconds, longer than a thousand take.
EACH = """
import json, growth
measured = {}
with growth.STARTS["harebell"]() as (port, pid):
    for curve in growth.curves():
        size = curve.sizes[1] if curve.name != growth.BYTES else curve.sizes[0]
        point = curve.work(port, pid, size, 10 * growth.TAKEN)
        measured[curve.name] = [size, point.message, point.more, point.memory]
print(json.dumps(measured))
"""


def test_every_curve_is_measured() -> None:
    measured = json.loads(run("-c", EACH).splitlines()[-1])
    assert list(measured) == run(GROWTH, "--list").splitlines()
    assert measured.pop(BYTES)[1] > 0
    for name, (size, message, more, memory) in measured.items():
        assert size in (10, 100), name
        assert message > 0, name
        assert more is None or more > 0, name
        assert memory is None, name  # of so few objects nobody could tell


def test_the_command_prints_what_it_writes(tmp_path: Path) -> None:
    file = tmp_path / "growth.json"
    said = run(GROWTH, "--rounds", 2, "--scale", 0.05, "--only", "priorities of, free", "--most", 1, "--json", file)
    growth = json.loads(file.read_text())
    assert growth["broker"] == "harebell"
    assert list(growth["curves"]) == ["consumers of a queue, one is free", "priorities of a queue"]
    for curve in growth["curves"].values():
        assert {size: len(rounds) for size, rounds in curve["message"].items()} == {"1": 2}
    tables = growth_tables(growth)
    assert [rows[0] for rows in tables] == [["CPU us per message", "1", "exponent"]]
    assert all(markdown(rows) in said for rows in tables)
    assert said.startswith(growth["machine"])
