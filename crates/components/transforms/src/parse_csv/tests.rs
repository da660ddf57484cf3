use super::*;
use std::sync::Arc;

use arrow_array::{UInt64Array, cast::AsArray};
use proptest::prelude::*;
use serde_json::json;
use thalweg_engine::{Output, testing};
use thalweg_record::{Ack, Meta};

use crate::testing::no_line_is_lost;

#[test]
fn it_conforms() {
    let lines = ["a,b", "1,2", "", "\"x,y\",3", "\"", "1,2,3"];
    testing::transform_conforms::<ParseCsv>("columns: [a, b]", &lines);
    testing::transform_conforms::<ParseCsv>("header: true", &lines);
}

fn parsed(yaml: &str, lines: &[&str]) -> testing::Given {
    testing::apply::<ParseCsv>(yaml, [testing::batch(lines)])
}

#[test]
fn values_become_typed_columns() {
    let given = parsed(
        "{columns: [name, age, ok, at], types: {age: int, ok: bool, at: timestamp}}",
        &["Ada,36,true,1970-01-01T00:00:01Z", "Bob,,,-", "Eve,x,,", "\"\",1,no,0\r"],
    );
    assert_eq!(
        given.main(),
        [
            json!({"name": "Ada", "age": 36, "ok": true, "at": 1_000_000}),
            json!({"name": "Bob"}),
            json!({"name": "", "age": 1, "ok": false, "at": 0}),
        ]
    );
    assert_eq!(given.errors()[0].1, "the field `age` is not a whole number of 64 bits: `x`");
}

#[test]
fn quotes_protect_delimiters_and_double_to_mean_themselves() {
    let given = parsed("columns: [a, b]", &[r#""x,y","say ""hi""""#, r#"a"b,"""""#, r#""a,b"#, r#""a"b,c"#]);
    assert_eq!(given.main(), [json!({"a": "x,y", "b": r#"say "hi""#}), json!({"a": r#"a"b"#, "b": r#"""#})]);
    assert_eq!(
        given.errors().iter().map(|(_, reason)| reason.as_str()).collect::<Vec<_>>(),
        ["the quote at byte 0 is not closed", "a quote is closed before byte 3, but no `,` follows"]
    );
}

#[test]
fn too_few_and_too_many_values_are_told_with_both_numbers() {
    let lines = ["1", "1,2,3", "1,2,", "1,2"];
    let given = parsed("columns: [a, b]", &lines);
    assert_eq!(given.main(), [json!({"a": "1", "b": "2"})]);
    assert_eq!(given.errors()[0].1, "has 1 value for 2 columns");
    assert_eq!(given.errors()[1].1, "has 3 values for 2 columns");
    let given = parsed("{columns: [a, b], flexible: true}", &lines);
    assert_eq!(given.main()[0], json!({"a": "1"}));
    assert_eq!(
        given.main()[1..],
        [json!({"a": "1", "b": "2"}), json!({"a": "1", "b": "2"}), json!({"a": "1", "b": "2"})]
    );
}

#[test]
fn delimiters_quotes_and_space_are_as_configured() {
    let given = parsed(
        "{columns: [a, b], delimiter: \"\\t\", quote: \"'\", trim: true}",
        &[" x \t 'y\tz' ", "''''\t ' w '"],
    );
    assert_eq!(given.main(), [json!({"a": "x", "b": "y\tz"}), json!({"a": "'", "b": " w "})]);
    let given = parsed("{columns: [a], quote: ''}", &["\"x"]);
    assert_eq!(given.main(), [json!({"a": "\"x"})]);
}

#[test]
fn bytes_that_are_not_utf8_are_rejected_with_their_place() {
    let given = testing::apply::<ParseCsv>("columns: [a]", [testing::batch([&b"ab\xff"[..], b"ok"])]);
    assert_eq!(given.errors()[0].1, "is not UTF-8, at byte 2");
    assert_eq!(given.main(), [json!({"a": "ok"})]);
}

#[test]
fn quoted_text_is_not_copied() {
    let batch = testing::batch([r#""a quoted text that is not inline",x"#]);
    let payload = batch.payload().value(0).as_ptr() as usize;
    let given = testing::apply::<ParseCsv>("columns: [a, b]", [batch]);
    let column = given.outputs[&Output::Main][0].fields().column(0).as_string_view().clone();
    assert_eq!(column.value(0).as_ptr() as usize, payload + 1);
}

fn of(path: &str, first: Option<u64>, lines: &[&str]) -> Batch {
    let batch = testing::batch(lines);
    let meta = Meta { path: Some(path.into()), ..(**batch.meta()).clone() };
    let batch = Batch::new(batch.payload().clone(), Arc::new(meta), Ack::noop());
    match first {
        Some(first) => batch
            .with_positions(UInt64Array::from_iter_values((0..lines.len() as u64).map(|n| first + n * 10)))
            .unwrap(),
        None => batch,
    }
}

#[test]
fn each_file_has_its_own_header() {
    let given = testing::apply::<ParseCsv>(
        "{header: true, types: {n: int}}",
        [
            of("one", None, &["\u{feff}a,n", "x,1"]),
            of("two", None, &["n,,n"]),
            of("one", None, &["y,2"]),
            of("two", None, &["3,z,w"]),
        ],
    );
    assert_eq!(
        given.main(),
        [json!({"a": "x", "n": 1}), json!({"a": "y", "n": 2}), json!({"n": 3, "column_2": "z", "n_2": "w"})]
    );
}

#[test]
fn files_of_one_header_share_a_schema() {
    let given = testing::apply::<ParseCsv>(
        "header: true",
        [of("one", None, &["a,b", "1,2"]), of("two", None, &["a,b", "3,4"])],
    );
    let schemas: Vec<_> = given.outputs[&Output::Main].iter().map(|batch| batch.fields().schema()).collect();
    assert!(Arc::ptr_eq(&schemas[0], &schemas[1]));
}

#[test]
fn a_file_that_is_continued_has_no_header_and_one_that_begins_again_has_a_new_one() {
    let given = testing::apply::<ParseCsv>(
        "header: true",
        [of("one", Some(50), &["x,1"]), of("two", Some(0), &["a", "1"]), of("two", Some(0), &["b", "2"])],
    );
    assert_eq!(given.main(), [json!({"a": "1"}), json!({"b": "2"})]);
    assert_eq!(
        given.errors()[0].1,
        "the header of `one` was not read, because reading began after it: list its columns in `columns` in \
         place of `header: true`, then replay these messages (`thalweg errors replay`)"
    );
}

#[test]
fn a_header_that_cannot_be_read_rejects_what_follows_it() {
    let lines = ["a,\"b", "1,2"];
    let given = testing::apply::<ParseCsv>("header: true", [of("one", None, &lines)]);
    let reason = "the header could not be read: the quote at byte 2 is not closed";
    assert_eq!(given.errors(), lines.map(|line| (line.to_owned(), reason.to_owned())));
    // A replay can read the rejected messages, with other options.
    let given = testing::apply::<ParseCsv>("{header: true, quote: ''}", [of("one", Some(0), &lines)]);
    assert_eq!(given.main(), [json!({"a": "1", "\"b": "2"})]);
}

#[test]
fn the_second_record_of_a_short_header_is_no_header() {
    let batches = || [of("one", Some(0), &["a"]), of("one", Some(2), &["1"]), of("one", Some(4), &["2"])];
    let given = testing::apply::<ParseCsv>("header: true", batches());
    assert_eq!(given.main(), [json!({"a": "1"}), json!({"a": "2"})]);
    let marked = [of("one", Some(3), &["a", "1"]), of("one", Some(3), &["b", "2"])];
    assert_eq!(
        testing::apply::<ParseCsv>("header: true", marked).main(),
        [json!({"a": "1"}), json!({"b": "2"})]
    );
}

/// Builds a transform, restores it and applies it to batches. Returns the fields of the messages that left by
/// the main output, the number of batches that these were in, and the state.
fn restored(
    yaml: &str,
    context: &Context,
    saved: Option<serde_json::Value>,
    batches: Vec<Batch>,
) -> (Vec<serde_json::Value>, usize, Option<serde_json::Value>) {
    let mut transform = testing::options::<ParseCsv>(yaml).build(context).unwrap();
    saved.map(|saved| transform.restore(saved)).transpose().unwrap();
    let mut out = Outputs::new("test".into());
    let mut given = Vec::new();
    for batch in batches {
        transform.apply(batch, &mut out).unwrap();
        given.extend(out.take());
        while out.take_held().is_some() {
            transform.resume(&mut out).unwrap();
            given.extend(out.take());
        }
    }
    given.retain(|(output, _)| *output == Output::Main);
    let rows = given.iter().flat_map(|(_, batch)| testing::rows(batch.fields())).collect();
    (rows, given.len(), transform.state())
}

#[test]
fn a_run_that_continues_within_a_file_knows_its_header() {
    let context = testing::context();
    let first =
        vec![of("one", Some(0), &["a,b", "1,2"]), of("two", Some(0), &["c"]), of("bare", None, &["d"])];
    let (_, _, saved) = restored("header: true", &context, None, first);
    // Without offsets, each run takes the first record of a file for its header.
    let second =
        vec![of("one", Some(8), &["3,4"]), of("two", Some(2), &["5"]), of("bare", None, &["e", "6"])];
    let (rows, _, state) = restored("header: true", &context, saved, second);
    assert_eq!(rows, [json!({"a": "3", "b": "4"}), json!({"c": "5"}), json!({"e": "6"})]);
    assert_eq!(state, None);
}

#[test]
fn a_replay_takes_no_rejected_record_for_a_header() {
    let context = Context { resumes: true, is_replay: true, ..testing::context() };
    let mut transform = testing::options::<ParseCsv>("header: true").build(&context).unwrap();
    let mut out = Outputs::new("test".into());
    for batch in [of("one", None, &["1"]), of("one", Some(8), &["2"])] {
        transform.apply(batch, &mut out).unwrap();
        for (output, batch) in out.take() {
            assert_eq!((output, batch.rows()), (Output::Errors, 1));
            let rows = testing::rows(batch.fields());
            let reason = rows[0]["error_reason"].as_str().unwrap();
            assert!(reason.starts_with("the header of `one` was not read"), "{reason}");
        }
    }
    // The header itself, which could not be read with other options.
    transform.apply(of("two", Some(0), &["a", "1"]), &mut out).unwrap();
    let [(Output::Main, batch)] = &out.take()[..] else { panic!("no message") };
    assert_eq!(testing::rows(batch.fields()), [json!({"a": "1"})]);
}

/// It appends without checkpoints, as a replay does.
#[test]
fn a_header_is_read_in_place_of_a_component_of_a_reloaded_configuration() {
    let context = Context { resumes: true, ..testing::context() };
    let batches = vec![of("one", None, &["a", "1"])];
    let (rows, _, _) = restored("header: true", &context, None, batches);
    assert_eq!(rows, [json!({"a": "1"})]);
}

#[test]
fn short_records_under_a_long_header_leave_in_pieces() {
    let header: Vec<String> = (0..1000).map(|n| format!("c{n}")).collect();
    let mut lines = vec![header.join(",")];
    lines.extend((0..100).map(|n| n.to_string()));
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let context = Context { batch_bytes: 64 << 10, ..testing::context() };
    let yaml = "{header: true, flexible: true}";
    let (rows, batches, _) = restored(yaml, &context, None, vec![of("one", Some(0), &lines)]);
    // 64 KiB times four are 16,384 values: 16 rows.
    assert_eq!(batches, 7);
    assert_eq!(rows, (0..100).map(|n| json!({"c0": n.to_string()})).collect::<Vec<_>>());
}

#[test]
fn a_header_of_too_many_columns_is_refused_however_many() {
    let wide = "a,".repeat(500_000);
    let given = testing::apply::<ParseCsv>("header: true", [of("one", None, &[&wide, "1,2"])]);
    assert_eq!(
        given.errors()[0].1,
        "the header could not be read: it has 500001 columns, and `max_columns` is 4096"
    );
    let given = testing::apply::<ParseCsv>(
        "{header: true, max_columns: 3}",
        [of("one", None, &["a,a,a_2", "1,2,3"]), of("two", None, &["a_2,a,a", "1,2,3"])],
    );
    assert_eq!(
        given.main(),
        [json!({"a": "1", "a_2": "2", "a_2_2": "3"}), json!({"a_2": "1", "a": "2", "a_3": "3"})]
    );
}

#[test]
fn what_does_not_go_together_is_a_mistake() {
    let messages = |yaml: &str| -> Vec<String> {
        testing::options::<ParseCsv>(yaml).check().into_iter().map(|mistake| mistake.message).collect()
    };
    assert_eq!(messages("{}"), ["The columns have no names."]);
    assert_eq!(
        messages("{columns: [a], header: true}"),
        ["`columns` and `header` both give the names of the columns."]
    );
    assert_eq!(
        messages("{columns: [a, a], delimiter: ab}"),
        ["Two columns are called `a`.", "The delimiter must be one ASCII character.",]
    );
    assert_eq!(messages("{header: true, quote: ','}"), ["The quote cannot be the delimiter too."]);
    assert_eq!(messages("{columns: [a], types: {b: int}}").len(), 1);
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        records in prop::collection::vec(prop::collection::vec("[a-z,\" é]{0,20}", 3), 1..10),
    ) {
        let lines: Vec<String> = records
            .iter()
            .map(|record| {
                let written: Vec<String> = record
                    .iter()
                    .map(|value| match value.contains(['"', ',']) {
                        true => format!("\"{}\"", value.replace('"', "\"\"")),
                        false => value.clone(),
                    })
                    .collect();
                written.join(",")
            })
            .collect();
        let given = testing::apply::<ParseCsv>("columns: [a, b, c]", [testing::batch(&lines)]);
        let expected: Vec<_> =
            records.iter().map(|r| json!({"a": r[0], "b": r[1], "c": r[2]})).collect();
        prop_assert_eq!(given.main(), expected);
    }

    #[test]
    fn every_line_leaves(lines in prop::collection::vec("[a,\" ]{0,12}", 1..20)) {
        for yaml in ["columns: [a, b]", "{columns: [a, b], flexible: true, trim: true, types: {b: int}}"] {
            no_line_is_lost::<ParseCsv>(yaml, &lines)?;
        }
    }
}
