"""Tests the packages of tools/package.py with a program of a few lines in place of thalweg.

It is compiled with `cc`, or with what CC names, and answers as thalweg does where the packages take something from it.
Compressing the real program takes a minute.
"""

import gzip
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "tools/package.py"
# `hypot` has a version of glibc's mathematical library, and is not computed by the compiler.
PROGRAM = r"""
#include <math.h>
#include <stdio.h>
#include <string.h>
int main(int count, char **words) {
    if (count == 3 && !strcmp(words[1], "completions")) {
        printf("completes in %s\n", words[2]);
        return 0;
    }
    if (count == 4 && !strcmp(words[1], "reference") && !strcmp(words[2], "--man")) {
        const char *pages[] = {"thalweg-run.1", "thalweg.1"};
        for (int page = 0; page < 2; page++) {
            char path[4096];
            snprintf(path, sizeof path, "%s/%s", words[3], pages[page]);
            FILE *file = fopen(path, "w");
            fprintf(file, ".TH %s\n", pages[page]);
            fclose(file);
        }
        return 0;
    }
    return (int)hypot(count, count) + 100;
}
"""
TIME = "1700000000"
THIRD_PARTY = "texts of others\n"


class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="package-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        source, cls.program = cls.folder / "program.c", cls.folder / "program"
        source.write_text(PROGRAM)
        cls.third_party = cls.folder / "third-party.txt"
        cls.third_party.write_text(THIRD_PARTY)
        subprocess.run([os.environ.get("CC", "cc"), "-g", "-o", cls.program, source, "-lm"], check=True)

    def make(self, kind, folder, **environment):
        """Makes a package of version 1.2.0-rc.1, and returns its path."""
        line = [sys.executable, PACKAGE, kind, "--third-party", self.third_party, "--version", "1.2.0-rc.1", self.program, folder]
        environment = os.environ | {"SOURCE_DATE_EPOCH": TIME} | environment
        return Path(subprocess.run(line, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout.strip())

    def test_the_archive_holds_these_files(self):
        path = self.make("tar", self.folder / "archive")
        name = f"thalweg-1.2.0-rc.1-{os.uname().machine}-linux"
        self.assertEqual(path.name, f"{name}.tar.gz")
        with tarfile.open(path) as archive:
            members = archive.getmembers()
            self.assertEqual(
                [(member.name, member.mode) for member in members],
                [
                    (f"{name}/{path}", mode)
                    for path, mode in [
                        ("LICENSE", 0o644),
                        ("README.md", 0o644),
                        ("completions/_thalweg", 0o644),
                        ("completions/thalweg.bash", 0o644),
                        ("completions/thalweg.fish", 0o644),
                        ("man/man1/thalweg-run.1", 0o644),
                        ("man/man1/thalweg.1", 0o644),
                        ("monitoring/alerts.yaml", 0o644),
                        ("monitoring/dashboard.json", 0o644),
                        ("systemd/thalweg@.service", 0o644),
                        ("thalweg", 0o755),
                        ("third-party.txt", 0o644),
                    ]
                ],
            )
            self.assertEqual({(member.mtime, member.uid, member.gid) for member in members}, {(int(TIME), 0, 0)})
            self.assertEqual(archive.extractfile(f"{name}/completions/_thalweg").read(), b"completes in zsh\n")
            archive.extract(f"{name}/thalweg", self.folder)
        self.assertNotIn(b".debug_info", (self.folder / name / "thalweg").read_bytes())

    def test_the_debian_package_holds_these_files(self):
        path = self.make("deb", self.folder / "deb")
        self.assertRegex(path.name, r"^thalweg_1\.2\.0~rc\.1-1_(amd64|arm64)\.deb$")
        root = self.unpacked(path, "deb-root")
        self.assertEqual(
            listed(root),
            [
                "-rw-r--r-- DEBIAN/conffiles",
                "-rw-r--r-- DEBIAN/control",
                "-rw-r--r-- DEBIAN/md5sums",
                "-rwxr-xr-x DEBIAN/postinst",
                "-rwxr-xr-x DEBIAN/postrm",
                "-rwxr-xr-x DEBIAN/prerm",
                "-rw-r--r-- etc/default/thalweg",
                "drwxr-xr-x etc/thalweg",
                "-rwxr-xr-x usr/bin/thalweg",
                "-rw-r--r-- usr/lib/systemd/system/thalweg@.service",
                "-rw-r--r-- usr/share/bash-completion/completions/thalweg",
                "-rw-r--r-- usr/share/doc/thalweg/README.md",
                "-rw-r--r-- usr/share/doc/thalweg/changelog.Debian.gz",
                "-rw-r--r-- usr/share/doc/thalweg/changelog.gz",
                "-rw-r--r-- usr/share/doc/thalweg/copyright",
                "-rw-r--r-- usr/share/doc/thalweg/third-party.txt.gz",
                "-rw-r--r-- usr/share/fish/vendor_completions.d/thalweg.fish",
                "-rw-r--r-- usr/share/man/man1/thalweg-run.1.gz",
                "-rw-r--r-- usr/share/man/man1/thalweg.1.gz",
                "-rw-r--r-- usr/share/thalweg/monitoring/alerts.yaml",
                "-rw-r--r-- usr/share/thalweg/monitoring/dashboard.json",
                "-rw-r--r-- usr/share/zsh/vendor-completions/_thalweg",
                "drwxr-xr-x var/lib/thalweg",
            ],
        )
        self.assertEqual(gzip.decompress((root / "usr/share/doc/thalweg/third-party.txt.gz").read_bytes()).decode(), THIRD_PARTY)
        subprocess.run(["md5sum", "--check", "--quiet", "DEBIAN/md5sums"], cwd=root, check=True)
        for script in ("postinst", "postrm", "prerm"):
            subprocess.run(["sh", "-n", root / "DEBIAN" / script], check=True)

    def test_the_debian_package_depends_on_the_libraries_that_the_program_uses(self):
        root = self.unpacked(self.make("deb", self.folder / "depends"), "depends-root")
        control = (root / "DEBIAN/control").read_text()
        headers = subprocess.run(["objdump", "-T", self.program], check=True, stdout=subprocess.PIPE, text=True).stdout
        newest = max(tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([\d.]+)", headers))
        self.assertIn(f"\nDepends: libc6 (>= {'.'.join(map(str, newest))}), adduser\n", control)
        self.assertNotIn("{", control)

    def test_the_script_makes_the_user_and_the_group_that_are_missing(self):
        tools = self.folder / "tools"
        tools.mkdir()
        for name in ("addgroup", "adduser", "chmod", "chown", "deb-systemd-invoke", "dpkg-statoverride", "getent", "systemctl"):
            answer = 'case " $KNOWN " in *" $1 "*) exit 0 ;; esac; exit 2' if name == "getent" else f'echo "{name} $*"'
            (tools / name).write_text(f"#!/bin/sh\n{answer}\n")
            (tools / name).chmod(0o755)
        group = "addgroup --quiet --system thalweg"
        user = "adduser --quiet --system --ingroup thalweg --home /var/lib/thalweg --no-create-home thalweg"
        for known, made in (("", [group, user]), ("passwd", [group]), ("group", [user]), ("group passwd", [])):
            with self.subTest(known):
                environment = {"PATH": f"{tools}:{os.environ['PATH']}", "KNOWN": known}
                line = ["sh", ROOT / "packaging/debian/postinst", "configure"]
                done = subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True, env=environment)
                self.assertEqual([call for call in done.stdout.splitlines() if call.startswith("add")], made)

    def test_a_wrong_configuration_is_not_restarted(self):
        unit = (ROOT / "packaging/thalweg@.service").read_text()
        self.assertIn("\nRestartPreventExitStatus=2\n", unit)
        self.assertNotRegex(unit, r"(?m)^ExecStartPre=")

    def test_the_same_input_makes_the_same_bytes(self):
        for kind in ("tar", "deb"):
            with self.subTest(kind):
                first = self.make(kind, self.folder / "first", TZ="UTC").read_bytes()
                second = self.make(kind, self.folder / "second", TZ="Asia/Tokyo").read_bytes()
                self.assertEqual(first, second)

    def test_a_program_that_is_none_is_refused(self):
        line = [sys.executable, PACKAGE, "deb", "--third-party", self.third_party, self.third_party, self.folder / "none"]
        done = subprocess.run(line, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertEqual(done.stderr, f"{self.third_party} is no program of Linux\n")

    def test_the_packages_hold_the_build_for_distribution(self):
        for target in ("dist", "deb"):
            with self.subTest(target):
                # Without the variables of a make that runs this test, such as the number of its jobs.
                environment = {name: value for name, value in os.environ.items() if name != "MAKEFLAGS"} | {"CARGO_TARGET_DIR": "built"}
                line = ["make", "--no-print-directory", "--dry-run", target]
                commands = subprocess.run(line, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
                self.assertIn("build --profile distribution --locked -p thalweg\n", commands)
                self.assertRegex(commands, r"tools/package\.py .* (tar|deb) built/distribution/thalweg built/dist\n")
                self.assertNotIn("release/thalweg", commands)

    def test_the_page_shows_the_unit_that_is_packed(self):
        page = (ROOT / "docs/operating/systemd.md").read_text()
        self.assertEqual(re.search(r"```ini\n(.*?)```", page, re.DOTALL)[1], (ROOT / "packaging/thalweg@.service").read_text())

    def unpacked(self, path, name):
        root = self.folder / name
        subprocess.run(["dpkg-deb", "--raw-extract", path, root], check=True)
        return root


def listed(root):
    """Files, and folders that are empty."""
    paths = sorted(path for path in root.rglob("*") if not path.is_dir() or not any(path.iterdir()))
    return [f"{stat.filemode(path.stat().st_mode)} {path.relative_to(root)}" for path in paths]
