"""What `tools/times.py` measures: a function for each page of the cookbook.

A function makes the input at a realistic size, starts the servers that the page names, and runs the page's configurations, in
the order in which they need each other. It is called once in each round, with servers and a folder of its own.
"""

import ast
import base64
import contextlib
import re
import tempfile
import urllib.request
from pathlib import Path

import pages
import servers
from pages import Wrong

PAGES = {}


def page(name):
    def known(function):
        PAGES[name] = function
        return function

    return known


# --- Records.


COUNTRIES = ["ch", "de", "fr", "it", "at", "se", "pl", "es", "nl", "pt"]
NAMES = ["Meier", "Rossi", "O'Hara", "Kowalska", "Lindqvist"]


def instant(number):
    """The time of a record: a million of them are a day."""
    seconds = number * 86 // 1000
    return f"2026-11-25T{seconds // 3600 % 24:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{number % 1000:03}Z"


def total(number):
    """The total of an order, from 1 to 200."""
    return number * 7 % 200 + 1


def order(number):
    return (
        f'{{"id":{number},"country":"{COUNTRIES[number % 10]}","unit":"u{number % 40}","customer":"c{number * 31 % 100_000}",'
        f'"name":"{NAMES[number % 5]}","total":{total(number)},"at":"{instant(number)}"}}'
    )


def address(number):
    return f"203.0.{number * 7 % 113}.{number * 13 % 251}"


def like(sample):
    """Makes lines as those of a page: with other times, addresses and numbers `id`."""
    changing = re.compile(
        r"(?P<time>\d\d:\d\d:\d\d)|(?P<address>\b\d+\.\d+\.\d+\.\d+\b)|(?P<id>(?<=\bid=\")\d+|(?<=\bid: )\d+|(?<=\bid=)\d+)"
    )
    makes = {"time": lambda number: instant(number)[11:19], "address": address, "id": str}
    lines = []
    for text in sample.splitlines():
        parts, at = [], 0
        for found in changing.finditer(text):
            parts += [text[at : found.start()], makes[found.lastgroup]]
            at = found.end()
        lines.append([*parts, text[at:]])
    return lambda number: "".join(part if isinstance(part, str) else part(number) for part in lines[number % len(lines)])


# --- Pages whose input is a file.


@page("mask")
def mask(bench):
    size = bench.input("app.log", like(bench.block("app.log")))
    bench.run("mask.yaml", bench.configuration("mask.yaml"), size, lines=bench.records, output="masked.log")


@page("kubernetes-logs")
def kubernetes_logs(bench):
    """A fourth of the lines are the first half of another, which is not a message of its own."""
    path = "pods/shop_web-1_0ac1/app/0.log"
    sample = bench.block(path)
    size = bench.input(path, like(sample))
    parts = [" P " in line for line in sample.splitlines()]
    messages = sum(not parts[number % len(parts)] for number in range(bench.records))
    bench.run("node.yaml", bench.configuration("node.yaml"), size, lines=messages)


@page("partitions")
def partitions(bench):
    """Twenty partitions: four days and five hosts."""

    def event(number):
        at = f"2026-11-{22 + number % 4:02}T{instant(number)[11:19]}Z"
        return f'{{"at":"{at}","host":"web-{number % 5}","path":"/cart/{number % 1000}","ms":{number * 7 % 900}}}'

    size = bench.input("events.jsonl", event)
    bench.run("partitions.yaml", bench.configuration("partitions.yaml"), size, state=True)
    if not list(bench.folder.glob("lake/day=*/host=*/part-*.parquet")):
        raise Wrong("there are no tables")


def payloads(text):
    """The lines of a `generate` in a configuration, as bytes."""
    quoted = re.findall(r'"((?:\\[xu][0-9a-f]+|\\.|[^"\\])*)"', text.partition("pipelines:")[0])
    return [ast.literal_eval(f'"{line}"').encode() for line in quoted]


def generated(bench, name):
    """Measures a configuration whose source makes the messages."""
    text = bench.configuration(name)
    made = payloads(text)
    size = sum(len(made[number % len(made)]) for number in range(bench.records))
    for old in ("generate: { ", "generate:\n      "):
        text = text.replace(old, f"{old}count: {bench.records}" + (", " if old.endswith("{ ") else "\n      "))
    bench.run(name, text, size, lines=bench.records)


@page("protobuf")
def protobuf(bench):
    (bench.folder / "orders.desc").write_bytes(base64.b64decode(bench.block("orders.base64")))
    generated(bench, "orders.yaml")


@page("common-formats")
def common_formats(bench):
    for name in ("nginx", "apache", "pod", "alb"):
        size = bench.input(f"{name}.log", like(bench.block(f"{name}.log")))
        bench.run(name, bench.configuration(f"{name}.yaml"), size, lines=bench.records)
    sample = bench.block("iis.log").splitlines(keepends=True)
    size = bench.input("iis.log", like(sample[-1]), head="".join(sample[:-1]))
    bench.run("iis", bench.configuration("iis.yaml"), size, lines=bench.records)
    size = bench.input("device.log", like(bench.block("device.log")))
    bench.run("device", bench.configuration("device.yaml"), size, lines=bench.records)
    size = bench.input("events.log", like(bench.block("events.log")))
    bench.run("cef", bench.configuration("cef.yaml"), size, lines=bench.records)
    leef(bench)
    size = bench.input("orders.log", like(bench.block("orders.log")))
    bench.run("xml", bench.configuration("orders.yaml"), size, lines=bench.records)
    generated(bench, "readings.yaml")


def leef(bench):
    """As the page makes the configuration of LEEF from that of CEF."""
    event = "LEEF:2.0|Lancope|StealthWatch|1.0|41|^|src=10.0.1.8^sev=5"
    if not any(event in block.text for block in bench.blocks):
        raise Wrong(f"the page has no event `{event}`")
    text = re.sub("parse_cef: .*", "parse_leef: { types: { sev: int } }", bench.configuration("cef.yaml", ("events.log", "leef.log")))
    text = "".join(line for line in text.splitlines(keepends=True) if "keep" not in line)
    bench.run("leef", text, bench.input("leef.log", like(event)), lines=bench.records)


@page("bucket-to-folder")
def bucket_to_folder(bench):
    """10,000 objects of 1 KiB for each million records, as the page is about files."""
    files = max(bench.records // 100, 1)
    store = Path(tempfile.mkdtemp(dir=bench.folder.parent))
    for number in range(files):
        path = store / f"logs/2026/{number % 12 + 1:02}/{number}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"{order(number):<1023}\n".encode())
    bench.serve(servers.s3, "9000", store)
    url = re.search("BUCKET='(.*)'", "".join(block.text for block in bench.blocks))
    if not url:
        raise Wrong("the page has no URL of the bucket")
    line = [bench.program, "copy", bench.ports.real(url[1]), "backup/"]
    bench.note("thalweg copy", files * 1024, bench.time("thalweg copy", line))
    if (copied := sum(1 for path in bench.folder.glob("backup/*/*.log"))) < files:
        raise Wrong(f"{copied} of {files} objects were copied")


# --- Brokers and databases: what is sent is read.


def archive(bench, size, output):
    """Measures the configuration that reads from a broker without an end."""
    text = bench.configuration("archive.yaml")
    bench.run("archive.yaml", text, size, lines=bench.records, output=output, state=True, endless=True)


@page("amqp")
def amqp(bench):
    bench.serve(servers.rabbitmq, "5672")
    once = ("queues: orders-archive", "queues: orders-archive\n      end_after_idle: 1s")
    # It declares the queue.
    bench.prepare(bench.configuration("archive.yaml", once))
    size = bench.input("in/orders.jsonl", order)
    bench.run("orders.yaml", bench.configuration("orders.yaml", (", rabbitmq-2.example.com", "")), size)
    archive(bench, size, "orders.*.jsonl")


@page("mqtt")
def mqtt(bench):
    """Fifty rooms. The session begins before anything is sent; the retained messages come again."""
    bench.serve(servers.mosquitto, "1883")
    once = ("client_id: archive-1", "client_id: archive-1\n      end_after_idle: 1s")
    bench.prepare(bench.configuration("archive.yaml", once))

    def reading(number):
        return f'{{"room":"r{number % 50}","unit":"C","value":{number * 7 % 400 / 10},"battery":{number % 100},"at":"{instant(number)}"}}'

    size = bench.input("in/readings.jsonl", reading)
    bench.run("readings.yaml", bench.configuration("readings.yaml", (", mqtt-2.example.com", "")), size)
    archive(bench, size, "sensors/*/temperature.jsonl")


@page("nats")
def nats(bench):
    bench.serve(servers.nats, "4222", ("ORDERS", {"subjects": ["orders.>"]}))
    size = bench.input("in/orders.jsonl", order)
    bench.run("orders.yaml", bench.configuration("orders.yaml", (", nats-2.example.com", "")), size)
    archive(bench, size, "orders-*.jsonl")


@page("redis")
def redis(bench):
    """The stream that is read has the fields that the page names; the page does not write it."""
    bench.serve(servers.redis, "6379")
    size = bench.input("in/orders.jsonl", order)
    bench.prepare(
        f"""
sources: {{ files: {{ file: {{ path: "in/*.jsonl" }} }} }}
pipelines: {{ main: {{ from: files, transforms: [parse_json: {{}}], to: stream }} }}
sinks:
  stream:
    redis:
      servers: 127.0.0.1:{bench.ports.port("6379")}
      command: xadd
      key: orders
      field_values: {{ order: "{{payload}}", customer: "{{customer}}" }}
"""
    )
    archive(bench, size, "orders-*.jsonl")
    bench.run("write.yaml", bench.configuration("write.yaml"), size)


@page("postgres")
def postgres(bench):
    """The table that `import.yaml` has filled is then exported."""
    local = ("server: db.example.com", "server: 127.0.0.1:5432")
    bench.serve(servers.postgres, "5432", "shop", bench.block("CREATE TABLE orders"))

    def row(number):
        cents = number * 7 % 100
        return (
            f'{{"id":{number},"customer":"c{number * 31 % 100_000}","total":{total(number)}.{cents:02},"updated_at":"{instant(number)}"}}'
        )

    size = bench.input("in/orders.jsonl", row)
    bench.run("import.yaml", bench.configuration("import.yaml", local), size)
    bench.run("export.yaml", bench.configuration("export.yaml", local), size, lines=bench.records, output="orders.jsonl", state=True)


@page("kafka-exactly-once")
def kafka_exactly_once(bench):
    """Its output is in Kafka, where no lines can be counted, so its own metrics tell when it has written all."""
    bench.serve(servers.kafka, "9092")
    size = bench.input("in/orders.jsonl", order)
    bench.prepare(
        f"""
sources: {{ files: {{ file: {{ path: "in/*.jsonl" }} }} }}
pipelines: {{ main: {{ from: files, to: topic }} }}
sinks: {{ topic: {{ kafka: {{ brokers: "127.0.0.1:{bench.ports.port("9092")}", topic: orders }} }} }}
"""
    )
    large = sum(total(number) > 100 for number in range(bench.records))
    port = servers.free_port()
    text = bench.configuration("large-orders.yaml")
    line = [*bench.line(text, "run.yaml"), "--listen", f"127.0.0.1:{port}"]
    found = bench.time("large-orders.yaml", line, lambda: sent(port, "large") >= large)
    bench.note("large-orders.yaml", size, found)


def sent(port, component):
    """The number of messages that a component of a run has sent, 0 while it does not answer."""
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        name = rf'^thalweg_component_sent_messages_total\{{component="{component}",.*\}} (\d+)$'
        if found := re.search(name, answer.read().decode(), re.MULTILINE):
            return int(found[1])
    return 0


# --- Stores and services by HTTP.


@page("opentelemetry")
def opentelemetry(bench):
    """Sends to a thalweg that accepts everything; receives what the page's own configuration sends."""
    size = bench.input("orders.jsonl", order)
    bench.accept("4318")
    sending = bench.configuration("send.yaml")
    bench.run("send.yaml", sending, size)
    bench.ports = pages.Ports()
    receiving, sending = bench.configuration("receive.yaml"), bench.configuration("send.yaml")
    feed = (sending, bench.ports.port("4318"))
    bench.run("receive.yaml", receiving, size, lines=bench.records, output="telemetry-logs.jsonl", state=True, endless=True, feed=feed)


@page("elasticsearch-clickhouse-loki-influxdb")
def stores(bench):
    """Elasticsearch's sink reads an answer for each document; for the others a thalweg accepts everything."""
    size = bench.input("orders.jsonl", order)
    bench.serve(servers.acceptor, "9200")
    bench.run("elasticsearch", bench.configuration("to-search.yaml"), size)
    for name, port in (("clickhouse", "8123"), ("loki", "3100"), ("influxdb", "8086")):
        bench.accept(port)
        bench.run(name, bench.configuration(f"{name}:"), size)


@page("splunk-datadog-prometheus")
def services(bench):
    """Splunk's sink reads a number in the answer, and Prometheus gets Snappy; for Datadog a thalweg accepts everything."""

    def event(number):
        return order(number)[:-1] + f',"team":"t{number % 8}","service":"s{number % 20}"}}'

    size = bench.input("orders.jsonl", event)
    ends = (", follow: true", "")
    for port in ("8088", "9090"):
        bench.serve(servers.acceptor, port)
    splunk = ("https://splunk.example.com:8088", "http://127.0.0.1:8088")
    bench.run("splunk", bench.configuration("splunk_hec:", ends, splunk), size)
    bench.accept("8080")
    datadog = ("url: datadoghq.com", "url: http://127.0.0.1:8080")
    bench.run("datadog", bench.configuration("datadog_logs:", ends, datadog), size)

    def request(number):
        return f'{{"path":"/cart/{number % 100}","seconds":{number * 7 % 900 / 1000},"status":200,"at":"{instant(number)}"}}'

    size = bench.input("requests.jsonl", request)
    bench.run("prometheus", bench.configuration("metric: request_seconds", ends), size)
