"""benchmarks/one_by_one.py: the stand-in answers every case, and one case is measured beside both brokers."""

from __future__ import annotations

import json

import pytest

from tests.benchmarks.programs import FOLDER, run

ONE_BY_ONE = FOLDER / "one_by_one.py"
KERNEL = """
import json, one_by_one, pathlib, tempfile
with tempfile.TemporaryDirectory() as folder:
    print(json.dumps({
        name: one_by_one.kernel_us(hops, 2000, pathlib.Path(folder)) for name, hops in one_by_one.HOPS.items()
    }))
"""


def test_the_kernel_alone() -> None:
    measured = json.loads(run("-c", KERNEL).splitlines()[-1])
    assert list(measured) == run(ONE_BY_ONE, "--list").splitlines()
    assert min(measured.values()) > 0


@pytest.mark.rabbitmq
def test_the_table_has_a_row_for_each_case() -> None:
    said = run(ONE_BY_ONE, "--rounds", 1, "--scale", 0.01, "--only", "basic.get")
    rows = [line.strip("|").split("|") for line in said.splitlines() if line.startswith("|")]
    assert [row[0].strip() for row in rows[2:]] == ["basic.get"]
    assert all(float(cell) > 0 for cell in rows[2][1:5])
