//! Writes everything that is derived from the registry: the reference pages and the JSON schema of
//! configurations.
//!
//! `make generate` runs it; a test of this crate compares the files with what it would write. The description
//! of all components goes to the standard output, from which `python/generate.py` writes the functions of the
//! Python package. With `--json` no file is written.

use std::path::Path;
use std::{fs, io};

use serde_json::Value;
use thalweg_components::{reference, registry};
use thalweg_engine::Definition;

/// The page that `thalweg reference` prints.
const COMMANDS: &str = "commands.md";

fn main() -> io::Result<()> {
    if std::env::args().all(|argument| argument != "--json") {
        write()?;
    }
    println!("{}", Value::from(registry().iter().map(Definition::to_json).collect::<Vec<_>>()));
    Ok(())
}

fn write() -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let pages = reference::pages(&registry());
    let folder = root.join(reference::FOLDER);
    // The program writes the page of its commands.
    let commands = fs::read(folder.join(COMMANDS)).ok();
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    if let Some(commands) = commands {
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(COMMANDS), commands)?;
    }
    for (path, text) in pages {
        let path = root.join(path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, text)?;
    }
    Ok(())
}
