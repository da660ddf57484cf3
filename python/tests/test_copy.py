"""Copies, as with `thalweg copy`."""

import contextlib
import inspect
import os
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import thalweg
from thalweg import ConfigurationError, CopyProgress, Error, NotCopied, _thalweg

PEOPLE = "name,age\nAda,36\nBen,7\nCleo,41\n"


@pytest.fixture(autouse=True)
def kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps the state of copies out of the user's state directory and the current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "kept"))


@pytest.fixture
def people(tmp_path: Path) -> Path:
    file = tmp_path / "people.csv"
    file.write_text(PEOPLE)
    return file


class Slow(BaseHTTPRequestHandler):
    """Serves ranges of 16 MiB once the test allows it."""

    protocol_version = "HTTP/1.1"
    begun: threading.Event
    may_go_on: threading.Event
    SIZE = 16 << 20

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(self.SIZE))
        self.end_headers()

    def do_GET(self) -> None:
        first, last = self.headers.get("Range", f"bytes=0-{self.SIZE - 1}").removeprefix("bytes=").split("-")
        end = min(int(last or self.SIZE), self.SIZE - 1) + 1
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{end - 1}/{self.SIZE}")
        self.send_header("Content-Length", str(end - int(first)))
        self.end_headers()
        self.begun.set()
        self.may_go_on.wait(30)
        with contextlib.suppress(ConnectionError):
            self.wfile.write(bytes(end - int(first)))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (as it is called there)
        pass


@pytest.fixture
def slow() -> Iterator[tuple[str, type[Slow]]]:
    class Here(Slow):
        begun = threading.Event()
        may_go_on = threading.Event()

    with ThreadingHTTPServer(("127.0.0.1", 0), Here) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/large.bin", Here
        Here.may_go_on.set()
        server.shutdown()
        thread.join()


def test_the_options_are_those_of_the_command() -> None:
    here = set(inspect.signature(thalweg.copy).parameters)
    assert here - {"from_", "progress"} == set(_thalweg.copy_options()) - {"from"}
    described = inspect.getdoc(thalweg.copy) or ""
    assert not [name for name in here if f"    {name}: " not in described]


def test_all_below_a_folder_is_copied(tmp_path: Path) -> None:
    for name in ("a.txt", "sub/b.txt", "sub/c.bin"):
        file = tmp_path / "from" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    reported: list[CopyProgress] = []
    summary = thalweg.copy(f"{tmp_path}/from/", f"{tmp_path}/to/", include="*.txt", threads=1, progress=reported.append)
    assert (tmp_path / "to/sub/b.txt").read_text() == "sub/b.txt"
    assert not (tmp_path / "to/sub/c.bin").exists()
    assert (summary.objects, summary.files, summary.rows, summary.errors) == (2, 2, None, 0)
    assert (summary.read_bytes, summary.written_bytes) == (14, 14)
    assert not summary.resumed
    assert reported[-1].copied == 2
    assert reported[-1].read_bytes == 14


def test_a_path_that_is_a_folder_means_all_that_is_in_it(tmp_path: Path) -> None:
    for name in ("from", "to"):
        (tmp_path / name).mkdir()
    (tmp_path / "from" / "a.txt").write_text("a")
    assert thalweg.copy(tmp_path / "from", tmp_path / "to").files == 1
    assert (tmp_path / "to" / "a.txt").read_text() == "a"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"from_": None}, "`from_` is a text or a path, not NoneType"),
        ({"include": None}, "`include` is a text or a sequence of texts, not NoneType"),
        ({"keep": 1}, "`keep` is a text or a sequence of texts, not int"),
        ({"type": ["age"]}, "`type` is a mapping, not list"),
    ],
)
def test_an_argument_of_another_type_is_named(options: Any, message: str) -> None:
    with pytest.raises(TypeError) as raised:
        thalweg.copy(**{"from_": "a", "to": "b", **options})
    assert str(raised.value) == message


def test_a_table_without_rows_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("name,age\n")
    summary = thalweg.copy(tmp_path / "people.csv", tmp_path / "people.parquet", parse="csv", encode="parquet")
    assert (summary.rows, summary.errors) == (0, 0)
    assert not (tmp_path / "people.parquet").exists()


def test_rows_are_read_changed_and_written(people: Path, tmp_path: Path) -> None:
    summary = thalweg.copy(
        people,
        tmp_path / "people.jsonl",
        parse="csv",
        encode="json",
        where="age >= 18",
        set={"name": "upper(name)", "next": "age + 1"},
        keep=["name", "next"],
        type={"age": "int"},
        memory=64 << 20,
    )
    assert (tmp_path / "people.jsonl").read_text() == '{"name":"ADA","next":37}\n{"name":"CLEO","next":42}\n'
    assert (summary.objects, summary.files, summary.rows) == (1, None, 2)


def test_a_dry_run_says_what_would_be_copied(people: Path, tmp_path: Path) -> None:
    summary = thalweg.copy(people, f"{tmp_path}/to/", dry_run=True)
    assert [(Path(planned.from_).name, planned.bytes) for planned in summary.planned] == [("people.csv", len(PEOPLE))]
    assert summary.planned[0].to.endswith("/to/people.csv")
    assert not (tmp_path / "to").exists()


def test_what_is_there_already_can_be_left_alone_or_be_an_error(people: Path, tmp_path: Path) -> None:
    target = tmp_path / "target.csv"
    target.write_text("there")
    assert thalweg.copy(people, target, existing="skip").skipped == 1
    assert target.read_text() == "there"
    with pytest.raises(NotCopied, match="1 file could not be copied: `thalweg errors list --state ") as raised:
        thalweg.copy(people, target, existing="error")
    assert raised.value.summary.errors == 1
    assert isinstance(raised.value, Error)
    assert thalweg.copy(people, target, existing="replace").files == 1
    assert target.read_text() == PEOPLE


def test_rows_that_cannot_be_read_are_no_failure_unless_one_says_so(tmp_path: Path) -> None:
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"a":1}\nno\n{"a":2}\n')
    summary = thalweg.copy(lines, tmp_path / "out.jsonl", parse="jsonl", keep="a")
    assert (summary.rows, summary.errors) == (2, 1)
    with pytest.raises(NotCopied, match="1 row could not be copied"):
        thalweg.copy(lines, tmp_path / "out.jsonl", parse="jsonl", keep="a", strict=True)


def test_what_makes_no_sense_is_said_as_by_the_command(people: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    with pytest.raises(ConfigurationError, match="`--encode` applies to rows"):
        thalweg.copy(people, target, encode="json")
    with pytest.raises(ConfigurationError, match=r"age >="):
        thalweg.copy(people, target, parse="csv", where="age >=")
    with pytest.raises(ConfigurationError, match="`--readers` must be 1 or more"):
        thalweg.copy(people, target, readers=0)
    with pytest.raises(ConfigurationError, match="`--no-resume` cannot be used with `--restart`"):
        thalweg.copy(people, target, restart=True, no_resume=True)
    with pytest.raises(ConfigurationError, match="unknown variant `xml`"):
        thalweg.copy(people, target, parse="xml")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="FROM and TO are the same object"):
        thalweg.copy(people, people)
    with pytest.raises(Error, match="there is no `") as raised:
        thalweg.copy(tmp_path / "not there", target)
    assert not isinstance(raised.value, ConfigurationError)


def test_names_that_look_like_options_are_names() -> None:
    Path("--help").write_text("help")
    assert thalweg.copy("--help", "-o", content_type="-").files == 1
    assert Path("-o").read_text() == "help"


def test_other_threads_run_meanwhile(slow: tuple[str, type[Slow]], tmp_path: Path) -> None:
    url, server = slow

    def goes_on() -> None:
        server.begun.wait(30)
        server.may_go_on.set()

    thread = threading.Thread(target=goes_on)
    thread.start()
    assert thalweg.copy(url, tmp_path / "large.bin").read_bytes == Slow.SIZE
    thread.join()
    assert (tmp_path / "large.bin").stat().st_size == Slow.SIZE


def test_ctrl_c_ends_a_copy(slow: tuple[str, type[Slow]], tmp_path: Path) -> None:
    url, server = slow
    interrupted = threading.Event()

    def interrupt() -> None:
        server.begun.wait(30)
        os.kill(os.getpid(), signal.SIGINT)
        # Transfers in flight finish first, if they can.
        interrupted.wait(0.5)
        server.may_go_on.set()

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        thalweg.copy(url, f"{tmp_path}/", no_resume=True)
    interrupted.set()
    thread.join()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


class Silent(Slow):
    """Tells the size of a table, and then sends nothing of it."""

    def do_GET(self) -> None:
        self.begun.set()
        self.may_go_on.wait(60)


def test_ctrl_c_ends_a_copy_that_reads_the_columns_first(tmp_path: Path) -> None:
    class Here(Silent):
        begun = threading.Event()
        may_go_on = threading.Event()

    with ThreadingHTTPServer(("127.0.0.1", 0), Here) as server:
        server.daemon_threads = True
        server.block_on_close = False
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def interrupt() -> None:
            Here.begun.wait(30)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            thalweg.copy(
                f"http://127.0.0.1:{server.server_port}/table.csv",
                tmp_path / "out.jsonl",
                parse="csv",
                encode="json",
                keep="name",
            )
        thread.join()
        Here.may_go_on.set()
        server.shutdown()


def test_what_progress_raises_ends_a_copy_which_the_next_goes_on_with(tmp_path: Path) -> None:
    folder = tmp_path / "from"
    folder.mkdir()
    for number in range(40):
        (folder / f"{number}.bin").write_bytes(bytes([number]) * (1 << 20))

    def enough(progress: CopyProgress) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        thalweg.copy(f"{folder}/", f"{tmp_path}/to/", progress=enough, state=tmp_path / "state", mode="sequential")
    summary = thalweg.copy(f"{folder}/", f"{tmp_path}/to/", state=tmp_path / "state")
    assert summary.resumed
    copied = sorted((tmp_path / "to").iterdir())
    assert len(copied) == 40
    assert all(file.read_bytes() == (folder / file.name).read_bytes() for file in copied)
