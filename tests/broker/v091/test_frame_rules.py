"""Each rule of docs/reference/frames.md, as the page has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.kit import NodeKit
from tests.broker.v091.frame_rules import CROSSING, RECEIVED, SENT, Script
from tests.docs.tables import rows

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "frames.md"
SAID = {row[0]: row[1] for head in ("what comes", "what goes out", "what crosses") for row in rows(PAGE, head)}
SCRIPTS = {**RECEIVED, **SENT, **CROSSING}


@pytest.mark.parametrize("what, script", SCRIPTS.items(), ids=SCRIPTS)
def test_each_rule(what: str, script: Script, tmp_path: Path) -> None:
    kit = NodeKit(tmp_path)
    try:
        assert script(kit) == SAID[what]
    finally:
        kit.stop()
