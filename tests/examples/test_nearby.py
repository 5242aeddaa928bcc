"""The example of a plug-in, as its README says it is run."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from harebell.broker import Binding, Dependence, RoutedMessage, to_queue
from harebell.errors import PreconditionFailed

EXAMPLE = Path(__file__).parents[2] / "examples" / "nearby"


@pytest.fixture(scope="module")
def nearby() -> ModuleType:
    spec = importlib.util.spec_from_file_location("nearby_example", EXAMPLE / "nearby.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "run.py"], cwd=EXAMPLE, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "london: nothing",
        "paris: a parcel at the Louvre",
        "france: a parcel at the Louvre",
        "from London to Paris: 343.5 km",
    ]


@pytest.mark.parametrize("key", ["", "a,b", "1", "1,2,3,4", "1,2,x"])
def test_a_binding_key_that_is_no_circle(nearby: ModuleType, key: str) -> None:
    matcher = nearby.Nearby({})
    with pytest.raises(PreconditionFailed, match="must be latitude,longitude"):
        matcher.add(Binding("x", to_queue("q"), key, {}))
    assert list(matcher.match(RoutedMessage(("k",), {"latitude": 1, "longitude": 2}, Dependence.HEADERS))) == []


@pytest.mark.parametrize("radius", [0, -1, True, "10", None])
def test_a_radius_that_is_none(nearby: ModuleType, radius: object) -> None:
    with pytest.raises(PreconditionFailed, match="default-kilometres must be a number above 0"):
        nearby.Nearby({"default-kilometres": radius})


@pytest.mark.parametrize(
    "headers", [{}, {"latitude": 1}, {"latitude": "1", "longitude": 2}, {"latitude": True, "longitude": 2}]
)
def test_a_message_without_a_place_matches_nothing(nearby: ModuleType, headers: dict[str, object]) -> None:
    matcher = nearby.Nearby({})
    matcher.add(Binding("x", to_queue("q"), "1,2,20000", {}))
    assert list(matcher.match(RoutedMessage(("k",), headers, Dependence.HEADERS))) == []
