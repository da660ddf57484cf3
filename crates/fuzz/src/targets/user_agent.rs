//! User agents of browsers.

use std::sync::LazyLock;

use thalweg_transforms::parse_user_agent::ParseUserAgent;

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;
use crate::messages::{Chain, Leaves, check, transform};

pub(super) const TARGET: Target = Target {
    name: "user_agent",
    components: &["parse_user_agent"],
    longest: 4 << 10,
    words: &["Mozilla/5.0 (", "; rv:", "Chrome/", "Safari/", "Version/", "compatible; ", "bot", "Android "],
    run,
};

static CHAIN: LazyLock<Chain> = LazyLock::new(|| transform::<ParseUserAgent>("{}").kept());

fn run(bytes: &[u8]) {
    LazyLock::force(&CHAIN);
    // The library compiles its expressions at the first call.
    bounded(64 << 20, || check(&CHAIN, &Input(bytes).lines(), Leaves::OneAlone));
}
