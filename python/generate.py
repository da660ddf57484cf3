"""Writes `thalweg/sources.py`, `transforms.py` and `sinks.py`: a function for each component of the program.

python generate.py FILE            # writes them
python generate.py --check FILE    # fails if they are out of date

FILE is the JSON that `thalweg components --json` prints; `make generate` passes it.
"""

from __future__ import annotations

import json
import keyword
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parent / "thalweg"
WIDTH = 110
#: The maximum depth of unions and lists in types.
DEEPEST = 3
#: Words in the names of options that contain paths. Such options accept paths as well as text.
PATHS = ("path", "folder", "directory", "file", "exclude", "temporary")

HEADS = {
    "source": ("sources", "Sources of messages and files"),
    "transform": ("transforms", "Transforms of messages and files"),
    "sink": ("sinks", "Sinks for messages and files"),
}

#: Functions of this package itself, by module.
OWN = {
    "sources": '''
def from_iterable(items: Iterable[Any]) -> Component:
    """Reads any iterable. Text and bytes are messages, dicts are messages with fields, and lists are flattened.

    An iterator can be used for one run only. A list, or another object that can be iterated again, serves several runs.
    """
    return _objects.iterable(items)


def from_arrow(data: Any) -> Component:
    """Reads any object with Arrow's C stream interface, without a copy: a `pyarrow.Table` or `RecordBatchReader`,
    frames of polars, pandas (from 2.2 on) and duckdb. Rows become messages and columns their fields. A column
    `payload` of text or bytes becomes their payload.
    """
    return _objects.arrow(data)
''',
    "transforms": '''
def reader(reader: Callable[..., Any], /, *, workers: int | None = None, **options: Any) -> Component:
    """Reads messages out of files with a `thalweg.Reader`. Each worker makes its own instance, with these options.

    `workers` is for readers that hold the interpreter lock: the reader runs in this number of processes, one file at
    a time in each. The class must then be importable by its name in a module, as with `thalweg.transform`. If a process
    dies, another one reads the file again from its start, and the rows that were sent before are skipped. If that dies
    too, the file becomes a dead letter. The order of files is kept only if the pipeline is `ordered`: then there is one
    process.
    """
    return _objects.reading(reader, options, workers)
''',
    "sinks": '''
def to_callable(function: Callable[[Any], object], *, views: bool = False, payload: bool = False) -> Component:
    """Calls a function with each batch, a `pyarrow.RecordBatch`. When it returns, the messages are acknowledged.

    Messages without fields have one column, `payload`; with `payload`, the others have it as well. With `views`, text
    and bytes are columns of views as in the engine, without a copy; few functions of `pyarrow` accept these. After a
    `thalweg.TemporaryError` the engine passes the same batch again, after a pause; any other exception ends the run.
    """
    return _objects.calling(function, views, payload)


def writer(writer: Callable[..., Any], /, *, workers: int | None = None, **options: Any) -> Component:
    """Writes with a `thalweg.Writer`, which is created with these options.

    `workers` is for writers that hold the interpreter lock: each of this number of processes has an instance. The class
    must then be importable by its name in a module, as with `thalweg.transform`. The order of batches is kept only with
    one process. If a process dies, another one gets its batch again, a part of which may have been written. If that
    dies too, the messages of the batch leave by `errors`.
    """
    return _objects.writing(writer, options, workers)
''',
}


def components() -> list[dict[str, Any]]:
    """Returns the program's description of all components."""
    known: list[dict[str, Any]] = json.loads(Path(sys.argv[-1]).read_text())
    return known


def ways(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the alternatives of a schema."""
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return [way for inner in schema[key] for way in ways(inner)]
    return [schema]


def type_of(schema: Any, depth: int = 0) -> str:
    """Returns the Python type for a schema, without None."""
    if not isinstance(schema, dict) or depth > DEEPEST:
        return "Any"
    found: list[str] = []
    for way in ways(schema):
        for one in one_type(way, depth):
            if one not in found:
                found.append(one)
    if not found or "Any" in found:
        return "Any"
    literals = [one.removeprefix("Literal[").removesuffix("]") for one in found if one.startswith("Literal[")]
    others = [one for one in found if not one.startswith("Literal[")]
    # A choice of words together with any text is any text.
    if literals and "str" not in others:
        others.insert(0, f"Literal[{', '.join(literals)}]")
    return " | ".join(others)


def one_type(way: dict[str, Any], depth: int) -> list[str]:
    if "const" in way:
        return [] if way["const"] is None else [f"Literal[{json.dumps(way['const'])}]"]
    if "enum" in way:
        return [f"Literal[{json.dumps(value)}]" for value in way["enum"] if value is not None]
    types = way.get("type", "object" if "properties" in way else [])
    types = [types] if isinstance(types, str) else types
    found: list[str] = []
    for name in types:
        if name == "string":
            found += ["str", "timedelta"] if way.get("format") == "time-span" else ["str", "PathLike[str]"]
        elif name == "array":
            found.append(f"Sequence[{type_of(way.get('items'), depth + 1)}]")
        elif name == "object":
            found.append(f"Mapping[str, {type_of(way.get('additionalProperties'), depth + 1)}]")
        elif name != "null":
            found.append({"integer": "int", "number": "float", "boolean": "bool"}[name])
    if way.get("type") is None and "properties" not in way:
        return ["Any"]
    return found


def without_paths(of: str) -> str:
    return of.replace("str | PathLike[str]", "str")


def identifier(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) else name


def documented(known: dict[str, Any], options: dict[str, Any]) -> str:
    """Returns the docstring of a function."""
    lines = known["description"].strip().replace('"""', "'''").splitlines()
    text = "\n".join(wrapped(lines, ""))
    if options:
        text += "\n\nArgs:\n"
        for name, option in options.items():
            about = option.get("description", "") if isinstance(option, dict) else ""
            default = option.get("default") if isinstance(option, dict) else None
            if default not in (None, [], {}, ""):
                about += f" By default `{json.dumps(default)}`."
            text += "\n".join(wrapped(f"{identifier(name)}: {about.strip()}".splitlines(), "        ", "    ")) + "\n"
    text = text.rstrip()
    prefix = "r" if "\\" in text else ""
    end = "\n    " if "\n" in text else ""
    if not end and text.endswith('"'):
        end = " "
    return prefix + '"""' + textwrap.indent(text, "    ").lstrip() + end + '"""'


def wrapped(lines: list[str], indent: str, first: str | None = None) -> list[str]:
    """Wraps paragraphs and lists."""
    made: list[str] = []
    block: list[str] = []
    begin = indent if first is None else first

    def close() -> None:
        nonlocal begin
        if block:
            text = " ".join(line.strip() for line in block)
            hang = indent + "  " if text.startswith("- ") else indent
            made.extend(
                textwrap.wrap(text, WIDTH, initial_indent=begin, subsequent_indent=hang, break_on_hyphens=False)
            )
            begin = indent
            block.clear()

    for line in lines:
        if not line.strip():
            close()
            made.append("")
        elif line.startswith(("- ", "    ", "```")):
            close()
            block.append(line)
        else:
            block.append(line)
    close()
    return made


def function(known: dict[str, Any]) -> str:
    """Returns the function of a component."""
    schema = known["schema"]
    options: dict[str, Any] = {}
    required: set[str] = set()
    alone: list[str] = []
    all_ways = ways(schema)
    for way in all_ways:
        properties = way.get("properties")
        if properties:
            options.update({name: option for name, option in properties.items() if name not in options})
            required |= set(way.get("required", []))
        elif way.get("type") == "object" and not isinstance(way.get("additionalProperties"), dict):
            continue
        else:
            alone += [one for one in one_type(way, 0) if one not in alone]
        if properties and isinstance(way.get("additionalProperties"), dict):
            alone.append("Mapping[str, Any]")
    can_be_empty = len(all_ways) > 1 and any(way.get("type") in ("object", "null") for way in all_ways)
    is_optional = can_be_empty or bool(options)
    parameters: list[str] = []
    if alone:
        alone = [without_paths(one) for one in alone if one != "PathLike[str]"]
        of = "Any" if "Any" in alone else " | ".join(one for one in alone if not one.startswith("Literal["))
        literals = [one.removeprefix("Literal[").removesuffix("]") for one in alone if one.startswith("Literal[")]
        if literals and "str" not in alone:
            of = " | ".join([f"Literal[{', '.join(literals)}]", *([of] if of else [])])
        parameters.append(f"value: {of} | None = None" if is_optional else f"value: {of}")
        parameters.append("/")
    if options:
        parameters.append("*")
    for name, option in options.items():
        must = name in required and len(all_ways) == 1 and not alone
        of = type_of(option)
        if not any(word in name for word in PATHS):
            of = without_paths(of)
        optional = "" if must else " = None"
        none = "" if must or of == "Any" else " | None"
        parameters.append(f"{identifier(name)}: {of}{none}{optional}")
    entries = ", ".join(f'"{name}": {identifier(name)}' for name in options)
    given = f"_objects.options({{{entries}}})"
    if alone and options:
        given = f"{given} if value is None else value"
    elif alone:
        given = "value"
    return (
        f"\n\ndef {identifier(known['name'])}({', '.join(parameters)}) -> Component:\n"
        f"    {documented(known, options)}\n"
        f'    return Component("{known["name"]}", {given})\n'
    )


def module(role: str, known: list[dict[str, Any]]) -> tuple[Path, str]:
    """Returns the path and text of a role's module."""
    name, about = HEADS[role]
    found = sorted((one for one in known if one["role"] == role), key=lambda one: str(one["name"]))
    body = OWN[name] + "".join(function(one) for one in found)
    own = [line.split("(")[0].removeprefix("def ") for line in OWN[name].splitlines() if line.startswith("def ")]
    names = sorted([*own, *(identifier(one["name"]) for one in found)])
    collections = [word for word in ("Callable", "Iterable", "Mapping", "Sequence") if f"{word}[" in body]
    imports = "from __future__ import annotations\n\n"
    imports += f"from collections.abc import {', '.join(collections)}\n" if collections else ""
    imports += "from datetime import timedelta\n" if "timedelta" in body else ""
    imports += "from os import PathLike\n" if "PathLike[" in body else ""
    typing = [word for word in ("Any", "Literal") if f"{word}" in body]
    imports += f"from typing import {', '.join(typing)}\n" if typing else ""
    imports += "\nfrom thalweg import _objects\nfrom thalweg._objects import Component\n"
    text = (
        f'"""{about}: a function for each component, with its options.\n\n'
        "Generated by `generate.py` from the program's description of its components. Omitted options have defaults.\n"
        '"""\n\n'
        f"{imports}\n__all__ = {json.dumps(names)}\n\n{body}"
    )
    path = PACKAGE / f"{name}.py"
    line = [
        sys.executable,
        "-m",
        "ruff",
        "format",
        "--config",
        str(PACKAGE.parent / "pyproject.toml"),
        "--stdin-filename",
    ]
    formatted = subprocess.run([*line, str(path), "-"], input=text, capture_output=True, text=True, check=True)
    return path, formatted.stdout


def main() -> None:
    """Writes the modules, or reports those that are out of date."""
    known = components()
    old = []
    for role in HEADS:
        path, text = module(role, known)
        if "--check" in sys.argv:
            if not path.exists() or path.read_text() != text:
                old.append(path.name)
        else:
            path.write_text(text)
    if old:
        sys.exit(f"{', '.join(old)}: not up to date; run `make generate`")


if __name__ == "__main__":
    main()
