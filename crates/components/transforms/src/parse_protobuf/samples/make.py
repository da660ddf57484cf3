"""Writes `samples.desc` and `samples.jsonl`: messages encoded by Google's implementation, and the rows expected.

    pip install protobuf grpcio-tools
    python make.py

Each line has the name of a message type, a message in hexadecimal digits, and the fields that `parse_protobuf` makes of
it, without and with `flatten`. The mapping to fields is written here again, over Google's reflection.
"""

import base64
import json
import random
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor as F

HERE = Path(__file__).parent
FILES = ["shop.proto", "legacy.proto", "edition.proto"]
DESCRIPTORS = HERE / "samples.desc"


def compile_descriptors():
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{HERE}", "--include_imports"]
    import grpc_tools

    include = Path(grpc_tools.__file__).parent / "_proto"
    command += [f"-I{include}", f"--descriptor_set_out={DESCRIPTORS}", *FILES]
    subprocess.run(command, check=True)
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTORS.read_bytes()).file:
        pool.Add(file) if hasattr(pool, "Add") else pool.AddSerializedFile(file.SerializeToString())
    return pool


POOL = compile_descriptors()


def new(name):
    return message_factory.GetMessageClass(POOL.FindMessageTypeByName(name))()


def scalar(field, value):
    if field.type == F.TYPE_BYTES:
        return base64.b64encode(value).decode()
    if field.type == F.TYPE_ENUM:
        known = field.enum_type.values
        name = next((v.name for v in known if v.number == value), None)
        return value if name is None else name
    return value


def time(value):
    micros = value.seconds * 1_000_000 + value.nanos // 1000
    moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=micros)
    text = moment.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")
    micros %= 1_000_000
    if micros:
        text += f".{micros // 1000:03}" if micros % 1000 == 0 else f".{micros:06}"
    return text + "Z"


def nested(message):
    """Returns a message as JSON: without the fields that are missing."""
    name = message.DESCRIPTOR.full_name
    if name == "google.protobuf.Timestamp":
        return time(message)
    if name == "google.protobuf.Duration":
        return message.seconds + message.nanos / 1e9
    if name.startswith("google.protobuf.") and name.endswith("Value") and len(message.DESCRIPTOR.fields) == 1:
        field = message.DESCRIPTOR.fields[0]
        if field.name == "value":
            return scalar(field, message.value)
    if name == "google.protobuf.Struct":
        return {key: nested(value) for key, value in message.fields.items()}
    if name == "google.protobuf.ListValue":
        return [nested(value) for value in message.values]
    if name == "google.protobuf.Value":
        kind = message.WhichOneof("kind")
        if kind == "number_value":
            number = message.number_value
            return int(number) if number.is_integer() else number
        if kind in ("struct_value", "list_value"):
            return nested(getattr(message, kind))
        return None if kind in (None, "null_value") else getattr(message, kind)
    return {field.name: content(message, field) for field, _ in message.ListFields() if not field.is_extension}


def content(message, field):
    value = getattr(message, field.name)
    if field.message_type and field.message_type.GetOptions().map_entry:
        of = field.message_type.fields_by_name["value"]
        text = lambda key: str(key).lower() if isinstance(key, bool) else str(key)
        return {text(key): nested(value[key]) if of.message_type else scalar(of, value[key]) for key in value}
    if field.is_repeated:
        return [nested(item) if field.message_type else scalar(field, item) for item in value]
    return nested(value) if field.message_type else scalar(field, value)


def row(message, flatten, prefix="", path=()):
    """Returns the fields of a message, without those that are NULL."""
    fields = {}
    path += (message.DESCRIPTOR.full_name,)
    for field in message.DESCRIPTOR.fields:
        name = prefix + field.name
        is_plain = field.message_type and not field.is_repeated
        is_plain = is_plain and not field.message_type.full_name.startswith("google.protobuf.")
        if flatten and is_plain and field.message_type.full_name not in path and field.message_type.fields:
            if message.HasField(field.name):
                fields |= row(getattr(message, field.name), flatten, name + ".", path)
            continue
        if field.has_presence and not message.HasField(field.name) and not field.has_default_value:
            continue
        value = content(message, field)
        # A column of names holds texts, and one of JSON holds `null`.
        if field.type == F.TYPE_ENUM and not field.is_repeated:
            value = str(value)
        if isinstance(value, float) and value in (float("inf"), float("-inf")):
            value = None
        fields[name] = value
    return fields


def fill(message, random, depth=0):
    """Gives a message random fields."""
    for field in message.DESCRIPTOR.fields:
        is_map = field.message_type and field.message_type.GetOptions().map_entry
        required = getattr(field, "is_required", False)
        if not required and random.random() < (0.5 if depth == 0 else 0.7):
            continue
        if is_map:
            entry = field.message_type.fields_by_name
            for _ in range(random.randrange(1, 4)):
                key = any_of(entry["key"], random)
                if entry["value"].message_type:
                    fill(getattr(message, field.name)[key], random, depth + 1)
                else:
                    getattr(message, field.name)[key] = any_of(entry["value"], random)
        elif field.message_type:
            if depth >= 3:
                continue
            for _ in range(random.randrange(1, 3) if field.is_repeated else 1):
                target = getattr(message, field.name)
                target = target.add() if field.is_repeated else target
                target.SetInParent()
                known = target.DESCRIPTOR.full_name
                if known == "google.protobuf.Timestamp":
                    target.seconds = random.randrange(-62135596800, 253402300800)
                    target.nanos = random.choice([0, 5_000_000, random.randrange(10**9)])
                elif known == "google.protobuf.Duration":
                    target.seconds, target.nanos = random.randrange(1000), random.choice([0, 250_000_000])
                else:
                    fill(target, random, depth + 1)
        elif field.is_repeated:
            getattr(message, field.name).extend(any_of(field, random) for _ in range(random.randrange(1, 5)))
        else:
            setattr(message, field.name, any_of(field, random))
    return message


def any_of(field, random):
    bits = {F.CPPTYPE_INT32: 32, F.CPPTYPE_INT64: 64, F.CPPTYPE_UINT32: 32, F.CPPTYPE_UINT64: 64}.get(field.cpp_type)
    if bits:
        value = random.choice([0, 1, 7, 127, 128, 300, random.getrandbits(bits), 2**bits - 1])
        is_signed = field.cpp_type in (F.CPPTYPE_INT32, F.CPPTYPE_INT64)
        return value - 2**bits if is_signed and value >= 2 ** (bits - 1) else value
    if field.type == F.TYPE_ENUM:
        values = [value.number for value in field.enum_type.values]
        return random.choice(values + ([] if field.enum_type.is_closed else [99]))
    if field.type == F.TYPE_BOOL:
        return random.choice([True, False])
    if field.type in (F.TYPE_DOUBLE, F.TYPE_FLOAT):
        return random.choice([0.0, 1.0, -2.5, 1024.25, random.randrange(1000) / 4])
    text = random.choice(["", "a", "twelve bytes", "more than twelve bytes", "é \"quoted\"\n"])
    return text.encode() + b"\xff" if field.type == F.TYPE_BYTES else text


def main():
    rng = random.Random(7)
    samples = []

    def add(name, data):
        message = new(name)
        message.ParseFromString(data)
        samples.append({"message": name, "hex": data.hex(), "row": row(message, False), "flat": row(message, True)})

    for name, count in [("acme.shop.Order", 24), ("acme.legacy.Record", 12), ("acme.edition.Reading", 8)]:
        made = [fill(new(name), rng).SerializeToString(deterministic=True) for _ in range(count)]
        for data in made:
            add(name, data)
        # Messages one behind the other are one message, with their fields merged.
        for one, other in zip(made, made[1:5]):
            add(name, one + other)
    add("acme.shop.Order", b"")
    for data in [fill(new("acme.shop.Order"), rng).SerializeToString(deterministic=True) for _ in range(3)]:
        add("acme.shop.Summary", data)
        add("acme.shop.Empty", data)
    lines = [json.dumps(sample, ensure_ascii=False, separators=(",", ":")) for sample in samples]
    (HERE / "samples.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
