use std::sync::Arc;

use super::*;
use arrow_array::{Array, ArrayRef, Int64Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use proptest::prelude::*;
use serde_json::{Value, json};
use thalweg_engine::Output;
use thalweg_engine::testing::{Given, apply, batch, context, messages, options, refused, transform_conforms};

fn parsed(yaml: &str, payloads: &[&str]) -> Given {
    apply::<ParseJsonConfig>(yaml, [batch(payloads)])
}

fn rows(payloads: &[&str]) -> Vec<Value> {
    parsed("{}", payloads).main()
}

fn reason(yaml: &str, payload: &str) -> String {
    parsed(yaml, &[payload]).errors().pop().map(|(_, reason)| reason).unwrap_or_default()
}

#[test]
fn it_conforms() {
    transform_conforms::<ParseJsonConfig>("{}", &[r#"{"a":1}"#, "", "[]", r#"{"a":"x"}"#, "{}"]);
    transform_conforms::<ParseJsonConfig>("{ flatten: true }", &[r#"{"a":{"b":1}}"#, "{"]);
    transform_conforms::<ParseJsonConfig>("{}", &["nothing", "of this", "is JSON"]);
}

#[test]
fn types_come_from_all_values_of_a_batch() {
    let found = rows(&[
        r#"{"int":1,"float":2,"bool":true,"text":"a","mixed":1,"nested":[1, 2]}"#,
        r#" { "int" : -2 , "float":2.5,"bool":false,"text":"a longer \"text\" \u00e9\ud83d\ude00","mixed":"a" , "nested":{"a":null}} "#,
        r#"{"text":null}"#,
    ]);
    assert_eq!(
        found,
        [
            json!({"int": 1, "float": 2.0, "bool": true, "text": "a", "mixed": "1", "nested": "[1, 2]"}),
            json!({"int": -2, "float": 2.5, "bool": false, "text": "a longer \"text\" é😀",
                   "mixed": "\"a\"", "nested": "{\"a\":null}"}),
            json!({}),
        ]
    );
}

#[test]
fn an_empty_object_is_written_as_one_alone_and_beside_others() {
    use thalweg_stream::encode::EncodeConfig;
    for payloads in [&["{}"][..], &["{}", r#"{"a":1}"#]] {
        let encode = options::<EncodeConfig>("json");
        let mut encode = thalweg_engine::TransformConfig::build(&encode, &context()).unwrap();
        let mut out = thalweg_engine::Outputs::new("test".into());
        let config = options::<ParseJsonConfig>("{}");
        config.build(&context()).unwrap().apply(batch(payloads), &mut out).unwrap();
        let parsed: Vec<_> = out.take().into_iter().map(|(_, batch)| batch).collect();
        for batch in parsed {
            encode.apply(batch, &mut out).unwrap();
        }
        let (_, written) = out.take().pop().unwrap();
        assert_eq!(thalweg_engine::testing::payloads(&written)[0], "{}");
    }
}

#[test]
fn numbers_that_no_type_holds_stay_json_text() {
    assert_eq!(rows(&[r#"{"n":9223372036854775807}"#])[0], json!({"n": i64::MAX}));
    assert_eq!(rows(&[r#"{"n":9223372036854775808}"#])[0], json!({"n": "9223372036854775808"}));
    let mixed = rows(&[r#"{"n":9007199254740993}"#, r#"{"n":0.5}"#]);
    assert_eq!(mixed, [json!({"n": "9007199254740993"}), json!({"n": "0.5"})]);
    let minus_zero = rows(&[r#"{"n":-0}"#]);
    assert!(minus_zero[0]["n"].as_f64().is_some_and(f64::is_sign_negative));
}

#[test]
fn of_a_key_given_twice_the_last_value_counts() {
    assert_eq!(rows(&[r#"{"a":1,"b":2,"a":"x"}"#]), [json!({"a": "x", "b": 2})]);
}

#[test]
fn keys_with_escapes_are_found_and_do_not_disguise_mistakes() {
    assert_eq!(rows(&[r#"{"a\"b":1}"#, r#"{"a\u0022b":2}"#]), [json!({"a\"b": 1}), json!({"a\"b": 2})]);
    let given = parsed("{}", &[r#"{"a\"b":1}"#, r#"{"a"b":1}"#]);
    assert_eq!(given.main().len(), 1);
    assert_eq!(given.reasons(), ["is not a JSON object: expected `:` at byte 4"]);
}

#[test]
fn the_reason_says_what_and_where() {
    assert_eq!(reason("{}", r#"{"a":1 "b":2}"#), "is not a JSON object: expected `,` or `}` at byte 7");
    assert_eq!(reason("{}", "[1]"), "is not a JSON object: expected `{` at byte 0");
    assert_eq!(reason("{}", r#"{"a":NaN}"#), "is not a JSON object: expected a value at byte 5");
    assert_eq!(reason("{}", "{} x"), "is not a JSON object: there is more after the object at byte 3");
    assert_eq!(reason("{}", r#"{"a":"\ud800"}"#), "is not a JSON object: half of a surrogate pair at byte 6");
    assert_eq!(reason("{}", r#"{"a":1e400}"#), "is not a JSON object: a number too large at byte 5");
    assert_eq!(
        reason("{ types: { a: int } }", r#"{"a":"x"}"#),
        "`a` at byte 5 is not a whole number of 64 bits"
    );
    let given = apply::<ParseJsonConfig>("{}", [batch([&b"{\"a\":\"\xff\"}"[..]])]);
    assert_eq!(given.errors()[0].1, "is not a JSON object: invalid UTF-8 at byte 6");
}

#[test]
fn depth_is_bounded_like_that_of_other_parsers() {
    let deep = |open: &str, inner: &str, close: &str, levels: usize| {
        format!(r#"{{"a":{}{inner}{}}}"#, open.repeat(levels), close.repeat(levels))
    };
    for yaml in ["{}", "{ flatten: true }"] {
        for levels in [126, 127, 100_000] {
            for payload in [deep("[", "1", "]", levels), deep(r#"{"a":"#, "1", "}", levels)] {
                let fits = serde_json::from_str::<Value>(&payload).is_ok();
                assert_eq!(fits, levels == 126);
                assert_eq!(reason(yaml, &payload).is_empty(), fits, "{levels}");
            }
        }
    }
}

#[test]
fn forced_types_convert_texts_or_reject() {
    let yaml = "{ types: { i: int, f: float, b: bool, t: text, at: timestamp, j: json } }";
    let payload = r#"{"i":"12","f":3,"b":"true","t":12.50,"at":"2026-01-02T03:04:05.678Z","j":"x"}"#;
    let expected =
        json!({"i": 12, "f": 3.0, "b": true, "t": "12.50", "at": 1_767_323_045_678_000i64, "j": "\"x\""});
    assert_eq!(parsed(yaml, &[payload]).main(), [expected]);
    for time in ["1767323045", "1767323045000", "1767323045000000", "1767323045000000000", "1767323045.0"] {
        let row = &parsed(yaml, &[&format!(r#"{{"at":{time}}}"#)]).main()[0];
        assert_eq!(row["at"], 1_767_323_045_000_000i64, "{time}");
    }
    for (time, expected) in [
        ("1767323045678.5", 1_767_323_045_678_500i64),
        ("1.767323045678e9", 1_767_323_045_678_000),
        (r#""02/Jan/2026:03:04:05 +0000""#, 1_767_323_045_000_000),
        (r#""Fri, 02 Jan 2026 03:04:05 +0000""#, 1_767_323_045_000_000),
    ] {
        assert_eq!(parsed(yaml, &[&format!(r#"{{"at":{time}}}"#)]).main(), [json!({ "at": expected })]);
    }
    for (value, expected) in [("1", true), (r#""YES""#, true), (r#""off""#, false), ("0", false)] {
        assert_eq!(parsed(yaml, &[&format!(r#"{{"b":{value}}}"#)]).main(), [json!({ "b": expected })]);
    }
    for (wrong, expected) in [
        (r#"{"i":1.5}"#, "`i` at byte 5 is not a whole number of 64 bits"),
        (r#"{"i":true}"#, "`i` at byte 5 is not a whole number of 64 bits"),
        (r#"{"f":"x"}"#, "`f` at byte 5 is not a number"),
        (r#"{"b":2}"#, "`b` at byte 5 is not true or false"),
        (r#"{"at":"soon"}"#, "`at` at byte 6 is not a time"),
        (r#"{"i":[]}"#, "`i` at byte 5 is not a whole number of 64 bits"),
    ] {
        assert_eq!(reason(yaml, wrong), expected, "{wrong}");
    }
    assert_eq!(parsed(yaml, &[r#"{"i":null}"#]).main(), [json!({})]);
}

#[test]
fn only_the_fields_asked_for_are_made() {
    let payload = r#"{"a":1,"b":{"c":[2],"d":3},"e":4}"#;
    assert_eq!(parsed("{ fields: [e, a] }", &[payload]).main(), [json!({"a": 1, "e": 4})]);
    let flat = parsed("{ fields: [b.d], flatten: true, prefix: 'x_' }", &[payload]);
    assert_eq!(flat.main(), [json!({"x_b.d": 3})]);
    assert_eq!(
        messages(options::<ParseJsonConfig>("{ fields: [a], types: { b: int } }").check()),
        ["`types` names `b`, which is not among `fields`."]
    );
    assert_eq!(
        refused::<ParseJsonConfig>("{ types: { b: integer } }"),
        "`b` cannot be `integer`. Did you mean `int`?"
    );
}

#[test]
fn nested_objects_are_flattened_on_demand() {
    let given = parsed(
        "{ flatten: true }",
        &[r#"{"a":{"b":1,"c":{"d":"x"},"e":{}},"f":[{"g":1}]}"#, r#"{"a":{"c":{"d":"y"},"b":2},"a.b":3}"#],
    );
    assert_eq!(
        given.main(),
        [json!({"a.b": 1, "a.c.d": "x", "a.e": "{}", "f": r#"[{"g":1}]"#}), json!({"a.b": 3, "a.c.d": "y"}),]
    );
}

fn schemas(yaml: &str, batches: &[&[&str]]) -> Vec<SchemaRef> {
    let given = apply::<ParseJsonConfig>(yaml, batches.iter().map(|texts| batch(*texts)));
    given.outputs[&Output::Main].iter().map(|batch| batch.fields().schema()).collect()
}

#[test]
fn the_schema_stays_the_same_while_the_fields_fit_it() {
    let schemas = schemas(
        "{}",
        &[
            &[r#"{"a":1,"b":1.5}"#],
            &[r#"{"b":2,"a":3}"#, "{"],
            &[r#"{"a":null}"#],
            &[r#"{"c":1}"#],
            &[r#"{"a":1}"#],
        ],
    );
    // The type of the column stays; its field tells from then on that whole values are integers.
    assert_eq!(schemas[0].field(1).data_type(), schemas[1].field(1).data_type());
    assert!(Arc::ptr_eq(&schemas[1], &schemas[2]));
    assert_eq!(schemas[3].fields().len(), 3);
    assert!(Arc::ptr_eq(&schemas[3], &schemas[4]));
}

#[test]
fn names_that_are_values_do_not_pile_up() {
    let record = |names: std::ops::Range<u32>| {
        let members: Vec<String> = names.map(|n| format!("\"{n}\":1")).collect();
        format!("{{{}}}", members.join(","))
    };
    assert!(reason("{ max_fields: 10 }", &record(0..11)).starts_with("has a new field at byte 61"));
    let batches: Vec<String> = (0..100).map(|n| record(n * 6..n * 6 + 6)).collect();
    let given = apply::<ParseJsonConfig>("{ max_fields: 10 }", batches.iter().map(|b| batch([b])));
    assert_eq!((given.main().len(), given.errors().len()), (100, 0));
    assert!(given.outputs[&Output::Main].iter().all(|batch| batch.fields().num_columns() <= 10));
}

#[test]
fn fields_for_which_there_is_no_memory_are_refused_or_parsed_later() {
    let record = |names: std::ops::Range<u32>| {
        let members: Vec<String> = names.map(|n| format!("\"{n}\":1")).collect();
        format!("{{{}}}", members.join(","))
    };
    let mut context = context();
    context.memory = thalweg_record::Budget::new(8 << 20).share();
    let mut parser = options::<ParseJsonConfig>("{ max_fields: 65536 }").build(&context).unwrap();
    let mut out = Outputs::new("parse_json".into());
    let lines = [record(0..1500), record(1500..3000), record(0..2049), record(0..2048), record(5000..5002)];
    parser.apply(batch(&lines), &mut out).unwrap();
    let mut parts = Vec::new();
    loop {
        for (output, batch) in out.take() {
            let is_error = output == Output::Errors;
            parts.push((is_error, batch.rows(), batch.fields().num_columns()));
        }
        if out.take_held().is_none() {
            break;
        }
        parser.resume(&mut out).unwrap();
    }
    let main: Vec<_> =
        parts.iter().filter(|part| !part.0).map(|(_, rows, fields)| (*rows, *fields)).collect();
    assert_eq!(main, [(1, 1500), (1, 1500), (1, 2048), (1, 2)]);
    assert_eq!(parts.iter().filter(|part| part.0).map(|part| part.1).sum::<usize>(), 1);
}

#[test]
fn a_rejected_record_leaves_no_trace() {
    let given = parsed(
        "{ flatten: true }",
        &[r#"{"a":1,"o":{"x":1}}"#, r#"{"a":2,"new":1,"o":{"y":{"z":1}},"#, r#"{"a":3,"o":{"y":2}}"#],
    );
    assert_eq!(given.main(), [json!({"a": 1, "o.x": 1}), json!({"a": 3, "o.y": 2})]);
    let names: Vec<_> =
        given.outputs[&Output::Main][0].fields().schema().fields().iter().map(|f| f.name().clone()).collect();
    assert_eq!(names, ["a", "o.x", "o.y"]);
}

#[test]
fn fields_of_the_same_name_are_replaced() {
    let batch = batch([r#"{"b":1}"#]);
    let old: ArrayRef = Arc::new(Int64Array::from(vec![9]));
    let field = |name| Field::new(name, DataType::Int64, true);
    let batch = batch.set_fields([(field("a"), old.clone()), (field("b"), old)]).unwrap();
    assert_eq!(apply::<ParseJsonConfig>("{}", [batch]).main(), [json!({"a": 9, "b": 1})]);
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1000..1000i64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,20}".prop_map(Value::from),
        "[a\"\\\\\n\u{1}é😀]{0,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("[a-c\"é]{0,3}", inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn any_object() -> impl Strategy<Value = Value> {
    prop::collection::vec(("[a-d\"]{1,2}", any_json()), 0..6)
        .prop_map(|members| Value::Object(members.into_iter().collect()))
}

/// Converts the value of a field in a row back to the JSON that it represents.
fn back(schema: &Schema, name: &str, value: &Value) -> Value {
    let field = schema.field_with_name(name).unwrap();
    match (field.metadata().is_empty(), value) {
        (false, Value::String(json)) => serde_json::from_str(json).unwrap(),
        _ => value.clone(),
    }
}

fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            a == b
                || a.as_f64().zip(b.as_f64()).is_some_and(|(a, b)| a == b || (a - b).abs() <= a.abs() * 1e-15)
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

/// Compares a batch of texts with the results of `serde_json`.
fn agrees(texts: &[String]) -> Result<(), TestCaseError> {
    let config = options::<ParseJsonConfig>("{}");
    let mut transform = config.build(&context()).unwrap();
    for chunk in texts.chunks(4) {
        let mut out = Outputs::new("test".into());
        transform.apply(batch(chunk), &mut out).unwrap();
        let mut given = Given::default();
        for (output, batch) in out.take() {
            given.outputs.entry(output).or_default().push(batch);
        }
        let expected: Vec<_> = chunk
            .iter()
            .filter_map(|text| match serde_json::from_str::<Value>(text) {
                Ok(Value::Object(object)) => Some(object),
                _ => None,
            })
            .collect();
        let found = given.main();
        prop_assert_eq!(found.len(), expected.len(), "{:?}: {:?}", chunk, given.errors());
        for (found, expected) in found.iter().zip(&expected) {
            let schema = given.outputs[&Output::Main][0].fields().schema();
            let expected = Value::Object(
                expected.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), v.clone())).collect(),
            );
            let found = found.as_object().unwrap().iter();
            let found = Value::Object(found.map(|(k, v)| (k.clone(), back(&schema, k, v))).collect());
            prop_assert!(same(&found, &expected), "{} is not {}", found, expected);
        }
        for batch in given.outputs.values().flatten() {
            for column in batch.fields().columns() {
                column.to_data().validate_full().unwrap();
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn objects_are_parsed_as_serde_json_parses_them(objects in prop::collection::vec(any_object(), 1..12), pretty in any::<bool>()) {
        let write = |object| if pretty { serde_json::to_string_pretty(object) } else { serde_json::to_string(object) };
        agrees(&objects.iter().map(|object| write(object).unwrap()).collect::<Vec<_>>())?;
    }

    #[test]
    fn mutilated_text_is_accepted_when_serde_json_accepts_it(
        objects in prop::collection::vec(any_object(), 1..6),
        wounds in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..3u8), 6),
    ) {
        const PIECES: [&str; 32] = [
            "{", "}", "[", "]", ",", ":", "\"", "\\", "-", "0", "00", "1", "1e400", "e", ".", "-0", "1E-9", "nul", "null",
            "true", " ", "\t", "\u{1}", "é", "\\u12", "\\ud800", "\\udc00", "\\ud83d\\ude00", "\\n", "\\x", "\"a\":", "123456789012345678901",
        ];
        let texts: Vec<String> = objects.iter().zip(wounds).map(|(object, (at, piece, kind))| {
            let mut text: Vec<char> = object.to_string().chars().collect();
            let at = at.index(text.len());
            let piece = PIECES[piece.index(PIECES.len())].chars();
            match kind {
                0 => { text.remove(at); }
                1 => { text.splice(at..at, piece); }
                _ => { text.splice(at..=at, piece); }
            }
            text.into_iter().collect()
        }).collect();
        agrees(&texts)?;
    }

    #[test]
    fn no_text_panics(texts in prop::collection::vec("[{}\\[\\]\",:0-9a-b\\\\u .eE-]{0,40}", 1..8)) {
        agrees(&texts)?;
    }
}

#[test]
fn a_field_is_parsed_and_who_lacks_it_is_left_alone() {
    use crate::testing::with_text;
    let values = [Some(r#"{"x":1,"y":"a"}"#), None, Some("bad"), Some(""), Some(r#"{"x":2}"#)];
    let batch = || with_text(&["1", "2", "3", "4", "5"], &[("j", &values)]);
    let given = apply::<ParseJsonConfig>("{ field: j, prefix: p. }", [batch()]);
    assert_eq!(given.payloads(Output::Main), ["1", "2", "5"]);
    let rows = given.main();
    assert_eq!(rows[0], json!({"j": values[0], "p.x": 1, "p.y": "a"}));
    assert_eq!((&rows[1], &rows[2]["p.x"]), (&json!({}), &json!(2)));
    assert_eq!(
        given.reasons(),
        ["is not a JSON object: expected `{` at byte 0", "is not a JSON object: expected `{` at byte 0"]
    );
    let given = apply::<ParseJsonConfig>("{ field: j, skip_empty: true }", [batch()]);
    assert_eq!(given.payloads(Output::Main), ["1", "2", "4", "5"]);
    let given = apply::<ParseJsonConfig>("{ field: nothing }", [batch()]);
    assert_eq!(given.main().len(), 5);
    assert_eq!(refused::<ParseJsonConfig>("{ feild: j }"), "Unknown option `feild`. Did you mean `field`?");
}

/// With one batch, these columns would take a hundred times as much memory as the text.
#[test]
fn messages_with_many_fields_leave_in_pieces() {
    let mut parse = options::<ParseJsonConfig>("{}").build(&thalweg_engine::testing::context()).unwrap();
    let lines: Vec<String> = (0..4096).map(|n| format!("{{\"k{}\":1}}", n % 1024)).collect();
    let mut out = thalweg_engine::Outputs::new("test".into());
    parse.apply(batch(&lines), &mut out).unwrap();
    let mut rows = Vec::new();
    loop {
        let sent = out.take();
        assert!(sent.len() <= 1);
        rows.extend(sent.iter().map(|(_, batch)| (batch.rows(), batch.fields().num_columns())));
        if out.take_held().is_none() {
            break;
        }
        parse.resume(&mut out).unwrap();
    }
    assert_eq!(rows.iter().map(|(rows, _)| rows).sum::<usize>(), 4096);
    assert!(rows.iter().all(|(rows, columns)| rows * columns <= 600_000), "{rows:?}");
}

#[test]
fn an_outer_key_that_is_in_the_name_of_each_field_has_a_bound() {
    let outer = "k".repeat(20_000);
    let members: Vec<String> = (0..1000).map(|n| format!("\"{n}\":1")).collect();
    let lines = [
        r#"{"a":{"b":1}}"#.to_owned(),
        format!("{{\"{outer}\":{{{}}}}}", members.join(",")),
        "{}".to_owned(),
    ];
    let given = apply::<ParseJsonConfig>("flatten: true", [batch(&lines)]);
    assert_eq!(given.main(), [json!({"a.b": 1}), json!({})]);
    let reason = "but the names of all fields would have more than 1048576 bytes";
    assert!(given.reasons()[0].ends_with(reason), "{:?}", given.reasons());
    // Without `flatten`, the name is there once.
    assert_eq!(apply::<ParseJsonConfig>("{}", [batch(&lines)]).main().len(), 3);
}

fn small_object() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<i32>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        "[a-c\"é]{0,14}".prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
    ];
    let value = leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[ab]", inner, 1..3)
                .prop_map(|members| members.into_iter().collect()),
        ]
    });
    prop::collection::btree_map("[a-c]", value, 0..4).prop_map(|members| members.into_iter().collect())
}

proptest! {
    #[test]
    fn objects_that_were_flattened_are_nested_again(objects in prop::collection::vec(small_object(), 1..6)) {
        use thalweg_stream::encode::EncodeConfig;
        let lines: Vec<String> = objects.iter().map(Value::to_string).collect();
        let parsed = apply::<ParseJsonConfig>("flatten: true", [batch(&lines)]);
        let parsed = parsed.outputs.into_values().flatten().next().unwrap();
        // Without any fields, the payload is written.
        let has_fields = parsed.fields().num_columns() > 0;
        let encoded = apply::<EncodeConfig>("{ format: json, nested: true }", [parsed]).payloads(Output::Main);
        for (text, object) in encoded.iter().zip(&objects) {
            let value: Value = serde_json::from_str(text).unwrap();
            prop_assert!(!has_fields || value == *object, "{} of {}", value, object);
        }
    }
}
