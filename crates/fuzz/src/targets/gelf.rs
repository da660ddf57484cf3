//! GELF: datagrams that are chunks or compressed, and messages.

use std::sync::LazyLock;

use thalweg_config::ByteSize;
use thalweg_net::net::joined;
use thalweg_record::Budget;
use thalweg_transforms::parse_gelf::ParseGelf;

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;
use crate::messages::{Chain, Leaves, check, transform};

pub(super) const TARGET: Target = Target {
    name: "gelf",
    components: &["parse_gelf"],
    longest: 16 << 10,
    words: &[
        "{\"version\":\"1.1\",\"host\":\"h\",\"short_message\":\"s\"",
        ",\"_a\":1",
        ",\"level\":1",
        ",\"timestamp\":1385053862.3072",
        "\n\u{1e}\u{f}abcdefgh",
        "\u{0}\u{2}",
        "\u{1}\u{2}",
    ],
    run,
};

static CHAINS: LazyLock<Vec<Chain>> = LazyLock::new(|| {
    vec![
        transform::<ParseGelf>("{}"),
        transform::<ParseGelf>("{ strict: false, keep_underscores: true, max_fields: 20 }"),
    ]
});

/// The maximum size of a message, in bytes.
const LIMIT: u64 = 64 << 10;

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let chain = &CHAINS[input.choice(CHAINS.len())];
    let datagrams = input.lines();
    let (messages, lost) =
        bounded((4 << 20) + 400 * bytes.len(), || joined(&datagrams, ByteSize(LIMIT), &Budget::new(1 << 20)));
    assert!(messages.len() + lost <= datagrams.len(), "more messages than datagrams");
    assert!(messages.iter().all(|message| message.len() as u64 <= LIMIT.max(bytes.len() as u64)));
    let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
    let size: usize = messages.iter().map(|message| message.len()).sum();
    if !messages.is_empty() {
        bounded((8 << 20) + 600 * size, || check(chain, &messages, Leaves::One));
    }
}
