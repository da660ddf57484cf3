"""The dead letters of a run, as the program shows them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def letters(state: Path) -> list[dict[str, Any]]:
    line = [sys.executable, "-m", "thalweg", "errors", "list", "--state", str(state), "--json"]
    reported = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    return [json.loads(one) for one in reported.splitlines()]
