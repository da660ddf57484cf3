"""The program, run as a user runs it."""

import subprocess
import sys
from pathlib import Path

import thalweg


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
