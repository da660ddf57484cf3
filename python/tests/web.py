"""A local web server that serves ranges of files, and counts what it serves."""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Web:
    """The files of a server by name, and the requests it received."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.files: dict[str, bytes] = {}
        self.tags: dict[str, str] = {}
        self.given = 0
        self.requests: list[str] = []
        # Replies wait while this is set.
        self.stalls = threading.Event()

    def put(self, name: str, data: bytes, tag: str = "1") -> str:
        """Adds a file to the server, and returns its URL."""
        self.files[name] = data
        self.tags[name] = tag
        return f"http://127.0.0.1:{self.port}/{name}"


def handler(web: Web) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.give(with_body=False)

        def do_GET(self) -> None:
            self.give(with_body=True)

        def give(self, *, with_body: bool) -> None:
            name = self.path.lstrip("/")
            asked = self.headers.get("Range", "")
            web.requests.append(f"{self.command} {asked}".strip())
            while with_body and web.stalls.is_set():
                time.sleep(0.01)
            data = web.files.get(name)
            if data is None:
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            part = re.fullmatch(r"bytes=(\d+)-(\d*)", asked)
            if part:
                first = int(part[1])
                last = min(int(part[2] or len(data) - 1), len(data) - 1)
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
                data = data[first : last + 1]
            else:
                self.send_response(200)
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("ETag", f'"{web.tags[name]}"')
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if with_body:
                web.given += len(data)
                self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name that it has)
            pass

        def handle(self) -> None:
            # The client may have disconnected, which is allowed.
            with suppress(ConnectionError):
                super().handle()

    return Handler


@contextmanager
def serving() -> Iterator[Web]:
    """Serves in a thread until the `with` block ends."""
    web = Web(0)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(web))
    server.daemon_threads = True
    server.block_on_close = False
    web.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield web
    finally:
        web.stalls.clear()
        server.shutdown()
        server.server_close()
        thread.join()
