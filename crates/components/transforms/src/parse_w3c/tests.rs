use super::*;
use std::sync::Arc;

use arrow_array::UInt64Array;
use proptest::prelude::*;
use serde_json::json;
use thalweg_engine::{Output, testing};
use thalweg_record::{Ack, Meta};

use crate::testing::no_line_is_lost;

const IIS: [&str; 5] = [
    "#Software: Microsoft Internet Information Services 10.0",
    "#Version: 1.0",
    "#Date: 2026-11-25 08:14:02",
    "#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent) sc-status time-taken",
    "2026-11-25 08:14:02 10.0.0.5 GET /default.htm a=1 443 - 203.0.113.7 Mozilla/5.0+(Windows) 200 15",
];

fn parsed(yaml: &str, lines: &[&str]) -> testing::Given {
    testing::apply::<ParseW3c>(yaml, [testing::batch(lines)])
}

#[test]
fn it_conforms() {
    testing::transform_conforms::<ParseW3c>("{}", &["#Fields: a b", "1 2", "", "\"x y\" 3", "\"", "1 2 3"]);
    testing::transform_conforms::<ParseW3c>(
        "{ format: cloudfront, fields: [a, b] }",
        &["1\t2", "", "#", "%"],
    );
}

#[test]
fn lines_of_iis_have_the_fields_that_their_file_names() {
    let mut lines = IIS.to_vec();
    lines.extend(["#Fields: time cs-method x", "08:15:00 PUT \"a \"\"b\"\" c\"\r", "", "08:15:01 - -"]);
    assert_eq!(
        parsed("{}", &lines).main(),
        [
            json!({"date": "2026-11-25", "time": 1_795_594_442_000_000_i64, "s-ip": "10.0.0.5", "cs-method": "GET",
                "cs-uri-stem": "/default.htm", "cs-uri-query": "a=1", "s-port": 443, "c-ip": "203.0.113.7",
                "cs(User-Agent)": "Mozilla/5.0+(Windows)", "sc-status": 200, "time-taken": 15.0}),
            json!({"time-of-day": "08:15:00", "cs-method": "PUT", "x": "a \"b\" c"}),
            json!({"time-of-day": "08:15:01"}),
        ]
    );
}

#[test]
fn lines_of_cloudfront_are_divided_at_tabs_and_decoded() {
    let given = parsed(
        "format: cloudfront",
        &[
            "#Version: 1.0",
            "#Fields: date time x-edge-location sc-bytes cs(Host) cs-uri-stem sc-status cs(User-Agent) time-taken",
            "2019-12-04\t21:02:31\tLAX1\t392\td111111abcdef8.cloudfront.net\t/a%C3%A9%zz\t200\tMozilla/5.0%20(Windows%20NT)\t0.001",
        ],
    );
    assert_eq!(
        given.main(),
        [
            json!({"date": "2019-12-04", "time": 1_575_493_351_000_000_i64, "x-edge-location": "LAX1", "sc-bytes": 392,
            "cs(Host)": "d111111abcdef8.cloudfront.net", "cs-uri-stem": "/aé%zz", "sc-status": 200,
            "cs(User-Agent)": "Mozilla/5.0 (Windows NT)", "time-taken": 0.001})
        ]
    );
}

#[test]
fn a_value_that_begins_with_a_quote_does_not_need_another() {
    let lines = [
        "#Fields: date cs-uri-query cs(User-Agent) sc-status",
        "2024-01-02 - \"Mozilla/5.0 200",
        "2024-01-02 \"><script> Mozilla/5.0 404",
        "2024-01-02 \"a Mozilla/5.0\" 200",
        "2024-01-02 a \"Mozilla/5.0 (X11)\" 200",
    ];
    let found: Vec<_> = parsed("{}", &lines)
        .main()
        .into_iter()
        .map(|row| ["cs-uri-query", "cs(User-Agent)", "sc-status"].map(|name| row[name].clone()))
        .collect();
    assert_eq!(
        json!(found),
        json!([
            [null, "\"Mozilla/5.0", 200],
            ["\"><script>", "Mozilla/5.0", 404],
            ["\"a", "Mozilla/5.0\"", 200],
            ["a", "Mozilla/5.0 (X11)", 200],
        ])
    );
}

#[test]
fn tabs_may_be_between_values_and_durations_may_have_a_fraction() {
    let given = parsed("{}", &["#Fields:\tdate\tx\ttime-taken", "2024-01-02\ta b\t0.015", "2024-01-02 c 15"]);
    assert_eq!(
        given.main(),
        [
            json!({"date": "2024-01-02", "x": "a b", "time-taken": 0.015}),
            json!({"date": "2024-01-02", "x": "c", "time-taken": 15.0}),
        ]
    );
}

#[test]
fn queries_of_cloudfront_keep_their_escapes() {
    let lines = ["#Fields: cs-uri-query cs(Referer) x", "a=1%26b&c=%20\thttp://x/?a=%26\ta%20b"];
    let expected = json!({"cs-uri-query": "a=1%26b&c=%20", "cs(Referer)": "http://x/?a=%26", "x": "a b"});
    assert_eq!(parsed("format: cloudfront", &lines).main(), [expected]);
}

fn of(path: &str, first: u64, lines: &[&str]) -> Batch {
    let batch = testing::batch(lines);
    let meta = Meta { path: Some(path.into()), ..(**batch.meta()).clone() };
    let positions = UInt64Array::from_iter_values((0..lines.len() as u64).map(|row| first + 100 * row));
    Batch::new(batch.payload().clone(), Arc::new(meta), Ack::noop()).with_positions(positions).unwrap()
}

#[test]
fn each_file_has_its_own_fields_and_a_later_run_knows_them() {
    let config = testing::options::<ParseW3c>("{}");
    let mut out = Outputs::new("test".into());
    let mut transform = config.build(&testing::context()).unwrap();
    let mut apply = |transform: &mut Box<dyn Transform>, batch: Batch| {
        transform.apply(batch, &mut out).unwrap();
        let mut given = testing::Given::default();
        loop {
            for (output, batch) in out.take() {
                given.outputs.entry(output).or_default().push(batch);
            }
            if out.take_held().is_none() {
                return given;
            }
            transform.resume(&mut out).unwrap();
        }
    };
    apply(&mut transform, of("one", 0, &["#Fields: a b"]));
    apply(&mut transform, of("two", 0, &["#Fields: c"]));
    assert_eq!(apply(&mut transform, of("one", 100, &["1 2"])).main(), [json!({"a": "1", "b": "2"})]);
    let state = transform.state().unwrap();
    assert_eq!(transform.state(), None);
    let mut later = config.build(&testing::context()).unwrap();
    later.restore(state).unwrap();
    assert_eq!(apply(&mut later, of("one", 200, &["3 4"])).main(), [json!({"a": "3", "b": "4"})]);
    assert_eq!(apply(&mut later, of("two", 200, &["5"])).main(), [json!({"c": "5"})]);
    assert_eq!(
        apply(&mut later, of("three", 200, &["6"])).reasons(),
        [
            "the header of `three` was not read, because reading began after it: name its fields in `fields`, then replay these messages (`thalweg errors replay`)"
        ]
    );
}

#[test]
fn fields_can_be_given() {
    let given =
        parsed("{ fields: [a, time], types: { a: int } }", &["\u{feff}#Fields: x", "1 2", "z 3", "4"]);
    assert_eq!(given.main(), [json!({"a": 1, "time-of-day": "2"})]);
    assert_eq!(
        given.reasons(),
        ["the field `a` is not a whole number of 64 bits: `z`", "has 1 value for 2 fields"]
    );
    let mistakes = testing::options::<ParseW3c>("{ fields: [a, a], types: { b: int } }").check();
    assert_eq!(
        testing::messages(mistakes),
        ["`a` is named twice.", "`b` is given a type, but there is no field of that name."]
    );
}

#[test]
fn a_list_of_fields_that_cannot_be_read_is_rejected_with_its_lines() {
    let given = parsed("{}", &["#Fields: a a", "1 2", "#Fields:", "3", "#Fields: a", "4", "\"x y"]);
    assert_eq!(given.main(), [json!({"a": "4"})]);
    assert_eq!(
        given.errors(),
        [
            ("#Fields: a a", "the header could not be read: it names `a` twice"),
            ("1 2", "the header could not be read: it names `a` twice"),
            ("#Fields:", "the header could not be read: it names no field"),
            ("3", "the header could not be read: it names no field"),
            ("\"x y", "the quote at byte 0 is not closed"),
        ]
        .map(|(line, reason)| (line.to_owned(), reason.to_owned()))
    );
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(rows in prop::collection::vec(prop::collection::vec("[!-~é]{1,9}", 3), 1..20)) {
        let mut lines = vec!["#Fields: a b c".to_owned()];
        let written = |value: &String| if value.starts_with('"') { format!("\"{}\"", value.replace('"', "\"\"")) } else { value.clone() };
        lines.extend(rows.iter().map(|row| row.iter().map(written).collect::<Vec<_>>().join(" ")));
        prop_assume!(lines.iter().skip(1).all(|line| !line.starts_with('#')));
        let given = testing::apply::<ParseW3c>("{}", [testing::batch(&lines)]);
        let expected: Vec<_> = rows
            .iter()
            .map(|row| {
                let values = ["a", "b", "c"].into_iter().zip(row).filter(|(_, value)| *value != "-");
                json!(values.collect::<std::collections::BTreeMap<_, _>>())
            })
            .collect();
        prop_assert_eq!(given.main(), expected);
        prop_assert_eq!(given.payloads(Output::Main).len(), rows.len());
    }

    #[test]
    fn every_line_leaves(lines in prop::collection::vec("[a%\t\" -]{1,12}", 1..20)) {
        no_line_is_lost::<ParseW3c>("{ format: cloudfront, fields: [a, b] }", &lines)?;
    }
}
