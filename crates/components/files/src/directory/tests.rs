//! Tests with real folders.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::*;
use thalweg_engine::testing::{apply_to_file, context, file_at, file_of, options};
use thalweg_record::{Origin, Temporary};

use crate::transforms::check_size::CheckSize;
use crate::transforms::check_type::CheckType;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn put(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// Returns a worker that writes into the folder `out` with these options.
    fn writer(&self, yaml: &str) -> Directory {
        let path = self.path("out");
        let options: DirectoryOptions = options(&format!("{{ path: {}, {yaml} }}", path.display()));
        Directory::new(options, Arc::default(), &context(), true)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

fn code(result: Result<Disposition, FileError>) -> Option<&'static str> {
    match result {
        Err(FileError::Rejected(problem)) => problem.code,
        _ => None,
    }
}

#[tokio::test]
async fn the_file_that_was_checked_is_the_one_that_is_written() {
    let folder = Folder::new();
    let mut file = file_at(&folder.put("in/a", "small"));
    for _ in 0..2 {
        let checked = apply_to_file::<CheckSize>("{ max_bytes: 5B }", &mut file).await.unwrap();
        assert_eq!(checked, Disposition::Continue);
    }
    let checked = apply_to_file::<CheckType>("{ allow: [text/plain] }", &mut file).await.unwrap();
    assert_eq!(checked, Disposition::Continue);
    let other = folder.put("other", "much larger, and not checked");
    fs::rename(other, folder.path("in/a")).unwrap();
    folder.writer("").apply(&mut file).await.unwrap();
    assert_eq!(folder.read("out/a"), "small");
    // It is not kept open any longer.
    folder.writer("existing: overwrite").apply(&mut file).await.unwrap();
    assert_eq!(folder.read("out/a"), "much larger, and not checked");
}

#[tokio::test]
async fn times_and_permissions_are_kept_as_asked_for() {
    let folder = Folder::new();
    let path = folder.put("in/a.txt", "text");
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    folder.writer("keep: [times, mode]").apply(&mut file_at(&path)).await.unwrap();
    let written = fs::metadata(folder.path("out/a.txt")).unwrap();
    assert_eq!((written.modified().unwrap(), written.permissions().mode() & 0o777), (time, 0o640));
    folder.writer("keep: [], name: b.txt, fsync: true").apply(&mut file_at(&path)).await.unwrap();
    let written = fs::metadata(folder.path("out/b.txt")).unwrap();
    assert!(written.modified().unwrap() > time);
    assert_eq!(folder.names("out"), ["a.txt", "b.txt"]);
}

#[tokio::test]
async fn two_files_of_one_name_are_both_there_and_those_of_former_runs_are_replaced() {
    let folder = Folder::new();
    folder.put("out/a.tar.gz", "of a former run");
    let mut writer = folder.writer("name: '{name}'");
    for (from, text) in [("one", "1"), ("two", "2"), ("three", "3")] {
        let path = folder.put(&format!("{from}/a.tar.gz"), text);
        writer.apply(&mut file_at(&path)).await.unwrap();
    }
    assert_eq!(folder.names("out"), ["a.tar-2.gz", "a.tar-3.gz", "a.tar.gz"]);
    assert_eq!((folder.read("out/a.tar.gz"), folder.read("out/a.tar-2.gz")), ("1".into(), "2".into()));
}

#[tokio::test]
async fn what_is_done_with_a_file_that_is_there_is_what_was_asked_for() {
    for (existing, names, first) in [
        ("replace", vec!["a"], "new"),
        ("overwrite", vec!["a"], "new"),
        ("rename", vec!["a", "a-2"], "old"),
        ("skip", vec!["a"], "old"),
        ("error", vec!["a"], "old"),
    ] {
        let folder = Folder::new();
        folder.put("out/a", "old");
        let mut writer = folder.writer(&format!("existing: {existing}"));
        let applied = writer.apply(&mut file_of("a", b"new")).await;
        assert_eq!(code(applied), (existing == "error").then_some(UNWRITABLE), "{existing}");
        assert_eq!(
            (folder.names("out"), folder.read("out/a")),
            (names.iter().map(ToString::to_string).collect(), first.into())
        );
    }
}

#[tokio::test]
async fn files_that_come_only_once_do_not_replace_those_of_an_earlier_run() {
    for (starts_over, names) in [(true, vec!["a"]), (false, vec!["a", "a-2"])] {
        let folder = Folder::new();
        let yaml = format!("path: {}", folder.path("out").display());
        for text in ["old", "new"] {
            let context = Context { starts_over, ..context() };
            let mut writer = Directory::new(options(&yaml), Arc::default(), &context, true);
            writer.apply(&mut file_of("a", text.as_bytes())).await.unwrap();
        }
        assert_eq!(folder.names("out"), names);
    }
}

#[tokio::test]
async fn writing_into_the_folder_that_is_read_destroys_nothing_of_it() {
    let folder = Folder::new();
    let (a, b) = (folder.put("out/a.bin", "a"), folder.put("out/b.bin", "b"));
    let mut writer = folder.writer("name: '{name}'");
    writer.apply(&mut file_at(&a)).await.unwrap();
    assert_eq!(folder.read("out/a.bin"), "a");
    let mut renamed = file_at(&a);
    renamed.set_name("b.bin");
    folder.writer("name: '{name}'").apply(&mut renamed).await.unwrap();
    assert_eq!((folder.read("out/b.bin"), folder.read("out/b-2.bin")), ("b".into(), "a".into()));
    assert!(b.exists());
}

#[tokio::test]
async fn a_name_that_leads_out_of_the_folder_is_refused() {
    let folder = Folder::new();
    for name in ["../x", "/etc/x", "a/../../x", "..", "", "a/"] {
        let mut file = file_of("x", b"text");
        file.set_name(name);
        assert_eq!(code(folder.writer("name: '{name}'").apply(&mut file).await), Some(UNWRITABLE), "{name}");
    }
    assert!(!folder.path("x").exists());
    let mut file = file_of("x", b"text");
    file.set_name("below/x");
    folder.writer("name: '{name}'").apply(&mut file).await.unwrap();
    assert_eq!(folder.read("out/below/x"), "text");
    folder.writer("name: 'new/{name}', fsync: true").apply(&mut file).await.unwrap();
    assert_eq!(folder.read("out/new/below/x"), "text");
}

#[tokio::test]
async fn a_file_that_has_gone_leaves_nothing() {
    let folder = Folder::new();
    let path = folder.put("in/a", "text");
    folder.put("out/b", "");
    let mut file = file_at(&path);
    fs::remove_file(&path).unwrap();
    assert_eq!(code(folder.writer("").apply(&mut file).await), Some("FILE_CAN_NOT_BE_OPENED"));
    assert_eq!(folder.names("out"), ["b"]);
}

#[tokio::test]
async fn names_that_are_no_text_are_written_as_they_are() {
    let folder = Folder::new();
    let name = OsStr::from_bytes(b"a \xff'\"\n.bin");
    let path = folder.path("").join(name);
    fs::write(&path, "text").unwrap();
    folder.writer("").apply(&mut file_at(&path)).await.unwrap();
    assert_eq!(fs::read(folder.path("out").join(name)).unwrap(), b"text");
}

#[tokio::test]
async fn a_temporary_file_is_not_copied() {
    let folder = Folder::new();
    let temporary = Temporary::new(folder.put("tmp/0", "made"));
    let mut file =
        File::new(Origin::new("test".into(), "a".into(), 4), Content::Temporary(temporary.clone()));
    let mut writer = folder.writer("");
    writer.apply(&mut file).await.unwrap();
    writer.apply(&mut file).await.unwrap();
    folder.writer("existing: overwrite").apply(&mut file).await.unwrap();
    drop((file, temporary));
    assert_eq!(folder.names("out"), ["a", "a-2"]);
    assert_eq!(folder.read("out/a-2"), "made");
    assert!(folder.names("tmp").is_empty());
}

#[tokio::test]
async fn what_a_run_that_was_cut_off_had_written_is_known_again() {
    let folder = Folder::new();
    folder.put("out/a", "text");
    folder.put("out/b", "other");
    let options: DirectoryOptions =
        options(&format!("{{ path: {}, existing: error }}", folder.path("out").display()));
    let mut writer = Directory::new(options, Arc::default(), &Context { resumes: true, ..context() }, true);
    writer.apply(&mut file_of("a", b"text")).await.unwrap();
    assert_eq!(code(writer.apply(&mut file_of("b", b"text")).await), Some(UNWRITABLE));
    assert_eq!(folder.names("out"), ["a", "b"]);
}

/// A folder that runs with one state write into.
struct Runs {
    folder: Folder,
    journal: Journal,
    _state: tempfile::TempDir,
}

impl Runs {
    fn new() -> Self {
        let state = tempfile::tempdir().unwrap();
        let store = Arc::new(thalweg_engine::Store::open(state.path()).unwrap());
        Self { folder: Folder::new(), journal: Journal::new(store, "out"), _state: state }
    }

    /// Writes files, each given by its path or, without a slash, as an upload of that name and content.
    async fn run(&self, existing: &str, files: &[&str]) {
        let path = self.folder.path("out");
        let yaml = format!("{{ path: {}, name: '{{name}}', existing: {existing} }}", path.display());
        let context = Context { resumes: true, journal: Some(self.journal.clone()), ..context() };
        let mut writer = Directory::new(options(&yaml), Arc::default(), &context, true);
        for file in files {
            let mut file = match file.split_once('=') {
                Some((name, content)) => file_of(name, content.as_bytes()),
                None => file_at(&self.folder.path(file)),
            };
            writer.apply(&mut file).await.unwrap();
        }
    }

    fn written(&self) -> Vec<(String, String)> {
        let names = self.folder.names("out");
        names.into_iter().map(|name| (name.clone(), self.folder.read(&format!("out/{name}")))).collect()
    }
}

fn texts(files: &[(&str, &str)]) -> Vec<(String, String)> {
    files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

#[tokio::test]
async fn a_run_never_replaces_what_an_earlier_one_of_its_state_wrote_from_another_file() {
    for existing in ["replace", "rename"] {
        let runs = Runs::new();
        ["a", "b", "c"].iter().for_each(|name| drop(runs.folder.put(&format!("{name}/x.txt"), name)));
        runs.run(existing, &["a/x.txt"]).await;
        runs.run(existing, &["b/x.txt"]).await;
        // The delivery of these was not saved, so they come again, in another order.
        runs.run(existing, &["c/x.txt", "b/x.txt", "a/x.txt"]).await;
        let expected = [("x-2.txt", "b"), ("x-3.txt", "c"), ("x.txt", "a")];
        assert_eq!(runs.written(), texts(&expected), "{existing}");
    }
}

#[tokio::test]
async fn a_file_that_has_changed_replaces_what_was_written_of_it() {
    let runs = Runs::new();
    runs.folder.put("out/x.txt", "from before the first run");
    runs.folder.put("a/x.txt", "old");
    runs.run("replace", &["a/x.txt"]).await;
    assert_eq!(runs.written(), texts(&[("x.txt", "old")]));
    runs.folder.put("a/x.txt", "new");
    runs.run("replace", &["a/x.txt"]).await;
    assert_eq!(runs.written(), texts(&[("x.txt", "new")]));
}

#[tokio::test]
async fn uploads_of_one_name_in_two_runs_are_both_there() {
    let runs = Runs::new();
    runs.run("replace", &["x=one"]).await;
    runs.run("replace", &["x=two", "x=one"]).await;
    runs.run("replace", &["x=one", "x=two"]).await;
    assert_eq!(runs.written(), texts(&[("x", "one"), ("x-2", "two")]));
}

#[tokio::test]
async fn of_two_uploads_one_gets_a_name_that_an_earlier_run_gave_away_and_that_is_free_again() {
    for (existing, second) in [
        (Existing::Replace, Taken::NextName),
        (Existing::Rename, Taken::NextName),
        (Existing::Skip, Taken::LeftAlone),
        (Existing::Error, Taken::Refused),
    ] {
        let runs = Runs::new();
        runs.run("replace", &["x=one"]).await;
        let path = runs.folder.path("out/x");
        // A reader of the folder took the file away.
        fs::remove_file(&path).unwrap();
        let (names, upload) = (Names::default(), file_of("x", b"two"));
        // Two workers take the name before either of them has written.
        let take = || names.take(Some(&runs.journal), &path, &upload, existing).unwrap();
        let replaces = existing == Existing::Replace;
        assert_eq!((take(), take()), (Ok(replaces), Err(second)));
    }
}

#[tokio::test]
async fn a_copy_has_no_setuid_bit_and_gives_others_no_more_than_its_source() {
    let folder = Folder::new();
    let path = folder.put("in/tool", "text");
    let mode = |name: &str| fs::metadata(folder.path(name)).unwrap().permissions().mode() & 0o7777;
    for (given, kept, plain) in [(0o6755, 0o755, 0o644), (0o600, 0o600, 0o600), (0o1640, 0o640, 0o640)] {
        fs::set_permissions(&path, fs::Permissions::from_mode(given)).unwrap();
        folder.writer("name: kept").apply(&mut file_at(&path)).await.unwrap();
        folder.writer("name: plain, keep: [times]").apply(&mut file_at(&path)).await.unwrap();
        assert_eq!((mode("out/kept"), mode("out/plain")), (kept, plain), "{given:o}");
    }
}

#[tokio::test]
async fn what_a_killed_run_left_is_removed_by_the_next_file_of_that_name_unless_its_owner_runs() {
    let folder = Folder::new();
    folder.put("out/a", "old");
    let hidden = format!("out/.thalweg-{:016x}", xxhash_rust::xxh3::xxh3_64(b"a"));
    let left = folder.put(&hidden, "left");
    folder.writer("").apply(&mut file_of("a", b"new")).await.unwrap();
    assert_eq!((folder.names("out"), folder.read("out/a")), (vec!["a".to_owned()], "new".to_owned()));
    fs::write(&left, "of another process").unwrap();
    let owner = fs::File::open(&left).unwrap();
    owner.lock().unwrap();
    folder.writer("").apply(&mut file_of("a", b"newer")).await.unwrap();
    assert_eq!((folder.read(&hidden), folder.read("out/a")), ("of another process".into(), "newer".into()));
}

#[tokio::test]
async fn a_file_that_is_built_again_replaces_what_it_was_before() {
    for existing in ["replace", "overwrite", "rename", "skip", "error"] {
        let runs = Runs::new();
        let context = Context { resumes: true, journal: Some(runs.journal.clone()), ..context() };
        let yaml = format!("{{ path: {}, existing: {existing} }}", runs.folder.path("out").display());
        for (name, key, content) in [("x-1", "1", "old"), ("x-2", "1", "new"), ("x-3", "2", "next")] {
            let mut origin = Origin::new("main.pack".into(), name.into(), 3);
            origin.key = Some(key.into());
            let mut file = File::new(origin, Content::from(content.as_bytes().to_vec()));
            let mut writer = Directory::new(options(&yaml), Arc::default(), &context, true);
            writer.apply(&mut file).await.unwrap();
        }
        assert_eq!(runs.written(), texts(&[("x-1", "new"), ("x-3", "next")]), "{existing}");
    }
}

#[tokio::test]
async fn a_folder_that_is_removed_ends_the_run_before_more_files_are_acknowledged() {
    let folder = Folder::new();
    let mut writer = folder.writer("keep: []");
    writer.apply(&mut file_at(&folder.put("in/a", "1"))).await.unwrap();
    fs::remove_dir_all(folder.path("out")).unwrap();
    let ended = writer.apply(&mut file_at(&folder.put("in/b", "2"))).await;
    let Err(FileError::Failed(error)) = ended else { panic!("it went on") };
    let expected = "out` was removed while the run was writing to it: the files in it are lost.";
    assert!(error.to_string().contains(expected), "{error}");
    assert!(!folder.path("out").exists());
}
