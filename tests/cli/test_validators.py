"""Which numbers and texts an argument may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
from cyclopts import Parameter

from harebell.cli.validators import MAX_SECONDS, Number, Seconds, any_text, file_name, maybe_empty, plausible

NOT_FINITE = [float("nan"), float("inf"), float("-inf")]


@pytest.mark.parametrize("value", [*NOT_FINITE, 2**63, -(2**63), 10**400])
def test_implausible_numbers(value: float) -> None:
    @dataclass
    class Options:
        some_option: float

    with pytest.raises(ValueError, match=r"finite|too large"):
        plausible(float, value)
    with pytest.raises(ValueError, match="--some-option: it is "):
        plausible(Options, Options(value))
    with pytest.raises(ValueError, match=r"finite|too large"):
        Number(gte=0)(float, value)


def test_texts() -> None:
    @dataclass
    class Options:
        name: str
        key: Annotated[str, Parameter(validator=maybe_empty)] = ""

    for value in ("", ("a", ""), [""], Options("")):
        with pytest.raises(ValueError, match="is empty"):
            plausible(str, value)
    for value in ("\udcff", ("a", "\udcff"), Options("\udcff")):
        with pytest.raises(ValueError, match="no UTF-8 form"):
            plausible(str, value)
    with pytest.raises(ValueError, match="no UTF-8 form"):
        maybe_empty(str, "\udcff")
    with pytest.raises(ValueError, match="is empty"):
        file_name(str, "")
    plausible(Options, Options("a"))
    maybe_empty(str, "")
    file_name(str, "\udcff")
    any_text(str, "\udcff")


@pytest.mark.parametrize("value", [0, -1, 2**63 - 1, 1.5, -1e300, "nan", None, True])
def test_plausible_values(value: object) -> None:
    plausible(object, value)


@pytest.mark.parametrize("value", [*NOT_FINITE, 0, -1, 1e-9, MAX_SECONDS * 2, 10**400])
def test_seconds_that_cannot_be_waited(value: float) -> None:
    with pytest.raises(ValueError, match=r"It must be a number of seconds from 0\.001 to 1000000"):
        Seconds()(float, value)


@pytest.mark.parametrize(
    "number, below, least, most, above",
    [
        (Number(gte=1), 0, 1, 2**31 - 1, 2**31),
        (Number(gt=0), 0.0, 0.1, 1e300, float("inf")),
        (Number(gte=1, lte=5), 0, 1, 5, 6),
        (Number(gte=1, lte=2**63 - 1), 0, 1, 2**63 - 1, 2**63),
        (Seconds(0), -0.1, 0, MAX_SECONDS, MAX_SECONDS + 1),
    ],
)
def test_bounds(number: Number | Seconds, below: float, least: float, most: float, above: float) -> None:
    for value in (least, most, None, "text"):
        number(float, value)
    for value in (below, above):
        with pytest.raises(ValueError, match=" "):
            number(float, value)
