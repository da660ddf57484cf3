//! The names and values of a form without files, and percent-encoding.

use thalweg_net::upload::{pairs, percent_decoded};

use crate::Target;
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "form",
    components: &[],
    longest: 16 << 10,
    words: &["&", "=", "%", "%20", "+", "%c3%bc", "%00"],
    run,
};

fn run(bytes: &[u8]) {
    // A pair is two `String`s, in a list that grows by doubling.
    let found = bounded((1 << 20) + 200 * bytes.len(), || pairs(bytes));
    let count = bytes.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()).count();
    assert_eq!(found.len(), count);
    assert!(percent_decoded(bytes).len() <= bytes.len());
    let encoded: String = bytes.iter().map(|byte| format!("%{byte:02x}")).collect();
    assert_eq!(percent_decoded(encoded.as_bytes()), bytes);
}
