use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array};
use arrow_schema::{DataType, Field};
use thalweg_engine::ErrorKind;
use thalweg_engine::testing::{batch, messages, options};
use thalweg_record::Batch;

use super::*;
use crate::requests::testing::{Fake, Got, Play, open, with_text, write};

fn yaml(server: &Fake, options: &str) -> String {
    format!("{{ url: '{}', max_delay: 0s{options} }}", server.address)
}

/// Reads an integer of variable length.
fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (first, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            break;
        }
    }
    value
}

/// Returns the fields of a message: their numbers and bytes, those of a number as 8 bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let value = match tag & 7 {
            0 => varint(&mut bytes).to_le_bytes().to_vec(),
            kind => {
                let length = if kind == 1 { 8 } else { varint(&mut bytes) as usize };
                let (value, rest) = bytes.split_at(length);
                bytes = rest;
                value.to_vec()
            }
        };
        fields.push((tag >> 3, value));
    }
    fields
}

/// Returns the series of a request as text: `{a="b"} 1@2 3@4`.
fn series(got: &Got) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let number = |bytes: &[u8]| <[u8; 8]>::try_from(bytes).unwrap();
    let shown = |(number_of_field, message): (u64, Vec<u8>)| {
        let of = fields(&message);
        match number_of_field {
            1 => format!("{}={:?}", text(&of[0].1), text(&of[1].1)),
            _ => {
                let (value, time) = (number(&of[0].1), number(&of[1].1));
                format!(" {}@{}", f64::from_le_bytes(value), i64::from_le_bytes(time))
            }
        }
    };
    let of_series = |(_, message): (u64, Vec<u8>)| {
        let (labels, samples): (Vec<_>, Vec<_>) =
            fields(&message).into_iter().partition(|(field, _)| *field == 1);
        let labels: Vec<String> = labels.into_iter().map(shown).collect();
        format!("{{{}}}{}", labels.join(","), samples.into_iter().map(shown).collect::<String>())
    };
    fields(&got.bytes).into_iter().map(of_series).collect()
}

/// Returns messages with these values and times.
fn samples(rows: &[(&str, &str, Option<f64>, &str)]) -> Batch {
    let names: Vec<Option<&str>> = rows.iter().map(|row| Some(row.0)).collect();
    let labels: Vec<Option<&str>> = rows.iter().map(|row| Some(row.1)).collect();
    let times: Vec<Option<&str>> = rows.iter().map(|row| Some(row.3)).collect();
    let made = with_text(batch(vec!["x"; rows.len()]), "name", &names);
    let made = with_text(with_text(made, "labels", &labels), "timestamp", &times);
    let values: ArrayRef = Arc::new(rows.iter().map(|row| row.2).collect::<Float64Array>());
    made.set_fields([(Field::new("value", DataType::Float64, true), values)]).unwrap()
}

const AT: [&str; 3] = ["1970-01-01T00:00:01Z", "1970-01-01T00:00:02Z", "1970-01-01T00:00:03Z"];

#[tokio::test]
async fn each_series_is_there_once_with_its_samples_in_order() {
    let server = Fake::start(|_, _| Play::answer(204, "")).await;
    let yaml = yaml(&server, ", labels: { job: test, empty: '{none}' }");
    let rows = samples(&[
        ("up", "{\"z\":1,\"a\":\"x\"}", Some(2.0), AT[1]),
        ("up", "", Some(1.5), AT[0]),
        ("up", "{\"a\":\"x\",\"z\":\"1\"}", Some(f64::NAN), AT[0]),
        ("up", "{\"job\":\"other\",\"n\":null}", Some(-1.0), AT[2]),
    ]);
    let mut sink = open::<PrometheusRemoteWriteConfig>(&yaml).await;
    assert_eq!(write(&mut sink, &rows).await, (vec![], vec![]));
    let got = server.got().remove(0);
    assert_eq!(got.line, "POST /api/v1/write");
    let headers = ["content-type", "content-encoding", "x-prometheus-remote-write-version"];
    assert_eq!(headers.map(|name| got.header(name)), ["application/x-protobuf", "snappy", "0.1.0"]);
    assert_eq!(
        series(&got),
        [
            "{__name__=\"up\",a=\"x\",job=\"test\",z=\"1\"} NaN@1000 2@2000",
            "{__name__=\"up\",job=\"test\"} 1.5@1000 -1@3000",
        ]
    );
}

#[tokio::test]
async fn what_is_no_sample_leaves_by_errors() {
    let server = Fake::start(|_, _| Play::answer(204, "")).await;
    let rows = samples(&[
        ("a b", "", Some(1.0), AT[0]),
        ("a", "{\"x-y\":\"1\"}", Some(1.0), AT[0]),
        ("a", "[1]", Some(1.0), AT[0]),
        ("a", "", None, AT[0]),
        ("a", "", Some(f64::INFINITY), ""),
    ]);
    let mut sink = open::<PrometheusRemoteWriteConfig>(&yaml(&server, "")).await;
    let (rejected, _) = write(&mut sink, &rows).await;
    let reasons: Vec<&str> = rejected.iter().map(|(_, reason)| reason.as_str()).collect();
    assert_eq!(
        reasons,
        [
            "`a b` cannot be the name of a metric",
            "`x-y` cannot be the name of a label",
            "the labels are no JSON object",
            "the message has no number in `value`",
        ]
    );
    assert_eq!(series(&server.got()[0]), ["{__name__=\"a\"} inf@1700000000000"]);
}

/// The receiver has a newer sample of the series `old`. Prometheus and Mimir say so by 400, Thanos by 409.
#[tokio::test]
async fn a_sample_that_is_out_of_order_leaves_alone_and_the_rest_is_sent() {
    for (status, answered) in [(400, "400 Bad Request"), (409, "409 Conflict")] {
        let server = Fake::start(move |number, got| match number {
            0 => Play::answer(500, "no space left"),
            1 => Play::answer(429, "").with("retry-after", "0"),
            _ if got.body.contains("old") => Play::answer(status, "out of order sample"),
            _ => Play::answer(204, ""),
        })
        .await;
        let rows: Vec<(&str, &str, Option<f64>, &str)> =
            ["a", "b", "old", "c", "d"].into_iter().map(|name| (name, "", Some(1.0), AT[0])).collect();
        let mut sink = open::<PrometheusRemoteWriteConfig>(&yaml(&server, "")).await;
        let (rejected, errors) = write(&mut sink, &samples(&rows)).await;
        assert_eq!(errors, [ErrorKind::Temporary, ErrorKind::Overloaded]);
        assert_eq!((rejected.len(), rejected[0].0), (1, 2));
        let reason = format!("answered {answered}: out of order sample");
        assert!(rejected[0].1.ends_with(&reason), "{}", rejected[0].1);
        let got = server.got();
        let stored = got[2..].iter().filter(|got| !got.body.contains("old")).flat_map(series);
        let expected = ["a", "b", "c", "d"].map(|name| format!("{{__name__=\"{name}\"}} 1@1000"));
        assert_eq!(stored.collect::<Vec<_>>(), expected);
    }
}

#[tokio::test]
async fn a_url_with_a_path_is_that_of_the_receiver() {
    let server = Fake::start(|_, _| Play::answer(200, "")).await;
    let yaml = format!("{{ url: 'http://{}/api/v1/push', metric: a }}", server.address);
    write(&mut open::<PrometheusRemoteWriteConfig>(&yaml).await, &samples(&[("", "", Some(0.0), AT[0])]))
        .await;
    assert_eq!(server.got()[0].line, "POST /api/v1/push");
}

#[test]
fn a_message_needs_a_name_and_a_value() {
    let needed = |yaml: &str| {
        let found = options::<PrometheusRemoteWriteConfig>(yaml).needed_fields();
        found.into_iter().map(|needed| (needed.option, needed.names)).collect::<Vec<_>>()
    };
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let value = ("value", names(&["value"]));
    assert_eq!(needed("{ url: a }"), [("metric", names(&["name"])), value.clone()]);
    assert_eq!(needed("{ url: a, metric: m, value: n }"), [("metric", names(&[])), ("value", names(&["n"]))]);
    assert_eq!(needed("{ url: a, metric: '{b}{c}' }"), [("metric", names(&["b", "c"])), value.clone()]);
    assert_eq!(needed("{ url: a, metric: 'app_{b}' }"), [("metric", names(&[])), value]);
}

#[test]
fn mistakes_are_named() {
    let mistakes = |yaml: &str| messages(options::<PrometheusRemoteWriteConfig>(yaml).check());
    assert_eq!(mistakes("{ url: a, labels: { a-b: c } }"), ["`a-b` cannot be the name of a label."]);
    assert_eq!(
        mistakes("{ url: a, labels: { __name__: c } }"),
        ["`__name__` cannot be the name of a label."]
    );
    let compression = "The server does not take bodies in this form.";
    assert_eq!(mistakes("{ url: a, compression: gzip }"), [compression]);
}
