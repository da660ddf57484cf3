"""A pipeline in code: parses lines of a log, adds a column in a Python function, and returns a table."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

import thalweg
from thalweg import Pipeline, sinks, sources, transforms


def log() -> Iterator[str]:
    """Yields lines. Any iterable can be a source."""
    for number in range(1000):
        yield f'{{"path": "/item/{number % 7}", "status": {500 if number % 10 == 0 else 200}, "ms": {number % 90}}}'
    yield "this is no JSON"


@thalweg.transform
def rated(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Receives many messages at once, each as a row."""
    return batch.append_column("slow", pc.greater(batch["ms"], 80))


pipeline = Pipeline(sources.from_iterable(log()), [transforms.parse_json(), rated, transforms.filter("status < 500")])
# Messages that could not be processed go here.
pipeline.add(
    "failed", "main.errors", to=sinks.to_callable(lambda batch: print("failed:", batch.to_pylist()), payload=True)
)
print(pipeline.to_yaml())

with pipeline.stream() as stream:
    table = stream.table()
summary = stream.run.wait()
print(table.group_by("slow").aggregate([("ms", "mean"), ([], "count_all")]).sort_by("slow").to_pylist())
print(f"{summary.messages} messages, {summary.errors} of them failed")
