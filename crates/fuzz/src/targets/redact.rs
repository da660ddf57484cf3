//! Texts with personal data: candidates, check digits and neighbours.

use std::sync::LazyLock;

use thalweg_transforms::hash_text::HashText;
use thalweg_transforms::redact::Redact;

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;
use crate::messages::{Chain, Leaves, check, transform};

pub(super) const TARGET: Target = Target {
    name: "redact",
    components: &["redact", "hash_text"],
    longest: 8 << 10,
    words: &[
        "@",
        ".",
        "a@b.c",
        "4111-1111-1111-1111",
        " ",
        "::1",
        "10.0.0.1",
        "DE89 3704 0044 0532 0130 00",
        "é",
    ],
    run,
};

static CHAINS: LazyLock<Vec<Chain>> = LazyLock::new(|| {
    vec![
        transform::<Redact>("{ find: [email, card, ip, iban], keep_last: 4 }"),
        transform::<Redact>("{ find: [iban, ip], pattern: ['a*', '[0-9]+$'], secret: long enough }"),
        transform::<HashText>("{ digits: 3 }"),
    ]
});

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let chain = &CHAINS[input.choice(CHAINS.len())];
    bounded((16 << 20) + 300 * bytes.len(), || check(chain, &input.lines(), Leaves::One));
}
