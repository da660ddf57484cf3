//! The sources.

use std::io;
use std::os::unix::fs::PermissionsExt;

use thalweg_engine::Flow;
use thalweg_testbed::{S3, WebFiles, WebRecords};

use super::{avro, clients};
use crate::amazon::AmazonServer;
use crate::brokers::Topic;
use crate::feed::{Ends, Feed, Nature, Prepared};
use crate::program::{Launch, Program};
use crate::records::{Form, Records};
use crate::servers::BUCKET;

/// The files into which the input of sources of files is divided.
pub const FILES: u64 = 5;

const LINES: &[&str] = &["lines: {}"];
const ROWS: &[&str] = &["csv: { types: { n: int } }", "encode: json"];
const DATA: &[&str] = &["avro: {}", "encode: json"];

/// A source that reads what lies in the folder, in order, and ends.
const READER: Feed = Feed {
    name: "file",
    component: "file",
    steps: &[],
    flow: Flow::Messages,
    nature: Nature::Replayable,
    ends: Ends::Alone,
    partitions: 1,
    keeps_order: true,
    remembers: true,
    memory: "300KiB",
    most: u64::MAX,
    prepare: one_file,
    client: None,
};

/// A source of files, whose order is that of the file system.
const FILE_READER: Feed = Feed {
    name: "files, lines",
    component: "files",
    steps: LINES,
    flow: Flow::Files,
    partitions: FILES,
    prepare: |program, records| {
        several_files(program, records, "jsonl", Form::Json)?;
        Ok(Prepared::of("files: { path: in, order: name }"))
    },
    ..READER
};

/// Returns the sources, at least one for each registered component that can feed any sink.
pub fn all() -> Vec<Feed> {
    [readers(), file_readers(), listeners(), streams()].into_iter().flatten().collect()
}

fn readers() -> Vec<Feed> {
    vec![
        READER,
        Feed { name: "file, several", partitions: FILES, prepare: several, ..READER },
        Feed { name: "file, gzip", prepare: gzip_file, ..READER },
        Feed { name: "file, UTF-16", prepare: utf_16_file, ..READER },
        Feed {
            name: "file, follow",
            ends: Ends::WhenTold,
            prepare: followed,
            client: Some(clients::append),
            ..READER
        },
        buffer(),
        Feed {
            name: "journald",
            component: "journald",
            steps: &["parse_journal: {}", "keep: [MESSAGE]", "rename: { MESSAGE: payload }"],
            prepare: journal,
            ..READER
        },
        Feed { name: "generate", component: "generate", most: 5000, prepare: generated, ..READER },
    ]
}

/// Returns the sources of files, with the file reader that reads them.
pub fn file_readers() -> Vec<Feed> {
    vec![
        FILE_READER,
        Feed {
            name: "files, csv",
            steps: ROWS,
            prepare: |program, records| {
                several_files(program, records, "csv", Form::Csv)?;
                Ok(Prepared::of("files: { path: in, order: name }"))
            },
            ..FILE_READER
        },
        Feed { name: "files, avro", steps: DATA, prepare: avro, ..FILE_READER },
        Feed {
            name: "objects, lines",
            component: "objects",
            // Files in local folders: the modification time says nothing of when they came.
            remembers: false,
            prepare: |program, records| {
                several_files(program, records, "jsonl", Form::Json)?;
                Ok(Prepared::of("objects: { url: in/ }"))
            },
            ..FILE_READER
        },
        Feed {
            name: "remote_files, lines",
            component: "remote_files",
            remembers: false,
            prepare: remote,
            ..FILE_READER
        },
    ]
}

fn listeners() -> Vec<Feed> {
    let listener = |name, component| Feed { name, component, nature: Nature::Acknowledged, ..READER };
    vec![
        Feed {
            prepare: |_, _| listening("socket", "address: 'tcp://127.0.0.1:0', acknowledge: '+'"),
            client: Some(clients::acknowledged_lines),
            ..listener("socket, acknowledge", "socket")
        },
        Feed {
            nature: Nature::Once,
            prepare: |_, _| listening_patiently("socket", "address: 'tcp://127.0.0.1:0'"),
            client: Some(clients::unacknowledged_lines),
            ..listener("socket", "socket")
        },
        Feed {
            prepare: |_, _| listening("http", "address: '127.0.0.1:0', framing: {}"),
            client: Some(clients::posts),
            ..listener("http", "http")
        },
        Feed {
            prepare: |_, _| listening("otlp", "http: '127.0.0.1:0'"),
            client: Some(clients::exported_logs),
            ..listener("otlp", "otlp")
        },
        Feed {
            nature: Nature::Once,
            prepare: |_, _| listening_patiently("syslog", "address: 'tcp://127.0.0.1:0', payload: message"),
            client: Some(clients::syslog_lines),
            ..listener("syslog", "syslog")
        },
        Feed {
            flow: Flow::Files,
            steps: LINES,
            prepare: |_, _| listening("http_upload", "address: '127.0.0.1:0'"),
            client: Some(clients::posts),
            ..listener("http_upload, lines", "http_upload")
        },
    ]
}

fn streams() -> Vec<Feed> {
    let stream = |name| Feed { name, component: name, nature: Nature::Once, ..READER };
    vec![
        Feed {
            prepare: |_, _| Ok(Prepared::of("stdin: {}")),
            client: Some(clients::stdin_lines),
            ..stream("stdin")
        },
        Feed {
            prepare: |_, _| Ok(Prepared::of("pipe: { path: input.pipe, exit_on_eof: true }")),
            client: Some(clients::pipe_lines),
            ..stream("pipe")
        },
        Feed {
            // Each run starts the program again.
            remembers: false,
            prepare: program,
            ..stream("exec")
        },
    ]
}

/// Returns the sources that read from an object store.
pub fn stored() -> Vec<Feed> {
    vec![Feed { name: "objects of S3, lines", component: "objects", prepare: uploaded, ..FILE_READER }]
}

/// Returns the sources that ask a web server for messages.
pub fn of_web() -> Vec<Feed> {
    let asks = |name, component| Feed { name, component, memory: "2MiB", ..READER };
    vec![
        Feed {
            prepare: |_, records| {
                let options = "framing: {}, pages: { by: link }, cursor: { field: n, parameter: after }";
                web(records, "http_client", "records", options)
            },
            ..asks("http_client, cursor", "http_client")
        },
        Feed {
            prepare: |_, records| web(records, "sse", "events", "replays: true, retry_delay: 1ms"),
            ..asks("sse, replays", "sse")
        },
    ]
}

/// Returns the sources that read from a broker or database.
pub fn of_brokers() -> Vec<Feed> {
    vec![
        Feed { name: "kafka", component: "kafka", prepare: |_, records| topic(records, "classic"), ..READER },
        Feed {
            name: "kafka, broker's protocol",
            component: "kafka",
            prepare: |_, records| topic(records, "consumer"),
            ..READER
        },
        Feed {
            name: "nats, stream",
            component: "nats",
            // Messages that were not acknowledged come again after later ones.
            keeps_order: false,
            prepare: |_, records| stream(records),
            ..READER
        },
        Feed {
            name: "mqtt",
            component: "mqtt",
            nature: Nature::Acknowledged,
            // Messages that were written but not acknowledged come again, after later ones.
            keeps_order: false,
            remembers: false,
            prepare: |_, records| session(records),
            ..READER
        },
        Feed {
            name: "amqp",
            component: "amqp",
            nature: Nature::Acknowledged,
            // Messages that were written but not acknowledged come again, after later ones.
            keeps_order: false,
            remembers: false,
            prepare: |_, records| amqp(records),
            ..READER
        },
        Feed {
            name: "redis, stream",
            component: "redis",
            // Entries that were not acknowledged are read again before or after others.
            keeps_order: false,
            prepare: |_, records| {
                redis(records, Topic::of_redis()?, "stream: {name}, group: g, consumer_timeout: 1s")
            },
            ..READER
        },
        Feed {
            name: "redis, list",
            component: "redis",
            // Elements that were not removed are read again, also if a checkpoint covers them.
            keeps_order: false,
            remembers: false,
            prepare: |_, records| redis(records, Topic::of_redis_list()?, "list: {name}"),
            ..READER
        },
        Feed {
            name: "aws_kinesis_streams",
            component: "aws_kinesis_streams",
            prepare: |_, records| kinesis(records),
            ..READER
        },
        Feed {
            name: "aws_sqs",
            component: "aws_sqs",
            // Messages that were not deleted come again after later ones.
            keeps_order: false,
            prepare: |_, records| sqs(records),
            ..READER
        },
        Feed {
            name: "postgres, table",
            component: "postgres",
            prepare: |_, records| table(records),
            ..READER
        },
    ]
}

/// Returns the sources whose records may be lost on the way to them.
pub fn datagrams() -> Vec<Feed> {
    let socket = |name, component| Feed { name, component, nature: Nature::Datagrams, ..READER };
    vec![
        Feed {
            prepare: |_, _| listening("socket", "address: 'udp://127.0.0.1:0'"),
            client: Some(clients::plain_datagrams),
            ..socket("socket, udp", "socket")
        },
        Feed {
            prepare: |_, _| listening("syslog", "address: 'udp://127.0.0.1:0', payload: message"),
            client: Some(clients::syslog_datagrams),
            ..socket("syslog, udp", "syslog")
        },
    ]
}

/// Returns a source that reads one file.
pub fn file() -> Feed {
    READER
}

/// Returns a source of several files.
pub fn files() -> Feed {
    FILE_READER
}

/// Returns a source that reads a spool.
pub fn buffer() -> Feed {
    Feed { name: "spool", component: "spool", prepare: spool, ..READER }
}

/// Returns the source that needs the sink `proxy`.
pub fn proxy() -> Feed {
    Feed {
        name: "proxy",
        component: "proxy",
        most: 1000,
        nature: Nature::Acknowledged,
        prepare: |_, _| listening("proxy", "address: 'tcp://127.0.0.1:0'"),
        client: Some(clients::echoed_lines),
        ..READER
    }
}

fn listening(component: &str, options: &str) -> io::Result<Prepared> {
    Ok(Prepared::of(format!("{component}: {{ {options}, end_after_idle: 200ms }}")))
}

/// A client without answers takes for delivered what it writes just after the run ended. So the run must
/// outlast a pause of a client on a busy machine.
fn listening_patiently(component: &str, options: &str) -> io::Result<Prepared> {
    Ok(Prepared::of(format!("{component}: {{ {options}, end_after_idle: 1s }}")))
}

fn topic(records: Records, protocol: &str) -> io::Result<Prepared> {
    let topic = Topic::new()?;
    topic.store((0..records.count).map(|number| records.text(number, Form::Json)))?;
    // A name of its own lets a restarted member have its partition at once.
    let source = format!(
        "kafka: {{ brokers: '{}', topics: {name}, group: {name}, instance: i, protocol: {protocol}, \
         end_after_idle: 50ms }}",
        topic.address(),
        name = topic.name,
    );
    Ok(Prepared { source, held: Some(Box::new(topic)) })
}

fn stream(records: Records) -> io::Result<Prepared> {
    let topic = Topic::of_nats()?;
    topic.store((0..records.count).map(|number| records.text(number, Form::Json)))?;
    // A run that is killed leaves messages that come again after this time.
    let source = format!(
        "nats: {{ servers: '{}', stream: {name}, consumer: c, ack_timeout: 1s, end_after_idle: 50ms }}",
        topic.address(),
        name = topic.name,
    );
    Ok(Prepared { source, held: Some(Box::new(topic)) })
}

fn session(records: Records) -> io::Result<Prepared> {
    // The source continues the session of the topic.
    let topic = Topic::of_mqtt()?;
    topic.store((0..records.count).map(|number| records.text(number, Form::Json)))?;
    let source = format!(
        "mqtt: {{ servers: '{}', topics: {name}, client_id: {name}, end_after_idle: 50ms }}",
        topic.address(),
        name = topic.name,
    );
    Ok(Prepared { source, held: Some(Box::new(topic)) })
}

fn amqp(records: Records) -> io::Result<Prepared> {
    let topic = Topic::of_amqp()?;
    topic.store((0..records.count).map(|number| records.text(number, Form::Json)))?;
    let (servers, name) = (topic.address(), &topic.name);
    let source = format!("amqp: {{ servers: '{servers}', queues: {name}, end_after_idle: 50ms }}");
    Ok(Prepared { source, held: Some(Box::new(topic)) })
}

/// Each run has the name of the machine, so that one finds what another had not acknowledged.
fn redis(records: Records, topic: Topic, input: &str) -> io::Result<Prepared> {
    topic.store((0..records.count).map(|number| records.text(number, Form::Json)))?;
    let (servers, input) = (topic.address(), input.replace("{name}", &topic.name));
    let source = format!("redis: {{ servers: '{servers}', {input}, end_after_idle: 50ms }}");
    Ok(Prepared { source, held: Some(Box::new(topic)) })
}

fn kinesis(records: Records) -> io::Result<Prepared> {
    let topic = Topic::of_kinesis()?;
    topic.store((0..records.count).map(|number| records.text(number, Form::Json)))?;
    let source = format!(
        "aws_kinesis_streams: {{ {}, stream: {}, poll_interval: 20ms, end_after_idle: 50ms }}",
        AmazonServer::options(topic.address()),
        topic.name,
    );
    Ok(Prepared { source, held: Some(Box::new(topic)) })
}

/// A run that is killed leaves messages that come again after the visibility timeout. With this time for an
/// answer, requests do not wait for messages, so that a run ends soon.
fn sqs(records: Records) -> io::Result<Prepared> {
    let topic = Topic::of_sqs()?;
    topic.store((0..records.count).map(|number| records.text(number, Form::Json)))?;
    let source = format!(
        "aws_sqs: {{ {}, queue: {}, visibility_timeout: 1s, timeout: 1900ms, end_after_idle: 50ms }}",
        AmazonServer::options(topic.address()),
        topic.name,
    );
    Ok(Prepared { source, held: Some(Box::new(topic)) })
}

fn table(records: Records) -> io::Result<Prepared> {
    let topic = Topic::of_postgres()?;
    topic.store((0..records.count).map(|number| records.text(number, Form::Json)))?;
    let source = format!(
        "postgres: {{ server: '{}', table: '{}', columns: line, payload: line }}",
        topic.address(),
        topic.name,
    );
    Ok(Prepared { source, held: Some(Box::new(topic)) })
}

fn web(records: Records, component: &str, path: &str, options: &str) -> io::Result<Prepared> {
    let server =
        WebRecords::serve((0..records.count).map(|number| records.text(number, Form::Json)).collect())?;
    let source = format!("{component}: {{ url: 'http://{}/{path}', {options} }}", server.address());
    Ok(Prepared { source, held: Some(Box::new(server)) })
}

fn one_file(program: &Program, records: Records) -> io::Result<Prepared> {
    records.write(&program.path("in.jsonl"), 0..records.count, Form::Json)?;
    Ok(Prepared::of("file: { path: in.jsonl }"))
}

fn program(program: &Program, records: Records) -> io::Result<Prepared> {
    one_file(program, records)?;
    Ok(Prepared::of("exec: { command: [cat, in.jsonl] }"))
}

fn several(program: &Program, records: Records) -> io::Result<Prepared> {
    several_files(program, records, "jsonl", Form::Json)?;
    Ok(Prepared::of("file: { path: in/*.jsonl }"))
}

/// A program that stands for `journalctl` writes a journal, from the entry with the cursor on.
fn journal(program: &Program, records: Records) -> io::Result<Prepared> {
    let entry = |number| format!("__CURSOR=c{number}\nMESSAGE={}\n\n", records.text(number, Form::Json));
    program.write("journal", (0..records.count).map(entry).collect::<String>())?;
    let script = "#!/bin/sh\nfor argument; do case $argument in --cursor=*) cursor=${argument#*=};; esac; done\n\
                  awk -v cursor=\"$cursor\" 'BEGIN { RS = \"\"; ORS = \"\\n\\n\" }\n\
                  cursor == \"\" || seen || index($0, \"__CURSOR=\" cursor \"\\n\") == 1 { seen = 1; print }' journal\n";
    program.write("journalctl", script)?;
    std::fs::set_permissions(program.path("journalctl"), std::fs::Permissions::from_mode(0o755))?;
    Ok(Prepared::of("journald: { program: ./journalctl, follow: false }"))
}

/// Writes the records into [`FILES`] files of `in`.
fn several_files(program: &Program, records: Records, suffix: &str, form: Form) -> io::Result<()> {
    (0..FILES).try_for_each(|file| {
        records.write(&program.path(&file_name(file, suffix)), numbers_of(records, file), form)
    })
}

/// Writes the records as Avro, in blocks of a few.
fn avro(program: &Program, records: Records) -> io::Result<Prepared> {
    (0..FILES).try_for_each(|file| {
        program.write(&file_name(file, "avro"), avro::container(records, numbers_of(records, file)))
    })?;
    Ok(Prepared::of("files: { path: in, order: name }"))
}

/// The name of one of the files.
pub fn file_name(file: u64, suffix: &str) -> String {
    format!("in/{file:03}.{suffix}")
}

/// The numbers of the records in one of the files.
pub fn numbers_of(records: Records, file: u64) -> std::ops::Range<u64> {
    let size = records.count.div_ceil(FILES).max(1);
    (file * size).min(records.count)..((file + 1) * size).min(records.count)
}

fn gzip_file(program: &Program, records: Records) -> io::Result<Prepared> {
    let plain = program.path("plain.jsonl");
    records.write(&plain, 0..records.count, Form::Json)?;
    let file = std::fs::File::create(program.path("in.jsonl.gz"))?;
    let mut encoder = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    io::copy(&mut std::fs::File::open(&plain)?, &mut encoder)?;
    encoder.finish()?;
    Ok(Prepared::of("file: { path: in.jsonl.gz }"))
}

fn utf_16_file(program: &Program, records: Records) -> io::Result<Prepared> {
    let plain = program.path("plain.jsonl");
    records.write(&plain, 0..records.count, Form::Json)?;
    let text = std::fs::read_to_string(plain)?;
    // A run that resumes knows the order of the bytes from its state.
    let marked = format!("\u{feff}{text}");
    let bytes: Vec<u8> = marked.encode_utf16().flat_map(u16::to_be_bytes).collect();
    program.write("in.txt", bytes)?;
    Ok(Prepared::of("file: { path: in.txt, charset: utf-16 }"))
}

/// The client appends the records.
fn followed(program: &Program, records: Records) -> io::Result<Prepared> {
    records.write(&program.path("in.jsonl"), 0..0, Form::Json)?;
    Ok(Prepared::of("file: { path: in.jsonl, follow: true, poll_interval: 10ms }"))
}

fn generated(_: &Program, records: Records) -> io::Result<Prepared> {
    let lines: Vec<String> = (0..records.count).map(|number| records.text(number, Form::Json)).collect();
    let lines = serde_json::to_string(&lines)?;
    Ok(Prepared::of(format!("generate: {{ lines: {lines}, count: {} }}", records.count)))
}

/// A run of its own fills the spool.
fn spool(program: &Program, records: Records) -> io::Result<Prepared> {
    records.write(&program.path("in.jsonl"), 0..records.count, Form::Json)?;
    let config = "sources: { in: { file: { path: in.jsonl } } }\n\
                  pipelines: { main: { from: in, to: kept } }\n\
                  sinks: { kept: { spool: { path: in-spool, max_file_bytes: 30KiB } } }\n";
    program.write("fill.yaml", config)?;
    let launch = Launch { state: None, ..Launch::of("fill.yaml") };
    let ended = program.start(&launch)?.wait().map_err(io::Error::other)?;
    match ended.is_done() {
        true => Ok(Prepared::of("spool: { path: in-spool, follow: false, poll_interval: 10ms }")),
        false => Err(io::Error::other(ended.log)),
    }
}

/// A run of its own uploads the files.
fn uploaded(program: &Program, records: Records) -> io::Result<Prepared> {
    several_files(program, records, "jsonl", Form::Json)?;
    let server = S3::start()?;
    server.create_bucket(BUCKET)?;
    program.set(server.env());
    let url = server.url(BUCKET, "");
    let uploaded = program.output(&["copy", "in/", &url])?;
    match uploaded.status.success() {
        true => {
            let source = format!("objects: {{ url: {} }}", serde_json::to_string(&url)?);
            Ok(Prepared { source, held: Some(Box::new(server)) })
        }
        false => Err(io::Error::other(String::from_utf8_lossy(&uploaded.stderr).into_owned())),
    }
}

fn remote(program: &Program, records: Records) -> io::Result<Prepared> {
    several_files(program, records, "jsonl", Form::Json)?;
    let server = WebFiles::serve(program.path("in"))?;
    let urls: Vec<String> = (0..FILES).map(|file| server.url(&format!("{file:03}.jsonl"))).collect();
    let source = format!("remote_files: {{ url: {}, cache: cache }}", serde_json::to_string(&urls)?);
    Ok(Prepared { source, held: Some(Box::new(server)) })
}
