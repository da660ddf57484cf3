"""The program, run as a user runs it."""

import subprocess
import sys
from pathlib import Path

import pytest

import thalweg

GENERATED = """
sources: { numbers: { generate: { count: 3 } } }
pipelines: { main: { from: numbers, to: out } }
sinks: { out: discard }
"""


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    line = [sys.executable, "-m", "thalweg", *arguments]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)


def test_it_says_its_version() -> None:
    assert run("--version").stdout == f"thalweg {thalweg.__version__}\n"


def test_it_runs_a_configuration(tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("one\ntwo\n")
    config = tmp_path / "config.yaml"
    config.write_text(f"""
sources:
  lines: {{ file: {{ path: {lines} }} }}
pipelines:
  main: {{ from: lines, to: out }}
sinks:
  out: stdout
""")
    ran = run("run", str(config), "--quiet")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "one\ntwo\n", "")


def test_a_mistake_is_exit_code_2(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("sources: { lines: { fil: { path: a } } }\n")
    ran = run("check", str(config))
    assert ran.returncode == 2
    assert "`file`" in ran.stderr


def test_a_converted_configuration_runs(tmp_path: Path) -> None:
    config = tmp_path / "gollum.conf"
    config.write_text("In: { Type: consumer.Console, Streams: a }\nOut: { Type: producer.Console, Streams: a }\n")
    ran = run("convert", str(config), "--output", str(tmp_path / "own.yaml"))
    assert ran.returncode == 0, ran.stderr
    assert run("check", str(tmp_path / "own.yaml")).returncode == 0


def test_it_copies(tmp_path: Path) -> None:
    people = tmp_path / "people.csv"
    people.write_text("name,age\nAda,36\nBen,7\n")
    target = tmp_path / "people.jsonl"
    rows = ["--parse", "csv", "--encode", "json", "--type", "age=int", "--where", "age >= 18", "--keep", "name,age"]
    ran = run("copy", str(people), str(target), *rows, "--state", str(tmp_path / "state"), "--quiet")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert target.read_text() == '{"name":"Ada","age":36}\n'
    assert "sources:" in run("copy", str(people), str(target), *rows, "--print-config").stdout
    assert run("copy", str(people), str(target), "--encode", "json").returncode == 2


def test_dead_letters_are_listed_shown_replayed_and_removed(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"a":1}\nno\n')
    config = tmp_path / "config.yaml"
    config.write_text(f"""
sources: {{ lines: {{ file: {{ path: {tmp_path}/in.jsonl }} }} }}
pipelines: {{ main: {{ from: lines, transforms: [parse_json: {{}}], to: out }} }}
sinks: {{ out: {{ file: {{ path: {tmp_path}/out.jsonl }} }} }}
""")
    assert run("run", str(config), "--quiet").returncode == 0
    assert "1 dead letter" in run("errors", "list", str(config)).stdout
    assert run("errors", "show", "1", str(config), "--payload").stdout == "no"
    assert "1 rejected again" in run("errors", "replay", str(config)).stderr
    assert "removed 1 dead letter" in run("errors", "clear", str(config), "--yes").stderr


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        ("run", "c --threads -1", "argument --threads: it must be a number from 1 to 1024"),
        ("run", "c --threads 0", "argument --threads: it must be a number from 1 to 1024"),
        ("run", "c --threads two", "argument --threads: `two` is not a number"),
        ("run", "c --repeat --iterations -1", "argument -i/--iterations: it must be 1 or more"),
        ("run", "c --iterations 2", "--sleep and --iterations need --repeat"),
        ("run", "c --sleep 1s", "--sleep and --iterations need --repeat"),
        ("run", "c --api-token-file t", "--api-token-file needs --listen"),
        ("check", "c --threads 1025", "argument --threads: it must be a number from 1 to 1024"),
        ("copy", "a b --threads 0", "argument --threads: it must be a number from 1 to 1024"),
        ("copy", "a b --readers 0", "argument --readers: it must be 1 or more"),
        ("copy", "a b --queue -1", "argument --queue: it must be 0 or more"),
        ("copy", "a b --dry-run --print-config", "argument --print-config: not allowed with argument --dry-run"),
        ("errors list", "--limit -1", "argument --limit: it must be 0 or more"),
        ("errors show", "-1", "argument ID: it must be 0 or more"),
        ("errors show", "1 --json --payload", "argument --payload: not allowed with argument --json"),
    ],
)
def test_a_wrong_command_line_is_exit_code_2(command: str, options: str, message: str) -> None:
    ran = run(*command.split(), *options.split())
    assert (ran.returncode, ran.stderr.splitlines()[-1]) == (2, f"thalweg {command}: error: {message}")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--memory=1GX", "`--memory`: `GX` is not a unit of size. Did you mean `1GB`?"),
        ("--drain-timeout=1x", "`--drain-timeout`: `x` is not a unit of time"),
        ("--schedule=* *", "`--schedule`: `* *` is not a line of times"),
        ("--listen=localhost", "`--listen`: write an IP address and a port, such as `127.0.0.1:9090`"),
    ],
)
def test_a_wrong_value_is_reported_with_its_option_and_the_reason(tmp_path: Path, option: str, message: str) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(GENERATED)
    ran = run("run", str(config), option)
    assert ran.returncode == 2
    assert ran.stderr.startswith(f"error: {message}")


def test_a_run_needs_no_standard_output(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(GENERATED)
    line = ["sh", "-c", '"$@" >&-', "sh", sys.executable, "-m", "thalweg", "run", str(config), "--quiet"]
    ran = subprocess.run(line, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_commands_of_the_binary_are_named() -> None:
    assert run("serve").returncode == 2
    assert "serve" in run("--help").stdout.split("The binary `thalweg` has more commands:")[1]
