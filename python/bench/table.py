"""Tables of figures, as `bench/src/table.rs` prints and saves them: for each case one line per contender.

If `THALWEG_SEEDS` is the path of a folder, a table is saved there as JSON, from which `tools/seeds.py` writes
`docs/seeds.md` and draws the plots.
"""

import json
import os
import platform
import time
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Table:
    """A table of one of the seeds. `seed` is the name of the system, `name` that of the table in file names."""

    seed: str
    name: str
    title: str
    case: str
    columns: list[str]
    rows: list[dict[str, object]] = field(default_factory=list)
    plots: list[dict[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def row(self, case: object, contender: str, *figures: float | None) -> None:
        """Adds the line of a contender. `None` is a figure that the contender does not have."""
        self.rows.append({"case": str(case), "contender": contender, "figures": list(figures)})

    def plot(self, column: str, shape: str) -> None:
        """Adds a plot of a column: `bars` for each case, or `lines` over cases that are numbers."""
        self.plots.append({"column": column, "shape": shape})

    def finish(self) -> None:
        """Prints the table, and saves it if a folder is named."""
        print(self.text())
        if folder := os.environ.get("THALWEG_SEEDS"):
            path = Path(folder) / f"{self.seed}-{self.name}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            saved = {**vars(self), "machine": machine(), "measured": int(time.time())}
            path.write_text(json.dumps(saved, indent=2) + "\n")

    def text(self) -> str:
        widths = [max(len(column), 12) + 2 for column in self.columns]
        heads = "".join(f"{column:>{width}}" for column, width in zip(self.columns, widths, strict=True))
        lines = [self.title, "", f"  {self.case:<44}{heads}"]
        case = None
        for row in self.rows:
            if row["case"] != case:
                case = row["case"]
                lines.append(f"  {case}")
            figures = zip(row["figures"], widths, strict=True)  # type: ignore[call-overload]
            lines.append(
                f"    {row['contender']:<42}" + "".join(f"{shown(figure):>{width}}" for figure, width in figures)
            )
        return "\n".join([*lines, *(f"  {note}" for note in self.notes), ""])


def shown(figure: float | None) -> str:
    """A figure with three significant digits, or with all digits before the point."""
    if figure is None:
        return "-"
    if abs(figure) >= 100 or figure == 0:
        return f"{figure:,.0f}"
    return f"{figure:.3g}"


def machine() -> dict[str, object]:
    """The machine that a table is measured on."""
    processors = Path("/proc/cpuinfo")
    lines = processors.read_text().splitlines() if processors.exists() else []
    models = [line.split(": ", 1)[1] for line in lines if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
    }
