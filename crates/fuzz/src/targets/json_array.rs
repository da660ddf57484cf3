//! The elements of a JSON array, as messages. The model is `serde_json`.

use std::sync::LazyLock;

use serde_json::Value;
use thalweg_codec::json_columns::elements;
use thalweg_transforms::split::Split;

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;
use crate::messages::{Chain, Leaves, check, transform};

pub(super) const TARGET: Target = Target {
    name: "json_array",
    components: &["split"],
    longest: 64 << 10,
    words: &["[", "]", ",", "{\"a\":", "}", "\"", "\\u0061", "null", "1e9"],
    run,
};

static CHAIN: LazyLock<Chain> = LazyLock::new(|| transform::<Split>("{ json_array: true }"));

/// The depth up to which an array is accepted.
const DEEPEST: usize = 127;

fn run(bytes: &[u8]) {
    bounded((8 << 20) + 200 * bytes.len(), || check(&CHAIN, &[bytes], Leaves::Any));
    let text = Input(bytes).text();
    let mut found = Vec::new();
    let mut scratch = String::new();
    let result = elements(text, |element| {
        found.push(match element.plain() {
            Some(range) => text[range].to_owned(),
            None => element.decode(text.as_bytes(), &mut scratch).to_owned(),
        });
    });
    match serde_json::from_str::<Vec<Value>>(text) {
        Ok(expected) if result.is_ok() => assert_eq!(found.len(), expected.len(), "the elements of {text:?}"),
        Ok(_) => assert!(depth(text) > DEEPEST, "{text:?}: {result:?}"),
        // The model limits depth and recursion in its own way.
        Err(error) => {
            assert!(result.is_err() || error.to_string().contains("recursion"), "{text:?}: {error}")
        }
    }
    compare_values(text, &found);
}

/// The elements of an array of simple values are those of the model.
fn compare_values(text: &str, found: &[String]) {
    let Ok(values) = serde_json::from_str::<Vec<Value>>(text) else { return };
    for (value, found) in values.iter().zip(found) {
        match value {
            Value::String(expected) => assert_eq!(expected, found),
            Value::Null | Value::Bool(_) => assert_eq!(&value.to_string(), found),
            _ => {}
        }
    }
}

/// Returns an upper bound of the depth of JSON text.
fn depth(text: &str) -> usize {
    text.bytes().filter(|byte| matches!(byte, b'{' | b'[')).count()
}
