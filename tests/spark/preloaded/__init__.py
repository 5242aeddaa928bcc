"""Python processes for Spark that begin with their modules imported: `Interpreters`."""

from __future__ import annotations

from tests.spark.preloaded.interpreters import Interpreters

__all__ = ["Interpreters"]
