//! Data of any schema, written by a small encoder, against the JSON that they must become.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use arrow_buffer::Buffer;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{DatumColumns, Schema};
use crate::values::Values;

/// A datum of a schema.
#[derive(Debug, Clone)]
struct Sample {
    schema: Value,
    bytes: Vec<u8>,
    /// The datum as JSON.
    written: Value,
}

fn long(value: i64) -> Vec<u8> {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    let mut bytes = Vec::new();
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
    bytes
}

fn text(value: &str) -> Vec<u8> {
    [long(value.len() as i64), value.as_bytes().to_vec()].concat()
}

fn sample(schema: Value, bytes: Vec<u8>, written: impl Into<Value>) -> Sample {
    Sample { schema, bytes, written: written.into() }
}

fn scalars() -> impl Strategy<Value = Sample> {
    prop_oneof![
        Just(sample(json!("null"), Vec::new(), Value::Null)),
        any::<bool>().prop_map(|value| sample(json!("boolean"), vec![value.into()], value)),
        any::<i32>().prop_map(|value| sample(json!("int"), long(value.into()), value)),
        any::<i64>().prop_map(|value| sample(json!("long"), long(value), value)),
        any::<i32>().prop_map(|value| {
            let value = f64::from(value) / 8.0;
            sample(json!("double"), value.to_le_bytes().to_vec(), value)
        }),
        "[a-c\"é]{0,20}".prop_map(|value| sample(json!("string"), text(&value), value)),
        (0..86_400_000).prop_map(|value: i32| {
            let schema = json!({"type": "int", "logicalType": "time-millis"});
            let (seconds, millis) = (value / 1000, value % 1000);
            let fraction = if millis > 0 { format!(".{millis:03}") } else { String::new() };
            let written =
                format!("{:02}:{:02}:{:02}{fraction}", seconds / 3600, seconds / 60 % 60, seconds % 60);
            sample(schema, long(value.into()), written)
        }),
    ]
}

/// Returns an array of copies, in blocks that do or do not say their size.
fn array_of(inner: Sample, count: usize, has_size: bool) -> Sample {
    let items = inner.bytes.repeat(count);
    let head = match (count, has_size) {
        (0, _) => Vec::new(),
        (_, true) => [long(-(count as i64)), long(items.len() as i64)].concat(),
        (_, false) => long(count as i64),
    };
    let schema = json!({"type": "array", "items": inner.schema});
    sample(schema, [head, items, long(0)].concat(), vec![inner.written; count])
}

fn map_of(inner: Sample, keys: Vec<String>) -> Sample {
    let mut bytes = Vec::new();
    for key in &keys {
        bytes.extend([long(1), text(key), inner.bytes.clone()].concat());
    }
    bytes.extend(long(0));
    let schema = json!({"type": "map", "values": inner.schema});
    let written: Value = keys.into_iter().map(|key| (key, inner.written.clone())).collect();
    sample(schema, bytes, written)
}

fn union_of(inner: Sample, before: usize, after: usize) -> Sample {
    let is_union = inner.schema.is_array();
    if is_union {
        return inner;
    }
    let others = |count| std::iter::repeat_n(json!("null"), count);
    let schema: Vec<Value> = others(before).chain([inner.schema]).chain(others(after)).collect();
    sample(schema.into(), [long(before as i64), inner.bytes].concat(), inner.written)
}

/// Gives each named type a name of its own.
fn named(schema: &mut Value, next: &mut usize) {
    match schema {
        Value::Array(branches) => branches.iter_mut().for_each(|branch| named(branch, next)),
        Value::Object(members) => {
            if members.get("type").and_then(Value::as_str) == Some("record") {
                *next += 1;
                members.insert("name".to_owned(), format!("r{next}").into());
            }
            members.values_mut().for_each(|member| named(member, next));
        }
        _ => {}
    }
}

fn record_of(fields: Vec<Sample>) -> Sample {
    let (mut schemas, mut bytes, mut written) = (Vec::new(), Vec::new(), serde_json::Map::new());
    for (number, field) in fields.into_iter().enumerate() {
        let name = format!("f{number}");
        schemas.push(json!({"name": name, "type": field.schema}));
        bytes.extend(field.bytes);
        written.insert(name, field.written);
    }
    sample(json!({"type": "record", "name": "r", "fields": schemas}), bytes, written)
}

fn samples() -> impl Strategy<Value = Sample> {
    scalars().prop_recursive(4, 30, 4, |inner| {
        prop_oneof![
            (inner.clone(), 0..4usize, any::<bool>())
                .prop_map(|(inner, count, has_size)| { array_of(inner, count, has_size) }),
            (inner.clone(), prop::collection::btree_set("[a-c]{1,3}", 0..3))
                .prop_map(|(inner, keys)| map_of(inner, keys.into_iter().collect())),
            (inner.clone(), 0..3usize, 0..3usize)
                .prop_map(|(inner, before, after)| union_of(inner, before, after)),
            prop::collection::vec(inner, 0..4).prop_map(record_of),
        ]
    })
}

/// Returns the columns of these data, and the reason for rejecting each that is wrong.
fn decoded(schema: &str, data: &[&[u8]]) -> (Vec<(String, ArrayRef)>, Vec<Option<String>>) {
    let mut columns = DatumColumns::new(Arc::new(Schema::parse(schema).unwrap()));
    let buffers: Vec<Buffer> = data.iter().map(|bytes| Buffer::from(*bytes)).collect();
    columns.begin(&buffers, data.len());
    let mut reasons = Vec::new();
    for buffer in &buffers {
        reasons.push(match columns.read(buffer) {
            Ok(size) if size == buffer.len() => None,
            Ok(size) => Some(format!("{} bytes are left", buffer.len() - size)),
            Err(reason) => Some(reason),
        });
    }
    let names: Vec<String> = columns.fields().iter().map(|field| field.name().clone()).collect();
    let arrays = columns.finish().unwrap();
    for (field, array) in columns.fields().iter().zip(&arrays) {
        assert_eq!(field.data_type(), array.data_type());
        assert_eq!(array.len(), data.len());
    }
    (names.into_iter().zip(arrays).collect(), reasons)
}

/// Returns the first row of these data as JSON, with NULL for NULL.
fn first_row(schema: &str, datum: &[u8]) -> Result<Value, String> {
    let (columns, reasons) = decoded(schema, &[datum]);
    if let Some(reason) = reasons.into_iter().flatten().next() {
        return Err(reason);
    }
    let fields = DatumColumns::new(Arc::new(Schema::parse(schema).unwrap())).fields().to_vec();
    let row = columns.into_iter().zip(fields).map(|((name, column), field)| {
        let values = Values::of(&field, &column);
        let mut written = Vec::new();
        if values.is_null(0) {
            written.extend_from_slice(b"null");
        } else {
            values.write_json(0, &mut written);
        }
        (name, serde_json::from_slice::<Value>(&written).unwrap())
    });
    Ok(row.collect())
}

proptest! {
    #[test]
    fn a_datum_becomes_the_json_that_it_stands_for(fields in prop::collection::vec(samples(), 1..4)) {
        let mut sample = record_of(fields);
        named(&mut sample.schema, &mut 0);
        prop_assert_eq!(first_row(&sample.schema.to_string(), &sample.bytes), Ok(sample.written));
    }

    #[test]
    fn a_datum_that_is_cut_or_changed_is_read_or_rejected(
        fields in prop::collection::vec(samples(), 1..4),
        cut: prop::sample::Index,
        other: u8,
    ) {
        let mut sample = record_of(fields);
        named(&mut sample.schema, &mut 0);
        let schema = sample.schema.to_string();
        let at = cut.index(sample.bytes.len() + 1);
        let reasons = decoded(&schema, &[&sample.bytes[..at], &sample.bytes]).1;
        prop_assert_eq!(reasons[0].is_none(), at == sample.bytes.len());
        prop_assert_eq!(&reasons[1], &None);
        let mut changed = sample.bytes.clone();
        if let Some(byte) = changed.get_mut(at) {
            *byte = other;
        }
        let _ = first_row(&schema, &changed);
    }
}

fn value_of(schema: Value, datum: &[u8]) -> Result<Value, String> {
    let record = json!({"type": "record", "name": "row", "fields": [{"name": "a", "type": schema}]});
    first_row(&record.to_string(), datum).map(|mut row| row["a"].take())
}

#[test]
fn logical_types_have_their_own_form_alone_and_nested() {
    let micros = 1_700_000_000_123_456_i64;
    let logical = |of: &str, name: &str| json!({"type": of, "logicalType": name});
    let fixed = |size: usize, name: &str| json!({"type": "fixed", "name": "f", "size": size, "logicalType": name, "precision": 40, "scale": 2});
    let decimal = json!({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2});
    let cases = [
        (logical("int", "date"), long(19_675), json!("2023-11-14")),
        (logical("long", "time-micros"), long(3_723_000_004), json!("01:02:03.000004")),
        (logical("long", "timestamp-millis"), long(micros / 1000), json!("2023-11-14T22:13:20.123Z")),
        (logical("long", "timestamp-micros"), long(micros), json!("2023-11-14T22:13:20.123456Z")),
        (
            logical("long", "timestamp-nanos"),
            long(micros * 1000 + 1),
            json!("2023-11-14T22:13:20.123456001Z"),
        ),
        (logical("long", "local-timestamp-micros"), long(micros), json!("2023-11-14T22:13:20.123456Z")),
        (decimal.clone(), vec![4, 0x04, 0xd2], json!(12.34)),
        (decimal, vec![2, 0xff], json!(-0.01)),
        (fixed(2, "decimal"), vec![0xfb, 0x2e], json!(-12.34)),
        (fixed(16, "uuid"), (0..16).collect(), json!("00010203-0405-0607-0809-0a0b0c0d0e0f")),
        (fixed(12, "duration"), vec![1, 0, 0, 0, 2, 0, 0, 0, 0xbc, 0x0b, 0, 0], json!("P1M2DT3.004S")),
        (json!({"type": "enum", "name": "e", "symbols": ["A", "B"]}), long(1), json!("B")),
        (json!("bytes"), vec![4, 0, 0xff], json!("AP8=")),
        (json!("float"), 1.1_f32.to_le_bytes().to_vec(), json!(1.1)),
        (json!(["string", "int", "null"]), [long(1), long(5)].concat(), json!(5)),
        (json!(["null", "string"]), long(0), Value::Null),
        (json!(["string", "null"]), [long(0), text("x")].concat(), json!("x")),
    ];
    for (schema, datum, expected) in cases {
        assert_eq!(value_of(schema.clone(), &datum), Ok(expected.clone()), "{schema}");
        let nested = json!({"type": "map", "values": schema});
        let datum = [long(1), text("b"), datum, long(0)].concat();
        assert_eq!(value_of(nested, &datum), Ok(json!({"b": expected})), "{schema}");
    }
}

#[test]
fn values_that_break_the_rules_say_which() {
    let date = json!({"type": "int", "logicalType": "date"});
    let time = json!({"type": "int", "logicalType": "time-millis"});
    let decimal = json!({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 1});
    let cases = [
        (json!("boolean"), vec![2], "a boolean is 2, not 0 or 1", 1),
        (json!("int"), long(1 << 40), "1099511627776 has more than the 32 bits of an `int`", 6),
        (json!("long"), vec![0xff; 11], "a number has more than 64 bits", 10),
        (json!("string"), vec![2, 0xff], "a text is not UTF-8", 2),
        (json!("string"), vec![1], "the length -1 is negative", 1),
        (json!("string"), vec![200, 1, 0], "the bytes end within a value", 2),
        (json!(["null", "int"]), vec![4], "the union has no branch 2", 1),
        (json!(["null", "int", "string"]), vec![1], "the union has no branch -1", 1),
        (json!({"type": "enum", "name": "e", "symbols": ["A"]}), vec![2], "the enum has no symbol 1", 1),
        (date, long(i32::MAX.into()), "the calendar does not have the day 2147483647 since 1970", 5),
        (time, long(86_400_000), "86400000 is not a time of day", 4),
        (decimal, vec![2, 100], "a decimal has more digits than its precision", 2),
    ];
    for (schema, datum, fault, at) in cases {
        let reason = format!("is not a datum of the schema: {fault} (in `a`, at byte {at})");
        assert_eq!(value_of(schema, &datum), Err(reason));
    }
}

#[test]
fn a_reason_has_the_start_of_a_long_name() {
    let schema =
        json!({"type": "record", "name": "r", "fields": [{"name": "n".repeat(1000), "type": "int"}]});
    let reason = first_row(&schema.to_string(), &[]).unwrap_err();
    let name = "n".repeat(60);
    assert_eq!(
        reason,
        format!("is not a datum of the schema: the bytes end within a value (in `{name}...`, at byte 0)")
    );
}

#[test]
fn an_array_of_more_items_than_bytes_ends_early() {
    let nulls = json!({"type": "array", "items": "null"});
    let datum = |count: i64| [long(count), long(0)].concat();
    assert_eq!(value_of(nulls.clone(), &datum(3)), Ok(json!([null, null, null])));
    let reason = value_of(nulls, &datum(i64::MAX)).unwrap_err();
    assert!(reason.contains("far larger as JSON"), "{reason}");
    // Thirty records, each of two of the one before it, take no bytes and have a billion parts.
    let (mut inner, mut again) = (json!("null"), json!("null"));
    for number in 0..30 {
        let name = format!("r{number}");
        let fields = json!([{"name": "a", "type": inner}, {"name": "b", "type": again}]);
        inner = json!({"type": "record", "name": name, "fields": fields});
        again = name.into();
    }
    let reason = value_of(inner, &[]).unwrap_err();
    assert!(reason.contains("far larger as JSON"), "{reason}");
}

#[test]
fn a_last_value_that_grows_beyond_the_limit_is_refused() {
    let schema = Schema::parse(r#"{"type": "array", "items": "string"}"#).unwrap();
    let datum = [long(1), text(&"\u{1}".repeat(100)), long(0)].concat();
    let read = |most: usize| {
        let mut columns = DatumColumns::new(Arc::new(schema.clone())).within(most);
        columns.begin(&[], 1);
        columns.read(&datum)
    };
    // Each character takes six bytes.
    assert_eq!(read(604), Ok(datum.len()));
    assert!(read(603).unwrap_err().contains("far larger as JSON"));
}

#[test]
fn long_symbols_are_not_copied_without_end() {
    let long = json!({"type": "enum", "name": "e", "symbols": ["x".repeat(100_000)]});
    let field = |number: usize| json!({"name": format!("f{number}"), "type": if number == 0 { long.clone() } else { json!("e") }});
    let fields: Vec<Value> = (0..1000).map(field).collect();
    let schema = json!({"type": "record", "name": "r", "fields": fields}).to_string();
    let reason = first_row(&schema, &[0; 1000]).unwrap_err();
    assert!(reason.contains("far larger as JSON"), "{reason}");
}

#[test]
fn a_recursive_schema_is_read_up_to_a_depth() {
    let list = r#"{"type": "record", "name": "list", "fields": [
        {"name": "n", "type": "int"}, {"name": "next", "type": ["null", "list"]}]}"#;
    let datum = |length: usize| {
        let mut bytes = long(1);
        (1..length).for_each(|_| bytes.extend([long(1), long(1)].concat()));
        [bytes, long(0)].concat()
    };
    assert_eq!(first_row(list, &datum(1)), Ok(json!({"n": 1, "next": null})));
    assert_eq!(
        first_row(list, &datum(3)),
        Ok(json!({"n": 1, "next": {"n": 1, "next": {"n": 1, "next": null}}}))
    );
    assert!(first_row(list, &datum(127)).is_ok());
    let reason = first_row(list, &datum(128)).unwrap_err();
    assert!(reason.contains("values are nested more than 127 deep"), "{reason}");
    let endless = r#"{"type": "record", "name": "r", "fields": [{"name": "a", "type": "r"}]}"#;
    assert!(first_row(endless, &[]).unwrap_err().contains("nested more than 127 deep"));
}

#[test]
fn a_datum_that_is_rejected_leaves_the_rows_around_it_alone() {
    let schema = r#"{"type": "record", "name": "r", "fields": [
        {"name": "a", "type": "int"}, {"name": "b", "type": {"type": "array", "items": "int"}},
        {"name": "c", "type": ["null", "string"]}]}"#;
    let row = |number: i64, text: &[u8]| [&long(number)[..], &[2, 14, 0], text].concat();
    let (good, bad) = (row(1, &[2, 2, b'x']), row(2, &[2, 2, 0xff]));
    let (columns, reasons) = decoded(schema, &[&good, &bad, &[2, 2], &good]);
    assert_eq!(reasons.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true, true, false]);
    let nulls: Vec<usize> = columns.iter().map(|(_, column)| column.null_count()).collect();
    assert_eq!(nulls, [0, 1, 2]);
}

#[test]
fn a_schema_that_is_no_record_has_one_column() {
    assert_eq!(first_row("\"string\"", &text("a")), Ok(json!({"value": "a"})));
    assert_eq!(first_row("[\"null\", \"int\"]", &[2, 4]), Ok(json!({"value": 2})));
}
