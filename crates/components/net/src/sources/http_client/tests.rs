use serde_json::{Value, json};
use thalweg_engine::testing::{
    Bounds, Sent, messages, options, payloads, read_all, rows, start, start_bounded,
};
use thalweg_engine::{ErrorKind, testing};
use thalweg_record::Outcome;

use super::*;
use crate::net::testing::within;
use crate::requests::testing::{Fake, Got, Play};

async fn fetched(yaml: &str) -> Sent {
    within(read_all::<HttpClient>(yaml, 1 << 20)).await
}

/// Reads from where an earlier run got to. Returns what was sent, and the place after it.
async fn resumed(yaml: &str, place: Option<Value>) -> (Sent, Value) {
    let address = yaml.split('\'').nth(1).unwrap();
    let path = without_query(address);
    let saved = place.into_iter().map(|place| (path.clone(), place)).collect();
    let running = start::<HttpClient>(yaml, 1 << 20, saved);
    let positions = running.positions.clone();
    let sent = within(running.finish()).await;
    (sent, positions.saved(&path).unwrap_or_default())
}

fn without_query(url: &str) -> String {
    let url = reqwest::Url::parse(url).unwrap();
    thalweg_redact::without_secrets(url.as_str())
}

/// The items after a number, two to a page, with a link to the next page.
fn items(got: &Got, most: u64) -> Play {
    let target = got.line.trim_start_matches("GET ");
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let parameter = |name: &str| {
        let found = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        found.and_then(|value| value.parse::<u64>().ok())
    };
    let after = parameter("at").or(parameter("after")).unwrap_or(0);
    let page: Vec<Value> = (after + 1..=(after + 2).min(most)).map(|id| json!({ "id": id })).collect();
    let answer = Play::answer(200, json!({ "data": { "items": page } }).to_string());
    match after + 2 < most {
        true => answer.with("link", format!("<{path}?at={}>; rel=\"next\"", after + 2)),
        false => answer,
    }
}

#[tokio::test]
async fn a_body_is_a_message_or_is_cut_and_the_source_ends_after_one_poll() {
    let server = Fake::pages(|_, _| Play::answer(200, "a\nb\n")).await;
    let address = &server.address;
    let yaml = format!("{{ url: 'http://me:SEKRET@{address}/x?q=1', headers: {{ X-A: b }} }}");
    let sent = fetched(&yaml).await;
    assert!(sent.result.is_none() && sent.errors.is_empty());
    assert_eq!(sent.payloads(), ["a\nb\n"]);
    assert_eq!(sent.main[0].meta().path.as_deref(), Some(format!("http://{address}/x?…").as_str()));
    let got = server.got().remove(0);
    assert_eq!((got.line.as_str(), got.header("x-a")), ("GET /x?q=1", "b"));
    assert!(got.header("authorization").starts_with("Basic "));
    let sent = fetched(&format!("{{ url: '{address}', framing: {{}}, max_message_bytes: 1 }}")).await;
    assert_eq!(sent.payloads(), ["a", "b"]);
    let none = Fake::pages(|_, _| Play::answer(204, "")).await;
    let sent = fetched(&format!("{{ url: '{}' }}", none.address)).await;
    assert!(sent.result.is_none() && sent.main.is_empty());
}

#[tokio::test]
async fn messages_that_cannot_be_used_leave_by_errors() {
    let server = Fake::pages(|_, _| Play::answer(200, "ab\nabcdef\nc")).await;
    let yaml = format!("{{ url: '{}', framing: {{}}, max_message_bytes: 4 }}", server.address);
    let sent = fetched(&yaml).await;
    assert_eq!(sent.payloads(), ["ab", "c"]);
    let rejected = payloads(&sent.errors[0]);
    assert!(rejected.len() == 1 && rejected[0].starts_with("abcd"), "{rejected:?}");
    let reason = rows(sent.errors[0].fields())[0]["error_reason"].as_str().unwrap().to_owned();
    assert!(reason.starts_with("is longer than `max_message_bytes`"), "{reason}");
}

#[tokio::test]
async fn links_lead_from_page_to_page_and_the_cursor_is_that_of_the_last_message() {
    let server = Fake::pages(|_, got| items(got, 5)).await;
    let yaml = format!(
        "{{ url: 'http://{}/items', array_field: data.items, pages: {{ by: link }}, \
         cursor: {{ field: id, parameter: after }} }}",
        server.address
    );
    let (sent, place) = resumed(&yaml, None).await;
    assert!(sent.result.is_none());
    assert_eq!(sent.payloads(), [1, 2, 3, 4, 5].map(|id| format!("{{\"id\":{id}}}")));
    let lines: Vec<String> = server.got().into_iter().map(|got| got.line).collect();
    assert_eq!(lines, ["GET /items", "GET /items?at=2", "GET /items?at=4"]);
    assert_eq!((&place["cursor"], &place["page"], &place["sent"]), (&json!("5"), &Value::Null, &json!(0)));
    // A later run asks for what is new.
    let (sent, place) = resumed(&yaml, Some(place)).await;
    assert!(sent.result.is_none() && sent.main.is_empty());
    assert_eq!(server.got().last().unwrap().line, "GET /items?after=5");
    assert_eq!(place["cursor"], json!("5"));
}

#[tokio::test]
async fn pages_have_numbers_offsets_or_tokens() {
    for (pages, expected) in [
        ("{ by: number, start: 0 }", vec!["?page=0", "?page=1", "?page=2", "?page=3"]),
        ("{ by: offset, size: 2, parameter: from }", vec!["?from=0", "?from=2", "?from=4"]),
        ("{ by: field, field: next, parameter: token }", vec!["", "?token=t1", "?token=t2"]),
    ] {
        let server = Fake::pages(|number, _| {
            let page = match number {
                0 => json!({ "items": [1, 2], "next": "t1" }),
                1 => json!({ "items": [3, 4], "next": "t2" }),
                2 => json!({ "items": [5], "next": null }),
                _ => json!({ "items": [] }),
            };
            Play::answer(200, page.to_string())
        })
        .await;
        let sent =
            fetched(&format!("{{ url: '{}', array_field: items, pages: {pages} }}", server.address)).await;
        assert!(sent.result.is_none(), "{pages}");
        assert_eq!(sent.payloads(), ["1", "2", "3", "4", "5"]);
        let lines: Vec<String> = server.got().into_iter().map(|got| got.line).collect();
        assert_eq!(lines, expected.iter().map(|query| format!("GET /{query}")).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_status_behind_the_last_page_ends_the_poll_and_is_an_error_for_the_first_page() {
    let server = Fake::pages(|_, got| match got.line.rsplit('=').next() {
        Some("1") => Play::answer(200, "{\"items\": [{\"id\": 1}]}"),
        Some("2") => Play::answer(200, "{\"items\": [{\"id\": 2}]}"),
        _ => Play::answer(404, "there is no such page"),
    })
    .await;
    let yaml = |pages: &str| {
        format!(
            "{{ url: 'http://{}/', array_field: items, pages: {pages}, cursor: {{ field: id, parameter: after }} }}",
            server.address
        )
    };
    let (sent, place) = resumed(&yaml("{ by: number }"), None).await;
    assert!(sent.result.is_none(), "{:?}", sent.result);
    assert_eq!(sent.payloads(), ["{\"id\": 1}", "{\"id\": 2}"]);
    assert_eq!((&place["cursor"], &place["page"]), (&json!("2"), &Value::Null));
    // A run that is resumed there has no more pages either, and begins nothing again.
    let within = json!({ "cursor": null, "next_cursor": "2", "page": { "number": 3 } });
    let (sent, place) = resumed(&yaml("{ by: number }"), Some(within)).await;
    assert!(sent.result.is_none() && sent.main.is_empty());
    assert_eq!((&place["cursor"], &place["page"]), (&json!("2"), &Value::Null));
    for (pages, count) in [
        ("{ by: number, start: 7 }", 0),
        ("{ by: number, end_status: 400 }", 2),
        ("{ by: number, end_status: 204 }", 2),
    ] {
        let (sent, _) = resumed(&yaml(pages), None).await;
        let error = sent.result.as_ref().unwrap().full();
        assert!(error.contains("404 Not Found: there is no such page"), "{pages}: {error}");
        assert_eq!(sent.payloads().len(), count, "{pages}");
    }
}

#[tokio::test]
async fn a_body_gets_the_cursor_and_the_page_escaped() {
    let server = Fake::pages(|number, _| match number {
        0 => Play::answer(200, json!({ "items": ["x"], "next": "a\"{cursor}" }).to_string()),
        _ => Play::answer(200, json!({ "items": [], "since": "s" }).to_string()),
    })
    .await;
    let yaml = format!(
        "{{ url: 'http://{}/', body: '{{\"c\": \"{{cursor}}\", \"p\": \"{{page}}\"}}', array_field: items, \
         pages: {{ by: field, field: next }}, cursor: {{ field: since, from: body, initial: \"0\" }} }}",
        server.address
    );
    let (sent, place) = resumed(&yaml, None).await;
    assert!(sent.result.is_none(), "{:?}", sent.result);
    let got = server.got();
    assert_eq!((got[0].line.as_str(), got[0].header("content-type")), ("POST /", "application/json"));
    assert_eq!(got[0].body, "{\"c\": \"0\", \"p\": \"\"}");
    assert_eq!(got[1].body, "{\"c\": \"0\", \"p\": \"a\\\"{cursor}\"}");
    assert_eq!(place["cursor"], json!("s"));
}

#[tokio::test]
async fn an_answer_that_has_not_changed_has_no_messages() {
    let server = Fake::pages(|_, got| match got.header("if-none-match") {
        "\"e\"" => Play::answer(304, ""),
        _ => Play::answer(200, "a")
            .with("etag", "\"e\"")
            .with("last-modified", "Wed, 21 Oct 2015 07:28:00 GMT"),
    })
    .await;
    let yaml = format!("{{ url: 'http://{}/' }}", server.address);
    let (sent, place) = resumed(&yaml, None).await;
    assert_eq!(sent.payloads(), ["a"]);
    let (sent, place) = resumed(&yaml, Some(place)).await;
    assert!(sent.result.is_none() && sent.main.is_empty());
    assert_eq!(place["etag"], json!("\"e\""));
    assert_eq!(server.got()[1].header("if-modified-since"), "Wed, 21 Oct 2015 07:28:00 GMT");
}

/// The rest of the pages, or all messages, would be left out without a sign.
#[tokio::test]
async fn an_answer_that_has_not_changed_is_an_error_if_nobody_asked() {
    let link = |number: usize| format!("</?p={number}>; rel=next");
    let server = Fake::pages(move |number, _| match number {
        0 => Play::answer(200, "a").with("link", link(1)).with("etag", "\"e\""),
        _ => Play::answer(304, ""),
    })
    .await;
    for (options, count) in
        [("pages: { by: link },", 1), ("", 0), ("cursor: { field: '.', parameter: p },", 0)]
    {
        let sent = fetched(&format!("{{ {options} url: '{}' }}", server.address)).await;
        let error = sent.result.as_ref().unwrap();
        let reason = "the status 304 answers a request that does not ask for what is new";
        assert!(error.full().ends_with(reason), "{}", error.full());
        assert_eq!(sent.payloads().len(), count);
    }
    let asks = format!("{{ url: '{}', headers: {{ If-None-Match: '\"x\"' }} }}", server.address);
    let sent = fetched(&asks).await;
    assert!(sent.result.is_none() && sent.main.is_empty());
}

#[tokio::test]
async fn a_poll_that_would_not_end_is_an_error() {
    let circle = Fake::pages(|_, got| {
        let next = if got.line.ends_with("/a") { "/b" } else { "/a" };
        Play::answer(200, got.line.clone()).with("link", format!("<{next}>; rel=next"))
    })
    .await;
    let sent = fetched(&format!("{{ url: '{}', pages: {{ by: link }} }}", circle.address)).await;
    let reason = "the pages lead in a circle: the next one was read in this poll already";
    assert!(sent.result.unwrap().full().ends_with(reason));
    assert!(circle.got().len() < 10);
    let same = Fake::pages(|_, _| Play::answer(200, "a\nb\n")).await;
    let sent =
        fetched(&format!("{{ url: '{}', framing: {{}}, pages: {{ by: number }} }}", same.address)).await;
    let reason = sent.result.unwrap().full();
    assert!(reason.contains("10 pages in a row have the same messages"), "{reason}");
    assert_eq!(same.got().len(), 10);
}

#[tokio::test]
async fn a_message_may_be_the_cursor() {
    let server = Fake::pages(|_, _| Play::answer(200, "[\"2024-05-01\", \"2024-05-02 &\"]")).await;
    let yaml = format!(
        "{{ url: 'http://{}/', array_field: '.', cursor: {{ field: '.', parameter: after }} }}",
        server.address
    );
    let (sent, place) = resumed(&yaml, None).await;
    assert!(sent.result.is_none(), "{:?}", sent.result);
    assert_eq!(place["cursor"], json!("2024-05-02 &"));
    resumed(&yaml, Some(place)).await;
    assert_eq!(server.got()[1].line, "GET /?after=2024-05-02+%26");
}

#[tokio::test]
async fn headers_of_the_server_may_have_other_characters_and_any_length() {
    let server = Fake::pages(|number, _| match number {
        0 => Play::answer(200, "a").with("link", "</\u{fc}>; rel=next"),
        _ => Play::answer(200, "b"),
    })
    .await;
    let sent = fetched(&format!("{{ url: '{}', pages: {{ by: link }} }}", server.address)).await;
    assert_eq!(sent.payloads(), ["a", "b"]);
    assert_eq!(server.got()[1].line, "GET /%C3%BC");
    let long = Fake::pages(|_, _| Play::answer(200, "a").with("etag", "e".repeat(100_000))).await;
    let (sent, place) = resumed(&format!("{{ url: 'http://{}/' }}", long.address), None).await;
    assert_eq!((sent.payloads(), &place["etag"]), (vec!["a".to_owned()], &Value::Null));
}

#[tokio::test]
async fn a_page_of_other_options_is_not_resumed() {
    let server = Fake::pages(|_, got| match got.line.contains("page=") {
        true => Play::answer(200, ""),
        false => Play::answer(500, ""),
    })
    .await;
    let yaml = format!("{{ url: 'http://{}/', framing: {{}}, pages: {{ by: number }} }}", server.address);
    let saved = json!({ "page": { "url": format!("http://{}/old", server.address) } });
    assert!(resumed(&yaml, Some(saved)).await.0.result.is_none());
    assert_eq!(server.got()[0].line, "GET /?page=1");
}

/// Reads a number of messages, and stops there. Returns the payloads and the place.
async fn first(yaml: &str, count: u64) -> (Vec<String>, Value) {
    let address = yaml.split('\'').nth(1).unwrap();
    let source = options::<HttpClient>(yaml).build(&testing::context()).unwrap();
    let running = start_bounded(source, 1 << 20, Bounds { limit: Some(count), rows: None });
    let positions = running.positions.clone();
    let sent = within(running.finish()).await;
    (sent.payloads(), positions.saved(&without_query(address)).unwrap_or_default())
}

#[tokio::test]
async fn a_later_run_continues_within_a_page_unless_the_page_has_changed() {
    let server = Fake::pages(|_, _| Play::answer(200, "a\nb\nc\n")).await;
    let yaml = format!("{{ url: 'http://{}/', framing: {{}} }}", server.address);
    let (sent, place) = first(&yaml, 2).await;
    assert_eq!((sent, &place["sent"]), (vec!["a".to_owned(), "b".to_owned()], &json!(2)));
    assert_eq!(resumed(&yaml, Some(place.clone())).await.0.payloads(), ["c"]);
    let changed = Fake::pages(|_, _| Play::answer(200, "x\nb\nc\n")).await;
    let yaml = format!("{{ url: 'http://{}/', framing: {{}} }}", changed.address);
    assert_eq!(resumed(&yaml, Some(place)).await.0.payloads(), ["x", "b", "c"]);
}

#[tokio::test]
async fn a_poll_whose_page_is_gone_is_begun_again() {
    let server = Fake::pages(|_, got| match got.line.contains("token=old") {
        true => Play::answer(410, "expired"),
        false => Play::answer(200, "{\"items\": [1]}"),
    })
    .await;
    let yaml = format!(
        "{{ url: 'http://{}/', array_field: items, pages: {{ by: field, field: next, parameter: token }} }}",
        server.address
    );
    let place = json!({ "page": { "token": "old" } });
    let (sent, _) = resumed(&yaml, Some(place)).await;
    assert!(sent.result.is_none());
    assert_eq!((sent.payloads(), server.got().len()), (vec!["1".to_owned()], 2));
}

#[tokio::test]
async fn a_temporary_failure_is_repeated_and_another_one_ends_the_run() {
    let server = Fake::pages(|number, _| match number {
        0 => Play::answer(503, "").with("retry-after", "0"),
        1 => Play::cut(),
        _ => Play::answer(200, "a"),
    })
    .await;
    let running = testing::start_retried::<HttpClient>(&format!("{{ url: '{}' }}", server.address), 1 << 20);
    let sent = within(running.finish()).await;
    assert!(sent.result.is_none());
    assert_eq!((sent.payloads(), server.got().len()), (vec!["a".to_owned()], 3));
    for (play, options, reason) in [
        (Play::answer(403, "no SEKRET"), "", "answered 403 Forbidden: no …"),
        (Play::answer(200, "x".repeat(2000)), "max_body_bytes: 1000,", "is larger than `max_body_bytes`"),
        (
            Play::answer(200, " [1]"),
            "array_field: a,",
            "the body is an array, and not an object with one: write `array_field: \".\"` in place of `a`",
        ),
        (Play::answer(200, "1"), "array_field: a,", "the body is not a JSON object"),
        (
            Play::answer(200, "[1]"),
            "cursor: { field: id, parameter: p },",
            "the last message is not a JSON object",
        ),
        (Play::answer(302, "").with("location", "file:///a"), "", "leads to something that is not HTTP"),
    ] {
        let server = Fake::pages(move |_, _| play.clone()).await;
        let yaml = format!("{{ url: '{}', {options} auth: {{ bearer: SEKRET }} }}", server.address);
        let error = fetched(&yaml).await.result.unwrap();
        assert_eq!(error.kind(), ErrorKind::Permanent, "{}", error.full());
        assert!(error.full().contains(reason), "{}", error.full());
    }
}

#[tokio::test]
async fn a_name_with_a_near_address_is_not_asked_for_a_server_elsewhere() {
    let server = Fake::pages(|_, _| Play::answer(200, "a secret of this machine")).await;
    let port = server.address.rsplit(':').next().unwrap();
    // Where the page was named, only the text of the name was looked at.
    let place = json!({ "page": { "url": format!("http://localhost:{port}/") } });
    let (sent, _) = resumed("{ url: 'http://192.0.2.1/', pages: { by: link } }", Some(place)).await;
    let error = sent.result.unwrap();
    assert_eq!(error.kind(), ErrorKind::Permanent, "{}", error.full());
    assert!(error.full().contains("from another machine to this one"), "{}", error.full());
    assert!(sent.main.is_empty() && server.got().is_empty());
}

#[tokio::test]
async fn another_server_gets_no_credentials() {
    let other = Fake::pages(|_, _| Play::answer(200, "there")).await;
    let location = format!("http://{}/y", other.address);
    let server = Fake::pages(move |number, _| match number {
        0 => Play::answer(302, "").with("location", "/moved"),
        _ => Play::answer(302, "").with("location", location.clone()),
    })
    .await;
    let options = "auth: { bearer: SEKRET }, headers: { X-Key: SEKRET }";
    let sent = fetched(&format!("{{ url: '{}', {options} }}", server.address)).await;
    assert_eq!(sent.payloads(), ["there"]);
    assert_eq!(server.got()[1].header("authorization"), "Bearer SEKRET");
    let got = other.got().remove(0);
    assert_eq!((got.header("authorization"), got.header("x-key")), ("", ""));
    // A body is not sent there at all.
    let location = format!("http://{}/y", other.address);
    let server = Fake::pages(move |_, _| Play::answer(307, "").with("location", location.clone())).await;
    let sent = fetched(&format!("{{ url: '{}', body: SEKRET }}", server.address)).await;
    assert!(sent.result.unwrap().full().ends_with("leads to another server, which does not get the body"));
    assert_eq!(other.got().len(), 1);
}

#[tokio::test]
async fn polls_follow_each_other_also_after_one_that_failed() {
    let server = Fake::pages(|number, _| match number {
        1 => Play::answer(404, ""),
        _ => Play::answer(200, number.to_string()),
    })
    .await;
    let yaml = format!("{{ url: '{}', every: 5ms }}", server.address);
    let running = start::<HttpClient>(&yaml, 1 << 20, BTreeMap::new());
    for expected in ["0", "2", "3"] {
        let Some((_, testing::Arrived::Messages(batch))) = within(running.main.take()).await else {
            panic!("it ended")
        };
        assert_eq!(payloads(&batch), [expected]);
        batch.settle(Outcome::Delivered);
    }
    running.stop.request();
    assert!(within(running.finish()).await.result.is_none());
}

#[test]
fn mistakes_are_named() {
    let mistakes = |yaml: &str| messages(options::<HttpClient>(yaml).check());
    assert_eq!(mistakes("{ url: a }"), [""; 0]);
    assert_eq!(
        mistakes("{ url: 'ftp://a', every: 0s }"),
        ["`ftp` is not a scheme of HTTP.", "`every` cannot be 0."]
    );
    assert_eq!(mistakes("{ url: a, method: GET, body: b }"), ["A request with GET has no body."]);
    let whole = "The last page is one without messages, but here each body is a message.";
    assert_eq!(mistakes("{ url: a, pages: { by: number } }"), [whole]);
    assert_eq!(mistakes("{ url: a, pages: { by: field } }"), ["The `field` of the next page is missing."]);
    assert_eq!(
        mistakes("{ url: a, pages: { by: link, size: 1 } }"),
        ["`size` is for `by: number` and `by: offset`."]
    );
    assert_eq!(mistakes("{ url: a, cursor: { field: id } }"), ["No request has the cursor."]);
    let same = "The page has the same parameter, and would replace the cursor.";
    let pages = "framing: {}, pages: { by: number, parameter: p }, cursor: { field: id, parameter: p }";
    assert_eq!(mistakes(&format!("{{ url: a, {pages} }}")), [same]);
    let no_first = ["The first request has no cursor to put into its body."];
    assert_eq!(mistakes("{ url: a, body: '{cursor}', cursor: { field: id } }"), no_first);
    assert_eq!(
        mistakes("{ url: a, body: '{cursor}' }"),
        ["There is no `cursor` that `{cursor}` stands for."]
    );
    assert_eq!(mistakes("{ url: a, body: '{page}' }"), ["No page has a value that `{page}` stands for."]);
    let both = "A body is cut by `framing` or `array_field`, not both.";
    assert_eq!(mistakes("{ url: a, framing: {}, array_field: b }"), [both]);
}

/// The addresses of a host were looked at before the request alone. The client looks them up again when it
/// connects, and a name server may answer differently then.
#[tokio::test]
async fn the_client_itself_connects_to_no_near_address_of_a_name() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://localhost:{}/", listener.local_addr().unwrap().port());
    let asker = ask::Asker::new(options("{ url: 'http://192.0.2.1/' }")).unwrap();
    let error = within(asker.request.client.get(&url).send()).await.unwrap_err();
    assert!(format!("{error:?}").contains(near::FROM_ELSEWHERE), "{error:?}");
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}
