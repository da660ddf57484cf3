use serde_json::json;
use thalweg_engine::testing::{batch, messages, options, sink_conforms};

use super::*;
use crate::requests::testing::{Fake, Play, open, with_text, write};

#[tokio::test]
async fn it_conforms() {
    let server = Fake::start(|_, _| Play::answer(204, "")).await;
    for options in ["", ", compression: gzip", ", concurrency: 1"] {
        let yaml = format!("{{ url: '{}', labels: {{ a: b }}, max_delay: 1ms{options} }}", server.address);
        sink_conforms::<LokiConfig>(&yaml).await;
    }
}

#[tokio::test]
async fn lines_are_grouped_by_their_labels() {
    let server = Fake::start(|_, _| Play::answer(204, "")).await;
    let yaml = format!(
        "{{ url: '{}', labels: {{ s: '{{s}}', job: j }}, metadata: {{ id: '{{id}}' }}, time: t, tenant: me, max_delay: 0s }}",
        server.address
    );
    let lines = batch(["one", "two \"2\"", "three"]);
    let lines = with_text(lines, "s", &[Some("a"), None, Some("a")]);
    let lines = with_text(lines, "id", &[Some("1"), None, Some("")]);
    let lines = with_text(lines, "t", &[Some("2024-03-05T10:20:30.000000001Z"), Some("never"), None]);
    assert_eq!(write(&mut open::<LokiConfig>(&yaml).await, &lines).await, (vec![], vec![]));
    let got = server.got().remove(0);
    assert_eq!((got.line.as_str(), got.header("x-scope-orgid")), ("POST /loki/api/v1/push", "me"));
    assert_eq!(
        got.body,
        "{\"streams\":[{\"stream\":{\"job\":\"j\",\"s\":\"a\"},\"values\":[\
         [\"1709634030000000001\",\"one\",{\"id\":\"1\"}],[\"1700000000000000002\",\"three\"]]},\
         {\"stream\":{\"job\":\"j\"},\"values\":[[\"1700000000000000001\",\"two \\\"2\\\"\"]]}]}"
    );
    serde_json::from_str::<serde_json::Value>(&got.body).unwrap();
}

/// A `limit` divides batches. Loki drops a line that it has with the same time and labels.
#[tokio::test]
async fn equal_lines_of_the_parts_of_a_batch_get_times_that_differ() {
    let server = Fake::start(|_, _| Play::answer(204, "")).await;
    let yaml = format!("{{ url: '{}', labels: {{ a: b }}, max_delay: 0s }}", server.address);
    let mut sink = open::<LokiConfig>(&yaml).await;
    let whole = batch(["x", "x"]);
    let first = whole.share().select(&[0]).unwrap().unwrap();
    write(&mut sink, &first).await;
    write(&mut sink, &whole.select(&[1]).unwrap().unwrap()).await;
    let bodies: Vec<String> = server.got().into_iter().map(|got| got.body).collect();
    let body = |time: &str| {
        format!("{{\"streams\":[{{\"stream\":{{\"a\":\"b\"}},\"values\":[[\"{time}\",\"x\"]]}}]}}")
    };
    assert_eq!(bodies, [body("1700000000000000000"), body("1700000000000000001")]);
}

#[tokio::test]
async fn the_number_of_streams_is_bounded() {
    let server = Fake::start(|_, _| Play::answer(204, "")).await;
    let yaml =
        format!("{{ url: '{}', labels: {{ s: '{{s}}' }}, max_streams: 2, max_delay: 0s }}", server.address);
    let mut sink = open::<LokiConfig>(&yaml).await;
    let lines = |texts: &[Option<&str>]| with_text(batch(vec!["x"; texts.len()]), "s", texts);
    let (rejected, _) = write(&mut sink, &lines(&[Some("a"), Some("b"), Some("c"), None, Some("a")])).await;
    let other = "the message would begin another stream, but `max_streams` is 2".to_owned();
    let none = "the message has no label: the fields of `labels` are empty".to_owned();
    assert_eq!(rejected, [(2, other), (3, none)]);
    let long = "x".repeat(LARGEST);
    let (rejected, _) = write(&mut sink, &lines(&[Some(&long), Some("b")])).await;
    assert_eq!(rejected, [(0, "the labels have 8200 bytes, but at most 8192 are possible".to_owned())]);
}

#[tokio::test]
async fn a_line_that_is_too_old_leaves_alone() {
    let server = Fake::start(|number, got| match number {
        0 => Play::answer(429, "rate limit").with("retry-after", "0"),
        _ if got.body.contains("old") => {
            Play::answer(400, "entry for stream '{a=\"b\"}' has timestamp too old")
        }
        _ => Play::answer(204, ""),
    })
    .await;
    let yaml = format!("{{ url: '{}', labels: {{ a: b }}, max_delay: 0s }}", server.address);
    let lines: Vec<String> =
        (0..9).map(|n| if n == 4 { "old".to_owned() } else { format!("line {n}") }).collect();
    let (rejected, errors) = write(&mut open::<LokiConfig>(&yaml).await, &batch(&lines)).await;
    assert_eq!((rejected.len(), rejected[0].0, errors.len()), (1, 4, 1));
    assert!(rejected[0].1.ends_with("has timestamp too old"), "{}", rejected[0].1);
    let accepted = server.got().into_iter().skip(1).filter(|got| !got.body.contains("old"));
    let mut stored: Vec<String> = accepted
        .flat_map(|got| {
            let body: serde_json::Value = serde_json::from_str(&got.body).unwrap();
            let values = body["streams"][0]["values"].as_array().unwrap().clone();
            values.into_iter().map(|value| value[1].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        })
        .collect();
    stored.sort();
    assert_eq!(json!(stored), json!(lines.iter().filter(|line| *line != "old").collect::<Vec<_>>()));
}

#[test]
fn mistakes_are_named() {
    let mistakes = |yaml: &str| messages(options::<LokiConfig>(yaml).check());
    assert_eq!(mistakes("{ url: a, labels: {} }"), ["A line needs a label."]);
    assert_eq!(mistakes("{ url: a, labels: { a-b: c } }"), ["`a-b` cannot be the name of a label."]);
    assert_eq!(
        mistakes("{ url: a, labels: { a: b }, metadata: { '': c } }"),
        ["`` cannot be the name of a label."]
    );
    let mistake = "`tenant` has a character that a header cannot have, such as a line feed.";
    assert_eq!(mistakes("{ url: a, labels: { a: b }, tenant: \"a\\n\" }"), [mistake]);
}
