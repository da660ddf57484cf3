use super::*;
use crate::check;
use arrow_array::{Float64Array, Int64Array, StringViewArray};
use arrow_schema::Field;
use proptest::prelude::*;
use thalweg_record::{Ack, Meta, PayloadWriter};

mod examples;
mod joins;

/// Returns a batch of the given fields and payloads, one payload per row.
fn batch_of(payloads: &[&str], fields: Vec<(Field, ArrayRef)>) -> Batch {
    let mut writer = PayloadWriter::default();
    payloads.iter().for_each(|payload| writer.push(payload.as_bytes()));
    let meta = Meta {
        source: "access".into(),
        path: Some("a/b.log".into()),
        time_us: 1_000_000,
        sequence: None,
        number: 0,
    };
    Batch::new(writer.finish(), Arc::new(meta), Ack::noop()).set_fields(fields).unwrap()
}

fn ints(name: &str, values: Vec<Option<i64>>) -> (Field, ArrayRef) {
    (Field::new(name, DataType::Int64, true), Arc::new(Int64Array::from(values)))
}

fn texts(name: &str, values: Vec<Option<&str>>) -> (Field, ArrayRef) {
    (Field::new(name, DataType::Utf8View, true), Arc::new(StringViewArray::from(values)))
}

fn json(name: &str, values: Vec<Option<&str>>) -> (Field, ArrayRef) {
    let (field, column) = texts(name, values);
    (field.with_metadata([(EXTENSION.to_owned(), JSON.to_owned())].into()), column)
}

fn with(fields: Vec<(Field, ArrayRef)>) -> Batch {
    let rows = fields[0].1.len();
    batch_of(&vec!["a line of the log"; rows], fields)
}

fn evaluator(sql: &str) -> Evaluator {
    Evaluator::new(Expression::parse(sql).unwrap())
}

fn yes(sql: &str, batch: &Batch) -> Vec<Option<bool>> {
    let condition = evaluator(sql).condition(batch);
    assert_eq!(condition.failed, [], "{sql}");
    condition.values.iter().collect()
}

/// Returns the values as text.
fn shown(sql: &str, batch: &Batch) -> Vec<Option<String>> {
    let evaluated = evaluator(sql).evaluate(batch);
    assert_eq!(evaluated.failed, [], "{sql}");
    let text = arrow_cast::cast(&evaluated.values, &DataType::Utf8View).unwrap();
    text.as_string_view().iter().map(|value| value.map(str::to_owned)).collect()
}

fn one(sql: &str, batch: &Batch) -> Option<String> {
    shown(sql, batch).swap_remove(0)
}

const T: Option<bool> = Some(true);
const F: Option<bool> = Some(false);

#[test]
fn a_comparison_gives_an_answer_for_each_message() {
    let batch = with(vec![ints("status", vec![Some(200), Some(500), None])]);
    assert_eq!(yes("status >= 500", &batch), [F, T, None]);
    assert_eq!(yes("status BETWEEN 200 AND 299 OR status IS NULL", &batch), [T, F, T]);
    assert_eq!(yes("status IN (500, 502)", &batch), [F, T, None]);
    assert_eq!(yes("status IS DISTINCT FROM 500", &batch), [T, F, T]);
}

#[test]
fn a_missing_column_is_null() {
    let batch = with(vec![ints("status", vec![Some(200)])]);
    for sql in [
        "nothing > 5",
        "nothing = 'x'",
        "nothing LIKE '%x%'",
        "upper(nothing) = 'X'",
        "abs(nothing) > 1",
        "nothing ~ 'x'",
        "nothing > now()",
        "nothing + INTERVAL '1 day' > now()",
        "date_trunc('hour', nothing) = now()",
        "to_timestamp(nothing) > now()",
        "extract(hour FROM nothing) = 3",
        "regexp_like(nothing, 'a.*')",
        "a.b.c.d.e.f = 1",
        "nothing[0].x = 1",
        "json_get_int(nothing, 'a') = 1",
        "NOT nothing",
        "nothing",
        "nothing IN (1, 'a')",
        "split_part(nothing, '/', 2) = 'x'",
    ] {
        assert_eq!(yes(sql, &batch), [None], "{sql}");
        check(sql).unwrap();
    }
    assert_eq!(yes("nothing IS NULL", &batch), [T]);
    assert_eq!(one("nothing", &batch), None);
    assert_eq!(one("coalesce(nothing, status, 7)", &batch).as_deref(), Some("200"));
    assert_eq!(evaluator("nothing").evaluate(&batch).values.data_type(), &DataType::Utf8View);
}

#[test]
fn a_failing_message_fails_alone() {
    let divisors: Vec<Option<i64>> = (0..1000).map(|row| Some(i64::from(row % 100 != 37))).collect();
    let batch = with(vec![ints("n", divisors)]);
    let evaluated = evaluator("10 / n").evaluate(&batch);
    let rows: Vec<u32> = evaluated.failed.iter().map(|(row, _)| *row).collect();
    assert_eq!(rows, (0..10).map(|hundred| hundred * 100 + 37).collect::<Vec<u32>>());
    assert_eq!(evaluated.failed[0].1, "`10 / n` failed: division by zero.");
    assert_eq!(evaluated.values.null_count(), 10);
    assert_eq!(evaluated.values.len(), 1000);

    let batch = with(vec![texts("t", vec![Some("1"), Some("x"), Some("3")])]);
    let evaluated = evaluator("CAST(t AS BIGINT)").evaluate(&batch);
    assert_eq!(
        evaluated.failed,
        [(1, "`CAST(t AS BIGINT)` failed: `x` is not a whole number of 64 bits.".to_owned())]
    );
    assert_eq!(shown("TRY_CAST(t AS BIGINT)", &batch), [Some("1".into()), None, Some("3".into())]);
}

#[test]
fn integers_do_not_wrap_around() {
    let batch = with(vec![ints("n", vec![Some(i64::MAX), Some(1)])]);
    for (sql, message) in [
        ("n + 1", "`n + 1` failed: overflow happened on: 9223372036854775807 + 1."),
        ("n * 2", "`n * 2` failed: overflow happened on: 9223372036854775807 * 2."),
        ("-2 - n", "`-2 - n` failed: overflow happened on: -2 - 9223372036854775807."),
        ("n + n", "`n + n` failed: overflow happened on: 9223372036854775807 + 9223372036854775807."),
    ] {
        assert_eq!(evaluator(sql).evaluate(&batch).failed, [(0, message.to_owned())], "{sql}");
    }
    for (sql, message) in [
        (
            "9223372036854775807 + 1",
            "`9223372036854775807 + 1` cannot be evaluated: `9223372036854775807 + 1` is more than a 64-bit integer can hold.",
        ),
        ("1 / 0", "`1 / 0` failed: division by zero."),
    ] {
        let failed = evaluator(sql).evaluate(&batch).failed;
        assert_eq!(failed, [(0, message.to_owned()), (1, message.to_owned())], "{sql}");
    }
    assert_eq!(
        check("9223372036854775807 + 1").unwrap_err().message,
        "`9223372036854775807 + 1` cannot be evaluated: `9223372036854775807 + 1` is more than a 64-bit integer can hold."
    );
}

#[test]
fn a_guard_protects_what_it_guards() {
    let batch = with(vec![ints("n", vec![Some(0), Some(2), Some(0), Some(5)])]);
    assert_eq!(yes("n <> 0 AND 10 / n > 3", &batch), [F, T, F, F]);
    assert_eq!(yes("CASE WHEN n = 0 THEN false ELSE 10 / n > 3 END", &batch), [F, T, F, F]);
}

#[test]
fn text_beside_a_number_is_read_as_one() {
    let batch = with(vec![
        texts("t", vec![Some("500"), Some("9"), Some("0.5"), Some("-"), None]),
        ints("n", vec![Some(500), Some(9), Some(1), Some(1), Some(1)]),
    ]);
    assert_eq!(yes("t >= 500", &batch), [T, F, F, None, None]);
    assert_eq!(yes("500 <= t", &batch), [T, F, F, None, None]);
    assert_eq!(yes("t > 0", &batch), [T, T, T, None, None]);
    assert_eq!(yes("t = n", &batch), [T, T, F, None, None]);
    assert_eq!(yes("t BETWEEN 1 AND 10", &batch), [F, T, F, None, None]);
    assert_eq!(yes("t IN (9, 0.5)", &batch), [F, T, T, None, None]);
    assert_eq!(yes("t * 2 = 18", &batch), [F, T, F, None, None]);
    assert_eq!(yes("-t < -100", &batch), [T, F, F, None, None]);
    // A text literal that spells a number is compared as a number; any other is compared as text.
    assert_eq!(yes("n >= '10'", &batch), [T, F, F, F, F]);
    assert_eq!(yes("n <> 'unknown'", &batch), [T; 5]);
    assert_eq!(yes("n IN ('500', 'unknown')", &batch), [T, F, F, F, F]);
    assert_eq!(yes("n < 'unknown'", &batch), [None; 5]);
}

#[test]
fn integers_beyond_the_exactness_of_floats_are_compared_exactly() {
    let batch = with(vec![
        texts("t", vec![Some("9007199254740993"), Some("9007199254740992")]),
        json("j", vec![Some("9007199254740993"), Some("\"9007199254740992\"")]),
    ]);
    assert_eq!(yes("t = 9007199254740993", &batch), [T, F]);
    assert_eq!(yes("j = 9007199254740993", &batch), [T, F]);
}

#[test]
fn text_beside_a_truth_value_or_a_time_is_read_as_one() {
    let batch = with(vec![texts("t", vec![Some("true"), Some("2024-05-01T10:00:00Z"), Some("x")])]);
    assert_eq!(yes("t = true", &batch), [T, None, None]);
    assert_eq!(yes("t > to_timestamp('2024-01-01T00:00:00Z')", &batch), [None, T, None]);
    assert_eq!(yes("to_timestamp('2024-01-01T00:00:00Z') > '2023-01-01'", &batch), [T; 3]);
}

#[test]
fn a_json_column_is_used_as_what_it_holds() {
    let batch = with(vec![json(
        "j",
        vec![Some("500"), Some("\"500\""), Some("\"no\""), Some("null"), Some("[1]"), Some("true"), None],
    )]);
    // A value that does not fit the expression fails, as it would in a column of its own.
    let met = |sql: &str| {
        let condition = evaluator(sql).condition(&batch);
        let failed: Vec<u32> = condition.failed.iter().map(|(row, _)| *row).collect();
        (condition.values.iter().collect::<Vec<_>>(), failed)
    };
    assert_eq!(met("j >= 500"), (vec![T, T, None, None, None, None, None], vec![5]));
    assert_eq!(yes("j = 'no'", &batch), [F, F, T, None, F, F, None]);
    assert_eq!(met("j LIKE '5%'").0[..4], [None, T, F, None]);
    assert_eq!(met("j").0, [None, None, None, None, None, T, None]);
    assert_eq!(yes("j IS NULL", &batch), [F, F, F, T, F, F, T]);
    assert_eq!(met("NOT j AND true").0[5], F);
    assert_eq!(one("upper(j) || '!'", &with(vec![json("j", vec![Some("\"a\"")])])).as_deref(), Some("A!"));
    assert_eq!(
        one("CAST(j AS BIGINT) + 1", &with(vec![json("j", vec![Some("\"4\"")])])).as_deref(),
        Some("5")
    );
    // The column alone stays JSON.
    let itself = evaluator("j").evaluate(&batch);
    assert_eq!(itself.kind, Kind::Json);
    assert_eq!(itself.values.as_string_view().value(1), "\"500\"");
    assert_eq!(json_rows("json_get_int(j)", &batch), [Some(500), Some(500), None, None, None, None, None]);
}

fn json_rows(sql: &str, batch: &Batch) -> Vec<Option<i64>> {
    evaluator(sql).evaluate(batch).values.as_primitive::<arrow_array::types::Int64Type>().iter().collect()
}

#[test]
fn a_dotted_name_is_the_column_of_that_name_or_else_a_lookup() {
    let request = r#"{"status": 503, "items": [{"id": "a b"}, {"id": 7}], "x y": "z", "ok": true}"#;
    let batch = with(vec![json("request", vec![Some(request)])]);
    assert_eq!(yes("request.status >= 500", &batch), [T]);
    assert_eq!(yes("request.ok", &batch), [T]);
    assert_eq!(yes("request.items[0].id = 'a b' AND request.items[1].id = 7", &batch), [T]);
    assert_eq!(yes("request['x y'] = 'z'", &batch), [T]);
    assert_eq!(yes("request.nothing IS NULL", &batch), [T]);
    assert_eq!(one("upper(request.\"x y\")", &batch).as_deref(), Some("Z"));
    assert_eq!(one("json_get(request, 'items[1].id')", &batch).as_deref(), Some("7"));
    // A part of the column, alone, stays JSON.
    let items = evaluator("request.items").evaluate(&batch);
    assert_eq!(items.kind, Kind::Json);
    assert_eq!(items.values.as_string_view().value(0), r#"[{"id": "a b"}, {"id": 7}]"#);

    let both = with(vec![json("request", vec![Some(request)]), ints("request.status", vec![Some(1)])]);
    assert_eq!(yes("request.status = 1", &both), [T]);
    let nested = with(vec![json("a.b", vec![Some(r#"{"c": 5}"#)])]);
    assert_eq!(yes("a.b.c = 5", &nested), [T]);
}

#[test]
fn names_are_case_sensitive_and_functions_are_not() {
    let batch = with(vec![ints("requestId", vec![Some(1)]), ints("quoted name", vec![Some(2)])]);
    assert_eq!(yes("requestId = 1 AND requestid IS NULL AND \"quoted name\" = 2", &batch), [T]);
    assert_eq!(one("UPPER('a')", &batch).as_deref(), Some("A"));
}

#[test]
fn names_that_sql_reserves_are_columns_too() {
    let names =
        ["user", "level", "time", "date", "timestamp", "method", "position", "host", "path", "value", "key"];
    for name in names {
        let batch = with(vec![ints(name, vec![Some(1)])]);
        assert_eq!(yes(&format!("{name} = 1"), &batch), [T], "{name}");
    }
}

#[test]
fn meta_and_payload_are_columns() {
    let batch = with(vec![ints("n", vec![Some(1)])]);
    assert_eq!(
        yes(
            "meta.source = 'access' AND meta.path LIKE '%.log' AND meta.time < now() AND meta.position IS NULL",
            &batch
        ),
        [T]
    );
    assert_eq!(one("upper(payload)", &batch).as_deref(), Some("A LINE OF THE LOG"));
    assert_eq!(one("meta.time", &batch).as_deref(), Some("1970-01-01T00:00:01Z"));
}

#[test]
fn the_operators_and_functions_of_sql_are_there() {
    let batch = with(vec![texts("t", vec![Some("/api/v1/users")]), ints("size", vec![Some(2048)])]);
    for sql in [
        "t LIKE '/api/%' AND t ILIKE '/API/%' AND t NOT LIKE '%x%'",
        "t ~ '^/api/v[0-9]+/' AND t !~ 'x' AND t ~* 'API'",
        "size / 1024.0 = 2.0 AND size / 1000 = 2 AND size % 1000 = 48",
        "t || '?' = '/api/v1/users?'",
        "CASE WHEN size > 1000 THEN 'large' ELSE 'small' END = 'large'",
        "CASE size WHEN 2048 THEN true END",
        "size::text = '2048' AND CAST('7' AS INT) = 7 AND TRY_CAST('x' AS INT) IS NULL",
        "substring(t FROM 2 FOR 3) = 'api' AND position('v1' IN t) = 6 AND trim('  a ') = 'a'",
        "extract(year FROM to_timestamp('2024-05-01T10:00:00Z')) = 2024",
        "to_timestamp('2024-05-01T10:00:00Z') + INTERVAL '1 hour' = to_timestamp('2024-05-01T11:00:00Z')",
        "coalesce(NULL, 1) = 1 AND nullif(1, 1) IS NULL AND greatest(1, 2) = 2",
        "split_part(t, '/', 2) = 'api' AND regexp_replace(t, '.*/', '') = 'users' AND length(t) = 13",
        "encode('a', 'hex') = '61' AND round(1.5) = 2 AND starts_with(t, '/') AND contains(t, 'api')",
        "now() - INTERVAL '1 minute' < now() AND current_date <= now() AND current_timestamp >= meta.time",
        "random() < 1 AND uuid() <> uuid()",
        "overlay('abc' PLACING 'x' FROM 2 FOR 1) = 'axc' AND ceil(1.2) = 2 AND floor(1.2) = 1",
        "1 = 1 -- a comment",
        "true",
    ] {
        check(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert_eq!(yes(sql, &batch), [T], "{sql}");
    }
}

#[test]
fn values_have_the_types_that_fields_have() {
    let batch = with(vec![ints("n", vec![Some(5)])]);
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    for (sql, data_type) in [
        ("n", DataType::Int64),
        ("length('abc')", DataType::Int64),
        ("n * 1.5", DataType::Float64),
        ("CAST(n AS DECIMAL(10, 2))", DataType::Float64),
        ("n > 1", DataType::Boolean),
        ("'text'", DataType::Utf8View),
        ("upper('text')", DataType::Utf8View),
        ("now()", time.clone()),
        ("to_timestamp(n)", time),
        ("CAST('2024-05-01' AS DATE)", DataType::Utf8View),
        ("now() - meta.time", DataType::Utf8View),
        ("INTERVAL '1 day'", DataType::Utf8View),
        ("decode('YQ==', 'base64')", DataType::Utf8View),
        ("NULL", DataType::Utf8View),
    ] {
        let evaluated = evaluator(sql).evaluate(&batch);
        assert_eq!(evaluated.failed, [], "{sql}");
        assert_eq!(evaluated.values.data_type(), &data_type, "{sql}");
    }
    assert_eq!(one("CAST('2024-05-01' AS DATE)", &batch).as_deref(), Some("2024-05-01"));
    assert_eq!(one("decode('YQ==', 'base64')", &batch).as_deref(), Some("a"));
}

#[test]
fn what_is_not_a_condition_fails_for_every_message() {
    let batch = with(vec![ints("size", vec![Some(1), Some(2)])]);
    let condition = evaluator("size + 1").condition(&batch);
    assert_eq!(condition.failed.len(), 2);
    assert_eq!(
        condition.failed[1],
        (1, "`size + 1` is not a condition: it returns a number. Compare it with something, or write `CAST(size + 1 AS BOOLEAN)`.".into())
    );
    assert_eq!(condition.values.null_count(), 2);
}

#[test]
fn what_does_not_fit_the_types_fails_for_every_message_with_the_part_at_fault() {
    let batch = with(vec![ints("n", vec![Some(1), Some(2)])]);
    let evaluated = evaluator("n = 1 AND date_trunc('hour', n) > now()").evaluate(&batch);
    assert_eq!(evaluated.failed.len(), 2);
    let (row, reason) = &evaluated.failed[0];
    assert_eq!(*row, 0);
    let expected = "`date_trunc('hour', n)` cannot be evaluated: function 'date_trunc' does not take values of these types";
    assert!(reason.starts_with(expected), "{reason}");
}

#[test]
fn now_is_the_time_of_the_batch() {
    let batch = with(vec![ints("n", vec![Some(1)])]);
    let mut evaluator = evaluator("now()");
    let mut time = || {
        let values = evaluator.evaluate(&batch).values;
        values.as_primitive::<arrow_array::types::TimestampMicrosecondType>().value(0)
    };
    let first = time();
    std::thread::sleep(std::time::Duration::from_millis(2));
    assert!(time() > first);
}

#[test]
fn it_is_compiled_once_for_the_types_of_the_columns_it_refers_to() {
    let mut evaluator = evaluator("n > 1");
    let one = with(vec![ints("n", vec![Some(1)])]);
    let other = with(vec![texts("x", vec![Some("a")]), ints("n", vec![Some(2)])]);
    let text = with(vec![texts("n", vec![Some("3")])]);
    assert_eq!(evaluator.condition(&one).values.iter().collect::<Vec<_>>(), [F]);
    assert_eq!(evaluator.condition(&other).values.iter().collect::<Vec<_>>(), [T]);
    assert_eq!(evaluator.compiled.len(), 1);
    assert_eq!(evaluator.condition(&text).values.iter().collect::<Vec<_>>(), [T]);
    assert_eq!(evaluator.condition(&one).values.iter().collect::<Vec<_>>(), [F]);
    assert_eq!(evaluator.compiled.len(), 2);
    for row in 0..80 {
        // Each precision and scale of a decimal is a new type.
        let decimals = arrow_array::Decimal128Array::from(vec![5]);
        let decimals = decimals.with_precision_and_scale(20 + row as u8 / 20, row % 20).unwrap();
        let field = Field::new("n", decimals.data_type().clone(), true);
        evaluator.condition(&with(vec![(field, Arc::new(decimals))]));
    }
    assert_eq!(evaluator.compiled.len(), KEPT);
}

#[test]
fn a_search_of_the_payload_does_not_make_it_text() {
    let batch = batch_of(&["short", "an error in a long line", "nothing in a long line"], vec![]);
    for (sql, expected) in [
        ("payload LIKE '%error%'", [F, T, F]),
        ("payload NOT LIKE '%error%'", [T, F, T]),
        ("contains(payload, 'or')", [T, T, F]),
        ("strpos(payload, 'long') > 0", [F, T, T]),
        ("position('long' IN payload) = 0", [T, F, F]),
        ("payload LIKE 'an%'", [F, T, F]),
        ("payload LIKE '%line'", [F, T, T]),
        ("starts_with(payload, 'no') OR payload = 'short'", [T, F, T]),
        ("payload <> 'short' AND payload LIKE '%error%'", [F, T, F]),
        ("payload LIKE 'short'", [T, F, F]),
        ("n IS NULL AND payload LIKE '%error%'", [F, T, F]),
    ] {
        let mut evaluator = evaluator(sql);
        let condition = evaluator.condition(&batch);
        assert_eq!(condition.values.iter().collect::<Vec<_>>(), expected, "{sql}");
        let Ok(plan) = &evaluator.compiled[0].plan else { panic!("{sql}") };
        let names: Vec<&str> = plan.schema.fields().iter().map(|field| field.name().as_str()).collect();
        assert_eq!(names, [PAYLOAD_BYTES], "{sql}");
    }
}

#[test]
fn a_field_called_payload_hides_the_payload() {
    let batch = batch_of(&["an error in a long line"], vec![texts("payload", vec![Some("fine")])]);
    assert_eq!(yes("payload LIKE '%error%' OR payload <> 'fine'", &batch), [F]);
}

#[test]
fn a_field_does_not_hide_metadata() {
    let batch = batch_of(&["a", "b"], vec![texts("meta.source", vec![Some("forged"), None])]);
    assert_eq!(yes("meta.source = 'access'", &batch), [T, T]);
    let batch = batch_of(&["a"], vec![ints("meta.time", vec![Some(1)])]);
    assert_eq!(yes("meta.time < now()", &batch), [T]);
}

#[test]
fn a_broken_payload_is_searched_as_its_text_would_be() {
    let mut writer = PayloadWriter::default();
    writer.push(b"\xe2\x82 some error text\xff");
    let batch = Batch::new(writer.finish(), batch_of(&[], vec![]).meta().clone(), Ack::noop());
    assert_eq!(yes("payload LIKE '%error%'", &batch), [T]);
    assert_eq!(yes("payload LIKE '%\u{fffd}%'", &batch), [T]);
}

#[test]
fn an_empty_batch_has_no_values() {
    let batch = batch_of(&[], vec![]);
    for sql in ["1", "true", "payload LIKE '%a%'", "n > 1", "1 / n"] {
        assert_eq!(evaluator(sql).evaluate(&batch).values.len(), 0);
        assert_eq!(evaluator(sql).condition(&batch).values.len(), 0);
    }
}

#[test]
fn many_conditions_and_deep_ones_fit_on_a_small_stack() {
    let batch = with(vec![ints("n", vec![Some(3)])]);
    let many = (0..2000).map(|n| format!("n = {n}")).collect::<Vec<_>>().join(" OR ");
    assert_eq!(yes(&many, &batch), [T]);
    let deep = format!("{}n{}", "abs(".repeat(40), ")".repeat(40));
    assert_eq!(one(&deep, &batch).as_deref(), Some("3"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The plain evaluation reads a field with the same text.
    #[test]
    fn the_searches_agree_with_the_plain_evaluation(
        lines in prop::collection::vec("[abé%]{0,20}", 1..30),
        literal in "[abé]{1,3}",
        shape in prop::sample::select(vec![
            "@ LIKE '%#%'", "@ NOT LIKE '%#%'", "contains(@, '#')", "strpos(@, '#') > 0", "strpos(@, '#') < 1",
            "@ LIKE '#%'", "@ LIKE '%#'", "@ = '#'", "'#' <> @", "@ LIKE '#'", "ends_with(@, '#')",
        ]),
    ) {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let batch = batch_of(&lines, vec![texts("t", lines.iter().copied().map(Some).collect())]);
        let sql = shape.replace('#', &literal);
        prop_assert_eq!(yes(&sql.replace('@', "payload"), &batch), yes(&sql.replace('@', "t"), &batch));
    }

    #[test]
    fn failing_messages_are_found_wherever_they_are(
        values in prop::collection::vec(prop::option::of(-2..3i64), 1..200),
    ) {
        let batch = with(vec![ints("n", values.clone())]);
        let evaluated = evaluator("6 / n").evaluate(&batch);
        let failed: Vec<u32> = evaluated.failed.iter().map(|(row, _)| *row).collect();
        let zeros: Vec<u32> = (0..values.len() as u32).filter(|row| values[*row as usize] == Some(0)).collect();
        prop_assert_eq!(failed, zeros);
        let expected: Vec<Option<i64>> = values.iter().map(|n| n.and_then(|n| 6i64.checked_div(n))).collect();
        let values: Vec<Option<i64>> =
            evaluated.values.as_primitive::<arrow_array::types::Int64Type>().iter().collect();
        prop_assert_eq!(values, expected);
    }

    #[test]
    fn no_words_of_sql_in_any_order_break_anything(
        words in prop::collection::vec(prop::sample::select(vec![
            "n", "t", "j", "f", "payload", "meta.time", "j.a", "j.a[0].b", "1", "0", "2.5", "'x'", "'1'", "NULL", "true", "(", ")",
            "+", "-", "*", "/", "%", "=", "<>", "<", ">=", "||", "~", "AND", "OR", "NOT", "IS", "LIKE", "'%a%'", "IN",
            "BETWEEN", "CASE", "WHEN", "THEN", "ELSE", "END", "CAST(", "AS", "INT", "DATE", "::", "text", "upper(",
            "abs(", "now()", "INTERVAL", "'1 day'", "coalesce(", ",", "[", "]", ".", "json_get(", "extract(", "year", "FROM",
            "substr(", "repeat(", "round(", "date_trunc(", "'hour'", "regexp_like(", "SELECT", "$1", "@x", "->", ":",
        ]), 0..12),
    ) {
        anything(&words.join(" "));
    }

    #[test]
    fn no_text_breaks_anything(sql in "\\PC{0,30}") {
        anything(&sql);
    }

    #[test]
    fn no_pair_of_types_breaks_an_operator(
        a in prop::sample::select(OPERANDS.to_vec()),
        op in prop::sample::select(vec![
            "+", "-", "*", "/", "%", "=", "<>", "<", ">=", "||", "~", "AND", "OR", "LIKE", "ILIKE",
            "IS DISTINCT FROM", "&", "|", "#", "<<",
        ]),
        b in prop::sample::select(OPERANDS.to_vec()),
        shape in prop::sample::select(vec!["@", "NOT (@)", "(@) IS NULL", "CAST(@ AS BIGINT)", "coalesce(@, n)", "upper(@)"]),
    ) {
        anything(&shape.replace('@', &format!("{a} {op} {b}")));
    }
}

const OPERANDS: [&str; 16] = [
    "n",
    "t",
    "j",
    "f",
    "payload",
    "meta.time",
    "j.a",
    "nothing",
    "1",
    "-9223372036854775808",
    "2.5e300",
    "'x'",
    "NULL",
    "true",
    "now()",
    "INTERVAL '1 day'",
];

/// Checks that any text is either rejected or evaluated.
fn anything(sql: &str) {
    let _ = check(sql);
    let Ok(expression) = Expression::parse(sql) else { return };
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![f64::NAN, 0.0, -1.5]));
    let batch = with(vec![
        ints("n", vec![Some(i64::MIN), Some(0), None]),
        texts("t", vec![Some("12"), Some("é"), None]),
        json("j", vec![Some(r#"{"a": [{"b": 1}]}"#), Some("-0"), Some("broken")]),
        (Field::new("f", DataType::Float64, true), floats),
    ]);
    let mut evaluator = Evaluator::new(expression);
    assert_eq!(evaluator.evaluate(&batch).values.len(), 3);
    assert_eq!(evaluator.condition(&batch).values.len(), 3);
}

/// Calls every function with extreme values of all combinations of types. None may abort the process.
#[test]
fn no_extreme_value_breaks_a_function() {
    let longest = "aé".repeat(1_000);
    let numbers = [i64::MIN, i64::MAX, -1, 0, 1, 2_000_000_000, 50_000_000, i64::MAX / 8];
    let strings = ["", "a", "é\u{1f600}", longest.as_str(), "a(", "%Y-%m-%d", "9223372036854775807", "$1\\1"];
    let floats = [f64::NAN, f64::INFINITY, f64::MIN, -0.0, 1e300, 9.3e18, 0.5, -1.0];
    // Different strides pair the values of two columns in different ways.
    let rows = 16;
    let at = |row: usize, column: usize| (row * [1, 3, 5, 7][column] + row / 8) % 8;
    let mut fields = Vec::new();
    for column in 0..4 {
        fields
            .push(ints(&format!("i{column}"), (0..rows).map(|row| Some(numbers[at(row, column)])).collect()));
        fields.push(texts(
            &format!("t{column}"),
            (0..rows).map(|row| Some(strings[at(row, column)])).collect(),
        ));
        let values: Float64Array = (0..rows).map(|row| Some(floats[at(row, column)])).collect();
        fields.push((Field::new(format!("f{column}"), DataType::Float64, true), Arc::new(values)));
    }
    let batch = with(fields);
    let mut called = 0;
    for function in crate::functions() {
        for arity in 1..=4_usize {
            if crate::functions::check_call(function.name, arity).is_err() {
                continue;
            }
            for kinds in 0..3_usize.pow(arity.min(3) as u32) {
                let arguments: Vec<String> = (0..arity)
                    .map(|at| format!("{}{at}", ["t", "i", "f"][kinds / 3_usize.pow(at.min(2) as u32) % 3]))
                    .collect();
                let sql = format!("{}({})", function.name, arguments.join(", "));
                let evaluated = evaluator(&sql).evaluate(&batch);
                assert_eq!(evaluated.values.len(), rows, "{sql}");
                called += usize::from(evaluated.failed.len() < rows);
            }
        }
    }
    assert!(called > 300, "{called}");
}

#[test]
fn a_result_that_is_too_long_fails_and_nothing_else() {
    let counts = vec![Some(i64::MAX), Some(3), Some(i64::MIN), None, Some(17 << 20), Some(0)];
    let batch = with(vec![ints("n", counts), texts("t", vec![Some("ab"); 6])]);
    for (sql, expected) in [
        ("lpad(t, n, 'x')", ["xab", "", ""]),
        ("rpad(t, n)", ["ab ", "", ""]),
        ("repeat(t, n)", ["ababab", "", ""]),
    ] {
        let evaluated = evaluator(sql).evaluate(&batch);
        let failed: Vec<u32> = evaluated.failed.iter().map(|(row, _)| *row).collect();
        assert_eq!(failed, [0, 4], "{sql}");
        assert_eq!(evaluated.failed[0].1, format!("`{sql}` failed: the result has more than 16 MiB."));
        let values = arrow_cast::cast(&evaluated.values, &DataType::Utf8View).unwrap();
        let values = values.as_string_view();
        assert_eq!([values.value(1), values.value(2), values.value(5)], expected, "{sql}");
        assert!(values.is_null(3));
    }
    let long = "a".repeat(1 << 20);
    let batch = with(vec![texts("t", vec![Some(long.as_str()), Some("aa")])]);
    for sql in ["replace(t, 'a', t)", "regexp_replace(t, 'a', t, 'g')", "regexp_replace(t, '', t, 'g')"] {
        let evaluated = evaluator(sql).evaluate(&batch);
        assert_eq!(evaluated.failed.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [0], "{sql}");
    }
    assert_eq!(one("length(regexp_replace(t, 'a', 'bcd', 'g'))", &batch).unwrap(), (3 << 20).to_string());
    assert_eq!(one("length(replace(t, 'aa', 'bcd'))", &batch).unwrap(), (3 << 19).to_string());
    let evaluated = evaluator("levenshtein(t, t)").evaluate(&batch);
    assert_eq!(evaluated.failed.len(), 1);
}

#[test]
fn the_results_of_a_batch_have_a_bound_too() {
    let batch = with(vec![ints("n", vec![Some(8 << 20); 100])]);
    let evaluated = evaluator("repeat('ab', n)").evaluate(&batch);
    assert!(evaluated.failed.len() > 60 && evaluated.failed.len() < 90, "{}", evaluated.failed.len());
    assert_eq!(shown("length(repeat('ab', n))", &batch)[99].as_deref(), Some("16777216"));
}

#[test]
fn the_results_have_a_bound_of_the_memory() {
    let batch =
        |mebibytes: &[i64]| with(vec![ints("n", mebibytes.iter().map(|count| Some(count << 20)).collect())]);
    let failed = |sql: &str, memory: usize, batch: &Batch| {
        let evaluated = evaluator(sql).within(&Budget::new(memory << 20)).evaluate(batch);
        let end = format!("`{sql}` failed: ");
        let reason = |reason: String| reason.strip_prefix(&end).unwrap().trim_end_matches('.').to_owned();
        evaluated.failed.into_iter().map(|(row, why)| (row, reason(why))).collect::<Vec<_>>()
    };
    let large = batch(&[9, 9, 9, 17]);
    let one = |size: u32| format!("the result has more than {size} MiB");
    assert_eq!(failed("repeat('x', n)", 1024, &large), [(3, one(16))]);
    let all = "the results for a batch have more than 16 MiB".to_owned();
    assert_eq!(failed("repeat('x', n)", 128, &large), [(2, all.clone()), (3, all)]);
    assert_eq!(failed("repeat('x', n)", 32, &large), [0, 1, 2, 3].map(|row| (row, one(4))));
    let sum = "repeat('x', n) || repeat('y', n) || repeat('z', n) || repeat('a', n) || repeat('b', n)";
    let all = "the results for a message have more than 4 MiB".to_owned();
    assert_eq!(failed(sum, 8, &batch(&[1])), [(0, all)]);
    let short = with(vec![ints("n", vec![Some(600 << 10)])]);
    assert_eq!(failed("repeat('x', n)", 1, &short), [(0, "the result has more than 512 KiB".to_owned())]);
    assert_eq!(failed(&format!("length({sum})"), 64, &batch(&[2; 10])), []);
    // A result that is no longer than the message it is made of has no bound of its own.
    let long = with(vec![texts("t", vec![Some("ab".repeat(1 << 20).as_str())])]);
    assert_eq!(failed("replace(t, 'a', 'c')", 1, &long), []);
    assert_eq!(failed("regexp_replace(t, 'b+', 'c', 'g')", 1, &long), []);
    assert_eq!(failed("replace(t, 'a', 'cd')", 1, &long), [(0, "the result has more than 2 MiB".to_owned())]);
}

#[test]
fn values_beside_others_have_the_bounds_of_one() {
    let batch = with(vec![ints("n", vec![Some(1 << 20)])]);
    let mut repeated = evaluator("repeat('x', n)").within(&Budget::new(8 << 20));
    let first = repeated.evaluate_beside(0, &batch);
    assert!(first.failed.is_empty() && (1 << 20..2 << 20).contains(&first.held), "{}", first.held);
    assert_eq!(repeated.evaluate_beside(7 << 19, &batch).failed.len(), 1);
}
