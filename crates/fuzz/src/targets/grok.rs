//! Messages that patterns take apart: grok and regular expressions.

use std::sync::LazyLock;

use thalweg_transforms::extract::Extract;
use thalweg_transforms::parse_grok::ParseGrok;
use thalweg_transforms::parse_regex::ParseRegex;

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;
use crate::messages::{Chain, Leaves, check, transform};

pub(super) const TARGET: Target = Target {
    name: "grok",
    components: &["parse_grok", "parse_regex", "extract"],
    longest: 1 << 10,
    words: &["127.0.0.1", "::1", "[10/Oct/2000:13:55:36 -0700]", "\"GET / HTTP/1.0\"", "1e9", "/a/b?c=d"],
    run,
};

static CHAINS: LazyLock<Vec<Chain>> = LazyLock::new(|| {
    vec![
        transform::<ParseGrok>("{ pattern: ['%{COMMONAPACHELOG}'] }").kept(),
        transform::<ParseGrok>("{ pattern: ['^%{IP:ip} %{NUMBER:n:int} %{NUMBER:f:float}', '%{URI:uri}'] }")
            .kept(),
        transform::<ParseGrok>("{ pattern: ['%{QUOTEDSTRING:text} %{PATH:path}'], keep_empty: true }").kept(),
        transform::<ParseRegex>("{ pattern: '(?<word>\\w+)(?: (?<number>\\d+))?' }").kept(),
        transform::<Extract>("{ pattern: '(\\d+)[^,]*,', into: digits }").kept(),
    ]
});

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let chain = &CHAINS[input.choice(CHAINS.len())];
    bounded(64 << 20, || check(chain, &input.lines(), Leaves::OneAlone));
}
