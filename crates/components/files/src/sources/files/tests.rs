//! Tests with real folders.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use proptest::prelude::*;
use serde_json::Value;
use thalweg_engine::testing::{Arrived, RunningSource, messages, options, start};
use thalweg_record::Outcome;

use super::*;

struct Folder(tempfile::TempDir);

impl Folder {
    fn with(names: &[&str]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        for name in names {
            folder.put(name, name);
        }
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn put(&self, name: &str, text: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), text).unwrap();
    }

    fn start(&self, yaml: &str, saved: &BTreeMap<String, Value>) -> RunningSource {
        start::<FilesConfig>(&yaml.replace("DIR", self.0.path().to_str().unwrap()), 1 << 20, saved.clone())
    }

    /// Returns what a run sends until it ends: paths below the folder, sorted.
    async fn find(&self, yaml: &str) -> Vec<String> {
        self.found(self.start(yaml, &BTreeMap::new())).await.0
    }

    async fn found(&self, running: RunningSource) -> (Vec<String>, BTreeMap<String, Value>) {
        let mut found = Vec::new();
        while let Some((_, Arrived::Files(files))) = running.main.take().await {
            for file in files {
                found.push(self.name_of(&file));
                file.settle(Outcome::Delivered);
            }
        }
        running.task.await.unwrap().unwrap();
        found.sort();
        let positions = running.positions;
        let saved = |partition: &Arc<str>| Some((partition.to_string(), positions.saved(partition)?));
        (found, positions.partitions().iter().filter_map(saved).collect())
    }

    fn name_of(&self, file: &File) -> String {
        let path = file.origin().path.clone().unwrap();
        path.strip_prefix(self.0.path()).unwrap().to_string_lossy().into_owned()
    }
}

#[tokio::test]
async fn a_folder_is_all_that_is_in_it_and_a_pattern_what_it_matches() {
    let folder = Folder::with(&[
        "a.jpg",
        "b/c.jpg",
        "b/d/e.png",
        ".hidden/f.jpg",
        "b/.g.jpg",
        ".thalweg-0123456789abcdef",
    ]);
    for (yaml, expected) in [
        ("path: DIR", vec![".hidden/f.jpg", "a.jpg", "b/.g.jpg", "b/c.jpg", "b/d/e.png"]),
        ("{ path: DIR, hidden: false }", vec!["a.jpg", "b/c.jpg", "b/d/e.png"]),
        ("{ path: DIR, recursive: false }", vec!["a.jpg"]),
        ("{ path: DIR, folders: skip }", vec![]),
        ("path: DIR/*", vec!["a.jpg"]),
        ("path: DIR/**/*.jpg", vec!["a.jpg", "b/c.jpg"]),
        ("{ path: DIR/**/*.jpg, hidden: true }", vec![".hidden/f.jpg", "a.jpg", "b/.g.jpg", "b/c.jpg"]),
        ("path: [DIR/a.jpg, DIR/b/d]", vec!["a.jpg", "b/d/e.png"]),
        ("{ path: DIR, include: ['*.jpg'], exclude: ['b/*'] }", vec![".hidden/f.jpg", "a.jpg"]),
        ("{ path: DIR, min_file_bytes: 6B, max_file_bytes: 8B }", vec!["b/.g.jpg", "b/c.jpg"]),
        ("{ path: DIR, min_age: 1h }", vec![]),
        ("{ path: DIR/*, max_age: 1h }", vec!["a.jpg"]),
        ("path: DIR/*.gif", vec![]),
    ] {
        assert_eq!(folder.find(yaml).await, expected, "{yaml}");
    }
}

#[tokio::test]
async fn links_are_followed_as_asked_for_and_never_in_a_circle() {
    let folder = Folder::with(&["in/a", "else/b"]);
    symlink(folder.path("in/a"), folder.path("in/link")).unwrap();
    symlink(folder.path("nothing"), folder.path("in/broken")).unwrap();
    symlink(folder.path("else"), folder.path("in/else")).unwrap();
    symlink(folder.path("in"), folder.path("in/circle")).unwrap();
    assert_eq!(folder.find("path: DIR/in").await, ["in/a", "in/link"]);
    assert_eq!(folder.find("{ path: DIR/in, symlinks: skip }").await, ["in/a"]);
    symlink(folder.path("else/b"), folder.path("in/out")).unwrap();
    assert_eq!(folder.find("{ path: DIR/in }").await, ["in/a", "in/link"]);
    assert_eq!(folder.find("{ path: 'DIR/in/*' }").await, ["in/a", "in/link"]);
    assert_eq!(folder.find("{ path: DIR/in/out }").await, ["in/out"]);
    assert_eq!(folder.find("{ path: DIR/in, symlinks: files }").await, ["in/a", "in/link", "in/out"]);
    fs::remove_file(folder.path("in/out")).unwrap();
    assert_eq!(folder.find("{ path: DIR/in, symlinks: follow }").await, ["in/a", "in/else/b", "in/link"]);
}

#[tokio::test]
async fn names_that_are_no_text_are_found() {
    let folder = Folder::with(&[]);
    let name = OsStr::from_bytes(b"a \xff'\"\n.bin");
    fs::write(folder.path("").join(name), "text").unwrap();
    let running = folder.start("path: DIR/*.bin", &BTreeMap::new());
    let Some((_, Arrived::Files(files))) = running.main.take().await else { panic!("it ended") };
    assert_eq!(files[0].name(), name);
    assert_eq!(files[0].size(), 4);
}

#[tokio::test]
async fn small_files_go_together_and_big_ones_by_themselves() {
    let folder = Folder::with(&[]);
    (0..70).for_each(|number| folder.put(&format!("small/{number}"), "x"));
    for name in ["one", "two"] {
        fs::File::create(folder.path(name)).unwrap().set_len(2 << 20).unwrap();
    }
    let running = folder.start("path: [DIR/one, DIR/two, DIR/small]", &BTreeMap::new());
    let mut groups = Vec::new();
    while let Some((_, Arrived::Files(files))) = running.main.take().await {
        groups.push(files.len());
        files.into_iter().for_each(|file| file.settle(Outcome::Delivered));
    }
    assert_eq!(groups, [1, 1, 32, 32, 6]);
}

#[tokio::test]
async fn a_later_run_sends_what_is_new_or_has_changed() {
    let folder = Folder::with(&["a", "b/c", "d"]);
    let yaml = "{ path: DIR, order: name }";
    let (found, saved) = folder.found(folder.start(yaml, &BTreeMap::new())).await;
    assert_eq!(found, ["a", "b/c", "d"]);
    let (found, saved) = folder.found(folder.start(yaml, &saved)).await;
    assert_eq!(found, [""; 0]);
    folder.put("aa", "new, with a name before others");
    folder.put("b/c", "changed");
    fs::rename(folder.path("d"), folder.path("e")).unwrap();
    let (found, saved) = folder.found(folder.start(yaml, &saved)).await;
    assert_eq!(found, ["aa", "b/c", "e"]);
    assert_eq!(folder.found(folder.start(yaml, &saved)).await.0, [""; 0]);
}

#[tokio::test]
async fn a_run_that_was_cut_off_goes_on_after_what_was_safe() {
    let names: Vec<String> = (0..100).map(|number| format!("{number:03}")).collect();
    let folder = Folder::with(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let yaml = "{ path: DIR, order: name }";
    let running = folder.start(yaml, &BTreeMap::new());
    let mut left = Vec::new();
    while let Some((_, Arrived::Files(files))) = running.main.take().await {
        // The second group is never settled, as if the run were killed before.
        let is_second = folder.name_of(&files[0]) == "032";
        left.extend(files.into_iter().filter_map(|file| {
            if is_second {
                return Some(file);
            }
            file.settle(Outcome::Delivered);
            None
        }));
    }
    // All files were sent, and the source has ended.
    running.task.await.unwrap().unwrap();
    let saved = |partition: &Arc<str>| Some((partition.to_string(), running.positions.saved(partition)?));
    let saved: BTreeMap<String, Value> = running.positions.partitions().iter().filter_map(saved).collect();
    let (found, saved) = folder.found(folder.start(yaml, &saved)).await;
    assert_eq!(found, names[32..]);
    assert_eq!(left.len(), 32);
    // The files that the first run sent are known, though they were created just before it.
    let (found, saved) = folder.found(folder.start(yaml, &saved)).await;
    assert_eq!(found, [""; 0]);
    folder.put("010", "changed");
    folder.put("0100", "new");
    assert_eq!(folder.found(folder.start(yaml, &saved)).await.0, ["010", "0100"]);
    left.into_iter().for_each(|file| file.settle(Outcome::Delivered));
}

#[tokio::test]
async fn while_it_watches_new_files_come_when_they_are_old_enough() {
    let folder = Folder::with(&["a"]);
    let running =
        folder.start("{ path: DIR, follow: true, poll_interval: 20ms, min_age: 200ms }", &BTreeMap::new());
    let next = async || match running.main.take().await {
        Some((_, Arrived::Files(files))) => {
            let names: Vec<String> = files.iter().map(|file| folder.name_of(file)).collect();
            files.into_iter().for_each(|file| file.settle(Outcome::Delivered));
            names
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(next().await, ["a"]);
    folder.put("b", "new");
    assert_eq!(next().await, ["b"]);
    folder.put("a", "changed");
    assert_eq!(next().await, ["a"]);
    running.stop.request();
    assert!(running.main.take().await.is_none());
}

#[tokio::test]
async fn what_cannot_be_read_is_rejected_once_however_often_a_folder_is_looked_at() {
    let folder = Folder::with(&[]);
    symlink("loop", folder.path("loop")).unwrap();
    let running =
        folder.start("{ path: DIR, follow: true, poll_interval: 10ms, min_age: 1ms }", &BTreeMap::new());
    let Some((_, Arrived::Files(rejected))) = running.errors.take().await else { panic!("no file came") };
    assert_eq!(rejected.iter().map(|file| folder.name_of(file)).collect::<Vec<_>>(), ["loop"]);
    rejected.into_iter().for_each(|file| file.settle(Outcome::Delivered));
    // Each file shows that the folder was looked at again.
    for name in ["a", "b"] {
        folder.put(name, "new");
        let Some((_, Arrived::Files(files))) = running.main.take().await else { panic!("no file came") };
        files.into_iter().for_each(|file| file.settle(Outcome::Delivered));
    }
    running.stop.request();
    assert!(running.main.take().await.is_none());
    assert!(running.errors.take().await.is_none());
}

#[tokio::test]
async fn a_watched_file_that_is_still_written_is_not_sent() {
    let folder = Folder::with(&[]);
    folder.put("a", "");
    let running = folder.start("{ path: DIR, follow: true, poll_interval: 10ms }", &BTreeMap::new());
    let mut text = String::new();
    for line in 0..40 {
        text += &format!("line {line}\n");
        folder.put("a", &text);
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let Some((_, Arrived::Files(mut files))) = running.main.take().await else { panic!("no file came") };
    let file = files.remove(0);
    assert_eq!(file.size(), text.len() as u64);
    file.settle(Outcome::Delivered);
    running.stop.request();
    assert!(running.main.take().await.is_none());
}

#[tokio::test]
async fn a_watched_file_that_the_run_rewrites_is_not_sent_again_and_one_that_others_change_is() {
    let folder = Folder::with(&["a"]);
    let running = folder.start(
        "{ path: DIR, follow: true, poll_interval: 10ms, min_age: 0s, order: name }",
        &BTreeMap::new(),
    );
    let next = async || {
        let Some((_, Arrived::Files(mut files))) = running.main.take().await else { panic!("no file came") };
        files.remove(0)
    };
    let state = || FileState::of(&fs::metadata(folder.path("a")).unwrap());
    let file = next().await;
    let change = file.origin().begin_change();
    folder.put("a", "a new text");
    // A pass that sends `b` has met `a`: here while the run rewrites it, then after that.
    folder.put("b", "b");
    assert_eq!(folder.name_of(&next().await), "b");
    change.end(state());
    assert_eq!(file.origin().state(), Some(state()));
    folder.put("c", "c");
    assert_eq!(folder.name_of(&next().await), "c");
    // A change that did not take place leaves what others have changed.
    let change = file.origin().begin_change();
    folder.put("a", "a text of others");
    folder.put("d", "d");
    assert_eq!(folder.name_of(&next().await), "d");
    drop(change);
    let again = next().await;
    assert_eq!((folder.name_of(&again), again.size()), ("a".into(), 16));
    running.stop.request();
}

/// Something that happens to a folder whose files a source sends.
#[derive(Debug, Clone)]
enum Step {
    /// A file is created or changed.
    Write(u8),
    /// A run is interrupted after this number of files.
    Interrupt(usize),
    Run,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..60u8).prop_map(Step::Write),
        2 => (0..60usize).prop_map(Step::Interrupt),
        1 => Just(Step::Run),
    ]
}

/// Runs the source until it has sent the given number of files, and returns their texts and the positions.
async fn sent(
    folder: &Folder,
    saved: &BTreeMap<String, Value>,
    most: usize,
) -> (Vec<String>, BTreeMap<String, Value>) {
    let running = folder.start("{ path: DIR, order: name }", saved);
    let (mut texts, mut left) = (Vec::new(), Vec::new());
    while let Some((_, Arrived::Files(files))) = running.main.take().await {
        // A group is settled as a whole, and none after one that is not.
        let is_settled = left.is_empty() && texts.len() + files.len() <= most;
        for file in files {
            if is_settled {
                texts.push(fs::read_to_string(file.origin().path.clone().unwrap()).unwrap());
                file.settle(Outcome::Delivered);
            } else {
                left.push(file);
            }
        }
    }
    running.task.await.unwrap().unwrap();
    let positions = running.positions;
    let offset = |partition: &Arc<str>| Some((partition.to_string(), positions.saved(partition)?));
    let saved = positions.partitions().iter().filter_map(offset).collect();
    left.into_iter().for_each(|file| file.settle(Outcome::Delivered));
    (texts, saved)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn each_state_of_a_file_is_sent_once_however_often_runs_are_interrupted(
        steps in prop::collection::vec(step(), 1..20),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let names: Vec<String> = (0..60).map(|number| format!("{number:02}")).collect();
            let folder = Folder::with(&names.iter().map(String::as_str).collect::<Vec<_>>());
            let (mut saved, mut texts) = (BTreeMap::new(), Vec::new());
            let mut version = 0;
            for step in steps.into_iter().chain([Step::Run, Step::Run]) {
                let most = match step {
                    Step::Write(number) => {
                        version += 1;
                        folder.put(&format!("{number:02}"), &format!("{number:02} version {version}"));
                        continue;
                    }
                    Step::Interrupt(most) => most,
                    Step::Run => usize::MAX,
                };
                let found;
                (found, saved) = sent(&folder, &saved, most).await;
                texts.extend(found);
            }
            let count = texts.len();
            texts.sort();
            texts.dedup();
            prop_assert_eq!(texts.len(), count, "a file was sent twice");
            for name in names {
                let text = fs::read_to_string(folder.path(&name)).unwrap();
                prop_assert!(texts.contains(&text), "{} was not sent", text);
            }
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn a_path_that_is_not_there_is_an_error() {
    let folder = Folder::with(&[]);
    let running = folder.start("path: DIR/nothing", &BTreeMap::new());
    let error = running.task.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("does not exist"), "{error}");
    assert_eq!(messages(options::<FilesConfig>("path: ''").check()), ["`path` is empty."]);
    assert_eq!(options::<FilesConfig>("path: 'in/[a'").check()[0].option, "path");
    assert_eq!(options::<FilesConfig>("{ path: in, include: ['**x'] }").check()[0].option, "include");
}
