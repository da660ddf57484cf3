#!/usr/bin/env python3
"""Takes pictures of the terminal: the output of the program, with its colours, as SVG in docs/pictures.

    tools/pictures.py PROGRAM            takes all pictures
    tools/pictures.py PROGRAM --check    fails if the program prints something other than what a picture shows

A picture has its text as a description, for readers who cannot see it and for `--check`, which ignores figures as
`tools/pages.py` does. Needs rich, which turns colours into SVG. (Rejected: a recording that plays, which needs a script.)
"""

import fcntl
import html
import io
import os
import pty
import re
import shutil
import struct
import sys
import tempfile
import termios
import textwrap
from pathlib import Path

from pages import FIGURES
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs/pictures"
COLUMNS, ROWS = 100, 40
TITLE_BAR = 28
DECIMAL = re.compile(r"\d+\.\d+")
DESCRIPTION = re.compile(r"<desc>(.*?)</desc>", re.DOTALL)

MISTAKES = """\
    sources:
      access: { file: { path: access.log } }
    pipelines:
      main:
        from: access
        transforms:
          - parse_nginx: {}
          - filter: "statsu >= 500"
          - set: { slow: "request_time > 1.5", host: "uper(http_host)" }
        to: errors
    sinks:
      errors: { file: { path: out/errors.jsonl, encode: jsno } }
    """
ACCESS = """\
    203.0.113.7 - - [25/Nov/2026:08:14:02 +0000] "GET /cart HTTP/1.1" 200 5316 "-" "Mozilla/5.0"
    203.0.113.9 - ann [25/Nov/2026:08:14:03 +0000] "POST /pay HTTP/1.1" 502 157 "-" "curl/8.14"
    203.0.113.7 - - [25/Nov/2026:08:14:05 +0000] "GET /pay HTTP/1.1" 504 0 "-" "Mozilla/5.0"
    not a line of an access log
    """
# The name of a picture, the files that its commands find, and the commands.
SCENES = {
    "run": (["weather.yaml", "data"], {}, ["thalweg run weather.yaml"]),
    "check": ([], {"access.yaml": MISTAKES, "access.log": ACCESS}, ["thalweg check access.yaml"]),
    "pipe": (
        [],
        {"access.log": ACCESS},
        ["thalweg pipe 'parse_nginx | filter status >= 500 | keep remote_addr, request_uri, status' < access.log"],
    ),
    "copy": (
        ["data"],
        {},
        [
            "thalweg copy data/seattle-weather.csv sun.jsonl --parse csv --encode json --type temp_max=float"
            " --where \"weather = 'sun' AND temp_max > 33\" --keep date,temp_max",
            "head -n 3 sun.jsonl",
        ],
    ),
}

# Colours that can be told apart on the dark background of the picture.
THEME = TerminalTheme(
    (23, 27, 33),
    (214, 219, 226),
    [(60, 66, 75), (240, 113, 120), (127, 200, 140), (229, 192, 123), (108, 170, 240), (200, 146, 234), (102, 200, 210), (214, 219, 226)],
)
SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 TOP {width} {height}" role="img">
<desc>DESCRIPTION</desc>
<style>
.{unique_id}-matrix {{ font: {char_height}px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; line-height: {line_height}px }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect width="{terminal_width}" height="{terminal_height}"/></clipPath>{lines}</defs>
<rect y="TOP" width="{width}" height="{height}" rx="8" fill="#171b21"/>
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix" xml:space="preserve">
{matrix}
</g>
</g>
</svg>
"""


def main():
    program, is_check = Path(sys.argv[1]).resolve(), "--check" in sys.argv[2:]
    stale = []
    for name, scene in SCENES.items():
        printed = shown(program, *scene)
        path = PICTURES / f"{name}.svg"
        if not is_check:
            path.write_text(picture(name, printed))
        elif not path.exists() or masked(description(path.read_text())) != masked(printed.plain):
            stale.append(name)
            print(f"docs/pictures/{name}.svg is not what the program prints:\n{printed.plain}")
    if is_check:
        print(f"test result: {'FAILED' if stale else 'ok'}. {len(SCENES) - len(stale)} passed; {len(stale)} failed")
    sys.exit(bool(stale))


def shown(program, examples, files, commands):
    """The commands and their output."""
    text = Text()
    with tempfile.TemporaryDirectory() as folder:
        for name in examples:
            source = ROOT / "examples" / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, Path(folder, name))
        for name, content in files.items():
            Path(folder, name).write_text(textwrap.dedent(content))
        for command in commands:
            text.append(f"$ {command}\n", style="bold")
            text.append_text(Text.from_ansi(printed(program, command, folder)))
            text.append("\n")
    text.rstrip()
    return text


def printed(program, command, folder):
    """The output of a command to a terminal."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.environ.update(TERM="xterm-256color", PATH=f"{program.parent}:{os.environ['PATH']}", HOME=folder)
        os.execvp("bash", ["bash", "-c", command])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    output = b""
    # On Linux, a terminal without a writer cannot be read.
    while data := read(terminal):
        output += data
    os.waitpid(child, 0)
    os.close(terminal)
    return output.decode().replace("\r\n", "\n")


def read(terminal):
    try:
        return os.read(terminal, 1 << 16)
    except OSError:
        return b""


def picture(name, text):
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor", legacy_windows=False)
    console.print(text, soft_wrap=False)
    svg = console.export_svg(theme=THEME, code_format=SVG, unique_id=name, title="")
    # rich leaves room for the title bar of a window.
    svg = svg.replace("TOP", str(TITLE_BAR))
    svg = re.sub(r'(viewBox="0 \d+ [\d.]+ |<rect y="\d+" width="[\d.]+" height=")([\d.]+)', shortened, svg)
    return svg.replace("DESCRIPTION", html.escape(text.plain), 1)


def shortened(found):
    return f"{found[1]}{float(found[2]) - TITLE_BAR:.1f}"


def description(svg):
    found = DESCRIPTION.search(svg)
    return html.unescape(found[1]) if found else ""


def masked(text):
    """The lines in order, without times, rates and all figures with a decimal point: these differ from run to run, as does the
    order of the two outputs of a command."""
    return sorted(" ".join(DECIMAL.sub("N", FIGURES.sub("N", line)).split()) for line in text.splitlines())


if __name__ == "__main__":
    main()
