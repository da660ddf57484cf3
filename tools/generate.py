#!/usr/bin/env python3
"""Writes the files that are derived from the code: reference pages, the JSON schema, the functions of the Python package.

    tools/generate.py            writes them
    tools/generate.py --check    fails if a source changed since they were written; compiles nothing

The check compares a fingerprint of what the derived files depend on: the configuration structs with their doc comments,
their defaults and examples, the registry, and the generators. It takes a second, so `make test` begins with it. A change
that the fingerprint misses is found by the tests, which compare the files themselves.
"""

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FINGERPRINT = ROOT / "docs/reference/fingerprint"
SOURCES = ["crates/codec/src", "crates/config/src/types", "crates/components"]
WHOLE = [
    "crates/engine/src/reference.rs",
    "crates/expression/src/catalogue.rs",
    "crates/engine/src/schema.rs",
    "crates/engine/src/settings.rs",
    "crates/components/registry/src/lib.rs",
    "crates/components/registry/src/reference.rs",
    "python/generate.py",
]
# The command line: its help is the page of the commands.
COMMANDS = "crates/cli/src/commands"
# Items of a file that uses `JsonSchema`: types with their doc comments, impls of `Default`, `JsonSchema` and constants.
ITEMS = re.compile(
    r"(?:^///[^\n]*\n)*(?:^#\[[^\n]*\n(?:^[ )}][^\n]*\n)*)*^(?:pub(?:\([a-z]+\))? )?(?:struct|enum|impl (?:Default|JsonSchema) for)\b.*?(?:^\}|;$)"
    r"|^    const EXAMPLE: .*?\"#;|^const [^\n]*\n",
    re.MULTILINE | re.DOTALL,
)


def fingerprint():
    """Returns the hash of everything that the derived files depend on."""
    found = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.rs")):
            text = path.read_text()
            if "JsonSchema" in text:
                for item in ITEMS.findall(text):
                    found.update(item.encode())
    for path in [*WHOLE, *sorted((ROOT / COMMANDS).rglob("*.rs"))]:
        found.update((ROOT / path).read_bytes())
    return found.hexdigest() + "\n"


def main():
    if "--check" in sys.argv:
        if not FINGERPRINT.exists() or FINGERPRINT.read_text() != fingerprint():
            sys.exit("the generated files are stale (docs/reference, python/thalweg/{sources,transforms,sinks}.py): run `make generate`")
        return
    cargo = os.environ.get("CARGO", "cargo")
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    program = [cargo, "--config", ".cargo/develop.toml", "run", "--release", "--locked", "--quiet", "-p", "thalweg-components", "--example", "generate"]
    components = target / "components.json"
    components.write_bytes(subprocess.run(program, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout)
    page = ROOT / "docs/reference/commands.md"
    commands = [cargo, "--config", ".cargo/develop.toml", "run", "--release", "--locked", "--quiet", "-p", "thalweg", "--", "reference"]
    page.write_bytes(subprocess.run(commands, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout)
    python = os.environ.get("PYTHON", sys.executable)
    subprocess.run([python, "python/generate.py", str(components)], cwd=ROOT, check=True)
    FINGERPRINT.write_text(fingerprint())


if __name__ == "__main__":
    main()
