use serde_json::{Value, json};
use thalweg_engine::ErrorKind;
use thalweg_engine::testing::{batch, messages, options, sink_conforms};

use super::*;
use crate::requests::testing::{Fake, Got, Play, numbered, open, with_text, write};

fn yaml(server: &Fake, options: &str) -> String {
    format!("{{ url: '{}', api_key: SEKRET-1, max_delay: 0s{options} }}", server.address)
}

/// Returns the texts of the entries of a body.
fn texts(got: &Got) -> Vec<String> {
    let entries: Vec<Value> = serde_json::from_str(&got.body).unwrap();
    entries.iter().map(|entry| entry["message"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn it_conforms() {
    let server = Fake::start(|_, _| Play::answer(202, "{}")).await;
    for options in ["", ", concurrency: 1", ", compression: gzip", ", compression: zstd"] {
        sink_conforms::<DatadogLogsConfig>(&yaml(&server, options)).await;
    }
}

#[tokio::test]
async fn an_entry_has_what_its_message_has() {
    let server = Fake::start(|_, _| Play::answer(202, "{}")).await;
    let options =
        ", ddsource: nginx, ddtags: 'env:test,team:{team}', service: '{team}', time: at, compression: zstd";
    let lines = with_text(batch(["one", "\"two\"\n"]), "team", &[Some("shop"), None]);
    let lines = with_text(lines, "at", &[Some("2024-03-05T10:20:30.5Z"), None]);
    let mut sink = open::<DatadogLogsConfig>(&yaml(&server, options)).await;
    assert_eq!(write(&mut sink, &lines).await, (vec![], vec![]));
    let got = server.got().remove(0);
    assert_eq!((got.line.as_str(), got.header("dd-api-key")), ("POST /api/v2/logs", "SEKRET-1"));
    assert_eq!((got.header("content-encoding"), got.header("content-type")), ("zstd", "application/json"));
    assert_eq!(
        serde_json::from_str::<Value>(&got.body).unwrap(),
        json!([
            {
                "ddsource": "nginx", "ddtags": "env:test,team:shop", "service": "shop",
                "timestamp": 1_709_634_030_500_i64, "message": "one"
            },
            {
                "ddsource": "nginx", "ddtags": "env:test,team:",
                "timestamp": 1_700_000_000_000_i64, "message": "\"two\"\n"
            },
        ])
    );
}

#[tokio::test]
async fn the_limits_of_the_intake_are_kept() {
    let server = Fake::start(|_, _| Play::answer(202, "{}")).await;
    let mut sink = open::<DatadogLogsConfig>(&yaml(&server, ", max_count: 5000, concurrency: 1")).await;
    let mut lines = vec!["x".to_owned(); 2100];
    lines[7] = "x".repeat(LARGEST_ENTRY);
    for line in &mut lines[2000..2006] {
        *line = "y".repeat(900_000);
    }
    let (rejected, errors) = write(&mut sink, &batch(&lines)).await;
    assert_eq!((rejected.len(), rejected[0].0, errors), (1, 7, vec![]));
    assert_eq!(
        rejected[0].1,
        "the entry has 1000040 bytes, but Datadog truncates entries of more than 1000000"
    );
    let got = server.got();
    let sent: usize = got.iter().map(|got| texts(got).len()).sum();
    assert_eq!(sent, 2099);
    for got in got {
        assert!(got.body.len() <= LARGEST_REQUEST && texts(&got).len() <= MOST_ENTRIES);
    }
}

#[tokio::test]
async fn what_the_intake_refuses_leaves_alone_and_the_rest_is_sent() {
    let server = Fake::start(|number, got| match number {
        0 => Play::answer(429, "").with("retry-after", "0"),
        1 => Play::answer(403, "{\"errors\":[{\"detail\":\"the key SEKRET-1 is wrong\"}]}"),
        _ if texts(got).len() > 4 => Play::answer(413, "too large"),
        _ if got.body.contains("\\\"n\\\":3}") => Play::answer(400, "bad entry for SEKRET-1"),
        _ => Play::answer(202, "{}"),
    })
    .await;
    let mut sink = open::<DatadogLogsConfig>(&yaml(&server, "")).await;
    let (rejected, errors) = write(&mut sink, &batch(numbered(10))).await;
    assert_eq!(errors, [ErrorKind::Overloaded, ErrorKind::Temporary]);
    assert_eq!((rejected.len(), rejected[0].0), (1, 3));
    assert!(rejected[0].1.ends_with("answered 400 Bad Request: bad entry for …"), "{}", rejected[0].1);
}

#[test]
fn a_site_has_its_intake_and_a_url_is_used_as_it_is() {
    for (url, intake) in [
        ("datadoghq.eu", Some("https://http-intake.logs.datadoghq.eu")),
        ("us3.datadoghq.com", Some("https://http-intake.logs.us3.datadoghq.com")),
        ("app.ddog-gov.com", Some("https://http-intake.logs.ddog-gov.com")),
        ("https://http-intake.logs.datadoghq.eu", None),
        ("http-intake.logs.datadoghq.eu", Some("https://http-intake.logs.datadoghq.eu")),
        ("user:password@datadoghq.eu", None),
        ("otherdatadoghq.eu", None),
        (".datadoghq.eu", None),
        ("127.0.0.1:10518", None),
    ] {
        assert_eq!(intake_of(url).as_deref(), intake, "{url}");
    }
}

#[test]
fn mistakes_are_named() {
    let mistakes = |yaml: &str| messages(options::<DatadogLogsConfig>(yaml).check());
    let size = "Datadog takes at most 5 MB in a request.";
    assert_eq!(mistakes("{ url: a, api_key: b, max_request_bytes: 5MiB }"), [size]);
    assert_eq!(mistakes("{ url: a, api_key: ' ' }"), ["The key is empty."]);
    for host in ["datadoghq.eu", "api.datadoghq.com", "app.us3.datadoghq.com"] {
        let found = format!("`{host}` has pages or an API of Datadog, and takes no logs.");
        assert_eq!(mistakes(&format!("{{ url: 'https://{host}', api_key: b }}")), [found]);
    }
    let twice = "The sink adds the path itself: `/api/v2/logs` would be there twice.";
    let intake = "https://http-intake.logs.datadoghq.eu/api/v2/logs";
    assert_eq!(mistakes(&format!("{{ url: '{intake}', api_key: b }}")), [twice]);
    for url in [
        "datadoghq.eu",
        "https://http-intake.logs.datadoghq.eu",
        "https://pvtlink.logs.datadoghq.com",
        "datadog-agent:10518",
    ] {
        assert_eq!(mistakes(&format!("{{ url: '{url}', api_key: b }}")), [""; 0], "{url}");
    }
    let key = "`api_key` has a character that a header cannot have, such as a line feed.";
    assert_eq!(mistakes("{ url: a, api_key: \"b\\n\" }"), [key]);
}

#[test]
fn a_key_that_is_sent_without_tls_is_remarked() {
    let remarks = |url: &str| {
        messages(options::<DatadogLogsConfig>(&format!("{{ url: '{url}', api_key: b }}")).remarks())
    };
    for url in ["http://http-intake.logs.datadoghq.eu", "us5.datadog.com", "datadoghq.de.com"] {
        assert_eq!(remarks(url), ["The key and the entries are sent to Datadog without TLS."], "{url}");
    }
    for url in ["datadoghq.eu", "https://http-intake.logs.datadoghq.eu", "datadog-agent:10518", "127.0.0.1:1"]
    {
        assert_eq!(remarks(url), [""; 0], "{url}");
    }
}
