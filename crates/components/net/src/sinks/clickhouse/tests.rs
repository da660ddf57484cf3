use std::time::Duration;

use thalweg_engine::testing::{batch, messages, options, sink_conforms};

use super::*;
use crate::requests::testing::{Fake, Play, numbered, open, write};

fn token(line: &str) -> &str {
    line.split_once("insert_deduplication_token=").map_or("", |(_, token)| token)
}

#[tokio::test]
async fn it_conforms() {
    let server = Fake::start(|_, _| Play::answer(200, "")).await;
    for options in ["", ", deduplicate: false, max_delay: 1ms", ", compression: gzip"] {
        let yaml = format!("{{ url: '{}', table: t, encode: raw{options} }}", server.address);
        sink_conforms::<ClickhouseConfig>(&yaml).await;
    }
}

#[tokio::test]
async fn rows_are_inserted_with_a_token_that_a_second_try_repeats() {
    let server = Fake::start(|number, _| match number {
        // The insert was stored, but its answer is lost.
        0 => Play::cut(),
        _ => Play::answer(200, ""),
    })
    .await;
    let yaml = format!(
        "{{ url: '{}', database: d, table: 'a`b', encode: raw, skip_unknown_fields: true, \
         settings: {{ async_insert: '1' }}, auth: {{ user: me, password: pw }} }}",
        server.address
    );
    let mut sink = open::<ClickhouseConfig>(&yaml).await;
    let (rejected, errors) = write(&mut sink, &batch(["{\"a\":\n1}", "{}"])).await;
    assert_eq!((rejected, errors.len()), (vec![], 1));
    write(&mut sink, &batch(["{\"a\":\n1}", "{}", "{}"])).await;
    let got = server.got();
    assert_eq!(
        (got[1].body.as_str(), got[1].header("authorization")),
        ("{\"a\": 1}\n{}\n", "Basic bWU6cHc=")
    );
    let start = "POST /?query=INSERT+INTO+%60a%5C%60b%60+FORMAT+JSONEachRow&database=d&async_insert=1\
                 &date_time_input_format=best_effort&input_format_skip_unknown_fields=1\
                 &wait_end_of_query=1&insert_deduplication_token=";
    assert!(got[1].line.starts_with(start), "{}", got[1].line);
    assert_eq!(token(&got[0].line), token(&got[1].line));
    assert!(token(&got[1].line).len() == 40 && token(&got[1].line) != token(&got[2].line));
}

#[tokio::test]
async fn only_rows_that_are_to_blame_are_refused() {
    let exception =
        "Code: 27. DB::Exception: Cannot parse input: expected '\"' (CANNOT_PARSE_INPUT_ASSERTION_FAILED)";
    let server = Fake::start(move |number, got| match number {
        0 => Play::answer(500, "Code: 252. DB::Exception: Too many parts").with("retry-after", "0"),
        1 => Play::answer(404, "Code: 60. DB::Exception: Unknown table")
            .with("x-clickhouse-exception-code", "60"),
        _ if got.body.contains("\"n\":3") => Play::answer(400, exception),
        _ => Play::answer(200, "").after(Duration::from_millis(1)),
    })
    .await;
    let yaml = format!("{{ url: '{}', table: t, encode: raw }}", server.address);
    let (rejected, errors) = write(&mut open::<ClickhouseConfig>(&yaml).await, &batch(numbered(6))).await;
    assert_eq!(errors, [thalweg_engine::ErrorKind::Overloaded, thalweg_engine::ErrorKind::Temporary]);
    assert_eq!(rejected.len(), 1);
    assert_eq!(rejected[0].0, 3);
    assert!(rejected[0].1.ends_with(&format!("answered 400 Bad Request: {exception}")), "{}", rejected[0].1);
    let stored: Vec<String> = server.got()[2..]
        .iter()
        .filter(|got| !got.body.contains("\"n\":3"))
        .flat_map(|got| got.lines().into_iter().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let expected: Vec<String> = numbered(6).into_iter().filter(|row| row != "{\"n\":3}").collect();
    assert_eq!(stored, expected);
}

/// `split` makes equal messages with one position, and `limit` divides batches.
#[tokio::test]
async fn equal_rows_of_several_inserts_are_all_stored() {
    let server = Fake::start(|number, _| match number {
        0 => Play::cut(),
        _ => Play::answer(200, ""),
    })
    .await;
    let yaml =
        format!("{{ url: '{}', table: t, encode: raw, max_count: 2, concurrency: 1 }}", server.address);
    let mut sink = open::<ClickhouseConfig>(&yaml).await;
    write(&mut sink, &batch(["{}"; 4]).with_positions(vec![7_u64; 4].into()).unwrap()).await;
    write(&mut sink, &batch(["{}"; 2]).with_positions(vec![7_u64; 2].into()).unwrap()).await;
    let got = server.got();
    let tokens: Vec<&str> = got.iter().map(|got| token(&got.line)).collect();
    assert_eq!(tokens.len(), 4);
    // The first is sent again.
    assert_eq!(tokens[0], tokens[1]);
    assert!(tokens[1] != tokens[2] && tokens[2] != tokens[3] && tokens[1] != tokens[3], "{tokens:?}");
}

/// The server may answer 200 before it fails.
#[tokio::test]
async fn an_exception_counts_also_with_a_status_of_success() {
    let server = Fake::start(|number, _| match number {
        0 => Play::answer(200, "Code: 241. DB::Exception: Memory limit exceeded"),
        _ => Play::answer(200, ""),
    })
    .await;
    let yaml = format!("{{ url: '{}', table: t, encode: raw }}", server.address);
    let (rejected, errors) = write(&mut open::<ClickhouseConfig>(&yaml).await, &batch(["{}"])).await;
    assert_eq!((rejected, errors), (vec![], vec![thalweg_engine::ErrorKind::Overloaded]));
}

#[test]
fn a_row_is_known_by_its_origin() {
    let encoded = |batch: &Batch| {
        let mut into = Encoded::default();
        Rows { moments: Some(Moments::default()), first: 1 }.encode(batch, &[0, 1], &mut into);
        into.parts().clone()
    };
    let rows = batch(["{}", "{}"]);
    let positioned = |at: [u64; 2]| batch(["{}", "{}"]).with_positions(at.to_vec().into()).unwrap();
    assert_eq!(encoded(&rows), encoded(&rows));
    assert_eq!(encoded(&positioned([1, 2])), encoded(&positioned([1, 2])));
    assert_ne!(encoded(&positioned([1, 2])), encoded(&positioned([1, 3])));
    let body = Inserts::new(true).body(&encoded(&rows));
    assert_eq!(body, "{}\n{}\n");
}

#[test]
fn mistakes_are_named() {
    let mistakes = |yaml: &str| messages(options::<ClickhouseConfig>(yaml).check());
    assert_eq!(mistakes("{ url: 'ftp://a', table: t }"), ["`ftp` is not a scheme of HTTP."]);
    assert_eq!(mistakes("{ url: a, table: t }"), [""; 0]);
}
