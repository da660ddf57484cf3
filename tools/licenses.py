#!/usr/bin/env python3
"""Checks offline that the licence of every dependency is one that deny.toml allows.

    tools/licenses.py                  checks all dependencies of the workspace
    tools/licenses.py --texts FILE     writes the licences of the program's dependencies into FILE, each with its text

Most licences demand that their text goes with every copy of the program.

`cargo deny check` does more (advisories, sources), but has to be installed and needs the network for its database. This
check needs only what cargo knows, so `make lint` runs it.
"""

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What `make dashboard` writes: the packages whose code is in the script of the dashboard.
DASHBOARD = ROOT / "crates/frontend/src/api/dashboard/built/licences.json"
# The names of files with a licence or what belongs to it.
TEXT = re.compile(r"(?i)(un)?(licen[cs]e|copying|copyright|notice|patents)([-_.](?!.*\.(rs|c|h|py)$).*)?")


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


def cargo(*arguments):
    line = [os.environ.get("CARGO", "cargo"), *arguments, "--locked"]
    return subprocess.run(line, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


def dependencies():
    """The packages of others on this machine, with all features."""
    host = subprocess.run(["rustc", "-vV"], stdout=subprocess.PIPE, text=True, check=True).stdout
    host = re.search(r"^host: (.*)$", host, re.MULTILINE).group(1)
    metadata = cargo("metadata", "--format-version", "1", "--all-features", "--filter-platform", host)
    return [package for package in json.loads(metadata)["packages"] if package["source"]]


def check():
    # Python 3.10 has no reader of TOML.
    allow = set(re.findall(r'^    "([^"]+)",$', (ROOT / "deny.toml").read_text(), re.MULTILINE))
    outside = dependencies()
    refused = [
        f"{package['name']} {package['version']}: {package['license'] or 'no licence'}"
        for package in outside
        if not package["license"] or not allowed(package["license"], allow)
    ]
    scripts = json.loads(DASHBOARD.read_text())
    refused += [f"{package['name']} {package['version']}: {package['license']}" for package in scripts if not allowed(package["license"], allow)]
    if refused:
        sys.exit("licences that deny.toml does not allow:\n  " + "\n  ".join(refused))
    print(f"licences: {len(outside) + len(scripts)} dependencies, all allowed by deny.toml")


def texts():
    """The licences of what the program contains. A text that several packages share is there once, below their names."""
    linked = set(cargo("tree", "-p", "thalweg", "-e", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}").splitlines())
    linked = {tuple(line.split()[:2]) for line in linked}
    packages = [package for package in dependencies() if (package["name"], f"v{package['version']}") in linked]
    listed, owners = [], {}
    for package in sorted(packages, key=lambda package: (package["name"], package["version"])):
        name = f"{package['name']} {package['version']}"
        listed.append(f"{name}: {package['license']}\n    {package['repository'] or package['homepage'] or ''}\n")
        for text in texts_of(Path(package["manifest_path"]).parent):
            owners.setdefault(text, []).append(name)
    for package in json.loads(DASHBOARD.read_text()):
        name = f"{package['name']} {package['version']}"
        listed.append(f"{name}: {package['license']}\n    {package['repository']}\n")
        owners.setdefault(package["text"], []).append(name)
    parts = ["Libraries that the program contains, their licences, and the texts of these.\n\n", *listed]
    for text, names in owners.items():
        parts.append(f"\n{'=' * 80}\n" + textwrap.fill(", ".join(names), 80) + f"\n{'-' * 80}\n\n{text}\n")
    return "".join(parts)


def texts_of(folder):
    """The texts in a package's folder and, for the C sources that it brings along, in the folders below."""
    found = (path for pattern in ("*", "*/*", "*/*/*") for path in sorted(folder.glob(pattern)))
    texts = [path.read_text(errors="replace").strip() for path in found if TEXT.fullmatch(path.name) and path.is_file()]
    return list(dict.fromkeys(texts))


def main():
    if sys.argv[1:2] == ["--texts"]:
        Path(sys.argv[2]).write_text(texts())
    else:
        check()


if __name__ == "__main__":
    main()
