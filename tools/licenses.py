#!/usr/bin/env python3
"""Checks offline that the licence of every dependency is one that deny.toml allows.

    tools/licenses.py

`cargo deny check` does more (advisories, sources), but has to be installed and needs the network for its database. This
check needs only what cargo knows, so `make lint` runs it.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def allowed(expression, allow):
    """True if an SPDX expression of AND, OR, WITH and brackets can be met with the allowed licences."""
    # Crates from before SPDX expressions separate alternatives with a slash.
    tokens = re.findall(r"\(|\)|[^\s()]+", expression.replace("/", " OR "))

    def term():
        if tokens and tokens[0] == "(":
            tokens.pop(0)
            value = either()
            tokens.pop(0)
            return value
        name = tokens.pop(0)
        if tokens and tokens[0] == "WITH":
            tokens.pop(0)
            name = f"{name} WITH {tokens.pop(0)}"
        return name in allow

    def both():
        value = term()
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            value = term() and value
        return value

    def either():
        value = both()
        while tokens and tokens[0] == "OR":
            tokens.pop(0)
            value = both() or value
        return value

    return either()


def main():
    # Python 3.10 has no reader of TOML.
    allow = set(re.findall(r'^    "([^"]+)",$', (ROOT / "deny.toml").read_text(), re.MULTILINE))
    cargo = os.environ.get("CARGO", "cargo")
    host = subprocess.run(["rustc", "-vV"], stdout=subprocess.PIPE, text=True, check=True).stdout
    host = re.search(r"^host: (.*)$", host, re.MULTILINE).group(1)
    line = [cargo, "metadata", "--format-version", "1", "--locked", "--all-features", "--filter-platform", host]
    packages = json.loads(subprocess.run(line, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout)["packages"]
    outside = [package for package in packages if package["source"]]
    refused = [
        f"{package['name']} {package['version']}: {package['license'] or 'no licence'}"
        for package in outside
        if not package["license"] or not allowed(package["license"], allow)
    ]
    if refused:
        sys.exit("licences that deny.toml does not allow:\n  " + "\n  ".join(refused))
    print(f"licences: {len(outside)} dependencies, all allowed by deny.toml")


if __name__ == "__main__":
    main()
