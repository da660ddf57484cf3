use std::io::Write;

use proptest::prelude::*;
use serde_json::{Value, json};
use thalweg_engine::{Output, testing};

use super::*;
use crate::testing::{with_text, written};

const SCHEMA: &str = r#"{"type": "record", "name": "reading", "fields": [
    {"name": "n", "type": "int"}, {"name": "text", "type": "string"},
    {"name": "list", "type": {"type": "array", "items": ["null", "double"]}}]}"#;

/// Returns options with the schema.
fn with(options: &str) -> String {
    format!("schema: '{SCHEMA}'\n{options}")
}

/// Returns a datum of the schema.
fn datum(n: u8, text: &str) -> Vec<u8> {
    assert!(n < 64 && text.len() < 64);
    [&[2 * n, 2 * text.len() as u8], text.as_bytes(), &[4, 0, 2], &1.5_f64.to_le_bytes(), &[0]].concat()
}

fn parsed<P: AsRef<[u8]>>(options: &str, messages: impl IntoIterator<Item = P>) -> testing::Given {
    testing::apply::<ParseAvro>(options, [testing::batch(messages)])
}

#[test]
fn it_conforms() {
    let good = String::from_utf8(vec![2, 2, b'x', 0]).unwrap();
    testing::transform_conforms::<ParseAvro>(&with(""), &[&good, "", "x", &good, "longer than a datum"]);
}

#[test]
fn each_field_of_the_record_becomes_a_field() {
    let given = parsed(&with(""), [datum(1, "a"), datum(2, "a longer text, which is a view")]);
    let row = |n, text| json!({"n": n, "text": text, "list": [null, 1.5]});
    assert_eq!(written(given), [row(1, "a"), row(2, "a longer text, which is a view")]);
}

#[test]
fn the_payload_stays_and_another_field_may_be_parsed() {
    let message = datum(3, "b");
    let text = String::from_utf8(vec![2, 2, b'x', 0]).unwrap();
    let batch = with_text(&["p", "q"], &[("raw", &[Some(&text), None])]);
    let given = testing::apply::<ParseAvro>(&with("field: raw"), [batch]);
    assert_eq!(given.payloads(Output::Main), ["p"]);
    assert_eq!(given.errors(), [("q".to_owned(), "there is no field `raw`".to_owned())]);
    let given = parsed(&with(""), [&message]);
    assert_eq!(given.outputs[&Output::Main][0].payload().value(0), message);
    let given = parsed(&with("field: nothing"), [&message]);
    assert_eq!(given.reasons(), ["there is no field `nothing`"]);
}

#[test]
fn messages_that_are_no_data_leave_by_errors_with_the_reason() {
    let good = datum(1, "a");
    let messages = [
        good.clone(),
        good[..5].to_vec(),
        [&good[..], b"xyz"].concat(),
        Vec::new(),
        vec![2, 2, 0xff, 0],
        good.clone(),
    ];
    let given = parsed(&with(""), messages);
    assert_eq!(
        given.reasons(),
        [
            "is not a datum of the schema: the bytes end within a value (in `list`, at byte 5)",
            "is not a datum of the schema: the last 3 bytes do not belong to it",
            "is not a datum of the schema: the bytes end within a value (in `n`, at byte 0)",
            "is not a datum of the schema: a text is not UTF-8 (in `text`, at byte 3)",
        ]
    );
    assert_eq!(written(given).len(), 2);
}

#[test]
fn the_number_of_a_schema_is_dropped_or_becomes_a_field() {
    let message = [&[0, 0, 0, 1, 2][..], &datum(1, "a")].concat();
    let rows = written(parsed(&with("wire_format: confluent"), [&message]));
    assert_eq!(rows, [json!({"n": 1, "text": "a", "list": [null, 1.5]})]);
    let options = with("wire_format: confluent\nschema_id_field: id");
    let given = parsed(&options, [message, datum(1, "a")]);
    assert_eq!(
        given.reasons(),
        [
            "does not begin as Confluent's wire format does, with a zero and the four bytes of a schema's number"
        ]
    );
    assert_eq!(written(given), [json!({"n": 1, "text": "a", "list": [null, 1.5], "id": 258})]);
}

#[test]
fn only_messages_of_the_schema_pass_with_single_objects() {
    let schema = Schema::parse(SCHEMA).unwrap();
    let message = [&[0xc3, 1][..], &schema.fingerprint().to_le_bytes(), &datum(1, "a")].concat();
    let mut other = message.clone();
    other[2] ^= 1;
    let given = parsed(&with("wire_format: single_object"), [message, other]);
    assert!(
        given.reasons()[0].starts_with("has another schema: its fingerprint is"),
        "{:?}",
        given.reasons()
    );
    assert_eq!(written(given), [json!({"n": 1, "text": "a", "list": [null, 1.5]})]);
}

#[test]
fn a_schema_may_be_in_a_file() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(SCHEMA.as_bytes()).unwrap();
    let options = format!("schema_file: {}", file.path().display());
    assert_eq!(written(parsed(&options, [datum(1, "a")])).len(), 1);
    let checked = |options: &str| {
        let mistakes = testing::options::<ParseAvro>(options).check();
        mistakes.into_iter().map(|mistake| (mistake.option, mistake.message)).collect::<Vec<_>>()
    };
    assert_eq!(checked(&options), []);
    let mistake = |option, message: &str| vec![(option, message.to_owned())];
    assert_eq!(checked("{}"), mistake("", "There is no schema."));
    assert_eq!(checked(&with(&options)), mistake("schema_file", "There are two schemas."));
    assert_eq!(
        checked("schema: '\"strin\"'"),
        mistake("schema", "The schema cannot be used: there is no type `strin`.")
    );
    assert_eq!(
        checked("schema_file: /there/is/none.avsc"),
        mistake(
            "schema_file",
            "The schema in `/there/is/none.avsc` cannot be used: No such file or directory (os error 2)."
        )
    );
    assert_eq!(
        checked(&with("schema_id_field: id")),
        mistake(
            "schema_id_field",
            "Only messages with `wire_format: confluent` have the number of a schema."
        )
    );
    assert_eq!(
        checked(&with("wire_format: confluent\nschema_id_field: text")),
        mistake("schema_id_field", "The schema has a field of this name.")
    );
}

#[test]
fn a_batch_whose_values_are_far_larger_than_its_data_leaves_in_pieces() {
    let name = "n".repeat(1000);
    let schema = json!({"type": "array", "items": {"type": "record", "name": "r", "fields": [
        {"name": name, "type": "boolean"}]}});
    // Two hundred values of about a kilobyte, in two hundred bytes.
    let message = [&[0x90, 3][..], &[1; 200], &[0]].concat();
    let options = format!("schema: '{schema}'");
    let given = parsed(&options, std::iter::repeat_n(message, 100));
    let batches = &given.outputs[&Output::Main];
    let rows: Vec<usize> = batches.iter().map(Batch::rows).collect();
    assert!(rows.len() > 3, "{rows:?}");
    assert_eq!(rows.iter().sum::<usize>(), 100);
    let given =
        parsed("schema: '{\"type\": \"array\", \"items\": \"null\"}'", [[0xfe, 0xff, 0xff, 0xff, 0x0f, 0]]);
    assert!(given.reasons()[0].contains("far larger as JSON"), "{:?}", given.reasons());
}

#[test]
fn the_fields_are_known_before_a_run() {
    let known = testing::options::<ParseAvro>(&with("")).fields_after(KnownFields::none());
    let expected = KnownFields::none().parsed(
        DatumColumns::new(Arc::new(Schema::parse(SCHEMA).unwrap()))
            .fields()
            .iter()
            .map(|field| field.as_ref().clone()),
    );
    assert_eq!(format!("{known:?}"), format!("{expected:?}"));
}

proptest! {
    #[test]
    fn every_message_leaves_whatever_its_bytes_are(
        messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..12), 1..10),
    ) {
        let given = parsed(&with(""), &messages);
        let rows = |output| given.outputs.get(&output).map_or(0, |all: &Vec<Batch>| all.iter().map(Batch::rows).sum());
        prop_assert_eq!(rows(Output::Main) + rows(Output::Errors), messages.len());
        let _: Vec<Value> = written(given);
    }
}
