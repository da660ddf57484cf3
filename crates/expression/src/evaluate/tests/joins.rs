//! The operator `||` and the functions that join texts.

use super::*;

fn failures(sql: &str, mebibytes: usize, batch: &Batch) -> Vec<(u32, String)> {
    let evaluated = evaluator(sql).within(&Budget::new(mebibytes << 20)).evaluate(batch);
    let start = format!("`{sql}` failed: ");
    let reason = |reason: &str| reason.strip_prefix(&start).unwrap().trim_end_matches('.').to_owned();
    evaluated.failed.iter().map(|(row, why)| (*row, reason(why))).collect()
}

fn one_long(bytes: usize) -> Batch {
    let long = "x".repeat(bytes);
    with(vec![texts("s", vec![Some(&long)]), ints("n", vec![Some(bytes as i64)])])
}

#[test]
fn a_chain_joins_values_of_all_types() {
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![1.5, 2.0]));
    let truths: ArrayRef = Arc::new(BooleanArray::from(vec![true, false]));
    let batch = with(vec![
        texts("s", vec![Some("a text that is longer than a view"), Some("")]),
        ints("n", vec![Some(7), Some(-1)]),
        (Field::new("f", DataType::Float64, true), floats),
        (Field::new("b", DataType::Boolean, true), truths),
        json("j", vec![Some("\"in\""), Some("[1]")]),
    ]);
    let joined = [
        ("s || '-' || n", ["a text that is longer than a view-7", "--1"]),
        ("'<' || f || '|' || b || '>'", ["<1.5|true>", "<2.0|false>"]),
        ("j || j", ["inin", "[1][1]"]),
        ("upper('a' || n) || lower('B')", ["A7b", "A-1b"]),
        ("meta.source || ':' || n", ["access:7", "access:-1"]),
        ("n || (n || (n || s))", ["777a text that is longer than a view", "-1-1-1"]),
        ("'a' || ('b' || 'c') || 1", ["abc1", "abc1"]),
        ("CAST('1' || abs(n) AS BIGINT) + 1", ["18", "12"]),
        ("length('a' || n) || 'x'", ["2x", "3x"]),
        (
            "CASE WHEN n > 0 THEN s || n ELSE upper('q' || n) END",
            ["a text that is longer than a view7", "Q-1"],
        ),
        ("encode(decode('6162', 'hex') || decode('63', 'hex'), 'hex') || n", ["6162637", "616263-1"]),
    ];
    for (sql, expected) in joined {
        assert_eq!(shown(sql, &batch), expected.map(|value| Some(value.to_owned())), "{sql}");
    }
    assert_eq!(yes("'a' || n = 'a7'", &batch), [T, F]);
    assert_eq!(yes("s || n LIKE '%7'", &batch), [T, F]);
}

#[test]
fn a_chain_with_null_is_null() {
    let batch = with(vec![texts("s", vec![Some("a"), None]), ints("n", vec![None, Some(1)])]);
    for sql in ["s || n", "s || NULL", "'x' || s || 'y' || n", "s || missing || 'a'", "NULL || s"] {
        assert_eq!(shown(sql, &batch), [None, None], "{sql}");
    }
    assert_eq!(shown("s || s || 'b'", &batch), [Some("aab".to_owned()), None]);
    assert_eq!(yes("(s || n) IS NULL", &batch), [T, T]);
    assert_eq!(shown("concat(s, n, 'c')", &batch), [Some("ac".to_owned()), Some("1c".to_owned())]);
}

#[test]
fn a_joined_text_has_a_bound_of_the_memory() {
    let batch = one_long(400 << 10);
    let thirty = vec!["s"; 30].join(" || ");
    let longest = |size: &str| vec![(0, format!("the result has more than {size}"))];
    for (memory, size) in [(1, "512 KiB"), (8, "1 MiB"), (32, "4 MiB")] {
        assert_eq!(failures(&thirty, memory, &batch), longest(size));
        assert_eq!(
            failures(&format!("s || ({})", vec!["s"; 29].join(" || ")), memory, &batch),
            longest(size)
        );
        assert_eq!(failures(&format!("concat({})", vec!["s"; 30].join(", ")), memory, &batch), longest(size));
        let separated = format!("concat_ws({})", vec!["s"; 16].join(", "));
        assert_eq!(failures(&separated, memory, &batch), longest(size));
    }
    assert_eq!(failures(&thirty, 256, &batch), []);
    assert_eq!(failures("encode(s, 'hex')", 1, &batch), longest("512 KiB"));
    assert_eq!(failures("upper(s || s)", 1, &batch), longest("512 KiB"));
}

#[test]
fn a_text_may_be_as_long_as_the_different_texts_it_is_made_of() {
    let batch = one_long(700 << 10);
    for sql in ["'x: ' || s", "s || '-' || n", "concat('x: ', s)", "concat_ws('-', s, n)"] {
        assert_eq!(failures(sql, 1, &batch), [], "{sql}");
    }
    let values = |size: &str| vec![(0, format!("the results for a message have more than {size}"))];
    assert_eq!(failures("'a' || s || upper('b' || s) || lower(s)", 1, &batch), values("2 MiB"));
}

#[test]
fn joined_texts_of_a_batch_have_a_bound_together() {
    let half = "x".repeat(300 << 10);
    let batch = with(vec![texts("s", vec![Some(half.as_str()); 10])]);
    let mut joining = evaluator("s || '!'").within(&Budget::new(1 << 20));
    let evaluated = joining.evaluate(&batch);
    assert!(evaluated.is_too_large && evaluated.failed.len() < 10, "{:?}", evaluated.failed.len());
    // A condition keeps only its truth values.
    let condition = evaluator("s || '!' LIKE '%!'").within(&Budget::new(1 << 20)).condition(&batch);
    assert_eq!((condition.failed, condition.values.true_count()), (Vec::new(), 10));
}

/// A part of a chain, as it is written.
#[derive(Debug, Clone)]
enum Part {
    Text,
    Other,
    Number,
    Missing,
    Constant(String),
    Chain(Vec<Part>),
}

impl Part {
    fn sql(&self) -> String {
        match self {
            Self::Text => "t".to_owned(),
            Self::Other => "u".to_owned(),
            Self::Number => "n".to_owned(),
            Self::Missing => "missing".to_owned(),
            Self::Constant(text) => format!("'{text}'"),
            Self::Chain(parts) => {
                format!("({})", parts.iter().map(Self::sql).collect::<Vec<_>>().join(" || "))
            }
        }
    }

    fn value(&self, row: &Row) -> Option<String> {
        match self {
            Self::Text => row.0.clone(),
            Self::Other => row.1.clone(),
            Self::Number => row.2.map(|number| number.to_string()),
            Self::Missing => None,
            Self::Constant(text) => Some(text.clone()),
            Self::Chain(parts) => parts.iter().map(|part| part.value(row)).collect(),
        }
    }
}

type Row = (Option<String>, Option<String>, Option<i64>);

/// Returns parts that begin with a text: two numbers cannot be joined.
fn chain(part: impl Strategy<Value = Part>) -> impl Strategy<Value = Part> {
    let text = prop_oneof![Just(Part::Text), Just(Part::Other), "[a-z]{0,9}".prop_map(Part::Constant)];
    (text, prop::collection::vec(part, 1..6))
        .prop_map(|(first, rest)| Part::Chain(std::iter::once(first).chain(rest).collect()))
}

fn part() -> impl Strategy<Value = Part> {
    let leaf = prop_oneof![
        5 => Just(Part::Text),
        5 => Just(Part::Other),
        3 => Just(Part::Number),
        1 => Just(Part::Missing),
        4 => "[a-z\u{e4} ]{0,20}".prop_map(Part::Constant),
    ];
    leaf.prop_recursive(3, 12, 4, chain)
}

fn row() -> impl Strategy<Value = Row> {
    (
        prop::option::weighted(0.9, "\\PC{0,20}"),
        prop::option::weighted(0.9, "[a-z]{0,3}"),
        any::<Option<i64>>(),
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn a_chain_joins_its_parts_in_order(
        chain in chain(part()),
        rows in prop::collection::vec(row(), 1..6),
    ) {
        let batch = with(vec![
            texts("t", rows.iter().map(|row| row.0.as_deref()).collect()),
            texts("u", rows.iter().map(|row| row.1.as_deref()).collect()),
            ints("n", rows.iter().map(|row| row.2).collect()),
        ]);
        let expected: Vec<_> = rows.iter().map(|row| chain.value(row)).collect();
        prop_assert_eq!(shown(&chain.sql(), &batch), expected);
    }
}
