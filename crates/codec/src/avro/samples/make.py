#!/usr/bin/env python3
"""Makes the samples beside this file with two other implementations of Avro, fastavro and Apache's own.

    python3 -m venv env && env/bin/pip install fastavro==1.13.1 avro==1.12.2 cramjam==2.14.0 backports.zstd==1.8.0
    env/bin/python make.py

`types-CODEC.avro` have the rows of `types.jsonl`, in blocks of a few rows. `apache.avro` is written by Apache's
library. `messages.json` has single data with their schema: as they are, and in the single-object encoding.
"""

import datetime
import decimal
import io
import json
import struct
import uuid
from pathlib import Path

import avro.datafile
import avro.io
import avro.schema
import fastavro

HERE = Path(__file__).parent
ROWS = 20

SCHEMA = {
    "type": "record",
    "name": "row",
    "namespace": "org.example",
    "doc": "All types",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "nothing", "type": "null"},
        {"name": "flag", "type": "boolean"},
        {"name": "small", "type": "int", "default": 0},
        {"name": "single", "type": "float"},
        {"name": "double", "type": "double"},
        {"name": "data", "type": "bytes"},
        {"name": "text", "type": "string", "order": "ignore"},
        {"name": "fixed", "type": {"type": "fixed", "name": "four", "size": 4}},
        {"name": "colour", "type": {"type": "enum", "name": "colour", "symbols": ["RED", "GREEN", "BLUE"]}},
        {"name": "maybe", "type": ["null", "string"], "default": None},
        {"name": "perhaps", "type": ["int", "null"]},
        {"name": "either", "type": ["null", "long", "string", {"type": "array", "items": "int"}]},
        {"name": "list", "type": {"type": "array", "items": "string"}},
        {"name": "map", "type": {"type": "map", "values": ["null", "double"]}},
        {
            "name": "place",
            "type": {
                "type": "record",
                "name": "place",
                "fields": [
                    {"name": "colour", "type": "colour"},
                    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
                    {"name": "parent", "type": ["null", "place"]},
                ],
            },
        },
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {
            "name": "amount",
            "type": {
                "type": "fixed", "name": "amount", "size": 20, "logicalType": "decimal", "precision": 44, "scale": 4,
            },
        },
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "clock_ms", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "clock_us", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "at_ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "at_us", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "at_ns", "type": {"type": "long", "logicalType": "timestamp-nanos"}},
        {"name": "local_ms", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "span", "type": {"type": "fixed", "name": "span", "size": 12, "logicalType": "duration"}},
    ],
}

UTC = datetime.timezone.utc
START = datetime.datetime(2024, 2, 28, 22, 0, 0, 0, UTC)


def row(n):
    """The values of a row, as the libraries take them."""
    at = START + datetime.timedelta(hours=n, milliseconds=n)
    identity = uuid.UUID(int=n * 0x0123456789ABCDEF0123456789ABCDEF % (1 << 128))
    return {
        "n": n,
        "nothing": None,
        "flag": n % 2 == 0,
        "small": -n,
        "single": n / 4,
        "double": n / 3,
        "data": bytes([n, 255 - n]),
        "text": "é\"" * n,
        "fixed": bytes([n] * 4),
        "colour": ["RED", "GREEN", "BLUE"][n % 3],
        "maybe": None if n % 2 else "yes",
        "perhaps": None if n % 3 else n,
        "either": [None, n, "text", [n, n + 1]][n % 4],
        "list": ["item"] * (n % 4),
        "map": {f"k{k}": None if k == 1 else k / 2 for k in range(n % 3)},
        "place": {
            "colour": "BLUE",
            "day": at.date(),
            "parent": {"colour": "RED", "day": at.date(), "parent": None} if n % 2 else None,
        },
        "price": decimal.Decimal(n * 1234567 - 5_000_000) / 100,
        "amount": decimal.Decimal(10**39 * (n - 10) + n).scaleb(-4, decimal.Context(prec=50)),
        "day": at.date(),
        "clock_ms": at.time(),
        "clock_us": at.time(),
        "at_ms": at,
        "at_us": at,
        "at_ns": int(at.timestamp()) * 1_000_000_000 + n,
        "local_ms": at.replace(tzinfo=None),
        "id": identity,
        "span": struct.pack("<III", n, 2, n * 1001),
    }


def written(value):
    """A value as thalweg writes it in JSON."""
    import base64

    match value:
        case datetime.datetime():
            text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
            return text.removesuffix(".000") + "Z"
        case datetime.time():
            return value.isoformat(timespec="milliseconds").removesuffix(".000")
        case datetime.date():
            return value.isoformat()
        case uuid.UUID():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {key: written(member) for key, member in value.items()}
        case list():
            return [written(item) for item in value]
    return value


def expected(n):
    """The JSON line of a row. Decimals are numbers that a float cannot hold, so the text is put together."""
    values = row(n)
    months, days, millis = struct.unpack("<III", values["span"])
    seconds = f"T{millis // 1000}" + (f".{millis % 1000:03}S" if millis % 1000 else "S") if millis else ""
    values["span"] = "P" + (f"{months}M" if months else "") + f"{days}D" + seconds
    nanos = values["at_ns"]
    second = datetime.datetime.fromtimestamp(nanos // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    values["at_ns"] = second + (f".{nanos % 1_000_000_000:09}Z" if nanos % 1_000_000_000 else "Z")
    decimals = {name: f"{values[name]:f}" for name in ("price", "amount")}
    for name, places in (("price", 2), ("amount", 4)):
        whole, _, fraction = decimals[name].partition(".")
        decimals[name] = f"{whole}.{fraction.ljust(places, '0')}"
        values[name] = f"<{name}>"
    present = {name: written(value) for name, value in values.items() if value is not None}
    line = json.dumps(present, ensure_ascii=False, separators=(",", ":"))
    for name, text in decimals.items():
        line = line.replace(f'"<{name}>"', text)
    return line


def main():
    rows = [row(n) for n in range(ROWS)]
    schema = fastavro.parse_schema(SCHEMA)
    for codec in ("null", "deflate", "snappy", "zstandard"):
        with (HERE / f"types-{codec}.avro").open("wb") as file:
            fastavro.writer(file, schema, rows, codec=codec, sync_interval=1500, sync_marker=b"0123456789abcdef")
    (HERE / "types.jsonl").write_text("".join(expected(n) + "\n" for n in range(ROWS)))

    small = {
        "type": "record",
        "name": "reading",
        "namespace": "org.example",
        "fields": [
            {"name": "station", "type": "string", "doc": "Its name"},
            {"name": "values", "type": {"type": "array", "items": ["null", "double"]}},
            {"name": "unit", "type": {"type": "enum", "name": "unit", "symbols": ["C", "F"], "default": "C"}},
        ],
    }
    data = [{"station": f"s{n}", "values": [None, n / 2], "unit": "CF"[n % 2]} for n in range(3)]
    with avro.datafile.DataFileWriter(
        (HERE / "apache.avro").open("wb"), avro.io.DatumWriter(), avro.schema.parse(json.dumps(small)), codec="deflate"
    ) as file:
        file.sync_marker = b"0123456789abcdef"
        for datum in data:
            file.append(datum)

    fingerprint = fastavro.schema.fingerprint(fastavro.schema.to_parsing_canonical_form(small), "CRC-64-AVRO")
    parsed = fastavro.parse_schema(small)
    messages = []
    for datum in data:
        plain = io.BytesIO()
        fastavro.schemaless_writer(plain, parsed, datum)
        plain = plain.getvalue()
        single = b"\xc3\x01" + bytes.fromhex(fingerprint) + plain
        messages.append({"plain": plain.hex(), "single_object": single.hex(), "fields": datum})
    sample = {"schema": small, "messages": messages}
    (HERE / "messages.json").write_text(json.dumps(sample, indent=1) + "\n")


main()
