#!/usr/bin/env python3
"""Wraps and checks the prose of the project: comments of Rust and Markdown.

    tools/prose.py wrap PATH...     wraps comment blocks and Markdown paragraphs at 110 columns
    tools/prose.py lint PATH...     lists text that is not wrapped, and words that STYLE.md rejects

A folder means all `.rs` and `.md` files below it. Code blocks, tables, lists and headings keep their lines, except that an
item of a list is wrapped like a paragraph.
"""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

WIDTH = 110
COMMENT = re.compile(r"^(\s*)(//[!/]?)(?: (.*)|)$")
ITEM = re.compile(r"^(\s*(?:[-*+]|\d+\.) )(.*)$")

# Each pattern is one that STYLE.md rejects, with the plain words instead.
REJECTED = [
    (r"(?:^|(?<=[.!?:;] ))(What|Whatever|Whoever|Who)\b(?![^.?!]*\?)", "start with the noun"),
    (r"\bso (many|much) (?!as\b|that\b|more\b|faster\b)", "n, a number of"),
    (r"\b[Nn]obody\b", "name who: no client, no task"),
    (r"\b[Ss]omebody\b", "name who: a caller, a client"),
    (r"\b[Ww]hoever\b", "name who: the caller, a client"),
    (r"\b[Ww]hereto\b", "target"),
    (r"\b[Nn]oughts?\b", "zero"),
    (r"\bbe it\b", "either ... or"),
    (r"\banew\b", "again, restart"),
    (r"\b(goes|go|gone|going|went) on with\b", "continue"),
    (r"\b(is|are|was|were|be|being) told\b", "receives, is notified"),
    (r"\bpass(es|ed)? over\b", "skip"),
    (r"\bso long\b(?! as)", "name the time"),
]
REJECTED = [(re.compile(pattern), instead) for pattern, instead in REJECTED]


def files(arguments):
    """All Rust and Markdown files that git knows at or below the paths."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "--", *arguments], capture_output=True, text=True, check=True)
    paths = [Path(line) for line in listed.stdout.splitlines()]
    # Generated pages have the lines of the doc comments that they come from.
    generated = "docs/reference/"
    return [
        path
        for path in paths
        if path.suffix in (".rs", ".md") and path.exists() and not str(path).startswith(generated)
    ]


def wrapped(lines, width):
    """Lines of Markdown, with paragraphs and items of lists wrapped."""
    out, held, indent = [], [], ""
    fence = False

    def flush():
        nonlocal held
        if held:
            first, rest = held[0], indent
            text = " ".join(part.strip() for part in held[1:]) if len(held) > 1 else ""
            head = first
            lead = re.match(r"^(\s*(?:(?:[-*+]|\d+\.) )?)", head).group(1)
            body = (head[len(lead):] + (" " + text if text else "")).strip()
            out.extend(
                textwrap.wrap(
                    body, width, initial_indent=lead, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
                )
                or [lead.rstrip()]
            )
            held = []

    for line in lines:
        bare = line.strip()
        if bare.startswith("```"):
            flush()
            fence = not fence
            out.append(line)
        elif fence or not bare or bare.startswith(("#", "|", "<", ">", "[^")) or re.match(r"^\[[^\]]+\]: ", bare) or (line.startswith("    ") and not held):
            flush()
            out.append(line)
        elif ITEM.match(line):
            flush()
            indent = " " * len(ITEM.match(line).group(1))
            held = [line]
        elif held:
            held.append(line)
        else:
            indent = line[: len(line) - len(line.lstrip())]
            held = [line]
    flush()
    return out


def blocks(lines):
    """The comment blocks of a Rust file: first line, end, indentation, marker, and the text of each line."""
    at = 0
    raw = re.compile(r'r(#+)"')
    ends = None
    while at < len(lines):
        line = lines[at]
        if ends:
            if ends in line:
                ends = None
            at += 1
            continue
        found = COMMENT.match(line)
        if not found:
            begun = raw.search(line)
            if begun and '"' + begun.group(1) not in line[begun.end():]:
                ends = '"' + begun.group(1)
            at += 1
            continue
        indent, marker = found.group(1), found.group(2)
        start, texts = at, []
        while at < len(lines):
            found = COMMENT.match(lines[at])
            if not found or (found.group(1), found.group(2)) != (indent, marker):
                break
            texts.append(found.group(3) or "")
            at += 1
        yield start, at, indent, marker, texts


def wrap_rust(text):
    lines = text.split("\n")
    out, at = [], 0
    for start, end, indent, marker, texts in blocks(lines):
        out.extend(lines[at:start])
        prefix = indent + marker
        for line in wrapped(texts, WIDTH - len(prefix) - 1):
            out.append((prefix + " " + line).rstrip() if line else prefix)
        at = end
    out.extend(lines[at:])
    return "\n".join(out)


def wrap_file(path):
    text = path.read_text()
    if path.suffix == ".md":
        return text, "\n".join(wrapped(text.split("\n"), WIDTH))
    return text, wrap_rust(text)


def sentences(path, text):
    """Each paragraph of prose with its first line's number; code is left out."""
    lines = text.split("\n")
    if path.suffix == ".md":
        groups = [(0, lines)]
    else:
        groups = [(start, texts) for start, _, _, _, texts in blocks(lines)]
    for start, texts in groups:
        fence, held, first = False, [], 0
        for number, line in enumerate([*texts, ""]):
            if line.strip().startswith("```"):
                fence = not fence
                line = ""
            if fence or not line.strip() or ITEM.match(line) or line.lstrip().startswith(("|", "#")):
                if held:
                    yield start + first + 1, " ".join(held)
                held = []
                if fence or not ITEM.match(line):
                    continue
                line = ITEM.match(line).group(2)
            if not held:
                first = number
            held.append(line.strip())


def lint(path):
    text, new = wrap_file(path)
    if text != new:
        yield 1, "is not wrapped: `make fmt` does it"
    if path.name == "STYLE.md":
        return
    for number, paragraph in sentences(path, text):
        plain = re.sub(r"`[^`]*`|\"[^\"]*\"", "X", paragraph)
        for pattern, instead in REJECTED:
            found = pattern.search(plain)
            if found:
                yield number, f"`{found.group(0).strip()}`: {instead} (STYLE.md)"


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in ("wrap", "lint"):
        sys.exit(__doc__)
    failed = 0
    for path in files(sys.argv[2:]):
        if sys.argv[1] == "wrap":
            text, new = wrap_file(path)
            if new != text:
                path.write_text(new)
            continue
        for number, message in lint(path):
            print(f"{path}:{number}: {message}")
            failed += 1
    if failed:
        sys.exit(f"{failed} findings; see STYLE.md")


if __name__ == "__main__":
    main()
