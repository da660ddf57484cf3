"""Copies of files and of rows. The same works with s3://, gs://, az:// and https://."""

import os
import tempfile
from pathlib import Path

import thalweg


def show(progress: thalweg.CopyProgress) -> None:
    print(f"  {progress.copied} copied, {progress.read_bytes} bytes read")


with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    # Where a copy that is cut off leaves what the next one goes on from.
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    (folder / "boats").mkdir()
    (folder / "boats/north.csv").write_text("boat,length\nbarge,38\ncanoe,5\n")
    (folder / "boats/south.csv").write_text("boat,length\nferry,60\npunt,7\n")

    # All below a folder, as it is.
    summary = thalweg.copy(f"{folder}/boats/", f"{folder}/backup/", progress=show)
    print(f"{summary.files} files, {summary.written_bytes} bytes")

    # The rows of all of them, in one object of another form.
    summary = thalweg.copy(
        f"{folder}/boats/*.csv",
        folder / "long.jsonl",
        parse="csv",
        encode="json",
        type={"length": "int"},
        where="length > 30",
    )
    print(f"{summary.rows} rows of {summary.objects} objects:")
    print((folder / "long.jsonl").read_text(), end="")

    # What is wrong is said as by the command.
    try:
        thalweg.copy(f"{folder}/boats/", f"{folder}/other/", where="length > 30")
    except thalweg.ConfigurationError as wrong:
        print(wrong)
