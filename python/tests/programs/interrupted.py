"""Runs until it is interrupted, and reports how that went."""

import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import thalweg
from thalweg import Pipeline, sinks, sources

taken = 0
written = 0
is_slow = sys.argv[1] == "aborted"
run_is_stopping = threading.Event()


def items() -> Iterator[str]:
    global taken
    while True:
        taken += 1
        yield "x" * 100
        if taken == 10:
            print("running", flush=True)
        time.sleep(0.002)


def write(batch: Any) -> None:
    global written
    if is_slow:
        run_is_stopping.wait()
        print("draining", flush=True)
        threading.Event().wait(30)
    written += batch.num_rows


def watch(now: thalweg.Statistics) -> None:
    if now.stopping:
        run_is_stopping.set()


def look() -> None:
    while not run_is_stopping.is_set():
        time.sleep(0.02)
        for run in list(thalweg._run._running):
            watch(run.statistics())


threading.Thread(target=look, daemon=True).start()
try:
    Pipeline(sources.from_iterable(items()), [], sinks.to_callable(write)).run(progress=False)
except KeyboardInterrupt:
    how = "drained" if taken == written else "aborted"
    print(f"interrupted, {how}", flush=True)
