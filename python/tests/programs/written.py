"""Writes in worker processes until it is interrupted, and reports how that went."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import thalweg
from thalweg import Pipeline, sinks, sources


class Log(thalweg.Writer):
    """Appends the number of rows of each batch to a file of its process."""

    def __init__(self, folder: str) -> None:
        self.path = Path(folder) / f"{os.getpid()}.log"

    def write(self, batch: Any) -> None:
        with self.path.open("a") as log:
            log.write(f"{batch.num_rows}\n")

    def finish(self) -> None:
        with self.path.open("a") as log:
            log.write("end\n")


taken = 0


def items() -> Iterator[str]:
    global taken
    is_told = False
    while True:
        taken += 1
        yield "x"
        if not is_told and list(Path(sys.argv[1]).glob("*.log")):
            is_told = True
            print("running", flush=True)
        time.sleep(0.002)


if __name__ == "__main__":
    folder = sys.argv[1]
    try:
        Pipeline(sources.from_iterable(items()), [], sinks.writer(Log, workers=2, folder=folder)).run(progress=False)
    except KeyboardInterrupt:
        lines = [line for log in Path(folder).glob("*.log") for line in log.read_text().split() if line != "end"]
        print(f"interrupted, {'drained' if sum(map(int, lines)) == taken else 'aborted'}", flush=True)
