#!/usr/bin/env python3
"""Reads one member of a large zip over HTTP, and fetches only that member and the zip's directory.

    python3 one-member.py [PATH_OF_THALWEG]

The script writes a zip of 60 MB and serves it locally with a server that supports ranges (Python's own does not). It
reads the end, the directory and the member with `thalweg sparse read`, and then everything again from the cache.
"""

import http.server, os, pathlib, random, re, shutil, struct, subprocess, sys, tempfile, threading, zipfile

thalweg = sys.argv[1] if len(sys.argv) > 1 else shutil.which("thalweg")
if not thalweg:
    sys.exit("usage: one-member.py PATH_OF_THALWEG")


class Ranges(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self, body=True):
        size = archive.stat().st_size
        first, last = 0, size - 1
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        self.send_response(206 if asked else 200)
        if asked:
            first, last = int(asked[1]), min(int(asked[2]), size - 1)
            self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.send_header("Content-Length", str(last - first + 1))
        self.send_header("ETag", f'"{archive.stat().st_mtime_ns}"')
        self.end_headers()
        if body:
            with archive.open("rb") as file:
                file.seek(first)
                self.wfile.write(file.read(last - first + 1))

    def do_HEAD(self):
        self.do_GET(body=False)

    def log_message(self, *_):
        pass


def read(position, length):
    """Returns a range of the file, read by thalweg, which logs its requests."""
    given = f"{position}:{position + length}" if position >= 0 else f"{position}:"
    line = [thalweg, "sparse", "read", url, "--range", given, "--cache", str(folder / "cache"), "--log"]
    print("\n$ thalweg", *line[1:4], "--range", given, "--cache … --log", flush=True)
    return subprocess.run(line, check=True, stdout=subprocess.PIPE).stdout


def member(name):
    size = archive.stat().st_size
    end = read(-22, 22)
    _, _, _, _, count, length, position, _ = struct.unpack("<4s4H2IH", end)
    directory = read(position, length)
    at = 0
    for _ in range(count):
        compressed, names, extra, comment = struct.unpack_from("<I4xHHH", directory, at + 20)
        offset = struct.unpack_from("<I", directory, at + 42)[0]
        if directory[at + 46 : at + 46 + names].decode() == name:
            head = read(offset, 30)
            skipped = 30 + sum(struct.unpack_from("<HH", head, 26))
            return read(offset + skipped, compressed)
        at += 46 + names + extra + comment
    sys.exit(f"there is no {name}")


folder = pathlib.Path(tempfile.mkdtemp(prefix="thalweg-sparse-"))
try:
    archive = folder / "large.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for number in range(300):
            file.writestr(f"part-{number}.bin", random.Random(number).randbytes(200_000))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ranges)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/large.zip"

    right = random.Random(222).randbytes(200_000)
    assert member("part-222.bin") == right
    print("\nAgain, this time from the cache.")
    assert member("part-222.bin") == right
    print("\n$ thalweg sparse stat …/cache", flush=True)
    subprocess.run([thalweg, "sparse", "stat", str(folder / "cache")], check=True)
finally:
    shutil.rmtree(folder)
