//! Texts of SQL expressions, evaluated for messages.

use arrow_array::Array;
use thalweg_codec::testing::with_text;
use thalweg_expression::{Evaluator, Expression};

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "expression",
    components: &["filter", "route", "set"],
    longest: 1 << 10,
    words: &[
        " AND ",
        " OR ",
        "NOT ",
        "CASE WHEN ",
        " THEN ",
        " ELSE ",
        " END",
        "CAST(",
        " AS BIGINT)",
        " LIKE '%a%'",
        " IN (",
        " BETWEEN ",
        " IS NULL",
        "payload",
        "a.b",
        "a[0]",
        "::",
        "||",
        "INTERVAL '1 day'",
        "1e308",
        "regexp_like(",
        "(((",
    ],
    run,
};

fn run(bytes: &[u8]) {
    let sql = Input(bytes).text();
    let parsed = bounded(64 << 20, || Expression::parse(sql));
    let Ok(expression) = parsed else { return };
    assert_eq!(expression.sql(), sql);
    let batch = with_text(
        &["a=1", "", "{\"a\": [1, {\"b\": null}]}"],
        &[("a", &[Some("{\"b\": 1.5}"), None, Some("x")]), ("n", &[Some("7"), Some("-1"), Some("1e3")])],
    );
    let mut evaluator = Evaluator::new(expression.clone());
    let evaluated = bounded(256 << 20, || evaluator.evaluate(&batch));
    assert_eq!(evaluated.values.len(), batch.rows());
    let mut evaluator = Evaluator::new(expression);
    let condition = bounded(256 << 20, || evaluator.condition(&batch));
    assert_eq!(condition.values.len(), batch.rows());
}
