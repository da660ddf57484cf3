use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use serde_json::Value;
use thalweg_engine::testing::{Sent, messages, options, payloads, read_all, rows, start};
use thalweg_engine::{ErrorKind, testing};

use super::*;
use crate::net::testing::within;
use crate::requests::testing::{Fake, Play};

const PAGE: &str = "# HELP jobs_total Jobs.\n# TYPE jobs_total counter\n\
                    jobs_total{queue=\"a\",job=\"x\"} 3\njobs_total{queue=\"b\"} 4.5 1395066363000\n\nup_since 7\n";

async fn scraped(yaml: &str) -> Sent {
    within(read_all::<PrometheusScrape>(yaml, 1 << 20)).await
}

/// Returns the rows of all batches, without the time of the scrape.
fn samples(sent: &Sent) -> Vec<String> {
    let rows = sent.main.iter().flat_map(|batch| rows(batch.fields()));
    let shown = |row: Value| {
        let time = row["timestamp"].as_i64().unwrap();
        let time = if time > 1_700_000_000_000_000 { "now".to_owned() } else { time.to_string() };
        format!(
            "{} {} {} {time}",
            row["name"].as_str().unwrap(),
            row["labels"].as_str().unwrap(),
            row["value"]
        )
    };
    rows.map(shown).collect()
}

#[tokio::test]
async fn each_sample_is_a_message_and_the_source_ends_after_one_scrape() {
    let server = Fake::pages(|_, _| Play::answer(200, PAGE).with("content-type", "text/plain")).await;
    let address = &server.address;
    let yaml = format!("{{ url: '{address}', labels: {{ job: node }}, auth: {{ bearer: SEKRET }} }}");
    let sent = scraped(&yaml).await;
    assert!(sent.result.is_none() && sent.errors.is_empty());
    let own = format!("\"instance\":\"{address}\",\"job\":\"node\"");
    assert_eq!(
        samples(&sent),
        [
            format!("jobs_total {{\"exported_job\":\"x\",{own},\"queue\":\"a\"}} 3.0 now"),
            format!("jobs_total {{{own},\"queue\":\"b\"}} 4.5 1395066363000000"),
            format!("up_since {{{own}}} 7.0 now"),
            format!("up {{{own}}} 1.0 now"),
        ]
    );
    assert_eq!(sent.payloads()[0], "jobs_total{queue=\"a\",job=\"x\"} 3");
    assert_eq!(sent.main[0].meta().path.as_deref(), Some(format!("http://{address}/metrics").as_str()));
    let got = server.got().remove(0);
    assert_eq!((got.line.as_str(), got.header("authorization")), ("GET /metrics", "Bearer SEKRET"));
    assert!(got.header("accept").starts_with("application/openmetrics-text;version=1.0.0,"));
}

#[tokio::test]
async fn a_line_that_is_no_sample_leaves_by_errors() {
    let page = "a 1 1.5 # {id=\"1\"} 1\nb x\nc 2\n# EOF\n";
    let server = Fake::pages(move |_, _| {
        Play::answer(200, page).with("content-type", "application/openmetrics-text; version=1.0.0")
    })
    .await;
    let sent = scraped(&format!("{{ url: '{}/a', labels: {{ instance: i }} }}", server.address)).await;
    assert!(sent.result.is_none());
    let own = "{\"instance\":\"i\"}";
    assert_eq!(
        samples(&sent),
        [format!("a {own} 1.0 1500000"), format!("c {own} 2.0 now"), format!("up {own} 1.0 now")]
    );
    assert_eq!(payloads(&sent.errors[0]), ["b x"]);
    let reason = "the line has the value `x`, which is no number";
    assert_eq!(rows(sent.errors[0].fields())[0]["error_reason"], reason);
}

#[tokio::test]
async fn a_line_that_is_too_long_leaves_by_errors() {
    let long = format!("a{{b=\"{}\"}} 1", "x".repeat(1 << 20));
    let page = format!("# HELP c {}\n{long}\nc 2\n", "x".repeat(1 << 20));
    let server = Fake::pages(move |_, _| Play::answer(200, page.clone())).await;
    let sent = scraped(&format!("{{ url: '{}' }}", server.address)).await;
    assert!(sent.result.is_none());
    assert_eq!(sent.payloads(), ["c 2", "up 1"]);
    assert_eq!(payloads(&sent.errors[0]), [long]);
    let reason = "the line has more than 1048576 bytes";
    assert_eq!(rows(sent.errors[0].fields())[0]["error_reason"], reason);
}

#[tokio::test]
async fn a_large_answer_is_several_batches() {
    let page: String = (0..1000).map(|number| format!("a{{n=\"{number}\"}} {number}\n")).collect();
    let bad = "b\n".repeat(500);
    let server = Fake::pages(move |_, _| Play::answer(200, format!("{page}{bad}"))).await;
    let yaml = format!("{{ url: '{}' }}", server.address);
    let sent = within(read_all::<PrometheusScrape>(&yaml, 10_000)).await;
    assert!(sent.main.len() > 10 && sent.errors.len() > 2, "{} {}", sent.main.len(), sent.errors.len());
    let lines = sent.payloads();
    assert_eq!((lines.len(), lines[999].as_str(), lines[1000].as_str()), (1001, "a{n=\"999\"} 999", "up 1"));
    assert_eq!(sent.errors.iter().map(|batch| batch.rows()).sum::<usize>(), 500);
}

#[tokio::test]
async fn a_target_that_fails_is_an_error_after_the_others_are_scraped() {
    for (play, reason) in [
        (Play::answer(500, "broken SEKRET"), "answered 500 Internal Server Error: broken …"),
        (Play::answer(200, "a 1\n").with("content-type", "application/openmetrics-text"), "is cut off"),
        (Play::answer(200, "x".repeat(2000)), "has more than 1000 bytes (`max_body_bytes`)"),
        (Play::cut(), ""),
    ] {
        let failing = Fake::pages(move |_, _| play.clone()).await;
        let well = Fake::pages(|_, _| Play::answer(200, "a 1\n")).await;
        let yaml = format!(
            "{{ url: ['{}', '{}'], max_body_bytes: 1000, labels: {{ instance: i }}, auth: {{ bearer: SEKRET }} }}",
            failing.address, well.address
        );
        let sent = scraped(&yaml).await;
        let error = sent.result.as_ref().unwrap();
        assert!(error.kind() != ErrorKind::Permanent && error.full().ends_with(reason), "{}", error.full());
        let mut lines = sent.payloads();
        lines.sort();
        assert_eq!(lines, ["a 1", "up 1"]);
    }
}

/// As the engine does after a temporary error.
#[tokio::test]
async fn a_source_that_runs_again_scrapes_only_what_is_missing() {
    let failing = Fake::pages(|number, _| match number {
        0 => Play::answer(503, ""),
        _ => Play::answer(200, "b 1\n"),
    })
    .await;
    let well = Fake::pages(|_, _| Play::answer(200, "a 1\n")).await;
    let yaml = format!("{{ url: ['{}', '{}'] }}", failing.address, well.address);
    let source = options::<PrometheusScrape>(&yaml).build(&testing::context()).unwrap();
    let running = testing::start_source(Box::new(Twice(source)), 1 << 20, BTreeMap::new());
    let mut lines = within(running.finish()).await.payloads();
    lines.sort();
    assert_eq!(lines, ["a 1", "b 1", "up 1", "up 1"]);
    assert_eq!((failing.got().len(), well.got().len()), (2, 1));
}

/// A source that fails, and runs again.
struct Twice(Box<dyn Source>);

#[async_trait]
impl Source for Twice {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        assert!(self.0.run(out).await.unwrap_err().kind().is_temporary());
        self.0.run(out).await
    }
}

#[tokio::test]
async fn a_target_is_scraped_at_its_times_also_after_it_was_down() {
    let is_up: Arc<AtomicBool> = Arc::default();
    let played = is_up.clone();
    let server = Fake::pages(move |_, _| match played.load(Relaxed) {
        true => Play::answer(200, ""),
        false => Play::answer(503, ""),
    })
    .await;
    let yaml = format!("{{ url: '{}', every: 5ms }}", server.address);
    let running = start::<PrometheusScrape>(&yaml, 1 << 20, BTreeMap::new());
    for expected in ["up 0", "up 1"] {
        loop {
            let taken = within(running.main.take()).await;
            let Some((_, testing::Arrived::Messages(mut batch))) = taken else { panic!("it ended") };
            batch.take_ack().settle(thalweg_record::Outcome::Delivered);
            if payloads(&batch) == [expected] {
                break;
            }
        }
        is_up.store(true, Relaxed);
    }
    running.stop.request();
    let sent = within(running.finish()).await;
    assert!(sent.result.is_none());
}

#[test]
fn mistakes_are_named() {
    let mistakes = |yaml: &str| messages(options::<PrometheusScrape>(yaml).check());
    assert_eq!(mistakes("{ url: ['a', 'ftp://b'] }"), ["`ftp` is not a scheme of HTTP."]);
    assert_eq!(mistakes("{ url: a, every: 0s }"), ["`every` cannot be 0."]);
    let twice = "Two URLs are of one target, whose samples would come twice.";
    for other in ["a:9100", "http://a:9100/metrics", "http://A:9100"] {
        assert_eq!(mistakes(&format!("{{ url: ['http://a:9100/', '{other}'] }}")), [twice], "{other}");
    }
    let others =
        ["a:9101", "https://a:9100", "a:9100/metrics?collect=cpu", "a:9100/other", "http://u:p@a:9100"];
    for other in others {
        assert_eq!(mistakes(&format!("{{ url: ['a:9100', '{other}'] }}")), [""; 0], "{other}");
    }
    let auth = "A target usually takes a user with a password, or a bearer token.";
    let keyed = "{ url: a, auth: { api_key: b } }";
    assert_eq!(mistakes(keyed), [""; 0]);
    assert_eq!(messages(options::<PrometheusScrape>(keyed).remarks()), [auth]);
    assert_eq!(mistakes("{ url: a, auth: { bearer: b } }"), [""; 0]);
    let both = "The credentials are in `url` and in `auth`.";
    assert_eq!(mistakes("{ url: [a, 'http://u:p@b'], auth: { bearer: b } }"), [both]);
    assert_eq!(
        mistakes("{ url: a, labels: { __name__: b } }"),
        ["`__name__` cannot be the name of a label."]
    );
    assert_eq!(mistakes("{ url: a, max_body_bytes: 0B }"), ["No answer has 0 bytes."]);
    assert_eq!(mistakes("{ url: a, labels: { a-b: c } }"), ["`a-b` cannot be the name of a label."]);
}
