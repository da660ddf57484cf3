#!/usr/bin/env python3
"""Writes `docs/seeds.md` and its plots from saved runs.

    tools/seeds.py            writes them
    tools/seeds.py --check    fails if the page does not follow from the runs
    tools/seeds.py record     reads the output of `cargo test` and `pytest -v`, and notes the tests that passed

`make seeds` makes the runs: `docs/seeds/runs` has a file for each table of figures, and for each list of features. Both
stay in the repository, so that the page can be checked without measuring again.

A table of figures is written by the benchmarks (`bench/src/table.rs`, `python/bench/table.py`). A list of features is
`docs/seeds/features/SEED.json`: for each feature the result of the original program, and the names of our tests. A feature is
the same if all its tests passed in the run, unless the list gives the reason of a difference.
"""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import plot
import prose

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/seeds.md"
FOLDER = ROOT / "docs/seeds"
NAMES = {
    "gollum": "gollum",
    "capyfile": "capyfile",
    "datatransfer": "DataTransfer",
    "concurrently": "Concurrently",
    "svfs": "SVFS",
}
INTRODUCTION = """# The five systems

<!-- Generated from the runs in docs/seeds/runs by tools/seeds.py. `make seeds` makes new runs. -->

thalweg does what five systems did. This page compares it with each of them, row by row. Each feature names the tests that
ran; each table of figures was measured in one run, in which the programs took turns.
"""


# A line of Rust's harness, and one of pytest's. The parameters of a test in Python may contain blanks.
RESULT = re.compile(
    r"^test (?P<rust>\S+)(?: - should panic)? \.\.\. (?P<ok>ok|FAILED)$"
    r"|^(?:\S+/)?(?P<python>test_\w+\.py::\w+)(?:\[.*\])? (?P<passed>PASSED|FAILED|ERROR|SKIPPED)",
    re.MULTILINE,
)


def main():
    if "record" in sys.argv:
        record(sys.stdin.read())
    pages = {PAGE: page()}
    for table in tables():
        for at, drawn in enumerate(table["plots"]):
            pages[FOLDER / picture(table, at)] = svg(table, drawn)
    stale = [path for path, content in pages.items() if not path.exists() or path.read_text() != content]
    if "--check" not in sys.argv:
        for path in stale:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(pages[path])
    elif stale:
        sys.exit(f"{stale[0].relative_to(ROOT)} does not follow from docs/seeds/runs: run `tools/seeds.py`")


def record(log):
    """Notes the tests that passed, as far as a list of features names them."""
    passed, other = set(), set()
    for found in RESULT.finditer(log):
        is_passed = found["ok"] == "ok" or found["passed"] == "PASSED"
        (passed if is_passed else other).add(found["rust"] or found["python"])
    # A test with parameters has passed if it has passed with all of them.
    passed -= other
    named = {test_of(test) for path in (FOLDER / "features").glob("*.json") for feature in json.loads(path.read_text()) for test in feature["tests"]}
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    run = {"commit": commit, "passed": sorted(passed & named)}
    (FOLDER / "runs").mkdir(parents=True, exist_ok=True)
    (FOLDER / "runs/tests.json").write_text(json.dumps(run, indent=2) + "\n")


def test_of(name):
    """The name of a test without the case in brackets."""
    return name.split(" (")[0]


def tables(seed=None):
    """The saved tables of figures, in the order of their files."""
    found = [json.loads(path.read_text()) for path in sorted((FOLDER / "runs").glob("*.json"))]
    return [table for table in found if "columns" in table and seed in (None, table["seed"])]


def page():
    parts = [INTRODUCTION]
    for seed, name in NAMES.items():
        parts.append(f"## {name}\n")
        parts.extend(features(seed))
        for table in tables(seed):
            parts.extend(figures(table))
    return wrapped("\n".join(parts))


def wrapped(text):
    """The page as `make fmt` leaves it."""
    return "\n".join(prose.wrapped(text.split("\n"), prose.WIDTH))


def features(seed):
    """The table of features. Passed tests are those of the saved run."""
    path = FOLDER / "features" / f"{seed}.json"
    if not path.exists():
        return
    run = json.loads((FOLDER / "runs" / "tests.json").read_text())
    passed = set(run["passed"])
    rows, same = [], 0
    listed = json.loads(path.read_text())
    for feature in listed:
        missing = [test for test in feature["tests"] if test_of(test) not in passed]
        if not feature["tests"] and not feature.get("reason"):
            verdict = "**not shown**: no test"
        elif missing:
            verdict = f"**not shown**: `{missing[0]}` did not pass"
        elif feature.get("reason"):
            verdict = feature["reason"]
        else:
            verdict, same = "same", same + 1
        rows.append([feature["feature"], feature["reference"], feature["ours"], verdict, tests(feature["tests"])])
    open_rows = sum(row[3].startswith("**") for row in rows)
    different = len(listed) - same - open_rows
    yield f"Of {len(listed)} features, {same} are the same, {different} differ for a reason, and {open_rows} are not shown.\n"
    yield table_of(["feature", NAMES[seed], "thalweg", "same, or the reason", "shown by"], rows)


def tests(names):
    return ", ".join(f"`{name.rsplit('::', 1)[-1]}`" for name in names)


def figures(table):
    yield f"### {table['title']}\n"
    rows, last = [], None
    for row in table["rows"]:
        case = row["case"] if row["case"] != last else ""
        last = row["case"]
        rows.append([case, row["contender"], *map(shown, row["figures"])])
    yield table_of([table["case"], "", *table["columns"]], rows)
    for note in table["notes"]:
        yield f"{note}\n"
    machine, day = table["machine"], time.strftime("%Y-%m-%d", time.gmtime(table["measured"]))
    yield f"Measured on {day}: {machine['processor']}, {machine['cores']} cores, Linux {machine['kernel']}.\n"
    for at, drawn in enumerate(table["plots"]):
        yield f"![{table['title']}: {drawn['column']}](seeds/{picture(table, at)})\n"


def table_of(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines) + "\n"


def shown(figure):
    """A figure with three significant digits, or with all digits before the point."""
    if figure is None:
        return "–"
    if abs(figure) >= 100 or figure == 0:
        return f"{figure:,.0f}"
    return f"{figure:.3g}"


def picture(table, at):
    return f"{table['seed']}-{table['name']}{f'-{at + 1}' if at else ''}.svg"


def svg(table, drawn):
    at = table["columns"].index(drawn["column"])
    series = {}
    for row in table["rows"]:
        figure = row["figures"][at]
        if figure is not None:
            series.setdefault(row["contender"], {})[row["case"]] = figure
    if drawn["shape"] == "lines":
        return plot.lines(table["title"], drawn["column"], table["case"], series)
    return plot.bars(table["title"], drawn["column"], series)


if __name__ == "__main__":
    main()
