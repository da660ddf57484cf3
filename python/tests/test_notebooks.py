"""Runs the notebooks of the examples without a kernel, whose packages are larger than all other test packages
together.
"""

import ast
import asyncio
import inspect
import json
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
NOTEBOOKS = sorted(file.name for file in EXAMPLES.glob("*.ipynb"))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the cells in order, in one namespace and on one event loop, as a kernel does."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    names: dict[str, Any] = {"__name__": "__main__"}

    async def run(cells: list[CodeType]) -> None:
        for cell in cells:
            came = eval(cell, names)
            if inspect.isawaitable(came):
                await came

    notebook = json.loads((EXAMPLES / name).read_text())
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert code
    assert not any(cell["outputs"] or cell["execution_count"] for cell in code)
    cells = []
    for at, cell in enumerate(code):
        source = "".join(cell["source"])
        cells.append(compile(source, f"{name}, cell {at}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
    asyncio.run(run(cells))
