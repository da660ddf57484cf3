//! Messages that are split at delimiters.

use std::sync::LazyLock;

use thalweg_transforms::split_array::SplitArray;
use thalweg_transforms::split_fields::SplitFields;
use thalweg_transforms::split_pick::SplitPick;
use thalweg_transforms::trim_to_bounds::TrimToBounds;

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;
use crate::messages::{Chain, Leaves, check, transform};

pub(super) const TARGET: Target = Target {
    name: "split_fields",
    components: &["split_array", "split_fields", "split_pick", "trim_to_bounds"],
    longest: 16 << 10,
    words: &[",", "::", "[", "]"],
    run,
};

static CHAINS: LazyLock<Vec<Chain>> = LazyLock::new(|| {
    vec![
        transform::<SplitArray>("{ into: parts }"),
        transform::<SplitFields>("{ delimiter: ',', fields: [a, b] }"),
        transform::<SplitFields>("{ delimiter: '::', fields: [a, b, c] }"),
        transform::<SplitPick>("{ delimiter: ',', index: 1 }"),
        transform::<TrimToBounds>("{ left: '[', right: ']' }"),
    ]
});

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let chain = &CHAINS[input.choice(CHAINS.len())];
    bounded((4 << 20) + 200 * bytes.len(), || check(chain, &input.lines(), Leaves::OneAlone));
}
