//! Files with unfinished output, beside the database.
//!
//! A checkpoint may have output that is not finished, of up to gigabytes. The database would write such bytes
//! several times: into its journal, a table, and the tables that it merges. A file has them once. A component
//! appends to the file of an output and syncs it before a checkpoint, which records how many bytes are its
//! own. Bytes after these are of a run that was killed, and are cut off before the next ones are appended.
//!
//! The name of a file has hashes of the names of its component and its output. No name from outside becomes a
//! path. The inventory does not have these files: a checkpoint has the checksum of each.
//!
//! See docs/decisions/109-unfinished-output-is-a-file-beside-the-store.md.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use thalweg_runtime::private::{create_private, open_regular, open_regular_with, private_file};
use xxhash_rust::xxh3::xxh3_64;

use super::faults::Faults;
use super::inventory::missing;
use crate::Error;

/// The name of the directory, in the state directory.
const NAME: &str = "unfinished";
/// Files are read in pieces of this size.
const PIECE: usize = 256 << 10;

/// The files of all components.
pub(crate) struct OutputFiles {
    /// The state directory.
    state: PathBuf,
    folder: PathBuf,
    faults: Faults,
}

/// The file of an output, open for appending.
pub struct OutputFile {
    file: File,
    length: u64,
    faults: Faults,
}

impl OutputFile {
    /// Appends bytes. They are on the disk after [`sync`](Self::sync).
    ///
    /// # Errors
    /// If they cannot be written. Some may be in the file then, which the next run cuts off.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.file.write_all_at(bytes, self.length).map_err(|error| self.faults.recording(&error))?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Waits until all bytes are on the disk.
    ///
    /// # Errors
    /// If the disk fails. The bytes since the last sync must then be appended again, to a file that is opened
    /// again: the system may have lost them.
    pub fn sync(&self) -> Result<(), Error> {
        self.file.sync_data().map_err(|error| self.faults.recording(&error))
    }
}

impl OutputFiles {
    /// The files in a state directory.
    pub(super) fn new(state: &Path, faults: Faults) -> Self {
        Self { state: state.to_owned(), folder: state.join(NAME), faults }
    }

    /// Opens the file of an output, and cuts off what follows the first `length` bytes. Creates the file if
    /// it shall be empty and does not exist.
    pub(crate) fn open(&self, component: &str, output: &str, length: u64) -> Result<OutputFile, Error> {
        let file = self.opened(&self.path(component, output), length);
        let file = file.map_err(|error| self.faults.recording(&error))?;
        Ok(OutputFile { file, length, faults: self.faults.clone() })
    }

    fn opened(&self, path: &Path, length: u64) -> io::Result<File> {
        if length == 0 {
            create_private(&self.folder)?;
        }
        let file = match open_regular_with(private_file().write(true).create(length == 0), path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(changed(path, "is missing")),
            opened => opened?,
        };
        let found = file.metadata()?.len();
        if found < length {
            return Err(changed(path, "is shorter than it was"));
        }
        if found > length {
            file.set_len(length)?;
        }
        if length == 0 {
            // Without these entries, a loss of power may leave a checkpoint without its file. Also if the
            // file exists: the run that created it may have ended before this.
            for folder in [&self.folder, &self.state] {
                File::open(folder)?.sync_all()?;
            }
        }
        Ok(file)
    }

    /// Passes the first `length` bytes of an output to `take`, a piece at a time.
    ///
    /// # Errors
    /// If the file does not have them, and the errors of `take`.
    pub(crate) fn read(
        &self,
        component: &str,
        output: &str,
        length: u64,
        mut take: impl FnMut(Vec<u8>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let path = self.path(component, output);
        let damaged = |error: &io::Error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::UnexpectedEof => {
                self.faults.damaged_output(&path, missing(error))
            }
            // Such as a file of another user.
            _ => self.faults.unopened(&format!("`{}`: {error}", path.display())),
        };
        let file = open_regular(&path).map_err(|error| damaged(&error))?;
        let mut at = 0;
        while at < length {
            let mut piece = vec![0; usize::try_from(length - at).unwrap_or(PIECE).min(PIECE)];
            file.read_exact_at(&mut piece, at).map_err(|error| damaged(&error))?;
            at += piece.len() as u64;
            take(piece)?;
        }
        Ok(())
    }

    /// The error of a file whose bytes do not fit the checksum in the checkpoint.
    pub(crate) fn changed(&self, component: &str, output: &str) -> Error {
        self.faults.damaged_output(&self.path(component, output), "was changed")
    }

    /// Returns the number of files of a component.
    pub(crate) fn count(&self, component: &str) -> Result<usize, Error> {
        Ok(self.of_component(component).map_err(|error| self.faults.recording(&error))?.len())
    }

    /// Removes the file of an output, if there is one.
    pub(crate) fn remove(&self, component: &str, output: &str) -> Result<(), Error> {
        remove(&self.path(component, output)).map_err(|error| self.faults.recording(&error))
    }

    /// Removes the files of a component, except those of outputs with these names.
    pub(crate) fn remove_except<'a>(
        &self,
        component: &str,
        kept: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), Error> {
        let kept: HashSet<PathBuf> = kept.into_iter().map(|output| self.path(component, output)).collect();
        let remove_others = || -> io::Result<()> {
            let found = self.of_component(component)?;
            found.iter().filter(|path| !kept.contains(*path)).try_for_each(|path| remove(path))
        };
        remove_others().map_err(|error| self.faults.recording(&error))
    }

    /// Removes all files.
    pub(super) fn clear(&self) -> Result<(), Error> {
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(self.faults.recording(&error)),
            _ => Ok(()),
        }
    }

    fn of_component(&self, component: &str) -> io::Result<Vec<PathBuf>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let start = prefix(component);
        let mut found = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            if name.to_str().is_some_and(|name| name.starts_with(&start)) {
                found.push(self.folder.join(name));
            }
        }
        Ok(found)
    }

    fn path(&self, component: &str, output: &str) -> PathBuf {
        self.folder.join(format!("{}{:016x}", prefix(component), xxh3_64(output.as_bytes())))
    }
}

/// The beginning of the names of a component's files.
fn prefix(component: &str) -> String {
    format!("{:016x}-", xxh3_64(component.as_bytes()))
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The error of a file that changed while the run had it.
fn changed(path: &Path, what: &str) -> io::Error {
    io::Error::other(format!("`{}` {what}: another program has changed it", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(state: &Path) -> OutputFiles {
        OutputFiles::new(state, Faults::of(state))
    }

    fn read(files: &OutputFiles, output: &str, length: u64) -> Result<Vec<u8>, Error> {
        let mut all = Vec::new();
        files.read("out", output, length, |piece| {
            all.extend(piece);
            Ok(())
        })?;
        Ok(all)
    }

    #[test]
    fn bytes_after_the_recorded_length_are_cut_off_before_more_are_appended() {
        let state = tempfile::tempdir().unwrap();
        let files = files(state.path());
        let mut file = files.open("out", "a", 0).unwrap();
        file.append(b"one").unwrap();
        file.append(b" and more").unwrap();
        file.sync().unwrap();
        assert_eq!(read(&files, "a", 3).unwrap(), b"one");
        let mut file = files.open("out", "a", 3).unwrap();
        file.append(b" two").unwrap();
        assert_eq!(read(&files, "a", 7).unwrap(), b"one two");
        assert_eq!(fs::metadata(files.path("out", "a")).unwrap().len(), 7);
        drop(files.open("out", "a", 0).unwrap());
        assert_eq!(fs::metadata(files.path("out", "a")).unwrap().len(), 0);
    }

    #[test]
    fn a_piece_after_the_other_is_read_in_order() {
        let state = tempfile::tempdir().unwrap();
        let files = files(state.path());
        let bytes: Vec<u8> = (0..2 * PIECE + 5).map(|number| (number % 251) as u8).collect();
        files.open("out", "a", 0).unwrap().append(&bytes).unwrap();
        assert!(read(&files, "a", bytes.len() as u64).unwrap() == bytes);
    }

    #[test]
    fn a_missing_or_short_file_is_damage_and_is_not_created() {
        let state = tempfile::tempdir().unwrap();
        let files = files(state.path());
        let told = |error: Error| error.full().replace(&state.path().display().to_string(), "STATE");
        let shown = files.path("out", "a").display().to_string();
        let shown = shown.replace(&state.path().display().to_string(), "STATE");
        let damaged =
            |what: &str| format!("the state in `STATE` is damaged: `{shown}` {what}. It had output");
        let error = told(read(&files, "a", 1).unwrap_err());
        assert!(error.starts_with(&damaged("is missing")), "{error}");
        let error = told(files.open("out", "a", 1).err().unwrap());
        assert!(error.contains("is missing: another program has changed it"), "{error}");
        assert_eq!(files.count("out").unwrap(), 0);
        files.open("out", "a", 0).unwrap().append(b"xy").unwrap();
        let error = told(read(&files, "a", 3).unwrap_err());
        assert!(error.starts_with(&damaged("is shorter than it was")), "{error}");
        let error = told(files.open("out", "a", 3).err().unwrap());
        assert!(error.contains("is shorter than it was: another program has changed it"), "{error}");
        let error = told(files.changed("out", "a"));
        assert!(error.starts_with(&damaged("was changed")), "{error}");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_not_called_damaged() {
        let state = tempfile::tempdir().unwrap();
        let files = files(state.path());
        fs::create_dir_all(files.path("out", "a")).unwrap();
        let error = read(&files, "a", 1).unwrap_err().full();
        assert!(error.contains("cannot be opened: `") && error.contains("is not a regular file"), "{error}");
        assert!(!error.contains("damaged"), "{error}");
    }

    #[test]
    fn files_are_removed_by_component_and_output() {
        let state = tempfile::tempdir().unwrap();
        let files = files(state.path());
        for (component, output) in [("out", "a"), ("out", "b"), ("out", "c"), ("other", "a")] {
            drop(files.open(component, output, 0).unwrap());
        }
        let count = || (files.count("out").unwrap(), files.count("other").unwrap());
        assert_eq!(count(), (3, 1));
        files.remove("out", "a").unwrap();
        files.remove("out", "a").unwrap();
        assert_eq!(count(), (2, 1));
        files.remove_except("out", ["b", "none"]).unwrap();
        assert_eq!(count(), (1, 1));
        assert!(read(&files, "b", 0).is_ok());
        files.clear().unwrap();
        files.clear().unwrap();
        assert_eq!(count(), (0, 0));
        files.remove_except("out", []).unwrap();
    }

    #[test]
    fn no_name_leads_out_of_the_directory() {
        let state = tempfile::tempdir().unwrap();
        let files = files(state.path());
        drop(files.open("../out", "../../a", 0).unwrap());
        assert_eq!(files.count("../out").unwrap(), 1);
        let names: Vec<_> =
            fs::read_dir(state.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, [NAME]);
    }
}
