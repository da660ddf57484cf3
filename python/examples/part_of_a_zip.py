"""
Reads one member of a large zip on a web server, and fetches little more than that member.

The script starts the server itself, so it needs no network. With a URL as its argument, it reads the first member of
the zip there.
"""

import io
import re
import sys
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import thalweg


def made() -> bytes:
    """Returns a zip of 200 members of 50 kB."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as written:
        for number in range(200):
            written.writestr(f"member-{number}.txt", f"This is member {number}.\n" + "x" * 50_000)
    return file.getvalue()


class Ranges(BaseHTTPRequestHandler):
    """Serves ranges of one file, as web servers do."""

    protocol_version = "HTTP/1.1"
    data = made()

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        first, last = (int(asked[1]), int(asked[2])) if asked else (0, len(self.data) - 1)
        part = self.data[first : last + 1]
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(part)))
        self.send_header("ETag", '"1"')
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(self.data)}")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(part)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name that it has)
        pass


def show(url: str, member: int) -> None:
    with thalweg.open(url) as file, zipfile.ZipFile(file) as archive:
        name = archive.namelist()[member]
        print(f"{name}: {archive.read(name)[:24]!r}…")
        statistics = file.statistics()
        print(f"fetched {statistics['fetched']:,} of {file.size:,} bytes in {statistics['requests']} requests")


if len(sys.argv) > 1:
    show(sys.argv[1], 0)
else:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Ranges)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    show(f"http://127.0.0.1:{server.server_address[1]}/large.zip", 77)
    server.shutdown()
