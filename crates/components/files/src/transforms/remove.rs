//! Removes files from the disk.
//!
//! A producer may have replaced a file since it was read, or written to it: what is there now was never read,
//! so it stays. No system call removes a name only if it leads to a certain file, and a removal waits for a
//! replacement in progress. So the file first gets a hidden name, is looked at once more, and gets its name
//! back if it is another one. A kill in this moment leaves it under the hidden name.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_beneath::Place;
use thalweg_beneath::unfinished::hidden_name;
use thalweg_engine::{Component, Context, Disposition, Error, FileError, FileTransform, FileTransformConfig};
use thalweg_record::{Content, File, FileState, Origin, Outcome};
use thalweg_runtime::Failpoint;

use crate::content::is_other;
use crate::directory::names::numbered;

/// Removes files from the disk and ends their processing.
///
/// The removed file is the current one: the file that was read, or the file that earlier transforms made of
/// it. A file that was replaced or changed since it was found is another file: it stays where it is, with a
/// warning. With `follow` the source sends it again; without, the next run does.
///
/// Removed files cannot be read again. So the sinks and transforms of a graph with `remove` keep what earlier
/// runs have written: `existing` of `directory`, `write`, `objects` and `upload` is `rename` by default, and
/// the sink `file` appends.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Remove {
    /// True to remove the file that was read as well, if the current file is another one. The default is
    /// `false`.
    #[serde(default)]
    original: bool,
}

impl Component for Remove {
    const NAME: &'static str = "remove";
    const EXAMPLE: &'static str = r#"
sources:
  old: { files: { path: "cache/**", min_age: 30d } }
pipelines:
  main: { from: old, to: gone }
sinks:
  gone: remove
"#;
}

impl FileTransformConfig for Remove {
    fn removes_input(&self) -> bool {
        true
    }

    fn build(&self, _: &Context) -> Result<Box<dyn FileTransform>, Error> {
        Ok(Box::new(self.clone()))
    }
}

#[async_trait]
impl FileTransform for Remove {
    async fn apply(&mut self, file: &mut File) -> Result<Disposition, FileError> {
        let mut paths: Vec<&Path> = Vec::new();
        let origin = file.origin();
        // A temporary file is removed with its last holder, which may be in another branch.
        if let Content::Path(path) = file.content() {
            paths.push(path);
        }
        if self.original
            && let Some(original) = origin.path.as_deref()
            && !paths.iter().any(|path| is_same_name(path, original))
        {
            paths.push(original);
        }
        // First checks that all exist, so a rejected file is still complete.
        let mut places = Vec::with_capacity(paths.len());
        for path in paths {
            let place = origin.opening(path).place(path).and_then(|place| place.check().map(|()| place));
            places.push((path, place.map_err(|error| irremovable(path, &error))?));
        }
        for (path, place) in places {
            let removed = Failpoint::RemoveBefore.check().and_then(|()| remove(origin, path, &place));
            removed.map_err(|error| irremovable(path, &error))?;
            Failpoint::RemoveAfter.pass();
        }
        Ok(Disposition::End(Outcome::Delivered))
    }
}

/// Removes a file, unless it is another one by now.
fn remove(origin: &Origin, path: &Path, place: &Place) -> io::Result<()> {
    let found = place.metadata().ok().map(|found| FileState::of(&found));
    let is_known = origin.path.as_deref() == Some(path) && origin.state().is_some();
    match found {
        _ if is_other(origin, path, place) => {}
        Some(found) if is_known => {
            if remove_aside(place, found)? {
                return Ok(());
            }
        }
        _ => return place.remove(),
    }
    tracing::warn!(
        "`{}` stays: it was replaced or changed after it was found. It counts as a new file",
        path.display()
    );
    Ok(())
}

/// Removes the file in a place if it is in this state: under a hidden name, which no producer uses. Returns
/// false if it is another file, which stays.
fn remove_aside(place: &Place, found: FileState) -> io::Result<bool> {
    let hidden = place.folder_path().join(hidden_name(fastrand::u64(..)));
    match rustix::fs::renameat_with(CWD, place.path(), CWD, &hidden, RenameFlags::NOREPLACE) {
        // The file system does not have this call.
        Err(Errno::INVAL | Errno::NOSYS) => return place.remove().map(|()| true),
        renamed => renamed?,
    }
    if fs::metadata(&hidden).is_ok_and(|now| FileState::of(&now).is_renamed(&found)) {
        return fs::remove_file(&hidden).map(|()| true);
    }
    let back = (1..).map(|number| numbered(&place.path(), number));
    for back in back {
        match rustix::fs::renameat_with(CWD, &hidden, CWD, &back, RenameFlags::NOREPLACE) {
            // A producer found the name free.
            Err(Errno::EXIST) => {}
            renamed => return Ok(renamed.map(|()| false)?),
        }
    }
    Ok(false)
}

fn irremovable(path: &Path, error: &io::Error) -> FileError {
    let why = match error.kind() {
        io::ErrorKind::NotFound => "it is no longer there".to_owned(),
        _ => error.to_string(),
    };
    let reason = format!("the file at `{}` cannot be removed: {why}", path.display());
    FileError::coded("FILE_INPUT_IS_UNWRITABLE", reason)
}

/// True if two paths are the same name in the same folder. Two links to the same file are different names.
fn is_same_name(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| -> Option<(PathBuf, Box<OsStr>)> {
        let path = std::path::absolute(path).ok()?;
        Some((fs::canonicalize(path.parent()?).ok()?, path.file_name()?.into()))
    };
    one == other || place(one).is_some_and(|one| Some(one) == place(other))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use thalweg_beneath::Beneath;
    use thalweg_engine::testing::{apply_to_file, file_at, file_of};

    const DELIVERED: Result<Disposition, thalweg_record::Problem> = Ok(Disposition::End(Outcome::Delivered));

    #[tokio::test]
    async fn it_is_gone_and_a_second_time_it_cannot_be_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, "1").unwrap();
        let mut file = file_at(&path);
        assert_eq!(apply_to_file::<Remove>("{ original: true }", &mut file).await, DELIVERED);
        assert!(!path.exists());
        let problem = apply_to_file::<Remove>("{}", &mut file).await.unwrap_err();
        assert_eq!(problem.code, Some("FILE_INPUT_IS_UNWRITABLE"));
        assert!(problem.reason.ends_with("it is no longer there"), "{}", problem.reason);
        assert_eq!(apply_to_file::<Remove>("{}", &mut file_of("x", b"1")).await, DELIVERED);
    }

    #[tokio::test]
    async fn a_file_that_is_another_one_by_now_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (path, new) = (folder.path().join("x"), folder.path().join("new"));
        let append = |path: &Path| fs::OpenOptions::new().append(true).open(path)?.write_all(b"2");
        let changes: [&dyn Fn() -> io::Result<()>; 4] = [
            &|| append(&path),
            &|| fs::write(&new, "2").and_then(|()| fs::rename(&new, &path)),
            // Of the same size and time as the old one.
            &|| {
                let time = fs::metadata(&path)?.modified()?;
                fs::write(&new, "2")?;
                fs::OpenOptions::new().append(true).open(&new)?.set_modified(time)?;
                fs::rename(&new, &path)
            },
            // A link to another file.
            &|| {
                fs::write(&new, "2").and_then(|()| fs::remove_file(&path))?;
                std::os::unix::fs::symlink(&new, &path)
            },
        ];
        for (number, change) in changes.iter().enumerate() {
            for yaml in ["{}", "{ original: true }"] {
                let _ = fs::remove_file(&path);
                fs::write(&path, "1").unwrap();
                let mut file = file_at(&path);
                if yaml != "{}" {
                    file.set_content(b"made".to_vec().into(), 4);
                }
                change().unwrap();
                assert_eq!(apply_to_file::<Remove>(yaml, &mut file).await, DELIVERED);
                assert!(fs::read_to_string(&path).unwrap().ends_with('2'), "{number} {yaml}");
            }
        }
    }

    #[test]
    fn a_file_that_is_replaced_at_the_last_moment_gets_its_name_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, "1").unwrap();
        let found = FileState::of(&fs::metadata(&path).unwrap());
        let place = Beneath::chosen().place(&path).unwrap();
        fs::write(&path, "new").unwrap();
        assert!(!remove_aside(&place, found).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        let found = FileState::of(&fs::metadata(&path).unwrap());
        assert!(remove_aside(&place, found).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn the_original_goes_only_if_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, "1").unwrap();
        for (yaml, stays) in [("{}", true), ("{ original: true }", false)] {
            let mut file = file_at(&path);
            let made = folder.path().join("made");
            fs::write(&made, "2").unwrap();
            file.set_content(Content::Path(made.clone()), 1);
            assert_eq!(apply_to_file::<Remove>(yaml, &mut file).await, DELIVERED);
            assert!(!made.exists());
            assert_eq!(path.exists(), stays);
        }
    }

    #[tokio::test]
    async fn where_one_of_both_is_gone_the_other_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (path, made) = (folder.path().join("x"), folder.path().join("made"));
        fs::write(&path, "1").unwrap();
        fs::write(&made, "2").unwrap();
        let mut file = file_at(&path);
        file.set_content(Content::Path(made.clone()), 1);
        fs::remove_file(&path).unwrap();
        let problem = apply_to_file::<Remove>("{ original: true }", &mut file).await.unwrap_err();
        let expected = format!("the file at `{}` cannot be removed: it is no longer there", path.display());
        assert_eq!(problem.reason, expected);
        assert!(made.exists());
    }
}
