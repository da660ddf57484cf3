//! Texts in base64, and run lengths: small codecs of one message.

use std::sync::LazyLock;

use thalweg_transforms::decode_base64::DecodeBase64;
use thalweg_transforms::runlength::Runlength;

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;
use crate::messages::{Chain, Leaves, check, transform};

pub(super) const TARGET: Target = Target {
    name: "base64",
    components: &["decode_base64", "runlength"],
    longest: 4 << 10,
    words: &["=", "==", "-_", "+/"],
    run,
};

static CHAINS: LazyLock<Vec<Chain>> =
    LazyLock::new(|| vec![transform::<DecodeBase64>("{}"), transform::<Runlength>("{}")]);

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let chain = &CHAINS[input.choice(CHAINS.len())];
    bounded(4 << 20, || check(chain, &input.lines(), Leaves::OneAlone));
}
