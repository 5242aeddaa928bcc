"""The names and versions that the API tells: Harebell's own, and those of the RabbitMQ that it can stand in for.

Programs choose by `rabbitmq_version` what they ask for, so it is the version that clients of AMQP are told too
(`Limits.announce`), where that is one of RabbitMQ's.
"""

from __future__ import annotations

import platform
import sys
from typing import Final

import harebell
from harebell.broker.node import Node
from harebell.config import ANNOUNCED

__all__ = ["PRODUCT", "PYTHON", "PYTHON_FULL", "VERSION", "rabbitmq_version"]

PRODUCT: Final = "Harebell"
VERSION: Final = harebell.__version__
PYTHON: Final = platform.python_version()
PYTHON_FULL: Final = f"{platform.python_implementation()} {' '.join(sys.version.split())}"


def rabbitmq_version(node: Node) -> str:
    """The version of RabbitMQ whose API this is."""
    product, _, version = node.limits.announce.partition(" ")
    return version if product == "RabbitMQ" and version else ANNOUNCED.partition(" ")[2]
