//! Terms of other programs that are not the name of a component here.
//!
//! A user who searches for `aggregate` or `redis` learns more from a sentence than from the list of all
//! components.

use crate::registry::Role;

/// A term, the role for which it was written, or any, and the advice.
const TERMS: &[(&str, Option<Role>, &str)] = &[
    // Transforms of other programs.
    (
        "remap",
        None,
        "Use `set` to compute fields, `filter` to choose messages and `route` to divide them: SQL expressions take the place of VRL.",
    ),
    (
        "mapping",
        None,
        "Use `set` to compute fields, `keep` and `drop` to choose them: SQL expressions take the place of Bloblang.",
    ),
    (
        "bloblang",
        None,
        "Use `set` to compute fields, `keep` and `drop` to choose them: SQL expressions take the place of Bloblang.",
    ),
    ("mutate", None, "Use `set`, `rename`, `drop`, `cast`, `replace` or `trim`."),
    ("modify", None, "Use `set`, `rename` or `drop`."),
    (
        "sql",
        None,
        "Use `filter: \"a > 1\"` and `set: { x: \"a + 1\" }`: their expressions are SQL. There are no queries over several messages.",
    ),
    ("jq", None, "Use `set` and `keep`; `a.b[0]` reads a part of a nested field."),
    ("lua", None, "Use `set` and `filter`, or a transform in Python: `@thalweg.transform`."),
    ("throttle", None, "Use `limit`."),
    ("rate_limit", None, "Use `limit`."),
    ("mask", None, "Use `redact`; `replace` with a `pattern` keeps a part of what it finds."),
    ("anonymize", None, "Use `redact`, or `hash_text` for a whole field."),
    ("pii", None, "Use `redact`."),
    ("pseudonym", None, "Use `redact` or `hash_text`, with a `secret`."),
    ("pseudonymize", None, "Use `redact` or `hash_text`, with a `secret`."),
    ("fingerprint", None, "Use `hash_text`."),
    ("sha256", None, "Use `hash_text`; `hash` is for files."),
    ("sha1", None, "Use `hash_text: { algorithm: sha1 }`; `hash` is for files."),
    ("md5", None, "Use `hash_text: { algorithm: md5 }`; `hash` is for files."),
    ("hmac", None, "Use `hash_text`, with a `secret`."),
    ("grok", None, "Use `parse_grok`."),
    ("dissect", None, "Use `parse_regex`, or `split_fields`."),
    ("json", Some(Role::Transform), "Use `parse_json`; to write JSON, give the sink `encode: json`."),
    (
        "protobuf",
        None,
        "Use `parse_protobuf`, with a descriptor set of `protoc` or `buf`. No encoder writes the format.",
    ),
    ("proto", None, "Use `parse_protobuf`, with a descriptor set of `protoc` or `buf`."),
    ("parse_proto", None, "Use `parse_protobuf`."),
    ("decode_protobuf", None, "Use `parse_protobuf`."),
    ("csv_to_json", None, "Use `parse_csv`; to write JSON, give the sink `encode: json`."),
    ("decode_avro", None, "Use `parse_avro` for messages, and `avro` for files (`.avro`)."),
    ("from_avro", None, "Use `parse_avro` for messages, and `avro` for files (`.avro`)."),
    ("avro_ocf", None, "Use the source `files` or `objects`, and the transform `avro`."),
    ("ocf", None, "Use the source `files` or `objects`, and the transform `avro`."),
    (
        "avro",
        Some(Role::Source),
        "Use the source `files` or `objects`, and the transform `avro`; messages are parsed by `parse_avro`.",
    ),
    (
        "avro",
        Some(Role::Sink),
        "Avro cannot be written yet. `encode: parquet` of the sink `objects` writes tables.",
    ),
    (
        "schema_registry_decode",
        None,
        "Use `parse_avro: { wire_format: confluent, schema_file: … }`. Schemas are not fetched from a registry yet.",
    ),
    // Formats of logs.
    ("nginx", None, "Use `parse_nginx`."),
    ("ingress", None, "Use `parse_nginx: { format: ingress }`."),
    ("apache", None, "Use `parse_apache`."),
    ("httpd", None, "Use `parse_apache`."),
    ("common_log", None, "Use `parse_apache: { format: common }`."),
    ("parse_common_log", None, "Use `parse_apache: { format: common }`."),
    ("parse_nginx_log", None, "Use `parse_nginx`."),
    ("parse_apache_log", None, "Use `parse_apache`."),
    ("kubernetes", Some(Role::Transform), "Use `parse_cri` for the logs of containers."),
    (
        "kubernetes_logs",
        None,
        "Use the source `file` with `path: \"/var/log/pods/*/*/*.log*\"` and `framing: { join: cri }`, and `parse_cri`.",
    ),
    ("cri", None, "Use `parse_cri`."),
    ("docker", Some(Role::Transform), "Use `parse_json`: Docker's `json-file` is JSON."),
    ("elb", None, "Use `parse_elb`."),
    ("alb", None, "Use `parse_elb`."),
    ("nlb", None, "Use `parse_elb`."),
    ("parse_aws_alb_log", None, "Use `parse_elb`."),
    ("iis", None, "Use `parse_w3c`."),
    ("w3c", None, "Use `parse_w3c`."),
    ("cloudfront", None, "Use `parse_w3c: { format: cloudfront }`."),
    ("parse_cloudfront", None, "Use `parse_w3c: { format: cloudfront }`."),
    ("cef", None, "Use `parse_cef`."),
    ("arcsight", None, "Use `parse_cef`."),
    ("leef", None, "Use `parse_leef`."),
    ("qradar", None, "Use `parse_leef`."),
    ("kv", None, "Use `parse_key_value`, or `parse_logfmt` for `key=value` between spaces."),
    ("key_value", None, "Use `parse_key_value`, or `parse_logfmt` for `key=value` between spaces."),
    ("unnest", None, "Use `split_array`."),
    ("explode", None, "Use `split_array`."),
    ("branch", None, "Use `route`."),
    ("switch", None, "Use `route`."),
    ("delete", None, "Use `drop` for fields, `filter` for messages and `remove` for files."),
    ("remove_fields", None, "Use `drop`."),
    ("remove_field", None, "Use `drop`."),
    ("del", None, "Use `drop`."),
    ("select", None, "Use `keep` to choose fields, and `filter` to choose messages."),
    ("project", None, "Use `keep` to choose fields, and `set` to compute them."),
    ("pick", None, "Use `keep` to choose fields."),
    ("where", None, "Use `filter: \"a > 1\"`."),
    ("grep", None, "Use `filter: \"payload LIKE '%text%'\"`, or `regexp_like(payload, 'pattern')` in it."),
    ("map", None, "Use `set: { name: \"expression\" }`."),
    ("add_fields", None, "Use `set: { name: \"expression\" }`."),
    ("add_field", None, "Use `set: { name: \"expression\" }`."),
    ("length", None, "It is a function: `set: { n: \"length(payload)\" }`."),
    ("upper", None, "It is a function: `set: { a: \"upper(a)\" }`."),
    ("lower", None, "It is a function: `set: { a: \"lower(a)\" }`."),
    ("head", None, "No transform stops after a number of messages: `thalweg pipe … | head` shows the first."),
    (
        "tail",
        Some(Role::Transform),
        "No transform knows the last messages: `thalweg pipe … | tail` shows them.",
    ),
    ("sort", None, "Messages pass one by one, so none sorts them: write them to a file and sort that."),
    (
        "count",
        None,
        "There is no aggregation over several messages yet. The summary of a run counts messages.",
    ),
    ("group", None, "There is no aggregation over several messages yet."),
    ("group_by", None, "There is no aggregation over several messages yet."),
    ("distinct", None, "Use `dedupe`."),
    ("unique", None, "Use `dedupe`."),
    ("uniq", None, "Use `dedupe`."),
    ("multiline", None, "Give the source `file` the option `framing: { start_pattern: … }`."),
    (
        "aggregate",
        None,
        "There is no aggregation over several messages yet: write them to a file or an object and query that, for example with DuckDB.",
    ),
    (
        "reduce",
        None,
        "There is no aggregation over several messages yet. Lines that belong together are joined by `framing: { start_pattern: … }` of the source `file`.",
    ),
    ("window", None, "There is no aggregation over several messages yet."),
    (
        "log_to_metric",
        None,
        "There is no aggregation over several messages yet. The sink `statsd` counts messages.",
    ),
    ("join", None, "There is no join with a table yet; `geoip` looks addresses up."),
    ("lookup", None, "There is no lookup in a table yet; `geoip` looks addresses up."),
    ("enrich", None, "There is no lookup in a table yet; `geoip` looks addresses up."),
    ("cache", None, "`dedupe` remembers keys. There is no other cache."),
    // Systems.
    ("redis", None, "This program was built without Redis, its feature `redis`."),
    ("valkey", None, "Use `redis`, which is for Valkey too."),
    (
        "redis_streams",
        None,
        "Use `redis`: a source with `stream` and `group`, or a sink with `command: xadd`.",
    ),
    ("redis_list", None, "Use `redis`: a source with `list`, or a sink with `command: rpush`."),
    (
        "redis_pubsub",
        None,
        "Use `redis`: a source with `channels` or `patterns`, or a sink with `command: publish`.",
    ),
    ("redis_hash", None, "Use the sink `redis` with `command: hset`."),
    ("opentelemetry", None, "Use `otlp`."),
    ("otel", None, "Use `otlp`."),
    ("otlphttp", None, "Use `otlp`."),
    ("otlp_http", None, "Use `otlp`."),
    ("otlp_grpc", None, "Use `otlp`: the source takes gRPC with `grpc`, the sink sends by HTTP."),
    ("nats", None, "This program was built without NATS, its feature `nats`."),
    ("jetstream", None, "Use `nats`: a source with `stream` and `consumer`, or a sink."),
    ("nats_jetstream", None, "Use `nats`: a source with `stream` and `consumer`, or a sink."),
    ("nats_stream", None, "Use `nats`: a source with `stream` and `consumer`, or a sink."),
    ("nats_kv", None, "Use the source `nats` with `stream: KV_name` and `start: last_per_subject`."),
    ("mqtt", None, "This program was built without MQTT, its feature `mqtt`."),
    ("amqp", None, "There is no connector for AMQP yet."),
    ("rabbitmq", None, "There is no connector for RabbitMQ yet."),
    ("postgres", None, "This program was built without PostgreSQL, its feature `postgres`."),
    ("postgresql", None, "Use `postgres`."),
    ("pgsql", None, "Use `postgres`."),
    (
        "sql_select",
        None,
        "Use the source `postgres` with `table` or `query`. There are no other SQL databases yet.",
    ),
    ("sql_raw", None, "Use the source `postgres` with `query`. There are no other SQL databases yet."),
    ("sql_insert", None, "Use the sink `postgres`. There are no other SQL databases yet."),
    ("jdbc", None, "Use `postgres`. There are no other SQL databases yet."),
    (
        "postgres_cdc",
        None,
        "Use the source `postgres` with `cursor` and `every`. There is no logical replication yet.",
    ),
    ("mysql", None, "There is no connector for MySQL yet."),
    (
        "clickhouse",
        Some(Role::Source),
        "There is no source for ClickHouse yet; the sink `clickhouse` writes to it.",
    ),
    ("click_house", None, "Use the sink `clickhouse`."),
    (
        "elasticsearch",
        Some(Role::Source),
        "There is no source for Elasticsearch yet; the sink `elasticsearch` writes to it.",
    ),
    ("elastic", None, "Use the sink `elasticsearch`."),
    ("es", None, "Use the sink `elasticsearch`."),
    ("opensearch", None, "Use the sink `elasticsearch`: OpenSearch has the same bulk interface."),
    ("loki", Some(Role::Source), "There is no source for Loki; the sink `loki` writes to it."),
    (
        "influxdb",
        Some(Role::Source),
        "There is no source for InfluxDB yet; the sink `influxdb` writes to it.",
    ),
    ("influx", None, "Use the sink `influxdb`."),
    ("influxdb_metrics", None, "Use the sink `influxdb`."),
    ("influxdb_logs", None, "Use the sink `influxdb`."),
    ("victoriametrics", None, "Use the sink `influxdb`: VictoriaMetrics takes its line protocol."),
    (
        "prometheus",
        None,
        "Use the source `prometheus_scrape`, or the sink `prometheus_remote_write`. thalweg's own metrics are at `/metrics` with `--listen`.",
    ),
    (
        "prometheus_exporter",
        None,
        "There is no exporter of messages; thalweg's own metrics are at `/metrics` with `--listen`.",
    ),
    ("mimir", None, "Use the sink `prometheus_remote_write` with the path `/api/v1/push`."),
    (
        "splunk_hec",
        Some(Role::Source),
        "There is no source for Splunk's collector yet; the sink `splunk_hec` writes to it.",
    ),
    ("splunk", None, "Use the sink `splunk_hec`."),
    ("splunk_hec_logs", None, "Use the sink `splunk_hec`."),
    ("datadog", None, "Use the sink `datadog_logs`."),
    (
        "journald",
        None,
        "Use `exec: { command: \"journalctl -f -o json\", restart: true }`, and `parse_json`.",
    ),
    ("command", Some(Role::Source), "Use `exec`."),
    ("subprocess", Some(Role::Source), "Use `exec`."),
    ("shell", Some(Role::Source), "Use `exec: { command: [sh, -c, \"…\"] }`."),
    ("cron", None, "Use the source `exec` with `cron`, or `--repeat`, which repeats a whole run."),
    ("schedule", None, "Use the source `exec` with `every` or `cron`, or `--repeat`."),
    // Other words for components.
    ("tail", Some(Role::Source), "Use `file: { path: …, follow: true }`."),
    ("console", Some(Role::Sink), "Use `stdout`."),
    ("console", Some(Role::Source), "Use `stdin`."),
    ("print", None, "Use the sink `stdout`."),
    ("blackhole", None, "Use `discard`."),
    ("null", None, "Use `discard`."),
    ("demo_logs", None, "Use `generate`."),
    ("dummy", None, "Use `generate`."),
    ("tcp", None, "Use `socket: { address: \"tcp://…\" }`."),
    ("udp", None, "Use `socket: { address: \"udp://…\" }`."),
    ("http_server", None, "Use `http`."),
    ("http_client", None, "Use `http` as a sink, or `objects` to read from web servers."),
    ("s3", None, "Use `objects: { url: \"s3://bucket/prefix/\" }`."),
    ("aws_s3", None, "Use `objects: { url: \"s3://bucket/prefix/\" }`."),
    ("gcs", None, "Use `objects: { url: \"gs://bucket/prefix/\" }`."),
    ("azure_blob", None, "Use `objects: { url: \"az://container/prefix/\" }`."),
    (
        "buffer",
        None,
        "Write it beside the kind of a sink: `out: { http: { … }, buffer: { disk: 10GiB } }`, or as a key of a pipeline.",
    ),
];

/// Keys of other programs, and those of this one.
const KEYS: &[(&str, &str)] = &[
    ("input", "from"),
    ("inputs", "from"),
    ("source", "from"),
    ("output", "to"),
    ("outputs", "to"),
    ("sink", "to"),
    ("sinks", "to"),
    ("filters", "transforms"),
    ("processors", "transforms"),
    ("stages", "transforms"),
    ("steps", "transforms"),
    ("input", "sources"),
    ("inputs", "sources"),
    ("output", "sinks"),
    ("outputs", "sinks"),
];

/// Returns the key among those that are known for a key of another program.
pub(super) fn key(name: &str, known: &[&str]) -> Option<&'static str> {
    KEYS.iter().find(|(key, ours)| *key == name && known.contains(ours)).map(|(_, ours)| *ours)
}

/// True if a key connects a component with others in other programs.
pub(super) fn connects(name: &str) -> bool {
    matches!(name, "from" | "to")
        || KEYS.iter().any(|(key, ours)| *key == name && matches!(*ours, "from" | "to"))
}

/// Returns a sentence for a term that is no component. `role` is the role in which it was used, if it is
/// known.
pub fn advice(role: Option<Role>, name: &str) -> Option<&'static str> {
    let name = name.to_lowercase().replace('-', "_");
    let fits = |(term, only, _): &&(&str, Option<Role>, &str)| {
        *term == name && (role.is_none() || only.is_none() || *only == role)
    };
    TERMS.iter().find(fits).map(|(.., advice)| *advice)
}
