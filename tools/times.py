#!/usr/bin/env python3
"""Measures how long the configurations of the cookbook take for a million records, as the pages state it.

    tools/times.py [--program PROGRAM] [--records N] [--rounds N] [PAGE...]

PAGE is the name of a page without `.md`, by default each page that is known here. PROGRAM is by default the release build. Each
measurement is a line: the median of the rounds' wall time and CPU time (user and system, of this process alone), the size of
the input in MB (10^6 bytes), and the largest resident memory of all rounds in MiB.

The configuration is the page's own, from its text. Its addresses become free ports of loopback; hosts that do not exist here,
and options that keep a source open, are changed as the function of the page in `tools/times_pages.py` says. A change whose text
the page no longer has is an error. What a page reads from or writes to is the real server, a new one in each round: see `tools/servers.py`.

A run ends by itself or, if its source has no end, by SIGTERM when its output has all records. Its wall time is then the time
until that. A measurement counts only if every record was processed (`--strict`) and is in the output.

The temporary folder (TMPDIR) needs about 3 GB. A page that cannot be measured, because its server is not installed for example,
does not stop the others; the exit code is then 1.
"""

import argparse
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pages
import servers
from pages import Wrong
from times_pages import PAGES

COOKBOOK = pages.ROOT / "docs/cookbook"
MEGABYTE = 1_000_000
LONGEST_SECONDS = 900
LOOK_SECONDS = 0.05


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=servers.TARGET / "release/thalweg")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=f"of {', '.join(PAGES)}")
    options = parser.parse_args()
    if unknown := [name for name in options.pages if name not in PAGES]:
        parser.error(f"`{unknown[0]}` is not one of {', '.join(PAGES)}")
    # Otherwise the servers would not be stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    failed = False
    for name in options.pages or PAGES:
        try:
            measure(name, options)
        except (Wrong, servers.Unusable, subprocess.SubprocessError) as why:
            failed = True
            print(f"{name}: not measured: {why}", file=sys.stderr, flush=True)
    sys.exit(1 if failed else 0)


def measure(name, options):
    with tempfile.TemporaryDirectory(prefix="times-") as folder:
        bench = Bench(name, Path(folder), options.program.resolve(), options.records)
        for _ in range(options.rounds):
            with bench.round():
                PAGES[name](bench)
        for label, found in bench.measured.items():
            print(f"{name}, {label}: {found}", flush=True)


class Measured:
    """The measurements of all rounds."""

    def __init__(self, size):
        self.size, self.walls, self.cpus, self.peaks = size, [], [], []

    def __str__(self):
        wall, cpu = statistics.median(self.walls), statistics.median(self.cpus)
        return f"{wall:.2f} s, CPU {cpu:.2f} s, input {self.size / MEGABYTE:.0f} MB, memory {max(self.peaks) / 1024:.0f} MiB"


class Bench:
    """What the function of a page measures with. All but `input` is of the present round."""

    def __init__(self, page, root, program, records):
        self.root, self.program, self.records = root, program, records
        self.blocks = pages.blocks(COOKBOOK / f"{page}.md")
        self.inputs = root / "inputs"
        self.measured = {}

    @contextlib.contextmanager
    def round(self):
        with tempfile.TemporaryDirectory(dir=self.root) as folder, contextlib.ExitStack() as self.running:
            self.folder = Path(folder) / "run"
            self.folder.mkdir()
            self.ports = pages.Ports()
            yield

    # --- Texts of the page.

    def block(self, what):
        """Returns the block that is the file `what`, or else the first configuration that contains this text."""
        named = [block for block in self.blocks if block.name == what]
        found = named or [block for block in self.blocks if block.language in ("yaml", "sql") and what in block.text]
        if not found:
            raise Wrong(f"the page has no block `{what}`")
        return found[0].text

    def configuration(self, what, *changes):
        """Returns a configuration of the page with these changes, each a text and the one in its place."""
        text = self.block(what)
        for old, new in changes:
            if old not in text:
                raise Wrong(f"`{what}` of the page has no `{old}` to replace")
            text = text.replace(old, new)
        return self.ports.real(text)

    # --- Input.

    def input(self, path, line, head=""):
        """Makes a file whose lines are `line(number)`, once for all rounds. Returns its size."""
        made = self.inputs / path
        if not made.exists():
            made.parent.mkdir(parents=True, exist_ok=True)
            with open(made, "w") as file:
                file.write(head)
                file.writelines(line(number) + "\n" for number in range(self.records))
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        # Not a symbolic link, which sources that search folders skip.
        os.link(made, place)
        return made.stat().st_size

    # --- Programs.

    def serve(self, server, port, *arguments):
        """Starts a server at the port that the page names."""
        folder = Path(tempfile.mkdtemp(dir=self.folder.parent))
        self.running.enter_context(server(folder, self.ports.port(port), *arguments))

    def accept(self, port):
        """Starts a thalweg that accepts all requests."""
        text = f"""
sources: {{ requests: {{ http: {{ address: "127.0.0.1:{self.ports.port(port)}", methods: [], max_body_bytes: 64MiB }} }} }}
pipelines: {{ main: {{ from: requests, to: nowhere }} }}
sinks: {{ nowhere: {{ discard: {{}} }} }}
"""
        line = self.line(text, "accept.yaml")
        log = self.folder.parent / "accept.log"
        self.running.enter_context(servers.running("thalweg", line, self.ports.port(port), log, cwd=self.folder))

    def line(self, configuration, name, *arguments):
        (self.folder / name).write_text(configuration)
        return [self.program, "run", "--quiet", "--strict", *arguments, name]

    def prepare(self, configuration):
        """Runs a configuration to its end, unmeasured."""
        line = self.line(configuration, "prepare.yaml")
        done = subprocess.run(
            line, check=False, cwd=self.folder, env=self.environment(), stderr=subprocess.PIPE, text=True, timeout=LONGEST_SECONDS
        )
        if done.returncode:
            raise Wrong(f"the input could not be prepared\n{done.stderr[-2000:]}")

    def environment(self):
        home = str(self.folder.parent)
        return {**os.environ, **servers.S3_KEYS, "HOME": home, "XDG_STATE_HOME": home, "TZ": "UTC"}

    def run(self, label, configuration, size, *, lines=None, output="printed", state=False, endless=False, feed=None):
        """Measures a run, as `label`.

        The files that match `output` get `lines` lines, if that is known; `printed` is the standard output. `endless` is true for
        a source that has no end. `feed` is a configuration whose run sends the input, and the port that it sends to: the time then
        begins when it is started.
        """
        arguments = ["--state", f"state-{label}"] if state else []
        written = Lines(self.folder, output)
        has_all = (lambda: written.count() >= lines) if endless else None
        self.note(label, size, self.time(label, self.line(configuration, "run.yaml", *arguments), has_all, feed))
        if lines is not None and (count := written.count()) < lines:
            raise Wrong(f"{label}: the output has {count} of {lines} lines")
        # Some pages give refused messages a sink of their own, so `--strict` does not see them.
        rejected = self.folder / "rejected.jsonl"
        if rejected.exists() and rejected.stat().st_size:
            raise Wrong(f"{label}: messages were refused, such as {rejected.read_text()[:500]}")

    def note(self, label, size, found):
        measured = self.measured.setdefault(label, Measured(size))
        for values, value in zip((measured.walls, measured.cpus, measured.peaks), found, strict=True):
            values.append(value)

    def time(self, label, line, has_all=None, feed=None):
        """Runs a command. Returns the seconds that it took, those of its CPU time, and its peak of memory in KiB.

        `has_all` tells when a command that does not end has done all. The peak is at least the memory of this process, which the
        command begins as a copy of; so no input is kept in memory here.
        """
        log = self.folder.parent / "errors.log"
        with open(self.folder / "printed", "wb") as printed, open(log, "wb") as errors, contextlib.ExitStack() as others:
            begun = time.monotonic()
            process = subprocess.Popen(
                [str(word) for word in line],
                cwd=self.folder,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=errors,
            )
            # Not `process.kill`, which would ask whether it has ended, and take its resources.
            guard = threading.Timer(LONGEST_SECONDS, os.kill, (process.pid, signal.SIGKILL))
            guard.start()
            others.callback(guard.cancel)
            try:
                if feed:
                    begun = self.feed(process, others, *feed)
                if has_all:
                    while not ended(process) and not has_all():
                        time.sleep(LOOK_SECONDS)
                    taken = time.monotonic() - begun
                    os.kill(process.pid, signal.SIGTERM)
                _, status, used = os.wait4(process.pid, 0)
                if not has_all:
                    taken = time.monotonic() - begun
                process.returncode = os.waitstatus_to_exitcode(status)
            finally:
                if process.returncode is None:
                    process.kill()
                    process.wait()
        if process.returncode:
            raise Wrong(f"{label}: exit code {process.returncode}\n{log.read_text(errors='replace')[-2000:]}")
        return taken, used.ru_utime + used.ru_stime, used.ru_maxrss

    def feed(self, process, others, configuration, port):
        """Starts a sender when the process listens. Returns the time of that."""
        while not servers.accepts(port) and not ended(process):
            time.sleep(LOOK_SECONDS)
        begun = time.monotonic()
        sender = subprocess.Popen(self.line(configuration, "feed.yaml"), cwd=self.folder, env=self.environment(), stderr=subprocess.DEVNULL)
        # It may wait for the answer to its last request.
        others.callback(sender.wait)
        others.callback(sender.kill)
        return begun


def ended(process):
    """True if a process has ended. Its resources can still be asked for, unlike after `poll`."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


class Lines:
    """Counts the lines of growing files. A sink calls a file `NAME.part` until it is complete."""

    def __init__(self, folder, pattern):
        self.folder, self.patterns = folder, (pattern, f"{pattern}.part")
        # The bytes that were read of each file, by its number in the file system, which stays when it gets its name.
        self.read, self.found = {}, 0

    def count(self):
        for path in [path for pattern in self.patterns for path in self.folder.glob(pattern)]:
            with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
                number = os.fstat(file.fileno()).st_ino
                file.seek(self.read.get(number, 0))
                while piece := file.read(1 << 20):
                    self.found += piece.count(b"\n")
                self.read[number] = file.tell()
        return self.found


if __name__ == "__main__":
    main()
