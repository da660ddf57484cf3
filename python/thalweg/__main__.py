"""The program `thalweg` of the wheel. Its commands run the same code as those of the binary.

The command line is parsed in Python, so that the wheel does not carry the parser of the binary. See
docs/decisions/072-python-parses-its-own-command-line.md.
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Callable
from pathlib import Path

from thalweg import _thalweg
from thalweg._copy import written

#: The largest number that the compiled part accepts.
MOST = 2**63 - 1

EPILOG = "The binary `thalweg` has more commands: serve, components, new, schema, sparse, top, tap, completions."

#: Options of `copy` with a value, each with its metavariable and help.
VALUES = {
    "symlinks": (
        "WHAT",
        "the files to copy through links in a folder: inside (links that stay in it, the default) or files (all)",
    ),
    "existing": ("WHAT", "what to do with an object that exists: replace (the default), update, skip or error"),
    "content-type": ("TYPE", "the content type of written objects"),
    "memory": ("SIZE", "the memory for data in flight, for example 1GiB"),
    "parse": ("FORM", "read rows in this form: avro, csv, lines or jsonl"),
    "encode": ("FORM", "write rows in this form: json, csv, logfmt, text, parquet or raw"),
    "where": ("SQL", "copy only rows for which this SQL condition is true"),
    "delimiter": ("CHARACTER", "the character between the values of CSV"),
    "charset": ("NAME", "the character set of the rows, such as latin1, utf-16 or shift_jis"),
    "template": ("TEXT", "the template of a row with --encode text"),
    "mode": ("MODE", "the concurrency: auto, sequential, parallel, parallel=N or channel"),
    "slice_size": ("SIZE", "the size of a read request for rows, for example 8MiB"),
    "part-size": ("SIZE", "the size of a written part, for example 16MiB"),
}
#: Options of `copy` with a number, each with its limits and help.
NUMBERS = {
    "threads": (1, 1024, "the number of cores to use"),
    "readers": (1, MOST, "the number of ranges to read at the same time"),
    "writers": (1, MOST, "the number of parts to write at the same time"),
    "queue": (0, MOST, "the number of slices between readers and writers"),
}
#: Options of `copy` that may be given several times.
LISTS = {
    "include": ("PATTERN", "copy only objects that match"),
    "exclude": ("PATTERN", "do not copy objects that match"),
    "keep": ("NAMES", "keep only these fields, separated by commas"),
    "columns": ("NAMES", "the names of the columns of CSV without a header, separated by commas"),
}
#: Options of `copy` with a name and a value.
PAIRS = {
    "set": ("NAME=SQL", "set a field to the value of a SQL expression"),
    "type": ("NAME=TYPE", "the type of a column: int, float, bool, timestamp, json or text"),
}
#: Options of `copy` without a value.
FLAGS = {
    "strict": "end with exit code 1 if rows could not be copied",
    "unordered": "allow rows to be written in any order",
    "restart": "ignore the state of an earlier copy",
    "no-resume": "keep no state: an interrupted copy restarts",
}


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise argparse.ArgumentTypeError("it must be a name, `=`, and a value")
    return name.strip(), value


def _number(least: int, most: int = MOST) -> Callable[[str], int]:
    """Returns a parser of numbers within these limits."""
    limits = f"{least} or more" if most == MOST else f"a number from {least} to {most}"

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"`{text}` is not a number") from None
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"it must be {limits}")
        return number

    return parse


def _names(text: str) -> list[str]:
    return text.split(",")


def _run(arguments: argparse.Namespace) -> int:
    if arguments.api_token_file is not None and arguments.listen is None:
        arguments.reject("--api-token-file needs --listen")
    if not arguments.repeat and (arguments.sleep is not None or arguments.iterations is not None):
        arguments.reject("--sleep and --iterations need --repeat")
    return _thalweg.run_command(vars(arguments))


def _check(arguments: argparse.Namespace) -> int:
    return _thalweg.check_command(arguments.config, arguments.plan, arguments.json, arguments.threads)


def _convert(arguments: argparse.Namespace) -> int:
    return _thalweg.convert_command(arguments.config, arguments.processor, arguments.output)


def _copy(arguments: argparse.Namespace) -> int:
    given = dict(vars(arguments))
    options = {name: given[name] for name in _thalweg.copy_options() if name != "state"}
    return _thalweg.copy_command(written(options), given["state"], given["print_config"], given["json"], given["quiet"])


def _errors(arguments: argparse.Namespace) -> int:
    usual = {"component": None, "id": 0, "limit": None, "json": False, "payload": False, "yes": False}
    return _thalweg.errors_command(usual | vars(arguments))


def _add_output(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print everything as JSON, one object per line")
    command.add_argument("-q", "--quiet", action="store_true", help="print only errors")


def _add_run(command: argparse.ArgumentParser) -> None:
    command.add_argument("config", type=Path, metavar="CONFIG", help="the configuration; - is the standard input")
    command.add_argument(
        "pipelines", nargs="*", metavar="PIPELINE", help="run only these pipelines; of a service, service:processor"
    )
    command.add_argument("--state", type=Path, metavar="DIR", help="keep checkpoints and dead letters here")
    command.add_argument("--memory", metavar="SIZE", help="the memory for data in flight, for example 1GiB")
    command.add_argument("--threads", type=_number(1, 1024), metavar="N", help="the number of cores to use")
    command.add_argument(
        "--drain-timeout", metavar="TIME", help="how long a stopped run may deliver what is in flight (60s)"
    )
    command.add_argument("--listen", metavar="ADDRESS:PORT", help="serve /metrics, /health, /ready and the API here")
    command.add_argument(
        "--api-token-file", type=Path, metavar="FILE", help="the token that clients of the API must send (--listen)"
    )
    command.add_argument(
        "--telemetry",
        metavar="ENDPOINT",
        help="send metrics and traces to this receiver of OpenTelemetry; --telemetry= is that of the environment",
    )
    command.add_argument("--limit", type=_number(1), metavar="N", help="end each source after N messages or files")
    command.add_argument(
        "--dry-run", action="store_true", help="show what would be written, and write, remove and acknowledge nothing"
    )
    command.add_argument("--strict", action="store_true", help="end with exit code 1 if messages were rejected")
    _add_output(command)
    command.add_argument("-v", "--verbose", action="store_true", help="also print how batches were handed over")
    command.add_argument("--repeat", action="store_true", help="run the configuration again when it has ended")
    command.add_argument("-s", "--sleep", metavar="TIME", help="the pause between two runs (1s)")
    command.add_argument("-i", "--iterations", type=_number(1), metavar="N", help="the number of runs in all")
    command.add_argument("--schedule", metavar="CRON", help="run the configuration at these times, or off: once")
    command.add_argument(
        "-f", "--service-definition", type=Path, metavar="FILE", help="a service definition of capyfile"
    )
    command.add_argument(
        "--compat-exit-code", action="store_true", help="end with exit code 0 even if files of a service failed"
    )


def _add_check(command: argparse.ArgumentParser) -> None:
    command.add_argument("config", type=Path, metavar="CONFIG", help="the configuration; - is the standard input")
    command.add_argument("--plan", action="store_true", help="show the edges of the graph, and how it will run")
    command.add_argument("--json", action="store_true", help="print the mistakes as one JSON object")
    command.add_argument("--threads", type=_number(1, 1024), metavar="N", help="the number of cores to plan for")


def _add_convert(command: argparse.ArgumentParser) -> None:
    command.add_argument("config", type=Path, metavar="CONFIG", help="the configuration; - is the standard input")
    command.add_argument("processor", nargs="?", metavar="PROCESSOR", help="of a service, only this processor")
    command.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the configuration to this new file")


def _add_copy(command: argparse.ArgumentParser) -> None:
    command.add_argument("from", metavar="FROM", help="the URL or pattern to read")
    command.add_argument("to", metavar="TO", help="the object to write, or a prefix that ends with a slash")
    for name, (metavar, about) in VALUES.items():
        command.add_argument(f"--{name}", metavar=metavar, help=about)
    for name, (least, most, about) in NUMBERS.items():
        command.add_argument(f"--{name}", type=_number(least, most), metavar="N", help=about)
    for name, (metavar, about) in LISTS.items():
        split = {"type": _names, "action": "extend"} if metavar == "NAMES" else {"action": "append"}
        command.add_argument(f"--{name}", metavar=metavar, help=about, **split)
    for name, (metavar, about) in PAIRS.items():
        command.add_argument(f"--{name}", type=_pair, action="append", metavar=metavar, help=about)
    for name, about in FLAGS.items():
        command.add_argument(f"--{name}", action="store_true", help=about)
    command.add_argument("--state", type=Path, metavar="DIR", help="keep the state for a later copy here")
    copies_nothing = command.add_mutually_exclusive_group()
    copies_nothing.add_argument("--dry-run", action="store_true", help="list what would be copied, and write nothing")
    copies_nothing.add_argument(
        "--print-config", action="store_true", help="print the configuration that does the same"
    )
    _add_output(command)


def _add_errors(command: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")
    listed = actions.add_parser("list", help="list the dead letters, oldest first")
    shown = actions.add_parser("show", help="show one dead letter as a whole")
    replayed = actions.add_parser("replay", help="process dead letters again, in the pipelines that rejected them")
    cleared = actions.add_parser("clear", help="remove dead letters")
    shown.add_argument("id", type=_number(0), metavar="ID", help="the number of the dead letter, as `list` shows it")
    for action in (listed, shown, replayed, cleared):
        nargs = None if action is replayed else "?"
        action.add_argument("config", type=Path, nargs=nargs, metavar="CONFIG", help="the configuration of the run")
        action.add_argument("--state", type=Path, metavar="DIR", help="the state folder, if the run was given one")
    for action in (listed, replayed, cleared):
        action.add_argument("--component", metavar="NAME", help="only dead letters of this component or pipeline")
        action.add_argument("--limit", type=_number(0), metavar="N", help="the most dead letters")
    forms = shown.add_mutually_exclusive_group()
    for options in (listed, forms, replayed):
        options.add_argument("--json", action="store_true", help="print JSON")
    forms.add_argument("--payload", action="store_true", help="print the payload alone, byte for byte")
    cleared.add_argument("-y", "--yes", action="store_true", help="remove without asking")


#: The commands: the help, the options and the function of each.
COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], int]]] = {
    "run": ("run a configuration until its sources end", _add_run, _run),
    "check": ("print every mistake in a configuration", _add_check, _check),
    "convert": ("print a configuration of another program in thalweg's own form", _add_convert, _convert),
    "copy": ("copy objects between stores, web servers and folders", _add_copy, _copy),
    "errors": ("show what could not be processed and why, and process it again", _add_errors, _errors),
}


def parser() -> argparse.ArgumentParser:
    program = argparse.ArgumentParser(
        prog="thalweg",
        description="Moves messages and files from any source, through transforms, to any sink.",
        epilog=EPILOG,
    )
    program.add_argument("--version", action="version", version=f"thalweg {_thalweg.__version__}")
    commands = program.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (about, add, call) in COMMANDS.items():
        command = commands.add_parser(name, help=about, description=about)
        add(command)
        command.set_defaults(call=call, reject=command.error)
    return program


def main() -> None:
    arguments = parser().parse_args()
    # Python's own handler only sets a flag for the interpreter, which does not run during the call.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    code = arguments.call(arguments)
    # A thread may still wait for something that never comes, such as a line from a terminal.
    os._exit(code)


if __name__ == "__main__":
    main()
