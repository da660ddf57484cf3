//! The tests that are written in the repository, found in its source.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The repository.
pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the names of the tests of each crate. The name of a crate is that of its folder.
pub(super) fn tests_of_crates() -> BTreeMap<String, BTreeSet<String>> {
    let (crates, components) = (root().join("crates"), root().join("crates/components"));
    let folders = [crates, components].into_iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let folders = folders.map(|entry| entry.unwrap().path()).filter(|path| path.join("Cargo.toml").exists());
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    folders.map(|path| (name(&path), tests_below(&path))).collect()
}

fn tests_below(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            found.extend(tests_below(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let places = text.match_indices("fn ").filter(|(at, _)| is_test(&text[..*at]));
            let names = places.filter_map(|(at, start)| text[at + start.len()..].split_once('('));
            found.extend(names.map(|(name, _)| name.to_owned()));
        }
    }
    found
}

/// True if the text before a function ends with the attribute of a test.
fn is_test(before: &str) -> bool {
    let attributes = before.rsplit(['}', ';']).next().unwrap_or_default();
    attributes.contains("test]") || attributes.contains("::test(")
}
