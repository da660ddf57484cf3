//! The drafts that a killed run leaves in the folder of its output.

use std::fs;
use std::path::Path;

use crate::common::{House, said};

/// A configuration that writes large files in parts.
fn configuration(transforms: &str, sink: &str) -> String {
    format!(
        "
sources: {{ in: {{ files: {{ path: 'in/**' }} }} }}
pipelines: {{ main: {{ from: in, transforms: [{transforms}], to: out }} }}
sinks: {{ out: {{ {sink} }} }}
"
    )
}

const UPLOAD: &str = "upload: { url: out/, part_size: 1MiB }";

/// The names in a folder, hidden ones included.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Runs a configuration on one large file, kills the run after some parts, calls `change` with the folder of
/// the input, and runs the configuration again. Returns the names in the folder of the output.
fn killed(configuration: &str, options: &[&str], change: impl Fn(&Path)) -> Vec<String> {
    let house = House::with(&[("c.yaml", configuration)]);
    let input = house.path().join("in");
    fs::create_dir(&input).unwrap();
    let line = format!("{}\n", "x".repeat(1023));
    house.write("in/a", line.repeat(8 << 10).as_bytes());
    let arguments = [&["run", "c.yaml"], options].concat();
    let mut first = house.command(&arguments);
    let first = said(first.env("THALWEG_FAILPOINTS", "part.after=kill@2").output().unwrap());
    assert_eq!(first.code, None, "{}", first.err);
    change(&input);
    house.run_well(&arguments);
    names(&house.path().join("out"))
}

#[test]
fn a_killed_run_leaves_no_draft_of_a_file_that_is_gone_or_has_another_name() {
    let uploads = configuration(UPLOAD, "discard: {}");
    let objects = configuration("", "objects: { url: out/, part_size: 1MiB }");
    let renamed = |input: &Path| fs::rename(input.join("a"), input.join("b")).unwrap();
    let removed = |input: &Path| fs::remove_file(input.join("a")).unwrap();
    for configuration in [uploads, objects] {
        for options in [&[][..], &["--state", "state"]] {
            assert_eq!(killed(&configuration, options, renamed), ["b"], "{options:?} {configuration}");
            assert_eq!(killed(&configuration, options, removed), [""; 0], "{options:?} {configuration}");
            assert_eq!(killed(&configuration, options, |_| ()), ["a"], "{options:?} {configuration}");
        }
    }
}

#[test]
fn a_killed_run_without_a_state_leaves_no_draft_of_an_object_of_messages() {
    let lines = configuration("lines", "objects: { url: out/all.txt, part_size: 1MiB }");
    assert_eq!(killed(&lines, &[], |_| ()), ["all.txt"]);
}
