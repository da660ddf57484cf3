//! Messages that Google's implementation encoded, and hostile ones.
//!
//! `samples/make.py` wrote the descriptor set and the messages, with the rows that are expected.

use std::collections::BTreeMap;

use arrow_schema::DataType;
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};
use thalweg_engine::{Output, TransformConfig, testing};

use super::ParseProtobuf;
use crate::testing::{no_line_is_lost, written};

const ORDER: &str = "acme.shop.Order";
const SAMPLES: &str = include_str!("samples/samples.jsonl");

/// A message, and its fields without and with `flatten`.
#[derive(Deserialize)]
struct Sample {
    message: String,
    hex: String,
    row: Value,
    flat: Value,
}

impl Sample {
    fn bytes(&self) -> Vec<u8> {
        let digits = self.hex.as_bytes().chunks(2).map(|two| std::str::from_utf8(two).unwrap());
        digits.map(|two| u8::from_str_radix(two, 16).unwrap()).collect()
    }
}

/// Returns options for messages of a type. `rest` has further ones, or is empty.
fn options(message: &str, rest: &str) -> String {
    let comma = if rest.is_empty() { "" } else { ", " };
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/parse_protobuf/samples/samples.desc");
    format!("{{ descriptor_file: '{file}', message: '{message}'{comma}{rest} }}")
}

fn parsed(message: &str, rest: &str, messages: &[&[u8]]) -> testing::Given {
    testing::apply::<ParseProtobuf>(&options(message, rest), [testing::batch(messages)])
}

/// Returns the fields of an order, except those with the default value of their type.
fn order(message: &[u8]) -> Value {
    let given = parsed(ORDER, "defaults: false", &[message]);
    assert_eq!(given.reasons(), [""; 0]);
    written(given).remove(0)
}

fn reasons(message: &str, messages: &[&[u8]]) -> Vec<String> {
    let prefix = format!("is not a message `{message}`: ");
    let reasons = parsed(message, "", messages).reasons().into_iter();
    reasons.map(|reason| reason.strip_prefix(&prefix).unwrap_or(&reason).to_owned()).collect()
}

#[test]
fn it_conforms() {
    let messages = ["\u{8}\u{7}", "", "x", "\u{8}", "\u{12}\u{3}Ada"];
    testing::transform_conforms::<ParseProtobuf>(&options(ORDER, ""), &messages);
    testing::transform_conforms::<ParseProtobuf>(&options(ORDER, "flatten: true, field: a"), &messages);
}

#[test]
fn messages_of_another_implementation_have_the_fields_that_they_should() {
    let mut by_type: BTreeMap<String, Vec<Sample>> = BTreeMap::new();
    for line in SAMPLES.lines() {
        let sample: Sample = serde_json::from_str(line).unwrap();
        by_type.entry(sample.message.clone()).or_default().push(sample);
    }
    assert_eq!(by_type.len(), 5);
    for (message, samples) in &by_type {
        let messages: Vec<Vec<u8>> = samples.iter().map(Sample::bytes).collect();
        let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
        let check = |rest, expected: fn(&Sample) -> &Value| {
            let given = parsed(message, rest, &messages);
            assert_eq!(given.reasons(), [""; 0]);
            for (row, sample) in written(given).iter().zip(samples) {
                let expected = expected(sample);
                // A message without fields is written as its payload.
                if *expected != json!({}) {
                    assert_eq!(row, expected, "{message} {}", sample.hex);
                }
            }
        };
        check("", |sample| &sample.row);
        check("flatten: true", |sample| &sample.flat);
    }
}

#[test]
fn fields_have_the_types_of_their_declarations() {
    let given = parsed(ORDER, "flatten: true, prefix: p_", &[b""]);
    let batch = &given.outputs[&Output::Main][0];
    let found = |name: &str| batch.field(&format!("p_{name}")).map(|(_, field)| field.data_type().clone());
    for (name, expected) in [
        ("id", DataType::Int64),
        ("uint_32", DataType::Int64),
        ("hash", DataType::UInt64),
        ("total", DataType::Float64),
        ("weight", DataType::Float32),
        ("paid", DataType::Boolean),
        ("token", DataType::BinaryView),
        ("status", DataType::Utf8View),
        ("tags", DataType::Utf8View),
        ("took", DataType::Float64),
        ("points", DataType::Int64),
        ("address.country.code", DataType::Utf8View),
    ] {
        assert_eq!(found(name), Some(expected), "{name}");
    }
    assert!(matches!(found("placed"), Some(DataType::Timestamp(..))));
    assert_eq!(found("address"), None);
}

#[test]
fn a_missing_field_has_the_default_of_its_type_unless_it_has_presence() {
    let reading = b"\x18\x07";
    assert_eq!(
        written(parsed("acme.edition.Reading", "", &[reading])),
        [json!({"implicit": 0, "needed": 7})]
    );
    let none = written(parsed("acme.edition.Reading", "defaults: false", &[reading]));
    assert_eq!(none, [json!({"needed": 7})]);
    let record = written(parsed("acme.legacy.Record", "", &[b"\x08\x01"])).remove(0);
    let defaults = json!({"id": 1, "port": 8080, "level": "HIGH", "mark": "Yf8K", "ratio": null, "part": [], "sizes": []});
    assert_eq!(record, defaults);
    assert_eq!(order(b""), json!({}));
}

#[test]
fn numbers_in_lists_may_be_packed_or_not() {
    let both = json!({"counts": [1, 2, 3], "deltas": [-1, 1]});
    assert_eq!(order(b"\x4a\x02\x01\x02\x48\x03\x50\x01\x50\x02"), both);
    assert_eq!(order(b"\x48\x01\x4a\x02\x02\x03\x52\x02\x01\x02"), both);
    assert_eq!(order(b"\x4a\x00"), json!({"counts": []}));
}

#[test]
fn the_last_value_counts_and_messages_are_merged() {
    assert_eq!(order(b"\x08\x01\x08\x02"), json!({"id": 2}));
    assert_eq!(order(b"\x7a\x01a\x88\x01\x05"), json!({"cash": 5}));
    assert_eq!(order(b"\x88\x01\x05\x7a\x01a"), json!({"card": "a"}));
    let parts = b"\x6a\x03\x0a\x01a\x08\x01\x6a\x03\x12\x01b";
    assert_eq!(order(parts), json!({"id": 1, "address": {"street": "a", "zip": "b"}}));
    // A voucher before cash is gone, and is not merged with one behind it.
    let voucher = b"\x82\x01\x03\x0a\x01a\x88\x01\x05\x82\x01\x02\x10\x07";
    assert_eq!(order(voucher), json!({"voucher": {"count": 7}}));
    let stock =
        b"\x5a\x05\x0a\x01b\x10\x01\x5a\x05\x0a\x01a\x10\x01\x5a\x05\x0a\x01b\x10\x02\x5a\x03\x0a\x01c";
    assert_eq!(order(stock), json!({"stock": {"a": 1, "b": 2, "c": 0}}));
    assert_eq!(order(b"\x62\x02\x08\x01"), json!({"slots": {"1": {}}}));
}

#[test]
fn a_message_may_be_a_group_and_unknown_groups_are_skipped() {
    assert_eq!(order(b"\x6b\x0a\x01a\x6c"), json!({"address": {"street": "a"}}));
    let unknown = b"\xfb\x3e\x08\x01\x13\x1a\x01x\x14\xfc\x3e\x08\x07";
    assert_eq!(order(unknown), json!({"id": 7}));
}

#[test]
fn values_that_json_lacks_are_texts() {
    let prices =
        [&b"\xe2\x12\x18"[..], &f64::NAN.to_le_bytes(), &f64::INFINITY.to_le_bytes(), &1.5f64.to_le_bytes()];
    assert_eq!(order(&prices.concat()), json!({"prices": ["NaN", "Infinity", 1.5]}));
}

#[test]
fn what_is_no_message_says_why() {
    let time = b"\x9a\x01\x0b\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
    let messages: [&[u8]; 9] = [
        b"\x0a\x01a",
        b"\x08",
        b"\x08\x07",
        b"\x6a\x03\x0a\x01\xff",
        b"\x6a\x02\x0a\x05",
        b"\x12\x01\xff",
        b"\x4a\x01\x80",
        b"\x5a\x02\x08\x01",
        time,
    ];
    assert_eq!(
        reasons(ORDER, &messages),
        [
            "the field `id` is bytes with a length, and its type is `int64`",
            "it is cut off at its byte 1",
            "the field `address.street` is not UTF-8, at byte 0",
            "the field `address` is cut off at its byte 2",
            "the field `customer` is not UTF-8, at byte 0",
            "the field `counts` is cut off at its byte 0",
            "the field `stock.key` is an integer of variable length, and its type is `string`",
            "the field `placed` is not a time of the years 1 to 9999: 0 s and -1 ns",
        ]
    );
    assert_eq!(parsed(ORDER, "", &messages).main().len(), 1);
    assert_eq!(reasons("acme.legacy.Record", &[b""]), ["the field `id` is missing, but required"]);
    assert_eq!(
        reasons("acme.legacy.Record", &[b"\x08\x01\x5b\x5c"]),
        ["the field `owner.mail` is missing, but required"]
    );
    let given = testing::apply::<ParseProtobuf>(&options(ORDER, "field: a"), [testing::batch(["x"])]);
    assert_eq!(given.reasons(), ["there is no field `a`"]);
}

/// Returns an order within `levels` others.
fn nested(levels: usize) -> Vec<u8> {
    let mut message = Vec::new();
    for _ in 0..levels {
        let mut outer = vec![0xca, 0x01];
        let mut length = message.len();
        while length >= 0x80 {
            outer.push(length as u8 | 0x80);
            length >>= 7;
        }
        outer.push(length as u8);
        outer.extend(message);
        message = outer;
    }
    message
}

#[test]
fn messages_may_be_nested_to_a_depth() {
    for rest in ["", "flatten: true"] {
        let given = parsed(ORDER, rest, &[&nested(100), &nested(101), &nested(20_000)]);
        let reasons = given.reasons();
        assert_eq!(written(given).len(), 1);
        assert_eq!(reasons.len(), 2);
        for reason in reasons {
            assert!(reason.ends_with("...` is nested deeper than 100 levels"), "{reason}");
        }
    }
}

#[test]
fn a_message_that_is_divided_at_each_level_does_not_take_much_memory() {
    let mut message = b"\x12\x01a".repeat(10_000);
    for _ in 0..50 {
        let parts = [&message[..], b"\x08\x01"].map(|part| {
            let mut written = vec![0xca, 0x01];
            let length = part.len();
            written.extend([length as u8 | 0x80, (length >> 7) as u8 | 0x80, (length >> 14) as u8]);
            written.extend(part);
            written
        });
        message = parts.concat();
    }
    let reason = "is divided into parts at too many levels";
    assert!(reasons(ORDER, &[&message])[0].ends_with(reason));
}

/// Returns an order with this many values of an enumeration, each of one byte.
fn history(count: usize) -> Vec<u8> {
    let mut message = vec![0x92, 0x02];
    let mut length = count;
    while length >= 0x80 {
        message.push(length as u8 | 0x80);
        length >>= 7;
    }
    message.push(length as u8);
    message.resize(message.len() + count, 0);
    message
}

#[test]
fn names_that_are_far_longer_than_their_numbers_leave_in_pieces_or_are_refused() {
    let message = history(60_000);
    let given = parsed(ORDER, "", &[message.as_slice(); 20]);
    let rows: Vec<usize> = given.outputs[&Output::Main].iter().map(|batch| batch.rows()).collect();
    assert_eq!(rows, [5, 5, 5, 5]);
    assert_eq!(
        reasons(ORDER, &[&history(1_200_000), b"\x08\x07"]),
        ["the field `history` is too large: the nested values of a message have more than 16MiB as JSON"]
    );
}

#[test]
fn a_number_of_json_alone_is_a_number() {
    let message = [&[0x11][..], &1.5f64.to_le_bytes()].concat();
    assert_eq!(written(parsed("google.protobuf.Value", "", &[&message])), [json!({"number_value": 1.5})]);
}

#[test]
fn a_header_of_confluent_is_skipped() {
    let messages: [&[u8]; 3] = [b"\0\0\0\0\x07\0\x08\x07", b"\0\0\0\0\x07\x04\x02\0\x08\x08", b"\x08\x07"];
    let given = parsed(ORDER, "wire_format: confluent, defaults: false", &messages);
    assert_eq!(given.reasons(), ["has no header of Confluent's wire format: leave out `wire_format`"]);
    assert_eq!(written(given), [json!({"id": 7}), json!({"id": 8})]);
}

#[test]
fn many_messages_with_many_fields_leave_in_pieces() {
    let messages: Vec<&[u8]> = vec![b"\x08\x07"; 20_000];
    let given = parsed(ORDER, "", &messages);
    let rows: Vec<usize> = given.outputs[&Output::Main].iter().map(|batch| batch.rows()).collect();
    assert!(rows.len() > 1, "{rows:?}");
    assert_eq!(rows.iter().sum::<usize>(), 20_000);
}

fn refused(yaml: &str) -> String {
    let config = testing::options::<ParseProtobuf>(yaml);
    config.build(&testing::context()).err().unwrap().to_string()
}

#[test]
fn what_a_descriptor_set_does_not_have_is_an_error_with_a_proposal() {
    let meant = |name: &str| {
        let refused = refused(&options(name, ""));
        refused
            .split_once("samples.desc` cannot be used: ")
            .map(|(_, reason)| reason.to_owned())
            .unwrap_or(refused)
    };
    assert_eq!(
        meant("acme.shop.Ordr"),
        "`acme.shop.Ordr` is not a message in it; did you mean `acme.shop.Order`?"
    );
    assert_eq!(meant("Order"), "`Order` is not a message in it; did you mean `acme.shop.Order`?");
    assert_eq!(
        meant("something.else.entirely"),
        "`something.else.entirely` is not a message in it: write the full name, with the package"
    );
    assert!(
        refused("{ descriptor_file: /nothing/there.desc, message: a }")
            .contains("`/nothing/there.desc` cannot be read")
    );
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/parse_protobuf/samples/shop.proto");
    let text = refused(&format!("{{ descriptor_file: '{file}', message: a }}"));
    assert!(text.contains("shop.proto` cannot be used: "), "{text}");
    assert!(text.ends_with("write it with `protoc --include_imports --descriptor_set_out=FILE`"), "{text}");
}

proptest! {
    #[test]
    fn every_message_leaves(lines in prop::collection::vec("(\u{8}|\u{12}|j|Z|\u{1}|\u{2}|\u{0}|a|é){0,12}", 1..20)) {
        no_line_is_lost::<ParseProtobuf>(&options(ORDER, "flatten: true"), &lines)?;
    }
}
