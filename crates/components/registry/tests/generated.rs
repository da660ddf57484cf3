//! The generated files are those that the code generates.

use std::collections::BTreeSet;
use std::path::Path;

use thalweg_components::{reference, registry};

#[test]
fn the_reference_pages_are_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let pages = reference::pages(&registry());
    let stale: Vec<&String> = pages
        .iter()
        .filter(|(path, text)| std::fs::read_to_string(root.join(path)).ok().as_ref() != Some(text))
        .map(|(path, _)| path)
        .collect();
    assert_eq!(stale, Vec::<&String>::new(), "run `make generate`");
    let known: BTreeSet<_> = pages.keys().map(|path| root.join(path)).collect();
    for role in ["sources", "transforms", "sinks"] {
        for page in std::fs::read_dir(root.join(reference::FOLDER).join(role)).unwrap() {
            let page = page.unwrap().path();
            assert!(
                known.contains(&page),
                "{} is the page of no component: run `make generate`",
                page.display()
            );
        }
    }
}
