"""Copies files and rows. The same works with s3://, gs://, az:// and https://."""

import os
import tempfile
from pathlib import Path

import thalweg


def show(progress: thalweg.CopyProgress) -> None:
    print(f"  {progress.copied} copied, {progress.read_bytes} bytes read")


with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    # The place of the state from which an interrupted copy resumes.
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    (folder / "boats").mkdir()
    (folder / "boats/north.csv").write_text("boat,length\nbarge,38\ncanoe,5\n")
    (folder / "boats/south.csv").write_text("boat,length\nferry,60\npunt,7\n")

    # All files below a directory, unchanged.
    summary = thalweg.copy(f"{folder}/boats/", f"{folder}/backup/", progress=show)
    print(f"{summary.files} files, {summary.written_bytes} bytes")

    # The rows of all files, as one object in another format.
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

    # Errors have the same text as those of the command.
    try:
        thalweg.copy(f"{folder}/boats/", f"{folder}/other/", where="length > 30")
    except thalweg.ConfigurationError as wrong:
        print(wrong)
