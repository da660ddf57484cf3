"""The statistics of a run, during it and at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Counts:
    """The counters of one component."""

    #: Its name: `access`, `main.parse_json`, `outside`.
    name: str
    #: `source`, `transform` or `sink`.
    role: str
    #: Its key in configurations.
    kind: str
    #: Messages (or files) that it received; for a source: read.
    rows_in: int
    #: Messages that it sent on; for a sink: written.
    rows_out: int
    #: Bytes of payload that it received.
    bytes_in: int
    #: Bytes of payload that it sent on.
    bytes_out: int
    #: Messages that left by `errors`.
    errors: int
    #: Time spent in it by all its workers together, in seconds.
    busy_seconds: float


def counts(reported: Mapping[str, Any]) -> list[Counts]:
    names = ("name", "role", "kind", "rows_in", "rows_out", "bytes_in", "bytes_out", "errors")
    return [
        Counts(**{name: counts[name] for name in names}, busy_seconds=counts["busy_ns"] / 1e9)
        for counts in reported["components"]
    ]


@dataclass(frozen=True)
class Statistics:
    """The statistics of a run at one moment."""

    #: Sources, transforms, sinks.
    components: list[Counts]
    #: Messages (or files) that the sources have read, and their bytes of payload.
    messages: int
    bytes: int
    #: Messages that could not be processed.
    errors: int
    #: Messages kept as dead letters.
    dead_letters: int
    #: The memory in use for data in flight, and its limit, in bytes.
    budget_used: int
    budget_limit: int
    #: True if the run was asked to stop.
    stopping: bool

    def component(self, name: str) -> Counts:
        """Returns the counters of a component.

        Raises KeyError if there is none of that name.
        """
        return _component(self.components, name)


@dataclass(frozen=True)
class Summary:
    """The result of a run."""

    #: Sources, transforms, sinks.
    components: list[Counts]
    #: Messages (or files) that the sources read, and their bytes of payload.
    messages: int
    bytes: int
    #: Messages that could not be processed.
    errors: int
    #: Messages kept as dead letters; `thalweg errors` on the command line shows them.
    dead_letters: int
    #: The duration of the run, in seconds.
    seconds: float
    #: The peak of the memory for data in flight, and its limit, in bytes.
    budget_peak: int
    budget_limit: int
    #: True if the run was asked to stop before its sources ended.
    stopped: bool
    #: The number of retries.
    retries: int
    #: The directory of the dead letters and, if they are kept, the checkpoints.
    state_folder: Path

    def component(self, name: str) -> Counts:
        """Returns the counters of a component.

        Raises KeyError if there is none of that name.
        """
        return _component(self.components, name)


def _component(components: Sequence[Counts], name: str) -> Counts:
    for counts in components:
        if counts.name == name:
            return counts
    raise KeyError(f"{name!r}; there are {', '.join(counts.name for counts in components)}")


def read(components: Sequence[Counts]) -> tuple[int, int]:
    sources = [counts for counts in components if counts.role == "source"]
    return sum(counts.rows_in for counts in sources), sum(counts.bytes_in for counts in sources)


def line(now: Statistics) -> str:
    """Returns statistics as one line of text."""
    parts = [f"{now.messages:,} messages", f"{now.bytes / 2**20:,.1f} MiB"]
    if now.errors:
        parts.append(f"{now.errors:,} errors")
    parts.append(f"{now.budget_used / 2**20:,.1f} of {now.budget_limit / 2**20:,.0f} MiB in flight")
    if now.stopping:
        parts.append("stopping")
    return " · ".join(parts)
