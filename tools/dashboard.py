#!/usr/bin/env python3
"""Packs the dashboard for the program, and checks that what is packed is that of its sources.

    tools/dashboard.py pack FOLDER   compresses what Vite has built in FOLDER into the folder of the program's sources
    tools/dashboard.py --check       fails if a source or a packed file changed since then; runs no Node

The check compares a fingerprint: the hash of all sources, the list of the packages included, and the hash of each packed file.
It takes a moment, so `make test` begins with it. A second build was rejected as a check: it needs Node and all packages.
"""

import gzip
import hashlib
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = "dashboard"
# What decides neither what is built nor how.
OTHER = ("dashboard/test/", "dashboard/.npmrc")
BUILT = ROOT / "crates/frontend/src/api/dashboard/built"
FINGERPRINT = BUILT / "fingerprint"
PACKED = {
    "index.html": "index.html.gz",
    "dashboard/app.js": "app.js.gz",
    "dashboard/app.css": "app.css.gz",
    "dashboard/icon.svg": "icon.svg.gz",
}
# The licences of the packages whose code is in the script, for tools/licenses.py.
LICENCES = "licences.json"


def sources():
    """The hash of the sources, with their names."""
    line = ["git", "ls-files", "-coz", "--exclude-standard", "--", SOURCES]
    names = subprocess.run(line, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.split("\0")
    found = hashlib.sha256()
    for name in sorted(set(filter(None, names))):
        path = ROOT / name
        if path.is_file() and not name.startswith(OTHER):
            found.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()


def fingerprint():
    lines = [f"{sources()}  {SOURCES}\n"]
    for name in sorted([*PACKED.values(), LICENCES]):
        lines.append(f"{hashlib.sha256((BUILT / name).read_bytes()).hexdigest()}  {name}\n")
    return "".join(lines)


def pack(folder):
    built = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    if built != {*PACKED, LICENCES}:
        sys.exit(f"the build has other files than the program serves: {', '.join(sorted(built ^ {*PACKED, LICENCES}))}")
    BUILT.mkdir(exist_ok=True)
    for name, packed in PACKED.items():
        # Without a time, so that the same sources give the same bytes.
        (BUILT / packed).write_bytes(gzip.compress((folder / name).read_bytes(), 9, mtime=0))
    (BUILT / LICENCES).write_bytes((folder / LICENCES).read_bytes())
    FINGERPRINT.write_text(fingerprint())
    sizes = {packed: (BUILT / packed).stat().st_size for packed in PACKED.values()}
    print(f"dashboard: {sum(sizes.values()) / 1000:.1f} kB packed ({', '.join(f'{name} {size / 1000:.1f}' for name, size in sizes.items())})")


def main():
    match sys.argv[1:]:
        case ["pack", folder]:
            pack(Path(folder))
        case ["--check"]:
            missing = [name for name in [*PACKED.values(), LICENCES, FINGERPRINT.name] if not (BUILT / name).exists()]
            if missing or FINGERPRINT.read_text() != fingerprint():
                sys.exit("the built dashboard is stale (crates/frontend/src/api/dashboard/built): run `make dashboard`")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
