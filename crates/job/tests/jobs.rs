//! Jobs of any dialect: loading, phases, state directories.

#![allow(clippy::unwrap_used, missing_docs)]

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use thalweg_config::{Comments, Diagnostics, Document};
use thalweg_dialects::{Converted, ConvertedPhase, Dialect, Environment, Selection};
use thalweg_engine::Handle;
use thalweg_job::{
    Configuration, Control, Job, JobOutcome, JobRun, LoadError, Observer, Outcome, Overrides, Phase,
    RunOptions, registry,
};

/// A dialect of one list: `copies: [from, to, from, to]`, where each pair is a phase.
struct Copies;

impl Dialect for Copies {
    fn name(&self) -> &'static str {
        "copies"
    }

    fn recognises(&self, document: &Document) -> bool {
        document.root().get("copies").is_some()
    }

    fn read(
        &self,
        document: &Document,
        _: Environment<'_>,
        _: Selection<'_>,
    ) -> Result<Converted, Diagnostics> {
        let list = document.root().get("copies").map(|list| list.items()).unwrap_or_default();
        let files: Vec<&str> = list.iter().filter_map(|item| item.as_str()).collect();
        let phases = files.chunks(2).map(|pair| ConvertedPhase {
            document: copy(pair[0], pair[1]),
            comments: Comments::default(),
            processor: Some("all".to_owned()),
            operations: None,
        });
        Ok(Converted { phases: phases.collect(), remarks: document.diagnostics() })
    }
}

/// A configuration that copies the lines of a file.
fn copy(from: &str, to: &str) -> Document {
    let text = format!(
        "sources: {{ in: {{ file: {{ path: {from} }} }} }}\n\
         pipelines: {{ main: {{ from: in, to: out }} }}\n\
         sinks: {{ out: {{ file: {{ path: {to} }} }} }}\n"
    );
    Document::parse("copy", &text).unwrap()
}

fn configuration(folder: &Path, files: [&str; 6]) -> Configuration {
    let files = files.map(|name| folder.join(name).display().to_string());
    let document = Document::parse("copies.yaml", &format!("copies: [{}]\n", files.join(", "))).unwrap();
    Configuration::in_one_of(&[&Copies], document, &folder.join("copies.yaml"))
}

fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), "one\ntwo\n").unwrap();
    folder
}

fn run(job: Job, observer: &mut dyn Observer) -> JobOutcome {
    let options = RunOptions { cores: 1, ..RunOptions::default() };
    JobRun::prepare(job, options, observer).unwrap().run(observer).unwrap()
}

/// Prints nothing.
struct Silent;

impl Observer for Silent {}

#[test]
fn a_new_dialect_is_one_entry_in_the_list() {
    let folder = folder();
    let configuration = configuration(folder.path(), ["a", "b", "b", "c", "c", "d"]);
    assert_eq!(configuration.dialect().name(), "copies");
    let job = configuration.job(&registry(), &Overrides::default()).unwrap();
    assert_eq!(job.phases.len(), 3);
    let outcome = run(job, &mut Silent);
    assert_eq!((outcome.phases.len(), outcome.failure(), outcome.is_stopped()), (3, None, false));
    assert_eq!(fs::read_to_string(folder.path().join("d")).unwrap(), "one\ntwo\n");
    let json = outcome.json();
    assert_eq!(json["components"].as_array().unwrap().len(), 6);
    assert_eq!((&json["messages"], &json["bytes"]), (&6.into(), &18.into()));
    assert_eq!((&json["errors"], &json["failure"]), (&0.into(), &serde_json::Value::Null));
}

#[test]
fn phases_stop_at_the_first_failure() {
    let folder = folder();
    // A file cannot be written below a file.
    let configuration = configuration(folder.path(), ["a", "b", "a", "b/c", "a", "d"]);
    let outcome = run(configuration.job(&registry(), &Overrides::default()).unwrap(), &mut Silent);
    assert_eq!(outcome.phases.len(), 2);
    assert!(outcome.failure().unwrap().contains("`out`"), "{:?}", outcome.failure());
    assert!(folder.path().join("b").exists() && !folder.path().join("d").exists());
}

#[test]
fn a_job_that_is_stopped_begins_no_other_phase() {
    /// Stops the first phase.
    struct Stops;

    impl Observer for Stops {
        fn begin(&mut self, _: &Phase, handle: &Handle) -> Result<(), LoadError> {
            handle.stop();
            Ok(())
        }
    }

    let folder = folder();
    let configuration = configuration(folder.path(), ["a", "b", "a", "c", "a", "d"]);
    let outcome = run(configuration.job(&registry(), &Overrides::default()).unwrap(), &mut Stops);
    assert_eq!((outcome.phases.len(), outcome.is_stopped()), (1, true));
    assert!(!folder.path().join("c").exists());
}

#[test]
fn a_job_that_is_stopped_between_two_phases_begins_no_other_phase() {
    /// Stops the job when its first phase has ended.
    struct Stops(Option<Control>);

    impl Observer for Stops {
        fn end(&mut self, _: &Phase, _: &Outcome) {
            self.0.iter().for_each(Control::stop);
        }
    }

    let folder = folder();
    let configuration = configuration(folder.path(), ["a", "b", "a", "c", "a", "d"]);
    let job = configuration.job(&registry(), &Overrides::default()).unwrap();
    let mut observer = Stops(None);
    let run = JobRun::prepare(job, RunOptions { cores: 1, ..RunOptions::default() }, &mut observer).unwrap();
    observer.0 = Some(run.control());
    let outcome = run.run(&mut observer).unwrap();
    assert_eq!((outcome.phases.len(), outcome.is_stopped()), (1, true));
    assert!(folder.path().join("b").exists() && !folder.path().join("c").exists());
}

#[test]
fn each_phase_has_a_state_directory_of_its_own() {
    let folder = folder();
    let configuration = configuration(folder.path(), ["a", "b", "b", "c", "c", "d"]);
    let places = |state: Option<&str>| {
        let overrides = Overrides { state: state.map(Into::into), ..Overrides::default() };
        let job = configuration.job(&registry(), &overrides).unwrap();
        let places =
            job.phases.iter().map(|phase| (phase.state_dir.folder.clone(), phase.state_dir.positions));
        places.collect::<Vec<_>>()
    };
    let hidden = folder.path().join(".thalweg/copies.yaml");
    assert_eq!(places(None)[0], (hidden.join("all-1"), false));
    assert_eq!(places(None)[2], (hidden.join("all-3"), false));
    assert_eq!(places(Some("/kept"))[1], ("/kept/all-2".into(), true));
}

#[test]
fn the_standard_input_is_read_once() {
    let text =
        "sources: { lines: stdin }\npipelines: { main: { from: lines, to: out } }\nsinks: { out: stdout }\n";
    let loaded = |path: &str| {
        let document = Document::parse("standard input", text).unwrap();
        Configuration::new(document, Path::new(path)).job(&registry(), &Overrides::default())
    };
    assert!(loaded("file.yaml").is_ok());
    let error = loaded("-").err().unwrap();
    assert!(error.is_usage());
    assert_eq!(
        error.to_string(),
        "the configuration comes from the standard input, so the source `lines` cannot read it; put the \
         configuration into a file"
    );
}

#[test]
fn a_service_wants_one_of_its_processors() {
    let text = "name: letters\nprocessors:\n  - name: archive\n    operations:\n      - name: filesystem_input_read\n        \
                params: { target: { sourceType: value, source: in/* } }\n";
    let configuration = Configuration::new(Document::parse("s.yml", text).unwrap(), Path::new(""));
    let loaded = |names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        configuration.job(&registry(), &Overrides { names, ..Overrides::default() })
    };
    let job = loaded(&["letters:archive"]).unwrap();
    assert_eq!((job.processor.as_deref(), job.phases.len()), (Some("archive"), 1));
    let refused = |names: &[&str]| loaded(names).err().unwrap().to_string();
    let several = "`s.yml` is a service; name one of its processors, for example `letters:archive`";
    assert_eq!(refused(&[]), several);
    assert_eq!(refused(&["letters:archive", "letters:other"]), several);
    assert_eq!(
        refused(&["letters:archiv"]),
        "there is no processor `letters:archiv`; did you mean `letters:archive`?"
    );
}
