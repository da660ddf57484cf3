//! Requests that the SDK of OpenTelemetry sent, and requests with every field, become columns and return.

use std::collections::BTreeMap;

use arrow_array::{Array, RecordBatch, cast::AsArray};
use arrow_buffer::Buffer;
use proptest::prelude::*;
use thalweg_record::testing::{batch, payloads};
use thalweg_record::{Batch, Budget};

use super::*;
use crate::template::column;

const LOGS: &[u8] = include_bytes!("samples/logs.bin");
const METRICS: &[u8] = include_bytes!("samples/metrics.bin");
const TRACES: &[u8] = include_bytes!("samples/traces.bin");
const ALL_METRICS: &[u8] = include_bytes!("samples/all_metrics.bin");
const ALL_TRACES: &[u8] = include_bytes!("samples/all_traces.bin");

fn decoder(signal: Signal, request: &[u8]) -> Decoder {
    Decoder::new(signal, Buffer::from_vec(request.to_vec()), &Budget::new(64 << 20)).unwrap()
}

/// Decodes a request whose records are one part. Returns them as a batch.
fn decoded(signal: Signal, request: &[u8]) -> Batch {
    let mut decoder = decoder(signal, request);
    let part = decoder.part().unwrap().unwrap();
    assert!(part.rejected.is_none(), "{:?}", part.rejected);
    assert!(decoder.part().unwrap().is_none() && decoder.is_done());
    as_batch(part.records)
}

fn as_batch(records: Records) -> Batch {
    let empty = batch(vec![""; records.fields.num_rows()]);
    empty.with_payload(records.payload).unwrap().with_fields(records.fields).unwrap()
}

fn wrong(signal: Signal, request: &[u8]) -> String {
    let mut decoder = decoder(signal, request);
    loop {
        match decoder.part() {
            Ok(part) => assert!(part.is_some(), "the request is valid"),
            Err(reason) => return reason,
        }
    }
}

/// Returns a message with these fields.
fn fields(fields: &[(u32, &[u8])]) -> Vec<u8> {
    let mut message = Vec::new();
    fields.iter().for_each(|(number, bytes)| write::bytes_field(*number, bytes, &mut message));
    message
}

/// Encodes all messages of a batch as one request.
fn encoded(signal: Signal, batch: &Batch) -> Vec<u8> {
    let encoder = Encoder::new(Signal::Logs, &BTreeMap::new(), Vec::new());
    let mut bound = encoder.bind(batch);
    let parts: Vec<Vec<u8>> = (0..batch.rows())
        .map(|row| {
            assert_eq!(bound.signal(row), Ok(signal));
            let mut part = Vec::new();
            bound.write(signal, row, &mut part).unwrap();
            assert_eq!(signal_of(&part), Some(signal));
            part
        })
        .collect();
    request(parts.iter().map(Vec::as_slice))
}

/// The text of each column in a row that has a value there.
fn row(batch: &Batch, row: usize) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for field in batch.fields().schema().fields() {
        let values = column(batch, field.name());
        if !values.is_null(row) {
            let mut text = Vec::new();
            values.write_json(row, &mut text);
            found.insert(field.name().clone(), String::from_utf8(text).unwrap());
        }
    }
    found
}

fn assert_row(batch: &Batch, number: usize, expected: &[(&str, &str)]) {
    let found = row(batch, number);
    for (name, value) in expected {
        assert_eq!(found.get(*name).map(String::as_str), Some(*value), "{name} of {found:?}");
    }
}

#[test]
fn log_records_are_columns() {
    let batch = decoded(Signal::Logs, LOGS);
    let texts = ["order o-1 taken", "order.cancelled", "zürich \"quoted\"\nsecond line"];
    let body = r#"{"error":"no stock","items":[1,2.5,null,{"a":"b"}],"big":1152921504606846976}"#;
    let found = payloads(&batch);
    assert_eq!(found, [texts[0], body, texts[1], texts[2]]);
    assert_row(
        &batch,
        0,
        &[
            ("time_unix_nano", "\"2023-11-14T22:13:20.123456789Z\""),
            ("observed_time_unix_nano", "\"2023-11-14T22:13:20.123457789Z\""),
            ("severity_number", "9"),
            ("severity_text", "\"INFO\""),
            ("body", "\"order o-1 taken\""),
            ("attributes", r#"{"user":"ada","count":3,"price":9.5,"raw":{"bytesValue":"AP8="}}"#),
            ("flags", "3"),
            ("scope_name", "\"shop.log\""),
            ("scope_version", "\"0.9\""),
            ("scope_attributes", r#"{"team":"blue"}"#),
            (
                "resource_attributes",
                r#"{"service.name":"shop","service.version":"1.2.3","host.cpus":4,"debug":true,"zones":["a","b"]}"#,
            ),
            ("signal", "\"logs\""),
        ],
    );
    let first = row(&batch, 0);
    assert_eq!((first["trace_id"].len(), first["span_id"].len()), (34, 18));
    assert_row(&batch, 1, &[("body", body), ("severity_number", "17"), ("scope_name", "\"shop.log\"")]);
    assert_row(
        &batch,
        2,
        &[
            ("event_name", "\"order.cancelled\""),
            ("attributes", r#"{"order":"o-2","nan":{"doubleValue":"NaN"}}"#),
        ],
    );
    assert!(!row(&batch, 2).contains_key("body"));
}

#[test]
fn spans_and_points_are_columns() {
    let spans = decoded(Signal::Traces, TRACES);
    assert_eq!(payloads(&spans), ["select", "GET /orders", "plain"]);
    assert_row(
        &spans,
        0,
        &[
            ("kind", "\"client\""),
            ("status_code", "\"error\""),
            ("status_message", "\"no such table\""),
            ("scope_schema_url", "\"https://example.com/schema\""),
        ],
    );
    let parent = row(&spans, 1);
    assert_eq!(row(&spans, 0)["parent_span_id"], parent["span_id"]);
    assert!(parent["events"].contains(r#""name":"cache miss","attributes":{"key":"o-1","size":12}"#));
    assert!(row(&spans, 0)["links"].ends_with(r#""attributes":{"why":"parent"},"flags":256}]"#));
    assert!(!row(&spans, 2).contains_key("scope_schema_url"));
    let points = decoded(Signal::Metrics, ALL_METRICS);
    assert_eq!(payloads(&points), ["latency", "wait", "size", "stopped", "total", "total"]);
    assert_row(
        &points,
        0,
        &[
            ("type", "\"summary\""),
            ("count", "3"),
            ("sum", "4.5"),
            ("quantile_values", r#"[{"quantile":0.5,"value":1.25},{"quantile":0.99,"value":3.0}]"#),
            ("metadata", r#"{"kind":"old"}"#),
            ("resource_dropped_attributes_count", "1"),
            ("resource_entity_refs", r#"[{"type":"service","id_keys":["service.name"]}]"#),
        ],
    );
    assert_row(
        &points,
        1,
        &[
            ("bucket_counts", "[1,1,0]"),
            ("explicit_bounds", "[0.0,10.0]"),
            ("aggregation_temporality", "\"delta\""),
            ("min", "-1.0"),
        ],
    );
    let positive = r#"{"offset":-3,"bucket_counts":[1,0,2]}"#;
    assert_row(&points, 2, &[("scale", "-1"), ("positive", positive), ("zero_threshold", "0.001")]);
    assert!(!row(&points, 2).contains_key("metadata"));
    assert_row(&points, 4, &[("as_int", "4611686018427387904"), ("is_monotonic", "true")]);
    assert_row(&points, 5, &[("as_double", "0.0"), ("name", "\"total\"")]);
}

#[test]
fn columns_become_the_same_request() {
    for (signal, sample) in
        [(Signal::Metrics, METRICS), (Signal::Metrics, ALL_METRICS), (Signal::Traces, ALL_TRACES)]
    {
        assert_eq!(encoded(signal, &decoded(signal, sample)), sample);
    }
    // These samples have messages without fields, which are as good as none.
    for (signal, sample) in [(Signal::Logs, LOGS), (Signal::Traces, TRACES)] {
        let batch = decoded(signal, sample);
        let again = decoded(signal, &encoded(signal, &batch));
        assert_eq!((again.fields(), payloads(&again)), (batch.fields(), payloads(&batch)));
    }
}

#[test]
fn requests_in_json_are_those_in_the_binary_form() {
    for (signal, json, sample) in [
        (Signal::Logs, &include_bytes!("samples/logs.json")[..], LOGS),
        (Signal::Metrics, include_bytes!("samples/all_metrics.json"), ALL_METRICS),
        (Signal::Traces, include_bytes!("samples/all_traces.json"), ALL_TRACES),
    ] {
        assert_eq!(request_of_json(signal, json).as_deref(), Ok(sample), "{signal:?}");
    }
    let of = |json: &str| request_of_json(Signal::Logs, json.as_bytes());
    assert_eq!(of("{}"), Ok(Vec::new()));
    assert_eq!(of(r#"{"unknown":[{"x":1}],"resourceLogs":[]}"#), Ok(Vec::new()));
    let record = |inner: &str| {
        of(&format!(r#"{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{{{inner}}}]}}]}}]}}"#))
    };
    assert_eq!(record(r#""severityNumber":"9""#), record(r#""severity_number":9.0"#));
    for (inner, reason) in [
        (r#""severityNumber":1.5"#, "is not valid: `severity_number` cannot be the number 1.5 at line 1"),
        (r#""traceId":"xyz""#, "is not valid: `trace_id` is not hexadecimal digits: `xyz` at line 1"),
        (r#""attributes":{"a":1}"#, "is not valid: `attributes` cannot be an object at line 1"),
        (
            r#""body":{"bytesValue":"?"}"#,
            "is not valid: `bytes_value` cannot be what is not Base64 at line 1",
        ),
        (r#""flags":-1"#, "is not valid: `flags` cannot be the number -1 at line 1"),
    ] {
        let error = record(inner).unwrap_err();
        assert!(error.starts_with(reason), "{error}");
    }
    assert!(of("[]").unwrap_err().starts_with("is not valid: invalid type: sequence, expected an object"));
    let text = format!("\"{}\"", "é".repeat(4000));
    assert!(of(&text).unwrap_err().len() < 2000);
    let bytes = |text: &str| record(&format!(r#""body":{{"bytesValue":"{text}"}}"#));
    assert_eq!(bytes("-_8"), bytes("+/8="));
    assert!(bytes("-_8").is_ok());
    assert!(of("{} x").unwrap_err().starts_with("is not valid: trailing characters"));
}

#[test]
fn what_is_no_request_says_where() {
    assert_eq!(wrong(Signal::Logs, b"\x0a\x05"), "is not valid: it is cut off at its byte 2");
    // A resource with a scope with a record whose text is not UTF-8.
    let text = b"\x0a\x07\x12\x05\x12\x03\x1a\x01\xff";
    assert_eq!(
        wrong(Signal::Logs, text),
        "is not valid: in its record 0 (from 0), the field `severity_text` is not UTF-8, at byte 0"
    );
    let number = b"\x0a\x06\x12\x04\x12\x02\x18\x01";
    assert_eq!(
        wrong(Signal::Logs, number),
        "is not valid: in its record 0 (from 0), the field `severity_text` is an integer of variable length, \
         which its type is not"
    );
    let mut deep = Vec::new();
    for _ in 0..150 {
        let mut outer = Vec::new();
        let start = write::begin(schema::any::ARRAY, &mut outer);
        let inner = write::begin(schema::ELEMENT, &mut outer);
        outer.extend_from_slice(&deep);
        write::end(inner, &mut outer);
        write::end(start, &mut outer);
        deep = outer;
    }
    let mut whole = deep;
    for number in [schema::BODY, schema::INNER, schema::INNER, schema::GROUPS] {
        let mut outer = Vec::new();
        write::bytes_field(number, &whole, &mut outer);
        whole = outer;
    }
    assert!(wrong(Signal::Logs, &whole).ends_with("the field `body` is nested deeper than 100 levels"));
}

#[test]
fn a_record_with_a_value_that_no_column_holds_is_rejected_alone() {
    let mut scope = Vec::new();
    for record in [&b"\x4a\x02ab"[..], b"\x1a\x02ok", b"\x09\xff\xff\xff\xff\xff\xff\xff\xff\x52\x01a"] {
        write::bytes_field(schema::INNER, record, &mut scope);
    }
    let (mut resource, mut whole) = (Vec::new(), Vec::new());
    write::bytes_field(schema::INNER, &scope, &mut resource);
    write::bytes_field(schema::GROUPS, &resource, &mut whole);
    let part = decoder(Signal::Logs, &whole).part().unwrap().unwrap();
    assert_eq!(row(&as_batch(part.records), 0)["severity_text"], "\"ok\"");
    let (records, reasons) = part.rejected.unwrap();
    assert_eq!(records.fields.num_rows(), 2);
    assert_eq!(
        reasons,
        ["the field `trace_id` has 2 bytes, not 16", "the field `time_unix_nano` is after the year 2262"]
    );
}

#[test]
fn many_records_come_in_parts_that_have_their_groups() {
    let mut scope = Vec::new();
    write::bytes_field(schema::HEAD, b"\x0a\x04name", &mut scope);
    (0..5000).for_each(|_| write::bytes_field(schema::INNER, b"", &mut scope));
    let (mut resource, mut whole) = (Vec::new(), Vec::new());
    write::bytes_field(schema::INNER, &scope, &mut resource);
    write::bytes_field(schema::GROUPS, &resource, &mut whole);
    let budget = Budget::new(1 << 20);
    let mut decoder = Decoder::new(Signal::Logs, Buffer::from_vec(whole), &budget).unwrap();
    let (mut parts, mut rows) = (0, 0);
    while let Some(part) = decoder.part().unwrap() {
        let fields: RecordBatch = part.records.fields;
        let names = fields.column_by_name("scope_name").unwrap().as_string_view();
        assert!((0..names.len()).all(|row| names.value(row) == "name"));
        (parts, rows) = (parts + 1, rows + fields.num_rows());
    }
    assert_eq!(rows, 5000);
    assert!(parts > 1);
}

/// Returns a request with this resource and scope, whose records are these.
fn in_groups(resource: &[u8], records: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut scope = Vec::new();
    records.for_each(|record| write::bytes_field(schema::INNER, &record, &mut scope));
    let resource = fields(&[(schema::HEAD, resource), (schema::INNER, &scope)]);
    fields(&[(schema::GROUPS, &resource)])
}

/// An attribute of a mebibyte, in the field 1 of a resource.
fn large_attribute() -> Vec<u8> {
    let text = fields(&[(schema::any::TEXT, "x".repeat(1 << 20).as_bytes())]);
    fields(&[(1, &fields(&[(schema::KEY, b"a"), (schema::VALUE, &text)]))])
}

#[test]
fn a_batch_ends_when_its_rows_share_much() {
    let request = in_groups(&large_attribute(), std::iter::repeat_n(Vec::new(), 20));
    let mut decoder = decoder(Signal::Logs, &request);
    let parts = std::iter::from_fn(|| decoder.part().unwrap());
    let rows: Vec<usize> = parts.map(|part| part.records.payload.len()).collect();
    // Two mebibytes in each row: the attribute in the request, and its JSON.
    assert_eq!(rows, [8, 8, 4]);
}

#[test]
fn a_large_resource_of_many_records_is_refused() {
    let request = in_groups(&large_attribute(), std::iter::repeat_n(Vec::new(), 600));
    let reason = wrong(Signal::Logs, &request);
    let expected = "is not valid: in its record 127 (from 0), it has a resource, scope or metric that is too \
                    large for this number of records: send fewer of them in a request";
    assert_eq!(reason, expected);
    // Batches that are smaller than usual do not count.
    let request = in_groups(&large_attribute(), std::iter::repeat_n(Vec::new(), 66));
    let mut decoder = decoder(Signal::Logs, &request).of_rows(Some(1));
    assert_eq!(std::iter::from_fn(|| decoder.part().unwrap()).count(), 66);
}

#[test]
fn a_request_whose_rows_share_far_more_than_it_has_is_refused() {
    let text = fields(&[(schema::any::TEXT, "x".repeat(5000).as_bytes())]);
    let resource = fields(&[(1, &fields(&[(schema::KEY, b"a"), (schema::VALUE, &text)]))]);
    let reason = wrong(Signal::Logs, &in_groups(&resource, std::iter::repeat_n(Vec::new(), 50_000)));
    assert!(reason.contains("is too large for this number of records"), "{reason}");
    // As many records that have something to say are usual.
    let record = fields(&[(3, "x".repeat(100).as_bytes())]);
    let request = in_groups(&resource, std::iter::repeat_n(record, 50_000));
    let mut decoder = decoder(Signal::Logs, &request);
    let parts = std::iter::from_fn(|| decoder.part().unwrap());
    assert_eq!(parts.map(|part| part.records.payload.len()).sum::<usize>(), 50_000);
}

#[test]
fn a_text_that_grows_too_much_in_json_is_refused() {
    let of = |text: &str| {
        let body = fields(&[(schema::any::TEXT, text.as_bytes())]);
        in_groups(b"", std::iter::once(fields(&[(schema::BODY, &body)])))
    };
    let budget = Budget::new(1 << 20);
    let part = |text: &str| {
        let mut decoder = Decoder::new(Signal::Logs, Buffer::from_vec(of(text)), &budget).unwrap();
        assert!(decoder.working_memory() <= 12 * (text.len() + 64));
        decoder.part().map(|part| part.is_some())
    };
    let reason = part(&"\u{1}".repeat(1 << 20)).unwrap_err();
    assert!(
        reason.contains("the field `body` is larger than ") && reason.ends_with(" bytes as JSON"),
        "{reason}"
    );
    assert_eq!(part(&"\n".repeat(1 << 20)), Ok(true));
    assert_eq!(part(&"\u{1}".repeat(1 << 10)), Ok(true));
}

#[test]
fn fields_that_are_not_known_are_read_once_for_all_points_of_a_metric() {
    const COUNT: usize = 50_000;
    let points: Vec<u8> = (0..COUNT).flat_map(|_| fields(&[(schema::POINTS, b"")])).collect();
    // To read these for each point would take minutes.
    let unknown: Vec<u8> = (0..COUNT / 3).flat_map(|_| fields(&[(15, b"")])).collect();
    let metric = [fields(&[(1, b"total"), (5, &points)]), unknown].concat();
    let request = in_groups(b"", std::iter::once(metric));
    let mut decoder = decoder(Signal::Metrics, &request);
    let parts = std::iter::from_fn(|| decoder.part().unwrap());
    let names: usize = parts
        .map(|part| part.records.payload.iter().flatten().filter(|name| *name == b"total").count())
        .sum();
    assert_eq!(names, COUNT);
}

#[test]
fn a_message_has_a_limit_of_fields() {
    let many: Vec<u8> = (0..=to_json::MOST_FIELDS).flat_map(|_| fields(&[(6, b"")])).collect();
    let reason = wrong(Signal::Logs, &in_groups(b"", std::iter::once(many)));
    assert_eq!(reason, "is not valid: in its record 0 (from 0), it has more than 65536 fields");
    let many: Vec<u8> = (0..=to_json::MOST_FIELDS).flat_map(|_| fields(&[(3, b"")])).collect();
    let reason = wrong(Signal::Traces, &in_groups(b"", std::iter::once(fields(&[(11, &many)]))));
    assert_eq!(
        reason,
        "is not valid: in its record 0 (from 0), the field `events` has more than 65536 fields"
    );
}

#[test]
fn other_messages_are_log_records_of_their_payload() {
    let lines = crate::testing::with_text(&["one", "two", ""], &[("user", &[Some("ada"), None, None])]);
    let resource = BTreeMap::from([("service.name".to_owned(), "shop".to_owned())]);
    let encoder = Encoder::new(Signal::Logs, &resource, vec!["user".to_owned()]);
    let mut bound = encoder.bind(&lines);
    let mut parts = vec![Vec::new(); 3];
    for (number, part) in parts.iter_mut().enumerate() {
        bound.write(Signal::Logs, number, part).unwrap();
    }
    let found = decoded(Signal::Logs, &request(parts.iter().map(Vec::as_slice)));
    assert_eq!(payloads(&found), ["one", "two", ""]);
    let shop = ("resource_attributes", r#"{"service.name":"shop"}"#);
    assert_row(&found, 0, &[("body", "\"one\""), ("attributes", r#"{"user":"ada"}"#), shop]);
    assert_row(&found, 1, &[("body", "\"two\""), shop]);
    assert!(!row(&found, 1).contains_key("attributes"));
    assert!(!row(&found, 2).contains_key("body"));
    let metric = bound.write(Signal::Metrics, 0, &mut Vec::new());
    assert_eq!(metric, Err("the message has no `type`, so it is no metric".to_owned()));
}

#[test]
fn values_that_cannot_be_sent_are_named() {
    for (name, value, reason) in [
        ("trace_id", "xy", "`trace_id` is not 32 hexadecimal digits: `xy`"),
        ("severity_number", "high", "its value is `high`"),
        ("attributes", "[1]", "`attributes` cannot be a list at line 1 column"),
        ("time_unix_nano", "1901-01-01T00:00:00Z", "a time is between 1970 and 2262"),
        ("flags", "-1", "its value is `-1`"),
    ] {
        let lines = crate::testing::with_text(&["x"], &[(name, &[Some(value)])]);
        let encoder = Encoder::new(Signal::Logs, &BTreeMap::new(), Vec::new());
        let found = encoder.bind(&lines).write(Signal::Logs, 0, &mut Vec::new());
        let expected = format!("the field `{name}` cannot be sent: {reason}");
        assert!(found.as_ref().unwrap_err().starts_with(&expected), "{found:?}");
    }
    let lines = crate::testing::with_text(&["x"], &[("signal", &[Some("profiles")])]);
    let encoder = Encoder::new(Signal::Logs, &BTreeMap::new(), Vec::new());
    assert_eq!(
        encoder.bind(&lines).signal(0),
        Err("`signal` is not `logs`, `metrics` or `traces`: `profiles`".to_owned())
    );
}

/// A value of any type in the form of columns.
fn value() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::{Value, json};
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e9..1e9f64).prop_map(Value::from),
        "[a-zé\"\\\\\n]{0,16}".prop_map(Value::from),
        Just(json!({ "bytesValue": "AP8=" })),
        Just(json!({ "doubleValue": "-Infinity" })),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-c]{0,2}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn a_value_of_any_type_returns(value in value()) {
        let json = value.to_string();
        let mut wire = Vec::new();
        from_json::attribute(schema::INNER, "k", json.as_bytes(), &mut wire).unwrap();
        let mut found = Vec::new();
        let mut reader = crate::protobuf::wire::Reader::new(&wire);
        let (_, raw) = reader.field().unwrap().unwrap();
        let field = schema::RESOURCE.fields[0];
        to_json::JsonWriter { out: &mut found, limit: 1 << 20 }.field(&field, &wire, [raw].iter()).unwrap();
        let found: serde_json::Value = serde_json::from_slice(&found).unwrap();
        prop_assert_eq!(found, serde_json::json!({ "k": value }));
    }

    #[test]
    fn a_damaged_request_is_an_error_or_columns_that_return(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        for (signal, sample) in [(Signal::Logs, LOGS), (Signal::Metrics, ALL_METRICS), (Signal::Traces, TRACES)] {
            let mut request = sample.to_vec();
            request[at.index(sample.len())] = byte;
            let Ok(Some(part)) = decoder(signal, &request).part() else { continue };
            let batch = as_batch(part.records);
            let again = encoded(signal, &batch);
            if batch.rows() > 0 {
                let again = decoded(signal, &again);
                prop_assert_eq!(again.fields().num_rows(), batch.rows());
            }
        }
    }
}
