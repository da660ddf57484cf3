//! The journal of a cache entry. Its checksums are right, or no mutation would get past them.

use std::io::Write;

use thalweg_sparse::fuzzing::{header, journal};

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;

pub(super) const TARGET: Target =
    Target { name: "cache_journal", components: &[], longest: 4 << 10, words: &["thalweg1"], run };

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    match input.choice(2) {
        0 => drop(bounded((1 << 20) + 8 * bytes.len(), || header(input.0))),
        _ => {
            let mut file = tempfile::tempfile().expect("a temporary file");
            file.write_all(input.0).expect("it is written");
            bounded((2 << 20) + 8 * bytes.len(), || journal(&file)).expect("the file can be read");
        }
    }
}
