"""The fixtures of the kit itself, for the tests here alone: those of other folders have fixtures of the same names."""

from __future__ import annotations

from harebell.testing.plugin import (
    harebell_broker,
    harebell_broker_options,
    harebell_channel,
    harebell_connect,
    harebell_connect_options,
    harebell_connection,
    harebell_suite,
    harebell_url,
)

__all__ = [
    "harebell_broker",
    "harebell_broker_options",
    "harebell_channel",
    "harebell_connect",
    "harebell_connect_options",
    "harebell_connection",
    "harebell_suite",
    "harebell_url",
]
