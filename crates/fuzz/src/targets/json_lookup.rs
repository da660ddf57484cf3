//! Lookups in JSON by path: `json_get(payload, 'a.b[0]')`. The model is `serde_json`.

use std::cell::RefCell;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use serde_json::Value;
use thalweg_codec::testing::with_text;
use thalweg_expression::{Evaluator, Expression};

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "json_lookup",
    components: &[],
    longest: 64 << 10,
    words: &["{\"a\":", "[0]", "[\"a\"]", "}", "[[", "]]", "null", "\\u0061", "1e400", ".b"],
    run,
};

/// The expressions, the first of which returns the text of the value.
const LOOKUPS: [&str; 5] = [
    "json_extract(payload, path)",
    "json_get(payload, path)",
    "json_get_int(payload, path)",
    "json_get_float(payload, path)",
    "json_get_bool(payload, path)",
];

/// The depth up to which a document is searched.
const DEEPEST: usize = 127;

thread_local! {
    static EVALUATORS: RefCell<Vec<Evaluator>> = const { RefCell::new(Vec::new()) };
}

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let path = input.text_line();
    let json = input.text();
    EVALUATORS.with_borrow_mut(|evaluators| {
        if evaluators.is_empty() {
            let made = LOOKUPS.map(|sql| Evaluator::new(Expression::parse(sql).expect("a lookup")));
            evaluators.extend(made);
        }
        let batch = with_text(&[json], &[("path", &[Some(&path)])]);
        for evaluator in evaluators.iter_mut() {
            let evaluated = bounded((8 << 20) + 20 * bytes.len(), || evaluator.evaluate(&batch));
            assert_eq!(evaluated.values.len(), 1);
            if evaluator.expression().sql() == LOOKUPS[0] {
                let cast = evaluated.values.as_string_view();
                compare(json, &path, cast.is_valid(0).then(|| cast.value(0)));
            }
        }
    });
}

/// Compares the value at the path with the model, which knows valid JSON without repeated keys, and simple
/// paths.
fn compare(json: &str, path: &str, found: Option<&str>) {
    let Ok(document) = serde_json::from_str::<Value>(json) else { return };
    // A repeated key or a number beyond the model's makes another text.
    if document.to_string().len() != json.bytes().filter(|byte| !b" \t\r\n".contains(byte)).count() {
        return;
    }
    if found.is_some_and(|found| serde_json::from_str::<Value>(found).is_err()) {
        panic!("{found:?} in {json:?} is not JSON");
    }
    if path.is_empty()
        || !path.split('.').all(|key| !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric()))
    {
        return;
    }
    let expected = path.split('.').try_fold(&document, |at, key| at.as_object()?.get(key));
    let expected = expected.filter(|value| !value.is_null() && depth(json) <= DEEPEST);
    let found = found.map(|found| serde_json::from_str::<Value>(found).unwrap_or_default());
    if depth(json) <= DEEPEST {
        assert_eq!(found.as_ref(), expected, "`{path}` in {json:?}");
    }
}

/// Returns an upper bound of the depth of JSON text.
fn depth(text: &str) -> usize {
    text.bytes().filter(|byte| matches!(byte, b'{' | b'[')).count()
}
