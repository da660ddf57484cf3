#!/usr/bin/env python3
"""Packs a program that is already built: as an archive for any Linux, and as a Debian package.

    tools/package.py tar --third-party FILE PROGRAM FOLDER    thalweg-VERSION-x86_64-linux.tar.gz
    tools/package.py deb --third-party FILE PROGRAM FOLDER    thalweg_VERSION-1_amd64.deb

The man pages and the completions come from the program itself, other files from `packaging`. FILE holds the licences of the
dependencies, as `tools/licenses.py --texts` writes them.

The same input makes the same bytes: names are sorted, and every time is SOURCE_DATE_EPOCH, by default that of the commit.

Needs objdump and strip (binutils), and dpkg-deb for the Debian package. debhelper was rejected: it wants a source package and
builds the program itself, and what it would add here is the list of files below.
"""

import argparse
import dataclasses
import datetime
import email.utils
import gzip
import hashlib
import io
import os
import re
import struct
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGING = ROOT / "packaging"
# The machines of an ELF file: what Linux calls them, and what Debian calls them.
MACHINES = {62: ("x86_64", "amd64"), 183: ("aarch64", "arm64")}
# The Debian package of each library that the program loads, and the prefix of the versions of its symbols.
LIBRARIES = {
    "ld-linux-x86-64.so.2": ("libc6", "GLIBC_"),
    "ld-linux-aarch64.so.1": ("libc6", "GLIBC_"),
    "libc.so.6": ("libc6", "GLIBC_"),
    "libdl.so.2": ("libc6", "GLIBC_"),
    "libgcc_s.so.1": ("libgcc-s1", "GCC_"),
    "libm.so.6": ("libc6", "GLIBC_"),
    "libpthread.so.0": ("libc6", "GLIBC_"),
}
# The revision of the Debian package. It counts packages of one version of the program.
REVISION = "1"
MAINTAINER = "The maintainers of thalweg <thalweg@users.noreply.github.com>"


@dataclasses.dataclass
class File:
    data: bytes
    mode: int = 0o644


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["tar", "deb"])
    parser.add_argument("program", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--third-party", type=Path, required=True, metavar="FILE")
    parser.add_argument("--version", default=version(), help="by default that of the workspace")
    arguments = parser.parse_args()
    write = {"tar": write_archive, "deb": write_debian}[arguments.kind]
    arguments.folder.mkdir(parents=True, exist_ok=True)
    print(write(arguments.program.resolve(), arguments.folder, arguments.third_party.read_bytes(), arguments.version))


def version():
    # Python 3.10 has no reader of TOML.
    return re.search(r'^\[workspace\.package\]\nversion = "(.+)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]


def time():
    """The time of all files, in seconds since 1970."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    done = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit("this is no clone of the repository: set SOURCE_DATE_EPOCH to the seconds that files get as their time")
    return int(done.stdout)


def output(*line):
    return subprocess.run(line, check=True, stdout=subprocess.PIPE).stdout


# --- From the program.


def stripped(program):
    with tempfile.TemporaryDirectory() as folder:
        output("strip", "-o", f"{folder}/thalweg", program)
        return File((Path(folder) / "thalweg").read_bytes(), 0o755)


def man_pages(program):
    with tempfile.TemporaryDirectory() as folder:
        output(program, "reference", "--man", folder)
        return {path.name: File(path.read_bytes()) for path in Path(folder).iterdir()}


def completion(program, shell):
    return File(output(program, "completions", shell))


def machine(program):
    with open(program, "rb") as file:
        start = file.read(20)
    if start[:4] != b"\x7fELF":
        sys.exit(f"{program} is no program of Linux")
    (number,) = struct.unpack_from("<H", start, 18)
    if number not in MACHINES:
        sys.exit(f"{program} is for a machine that MACHINES of tools/package.py does not name: {number}")
    return MACHINES[number]


def libraries(program):
    """The packages that hold the program's libraries, each from the newest version of a symbol that the program uses."""
    headers = output("objdump", "-p", program).decode()
    newest = {}
    for library in re.findall(r"^ +NEEDED +(\S+)$", headers, re.MULTILINE):
        if library not in LIBRARIES:
            sys.exit(f"the program loads {library}: add its package to LIBRARIES in tools/package.py")
        newest[LIBRARIES[library][0]] = ()
    for library, symbols in re.findall(r"^ +required from (\S+):\n((?: +0x.*\n)+)", headers, re.MULTILINE):
        package, prefix = LIBRARIES[library]
        for symbol in re.findall(r"\S+$", symbols, re.MULTILINE):
            found = re.fullmatch(rf"{prefix}(\d+(?:\.\d+)+)", symbol)
            if not found:
                sys.exit(f"the program needs {symbol} of {library}, which names no version of {package}")
            newest[package] = max(newest[package], tuple(map(int, found[1].split("."))))
    return [f"{package} (>= {'.'.join(map(str, least))})" if least else package for package, least in sorted(newest.items())]


# --- The archive.


def write_archive(program, folder, third_party, number):
    name = f"thalweg-{number}-{machine(program)[0]}-linux"
    files = {
        "LICENSE": File((ROOT / "LICENSE").read_bytes()),
        "README.md": File((ROOT / "README.md").read_bytes()),
        "completions/_thalweg": completion(program, "zsh"),
        "completions/thalweg.bash": completion(program, "bash"),
        "completions/thalweg.fish": completion(program, "fish"),
        "monitoring/alerts.yaml": File((PACKAGING / "monitoring/alerts.yaml").read_bytes()),
        "monitoring/dashboard.json": File((PACKAGING / "monitoring/dashboard.json").read_bytes()),
        "systemd/thalweg@.service": File((PACKAGING / "thalweg@.service").read_bytes()),
        "thalweg": stripped(program),
        "third-party.txt": File(third_party),
    }
    files.update({f"man/man1/{page}": file for page, file in man_pages(program).items()})
    target = folder / f"{name}.tar.gz"
    seconds = time()
    with open(target, "wb") as out, gzip.GzipFile("", "wb", 9, out, mtime=0) as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for path, file in sorted(files.items()):
                member = tarfile.TarInfo(f"{name}/{path}")
                member.size, member.mode, member.mtime = len(file.data), file.mode, seconds
                member.uname = member.gname = "root"
                archive.addfile(member, io.BytesIO(file.data))
    return target


# --- The Debian package.


def write_debian(program, folder, third_party, number):
    # Debian's version separates its revision with the last hyphen, and sorts what follows `~` before a release.
    number = f"{number.replace('-', '~')}-{REVISION}"
    architecture = machine(program)[1]
    files = installed(program, third_party, number)
    with tempfile.TemporaryDirectory() as root:
        root = Path(root)
        for path, file in (files | control(program, number, architecture, files)).items():
            write(root / path, file)
        for empty in ("etc/thalweg", "var/lib/thalweg"):
            (root / empty).mkdir(parents=True)
        for path in root.rglob("*"):
            if path.is_dir():
                path.chmod(0o755)
        root.chmod(0o755)
        target = folder / f"thalweg_{number}_{architecture}.deb"
        environment = os.environ | {"SOURCE_DATE_EPOCH": str(time())}
        line = ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", root, target]
        # dpkg-deb sorts names, and gives files that are newer than SOURCE_DATE_EPOCH that time.
        subprocess.run(line, check=True, env=environment, stdout=subprocess.DEVNULL)
    return target


def write(path, file):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(file.data)
    path.chmod(file.mode)


def installed(program, third_party, number):
    """The files that the package installs, by their path."""
    doc = "usr/share/doc/thalweg"
    year = datetime.datetime.fromtimestamp(time(), datetime.timezone.utc).year
    files = {
        "etc/default/thalweg": File((PACKAGING / "environment").read_bytes()),
        f"{doc}/README.md": File((ROOT / "README.md").read_bytes()),
        f"{doc}/changelog.Debian.gz": packed(changelog(number)),
        f"{doc}/changelog.gz": packed((ROOT / "CHANGELOG.md").read_bytes()),
        f"{doc}/copyright": File(template("copyright", homepage=repository(), year=year)),
        f"{doc}/third-party.txt.gz": packed(third_party),
        "usr/bin/thalweg": stripped(program),
        "usr/lib/systemd/system/thalweg@.service": File((PACKAGING / "thalweg@.service").read_bytes()),
        "usr/share/thalweg/monitoring/alerts.yaml": File((PACKAGING / "monitoring/alerts.yaml").read_bytes()),
        "usr/share/thalweg/monitoring/dashboard.json": File((PACKAGING / "monitoring/dashboard.json").read_bytes()),
        "usr/share/bash-completion/completions/thalweg": completion(program, "bash"),
        "usr/share/fish/vendor_completions.d/thalweg.fish": completion(program, "fish"),
        "usr/share/zsh/vendor-completions/_thalweg": completion(program, "zsh"),
    }
    files.update({f"usr/share/man/man1/{page}.gz": packed(file.data) for page, file in man_pages(program).items()})
    return files


def control(program, number, architecture, files):
    """The files that dpkg itself reads."""
    kibibytes = sum(len(file.data) // 1024 + 1 for file in files.values())
    sums = "".join(
        f"{hashlib.md5(file.data).hexdigest()}  {path}\n" for path, file in sorted(files.items()) if not path.startswith("etc/")
    )
    description = template(
        "control",
        version=number,
        architecture=architecture,
        maintainer=maintainer(),
        homepage=repository(),
        kibibytes=kibibytes,
        libraries=", ".join(libraries(program)),
    )
    made = {
        "DEBIAN/conffiles": File((PACKAGING / "debian/conffiles").read_bytes()),
        "DEBIAN/control": File(description),
        "DEBIAN/md5sums": File(sums.encode()),
    }
    for script in ("postinst", "postrm", "prerm"):
        made[f"DEBIAN/{script}"] = File((PACKAGING / "debian" / script).read_bytes(), 0o755)
    return made


def template(name, **values):
    return (PACKAGING / "debian" / name).read_text().format(**values).encode()


def packed(data):
    return File(gzip.compress(data, 9, mtime=0))


def repository():
    return re.search(r'^repository = "(.+)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]


def maintainer():
    """Who answers for the package: by the variables that Debian's own tools read."""
    name, address = os.environ.get("DEBFULLNAME"), os.environ.get("DEBEMAIL")
    return f"{name} <{address}>" if name and address else MAINTAINER


def changelog(number):
    date = email.utils.formatdate(time())
    return (
        f"thalweg ({number}) unstable; urgency=medium\n\n"
        "  * The changes of the program are in changelog.gz, beside this file.\n\n"
        f" -- {maintainer()}  {date}\n"
    ).encode()


if __name__ == "__main__":
    main()
