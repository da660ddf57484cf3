use super::*;
use std::sync::Arc;

use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::*;
use arrow_schema::{DataType, Field};
use proptest::prelude::*;
use serde_json::{Value, json};
use thalweg_engine::Output;
use thalweg_engine::testing::{apply, batch, messages, options, refused, transform_conforms};

fn with(columns: impl IntoIterator<Item = (&'static str, ArrayRef)>) -> Batch {
    let columns: Vec<_> = columns
        .into_iter()
        .map(|(name, column)| (Field::new(name, column.data_type().clone(), true), column))
        .collect();
    let rows = columns.first().map_or(0, |(_, column)| column.len());
    batch(vec!["payload"; rows]).set_fields(columns).unwrap()
}

fn encoded(yaml: &str, batch: Batch) -> Vec<String> {
    apply::<EncodeConfig>(yaml, [batch]).payloads(Output::Main)
}

#[test]
fn a_table_is_a_format_of_sinks_that_write_files() {
    let config =
        options::<EncodeConfig>("{ format: parquet, columns: { b: int, a: text }, row_group_size: 1MiB }");
    let columns = config.table().unwrap().columns.as_ref().unwrap();
    assert_eq!(columns.0.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["b", "a"]);
    assert!(config.encoder().is_none() && config.mistakes_with_tables().is_empty());
    assert_eq!(config.mistakes()[0].message, "`parquet` writes whole files, not single messages.");
    let mistakes = |yaml: &str| -> Vec<String> {
        let mistakes = options::<EncodeConfig>(yaml).mistakes_with_tables();
        mistakes.into_iter().map(|mistake| mistake.message).collect()
    };
    assert_eq!(mistakes("{ format: parquet, columns: {} }"), ["`columns` lists no column."]);
    assert_eq!(mistakes("{ format: parquet, fields: [a] }"), ["`fields` has no meaning for this format."]);
    assert_eq!(
        mistakes("{ format: json, compression: snappy }"),
        ["`compression` is for the format `parquet`."]
    );
    assert_eq!(mistakes("{ format: parquet, into: x }"), ["A table is a file, not a field of a message."]);
}

fn example() -> Batch {
    let json = Field::new("json", DataType::Utf8View, true)
        .with_metadata([("ARROW:extension:name".to_owned(), "arrow.json".to_owned())].into());
    with([
        ("int", Arc::new(Int64Array::from(vec![Some(-1), None])) as ArrayRef),
        ("float", Arc::new(Float64Array::from(vec![1.5, f64::NAN]))),
        ("bool", Arc::new(BooleanArray::from(vec![true, false]))),
        ("te\"xt", Arc::new(StringViewArray::from(vec!["a,\"b\"", ""]))),
        (
            "time",
            Arc::new(TimestampMicrosecondArray::from(vec![0, 1_767_323_045_678_000]).with_timezone("UTC")),
        ),
    ])
    .set_fields([(json, Arc::new(StringViewArray::from(vec![Some("[1, 2]"), None])) as ArrayRef)])
    .unwrap()
}

#[test]
fn it_conforms() {
    for yaml in ["json", "csv", "logfmt", "raw", "{ format: text, template: '{payload}' }"] {
        transform_conforms::<EncodeConfig>(yaml, &["", "a", "\0 a longer text \" with a quote"]);
    }
}

#[test]
fn json_leaves_nulls_out_unless_told_otherwise() {
    assert_eq!(
        encoded("json", example()),
        [
            r#"{"int":-1,"float":1.5,"bool":true,"te\"xt":"a,\"b\"","time":"1970-01-01T00:00:00Z","json":[1, 2]}"#,
            r#"{"float":null,"bool":false,"te\"xt":"","time":"2026-01-02T03:04:05.678Z"}"#,
        ]
    );
    let kept = encoded("{ format: json, nulls: keep, fields: [json, int, missing, payload] }", example());
    assert_eq!(kept[1], r#"{"json":null,"int":null,"missing":null,"payload":"payload"}"#);
    let nothing = encoded("{ format: json, fields: [missing] }", example());
    assert_eq!(nothing[0], "{}");
}

#[test]
fn csv_quotes_what_needs_it_and_tells_null_from_empty() {
    assert_eq!(
        encoded("csv", example()),
        [
            r#"-1,1.5,true,"a,""b""",1970-01-01T00:00:00Z,"[1, 2]""#,
            r#",NaN,false,"",2026-01-02T03:04:05.678Z,"#,
        ]
    );
    let tabs = encoded("{ format: csv, delimiter: \"\\t\", fields: [int, 'te\"xt'] }", example());
    assert_eq!(tabs[0], "-1\t\"a,\"\"b\"\"\"");
}

#[test]
fn the_first_messages_decide_the_columns_of_csv_and_other_fields_are_errors() {
    let texts = |values: &[Option<&str>]| Arc::new(StringViewArray::from(values.to_vec())) as ArrayRef;
    let first = with([("a", texts(&[Some("1")])), ("b", texts(&[Some("2")]))]);
    let later = with([
        ("c", texts(&[None, Some("9"), None])),
        ("b", texts(&[Some("4"), Some("5"), None])),
        ("a", texts(&[Some("3"), None, Some("6")])),
    ]);
    let fewer = with([("b", texts(&[Some("7")]))]);
    let config = options::<EncodeConfig>("csv");
    let given = apply::<EncodeConfig>("csv", [first.share(), later.share(), fewer, batch(["bare"])]);
    assert_eq!(given.payloads(Output::Main), ["1,2", "3,4", "6,", ",7"]);
    let reasons: Vec<String> = given.errors().into_iter().map(|(_, reason)| reason).collect();
    let reason = |field: &str| {
        format!(
            "there is no column for the field `{field}`: the first messages had only the 2 that the header has; \
             list all columns in `fields` of `encode`"
        )
    };
    assert_eq!(reasons, [reason("c"), reason("payload")]);
    // All workers and the header use the same columns, whichever comes first.
    let mut workers = [config.0.build().unwrap(), config.0.build().unwrap()];
    let mut out = thalweg_engine::Outputs::new("test".into());
    workers[1].encode(first, &mut out).unwrap();
    assert_eq!(config.header(later.fields().schema_ref()), Some(b"a,b".to_vec()));
    workers[0].encode(later, &mut out).unwrap();
    let sent = out.take().into_iter().filter(|(output, _)| *output == Output::Main);
    let lines: Vec<String> = sent
        .flat_map(|(_, batch)| {
            batch
                .payload()
                .iter()
                .flatten()
                .map(String::from_utf8_lossy)
                .map(String::from)
                .collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(lines, ["1,2", "3,4", "6,"]);
    // Columns that are listed are a choice: the others are left out.
    let chosen = apply::<EncodeConfig>(
        "{ format: csv, fields: [b] }",
        [with([("a", texts(&[Some("1")])), ("b", texts(&[Some("2")]))])],
    );
    assert_eq!(chosen.payloads(Output::Main), ["2"]);
}

#[test]
fn a_csv_header_names_the_columns() {
    let header = |yaml: &str| {
        options::<EncodeConfig>(yaml)
            .header(&example().fields().schema())
            .map(|h| String::from_utf8(h).unwrap())
    };
    assert_eq!(header("csv").unwrap(), "int,float,bool,\"te\"\"xt\",time,json");
    assert_eq!(header("{ format: csv, delimiter: ;, fields: [b, a] }").unwrap(), "b;a");
    assert_eq!(header("{ format: csv, header: false }"), None);
    assert_eq!(header("json"), None);
}

#[test]
fn logfmt_quotes_what_needs_it() {
    assert_eq!(
        encoded("logfmt", example()),
        [
            r#"int=-1 float=1.5 bool=true te_xt="a,\"b\"" time=1970-01-01T00:00:00Z json="[1, 2]""#,
            r#"float=NaN bool=false te_xt="" time=2026-01-02T03:04:05.678Z"#,
        ]
    );
}

#[test]
fn a_template_makes_a_text() {
    let yaml = "{ format: text, template: '{time:%H:%M} {int}|{payload}' }";
    assert_eq!(encoded(yaml, example()), ["00:00 -1|payload", "03:04 |payload"]);
}

#[test]
fn a_message_without_fields_is_its_payload() {
    let plain = || batch([&b"a \"b\""[..], b"\xff"]);
    assert_eq!(encoded("json", plain()), [r#"{"payload":"a \"b\""}"#, "{\"payload\":\"\u{fffd}\"}"]);
    assert_eq!(encoded("raw", plain())[0], "a \"b\"");
    assert_eq!(encoded("csv", plain())[0], r#""a ""b""""#);
}

#[test]
fn a_record_without_fields_is_written_as_beside_others() {
    let nothing: [(Field, ArrayRef); 0] = [];
    let empty = batch(["{}"]).into_records();
    assert_eq!(encoded("json", empty.share().set_fields(nothing).unwrap()), ["{}"]);
    assert_eq!(encoded("logfmt", empty.share()), [""]);
    // The columns of CSV are still those that a message decides.
    assert_eq!(encoded("csv", empty), ["{}"]);
    // Fields that were dropped.
    let fields = batch(["a"]).fields().clone();
    let dropped = with([("a", Arc::new(Int64Array::from(vec![1])) as ArrayRef)]).with_fields(fields).unwrap();
    assert_eq!(encoded("json", dropped), ["{}"]);
}

#[test]
fn all_types_that_expressions_give_can_be_written() {
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), Some(vec![])]);
    let struct_of = StructArray::from(vec![(
        Arc::new(Field::new("a\"", DataType::Int64, true)),
        Arc::new(Int64Array::from(vec![Some(1), None])) as ArrayRef,
    )]);
    let dictionary: DictionaryArray<Int32Type> = vec!["x", "y"].into_iter().collect();
    let columns: Vec<(&'static str, ArrayRef, Value)> = vec![
        ("i8", Arc::new(Int8Array::from(vec![-1, 1])), json!(-1)),
        ("u64", Arc::new(UInt64Array::from(vec![u64::MAX, 1])), json!(u64::MAX)),
        ("f32", Arc::new(Float32Array::from(vec![0.1, f32::NAN])), json!(0.1)),
        ("utf8", Arc::new(StringArray::from(vec!["a\"", ""])), json!("a\"")),
        ("large", Arc::new(LargeStringArray::from(vec!["a", ""])), json!("a")),
        ("binary", Arc::new(BinaryArray::from(vec![&b"\xff\x00"[..], b""])), json!("/wA=")),
        ("date", Arc::new(Date32Array::from(vec![20_000, 0])), json!("2024-10-04")),
        ("date64", Arc::new(Date64Array::from(vec![86_400_000, 0])), json!("1970-01-02")),
        (
            "nano",
            Arc::new(TimestampNanosecondArray::from(vec![1, 0])),
            json!("1970-01-01T00:00:00.000000001Z"),
        ),
        (
            "decimal",
            Arc::new(Decimal128Array::from(vec![125, 0]).with_precision_and_scale(5, 2).unwrap()),
            json!(1.25),
        ),
        ("time", Arc::new(Time64MicrosecondArray::from(vec![1_000_000, 0])), json!("00:00:01")),
        ("null", Arc::new(NullArray::new(2)), Value::Null),
        ("list", Arc::new(list), json!([1, null])),
        ("struct", Arc::new(struct_of), json!({"a\"": 1})),
        ("dictionary", Arc::new(dictionary), json!("x")),
    ];
    for (name, column, expected) in columns {
        let encoded = encoded("{ format: json, nulls: keep }", with([(name, column)]));
        let found: Vec<Value> = encoded.iter().map(|text| serde_json::from_str(text).expect(text)).collect();
        assert_eq!(found[0][name], expected, "{name}");
    }
    let interval = arrow_buffer::IntervalDayTime::new(1, 2);
    for (column, expected) in [
        (Arc::new(DurationSecondArray::from(vec![5])) as ArrayRef, "{\"x\":\"PT5S\"}"),
        (Arc::new(IntervalDayTimeArray::from(vec![interval])), "{\"x\":\"1 days 0.002 secs\"}"),
    ] {
        assert_eq!(encoded("json", with([("x", column)])), [expected]);
    }
}

#[test]
fn its_description_is_what_users_read() {
    let schema = schemars::schema_for!(EncodeConfig);
    let description = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    assert!(description.starts_with("Writes the fields"), "{description}");
}

#[test]
fn what_does_not_go_together_is_refused() {
    let mistakes = |yaml: &str| messages(options::<Encoding>(yaml).check());
    assert_eq!(mistakes("text"), ["`text` needs a template."]);
    assert_eq!(mistakes("{ format: json, delimiter: ';' }"), ["`delimiter` is for the format `csv`."]);
    assert_eq!(
        mistakes("{ format: csv, delimiter: é }"),
        ["`delimiter` must be an ASCII character, and neither a quote nor a line end."]
    );
    assert_eq!(mistakes("{ format: csv, fields: [a, a] }"), ["`a` is named twice."]);
    assert_eq!(mistakes("{ format: csv, fields: [a, b] }"), [""; 0]);
    assert_eq!(
        mistakes("{ format: csv, nested: true, root: a }"),
        ["`nested` is for the format `json`.", "`root` is for the format `json`."]
    );
    assert_eq!(
        mistakes("{ format: json, fields: [a], exclude: [b] }"),
        ["`fields` already lists the columns to write."]
    );
    assert_eq!(
        mistakes("{ format: json, nulls: keep }"),
        ["`nulls: keep` needs `fields`: otherwise a message would get the fields of its neighbours."]
    );
    assert_eq!(mistakes("{ format: json, nulls: keep, fields: [a] }"), [""; 0]);
    assert_eq!(mistakes("{ format: raw, into: a }"), ["`raw` leaves messages as they are."]);
    assert_eq!(mistakes("{ format: json, field: a }"), ["`field` has an effect only with `skip_empty`."]);
    assert_eq!(
        mistakes("{ format: text, template: x, trailing_delimiter: true, exclude: [a] }"),
        ["`trailing_delimiter` is for the format `csv`.", "`exclude` has no meaning for this format."]
    );
    assert_eq!(refused::<EncodeConfig>("jsn"), "`jsn` is not known here. Did you mean `json`?");
    assert_eq!(
        refused::<EncodeConfig>("{ format: json, nuls: keep }"),
        "Unknown option `nuls`. Did you mean `nulls`?"
    );
    assert_eq!(
        refused::<EncodeConfig>("{ format: text, template: 'a {b' }"),
        "A `{` without its `}`. For the character itself write `{{`."
    );
}

proptest! {
    #[test]
    fn json_is_what_serde_json_would_read(
        rows in prop::collection::vec((prop::option::of(any::<i64>()), any::<f64>(), prop::option::of("\\PC{0,20}"), any::<bool>()), 1..20),
    ) {
        let batch = with([
            ("a", Arc::new(rows.iter().map(|row| row.0).collect::<PrimitiveArray<Int64Type>>()) as ArrayRef),
            (
                "a rather long name that takes more than a block",
                Arc::new(rows.iter().map(|row| row.1).collect::<Float64Array>()),
            ),
            ("c", Arc::new(rows.iter().map(|row| row.2.clone()).collect::<StringViewArray>())),
            ("d", Arc::new(rows.iter().map(|row| Some(row.3)).collect::<BooleanArray>())),
        ]);
        let encoded = encoded("{ format: json, nulls: keep }", batch);
        for (text, row) in encoded.iter().zip(&rows) {
            let value: Value = serde_json::from_str(text).unwrap();
            let members: Vec<&Value> = value.as_object().unwrap().values().collect();
            prop_assert_eq!(members[0], &json!(row.0));
            // Read by the standard library: serde_json's parser is slightly inexact, most of all near zero.
            let number = text.split_once("block\":").and_then(|(_, rest)| rest.split_once(',')).unwrap().0;
            prop_assert_eq!(number.parse::<f64>().ok(), Some(row.1).filter(|number| number.is_finite()));
            prop_assert_eq!(members[2], &json!(row.2));
            prop_assert_eq!(members[3], &json!(row.3));
        }
    }
}

fn texts(columns: &[(&'static str, &[Option<&str>])]) -> Batch {
    thalweg_codec::testing::with_text(&vec!["payload"; columns[0].1.len()], columns)
}

#[test]
fn names_with_dots_become_objects() {
    let batch = || {
        texts(&[
            ("a.b", &[Some("1"), None, Some("1"), None]),
            ("c", &[Some("2"), Some("2"), None, None]),
            ("a.d.e", &[Some("3"), None, Some("3"), None]),
            ("a", &[None, Some("4"), Some("4"), None]),
        ])
    };
    assert_eq!(
        encoded("{ format: json, nested: true }", batch()),
        [
            r#"{"a":{"b":"1","d":{"e":"3"}},"c":"2"}"#,
            r#"{"a":"4","c":"2"}"#,
            r#"{"a":"4","a.b":"1","a.d.e":"3"}"#,
            "{}",
        ]
    );
    let kept = encoded("{ format: json, nested: true, nulls: keep, exclude: [a.d] }", batch());
    assert_eq!(kept[3], r#"{"a":{"b":null},"c":null}"#);
    let deep = vec!["x"; 200].join(".");
    let column: ArrayRef = Arc::new(StringViewArray::from(vec!["1"]));
    let field = Field::new(&deep, DataType::Utf8View, true);
    let encoded = encoded("{ format: json, nested: true }", batch_of(field, column));
    assert_eq!(encoded[0].matches('{').count(), 64);
    serde_json::from_str::<Value>(&encoded[0]).unwrap();
}

fn batch_of(field: Field, column: ArrayRef) -> Batch {
    batch(["x"]).set_fields([(field, column)]).unwrap()
}

#[test]
fn what_parse_json_flattened_is_put_together_again() {
    use thalweg_transforms::parse_json::ParseJsonConfig;
    let lines = [r#"{"a":{"b":1,"c":{"d":"x"}},"e":[1,{"f":2}],"g":{}}"#, r#"{"a":5}"#, r#"{"e":null}"#];
    let parsed = apply::<ParseJsonConfig>("flatten: true", [batch(lines)]);
    let parsed = parsed.outputs.into_values().flatten().next().unwrap();
    let encoded = encoded("{ format: json, nested: true }", parsed);
    assert_eq!(encoded, [lines[0], lines[1], "{}"]);
}

#[test]
fn a_root_is_all_that_is_written_and_what_is_excluded_is_not() {
    let batch = || {
        texts(&[
            ("r.a", &[Some("1"), None]),
            ("r.b.c", &[Some("2"), None]),
            ("r.b.d", &[Some("3"), None]),
            ("rest", &[Some("4"), None]),
        ])
    };
    assert_eq!(encoded("{ format: json, root: r }", batch()), [r#"{"a":"1","b.c":"2","b.d":"3"}"#, "{}"]);
    assert_eq!(
        encoded("{ format: json, root: r, nested: true, exclude: [b.c] }", batch()),
        [r#"{"a":"1","b":{"d":"3"}}"#, "{}"]
    );
    assert_eq!(encoded("{ format: json, exclude: [r, x] }", batch()), [r#"{"rest":"4"}"#, "{}"]);
    assert_eq!(encoded("{ format: logfmt, exclude: ['r.*'] }", batch()), ["rest=4", ""]);
    assert_eq!(encoded("{ format: json, root: nothing }", batch()), ["{}", "{}"]);
    assert_eq!(encoded("{ format: json, root: int }", example()), ["-1", "{}"]);
}

#[test]
fn members_can_be_sorted() {
    let batch =
        || texts(&[("b", &[Some("1")]), ("a.c", &[Some("2")]), ("a-b", &[Some("3")]), ("a.b", &[Some("4")])]);
    assert_eq!(
        encoded("{ format: json, sort: true }", batch()),
        [r#"{"a-b":"3","a.b":"4","a.c":"2","b":"1"}"#]
    );
    assert_eq!(
        encoded("{ format: json, sort: true, nested: true }", batch()),
        [r#"{"a":{"b":"4","c":"2"},"a-b":"3","b":"1"}"#]
    );
}

#[test]
fn a_line_may_end_with_a_delimiter() {
    let yaml = "{ format: csv, fields: [int, bool], trailing_delimiter: true }";
    assert_eq!(encoded(yaml, example()), ["-1,true,", ",false,"]);
    let header = options::<EncodeConfig>(yaml).header(&example().fields().schema()).unwrap();
    assert_eq!(header, b"int,bool,");
}

#[test]
fn the_text_may_become_a_field() {
    let given = |yaml: &str| apply::<EncodeConfig>(yaml, [texts(&[("a", &[Some("1"), None, Some("")])])]);
    let main = given("{ format: text, template: '<{a}>', into: a }");
    assert_eq!(main.main(), [json!({"a": "<1>"}), json!({"a": "<>"}), json!({"a": "<>"})]);
    assert_eq!(main.payloads(Output::Main), ["payload"; 3]);
    let main = given("{ format: text, template: '<{a}>', into: a, field: a, skip_empty: true }").main();
    assert_eq!(main, [json!({"a": "<1>"}), json!({}), json!({"a": ""})]);
    let main = given("{ format: text, template: '<{a}>', field: b, skip_empty: true }");
    assert_eq!(main.payloads(Output::Main), ["payload"; 3]);
    let object = given("{ format: json, into: o }").outputs.into_values().flatten().next().unwrap();
    assert_eq!(encoded("json", object)[0], r#"{"a":"1","o":{"a":"1"}}"#);
    let bytes = apply::<EncodeConfig>("{ format: text, template: '{payload}', into: a }", [batch([b"\xff"])]);
    assert_eq!(bytes.reasons(), ["the field `a` is not UTF-8, at byte 0"]);
}

#[test]
fn a_run_that_continues_writes_the_columns_of_the_run_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(thalweg_engine::Store::open(folder.path()).unwrap());
    let journal = Some(thalweg_engine::Journal::new(store, "out.encode"));
    let text = |text| Arc::new(StringArray::from(vec![text])) as ArrayRef;
    let run = |resumes, batch| {
        let context = Context { resumes, journal: journal.clone(), ..thalweg_engine::testing::context() };
        let mut encode = options::<EncodeConfig>("csv").build(&context).unwrap();
        let mut out = Outputs::new("test".into());
        encode.apply(batch, &mut out).unwrap();
        out.take().iter().flat_map(|(_, batch)| thalweg_engine::testing::payloads(batch)).collect::<Vec<_>>()
    };
    assert_eq!(run(true, with([("a", text("1")), ("b", text("2"))])), ["1,2"]);
    assert_eq!(run(true, with([("b", text("4")), ("a", text("3"))])), ["3,4"]);
    assert_eq!(run(true, with([("b", text("5"))])), [",5"]);
    assert_eq!(run(false, with([("b", text("7")), ("a", text("6"))])), ["7,6"]);
}

#[test]
fn the_text_of_messages_that_share_a_large_value_leaves_in_pieces() {
    let context = thalweg_engine::testing::context();
    let mut encode = options::<EncodeConfig>("json").build(&context).unwrap();
    let large = "x".repeat(context.batch_bytes);
    let shared = Arc::new(StringViewArray::from(vec![large.as_str(); 100])) as ArrayRef;
    let mut out = Outputs::new("test".into());
    encode.apply(with([("a", shared)]), &mut out).unwrap();
    let mut rows = Vec::new();
    loop {
        rows.extend(out.take().iter().map(|(_, batch)| batch.rows()));
        if out.take_held().is_none() {
            break;
        }
        encode.resume(&mut out).unwrap();
    }
    assert_eq!(rows.iter().sum::<usize>(), 100);
    assert!(rows.iter().all(|rows| *rows <= LARGEST), "{rows:?}");
}
