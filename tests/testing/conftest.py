"""The fixtures of the kit itself, for the tests here alone: those of other folders have fixtures of the same names."""

from __future__ import annotations

from warren.testing.plugin import (
    warren_broker,
    warren_broker_options,
    warren_channel,
    warren_connect,
    warren_connect_options,
    warren_connection,
    warren_suite,
    warren_url,
)

__all__ = [
    "warren_broker",
    "warren_broker_options",
    "warren_channel",
    "warren_connect",
    "warren_connect_options",
    "warren_connection",
    "warren_suite",
    "warren_url",
]
