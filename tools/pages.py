#!/usr/bin/env python3
"""Tests the documentation: every link leads somewhere, every configuration is valid, every command does what its page shows.

    tools/pages.py PROGRAM [PAGE...]     tests the pages (by default all of docs and the README) with this thalweg
    tools/pages.py --links [PAGE...]     tests only links and the table of contents; needs no program

A page is run like a reader would follow it, from top to bottom, in an empty folder:

- A block of code whose line before ends with a file's name, as in "The configuration is `weather.yaml`:", is written to that
  file. It may lie in a folder.
- A `console` block holds commands after `$ ` (continued after `> `) and what they print, standard error included. All
  commands of a page run in one bash, so later commands see variables, folders and background processes of earlier ones.
- A `yaml` block without a name that has sources and sinks is checked with `thalweg check`.
- Blocks of other languages, such as `sh`, are for readers only: what needs root, a network or another program.

Printed and shown lines are compared without figures that differ from run to run: times, rates and sizes with a unit, and
times of the day. Runs of blanks are one blank. A line `...` stands for any lines, and `[..]` for any text in a line.

Addresses of this machine, as `127.0.0.1:8080`, get a free port, the same throughout a page. `PROGRAM` is `thalweg` in the
commands, and `python3` is the Python that runs this tool: pages with Python need the package installed there, and are left
out otherwise.

The last line has the form of Rust's test harness, which `.ci/run` counts.
"""

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONTENTS = ROOT / "docs/SUMMARY.md"
# The pages that `tools/docs.py` adds to the table of contents.
ADDED = re.compile(r"reference/\w+/.*|decisions/\d+-.*")
# Not for readers who follow along: generated pages have tests of their own, and decisions are history.
NOT_RUN = ("docs/reference/", "docs/decisions/", "docs/seeds", "docs/SUMMARY.md")
COMMAND_SECONDS = 120

FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w+-]*)")
NAMED = re.compile(r"`(?P<name>[\w./-]+\.\w+)`:$")
LINK = re.compile(r"(?<!\!)\[[^\]]*\]\((?P<to>[^)\s]+)\)|!\[[^\]]*\]\((?P<image>[^)\s]+)\)")
ADDRESS = re.compile(r"(?P<host>127\.0\.0\.1|localhost):(?P<port>\d{4,5})\b")
NUMBER = r"\d[\d,]*(?:\.\d+)?"
FIGURES = re.compile(
    rf"{NUMBER} ?(?:ns|µs|ms|s|min|h|B/s|[KMGT]iB/s|[kMG]?/s|[KMGT]iB|cores|%)(?!\w)"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?"
)
CONFIGURATION = re.compile(r"^sources:.*^sinks:", re.MULTILINE | re.DOTALL)


@dataclass
class Block:
    """A block of code."""

    language: str
    name: str | None  # the file that it is
    line: int
    text: str


class Wrong(Exception):
    """A page that does not hold what it promises."""


def main():
    arguments = sys.argv[1:]
    only_links = "--links" in arguments
    arguments = [argument for argument in arguments if argument != "--links"]
    program = None if only_links else Path(arguments.pop(0)).resolve()
    pages = [Path(argument).resolve() for argument in arguments] or all_pages()
    tests = [("links", page, lambda page=page: test_links(page)) for page in pages]
    if not arguments:
        tests.append(("contents", CONTENTS, test_contents))
    left_out = 0
    if program:
        for page in pages:
            if str(page.relative_to(ROOT)).startswith(NOT_RUN) or not blocks(page):
                continue
            if needs_python(page) and not importlib.util.find_spec("thalweg"):
                left_out += 1
                continue
            tests.append(("run", page, lambda page=page: run(page, program)))
    failed = 0
    for kind, page, test in tests:
        try:
            test()
        except Wrong as wrong:
            failed += 1
            print(f"{page.relative_to(ROOT)} ({kind}): {wrong}\n")
    result = "FAILED" if failed else "ok"
    print(f"test result: {result}. {len(tests) - failed} passed; {failed} failed; {left_out} ignored")
    sys.exit(1 if failed else 0)


def all_pages():
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "--", "docs/*.md", "README.md"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [ROOT / line for line in sorted(set(listed.stdout.split())) if (ROOT / line).exists()]


# --- Links.


def test_links(page):
    """Each relative link leads to a file, and to a heading of it."""
    for line, text in enumerate(without_code(page.read_text()).splitlines(), 1):
        for found in LINK.finditer(text):
            to = found["to"] or found["image"]
            if re.match(r"[a-z]+:", to):
                continue
            name, _, heading = to.partition("#")
            target = (page.parent / name).resolve() if name else page
            if not target.exists():
                raise Wrong(f"line {line}: there is no {to}")
            if heading and target.suffix == ".md" and heading not in headings(target):
                raise Wrong(f"line {line}: {target.relative_to(ROOT)} has no heading #{heading}")


def without_code(text):
    """The text without what looks like a link but is code. Lines keep their numbers."""
    out, inside = [], False
    for line in text.splitlines():
        if FENCE.match(line):
            inside = not inside
            line = ""
        out.append("" if inside else re.sub(r"`[^`]*`", "", line))
    return "\n".join(out)


def headings(page):
    """The anchors of a page's headings, as mdBook and GitHub make them."""
    found = set()
    inside = False
    for line in page.read_text().splitlines():
        if FENCE.match(line):
            inside = not inside
        elif not inside and (heading := re.match(r"#+ (.*)", line)):
            text = re.sub(r"[^\w\- ]", "", heading[1].lower()).strip().replace(" ", "-")
            number = 0
            anchor = text
            while anchor in found:
                number += 1
                anchor = f"{text}-{number}"
            found.add(anchor)
    return found


def test_contents():
    """Each page of the site is in the table of contents, once."""
    if not CONTENTS.exists():
        raise Wrong("there is no table of contents")
    named = [found["to"].partition("#")[0] for found in LINK.finditer(CONTENTS.read_text()) if found["to"]]
    twice = sorted({name for name in named if named.count(name) > 1})
    if twice:
        raise Wrong(f"{twice[0]} is there twice")
    docs = ROOT / "docs"
    missing = sorted(str(page.relative_to(docs)) for page in all_pages() if page.is_relative_to(docs) and page != CONTENTS)
    missing = [page for page in missing if page not in named and not ADDED.fullmatch(page)]
    if missing:
        raise Wrong(f"{missing[0]} is missing")


# --- Commands.


def blocks(page):
    """The blocks of code of a page."""
    found = []
    lines = page.read_text().splitlines()
    before = ""
    at = 0
    while at < len(lines):
        fence = FENCE.match(lines[at])
        if not fence:
            before = lines[at].strip() or before
            at += 1
            continue
        start = at + 1
        at = start
        while at < len(lines) and not lines[at].strip().startswith("```"):
            at += 1
        indent = len(fence["indent"])
        text = "".join(line[indent:] + "\n" for line in lines[start:at])
        name = NAMED.search(before) if fence["language"] != "console" else None
        found.append(Block(fence["language"], name["name"] if name else None, start, text))
        before = ""
        at += 1
    return found


def needs_python(page):
    return any(block.language == "python" and block.name for block in blocks(page))


def run(page, program):
    """Follows a page in an empty folder."""
    with tempfile.TemporaryDirectory(prefix="page-") as folder, Shell(Path(folder), program) as shell:
        ports = Ports()
        for block in blocks(page):
            if block.name:
                path = shell.folder / block.name
                if not path.resolve().is_relative_to(shell.folder.resolve()):
                    raise Wrong(f"line {block.line}: {block.name} is not in the folder of the page")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(ports.real(block.text))
            if block.language == "console":
                follow(block, shell, ports)
            elif block.language == "yaml" and CONFIGURATION.search(block.text):
                check(block, shell, ports)


def check(block, shell, ports):
    name = block.name or "page.yaml"
    if not block.name:
        (shell.folder / name).write_text(ports.real(block.text))
    # A page may show a wrong configuration, and what `check` says to it.
    if "# wrong" in block.text:
        return
    said, code = shell.run(f"thalweg check {name}")
    if code:
        raise Wrong(f"line {block.line}: the configuration is not valid\n{said}")


def follow(block, shell, ports):
    for line, command, expected in commands(block):
        said, _ = shell.run(ports.real(command))
        if difference := differs(expected, ports.shown(said).splitlines()):
            raise Wrong(f"line {line}: $ {command}\n{difference}\nit printed\n{said}")


def commands(block):
    """The commands of a block, each with its line and the lines that it prints."""
    found = []
    for at, line in enumerate(block.text.splitlines(), block.line + 1):
        if line.startswith("$ "):
            found.append((at, line[2:], []))
        elif line.startswith("> ") and found and not found[-1][2]:
            at, command, expected = found[-1]
            found[-1] = (at, f"{command}\n{line[2:]}", expected)
        elif found:
            found[-1][2].append(line)
        else:
            raise Wrong(f"line {at}: a console block begins with a command after `$ `")
    return found


def differs(expected, said):
    """Says where the lines differ, or nothing."""
    expected = [line for line in map(plain, expected) if line]
    said = [line for line in map(plain, said) if line]
    at = 0
    skips = False
    for line in expected:
        if line == "...":
            skips = True
            continue
        pattern = re.compile(".*".join(re.escape(part) for part in line.split("[..]")))
        found = at
        while found < len(said) and not pattern.fullmatch(said[found]):
            found += 1
        if found == len(said) or (found > at and not skips):
            return f"expected: {line}\nprinted:  {said[at] if at < len(said) else 'no more lines'}"
        at = found + 1
        skips = False
    if at < len(said) and not skips:
        return f"expected: no more lines\nprinted:  {said[at]}"
    return None


def plain(line):
    """A line without what differs from run to run."""
    return re.sub(r"\s+", " ", FIGURES.sub("#", line)).strip()


class Ports:
    """Free ports for those that a page names."""

    def __init__(self):
        self.free = {}

    def real(self, text):
        return ADDRESS.sub(lambda found: f"{found['host']}:{self.port(found['port'])}", text)

    def port(self, shown):
        if shown not in self.free:
            with socket.create_server(("127.0.0.1", 0)) as server:
                self.free[shown] = str(server.getsockname()[1])
        return self.free[shown]

    def shown(self, text):
        back = {port: shown for shown, port in self.free.items()}
        return ADDRESS.sub(lambda found: f"{found['host']}:{back.get(found['port'], found['port'])}", text)


class Shell:
    """A bash in a folder, to which commands are given one after the other."""

    END = "\x1e"

    def __init__(self, folder, program):
        self.folder = folder / "page"
        self.folder.mkdir()
        programs = folder / "programs"
        programs.mkdir()
        (programs / "thalweg").symlink_to(program)
        # Not a link: Python finds its virtual environment by the path that it was started with.
        python = programs / "python3"
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        python.chmod(0o755)
        environment = {
            "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "COLUMNS": "100",
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
        }
        # A session of its own, so that processes in the background can be stopped with it.
        self.bash = subprocess.Popen(
            [shutil.which("bash"), "--norc", "--noprofile"],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        os.set_blocking(self.bash.stdout.fileno(), False)

    def run(self, command):
        """Returns what a command printed, and its exit code."""
        script = f"{{ {command}\n}} 2>&1 </dev/null\n__code=$?; printf '{self.END}%d{self.END}' $__code; (exit $__code)\n"
        self.bash.stdin.write(script.encode())
        self.bash.stdin.flush()
        said = b""
        end = time.monotonic() + COMMAND_SECONDS
        pattern = re.compile(f"{self.END}(\\d+){self.END}".encode())
        while not (found := pattern.search(said)):
            if time.monotonic() > end or self.bash.poll() is not None:
                raise Wrong(f"`{command}` did not end\n{said.decode(errors='replace')}")
            said += self.bash.stdout.read() or b""
            time.sleep(0.005)
        return said[: found.start()].decode(errors="replace"), int(found[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.bash.pid, signal.SIGKILL)
        self.bash.wait()


if __name__ == "__main__":
    main()
