//! The files `owner` and `inventory` of a state directory. The checksum of an inventory is right, because no
//! mutation would find one.

use std::fs;

use tempfile::TempDir;
use thalweg_engine::fuzzing::open_files;

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "state_files",
    components: &[],
    longest: 8 << 10,
    words: &[
        "\"closed\":true",
        "\"keyspaces\":{\"0\":{\"version\":1,\"current\":2,\"content\":3}}",
        "\"files\":{\"0.jnl\":{\"length\":1,\"hash\":2}}",
        "\"tables\":{}",
        "18446744073709551615",
    ],
    run,
};

thread_local! {
    static FOLDER: TempDir = tempfile::tempdir().expect("a temporary folder");
}

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let is_closed = input.choice(2) == 1;
    let owner = input.line();
    FOLDER.with(|folder| {
        let journal = folder.path().join("0.jnl");
        fs::write(&journal, "records").expect("it is written");
        let opened =
            bounded((2 << 20) + 40 * bytes.len(), || open_files(folder.path(), owner, input.0, is_closed));
        if let Err(error) = opened {
            assert!(!error.to_string().chars().any(char::is_control), "{error:?}");
        }
    });
}
