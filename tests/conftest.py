"""What every test has: fixtures live in tests/fixtures, one concern a file, and are named here."""

from __future__ import annotations

pytest_plugins = [
    "tests.fixtures.measured",
    "tests.fixtures.order",
    "tests.fixtures.profiles",
    "tests.fixtures.rabbitmq",
    "tests.fixtures.spark",
]
