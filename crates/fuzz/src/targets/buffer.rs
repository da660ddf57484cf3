//! Recovery of a segment of a buffer that a killed process left behind: what is not a whole block at its end
//! is cut off, and nothing before it. Blocks may have right checksums, because no mutation would find one.

use tempfile::TempDir;
use thalweg_engine::segments::fuzzing::recover;

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;

pub(super) const TARGET: Target =
    Target { name: "buffer", components: &[], longest: 16 << 10, words: &["\n#", "SBLK"], run };

thread_local! {
    static FOLDER: TempDir = tempfile::tempdir().expect("a temporary folder");
}

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let cut = input.choice(64);
    FOLDER.with(|folder| {
        let recovered = bounded((4 << 20) + 40 * bytes.len(), || recover(folder.path(), input.0, cut));
        recovered.expect("the file can be read");
    });
}
