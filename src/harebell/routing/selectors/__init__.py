"""Selectors: conditions on a message's headers and properties, in SQL-92's syntax as JMS has it.

A consumer with a selector gets the messages for which its condition is true. `parse_selector` reads one; the broker
says what a message is (`identifiers.Facts`).
"""

from __future__ import annotations

from harebell.routing.selectors.identifiers import Facts
from harebell.routing.selectors.parser import Selector, parse_selector
from harebell.routing.selectors.tokens import BadSelector

__all__ = ["BadSelector", "Facts", "Selector", "parse_selector"]
