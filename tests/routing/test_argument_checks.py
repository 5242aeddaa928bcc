from __future__ import annotations

import pytest

from harebell.routing.argument_checks import Check, boolean, from_, integer, one_of, string


@pytest.mark.parametrize(
    "check, value, problem",
    [
        (integer, -1, None),
        (integer, True, '"expected integer, got bool"'),
        (integer, "1", '"expected integer, got longstr"'),
        (from_(1, 3), 1, None),
        (from_(1, 3), 3, None),
        (from_(1, 3), 0, "{value_zero,0}"),
        (from_(1, 3), -1, "{value_negative,-1}"),
        (from_(1, 3), 4, "{value_too_large,4}"),
        (from_(0, 3, "max_value_exceeded"), 4, "{max_value_exceeded,4}"),
        (from_(0), False, '"expected integer, got bool"'),
        (from_(0), 1 << 62, None),
        (one_of(("a", "b"), "no {}"), "b", None),
        (one_of(("a", "b"), "no {}"), "c", "no c"),
        (one_of(("a", "b"), "no {}"), 1, "{unacceptable_type,signedint}"),
        (string, "", None),
        (string, 1, "{unacceptable_type,signedint}"),
        (boolean, False, None),
        (boolean, 0, "{unacceptable_type,signedint}"),
    ],
)
def test_checks(check: Check, value: object, problem: str | None) -> None:
    assert check(value) == problem
