"""Runs a component in a worker process that never returns. The process writes its id to a file."""

import os
import sys
import time
from pathlib import Path
from typing import Any

import thalweg
from thalweg import Pipeline, sinks, sources, transforms


def hang() -> None:
    started = Path(os.environ["THALWEG_TEST_FOLDER"]) / "started"
    started.write_text(str(os.getpid()))
    started.rename(started.with_name("worker"))
    time.sleep(600)


@thalweg.transform(workers=1)
def transform(batch: Any) -> Any:
    hang()


class Reader(thalweg.Reader):
    def read(self, data: memoryview, at_end: bool) -> tuple[Any, int]:
        hang()
        return None, len(data)


class Writer(thalweg.Writer):
    def write(self, batch: Any) -> None:
        hang()


if __name__ == "__main__":
    built = {
        "transform": Pipeline(sources.from_iterable("a"), [transform], sinks.discard()),
        "reader": Pipeline(sources.files(path=__file__), [transforms.reader(Reader, workers=1)], sinks.discard()),
        "writer": Pipeline(sources.from_iterable("a"), [], sinks.writer(Writer, workers=1)),
    }
    built[sys.argv[1]].run(progress=False)
