//! A value keeps its own type: the output for a message does not depend on the other messages of its batch.

use proptest::prelude::*;
use thalweg_engine::{Output, testing};
use thalweg_stream::encode::EncodeConfig;

use super::ParseJsonConfig;
use crate::cast::Cast;
use crate::set::Set;

/// Returns the outputs for the messages of each batch: what was written, and the reasons for rejecting.
fn outputs(parse: &str, set: &str, cast: &str, batches: &[&[String]]) -> Vec<Vec<String>> {
    let batches = batches.iter().map(|lines| testing::batch(*lines));
    let parsed = testing::apply::<ParseJsonConfig>(parse, batches);
    assert_eq!(parsed.errors(), []);
    let set = testing::apply::<Set>(set, parsed.outputs.into_values().flatten());
    let mut rejected: Vec<String> = set.errors().into_iter().map(|(line, why)| line + ": " + &why).collect();
    let main = set.outputs.into_iter().filter(|(output, _)| *output == Output::Main);
    let cast = testing::apply::<Cast>(cast, main.flat_map(|(_, batches)| batches));
    rejected.extend(cast.errors().into_iter().map(|(line, why)| line + ": " + &why));
    let main = cast.outputs.into_iter().filter(|(output, _)| *output == Output::Main);
    let encode = "{ format: json, sort: true }";
    let encoded = testing::apply::<EncodeConfig>(encode, main.flat_map(|(_, batches)| batches));
    rejected.sort();
    vec![encoded.payloads(Output::Main), rejected]
}

fn value() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "1",
        "2",
        "-7",
        "1.5",
        "2.0",
        "1e3",
        "-0",
        "0.1",
        "9007199254740993",
        "12345678901234567890",
        "1e300",
        "\"x\"",
        "\"5\"",
        "\"\\u0041\\n\"",
        "\"\"",
        "true",
        "false",
        "null",
        "{\"n\": 1}",
        "{\"n\": \"y\"}",
        "[1, 2.50]",
    ])
}

fn line() -> impl Strategy<Value = String> {
    let member =
        |name: &'static str| prop::option::of(value().prop_map(move |value| format!("\"{name}\": {value}")));
    (member("a"), member("b"), 0..9).prop_map(|(a, b, id)| {
        let id = Some(format!("\"id\": {id}"));
        format!("{{{}}}", [id, a, b].into_iter().flatten().collect::<Vec<_>>().join(", "))
    })
}

const SETS: [&str; 19] = [
    "{c: a + 1}",
    "{c: a / 2}",
    "{c: a + b}",
    "{c: CAST(a AS BIGINT) + abs(b)}",
    "{c: 'CAST(a AS BIGINT) > b'}",
    "{c: a > b}",
    "{c: 'a % b', d: b - a}",
    "{c: a}",
    "{c: 'coalesce(a, 1)'}",
    "{c: \"coalesce(a, b, 'none')\"}",
    "{c: \"a || 'x'\"}",
    "{c: a.n}",
    "{c: \"CASE WHEN a > 1 THEN a ELSE b END\"}",
    "{c: a = b}",
    "{c: a IS NOT NULL AND b IS NULL}",
    "{c: a BETWEEN b AND 7}",
    "{c: a IS DISTINCT FROM b}",
    "{c: 'upper(a)', d: abs(b)}",
    "{c: a * 2, d: c + 1, e: 'concat(c, d)'}",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(384))]
    #[test]
    fn a_message_looks_the_same_alone_and_among_others(
        lines in prop::collection::vec(line(), 1..8),
        set in prop::sample::select(SETS.to_vec()),
        cast in prop::sample::select(vec!["{}", "{b: text}", "{a: text, b: int}", "{a: json, b: json}"]),
        parse in prop::sample::select(vec!["{}", "nulls: keep"]),
    ) {
        let together = outputs(parse, set, cast, &[&lines]);
        let batches: Vec<&[String]> = lines.chunks(1).collect();
        // Each message has a parser of its own: what was learnt from one does not matter for the next.
        let mut alone = vec![Vec::new(), Vec::new()];
        for batch in batches {
            for (all, of_batch) in alone.iter_mut().zip(outputs(parse, set, cast, &[batch])) {
                all.extend(of_batch);
            }
        }
        alone[1].sort();
        prop_assert_eq!(&together, &alone);
        // And one after the other, through the same transforms.
        let one_by_one = outputs(parse, set, cast, &lines.chunks(1).collect::<Vec<_>>());
        prop_assert_eq!(&one_by_one, &alone);
    }
}

fn written(set: &str, lines: &[&str]) -> Vec<String> {
    let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
    outputs("{}", set, "{}", &[&lines]).swap_remove(0)
}

#[test]
fn whole_numbers_stay_whole_beside_others() {
    assert_eq!(
        written("{b: a / 2}", &[r#"{"a":1}"#, r#"{"a":1.5}"#]),
        [r#"{"a":1,"b":0}"#, r#"{"a":1.5,"b":0.75}"#]
    );
    assert_eq!(
        written("{b: a + 1}", &[r#"{"a":1}"#, r#"{"a":1.0}"#, r#"{"a":"5"}"#]),
        [r#"{"a":1,"b":2}"#, r#"{"a":1.0,"b":2.0}"#, r#"{"a":"5","b":6.0}"#]
    );
}

#[test]
fn arithmetic_on_a_text_is_an_error_of_its_message() {
    let lines = [r#"{"s":"x"}"#.to_owned(), r#"{"s":"4"}"#.to_owned()];
    let found = outputs("{}", "{b: s + 1}", "{}", &[&lines]);
    assert_eq!(found[0], [r#"{"b":5.0,"s":"4"}"#]);
    // Beside NULL it is not read, whether or not the other field is a number in another message.
    let lines = [r#"{"n":1,"s":"1"}"#, r#"{"n":null,"s":"x"}"#, r#"{"s":"y"}"#].map(str::to_owned);
    let beside = outputs("{}", "{b: s + n}", "{}", &[&lines]);
    assert_eq!(beside, outputs("{}", "{b: s + n}", "{}", &lines.chunks(1).collect::<Vec<_>>()));
    assert_eq!((beside[0].len(), beside[1].len()), (3, 0));
    assert_eq!(found[1], ["{\"s\":\"x\"}: `b` cannot be set: `s + 1` failed: `x` is not a number."]);
}

#[test]
fn explicit_nulls_are_kept_if_that_is_wanted() {
    let lines = [r#"{"a":null,"b":1}"#, r#"{"b":null}"#, r#"{"a":1.50,"b":2}"#, "{}"].map(str::to_owned);
    let cast = |parse, cast| outputs(parse, "{c: a IS NULL, d: b + 1}", cast, &[&lines]);
    assert_eq!(
        cast("nulls: keep", "{}")[0],
        [
            r#"{"a":null,"b":1,"c":true,"d":2}"#,
            r#"{"b":null,"c":true}"#,
            r#"{"a":1.5,"b":2,"c":false,"d":3}"#,
            r#"{"c":true}"#,
        ]
    );
    let typed = cast("nulls: keep", "{a: float, b: int}");
    assert_eq!(typed, cast("{}", "{a: float, b: int}"));
    assert_eq!(typed[1], [""; 0]);
}

#[test]
fn a_cast_to_json_is_the_value_as_it_is_written() {
    let lines = [r#"{"a":"x"}"#, r#"{"a":5}"#, r#"{"a":1.50}"#, r#"{"a":true}"#, r#"{"a":[1, 2]}"#];
    let lines = lines.map(str::to_owned);
    let together = outputs("{}", "{}", "{a: json}", &[&lines]);
    assert_eq!(together[0], [r#"{"a":5}"#, r#"{"a":1.5}"#, r#"{"a":true}"#, r#"{"a":[1, 2]}"#]);
    assert_eq!(together[1], [r#"{"a":"x"}: the field `a` is not JSON: `x`"#]);
    for (number, line) in lines.chunks(1).enumerate() {
        let alone = outputs("{}", "{}", "{a: json}", &[line]);
        assert_eq!(alone[0].as_slice(), if number == 0 { &[] } else { &together[0][number - 1..number] });
    }
    // A text that is JSON becomes that value, whatever is beside it.
    let lines = [r#"{"a":"[1]"}"#, r#"{"a":2}"#].map(str::to_owned);
    let both = outputs("{}", "{}", "{a: json}", &[&lines]);
    assert_eq!(both[0], [r#"{"a":[1]}"#, r#"{"a":2}"#]);
    assert_eq!(outputs("{}", "{}", "{a: json}", &[&lines[..1]])[0], both[0][..1]);
}
