//! The sinks.

use thalweg_engine::Flow;

use super::replicas::{
    accepted, in_generations, in_order, in_order_of_numbers, in_pieces, spooled, uploaded, with_letters,
};
use crate::outlet::{Delivery, Outlet};
use crate::read;
use crate::servers::{Mood, Reply, Server, System};

/// A file of the folder `out`.
const FILE: Outlet = Outlet {
    name: "file",
    component: "file",
    takes: Flow::Messages,
    steps: &[],
    sinks: "out: { file: { path: out/all.jsonl } }",
    to: "out",
    memory: None,
    delivery: Delivery::ExactlyOnce,
    keeps_order: true,
    rejects: false,
    server: None,
    read: Some(in_order),
};

/// Returns the sink `file` of one plain file.
pub fn file() -> Outlet {
    FILE
}

/// Returns the sink `spool`.
pub fn spool() -> Outlet {
    Outlet {
        name: "spool",
        component: "spool",
        sinks: "out: { spool: { path: out, max_file_bytes: 30KiB } }",
        // Readers may have taken what a killed run wrote, so it is not cut back.
        delivery: Delivery::AtLeastOnce,
        read: Some(spooled),
        ..FILE
    }
}

/// Returns the sinks of messages whose output can be read back.
pub fn all() -> Vec<Outlet> {
    [files(), folders(), servers(), several()].into_iter().flatten().collect()
}

fn files() -> Vec<Outlet> {
    vec![
        FILE,
        Outlet {
            name: "file, gzip",
            sinks: "out: { file: { path: out/all.jsonl.gz, compression: gzip } }",
            // An encoder of gzip takes 416 KiB.
            memory: Some("2MiB"),
            ..FILE
        },
        Outlet {
            name: "file, rotate",
            sinks: "out: { file: { path: out/all.jsonl, rotate: { size: 10KiB } } }",
            ..FILE
        },
        Outlet {
            name: "file, rotate, numbers if taken",
            sinks: "out: { file: { path: out/all, rotate: { size: 10KiB, timestamp: '%Y', separator: ., \
                    numbers: if_taken, digits: 5, link: .current } } }",
            read: Some(in_order_of_numbers),
            ..FILE
        },
        Outlet {
            name: "file, by column",
            steps: &["parse_json: {}"],
            sinks: "out: { file: { path: 'out/{group}.jsonl' } }",
            read: Some(in_pieces),
            ..FILE
        },
        Outlet {
            name: "file, dead letters",
            steps: &["parse_regex: { pattern: '\"group\":\"(?<known>g[012])\"' }"],
            rejects: true,
            read: Some(with_letters),
            ..FILE
        },
        Outlet {
            name: "stdout",
            component: "stdout",
            sinks: "out: { stdout: {} }",
            delivery: Delivery::AtLeastOnce,
            read: Some(|output| Ok(vec![vec![read::content(&output.program.path("stdout"))?]])),
            ..FILE
        },
    ]
}

fn folders() -> Vec<Outlet> {
    vec![
        Outlet {
            name: "directory, pack",
            component: "directory",
            steps: &["pack: { name: 'part-{number:5}.jsonl', max_count: 150 }"],
            sinks: "out: { directory: { path: out } }",
            read: Some(in_generations),
            ..FILE
        },
        Outlet {
            name: "objects",
            component: "objects",
            sinks: "out: { objects: { url: out/all.jsonl } }",
            ..FILE
        },
        Outlet {
            name: "objects, rotate",
            component: "objects",
            sinks: "out: { objects: { url: out/all.jsonl, rotate: { size: 20KiB, every: 300ms } } }",
            ..FILE
        },
        Outlet {
            name: "objects, by column",
            component: "objects",
            steps: &["parse_json: {}"],
            // Of four names, the least recently used one has no place.
            sinks: "out: { objects: { url: out/, name: '{group}/{number:5}.jsonl', max_open_files: 3, \
                    rotate: { size: 10KiB, every: 300ms } } }",
            read: Some(in_pieces),
            ..FILE
        },
        Outlet {
            name: "objects, Parquet by column",
            component: "objects",
            steps: &["parse_json: {}"],
            // Some sources give messages further fields.
            sinks: "out: { objects: { url: 'out/group={group}', name: 'part-{number}.parquet', \
                    encode: { format: parquet, columns: { n: int, group: text, text: text } }, \
                    rotate: { size: 10KiB, every: 300ms } } }",
            read: Some(in_pieces),
            ..FILE
        },
        Outlet {
            name: "file, Parquet by column",
            steps: &["parse_json: {}"],
            sinks: "out: { file: { path: 'out/{group}.parquet', rotate: { every: 300ms }, \
                    encode: { format: parquet, columns: { n: int, group: text, text: text } } } }",
            read: Some(in_pieces),
            ..FILE
        },
        spool(),
    ]
}

/// A sink whose server in the test accepts each message at least once.
fn server(name: &'static str, component: &'static str) -> Outlet {
    Outlet { name, component, delivery: Delivery::AtLeastOnce, read: Some(accepted), ..FILE }
}

fn servers() -> Vec<Outlet> {
    vec![
        Outlet {
            sinks: "out: { http: { url: 'http://{address}/', batch: lines, timeout: 5s } }",
            keeps_order: false,
            server: Some(|| Server::http(Mood::Well)),
            ..server("http", "http")
        },
        Outlet {
            sinks: "out: { http: { url: 'http://{address}/', batch: lines, timeout: 5s } }",
            keeps_order: false,
            server: Some(|| Server::http(Mood::Failing)),
            ..server("http, failing server", "http")
        },
        Outlet {
            server: Some(|| Server::system(System::Elasticsearch, Mood::Failing)),
            ..system("elasticsearch, failing server", "elasticsearch", ELASTICSEARCH)
        },
        Outlet {
            sinks: "out: { socket: { address: 'tcp://{address}', acknowledge: \"OK\\n\" } }",
            server: Some(|| Server::lines(Reply::Ok, Mood::Well)),
            ..server("socket, acknowledge", "socket")
        },
        Outlet {
            sinks: "out: { socket: { address: 'tcp://{address}', acknowledge: \"OK\\n\" } }",
            server: Some(|| Server::lines(Reply::Ok, Mood::Failing)),
            ..server("socket, failing server", "socket")
        },
    ]
}

const ELASTICSEARCH: &str = "out: { elasticsearch: { url: 'http://{address}', index: a, encode: raw, timeout: 5s, \
                             max_delay: 10ms } }";

/// A sink that writes to a system by HTTP.
fn system(name: &'static str, component: &'static str, sinks: &'static str) -> Outlet {
    Outlet { sinks, keeps_order: false, ..server(name, component) }
}

/// Returns the sinks of systems that are written to by HTTP.
pub fn of_systems() -> Vec<Outlet> {
    vec![
        Outlet {
            server: Some(|| Server::system(System::Elasticsearch, Mood::Well)),
            ..system("elasticsearch", "elasticsearch", ELASTICSEARCH)
        },
        Outlet {
            server: Some(|| Server::system(System::Lines, Mood::Failing)),
            ..system(
                "clickhouse, failing server",
                "clickhouse",
                "out: { clickhouse: { url: 'http://{address}', table: t, encode: raw, timeout: 5s } }",
            )
        },
        Outlet {
            server: Some(|| Server::system(System::Loki, Mood::Failing)),
            ..system(
                "loki, failing server",
                "loki",
                "out: { loki: { url: 'http://{address}', labels: { job: test }, timeout: 5s, max_delay: 10ms } }",
            )
        },
        Outlet {
            server: Some(|| Server::system(System::Influxdb, Mood::Failing)),
            ..system(
                "influxdb, failing server",
                "influxdb",
                "out: { influxdb: { url: 'http://{address}', database: d, measurement: m, fields: payload, \
                 timeout: 5s, max_delay: 10ms } }",
            )
        },
        Outlet {
            server: Some(|| Server::system(System::Splunk, Mood::Failing)),
            ..system(
                "splunk_hec, failing server",
                "splunk_hec",
                "out: { splunk_hec: { url: 'http://{address}', token: T, indexer_ack: true, ack_interval: 5ms, \
                 timeout: 5s, max_delay: 10ms } }",
            )
        },
        Outlet {
            server: Some(|| Server::system(System::Datadog, Mood::Failing)),
            ..system(
                "datadog_logs, failing server",
                "datadog_logs",
                "out: { datadog_logs: { url: 'http://{address}', api_key: K, timeout: 5s, max_delay: 10ms } }",
            )
        },
        Outlet {
            steps: &["parse_json: {}"],
            server: Some(|| Server::system(System::Prometheus, Mood::Failing)),
            ..system(
                "prometheus_remote_write, failing server",
                "prometheus_remote_write",
                "out: { prometheus_remote_write: { url: 'http://{address}', metric: m, value: n, \
                 labels: { record: '{payload}' }, timeout: 5s } }",
            )
        },
        Outlet {
            server: Some(|| Server::system(System::Otlp, Mood::Failing)),
            ..system(
                "otlp, failing server",
                "otlp",
                "out: { otlp: { url: 'http://{address}', timeout: 5s, max_delay: 10ms } }",
            )
        },
    ]
}

fn several() -> Vec<Outlet> {
    vec![
        Outlet {
            name: "fan-out of two files",
            sinks: "out: { file: { path: out/all.jsonl } }\n  copy: { file: { path: copy/all.jsonl } }",
            to: "[out, copy]",
            read: Some(|output| {
                let copy = read::contents(&output.program.path("copy"), output.also_unfinished)?;
                Ok(vec![in_order(output)?.remove(0), vec![read::joined(copy)]])
            }),
            ..FILE
        },
        Outlet {
            name: "failover",
            component: "file",
            sinks: "broken: { http: { url: 'http://{address}/', batch: lines } }\n  \
                    out: { file: { path: out/all.jsonl } }",
            to: "{ failover: [broken, out] }",
            delivery: Delivery::AtLeastOnce,
            keeps_order: false,
            server: Some(|| Server::http(Mood::Failing)),
            read: Some(|output| {
                Ok(vec![in_order(output)?.into_iter().chain(accepted(output)?).flatten().collect()])
            }),
            ..FILE
        },
    ]
}

/// The name of a sink that needs a state.
pub const EXACTLY_ONCE: &str = "postgres, exactly once";

/// Returns the sink `kafka` with transactions. It promises more to a source of the same broker.
pub fn in_transactions() -> Outlet {
    Outlet {
        sinks: "out: { kafka: { brokers: '{address}', topic: '{topic}', timeout: 5s, \
                transactional_id: '{topic}' } }",
        server: Some(Server::topic),
        ..server("kafka, transactions", "kafka")
    }
}

/// Returns the sinks of Amazon's services.
fn of_amazon() -> Vec<Outlet> {
    macro_rules! sinks {
        ($component:literal, $options:literal) => {
            concat!(
                "out: { ",
                $component,
                ": { region: us-east-1, url: 'http://{address}', \
                 auth: { access_key_id: test, secret_access_key: test }, timeout: 5s, max_delay: 10ms, ",
                $options,
                " } }"
            )
        };
    }
    // Requests are on their way at the same time.
    let of = |name, sinks| Outlet { sinks, keeps_order: false, ..server(name, name) };
    vec![
        Outlet {
            server: Some(Server::kinesis_stream),
            ..of("aws_kinesis_streams", sinks!("aws_kinesis_streams", "stream: '{topic}'"))
        },
        Outlet {
            server: Some(Server::delivery_stream),
            ..of("aws_kinesis_firehose", sinks!("aws_kinesis_firehose", "stream: '{topic}'"))
        },
        Outlet {
            server: Some(Server::log_stream),
            ..of(
                "aws_cloudwatch_logs",
                sinks!("aws_cloudwatch_logs", "log_group: '{topic}', log_stream: '{topic}'"),
            )
        },
        Outlet { server: Some(Server::sqs_queue), ..of("aws_sqs", sinks!("aws_sqs", "queue: '{topic}'")) },
        Outlet {
            server: Some(Server::sns_topic),
            ..of("aws_sns", sinks!("aws_sns", "topic: 'arn:aws:sns:us-east-1:123456789012:{topic}'"))
        },
    ]
}

/// Returns the sinks of a broker or database.
pub fn of_brokers() -> Vec<Outlet> {
    let own = vec![
        Outlet {
            sinks: "out: { kafka: { brokers: '{address}', topic: '{topic}', timeout: 5s } }",
            server: Some(Server::topic),
            ..server("kafka", "kafka")
        },
        in_transactions(),
        Outlet {
            sinks: "out: { nats: { servers: '{address}', subject: '{topic}', timeout: 5s } }",
            server: Some(Server::stream),
            ..server("nats, stream", "nats")
        },
        Outlet {
            sinks: "out: { mqtt: { servers: '{address}', topic: '{topic}', timeout: 5s } }",
            server: Some(Server::session),
            ..server("mqtt", "mqtt")
        },
        Outlet {
            sinks: "out: { amqp: { servers: '{address}', routing_key: '{topic}', timeout: 5s } }",
            server: Some(Server::queue),
            ..server("amqp", "amqp")
        },
        Outlet {
            sinks: "out: { redis: { servers: '{address}', command: xadd, key: '{topic}', timeout: 5s } }",
            server: Some(Server::redis_stream),
            ..server("redis, stream", "redis")
        },
        Outlet {
            sinks: "out: { redis: { servers: '{address}', command: rpush, key: '{topic}', timeout: 5s } }",
            server: Some(Server::redis_list),
            ..server("redis, list", "redis")
        },
        Outlet {
            sinks: "out: { postgres: { server: '{address}', table: '{topic}', columns: { line: payload }, \
                    timeout: 5s } }",
            server: Some(Server::table),
            ..server("postgres", "postgres")
        },
        Outlet {
            sinks: "out: { postgres: { server: '{address}', table: '{topic}', columns: { line: payload }, \
                    timeout: 5s, exactly_once: true } }",
            delivery: Delivery::ExactlyOnce,
            server: Some(Server::table),
            ..server(EXACTLY_ONCE, "postgres")
        },
    ];
    own.into_iter().chain(of_amazon()).collect()
}

/// Returns the sink that needs the source `proxy`.
pub fn proxy() -> Outlet {
    Outlet {
        name: "proxy",
        component: "proxy",
        sinks: "out: { proxy: { address: 'tcp://{address}', timeout: 5s } }",
        delivery: Delivery::AtLeastOnce,
        server: Some(|| Server::lines(Reply::Echo, Mood::Well)),
        read: Some(accepted),
        ..FILE
    }
}

/// Returns the sinks that keep nothing which could be read back, or only sums. They must end well.
pub fn unreadable() -> Vec<Outlet> {
    let sink = |name, sinks| Outlet {
        name,
        component: name,
        sinks,
        delivery: Delivery::AtLeastOnce,
        read: None,
        ..FILE
    };
    vec![
        sink("discard", "out: { discard: {} }"),
        sink("measure", "out: { measure: { every: 10s } }"),
        sink("websocket", "out: { websocket: { address: '127.0.0.1:0' } }"),
        Outlet {
            server: Some(Server::websocket),
            ..sink("websocket_client", "out: { websocket_client: { url: 'ws://{address}' } }")
        },
        Outlet {
            server: Some(Server::datagrams),
            ..sink("statsd", "out: { statsd: { address: '{address}', metric: 'all' } }")
        },
    ]
}

/// Returns the sinks of an object store.
pub fn stored() -> Vec<Outlet> {
    let objects = |name, sinks| Outlet {
        name,
        component: "objects",
        sinks,
        server: Some(Server::s3),
        read: Some(|output| Ok(vec![vec![read::joined(uploaded(output)?)]])),
        ..FILE
    };
    vec![
        objects(
            "objects, S3",
            "out: { objects: { url: 's3://bucket/all.jsonl?endpoint=http://{address}' } }",
        ),
        objects(
            "objects, S3, rotate",
            "out: { objects: { url: 's3://bucket/all.jsonl?endpoint=http://{address}', \
             rotate: { size: 20KiB, every: 300ms } } }",
        ),
        Outlet {
            steps: &["parse_json: {}"],
            read: Some(|output| Ok(vec![uploaded(output)?])),
            ..objects(
                "objects, S3, Parquet by column",
                "out: { objects: { url: 's3://bucket/{group}?endpoint=http://{address}', name: '{number}.parquet', \
                 encode: { format: parquet, columns: { n: int, group: text, text: text } }, \
                 rotate: { every: 300ms } } }",
            )
        },
        Outlet {
            takes: Flow::Files,
            read: Some(|output| Ok(vec![uploaded(output)?])),
            ..objects(
                "objects, S3, files",
                "out: { objects: { url: 's3://bucket/?endpoint=http://{address}' } }",
            )
        },
    ]
}

/// Returns sinks whose servers do not answer for a while. They take seconds.
pub fn hanging() -> Vec<Outlet> {
    vec![
        Outlet {
            sinks: "out: { http: { url: 'http://{address}/', batch: lines, timeout: 500ms } }",
            keeps_order: false,
            server: Some(|| Server::http(Mood::Hanging)),
            ..server("http, hanging server", "http")
        },
        Outlet {
            sinks: "out: { socket: { address: 'tcp://{address}', acknowledge: \"OK\\n\", acknowledge_timeout: 500ms } }",
            server: Some(|| Server::lines(Reply::Ok, Mood::Hanging)),
            ..server("socket, hanging server", "socket")
        },
    ]
}

/// Returns the sinks of files.
pub fn of_files() -> Vec<Outlet> {
    vec![
        Outlet {
            name: "directory",
            component: "directory",
            takes: Flow::Files,
            sinks: "out: { directory: { path: out } }",
            ..FILE
        },
        Outlet {
            name: "objects, files",
            component: "objects",
            takes: Flow::Files,
            sinks: "out: { objects: { url: out/ } }",
            ..FILE
        },
        Outlet {
            name: "remove",
            component: "remove",
            takes: Flow::Files,
            sinks: "out: remove",
            read: Some(super::files::removed),
            ..FILE
        },
    ]
}
