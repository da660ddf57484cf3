//! Segments of spools and buffers, and the Arrow streams in their blocks. Checksums are right, because no
//! mutation would find one: another program that can write to the folder can compute them.

use arrow_array::Array;
use tempfile::TempDir;
use thalweg_engine::segments::fuzzing::{decode, segment};
use thalweg_engine::segments::to_bytes;

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "spool",
    components: &["spool"],
    longest: 16 << 10,
    words: &["ARROW1", "\u{ff}\u{ff}\u{ff}\u{ff}", "thalweg.positions", "payload"],
    run,
};

thread_local! {
    static FOLDER: TempDir = tempfile::tempdir().expect("a temporary folder");
}

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    match input.choice(3) {
        0 => {
            let result = bounded((4 << 20) + 40 * bytes.len(), || decode(input.0));
            if let Ok(messages) = result {
                assert!(messages.iter().all(|reading| reading.payload.null_count() == 0));
            }
        }
        1 => {
            FOLDER.with(|folder| {
                let read = || segment(folder.path(), input.0);
                bounded((4 << 20) + 40 * bytes.len(), read).expect("the file can be read");
            });
        }
        _ => reads_back(&input.lines()),
    }
}

/// Messages that are written read back as they were.
fn reads_back(lines: &[&[u8]]) {
    let batch = thalweg_record::testing::batch(lines);
    let block = to_bytes(&batch).expect("messages are written");
    let found = decode(&block).expect("messages are read back");
    let found: Vec<&[u8]> = found.iter().flat_map(|reading| reading.payload.iter().flatten()).collect();
    assert_eq!(found, lines);
}
