#!/usr/bin/env python3
"""Prints tables of what contributes to the size of the program, in Markdown.

    tools/size.py PROGRAM [SLIM]     PROGRAM is not stripped, such as target/release/thalweg; SLIM is the slim build, if there is one

The first table has the parts of the stripped file, the others its machine code by crate and by feature of cargo. The code of a
generic function counts for the first crate in its name that is not the standard library, or for that library if there is no other.

Needs nm and readelf (binutils). cargo-bloat was rejected: it builds the program itself, and knows no features.
"""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MEBIBYTE = 1 << 20
ROWS = 20
# Crates that are one library in several parts: the name before the first underscore, and that of the row.
FAMILIES = {"arrow": "Arrow", "datafusion": "DataFusion", "opendal": "OpenDAL", "reqsign": "reqsign", "thalweg": "thalweg itself"}
STANDARD = {"alloc", "core", "std"}
# Rows of code whose symbols name no crate: most of the first is generic, made for the crates that use it.
NO_CRATE = GENERIC, FOREIGN = "the standard library", "C and assembly"
# The head of a path, as `parquet` in `<parquet::file::Writer<W> as core::ops::Drop>::drop`.
HEAD = re.compile(r"(?<![\w:$])([a-z_]\w*)::")
PARTS = {
    ".text": "machine code",
    ".eh_frame": "unwinding: tables of the frames and of what is dropped",
    ".eh_frame_hdr": "unwinding: tables of the frames and of what is dropped",
    ".gcc_except_table": "unwinding: tables of the frames and of what is dropped",
    ".rela.dyn": "relocations: the program may be loaded at any address",
    ".rodata": "constants",
    ".data.rel.ro": "constants with addresses, such as tables of methods",
}
OTHER = "other"


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    program = sys.argv[1]
    functions = code(program)
    if not functions:
        sys.exit(f"{program} has no symbols: name a program that is not stripped")
    loaded = sections(program)
    print(table(("part", "MiB"), loaded.most_common(), sum(loaded.values())))
    features = needed_by()
    total = sum(functions.values())
    print(table(("crate", "MiB of code", "only with the feature"), rows(functions, features), total))
    print(table(("feature", "MiB of code that only it needs"), by_feature(functions, features), total))
    if sys.argv[2:]:
        print(f"The slim build has {sum(sections(sys.argv[2]).values()) / MEBIBYTE:.1f} MiB.")


def output(*line):
    return subprocess.run(line, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def sections(program):
    """The bytes of the file by part, without what `strip` removes."""
    sizes = Counter()
    for line in output("readelf", "--section-headers", "--wide", Path(program).resolve()).splitlines():
        found = re.match(r" +\[ *\d+\] (\.\S+) +(\S+) +\S+ \S+ (\S+) \S+ +(\w*) ", line)
        if found and found[2] != "NOBITS" and "A" in found[4]:
            sizes[PARTS.get(found[1], OTHER)] += int(found[3], 16)
    return sizes


def code(program):
    """The bytes of machine code by crate."""
    sizes, seen = Counter(), set()
    for line in output("nm", "--demangle", "--print-size", Path(program).resolve()).splitlines():
        fields = line.split(maxsplit=3)
        # Equal functions may have been merged: then several names have one address.
        if len(fields) == 4 and fields[2] in "tTwW" and fields[0] not in seen:
            seen.add(fields[0])
            sizes[crate(fields[3])] += int(fields[1], 16)
    return sizes


def crate(name):
    heads = HEAD.findall(name)
    own = next((head for head in heads if head not in STANDARD), None)
    return own or (GENERIC if heads else FOREIGN)


def by_feature(functions, features):
    sizes = Counter()
    for name, size in functions.items():
        sizes[f"`{features[name]}`" if name in features else "in every build"] += size
    return sizes.most_common()


def rows(functions, features):
    """The largest crates with their features, and the others as one row."""
    sizes, needed = Counter(), {}
    for name, size in functions.items():
        row = FAMILIES.get(name.partition("_")[0]) or (name if name in NO_CRATE else f"`{name}`")
        sizes[row] += size
        needed.setdefault(row, set()).add(features.get(name))
    largest = sizes.most_common(ROWS)
    others = sum(sizes.values()) - sum(size for _, size in largest)
    listed = [(row, size, only(needed[row])) for row, size in largest]
    return [*listed, (f"{len(sizes) - len(largest)} others", others, "")]


def only(features):
    """The feature of a library, unless its parts belong to several, or one of them to every build."""
    return f"`{min(features)}`" if len(features) == 1 and None not in features else ""


def needed_by():
    """The crates that only one of the program's features brings along, with this feature."""
    metadata = json.loads(output(cargo(), "metadata", "--format-version", "1", "--no-deps", "--locked"))
    features = next(package["features"] for package in metadata["packages"] if package["name"] == "thalweg")
    every = crates(features["default"])
    found = {}
    for feature in features["default"]:
        # Those that do not enable it in turn.
        kept = [other for other in features["default"] if other != feature and feature not in features[other]]
        for name in every - crates(kept):
            # Of two features, the one that loses fewer crates is nearer: `avif` before `images`.
            found.setdefault(name, []).append((len(every - crates(kept)), feature))
    return {name: min(features)[1] for name, features in found.items()}


def crates(features):
    line = [cargo(), "tree", "--package", "thalweg", "--edges", "normal", "--prefix", "none", "--format", "{lib}", "--locked"]
    return set(output(*line, "--no-default-features", "--features", ",".join(features)).split())


def cargo():
    return os.environ.get("CARGO", "cargo")


def table(heads, lines, total):
    numbered = [[line[0], f"{line[1] / MEBIBYTE:.1f}", *line[2:]] for line in lines]
    numbered.append(["total", f"{total / MEBIBYTE:.1f}", *[""] * (len(heads) - 2)])
    ruler = ["---", "---:", *["---"] * (len(heads) - 2)]
    return "".join(f"| {' | '.join(line)} |\n" for line in [heads, ruler, *numbered])


if __name__ == "__main__":
    main()
