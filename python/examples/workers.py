"""A transform that holds the interpreter lock, in worker processes; and a writer."""

import hashlib

import pyarrow as pa

import thalweg
from thalweg import Pipeline, sources


@thalweg.transform(workers=2)
def hardened(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Takes long in Python: two processes run it, and the order of the messages is kept."""
    words = batch["payload"].to_pylist()
    return pa.record_batch(
        {"word": words, "key": [hashlib.pbkdf2_hmac("sha256", word, b"salt", 100) for word in words]}
    )


class Longest(thalweg.Writer):
    """Finds the longest word."""

    def __init__(self) -> None:
        self.longest = b""

    def write(self, batch: pa.RecordBatch) -> None:
        self.longest = max(self.longest, *batch["word"].to_pylist(), key=len)

    def finish(self) -> None:
        print("the longest word:", self.longest.decode())


# The processes run this script again to find the function, but not the code below this line.
if __name__ == "__main__":
    words = [f"word{'x' * (number % 17)}" for number in range(2000)]
    summary = Pipeline(sources.from_iterable(words), [hardened], Longest).run()
    print(f"{summary.component('main.hardened').rows_out} words in {summary.seconds:.1f} s")
