//! gollum's configurations, run as they are, and converted.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use insta::assert_snapshot;
use serde_json::Value;

use crate::common::{self, House};

/// Returns a configuration of the benchmarks, reduced to `runs` times 3 messages per consumer.
fn measured(name: &str, runs: u32) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/gollum").join(name);
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let text = text
        .replace("Runs: 100000", &format!("Runs: {runs}"))
        .replace("Runs: 10000", &format!("Runs: {runs}"));
    let cut = text.replace("Batches: 100", "Batches: 3");
    assert!(cut.contains("Batches: 3\n") && cut.contains(&format!("Runs: {runs}\n")), "{cut}");
    cut
}

/// True if any of these components is missing.
fn lacks(names: &[&str]) -> bool {
    let components = House::with(&[]).run_well(&["components", "--json"]).out;
    let components: Value = serde_json::from_str(&components).unwrap();
    let known: Vec<&str> =
        components.as_array().unwrap().iter().filter_map(|one| one["name"].as_str()).collect();
    names.iter().any(|name| !known.contains(name))
}

/// Runs a configuration and returns the summary.
fn summary(house: &House, config: &str) -> Value {
    let said = house.run_well(&["run", config, "--json"]);
    let line = said
        .err
        .lines()
        .find(|line| line.contains("\"event\":\"summary\""))
        .unwrap_or_else(|| panic!("{}", said.err));
    serde_json::from_str(line).unwrap()
}

/// Returns the number of messages that were read, delivered, and rejected.
fn counts(summary: &Value) -> (u64, u64, u64) {
    let components = summary["components"].as_array().unwrap_or_else(|| panic!("{summary:#}"));
    let sum = |role: &str, key: &str| -> u64 {
        let those = components.iter().filter(|one| role.is_empty() || one["role"] == role);
        those.map(|one| one[key].as_u64().unwrap_or_else(|| panic!("{summary:#}"))).sum()
    };
    (sum("source", "rows_in"), sum("sink", "rows_out"), sum("", "errors"))
}

/// Runs a configuration as it is and converted, asserts that the counts are equal, and returns them.
fn both(text: &str) -> (u64, u64, u64) {
    let house = House::with(&[("gollum.conf", text)]);
    house.run_well(&["convert", "gollum.conf", "--output", "converted.yaml"]);
    house.run_well(&["check", "converted.yaml"]);
    let first = counts(&summary(&house, "gollum.conf"));
    let second = counts(&summary(&house, "converted.yaml"));
    assert_eq!(first, second, "{}", house.read("converted.yaml"));
    first
}

#[test]
fn the_configurations_that_gollum_was_measured_with_run_unchanged() {
    for (name, consumers) in [
        ("v050-raw.conf", 1),
        ("v050-format.conf", 1),
        ("v050-multi.conf", 8),
        ("v046-raw.conf", 1),
        ("v046-format.conf", 1),
        ("v046-multi.conf", 8),
    ] {
        let messages = consumers * 3 * 700;
        assert_eq!(both(&measured(name, 700)), (messages, messages, 0), "{name}");
    }
}

#[test]
fn those_with_json_run_as_well() {
    if lacks(&["split_fields", "copy", "trim"]) {
        return;
    }
    // The messages of the oldest are not JSON. gollum 0.4 passed them on, and so does thalweg.
    for name in ["v060-json.conf", "v050-json.conf", "v046-json.conf"] {
        assert_eq!(both(&measured(name, 700)), (2100, 2100, 0), "{name}");
    }
}

/// Returns the `out.log` that a configuration writes for an input; the original and the converted form must
/// agree.
fn lines_to_file(text: &str, input: &str) -> String {
    let run = |convert: bool| {
        let house = House::with(&[("gollum.conf", text)]);
        let config = if convert {
            house.run_well(&["convert", "gollum.conf", "--output", "converted.yaml"]);
            "converted.yaml"
        } else {
            "gollum.conf"
        };
        let said = house.run_with_input(&["run", config, "--quiet"], input.as_bytes());
        assert_eq!(said.code, Some(0), "{}", said.err);
        house.read("out.log")
    };
    let written = run(false);
    assert_eq!(run(true), written);
    written
}

#[test]
fn written_files_are_the_same_byte_for_byte() {
    let text = r#"
In:
  Type: consumer.Console
  Streams: lines
  Modulators:
    - filter.RegExp: { ExpressionNot: '^\d', Expression: "[a-z]" }
    - format.Envelope: { Prefix: "${HOME} {", Postfix: "}" }
Main: { Type: router.Broadcast, Stream: lines, Filters: [filter.RegExp: { ExpressionNot: skipped }] }
Out:
  Type: producer.File
  Streams: lines
  File: ./out.log
  Permissions: "0640"
  Modulators: [format.StreamName, format.Envelope]
"#;
    let written = lines_to_file(text, "one\n2two\nthree's\nskipped\nTHREE\n$ü\\n\n");
    assert_eq!(written, "lines:${HOME} {one}\nlines:${HOME} {three's}\nlines:${HOME} {$ü\\n}\n");
    // Only the formatters add line feeds there.
    let plain = "In: { Type: consumer.Console, Streams: s }\nOut: { Type: producer.File, Streams: s, File: out.log }\n";
    assert_eq!(lines_to_file(plain, "a\nb\n"), "ab");
}

#[test]
fn a_producer_without_its_own_transforms_gets_the_message_as_it_was() {
    let to_pipelines = "sources: { a: { generate: { count: 1 } } }\npipelines: { b: { from: a, to: c }, c: { to: d } }\nsinks: { d: discard }\n";
    if House::with(&[("c.yaml", to_pipelines)]).run(&["check", "c.yaml"]).code != Some(0) {
        return;
    }
    let text = r#"
In: { Type: consumer.Console, Streams: [s, t] }
Out: { Type: producer.File, Streams: s, File: out.log, Modulators: [format.Envelope: { Prefix: "<" }] }
Plain: { Type: producer.File, Streams: [s, t], File: plain.log }
Filtered:
  Type: producer.File
  Streams: t
  File: filtered.log
  Modulators:
    - filter.RegExp: { Expression: a, FilteredStream: rest }
Rest: { Type: producer.File, Streams: rest, File: "*.log", Modulators: [format.Envelope] }
"#;
    let house = House::with(&[("gollum.conf", text)]);
    let said = house.run_with_input(&["run", "gollum.conf", "--quiet"], b"a\nb\n");
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(house.read("out.log"), "<a\n<b\n");
    let mut plain: Vec<u8> = house.read("plain.log").into_bytes();
    plain.sort_unstable();
    assert_eq!(plain, b"aabb");
    assert_eq!(house.read("filtered.log"), "a");
    assert_eq!(house.read("rest.log"), "b\n");
}

#[test]
fn mistakes_are_shown_where_they_were_made() {
    // The last two mistakes are found by the component that replaces the plugin, and reported in the same
    // file.
    let text = "\
In:
  Type: consumer.Profiler
  Streams: s
  Runs: lots
  Modulators: [format.Timestmp]
Out:
  Type: producer.Nul
  Streams: s
";
    let house = House::with(&[("gollum.conf", text)]);
    let checked = house.run(&["check", "gollum.conf"]);
    assert_eq!(checked.code, Some(2));
    assert_snapshot!("mistakes of a gollum file", checked.err);
    for command in ["run", "convert"] {
        let said = house.run(&[command, "gollum.conf"]);
        assert_eq!((said.code, said.err), (Some(2), checked.err.clone()), "{command}");
    }
    let text = "\
In:
  Type: consumer.Profiler
  Streams: s
  TemplateCount: 1000000
  Message: \"%z%256s\"
Out:
  Type: producer.File
  Streams: s
  File: out.log
  Permissions: \"0999\"
";
    let house = House::with(&[("gollum.conf", text)]);
    assert_snapshot!(
        "mistakes that components find in a gollum file",
        house.run(&["check", "gollum.conf"]).err
    );
}

#[test]
fn settings_without_effect_are_remarked() {
    let text = "\
In:
  Type: consumer.Profiler
  Streams: s
  Runs: 10
  ModulatorQueueSize: 3
Out:
  Type: producer.Benchmark
  Streams: s
  Channel: 5
Off:
  Type: producer.Null
  Enable: false
";
    let house = House::with(&[("gollum.conf", text)]);
    assert_snapshot!("remarks on a gollum file", house.run_well(&["check", "gollum.conf"]).out);
    let found: Value =
        serde_json::from_str(&house.run_well(&["check", "gollum.conf", "--json"]).out).unwrap();
    assert_eq!(found["remarks"].as_array().map(Vec::len), Some(3));
    assert_snapshot!("a converted gollum file", house.run_well(&["convert", "gollum.conf"]).out);
}

#[test]
fn a_configuration_in_our_own_form_is_not_converted() {
    let text = "sources: { a: { generate: { count: 1 } } }\npipelines: { b: { from: a, to: c } }\nsinks: { c: discard }\n";
    let house = House::with(&[
        ("c.yaml", text),
        ("g.conf", "A: { Type: producer.Null, Streams: s }\nB: { Type: consumer.Console, Streams: s }\n"),
    ]);
    let said = house.run(&["convert", "c.yaml"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("`c.yaml` is in thalweg's own form already"), "{}", said.err);
    let said = house.run(&["convert", "g.conf", "--output", "c.yaml"]);
    assert!(said.err.contains("`c.yaml` exists"), "{}", said.err);
    assert_eq!(house.read("c.yaml"), text);
}

/// Checks a configuration, converts it, and checks the result.
fn checked(text: &str) {
    let house = House::with(&[
        ("gollum.conf", text),
        ("htpasswd", "u:$2y$05$abcdefghijklmnopqrstuu"),
        ("geo.mmdb", ""),
    ]);
    let said = house.run(&["check", "gollum.conf"]);
    assert_eq!(said.code, Some(0), "{}\n{text}", said.err);
    let converted = house.run_well(&["convert", "gollum.conf"]).out;
    house.write("converted.yaml", converted.as_bytes());
    house.run_well(&["check", "converted.yaml"]);
}

/// Returns a configuration with a consumer, these modulators, and two producers.
fn with_modulators(modulators: &[&str]) -> String {
    let list: String = modulators.iter().map(|one| format!("    - {one}\n")).collect();
    format!(
        "In:\n  Type: consumer.Console\n  Streams: s\n  Modulators:\n{list}Out: {{ Type: producer.Null, Streams: s }}\nOther: {{ Type: producer.Null, Streams: t }}\n"
    )
}

#[test]
fn formatters_and_filters_become_transforms_that_are_right() {
    let formatters = [
        (&["copy"][..], "format.JSON: { Source: a/b, Target: c, SkipIfEmpty: true }"),
        (&["parse_user_agent"], "format.Agent: { Source: ua, Prefix: ua_ }"),
        (&["encode_base64"], "format.Base64Encode: { Target: x }"),
        (&["decode_base64"], "format.Base64Decode"),
        (&["cast", "copy"], "format.Cast: { ToType: int }"),
        (&["cast"], "format.Cast: { ToType: float, ApplyTo: n }"),
        (
            &["format_timestamp"],
            "format.ConvertTime: { FromFormat: '2006-01-02 15:04:05', ToFormat: '2006-01-02T15:04:05Z07:00' }",
        ),
        (&["format_timestamp"], "format.ConvertTime: { ApplyTo: t, ToFormat: '3:04PM' }"),
        (&["copy"], "format.Copy: { Source: a, Mode: prepend, Separator: ',', SkipIfEmpty: true }"),
        (&["drop"], "format.Delete: { Target: a }"),
        (
            &["add_id", "copy"],
            "format.Double: { Left: [format.Identifier: { Generator: seq }], Right: [format.Trim] }",
        ),
        (&["copy"], "format.Envelope: { Prefix: '{', ApplyTo: a/b, SkipIfEmpty: true }"),
        (&["flatten"], "format.Flatten: { Source: a, Separator: _ }"),
        (&["geoip"], "format.GeoIP: { Source: ip, GeoIPFile: geo.mmdb, Target: geo }"),
        (
            &["parse_grok"],
            "format.Grok: { Patterns: ['%{IP:ip} %{WORD:w}'], RemoveEmptyValues: false, NamedCapturesOnly: false }",
        ),
        (&["add_id"], "format.Hostname"),
        (&["add_id"], "format.Identifier: { Generator: hash, Target: id }"),
        (&["add_id"], "format.Identifier: { Generator: seqhex }"),
        (&["copy"], "format.Move: { Source: a, Target: b/c }"),
        (&["copy"], "format.Move: { Target: raw }"),
        (&["copy"], "format.Override: { Value: x, Target: a }"),
        (&["extract"], "format.RegExp: { Expression: '(a|b)', Template: '${1}', ApplyTo: x }"),
        (&["replace"], "format.Replace: { Search: a, ReplaceWith: b, Target: c }"),
        (&["runlength"], "format.Runlength: { StoreRunlengthOnly: true, Separator: ' ', Target: n }"),
        (&["add_sequence"], "format.Sequence"),
        (&["split_array"], "format.Split: { Target: list }"),
        (&["split_pick"], "format.SplitPick: { Index: 2, Delimiter: '|' }"),
        (&["split_fields"], "format.SplitToFields: { Fields: [a, b], Target: t, Delimiter: '|' }"),
        (&["route_by"], "format.StreamRoute: { Delimiter: '|' }"),
        (&["route_by", "split_pick", "replace"], "format.StreamRoute: { StreamModulator: [format.Trim] }"),
        (
            &["template"],
            "format.Template: { Template: '{{if .a.b}}{{.c}}{{else}}{{printf \"%s-%d\" .x .y}}{{end}}{{range .l}}{{.}}{{end}}', Source: r, Target: t }",
        ),
        (&["copy"], "format.Timestamp: { Timestamp: 'Mon Jan _2 15:04:05.000000 -07:00 2006 ' }"),
        (&["copy"], "format.ToCSV: { Keys: [a, b/c], KeepLastSeparator: true, Separator: ';', Target: csv }"),
        (&["copy"], "format.ToJSON: { Root: a, Ignore: [x/y], Target: json }"),
        (&["trim"], "format.Trim: { Characters: ' ', ApplyTo: a }"),
        (
            &["trim_to_bounds"],
            "format.TrimToBounds: { LeftBounds: '[', RightBounds: ']', LeftOffset: 1, RightOffset: 2 }",
        ),
        (
            &["split_fields", "format_timestamp", "parse_user_agent", "geoip", "flatten", "trim", "replace"],
            "format.ProcessJSON: { GeoIPFile: geo.mmdb, Directives: ['h:split: :a:b', 't:time:2006:06', 'u:unixtimestamp:ms:15', 'x:replace:a:b', \
             'x:trim: ', 'x:rename:y', 'z:remove', 'ua:agent:browser:os', 'ip:geoip:country:city', 'd:flatten:_'] }",
        ),
        (&["copy"], "format.ExtractJSON: { Field: x }"),
        (&["limit"], "filter.Rate: { MessagesPerSec: 10 }"),
        (&["filter"], "filter.RegExp: { Expression: \"it's\", ExpressionNot: '^\\d', Target: a/b }"),
        (&["filter"], "filter.Any: { AnyFilters: [filter.RegExp: { Expression: a }, filter.None] }"),
        (&["filter"], "filter.RegExp: { Expression: a, FilteredStream: t }"),
        (&["spool"], "filter.Rate: { FilteredStream: t }"),
        (&["spool"], "filter.Sample: { SampleRatePerGroup: 2, SampleGroupSize: 5, FilteredStream: t }"),
    ];
    for (needs, formatter) in formatters {
        if !lacks(needs) {
            checked(&with_modulators(&[formatter]));
        }
    }
}

#[test]
fn consumers_and_producers_become_sources_and_sinks_that_are_right() {
    let consumers = [
        (&["stdin"][..], "Console, SetMetadata: true"),
        (
            &["aws_kinesis_streams"],
            "AwsKinesis, KinesisStream: clicks, DefaultOffset: oldest, QuerySleepTimeMs: 500, RecordMessageDelimiter: '|', Credential: { Type: static, Id: i, Secret: s }",
        ),
        (&["pipe"], "Console, Pipe: /tmp/p, Permissions: '0600', ExitOnEOF: false"),
        (
            &["spool"],
            "File, Files: '*.log', OffsetFilePath: off, Delimiter: ';', DefaultOffset: oldest, PollingDelayMs: 20, DirScanIntervalSec: 3, BlackList: a, WhiteList: b, SetMetadata: true",
        ),
        (
            &["http", "socket"],
            "HTTP, Address: ':8080', Htpasswd: htpasswd, BasicRealm: r, ReadTimeoutSec: 5, WithHeaders: false",
        ),
        (&["http", "socket"], "HTTP, Address: ':8080'"),
        (&["kafka"], "Kafka"),
        (
            &["kafka"],
            "Kafka, Servers: ['a:1', 'b:2'], Topic: t, GroupId: g, ClientId: c, DefaultOffset: oldest, DefaultFetchSizeByte: 4096, SetMetadata: true, TlsEnable: true, TlsServerName: a, TlsInsecureSkipVerify: true, SaslEnable: true, SaslUsername: u, SaslPassword: p",
        ),
        (&["generate"], "Profiler, Runs: 3, Batches: 2, DelayMs: 7, TemplateCount: 3"),
        (&["proxy"], "Proxy, Address: ':5880', Partitioner: binary_be, Size: 2, Offset: 1"),
        (&["socket"], "Socket, Partitioner: ascii, Delimiter: ':', Acknowledge: OK, AckTimeoutSec: 3"),
        (
            &["socket"],
            "Socket, Address: 'unix:///tmp/s', Permissions: '0700', RemoveOldSocket: false, Partitioner: fixed, Size: 10",
        ),
        (&["socket"], "Socket, Address: 'udp://127.0.0.1:5880'"),
        (&["syslog"], "Syslogd, Format: RFC3164"),
        (&["syslog", "format_timestamp"], "Syslogd, Address: 'unix:///tmp/s', SetMetadata: true"),
    ];
    for (needs, consumer) in consumers {
        if !lacks(needs) {
            checked(&format!(
                "In: {{ Type: consumer.{consumer}, Streams: s }}\nOut: {{ Type: producer.Null, Streams: s }}\n"
            ));
        }
    }
    let producers = [
        (&["stdout"][..], "Console, Console: stderr"),
        (
            &["aws_kinesis_streams"],
            "AwsKinesis, Region: eu-west-1, StreamMapping: { '*': t }, Credential: { Type: shared, Profile: p, AssumeRole: r }",
        ),
        (&["aws_kinesis_firehose"], "AwsFirehose, RecordMaxMessages: 5, Endpoint: 'localhost:1'"),
        (&["aws_cloudwatch_logs"], "AwsCloudwatchLogs, LogGroup: g, LogStream: s"),
        (
            &["file"],
            "File, File: out.log, FileOverwrite: true, Permissions: '0600', Batch: { TimeoutSec: 1 }",
        ),
        (
            &["spool"],
            "File, File: '*.log', FolderPermissions: '0700', Rotation: { Enable: true, At: '3:00', Compress: true, ZeroPadding: 3 }, Prune: { Count: 3, AfterHours: 2, TotalSizeMB: 10 }",
        ),
        (&["websocket"], "HTTPRequest, Address: 'http://localhost:1', RawData: false, Encoding: text/html"),
        (&["websocket"], "HTTPRequest, Address: 'localhost:1'"),
        (
            &["websocket"],
            "ElasticSearch, Servers: 'http://localhost:1', User: u, Password: p, SetGzip: true, StreamProperties: { s: { Index: i, Type: t, TimeBasedIndex: true } }",
        ),
        (
            &["websocket"],
            "InfluxDB, Host: 'localhost:1', User: u, Password: p, Database: site, RetentionPolicy: week",
        ),
        (&["kafka"], "Kafka"),
        (
            &["kafka"],
            "Kafka, Servers: 'a:1', Topics: { s: t }, KeyFrom: k, Compression: zip, RequiredAcks: 1, TimeoutMs: 500, SaslEnable: true, SaslUser: u, SaslPassword: p",
        ),
        (
            &["proxy"],
            "Proxy, Address: 'localhost:1', TimeoutSec: 2, ConnectionBufferSizeKB: 64, Partitioner: ascii, Delimiter: ':'",
        ),
        (
            &["websocket"],
            "Socket, Address: 'unix:///tmp/s', Acknowledge: OK, AckTimeoutMs: 20, ConnectionBufferSizeKB: 64",
        ),
        (
            &["statsd"],
            "StatsdMetrics, Server: 'localhost:1', Prefix: p., StreamMapping: { s: m }, UseMessage: true, UseGauge: true",
        ),
        (&["websocket"], "Websocket, Address: ':8081', Path: /x, ReadTimeoutSec: 2, IgnoreOrigin: true"),
    ];
    for (needs, producer) in producers {
        if !lacks(needs) {
            checked(&format!("In: {{ Type: consumer.Console, Streams: s }}\nOut: {{ Type: producer.{producer}, Streams: s, ChannelTimeoutMs: 0 }}\n").replace(", ChannelTimeoutMs: 0", if ["Aws", "File", "ElasticSearch", "InfluxDB"].iter().any(|batched| producer.starts_with(batched)) { "" } else { ", ChannelTimeoutMs: 0" }));
        }
    }
    if !lacks(&["spool", "internal_logs", "route_by"]) {
        checked(
            "In: { Type: consumer.Console, Streams: [s, t] }\n\
             Out: { Type: producer.Console, Streams: [s, t], FallbackStream: f, ChannelTimeoutMs: 10, Modulators: [format.Envelope] }\n\
             Spool: { Type: producer.Spooling, Streams: f, Path: spool, FallbackStream: last }\n\
             Last: { Type: producer.Null, Streams: [last, _GOLLUM_] }\n\
             Trace: { Type: producer.Null, Streams: _TRACE_ }\n",
        );
    }
}

#[test]
fn routers_become_pipelines_that_are_right() {
    if lacks(&["route_by"]) {
        return;
    }
    checked(
        "In: { Type: consumer.Console, Streams: [turns, chance, copies, named] }\n\
         Turns: { Type: router.RoundRobin, Stream: turns }\n\
         Chance: { Type: router.Random, Stream: chance, TimeoutMs: 20 }\n\
         Copies: { Type: router.Distribute, Stream: copies, TargetStreams: [copies, turns] }\n\
         Named: { Type: router.Metadata, Stream: named, Key: to/stream }\n\
         A: { Type: producer.Null, Streams: [turns, chance, named] }\n\
         B: { Type: producer.Benchmark, Streams: [turns, chance, copies] }\n\
         C: { Type: producer.Console, Streams: '*', ChannelTimeoutMs: -1, FallbackStream: chance }\n",
    );
}

// Cases that gollum gets wrong, and that are correct here.

#[test]
fn the_order_is_kept_with_modulator_routines() {
    let house = House::with(&[(
        "gollum.conf",
        "In: { Type: consumer.Console, Streams: a, ModulatorRoutines: 4, Modulators: [ format.Trim ] }\n\
         Out: { Type: producer.Console, Streams: a, Modulators: [ format.Envelope ] }\n",
    )]);
    let input: String = (0..300_000).map(|number| format!("{number}\n")).collect();
    let said = house.run_with_input(&["run", "gollum.conf", "--quiet"], input.as_bytes());
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.out == input, "{} bytes of {}", said.out.len(), input.len());
}

#[test]
fn a_percent_sign_before_more_text_leaks_nothing_into_the_messages() {
    let house = House::with(&[(
        "gollum.conf",
        "In: { Type: consumer.Profiler, Runs: 2, Batches: 1, Message: 'pct=%% | %1d', Characters: x, Streams: a }\n\
         Out: { Type: producer.Console, Streams: a, Modulators: [ format.Envelope ] }\n",
    )]);
    for line in house.run_well(&["run", "gollum.conf", "--quiet"]).out.lines() {
        let number = line.strip_prefix("pct=% | ").unwrap_or_else(|| panic!("{line}"));
        assert!(number.parse::<u8>().is_ok_and(|number| number < 10), "{line}");
    }
}

#[test]
fn a_message_that_a_formatter_cannot_process_is_kept_with_its_reason() {
    let house = House::with(&[(
        "gollum.conf",
        "In: { Type: consumer.Console, Streams: a, Modulators: [ format.JSON ] }\n\
         Out: { Type: producer.Console, Streams: a, Modulators: [ format.ToJSON, format.Envelope ] }\n",
    )]);
    let said = house.run_with_input(&["run", "gollum.conf", "--quiet"], b"{\"a\":1}\nno json\n{\"a\":2}\n");
    assert_eq!((said.code, said.out.as_str()), (Some(0), "{\"a\":1}\n{\"a\":2}\n"));
    let listed = house.run_well(&["errors", "list", "gollum.conf"]);
    assert!(listed.out.contains("no json"), "{}", listed.out);
}

#[test]
fn a_message_that_a_producer_cannot_deliver_reaches_its_fallback_unchanged() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    drop(taken);
    let house = House::with(&[(
        "gollum.conf",
        &format!(
            "In: {{ Type: consumer.Console, Streams: a }}\n\
             Out: {{ Type: producer.Socket, Address: 'tcp://{address}', Streams: a, FallbackStream: lost, \
             Modulators: [ format.Base64Encode ] }}\n\
             Lost: {{ Type: producer.Console, Streams: lost, Modulators: [ format.Envelope ] }}\n"
        ),
    )]);
    let said = house.run_with_input(&["run", "gollum.conf", "--quiet"], b"one\ntwo\n");
    assert_eq!((said.code, said.out.as_str()), (Some(0), "one\ntwo\n"), "{}", said.err);
}

#[cfg(unix)]
#[test]
fn gollums_command_line_runs_its_configurations() {
    let text = "\
- \"consumer.Console\":
    Stream: s
    Fuse: f
    NoSuchSetting: 1
- \"producer.Console\":
    Stream: s
    Formatter: format.Envelope
    EnvelopeFormatter: format.ProcessJSON
    ProcessJSONDirectives: [\"a:rename:b\"]
";
    let house = House::with(&[("gollum.conf", text)]);
    let said = house.run_with_input(
        &["gollum", "-c", "gollum.conf", "-ll", "0", "-p", "gollum.pid", "-n", "1"],
        b"{\"a\":1}\nno JSON\n",
    );
    assert_eq!((said.code, said.out.as_str()), (Some(0), "{\"b\":1}\nno JSON\n"), "{}", said.err);
    assert!(house.read("gollum.pid").parse::<u32>().is_ok());
    assert_eq!(house.run(&["gollum", "-tc", "gollum.conf"]).code, Some(0));
    let said = house.run(&["gollum", "-tc", "missing.conf"]);
    assert!(said.code == Some(2) && said.err.contains("missing.conf"), "{}", said.err);
    let said = house.run(&["gollum", "-x"]);
    assert!(said.code == Some(2) && said.err.contains("gollum has no option `-x`"), "{}", said.err);
    assert!(house.run_well(&["gollum", "-h"]).out.contains("-testconfig"));
    assert!(house.run_well(&["gollum", "-l"]).out.contains("parse_json"));
    assert!(house.run_well(&["gollum", "-v"]).out.starts_with("thalweg "));
}

#[test]
fn a_version_of_gollum_can_be_given() {
    let text = "\
In:
  Type: consumer.Console
  Streams: s
  Modulators: [format.SplitPick: { Index: 1 }, format.Envelope]
Out: { Type: producer.Console, Streams: s }
";
    let house = House::with(&[("gollum.conf", text), ("own.yaml", "sources: {}\n")]);
    for (version, expected) in [("0.5", "b,c\n"), ("0.6", "c\n")] {
        let said = house.run_with_input(&["run", "gollum.conf", "--gollum", version], b"a:b,c\n");
        assert_eq!((said.code, said.out.as_str()), (Some(0), expected), "{}", said.err);
    }
    let checked = house.run_well(&["check", "gollum.conf"]).out;
    assert!(checked.contains("In 0.5 it was `:`"), "{checked}");
    let said = house.run(&["check", "own.yaml", "--gollum", "0.5"]);
    assert!(
        said.code == Some(2) && said.err.contains("`--gollum` is for configurations of gollum"),
        "{}",
        said.err
    );
    let said = house.run(&["check", "gollum.conf", "--gollum", "0.7"]);
    assert!(said.code == Some(2) && said.err.contains("0.4, 0.5 and 0.6"), "{}", said.err);
}

/// Returns the names of the rotated files, the oldest first, and the name that the link leads to.
fn rotated(house: &House) -> (Vec<String>, String) {
    let entries = std::fs::read_dir(house.path().join("out")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name != "o_current.log").collect();
    names.sort_by_key(|name| (name.len(), name.clone()));
    let leads = std::fs::read_link(house.path().join("out/o_current.log")).unwrap();
    (names, leads.into_os_string().into_string().unwrap())
}

fn wait_for(mut what: impl FnMut() -> bool) {
    while !what() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn rotated_files_have_gollums_names_and_a_link_after_a_kill_and_a_hang_up() {
    let text = "\
In: { Type: consumer.File, Streams: s, Files: in.log, DefaultOffset: oldest }
Out:
  Type: producer.File
  Streams: s
  File: out/o.log
  Modulators: [format.Envelope]
  Rotation: { Enable: true, SizeMB: 1, Timestamp: \"2006\", ZeroPadding: 2 }
";
    let line = |number: u32| format!("{number:0100}\n");
    let mut input: String = (0..60_000).map(line).collect();
    let house = House::with(&[("gollum.conf", text), ("in.log", &input)]);
    let year = chrono::Local::now().format("%Y").to_string();
    let name = |number: u32| match number {
        0 => format!("o_{year}.log"),
        _ => format!("o_{year}_{number:02}.log"),
    };
    let start = || {
        let mut command = house.command(&["run", "gollum.conf", "--state", "state", "--quiet"]);
        command.stderr(Stdio::piped()).spawn().unwrap()
    };
    // The run may remove a file between the listing and the look into it.
    let read =
        |name: &String| std::fs::read_to_string(house.path().join("out").join(name)).unwrap_or_default();
    let written = || -> String { rotated(&house).0.iter().map(read).collect() };
    let mut killed = start();
    wait_for(|| house.path().join("out").join(name(2)).exists());
    killed.kill().unwrap();
    killed.wait().unwrap();
    let child = start();
    wait_for(|| written().len() >= input.len());
    assert_eq!(rotated(&house), ((0..6).map(name).collect(), name(5)));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    let mut added = std::fs::OpenOptions::new().append(true).open(house.path().join("in.log")).unwrap();
    let mut number = 60_000;
    // Lines that are written before the signal arrives belong to the former file.
    wait_for(|| {
        added.write_all(line(number).as_bytes()).unwrap();
        input += &line(number);
        number += 1;
        rotated(&house).1 == name(6)
    });
    wait_for(|| written().len() >= input.len());
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let said = common::said(child.wait_with_output().unwrap());
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(rotated(&house), ((0..7).map(name).collect(), name(6)));
    assert!(written() == input, "{} of {} bytes", written().len(), input.len());
}

#[test]
fn a_file_of_passwords_that_cannot_be_used_is_a_mistake_at_its_place() {
    let text = "\
In:
  Type: consumer.HTTP
  Streams: s
  Htpasswd: users
Out: { Type: producer.Null, Streams: s }
";
    let house = House::with(&[("gollum.conf", text)]);
    let missing = house.run(&["check", "gollum.conf"]);
    assert_eq!(missing.code, Some(2));
    assert!(missing.err.contains("gollum.conf:4:13"), "{}", missing.err);
    assert!(missing.err.contains("cannot read `users`: it does not exist"), "{}", missing.err);
    house.write("users", b"# those who may\nme:secret\n");
    let wrong = house.run(&["check", "gollum.conf"]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.err.contains("gollum.conf:4:13"), "{}", wrong.err);
    assert!(wrong.err.contains("line 2 of `users` cannot be used"), "{}", wrong.err);
    assert!(!wrong.err.contains("secret"), "{}", wrong.err);
    house.write("users", b"me:{SHA}VBPuJHI7uixaa6LQGWx4s+5GKNE=\n");
    house.run_well(&["check", "gollum.conf"]);
}

#[test]
fn the_log_arrives_at_the_level_that_was_chosen_with_gollums_names() {
    // The first producer cannot write, so its fallback is used, which is a warning.
    let text = "\
In: { Type: consumer.Profiler, Streams: s, Runs: 1, Batches: 1 }
Taken: { Type: producer.File, Streams: s, File: taken, FallbackStream: other }
Other: { Type: producer.Null, Streams: other }
Log:
  Type: producer.File
  Streams: _GOLLUM_
  File: log.txt
  Modulators:
    - format.ToCSV: { Keys: [Level, PluginType] }
    - format.Envelope
";
    for (level, expected) in [("0", ""), ("1", "warning,thalweg_engine\n")] {
        let house = House::with(&[("gollum.conf", text)]);
        std::fs::create_dir(house.path().join("taken")).unwrap();
        house.run_well(&["gollum", "-c", "gollum.conf", "-ll", level]);
        let log = house.read("log.txt");
        assert_eq!(log.replace("::run::sink", ""), expected, "-ll {level}");
    }
}
