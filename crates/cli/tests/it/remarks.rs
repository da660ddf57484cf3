//! Configurations that can be read, and do not work, or not as they are meant: mistakes between components,
//! and remarks.

use serde_json::Value;

use crate::common::House;

/// Returns the messages of `check`: the mistakes and the remarks.
fn checked(text: &str) -> [Vec<String>; 2] {
    let house = House::with(&[("x.yaml", text)]);
    let said = house.run(&["check", "x.yaml", "--json"]);
    let found: Value = serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{said:?}"));
    ["mistakes", "remarks"].map(|name| {
        let all = found[name].as_array().into_iter().flatten();
        all.map(|one| one["message"].as_str().unwrap().to_owned()).collect()
    })
}

/// Returns a configuration with these sources, which all lead to one sink.
fn of_sources(sources: &[&str], sink: &str) -> String {
    let names: Vec<String> = (0..sources.len()).map(|number| format!("in{number}")).collect();
    let sources: String =
        names.iter().zip(sources).map(|(name, source)| format!("  {name}: {{ {source} }}\n")).collect();
    format!(
        "sources:\n{sources}pipelines:\n  main: {{ from: [{}], to: out }}\nsinks:\n  out: {{ {sink} }}\n",
        names.join(", ")
    )
}

const NONE: [&str; 0] = [];

#[test]
fn two_components_that_listen_on_one_address_are_a_mistake() {
    let discard = "discard: {}";
    for (sources, at) in [
        (
            ["http: { address: ':8080' }", "http_upload: { address: '127.0.0.1:8080' }"],
            "tcp://127.0.0.1:8080",
        ),
        (["syslog: { address: 'udp://0.0.0.0:514' }", "socket: { address: 'udp://:514' }"], "udp://:514"),
        (["socket: { address: 'tcp://:1' }", "proxy: { address: 'tcp://:1' }"], "tcp://:1"),
        (
            ["socket: { address: 'unix:///run/a' }", "syslog: { address: 'unixgram:///run/./a' }"],
            "unix:///run/a",
        ),
        (["otlp: {}", "otlp: { grpc: '127.0.0.1:4317' }"], "tcp://127.0.0.1:4317"),
    ] {
        let files = sources[1].starts_with("http_upload");
        // A pipeline carries messages or files.
        let text = match files {
            true => format!(
                "sources: {{ in0: {{ {} }}, in1: {{ {} }} }}\n\
                 pipelines: {{ a: {{ from: in0, to: out }}, b: {{ from: in1, to: files }} }}\n\
                 sinks: {{ out: {{ discard: {{}} }}, files: {{ directory: {{ path: out }} }} }}\n",
                sources[0], sources[1]
            ),
            false => of_sources(&sources, discard),
        };
        let expected = format!("`in1` listens on `{at}`, as `in0` does: only one of them can.");
        assert_eq!(checked(&text)[0], [expected]);
    }
    let sink = "websocket: { address: '127.0.0.1:8080' }";
    let found = checked(&of_sources(&["http: { address: ':8080' }"], sink));
    assert_eq!(found[0], ["`out` listens on `tcp://127.0.0.1:8080`, as `in0` does: only one of them can."]);
    for sources in [
        ["http: { address: '127.0.0.1:0' }", "socket: { address: 'tcp://127.0.0.1:0' }"],
        ["syslog: { address: 'udp://:514' }", "socket: { address: 'tcp://:514' }"],
        ["http: { address: '127.0.0.1:8080' }", "http: { address: '127.0.0.1:8081' }"],
    ] {
        assert_eq!(checked(&of_sources(&sources, discard))[0], NONE, "{sources:?}");
    }
}

#[test]
fn a_metric_without_a_name_is_a_mistake() {
    let text = |sink: &str| of_sources(&["file: { path: '*.log' }"], sink);
    let found = checked(&text("prometheus_remote_write: { url: 'http://h', value: payload }"));
    let name = "No message has a field `name` at `out`, which needs it for `metric`: all would be rejected.";
    assert_eq!(found[0], [name]);
    let found = checked(&text("prometheus_remote_write: { url: 'http://h', metric: bytes }"));
    let value = "No message has a field `value` at `out`, which needs it for `value`: all would be rejected.";
    assert_eq!(found[0], [value]);
    let right = "prometheus_remote_write: { url: 'http://h', metric: bytes, value: payload }";
    assert_eq!(checked(&text(right)), [Vec::<String>::new(), Vec::new()]);
}

#[cfg(feature = "postgres")]
#[test]
fn a_sink_that_knows_positions_needs_sources_that_have_them() {
    let sink = "postgres: { server: h, table: t, exactly_once: true }";
    for source in [
        "generate: { count: 1 }",
        "stdin: {}",
        "http: { address: ':1' }",
        "socket: { address: 'tcp://:1' }",
        "postgres: { server: h, query: SELECT 1 }",
    ] {
        let message =
            "`out` knows stored messages by their positions, but those of `in0` have none that grow.";
        assert_eq!(checked(&of_sources(&[source], sink))[0], [message], "{source}");
    }
    for source in ["file: { path: '*.log' }", "postgres: { server: h, table: s }"] {
        assert_eq!(checked(&of_sources(&[source], sink))[0], NONE, "{source}");
    }
    let unordered =
        of_sources(&["file: { path: '*.log' }"], sink).replace("to: out", "ordered: false, to: out");
    let message = "`out` knows stored messages by their positions, so it needs them in order.";
    assert_eq!(checked(&unordered)[0], [message]);
    let sorted = unordered.replace("ordered: false", "transforms: [{ sort: { by: payload } }]");
    let message = "`out` knows stored messages by their positions, which they lose in `main.sort`.";
    assert_eq!(checked(&sorted)[0], [message]);
}

#[cfg(feature = "mqtt")]
#[test]
fn one_session_for_two_components_is_a_mistake() {
    let source = "mqtt: { servers: h, topics: a, client_id: c }";
    let found = checked(&of_sources(&[source], "mqtt: { servers: 'h:1883', topic: b, client_id: c }"));
    let message =
        "`out` has the `client_id` of `in0`: each would take the session of the other, without end.";
    assert_eq!(found[0], [message]);
}

#[cfg(feature = "kafka")]
mod of_kafka {
    use super::*;

    fn kafka(brokers: &str, more: &str) -> String {
        format!("kafka: {{ brokers: '{brokers}', {more} }}")
    }

    #[test]
    fn a_payload_that_an_encoder_leaves_out_is_remarked() {
        let text = |source: &str, transforms: &str, encode: &str| {
            let source = kafka("h:1", &format!("topics: t, group: g{source}"));
            let sink = format!("file: {{ path: out/x, encode: {encode} }}");
            of_sources(&[&source], &sink).replace("to: out", &format!("transforms: [{transforms}], to: out"))
        };
        let message = "`out` writes only the fields of `in0`: `key`. The payload, which no transform made fields of, \
                       is left out.";
        let key = ", fields: key";
        for (transforms, encode) in [("", "json"), ("", "logfmt"), ("filter: \"key = 'a'\"", "csv")] {
            assert_eq!(checked(&text(key, transforms, encode)), [vec![], vec![message.to_owned()]]);
        }
        for (source, transforms, encode) in [
            (key, "parse_json: {}", "json"),
            (key, "copy: { into: text }", "json"),
            (key, "", "raw"),
            (key, "", "{ format: json, fields: [key, payload] }"),
            (key, "", "{ format: json, fields: [key] }"),
            (key, "", "{ format: text, template: '{payload}' }"),
            // A message without fields is written by its payload.
            ("", "", "json"),
        ] {
            let found = checked(&text(source, transforms, encode));
            assert_eq!(found, [Vec::<String>::new(), Vec::new()], "{source} {transforms} {encode}");
        }
    }

    #[test]
    fn a_cluster_in_another_spelling_is_remarked() {
        let text = |source: &str, sink: &str| {
            let source = kafka(source, "topics: t, group: g");
            of_sources(&[&source], &kafka(sink, "topic: copies, transactional_id: x"))
        };
        let message = "The transactions of `out` do not have the positions of `in0`, because `127.0.0.1:9092` is \
                       another address than `localhost:9092`: messages may be there twice after a kill.";
        let found = checked(&text("localhost:9092", "127.0.0.1:9092"));
        assert_eq!(found, [vec![], vec![message.to_owned()]]);
        for (source, sink) in
            [("localhost:9092", "localhost:9092"), ("old.example.com:9092", "new.example.com:9092")]
        {
            assert_eq!(checked(&text(source, sink)), [Vec::<String>::new(), Vec::new()]);
        }
    }

    #[test]
    fn one_id_of_two_sinks_is_a_mistake_or_a_remark() {
        let text = |brokers: &str| {
            let [one, twin] = ["h:1", brokers].map(|brokers| kafka(brokers, "topic: t, transactional_id: x"));
            of_sources(&["generate: { count: 1 }"], &one).replace("to: out", "to: [out, twin]")
                + &format!("  twin: {{ {twin} }}\n")
        };
        let same =
            "`twin` has the `transactional_id` of `out`: each would end the transactions of the other.";
        assert_eq!(checked(&text("h:1"))[0], [same]);
        assert_eq!(
            checked(&text("h:2")),
            [vec![], vec!["`twin` has the `transactional_id` of `out`.".to_owned()]]
        );
        assert_eq!(checked(&text("i:1")), [Vec::<String>::new(), Vec::new()]);
    }

    #[test]
    fn members_of_one_group_that_read_other_topics_are_remarked() {
        let text = |topics: &str| {
            let [one, other] =
                ["[a, b]", topics].map(|topics| kafka("h:1", &format!("topics: {topics}, group: g")));
            of_sources(&[&one, &other], "discard: {}")
        };
        let message = "`in1` is a member of the group `g`, as `in0` is, but reads other topics.";
        assert_eq!(checked(&text("[a, c]")), [vec![], vec![message.to_owned()]]);
        assert_eq!(checked(&text("[b, a]")), [Vec::<String>::new(), Vec::new()]);
    }
}

#[test]
fn a_run_shows_remarks_unless_it_is_quiet() {
    let text = of_sources(&["generate: { lines: [a] }"], "otlp: { url: 'http://h:4317' }");
    let house = House::with(&[("x.yaml", &text)]);
    let remark = "4317 is usually the port of gRPC, but the sink sends by HTTP. (Receivers usually take HTTP at port 4318.)";
    for arguments in [&["check", "x.yaml"][..], &["run", "x.yaml", "--dry-run"]] {
        let said = house.run_well(arguments);
        let shown = said.out + &said.err;
        assert!(shown.contains("remark: x.yaml:6:") && shown.contains(remark), "{arguments:?}: {shown}");
    }
    let quiet = house.run_well(&["run", "x.yaml", "--dry-run", "--quiet"]);
    assert!(!quiet.err.contains("remark"), "{}", quiet.err);
}

#[test]
fn a_schedule_with_a_source_that_never_ends_has_a_remark() {
    for (source, end) in [
        ("file: { path: '*.log', follow: true }", ", or change `follow` so that each run ends"),
        ("exec: { command: [date], every: 1m }", ", or change `every` so that each run ends"),
        ("exec: { command: [date], restart: true }", ", or change `restart` so that each run ends"),
        ("http: { address: ':8080' }", ", or give `end_after_idle`, so that each run ends"),
        ("mqtt: { servers: h, topics: t, qos: 0 }", ", or give `end_after_idle`, so that each run ends"),
    ] {
        let text = format!("schedule: '@hourly'\n{}", of_sources(&[source], "discard: {}"));
        let house = House::with(&[("x.yaml", &text)]);
        let said = house.run(&["check", "x.yaml", "--json"]);
        let found: Value = serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{said:?}"));
        let remark = &found["remarks"][0];
        let message = "`in0` never ends: the first run of the `schedule` is the only one, unless it fails.";
        assert_eq!(remark["message"], message, "{source}: {said:?}");
        let help = format!("Leave out `schedule`, and the run begins at once{end}.");
        assert_eq!(remark["help"], help, "{source}: {said:?}");
    }
    for source in ["file: { path: '*.log' }", "exec: { command: [date] }"] {
        let text = format!("schedule: '@hourly'\n{}", of_sources(&[source], "discard: {}"));
        assert_eq!(checked(&text), [NONE; 2], "{source}");
    }
    assert_eq!(checked(&of_sources(&["http: { address: ':8080' }"], "discard: {}"))[1], NONE);
}

#[test]
fn a_time_as_other_programs_write_it_has_a_remark() {
    for (sink, format, option) in [
        ("file: { path: 'out/log-%Y-%m-%d.log' }", "%Y-%m-%d", "path"),
        ("objects: { url: 'out/%Y/%m/all.log' }", "%Y/%m", "url"),
        ("elasticsearch: { url: 'http://h', index: 'logs-%Y.%m.%d' }", "%Y.%m.%d", "index"),
    ] {
        let found = checked(&of_sources(&["file: { path: '*.log' }"], sink));
        let expected = format!("`{format}` in `{option}` is plain text: a time is written in braces.");
        assert_eq!(found, [Vec::new(), vec![expected]], "{sink}");
    }
    let sink = "file: { path: 'out/{now:%Y-%m-%d}.log' }";
    assert_eq!(checked(&of_sources(&["file: { path: '*.log' }"], sink)), [NONE; 2]);
}

#[test]
fn what_an_expression_probably_does_not_mean_has_a_remark() {
    let known = "parse_json: { fields: [a, s] }";
    let unknown = "parse_json: {}";
    for (parse, transform, expected) in [
        (known, "filter: ts IS NULL", "No message has a field `ts` here: in `ts IS NULL` it is always NULL."),
        (
            known,
            "route: { b: \"coalesce(ss, 'x') = 'x'\" }",
            "No message has a field `ss` here: in `coalesce(ss, 'x') = 'x'` it is always NULL.",
        ),
        (
            unknown,
            "set: { w: s | upper }",
            "`s | upper` joins the bits of two numbers, and `upper` is a field there.",
        ),
        (unknown, "filter: 's <> \"y\"'", "`\"y\"` is the name of a field, because of its double quotes."),
    ] {
        let more = if transform.starts_with("route") { ", more: { from: main.b, to: out }" } else { "" };
        let text = format!(
            "sources: {{ in: {{ file: {{ path: '*.log' }} }} }}\npipelines: {{ main: {{ from: in, transforms: [{{ \
             {parse} }}, {{ {transform} }}], to: out }}{more} }}\nsinks: {{ out: {{ discard: {{}} }} }}\n"
        );
        assert_eq!(checked(&text), [Vec::new(), vec![expected.to_owned()]], "{transform}");
    }
    let text = "sources: { in: { file: { path: '*.log' } } }\npipelines:\n  main:\n    from: in\n    transforms:\n      \
                - parse_json: { fields: [a, s] }\n      - set: { b: a, c: \"coalesce(b, 'x')\" }\n      \
                - filter: c IS NULL OR s IS NULL\n    to: out\nsinks: { out: { discard: {} } }\n";
    assert_eq!(checked(text), [NONE; 2]);
}

#[test]
fn a_file_that_does_not_exist_has_a_remark_in_a_check_only() {
    let none = "discard: {}";
    for (source, sink, expected) in [
        ("file: { path: in.txt }", none, "`in.txt`, which `in0` reads, does not exist."),
        (
            "file: { path: x.yaml }",
            "http: { url: 'https://h', tls: { ca: no.pem } }",
            "`no.pem`, which `out` reads, does not exist.",
        ),
        (
            "http: { address: ':1', tls: { certificate: x.yaml, key: no.key } }",
            none,
            "`no.key`, which `in0` reads, does not exist.",
        ),
    ] {
        assert_eq!(
            checked(&of_sources(&[source], sink)),
            [Vec::new(), vec![expected.to_owned()]],
            "{source}"
        );
    }
    let text = "sources: { in: { file: { path: x.yaml } } }\npipelines: { main: { from: in, transforms: [join: { table: \
                no.csv, on: { payload: a } }], to: out } }\nsinks: { out: { discard: {} } }\n";
    let expected = "`no.csv`, which `main.join` reads, does not exist.";
    assert_eq!(checked(text), [Vec::new(), vec![expected.to_owned()]]);
    for source in ["file: { path: in.txt, follow: true }", "file: { path: in.txt, on_missing: ignore }"] {
        assert_eq!(checked(&of_sources(&[source], none)), [NONE; 2], "{source}");
    }
    let house = House::with(&[("x.yaml", &of_sources(&["file: { path: in.txt }"], none))]);
    let ran = house.run(&["run", "x.yaml"]);
    assert!(!ran.err.contains("remark"), "{ran:?}");
}

#[test]
fn a_method_that_servers_hardly_know_has_a_remark() {
    let sink = |method: &str| format!("http: {{ url: 'http://h', method: {method} }}");
    for (method, near) in [("FETCH", "PATCH"), ("post", "POST")] {
        let text = of_sources(&["file: { path: '*.log' }"], &sink(method));
        let house = House::with(&[("x.yaml", &text)]);
        let said = house.run(&["check", "x.yaml", "--json"]);
        let found: Value = serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{said:?}"));
        let message = format!("`{method}` is a method that few servers know.");
        assert_eq!(found["remarks"][0]["message"], message);
        assert_eq!(found["remarks"][0]["help"], format!("Did you mean `{near}`?"));
    }
    assert_eq!(checked(&of_sources(&["file: { path: '*.log' }"], &sink("PUT"))), [NONE; 2]);
}
