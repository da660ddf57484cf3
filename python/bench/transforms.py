"""Measures a transform in Python: over batches, over single messages, and against `pyarrow` with nothing around it.

All contenders do the same: they keep the lines of a log that contain an error, in capitals. Times are wall times,
because a run has several threads. Each figure is the median of rounds in which all contenders take turns. The
limit is `pyarrow` over the same batches in a loop.

Usage: transforms.py [--quick]
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import thalweg
from thalweg import Pipeline, sinks, sources

ROUNDS, MESSAGES = (3, 200_000) if "--quick" in sys.argv else (7, 2_000_000)
#: The messages per second that a batch transform must reach.
GOAL = 1_000_000
#: About the number of messages that thalweg itself puts into a batch.
ROWS = 10_000


def log() -> pa.Table:
    """Returns lines of about 100 bytes, one in ten with an error."""
    kinds = [
        f"2026-11-22T12:00:0{number}Z host-{number} service[{number}]: {'error' if number == 0 else 'info'}: "
        f"request /path/{number * 12345} took {number * 17} ms, bytes {number * 991}"
        for number in range(10)
    ]
    lines = pa.array(kinds * (MESSAGES // 10), pa.binary())
    table = pa.table({"payload": lines})
    return pa.Table.from_batches(table.to_batches(max_chunksize=ROWS))


TABLE = log()


def capitals(batch: pa.RecordBatch) -> pa.RecordBatch:
    lines = batch["payload"].cast(pa.string())
    chosen = lines.filter(pc.match_substring(lines, "error"))
    return pa.record_batch({"payload": pc.utf8_upper(chosen)})


def capital(message: dict[str, Any]) -> dict[str, Any] | None:
    line = message["payload"]
    return {**message, "payload": line.upper()} if b"error" in line else None


def each(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Calls a function for each message, as in programs whose transforms see one message at a time."""
    made = [capital(message) for message in batch.to_pylist()]
    return pa.RecordBatch.from_pylist([one for one in made if one is not None], schema=batch.schema)


batched = thalweg.transform(capitals)
with_views = thalweg.transform(views=True)(capitals)
single = thalweg.transform(each)
worked = thalweg.transform(workers=2)(capitals)
single_worked = thalweg.transform(workers=2)(each)


def by(transform: Any) -> int:
    """Runs a transform over all lines. Returns the number of lines kept."""
    summary = Pipeline(sources.from_arrow(TABLE), [transform], sinks.discard()).run(progress=False, strict=True)
    return summary.component("discard").rows_in


def by_pyarrow() -> int:
    return sum(capitals(batch).num_rows for batch in TABLE.to_batches())


def by_pyarrow_each() -> int:
    return sum(each(batch).num_rows for batch in TABLE.to_batches())


def main() -> None:
    contenders: list[tuple[str, Callable[[], int]]] = [
        ("pyarrow alone, over batches", by_pyarrow),
        ("a batch transform", lambda: by(batched)),
        ("  given columns of views", lambda: by(with_views)),
        ("  in 2 processes", lambda: by(worked)),
        ("pyarrow alone, a call a message", by_pyarrow_each),
        ("a call a message", lambda: by(single)),
        ("  in 2 processes", lambda: by(single_worked)),
    ]
    spent: list[list[float]] = [[] for _ in contenders]
    for _ in range(ROUNDS):
        for times, (_, contender) in zip(spent, contenders, strict=True):
            begin = time.perf_counter()
            passed = contender()
            times.append(time.perf_counter() - begin)
            assert passed == MESSAGES // 10
    rates = [MESSAGES / statistics.median(times) for times in spent]
    size = TABLE.nbytes / MESSAGES
    print(f"Python transforms: {MESSAGES:,} messages of {size:.0f} bytes, medians of {ROUNDS} rounds in turn")
    for (name, _), rate in zip(contenders, rates, strict=True):
        print(f"  {name:34} {rate:>14,.0f} messages/s   {rate / rates[0]:6.2f} of the limit")
    for mark, text in (
        (rates[1] >= GOAL, f"a batch transform takes {GOAL:,} messages a second"),
        (rates[1] > rates[5], f"and {rates[1] / rates[5]:.1f} times as many as a call a message"),
    ):
        print(f"  {'✓' if mark else '✗'} {text}")


if __name__ == "__main__":
    main()
