//! Messages in logfmt: `level=info text="two words"`.

use std::sync::LazyLock;

use thalweg_transforms::parse_logfmt::ParseLogfmt;

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;
use crate::messages::{Chain, Leaves, check, transform};

pub(super) const TARGET: Target = Target {
    name: "logfmt",
    components: &["parse_logfmt"],
    longest: 32 << 10,
    words: &["a=", "=\"", "\\\"", "\\u0041", "\\n", " b=1", "=true", "="],
    run,
};

static CHAINS: LazyLock<Vec<Chain>> = LazyLock::new(|| {
    vec![transform::<ParseLogfmt>("{}"), transform::<ParseLogfmt>("{ max_fields: 20, types: { n: int } }")]
});

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let chain = &CHAINS[input.choice(CHAINS.len())];
    bounded((8 << 20) + 300 * bytes.len(), || check(chain, &input.lines(), Leaves::One));
}
