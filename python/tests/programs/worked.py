"""Calls a function of this script in worker processes."""

import pyarrow as pa
import pyarrow.compute as pc

import thalweg
from thalweg import Pipeline, sources


@thalweg.transform(workers=2)
def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(0, "number", pc.multiply(batch["number"], 2))


if __name__ == "__main__":
    print(Pipeline(sources.from_arrow(pa.table({"number": [0, 1, 2]})), [doubled]).table()["number"].to_pylist())
