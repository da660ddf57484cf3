//! Pausing sources of a run.

#![allow(clippy::unwrap_used, missing_docs)]

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use thalweg_config::Document;
use thalweg_engine::Handle;
use thalweg_job::{Configuration, JobRun, Observer, Overrides, RunOptions, registry};

/// Pauses the source `a` once a line of each source has arrived, and resumes it when a later line of the
/// other one has.
struct Pauses {
    folder: PathBuf,
    step: usize,
    /// The ticks that are left: the run must end.
    patience: usize,
}

impl Pauses {
    fn append(&self, file: &str, line: &str) {
        let mut file = OpenOptions::new().append(true).open(self.folder.join(file)).unwrap();
        writeln!(file, "{line}").unwrap();
    }
}

impl Observer for Pauses {
    fn tick(&mut self, handle: &Handle) {
        self.patience = self.patience.checked_sub(1).expect("the run ends in time");
        let out = fs::read_to_string(self.folder.join("out")).unwrap_or_default();
        let has = |lines: &[&str]| lines.iter().all(|line| out.lines().any(|other| other == *line));
        match self.step {
            0 if has(&["a1", "b1"]) => {
                handle.pause("a").unwrap();
                self.append("a", "a2");
                self.append("b", "b2");
            }
            1 if has(&["b2"]) => {
                assert!(!has(&["a2"]));
                handle.resume("a").unwrap();
            }
            2 if has(&["a2"]) => handle.stop(),
            _ => return,
        }
        self.step += 1;
    }
}

fn followed(folder: &Path, name: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, format!("{name}1\n")).unwrap();
    format!("{name}: {{ file: {{ path: {}, follow: true, poll_interval: 10ms }} }}", path.display())
}

/// A source that reads little at a time had its memory before the pause, and read on with it.
#[test]
fn a_followed_file_with_few_lines_is_paused_and_read_on_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let text = format!(
        "sources: {{ {}, {} }}\npipelines: {{ main: {{ from: [a, b], to: out }} }}\n\
         sinks: {{ out: {{ file: {{ path: {}, atomic: false }} }} }}\n",
        followed(path, "a"),
        followed(path, "b"),
        path.join("out").display()
    );
    let document = Document::parse("pausing.yaml", &text).unwrap();
    let configuration = Configuration::new(document, &path.join("pausing.yaml"));
    let job = configuration.job(&registry(), &Overrides::default()).unwrap();
    let mut observer = Pauses { folder: path.to_owned(), step: 0, patience: 1_200 };
    let options = RunOptions { cores: 2, ..RunOptions::default() };
    let outcome = JobRun::prepare(job, options, &mut observer).unwrap().run(&mut observer).unwrap();
    assert_eq!((outcome.failure(), outcome.is_stopped(), observer.step), (None, true, 3));
    let out = fs::read_to_string(path.join("out")).unwrap();
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["a1", "a2", "b1", "b2"]);
}
