"""Components: those of thalweg, by name and options, and Python objects."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any, Literal, TypedDict

from thalweg import _processes
from thalweg._errors import ConfigurationError
from thalweg._own import Calling, Own, Transform
from thalweg._thalweg import kinds


class Given(TypedDict):
    """A Python object that is a component, in the form for the engine."""

    role: str
    name: str
    sort: str
    object: object
    views: bool
    payload: bool
    unpacks: bool
    workers: int
    command: list[str]


@dataclass(frozen=True, eq=False)
class Component:
    """A source, transform or sink with its options, as the functions of `thalweg.sources` and its sibling modules
    return it.
    """

    #: Its key in configurations.
    kind: str
    #: Its options, as written in a configuration.
    options: Any = None
    #: Its name in the run; by default its kind.
    name: str | None = None
    #: The files that a file transform applies to: see `on_error` of a pipeline.
    targets: str | None = None
    own: Own | None = field(default=None, repr=False)
    #: The buffer before a sink, as written in a configuration.
    buffer: Mapping[str, Any] | None = None

    def named(self, name: str) -> Component:
        """Returns the same component with a name of its own, for statistics and for the `from_` of other pipelines."""
        return replace(self, name=name)

    def meant_for(self, targets: Literal["without_errors", "with_errors", "all"]) -> Component:
        """Returns the same transform, applied to other files. For a pipeline with `on_error="carry"`."""
        return replace(self, targets=targets)

    def buffered(
        self,
        *,
        disk: int | str | None = None,
        memory: int | str | None = None,
        when_full: Literal["wait", "drop_newest", "drop_oldest", "error"] | None = None,
    ) -> Component:
        """Returns the same sink with a buffer before it: on disk, in the state directory, or in memory."""
        return replace(self, buffer=options({"disk": disk, "memory": memory, "when_full": when_full}))


def options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options without those that were left out."""
    return {name.rstrip("_"): value for name, value in given.items() if value is not None}


def iterable(items: Iterable[Any]) -> Component:
    return Component("from_iterable", {}, own=Own("iterable", items))


def arrow(data: Any) -> Component:
    return Component("from_arrow", {}, own=Own("arrow", data))


def calling(function: Callable[[Any], object], views: bool, payload: bool) -> Component:
    return Component("to_callable", {}, own=Own("writer", lambda: Calling(function), views, payload))


def writing(writer: Callable[..., Any], given: dict[str, Any], workers: int | None = None) -> Component:
    return _made("writer", writer, given, workers, getattr(writer, "views", False), getattr(writer, "payload", False))


def reading(reader: Callable[..., Any], given: dict[str, Any], workers: int | None = None) -> Component:
    return _made("reader", reader, given, workers, False, False)


def _made(
    sort: str, made: Callable[..., Any], given: dict[str, Any], workers: int | None, views: bool, payload: bool
) -> Component:
    """Returns the component of a class, in this process or in others."""
    name = getattr(made, "__name__", sort)
    count = _processes.checked(workers, sort)
    if not count:
        return Component(name, given, own=Own(sort, made, views, payload))
    unpacks = bool(getattr(made, "unpacks", False))
    command = partial(_processes.command, sort, made, name)
    return Component(name, given, own=Own(sort, None, views, payload, unpacks, count, command))


def component(role: str, given: Any) -> Any:
    """Converts a Python object into a component. Returns any other value as it is."""
    if isinstance(given, Component):
        return given
    if isinstance(given, Transform):
        return Component(given.name, {}, own=given.own())
    if isinstance(given, type) and role == "transform" and hasattr(given, "read"):
        return reading(given, {})
    if isinstance(given, type) and role == "sink" and hasattr(given, "write"):
        return writing(given, {})
    if isinstance(given, type) or not callable(given):
        return given
    if role == "transform":
        return Component(getattr(given, "__name__", "function"), {}, own=Own("function", given))
    return calling(given, False, False) if role == "sink" else given


class Objects:
    """The objects of a configuration, each with a name that is unique in its role."""

    def __init__(self) -> None:
        self.given: list[Given] = []
        self._taken: set[tuple[str, str]] = set(kinds())
        self._names: dict[tuple[str, int], str] = {}
        # Objects are identified by `id`, so they must stay alive.
        self._kept: list[object] = []

    def written(self, role: str, given: Any) -> Any:
        """Returns a component in the form of a configuration."""
        made = component(role, given)
        if not isinstance(made, Component):
            return plain(made)
        name = made.kind if made.own is None else self._name(role, made, made.own)
        text: dict[str, Any] = {name: plain({} if made.options is None else made.options)}
        if made.targets is not None:
            text["for"] = made.targets
        if made.buffer is not None:
            text["buffer"] = plain(made.buffer)
        return text

    def _name(self, role: str, made: Component, own: Own) -> str:
        one = own.object if own.object is not None else made.own
        key = (role, id(one))
        if key in self._names:
            return self._names[key]
        base = "".join(c if c.isalnum() or c in "_-" else "_" for c in made.kind).strip("_") or "function"
        name, number = base, 1
        while (role, name) in self._taken:
            number += 1
            name = f"{base}-{number}"
        self._taken.add((role, name))
        self._names[key] = name
        self._kept.append(one)
        self.given.append(
            Given(
                role=role,
                name=name,
                sort=own.sort,
                object=own.object,
                views=own.views,
                payload=own.payload,
                unpacks=own.unpacks,
                workers=own.workers,
                command=own.command() if own.command is not None else [],
            )
        )
        return name


def plain(value: Any) -> Any:
    """Converts a value to JSON types: paths and bytes become text, time spans text with a unit."""
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(inner) for inner in value]
    if isinstance(value, timedelta):
        return f"{round(value / timedelta(microseconds=1))}us"
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, bytes):
        return value.decode()
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise ConfigurationError(f"{type(value).__name__} has no place in a configuration: {value!r}")


def written(config: Mapping[str, Any]) -> tuple[dict[str, Any], list[Given]]:
    """Returns a configuration in JSON types, and the objects in it."""
    objects = Objects()
    text: dict[str, Any] = {}
    for section, content in config.items():
        if section in ("sources", "sinks") and isinstance(content, Mapping):
            role = "source" if section == "sources" else "sink"
            text[section] = {name: objects.written(role, given) for name, given in content.items()}
        elif section == "pipelines" and isinstance(content, Mapping):
            text[section] = {name: _pipeline(objects, given) for name, given in content.items()}
        else:
            text[section] = plain(content)
    return text, objects.given


def _pipeline(objects: Objects, given: Any) -> Any:
    if not isinstance(given, Mapping):
        return plain(given)
    text = dict(given)
    transforms = text.get("transforms")
    if isinstance(transforms, Component | Transform | type) or callable(transforms):
        raise ConfigurationError("`transforms` is a list; write `[…]` around a single transform")
    if isinstance(transforms, list | tuple):
        text["transforms"] = [objects.written("transform", transform) for transform in transforms]
    return plain(text)
