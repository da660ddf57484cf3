"""Writes the doc comments of the compiled classes from the stubs, so that `help()` shows the same text as editors do.

python document.py [CLASS …]            # writes them; without names, those of all classes
python document.py --check [CLASS …]    # fails if they are out of date

The stubs are the source, because they also describe types. Docstrings set at the import were rejected: methods of
compiled classes do not allow it.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from pathlib import Path

HERE = Path(__file__).parent
STUBS = HERE / "thalweg" / "_thalweg.pyi"
WIDTH = 110


def comment(text: str, indent: str) -> list[str]:
    """Returns the lines of a doc comment."""
    lines: list[str] = []
    for paragraph in text.replace("``", "`").split("\n\n"):
        if lines:
            lines.append(f"{indent}///")
        lines += textwrap.wrap(
            " ".join(paragraph.split()),
            WIDTH,
            initial_indent=f"{indent}/// ",
            subsequent_indent=f"{indent}/// ",
            break_on_hyphens=False,
            break_long_words=False,
        )
    return lines


def replaced(lines: list[str], item: int, text: str) -> None:
    """Replaces the doc comment of the item on a line."""
    indent = lines[item][: len(lines[item]) - len(lines[item].lstrip())]
    first = item
    while first > 0 and lines[first - 1].strip() and not re.match(rf"{indent}\}}|{indent[4:]}impl\b", lines[first - 1]):
        first -= 1
    last = first
    while lines[last].startswith(f"{indent}///"):
        last += 1
    new = comment(text, indent)
    if plain(lines[first:last]) != plain(new):
        lines[first:last] = new


def plain(lines: list[str]) -> str:
    """Returns the text of a comment, however it is wrapped."""
    return " ".join(word for line in lines for word in line.split() if word != "///")


def class_line(lines: list[str], name: str) -> int | None:
    """Returns the line of the struct that Python knows by this name."""
    for at, line in enumerate(lines):
        if line.startswith("#[pyclass"):
            attributes, item = line, at + 1
            while not re.match(r"(pub(\(\w+\))? )?(struct|enum) ", lines[item]):
                attributes += lines[item]
                item += 1
            known = re.search(r'name = "(\w+)"', attributes) or re.search(r"(?:struct|enum) (\w+)", lines[item])
            if known and known[1] == name:
                return item
    return None


def document(lines: list[str], one: ast.ClassDef, item: int) -> None:
    """Writes the comments of a class and of its methods."""
    struct = re.findall(r"(?:struct|enum) (\w+)", lines[item])[0]
    if text := ast.get_docstring(one):
        replaced(lines, item, text)
    for member in one.body:
        text = ast.get_docstring(member) if isinstance(member, ast.FunctionDef) else None
        if text is None or not isinstance(member, ast.FunctionDef):
            continue
        within = False
        for at, line in enumerate(lines):
            if re.match(r"(impl|\})", line):
                within = bool(re.match(rf"impl {struct} \{{", line)) and lines[at - 1] == "#[pymethods]"
            if within and re.match(rf"    (pub )?fn {member.name}[<(]", line):
                replaced(lines, at, text)
                break


def main() -> int:
    names = [name for name in sys.argv[1:] if name != "--check"]
    classes = [one for one in ast.parse(STUBS.read_text()).body if isinstance(one, ast.ClassDef)]
    classes = [one for one in classes if "Not a part of the public interface" not in (ast.get_docstring(one) or "")]
    stale = False
    for path in sorted((HERE / "src").rglob("*.rs")):
        text = path.read_text()
        lines = text.splitlines()
        for one in classes:
            item = class_line(lines, one.name)
            if item is not None and (not names or one.name in names):
                document(lines, one, item)
        if (new := "\n".join(lines) + "\n") == text:
            continue
        if "--check" in sys.argv:
            print(f"{path} is out of date: run `python document.py`", file=sys.stderr)
            stale = True
        else:
            path.write_text(new)
    return int(stale)


if __name__ == "__main__":
    sys.exit(main())
