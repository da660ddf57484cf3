//! Tests whole files: those of gollum's benchmarks, and graphs of many shapes.

use super::*;

macro_rules! measured {
    ($($name:ident $file:literal)*) => {$(
        #[test]
        fn $name() {
            assert_snapshot!(converted(include_str!(concat!("../../../../../bench/gollum/", $file, ".conf"))));
        }
    )*};
}

measured! {
    v060_json "v060-json"
    v050_raw "v050-raw"
    v050_format "v050-format"
    v050_multi "v050-multi"
    v050_json "v050-json"
    v046_raw "v046-raw"
    v046_format "v046-format"
    v046_multi "v046-multi"
    v046_json "v046-json"
}

#[test]
fn aggregate_wildcard_and_a_router_with_filters() {
    assert_snapshot!(converted(
        r#"
Readers:
  Type: Aggregate
  Streams: [files, copies]
  SetMetadata: true
  Modulators: [format.Trim]
  Plugins:
    one: { Type: consumer.File, Files: /var/log/one.log, OffsetFilePath: /var/lib/gollum }
    two: { Type: consumer.File, Files: /var/log/two*.log, DefaultOffset: oldest, Modulators: [] }
Main:
  Type: router.Broadcast
  Stream: files
  TimeoutMs: 200
  Filters:
    - filter.RegExp: { Expression: "[0-9]", FilteredStream: letters }
All:
  Type: producer.Console
  Streams: "*"
  ChannelTimeoutMs: 0
Named:
  Type: producer.File
  Streams: [files, letters]
  File: /var/log/*_out.log
  Modulators: [format.StreamName, format.Envelope]
Off:
  Type: producer.Null
  Enable: false
  Streams: files
"#
    ));
}

#[test]
fn fallbacks_and_spooling() {
    assert_snapshot!(converted(
        r#"
In: { Type: consumer.Socket, Streams: [data, more], Address: "127.0.0.1:5880", Partitioner: ascii, Delimiter: ":", Acknowledge: OK }
SocketOut:
  Type: producer.Socket
  Streams: data
  FallbackStream: spooling
  ChannelTimeoutMs: 500
  Modulators: [format.Runlength]
Drops: { Type: producer.Websocket, Streams: more, ChannelTimeoutMs: -1 }
Spooler: { Type: producer.Spooling, Streams: spooling, Path: /tmp/spool, MaxMessagesSec: 0, FallbackStream: graveyard }
Graveyard: { Type: producer.File, Streams: graveyard, File: /tmp/graveyard.log, Rotation: { Enable: true, SizeMB: 512 }, Prune: { Count: 20, TotalSizeMB: 10000 } }
"#
    ));
}

#[test]
fn routers_of_all_kinds() {
    assert_snapshot!(converted(
        r#"
In: { Type: consumer.Console, Streams: [turns, chance, copies, named] }
Turns: { Type: router.RoundRobin, Stream: turns }
Chance: { Type: router.Random, Stream: chance }
Copies: { Type: router.Distribute, Stream: copies, TargetStreams: [copies, turns] }
Named: { Type: router.Metadata, Stream: named, Key: to/stream }
A: { Type: producer.Null, Streams: [turns, chance, named] }
B: { Type: producer.Benchmark, Streams: [turns, chance, copies] }
Unheard: { Type: router.Broadcast, Stream: nothing }
"#
    ));
}

#[test]
fn logs_traces_and_streams_that_nobody_hears() {
    assert_snapshot!(converted(
        r#"
In: { Type: consumer.HTTP, Streams: lost, WithHeaders: false, Address: ":8001" }
Log:
  Type: producer.Console
  Streams: _GOLLUM_
  Console: stderr
  Modulators:
    - filter.RegExp: { Expression: "(warn|error)", ApplyTo: Level }
    - format.Envelope
Trace: { Type: producer.Console, Streams: _TRACE_ }
"#
    ));
}

#[test]
fn streams_chosen_by_the_message() {
    assert_snapshot!(converted(
        r#"
In:
  Type: consumer.Syslogd
  Streams: rest
  Format: RFC5424
  SetMetadata: true
  ModulatorRoutines: 2
  ModulatorQueueSize: 10
  Modulators:
    - format.StreamRoute: { Delimiter: "|" }
    - format.StreamRoute: { StreamModulator: [format.Trim] }
A: { Type: producer.HTTPRequest, Streams: a, RawData: false }
B: { Type: producer.StatsdMetrics, Streams: [b, rest], StreamMapping: { b: bees }, UseGauge: true }
"#
    ));
}

#[test]
fn documents_and_points() {
    let written = converted(
        r#"
In: { Type: consumer.Console, Streams: [logs, points] }
Search:
  Type: producer.ElasticSearch
  Streams: logs
  Servers: ["http://one:9200", "http://two:9200"]
  User: me
  Password: secret
  SetGzip: true
  Retry: { Count: 3 }
  StreamProperties:
    logs: { Index: shop, Type: log, TimeBasedIndex: true, TimeBasedFormat: "2006.01" }
Points: { Type: producer.InfluxDB, Streams: points, Host: "db:8086", Database: site, RetentionPolicy: week }
"#,
    );
    for expected in [
        "url: \"http://one:9200\"",
        "user: me",
        "password: secret",
        "compression: gzip",
        "encode: raw",
        "index: \"shop_{meta.time:%Y.%m}\"",
        "url: \"http://db:8086\"",
        "database: site",
        "retention_policy: week",
        "precision: ms",
    ] {
        let plain = |text: &str| text.replace(['"', '\''], "");
        assert!(plain(&written).contains(&plain(expected)), "{expected}\n{written}");
    }
}

#[test]
fn values_of_redis() {
    let written = converted(
        r#"
In: { Type: consumer.Console, Streams: [users, scores, queue] }
Users: { Type: producer.Redis, Streams: users, Address: "db:6379", Password: secret, Database: 2, KeyFrom: user, FieldFrom: id }
Scores: { Type: producer.Redis, Streams: scores, Storage: sortedset, Key: top, FieldFrom: score }
Queue: { Type: producer.Redis, Streams: queue, Storage: list, KeyFrom: name, Address: "unix:///run/redis.sock" }
"#,
    );
    let plain = |text: &str| text.replace(['"', '\''], "");
    for expected in [
        "servers: db:6379",
        "password: secret",
        "database: 2",
        "command: hset",
        "key: {user}",
        "field: {id}",
        "servers: localhost:6379",
        "command: zadd",
        "key: top",
        "score: {score}",
        "servers: unix:///run/redis.sock",
        "command: rpush",
        "key: {name}",
    ] {
        assert!(plain(&written).contains(expected), "{expected}\n{written}");
    }
}

#[test]
fn services_of_amazon() {
    let written = converted(
        r#"
In:
  Type: consumer.AwsKinesis
  Streams: [events, logs]
  KinesisStream: clicks
  DefaultOffset: oldest
  RecordMessageDelimiter: "|"
  QuerySleepTimeMs: 500
  Credential: { Type: static, Id: AKID, Secret: SECRET, AssumeRole: "arn:aws:iam::1:role/r" }
Events: { Type: producer.AwsKinesis, Streams: events, Region: eu-west-1, StreamMapping: { events: copy }, Credential: { Type: shared, Profile: p } }
Archive: { Type: producer.AwsFirehose, Streams: events, Endpoint: "localhost:4573", Credential: { Type: environment } }
Logs: { Type: producer.AwsCloudwatchLogs, Streams: logs, LogGroup: group, LogStream: "a{b", Credential: { Type: environment } }
"#,
    );
    let plain = |text: &str| text.replace(['"', '\''], "");
    for expected in [
        "region: us-east-1",
        "stream: clicks",
        "start: earliest",
        "poll_interval: 500ms",
        "access_key_id: AKID",
        "secret_access_key: SECRET",
        "role: arn:aws:iam::1:role/r",
        "delimiter: |",
        "aws_kinesis_streams:",
        "region: eu-west-1",
        "stream: copy",
        "profile: p",
        "aws_kinesis_firehose:",
        "url: https://localhost:4573",
        "stream: events",
        "aws_cloudwatch_logs:",
        "log_group: group",
        "log_stream: a{{b",
    ] {
        assert!(plain(&written).contains(expected), "{expected}\n{written}");
    }
}

#[test]
fn a_producer_on_several_streams_that_looks_at_them() {
    assert_snapshot!(converted(
        r#"
In: { Type: consumer.Console, Streams: [StreamA, StreamB] }
Out:
  Type: producer.Console
  Streams: [StreamA, StreamB]
  Modulators:
    - filter.Stream: { Block: StreamB, FilteredStream: StreamC }
    - format.Envelope: { Prefix: "A ", Postfix: "" }
Drop: { Type: producer.Console, Streams: StreamC, Modulators: [format.Envelope: { Prefix: "B ", Postfix: "" }] }
"#
    ));
}

#[test]
fn a_message_of_two_streams_comes_twice_to_a_producer_of_both() {
    for producer in ["producer.Console", "deprecated.producer.S3"] {
        let written = converted(&format!(
            "In: {{ Type: consumer.Console, Streams: [s, t] }}\n\
             Out: {{ Type: {producer}, Streams: [s, t], Modulators: [format.Hostname] }}\n"
        ));
        assert_eq!(written.matches("from: In").count(), 2, "{written}");
    }
}

#[test]
fn the_old_form_with_all_sorts() {
    assert_snapshot!(converted(
        r#"
- "consumer.Socket":
    ID: "socket"
    Stream: ["in", "other"]
    AckTimoutSec: 3
- "stream.Route":
    Stream: "in"
    Routes: ["a", "b"]
    Filter: filter.RegExp
    FilterExpression: "x"
- "stream.RoundRobin":
    Stream: "a"
- "producer.File":
    Stream: "a"
    File: "/tmp/a.log"
    Rotate: true
    RotateSizeMB: 10
    BatchTimeoutSec: 3
    Formatter: format.Envelope
    EnvelopeFormatter: format.StreamName
- "producer.Console":
    Stream: "_DROPPED_"
- "producer.Null":
    Instances: 2
"#
    ));
}

#[test]
fn a_wildcard_consumer() {
    assert_snapshot!(converted(
        r#"
In: { Type: consumer.Profiler, Streams: "*", DelayMs: 500, KeepRunning: true }
A: { Type: producer.Console, Streams: x }
Log: { Type: producer.Null, Streams: [_GOLLUM_] }
"#
    ));
}

#[test]
fn line_feeds_are_left_to_the_sink_where_all_that_comes_to_it_has_one() {
    assert_snapshot!(converted(
        r#"
In: { Type: consumer.Console, Streams: [a, b, c] }
Lines: { Type: producer.Console, Streams: [a, b], Modulators: [format.Envelope] }
Stamped: { Type: producer.File, Streams: a, File: a.log, Modulators: [format.Envelope, format.Timestamp] }
Mixed: { Type: producer.File, Streams: [b, c], File: b.log, Modulators: [filter.Stream: { Block: c, FilteredStream: d }, format.Envelope] }
Raw: { Type: producer.File, Streams: c, File: c.log }
"#
    ));
}

#[test]
fn traces_are_the_messages_that_could_not_be_processed() {
    let converted = converted(
        "In: { Type: consumer.Console, Streams: a, Modulators: [format.JSON] }\n\
         Out: { Type: producer.Console, Streams: a }\n\
         Failed: { Type: producer.File, File: failed.log, Streams: _TRACE_ }\n",
    );
    let pipelines = converted.split_once("pipelines:").unwrap().1.split_once("sinks:").unwrap().0;
    assert!(pipelines.contains(".errors"), "{converted}");
    assert!(pipelines.contains("Payload: payload") && pipelines.contains("format: json"), "{converted}");
}
