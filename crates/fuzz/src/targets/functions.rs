//! Values of messages in all functions of expressions: lengths and counts that a message gives must not
//! decide how much memory is taken.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::LazyLock;

use arrow_array::Array;
use thalweg_codec::testing::with_text;
use thalweg_expression::{Evaluator, Expression, functions};

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "functions",
    components: &[],
    longest: 1 << 10,
    words: &[
        "9223372036854775807",
        "-9223372036854775808",
        "1e308",
        "NaN",
        "2024-02-30",
        "%Y",
        "\\",
        "(a+)+$",
        "inf",
    ],
    run,
};

/// The names of all functions.
static NAMES: LazyLock<Vec<&str>> =
    LazyLock::new(|| functions().iter().map(|function| function.name).collect());

/// How arguments are written: as texts, numbers, or a literal.
const ARGUMENTS: [&str; 8] = [
    "a",
    "b",
    "c",
    "CAST(a AS BIGINT)",
    "CAST(b AS BIGINT)",
    "CAST(c AS DOUBLE)",
    "CAST(a AS TIMESTAMP)",
    "'day'",
];

/// The most arguments.
const MOST: usize = 4;

thread_local! {
    static EVALUATORS: RefCell<HashMap<String, Option<Evaluator>>> = RefCell::default();
}

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let name = &NAMES[(input.choice(256) * 256 + input.choice(256)) % NAMES.len()];
    let count = input.choice(MOST + 1);
    let arguments: Vec<&str> = (0..count).map(|_| ARGUMENTS[input.choice(ARGUMENTS.len())]).collect();
    let sql = format!("{name}({})", arguments.join(", "));
    let [a, b] = [input.text_line(), input.text_line()];
    let batch =
        with_text(&["message"], &[("a", &[Some(&a)]), ("b", &[Some(&b)]), ("c", &[Some(input.text())])]);
    EVALUATORS.with_borrow_mut(|evaluators| {
        if evaluators.len() > 1000 {
            evaluators.clear();
        }
        let evaluator = evaluators
            .entry(sql)
            .or_insert_with_key(|sql| Some(Evaluator::new(Expression::parse(sql).ok()?)));
        let Some(evaluator) = evaluator else { return };
        // A result has at most 16 MiB, and is held once more while it grows.
        let evaluated = bounded(96 << 20, || evaluator.evaluate(&batch));
        assert_eq!(evaluated.values.len(), 1);
    });
}
