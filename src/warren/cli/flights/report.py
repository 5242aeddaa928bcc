from warren.cli.flights.run import Outcome
from pathlib import Path
def write(path: Path, outcome: Outcome) -> None:
    path.write_text("x")
