"""Python objects in pipelines: sources, transforms, readers, writers and streams."""

import gzip
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from dead_letters import letters

import thalweg
from thalweg import Pipeline, sinks, sources, transforms


def numbers(count: int = 5) -> pa.Table:
    return pa.table({"number": range(count), "text": [f"text {number}, which is long" for number in range(count)]})


def passed(transform: Any, data: Any = None, **options: Any) -> list[dict[str, Any]]:
    data = numbers() if data is None else data
    table = Pipeline(sources.from_arrow(data), [transform]).table(**options)
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def test_any_iterable_is_a_source() -> None:
    given = ["one", b"two", bytearray(b"three"), memoryview(b"four"), ["five", ("six",), []], "", "é"]
    table = Pipeline(sources.from_iterable(given)).table()
    assert table.to_pydict() == {"payload": [b"one", b"two", b"three", b"four", b"five", b"six", b"", "é".encode()]}


def test_dicts_are_messages_with_fields_and_may_differ() -> None:
    given = [{"a": 1}, {"a": 2, "b": "x"}]
    assert Pipeline(sources.from_iterable(iter(given))).table().to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]


def test_payloads_and_dicts_alternate_in_their_order() -> None:
    seen: list[Any] = []
    given = ["a", {"n": 1}, {"n": 2}, "b", "c", {"n": 3}]
    Pipeline(sources.from_iterable(given), [], sinks.to_callable(lambda batch: seen.extend(batch.to_pylist()))).run()
    assert seen == [{"payload": b"a"}, {"n": 1}, {"n": 2}, {"payload": b"b"}, {"payload": b"c"}, {"n": 3}]


def test_dicts_without_fields_are_messages() -> None:
    seen: list[int] = []
    pipeline = Pipeline(
        sources.from_iterable([{}, {}, "a", {}, {"n": 1}, {}]),
        [],
        sinks.to_callable(lambda batch: seen.append(batch.num_rows)),
    )
    assert pipeline.run().messages == 6
    assert sum(seen) == 6
    assert Pipeline(sources.from_iterable([{}, {}])).table().to_pydict() == {"payload": [b"", b""]}
    without_columns = pa.RecordBatch.from_struct_array(pa.array([{}] * 3, type=pa.struct([])))
    assert Pipeline(sources.from_arrow(without_columns), [], sinks.discard()).run().messages == 3


def test_names_of_fields_that_are_no_text_become_text() -> None:
    assert Pipeline(sources.from_iterable([{1: "a"}, {"1": "b"}])).table().to_pylist() == [{"1": "a"}, {"1": "b"}]


def test_a_message_may_be_larger_than_a_batch() -> None:
    given = [b"x" * size for size in (1, 3 << 20, 2, 5 << 20)]
    table = Pipeline(sources.from_iterable(given)).table(memory="1MiB")
    assert table.column("payload").to_pylist() == given


def test_what_is_no_message_and_what_an_iterable_raises_ends_the_run() -> None:
    with pytest.raises(thalweg.Error, match="a message is bytes, text or a dict of fields, not int"):
        Pipeline(sources.from_iterable(["a", 1]), [], sinks.discard()).run()

    def broken() -> Iterator[str]:
        yield "a"
        raise KeyError("gone")

    with pytest.raises(thalweg.Error, match="gone") as raised:
        Pipeline(sources.from_iterable(broken()), [], sinks.discard()).run()
    assert isinstance(raised.value.__cause__, KeyError)


def test_each_wait_for_a_failed_run_raises_the_same_cause() -> None:
    def broken() -> Iterator[str]:
        yield "a"
        raise KeyError("gone")

    run = Pipeline(sources.from_iterable(broken()), [], sinks.discard()).start()
    causes = []
    for _ in range(2):
        with pytest.raises(thalweg.Error, match="gone") as raised:
            run.wait()
        causes.append(raised.value.__cause__)
    assert isinstance(causes[0], KeyError)
    assert causes[1] is causes[0]


def test_a_slow_iterable_keeps_nothing_back() -> None:
    came = threading.Event()

    def items() -> Iterator[str]:
        threading.Event().wait(0.01)
        yield "first"
        assert came.wait(20), "the first message was kept back"

    pipeline = Pipeline(sources.from_iterable(items()), [], sinks.to_callable(lambda batch: came.set()))
    assert pipeline.run().messages == 1


def test_messages_of_a_slow_iterable_are_joined() -> None:
    def items() -> Iterator[str]:
        for number in range(200):
            time.sleep(0.0015)
            yield str(number)

    batches: list[list[bytes]] = []
    sink = sinks.to_callable(lambda batch: batches.append(batch["payload"].to_pylist()))
    assert Pipeline(sources.from_iterable(items()), [], sink).run().messages == 200
    assert [int(number) for batch in batches for number in batch] == list(range(200))
    # Each batch collects for 20 ms; the margin is for busy machines.
    assert len(batches) < 100


def test_an_iterable_is_asked_by_one_thread() -> None:
    threads = set()

    def items() -> Iterator[str]:
        for number in range(30):
            threads.add(threading.get_ident())
            if number % 10 == 0:
                time.sleep(0.03)
            yield "x" * 100_000

    assert Pipeline(sources.from_iterable(items()), [], sinks.discard()).run(memory="1MiB").messages == 30
    assert len(threads) == 1


def test_a_stopped_run_delivers_all_that_it_took_from_an_iterable() -> None:
    taken = 0

    def items() -> Iterator[str]:
        nonlocal taken
        while True:
            time.sleep(0.002)
            taken += 1
            yield "a"

    seen: list[int] = []
    sink = sinks.to_callable(lambda batch: seen.append(batch.num_rows))
    run = Pipeline(sources.from_iterable(items()), [], sink).start()
    while not seen:
        time.sleep(0.01)
    run.stop()
    summary = run.wait()
    assert summary.stopped
    assert sum(seen) == taken == summary.messages


def test_a_run_ends_when_it_is_aborted_while_its_iterable_waits() -> None:
    waits, goes_on = threading.Event(), threading.Event()

    def items() -> Iterator[str]:
        waits.set()
        goes_on.wait(60)
        yield "a"

    run = Pipeline(sources.from_iterable(items()), [], sinks.discard()).start()
    assert waits.wait(20)
    run.abort()
    with pytest.raises(thalweg.Error):
        run.wait(20)
    goes_on.set()


@pytest.mark.parametrize(
    "form",
    [
        lambda table: table,
        lambda table: table.to_batches()[0],
        lambda table: pa.RecordBatchReader.from_batches(table.schema, iter(table.to_batches())),
        lambda table: polars.from_arrow(table),
    ],
)
def test_what_speaks_arrow_is_a_source(form: Callable[[pa.Table], Any]) -> None:
    assert Pipeline(sources.from_arrow(form(numbers(100)))).table().to_pylist() == numbers(100).to_pylist()


def test_a_column_payload_is_the_payload(tmp_path: Path) -> None:
    table = pa.table({"payload": ["one", None, "a longer text than twelve"], "n": [1, 2, 3]})
    for of in (pa.string(), pa.binary(), pa.large_string(), pa.string_view()):
        cast = table.set_column(0, "payload", table.column(0).cast(of))
        Pipeline(sources.from_arrow(cast), [], sinks.file(path=tmp_path / "out")).run()
        assert (tmp_path / "out").read_text() == "one\n\na longer text than twelve\n"
    wrong = pa.table({"payload": [1]})
    with pytest.raises(thalweg.Error, match="must be bytes or text"):
        Pipeline(sources.from_arrow(wrong), [], sinks.discard()).run()


def test_what_does_not_speak_arrow_is_told() -> None:
    with pytest.raises(thalweg.Error, match="int speaks neither"):
        Pipeline(sources.from_arrow(1), [], sinks.discard()).run()


def test_columns_come_and_go_without_a_copy() -> None:
    column = pa.array(range(1000))
    (there,) = Pipeline(sources.from_arrow(pa.table({"n": column}))).stream()
    assert there.column(0).buffers()[1].address == column.buffers()[1].address


def test_what_is_read_waits_for_the_budget() -> None:
    taken = 0

    def items() -> Iterator[bytes]:
        nonlocal taken
        for _ in range(1000):
            taken += 1
            yield bytes(100_000)

    with Pipeline(sources.from_iterable(items())).stream(memory="4MiB") as stream:
        received = 0
        for batch in stream:
            received += batch.num_rows
            assert taken - received < 60
            assert stream.run.statistics().budget_used < 6 << 20
    assert received == taken == 1000


def test_a_stream_ends_its_run_when_it_is_left_and_fails_as_that_fails() -> None:
    stream = Pipeline(sources.generate()).stream()
    with stream:
        assert next(stream).num_rows > 0
    assert not stream.run.is_running

    def broken() -> Iterator[str]:
        yield "a"
        raise KeyError("gone")

    with pytest.raises(thalweg.Error, match="gone"):
        list(Pipeline(sources.from_iterable(broken())).stream())
    with pytest.raises(Exception, match="gone"):
        polars.DataFrame(Pipeline(sources.from_iterable(broken())).stream())
    with pytest.raises(ValueError, match="lead nowhere"):
        Pipeline(sources.generate(), [], sinks.discard()).stream()


def test_a_stream_ends_with_the_error_of_a_run_that_fails_before_it_begins(tmp_path: Path) -> None:
    pipeline = Pipeline(memory="1MiB")
    large = sinks.file(path=tmp_path / "out", compression="zstd", compression_level=19)
    pipeline.add("first", sources.generate(count=3), [], large)
    pipeline.add("second", sources.generate(count=3))
    with pytest.raises(thalweg.Error, match="`compression` needs"):
        list(pipeline.stream())
    with pytest.raises(Exception, match="`compression` needs"):
        pipeline.table()


def test_polars_takes_a_stream() -> None:
    frame = polars.DataFrame(Pipeline(sources.from_arrow(numbers())).stream())
    assert frame["number"].to_list() == [0, 1, 2, 3, 4]


def test_a_stream_has_the_fields_of_its_first_batch() -> None:
    given: list[Any] = [{"a": 1, "b": 1}, "between", {"a": 2.5}]
    rows = Pipeline(sources.from_iterable(item for item in given if item != "between")).table().to_pylist()
    assert rows == [{"a": 1.0, "b": 1}, {"a": 2.5, "b": None}]
    with pytest.raises(Exception, match="has a field `payload`"):
        Pipeline(sources.from_iterable(given)).table()


def test_a_transform_gives_one_none_or_several() -> None:
    @thalweg.transform
    def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.set_column(0, "number", pc.multiply(batch["number"], 2))

    assert [row["number"] for row in passed(doubled)] == [0, 2, 4, 6, 8]
    assert doubled(pa.record_batch({"number": [1]})).to_pylist() == [{"number": 2}]
    assert passed(lambda batch: None) == []
    assert len(passed(lambda batch: [batch, None, batch.slice(0, 2)])) == 7
    assert len(passed(lambda batch: (batch.slice(at, 1) for at in range(3)))) == 3
    assert len(passed(lambda batch: pa.table(batch))) == 5
    assert len(passed(lambda batch: polars.from_arrow(batch))) == 5


def test_payloads_stay_where_the_rows_do() -> None:
    seen: list[Any] = []
    data = pa.table({"payload": ["a", "b"], "n": [1, 2]})

    def through(transform: Any) -> list[Any]:
        seen.clear()
        sink = sinks.to_callable(lambda batch: seen.extend(batch.to_pylist()), payload=True)
        Pipeline(sources.from_arrow(data), [transform], sink).run(strict=True)
        return list(seen)

    assert through(lambda batch: batch) == [{"n": 1, "payload": b"a"}, {"n": 2, "payload": b"b"}]
    assert through(lambda batch: batch.slice(1)) == [{"n": 2, "payload": b""}]
    both = thalweg.transform(payload=True)(lambda batch: batch.slice(1))
    assert through(both) == [{"n": 2, "payload": b"b"}]
    upper = thalweg.transform(payload=True)(lambda batch: pa.record_batch({"payload": ["A", "B"]}))
    assert through(upper) == [{"payload": b"A"}, {"payload": b"B"}]


def test_views_come_as_they_are_where_that_is_asked_for() -> None:
    seen: list[Any] = []

    def note(batch: pa.RecordBatch) -> pa.RecordBatch:
        seen.append(batch.column(0).type)
        return batch

    for views in (False, True):
        Pipeline(sources.from_iterable(["a"]), [thalweg.transform(views=views)(note)], sinks.discard()).run()
    assert seen == [pa.binary(), pa.binary_view()]


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (ValueError("no number"), "ValueError: no number"),
        ("text", "a transform returns a pyarrow.RecordBatch, several, or None, not str"),
        (pa.record_batch([[1], [2]], names=["a", "a"]), "two columns are called `a`"),
        (pa.record_batch({"payload": [1]}), "it must be bytes or text"),
    ],
)
def test_what_a_transform_cannot_do_leaves_by_errors_and_nothing_else(made: Any, reason: str, tmp_path: Path) -> None:
    def some(batch: pa.RecordBatch) -> Any:
        if batch["number"][0].as_py() != 2:
            return batch
        if isinstance(made, Exception):
            raise made
        return made

    given = ([{"number": number}] for number in range(5))
    alone = (item for items in given for item in (items[0], "between"))
    seen: list[Any] = []
    summary = Pipeline(
        sources.from_iterable(alone),
        [transforms.filter("number IS NOT NULL"), thalweg.transform(some)],
        sinks.to_callable(lambda batch: seen.extend(batch.to_pylist())),
    ).run(state=tmp_path / "state")
    assert [row["number"] for row in seen] == [0, 1, 3, 4]
    assert (summary.errors, summary.component("main.some").errors) == (1, 1)
    (letter,) = letters(tmp_path / "state")
    assert reason in json.dumps(letter)


def test_order_is_kept_where_batches_take_of_different_length() -> None:
    @thalweg.transform
    def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
        threading.Event().wait(0.02 if batch["number"][0].as_py() % 2 == 0 else 0)
        return batch

    parts = pa.Table.from_batches([numbers(40).to_batches()[0].slice(at, 1) for at in range(40)])
    assert [row["number"] for row in passed(slow, parts, threads=4)] == list(range(40))


def test_functions_of_the_same_name_are_told_apart() -> None:
    def filter(batch: pa.RecordBatch) -> pa.RecordBatch:  # noqa: A001
        return batch.slice(1)

    def other() -> Any:
        def filter(batch: pa.RecordBatch) -> pa.RecordBatch:  # noqa: A001
            return batch.slice(2)

        return filter

    built = Pipeline(sources.from_arrow(numbers(6)), [filter, other(), transforms.filter("number < 5"), filter])
    assert built.table().column("number").to_pylist() == [4]
    assert "filter-3" in built.to_yaml()


class Measured(thalweg.Reader):
    """Reads numbers of eight bytes."""

    unpacks = True

    def __init__(self, order: str = "little") -> None:
        self.order: Any = order
        self.files = 0

    def begin(self) -> None:
        self.files += 1

    def read(self, data: memoryview, at_end: bool) -> tuple[Any, int]:
        count = len(data) // 8
        if bytes(data[:5]) == b"wrong":
            raise ValueError("these are no numbers")
        rows = [{"value": int.from_bytes(data[at * 8 : at * 8 + 8], self.order)} for at in range(count)]
        return rows, count * 8


def test_a_reader_reads_files_in_slices(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"".join(number.to_bytes(8, "big") for number in range(1000)))
    (tmp_path / "b.bin").write_bytes(gzip.compress((7).to_bytes(8, "big")))
    source = sources.files(path=tmp_path / "*.bin")
    table = Pipeline(source, [transforms.reader(Measured, order="big")]).table(memory="32KiB")
    assert sorted(table.column("value").to_pylist()) == sorted([*range(1000), 7])


def test_what_a_reader_raises_is_why_a_file_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes((7).to_bytes(8, "little"))
    (tmp_path / "b.bin").write_bytes(b"wrong number")
    (tmp_path / "c.bin").write_bytes(b"cut")
    built = Pipeline(sources.files(path=tmp_path / "*.bin"), [Measured], sinks.discard())
    summary = built.run(state=tmp_path / "state")
    assert (summary.dead_letters, summary.component("discard").rows_in) == (2, 1)
    reported = json.dumps(letters(tmp_path / "state"))
    assert "these are no numbers" in reported
    assert "the last 3 bytes of the file are not a complete row" in reported
    with pytest.raises(thalweg.Error, match="unexpected keyword"):
        Pipeline(sources.files(path=tmp_path / "*"), [transforms.reader(Measured, wrong=1)], sinks.discard()).run()


class Sum(thalweg.Writer):
    """Adds up a column."""

    results: list[int] = []  # noqa: RUF012

    def __init__(self, column: str = "number") -> None:
        self.column = column
        self.sum = 0
        self.is_first = True

    def write(self, batch: Any) -> None:
        if self.is_first:
            self.is_first = False
            raise thalweg.TemporaryError("not yet")
        self.sum += pc.sum(batch[self.column]).as_py()

    def finish(self) -> None:
        self.results.append(self.sum)


def test_a_writer_writes_tries_again_and_finishes() -> None:
    Sum.results.clear()
    summary = Pipeline(sources.from_arrow(numbers()), [], sinks.writer(Sum, column="number")).run()
    assert (Sum.results, summary.retries) == ([10], 1)
    Pipeline(sources.from_arrow(numbers()), [], Sum).run()
    assert Sum.results == [10, 10]
    with pytest.raises(thalweg.Error) as raised:
        Pipeline(sources.from_arrow(numbers()), [], sinks.writer(Sum, column="none")).run()
    assert isinstance(raised.value.__cause__, KeyError)


def test_messages_that_are_only_text_need_no_pyarrow(tmp_path: Path) -> None:
    program = f"""
import sys
sys.modules["pyarrow"] = None
import thalweg
from thalweg import Pipeline, sinks, sources
print(Pipeline(sources.from_iterable(["a"]), [], sinks.file(path={str(tmp_path / "out")!r})).run().messages)
try:
    Pipeline(sources.from_iterable(["a"]), [], sinks.to_callable(print)).run()
except thalweg.Error as error:
    print(error)
"""
    reported = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    first, second = reported.splitlines()
    assert first == "1"
    assert "`pip install pyarrow`" in second
    assert (tmp_path / "out").read_text() == "a\n"
