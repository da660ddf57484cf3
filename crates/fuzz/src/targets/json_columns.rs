//! JSON objects as columns. The model of the grammar is `serde_json`.

use std::sync::LazyLock;

use serde_json::Value;
use thalweg_engine::Output;
use thalweg_transforms::flatten::Flatten;
use thalweg_transforms::parse_json::ParseJsonConfig;

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;
use crate::messages::{Chain, Leaves, check, transform};

pub(super) const TARGET: Target = Target {
    name: "json_columns",
    components: &["parse_json", "flatten"],
    longest: 32 << 10,
    words: &[
        "{\"a\":",
        "[[",
        "]",
        "}",
        "null",
        "true",
        "1e999",
        "-0.0",
        "\"\\u00e9\"",
        "\"\\ud83d\\ude00\"",
        ",\"b\":",
    ],
    run,
};

static CHAINS: LazyLock<Vec<Chain>> = LazyLock::new(|| {
    vec![
        transform::<ParseJsonConfig>("{}"),
        transform::<ParseJsonConfig>("{ flatten: true, prefix: p. }"),
        transform::<ParseJsonConfig>("{ types: { a: int, b: text, c: float, d: bool, e: timestamp } }"),
        transform::<ParseJsonConfig>("{ fields: [a, b], max_fields: 2 }"),
        transform::<ParseJsonConfig>("{}").then::<Flatten>("{ separator: _ }"),
    ]
});

/// The depth up to which a record is accepted, and the number of fields: see `parse_json`.
const DEEPEST: usize = 127;
const MAX_FIELDS: usize = 1024;

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let choice = input.choice(CHAINS.len());
    let lines = input.lines();
    let given = bounded((16 << 20) + 300 * bytes.len(), || check(&CHAINS[choice], &lines, Leaves::One));
    if choice == 0 && bytes.iter().filter(|byte| **byte == b':').count() < MAX_FIELDS {
        let accepted = given.get(&Output::Main).map_or(0, Vec::len);
        let objects = lines.iter().filter(|line| is_object(line)).count();
        assert_eq!(accepted, objects, "the number of messages that are JSON objects");
    }
}

fn is_object(line: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(line) else { return false };
    let object = text.trim_start_matches([' ', '\t', '\r', '\n']);
    object.starts_with('{') && depth(text) <= DEEPEST && serde_json::from_str::<Value>(object).is_ok()
}

/// Returns the depth of JSON text.
fn depth(text: &str) -> usize {
    let (mut deepest, mut depth, mut is_text, mut is_escaped) = (0, 0usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b'{' | b'[' if !is_text => depth += 1,
            b'}' | b']' if !is_text => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}
