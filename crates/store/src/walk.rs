//! Lists the files below a folder of this machine, in the order in which stores list: that of the bytes of
//! whole paths.
//!
//! Only a bounded number of a folder's names is in memory. A larger folder is read several times. (OpenDAL's
//! lister was rejected. It looks up each file separately on another thread, which took three times as long as
//! a listing of the same files by an S3 server. It also returns them in no order, so a listing cannot resume
//! behind a name.)
//!
//! See docs/decisions/041-directories-are-listed-in-store-order.md.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use thalweg_beneath::unfinished::is_unfinished;
use thalweg_beneath::{Beneath, Links};

use crate::Fingerprint;

/// How many names of a folder are held at once.
const NAMES: usize = 64 << 10;

/// One result of a walk.
pub(crate) enum Found {
    File {
        /// The path, from the root of the file system on.
        path: String,
        state: Fingerprint,
        /// The permissions.
        mode: u32,
    },
    /// A name that cannot be listed, and why. It does not keep the others from being listed.
    Unreadable { name: String, why: String },
    /// A link that leads out of the folder that is walked.
    LinkOut { name: String },
}

/// A walk in progress.
pub(crate) struct Walk {
    /// The folders that were entered, the innermost last.
    levels: Vec<Level>,
    /// The walk skips files up to this path, which is relative to the root.
    after: Option<Vec<u8>>,
    most: usize,
    /// The folder that is walked. Links that lead out of it are not followed. `None` if all links are.
    inside: Option<PathBuf>,
    /// Opens what was found.
    beneath: Beneath,
}

/// A folder, and some of its names.
struct Level {
    folder: PathBuf,
    /// The prefix of the names.
    prefix: Vec<u8>,
    /// The next names, in reverse order. Names of folders end in a slash, because that determines their
    /// order.
    names: Vec<Vec<u8>>,
    /// The greatest name that was held so far, if there are more names behind it.
    last: Option<Vec<u8>>,
}

impl Level {
    fn open(folder: PathBuf, prefix: &[u8], after: Option<&[u8]>, most: usize) -> io::Result<Self> {
        let mut level = Self { folder, prefix: prefix.to_owned(), names: Vec::new(), last: None };
        level.fill(after, most)?;
        Ok(level)
    }

    /// Reads up to `most` names: the smallest that are greater than `after`, or that lead to greater paths.
    fn fill(&mut self, after: Option<&[u8]>, most: usize) -> io::Result<()> {
        let is_behind = |name: &[u8]| {
            after.is_none_or(|after| name > after || (name.ends_with(b"/") && after.starts_with(name)))
        };
        let mut has_more = false;
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            if !name.as_bytes().starts_with(&self.prefix) || is_unfinished(&name) {
                continue;
            }
            let mut name = name.into_vec();
            match entry.file_type() {
                Ok(found) if found.is_dir() => name.push(b'/'),
                Ok(_) => {}
                // It was removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            }
            if !is_behind(&name) || self.last.as_ref().is_some_and(|last| name <= *last) {
                continue;
            }
            self.names.push(name);
            if self.names.len() >= 2 * most {
                self.names.select_nth_unstable(most - 1);
                self.names.truncate(most);
                has_more = true;
            }
        }
        self.names.sort_unstable();
        has_more |= self.names.len() > most;
        self.names.truncate(most);
        self.last = self.names.last().filter(|_| has_more).cloned();
        self.names.reverse();
        Ok(())
    }

    /// Returns the next name.
    fn next(&mut self, most: usize) -> io::Result<Option<Vec<u8>>> {
        if self.names.is_empty() && self.last.is_some() {
            self.fill(None, most)?;
        }
        Ok(self.names.pop())
    }
}

impl Walk {
    /// Starts a walk over all files whose path begins with `prefix` and is greater than `after`. Paths are
    /// relative to the root of the file system, without the first slash. `follows`: also follow links to
    /// files outside of the folder of the prefix.
    pub(crate) fn new(prefix: &str, after: Option<&str>, follows: bool) -> io::Result<Self> {
        Self::holding(prefix, after, follows, NAMES)
    }

    fn holding(prefix: &str, after: Option<&str>, follows: bool, most: usize) -> io::Result<Self> {
        let end = prefix.rfind('/').map_or(0, |slash| slash + 1);
        let (folder, names) = prefix.split_at(end);
        let after = after.map(|after| after.as_bytes().to_vec());
        let folder = Path::new("/").join(folder);
        let inside = (!follows).then(|| folder.canonicalize().unwrap_or_else(|_| folder.clone()));
        let links = if follows { Links::Followed } else { Links::Inside };
        let beneath = Beneath::new(folder.as_path(), links);
        let mut walk = Self { levels: Vec::new(), after, most, inside, beneath };
        walk.enter(folder, names.as_bytes())?;
        Ok(walk)
    }

    /// Returns the opener of the files that were found.
    pub(crate) fn beneath(&self) -> &Beneath {
        &self.beneath
    }

    fn enter(&mut self, folder: PathBuf, prefix: &[u8]) -> io::Result<()> {
        let mut here = path_of(&folder).to_vec();
        if !here.is_empty() {
            here.push(b'/');
        }
        // `after` may be inside this folder, before it, or behind all of it.
        let after = match self.after.as_deref() {
            Some(after) if after.starts_with(&here) => after.get(here.len()..),
            Some(after) if *after > *here => return Ok(()),
            _ => None,
        };
        let level = Level::open(folder, prefix, after, self.most)?;
        self.levels.push(level);
        Ok(())
    }

    /// Returns the next results, at most `most`; none at the end. Files that were removed meanwhile are
    /// skipped.
    ///
    /// # Errors
    /// If a folder cannot be read to its end.
    pub(crate) fn next(&mut self, most: usize) -> io::Result<Vec<Found>> {
        let mut found = Vec::new();
        while found.len() < most
            && let Some(level) = self.levels.last_mut()
        {
            let Some(mut name) = level.next(self.most)? else {
                self.levels.pop();
                continue;
            };
            let is_folder = name.pop_if(|last| *last == b'/').is_some();
            let path = level.folder.join(OsString::from_vec(name));
            let looked = match is_folder {
                true => self.enter(path.clone(), b"").map(|()| None),
                false => self.look_at(&path),
            };
            match looked {
                Ok(some) => found.extend(some),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    let name = path.to_string_lossy().into_owned();
                    found.push(Found::Unreadable { name, why: error.to_string() });
                }
            }
        }
        Ok(found)
    }

    /// Returns the state of a file; `None` if it is something else.
    fn look_at(&self, path: &Path) -> io::Result<Option<Found>> {
        let mut metadata = fs::symlink_metadata(path)?;
        if metadata.is_symlink() {
            metadata = fs::metadata(path)?;
            if metadata.is_file()
                && let Some(inside) = &self.inside
                && !path.canonicalize()?.starts_with(inside)
            {
                return Ok(Some(Found::LinkOut { name: path.to_string_lossy().into_owned() }));
            }
        }
        if !metadata.is_file() {
            return Ok(None);
        }
        Ok(Some(Found::File { path: text(path)?, state: state(&metadata), mode: metadata.mode() }))
    }
}

/// Returns a path without its first slash.
fn path_of(path: &Path) -> &[u8] {
    let bytes = path.as_os_str().as_bytes();
    let bytes = bytes.strip_prefix(b"/").unwrap_or(bytes);
    bytes.strip_suffix(b"/").unwrap_or(bytes)
}

fn text(path: &Path) -> io::Result<String> {
    String::from_utf8(path_of(path).to_vec()).map_err(|_| {
        let why = "its name is not UTF-8, and those of objects are; the source `files` reads it";
        io::Error::new(io::ErrorKind::InvalidData, why)
    })
}

/// Returns the state of a file.
pub(crate) fn state(metadata: &fs::Metadata) -> Fingerprint {
    let modified = metadata.modified().ok();
    let modified = modified.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
    Fingerprint {
        length: metadata.len(),
        etag: None,
        modified: modified.and_then(|since| i64::try_from(since.as_nanos()).ok()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn walked(prefix: &str, after: Option<&str>, held: usize, at_once: usize) -> Vec<String> {
        let mut walk = Walk::holding(prefix, after, false, held).unwrap();
        let mut all = Vec::new();
        loop {
            let some = walk.next(at_once).unwrap();
            if some.is_empty() {
                return all;
            }
            all.extend(some.into_iter().map(|found| match found {
                Found::File { path, .. } => path,
                Found::Unreadable { name, why } => format!("{name}: {why}"),
                Found::LinkOut { name } => format!("{name} leads out"),
            }));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn files_come_in_the_order_of_their_whole_paths_and_from_behind_any(
            names in prop::collection::vec(prop::collection::vec("[-.0a]{1,2}", 1..4), 0..30),
            (held, at_once) in (1..5usize, 1..5usize),
            (prefix, after) in ("[-0a]{0,2}", prop::option::of("[-.0a/]{0,5}")),
        ) {
            let folder = tempfile::tempdir().unwrap();
            for name in &names {
                let path = name.join("/").replace("..", "b");
                let path = folder.path().join(path);
                // A file may be where a folder was wanted, or the reverse.
                let _ = fs::create_dir_all(path.parent().unwrap()).and_then(|()| fs::write(&path, "x"));
            }
            let root = format!("{}/", folder.path().to_str().unwrap().trim_start_matches('/'));
            let all: BTreeSet<String> = model(folder.path()).into_iter().collect();
            let prefix = format!("{root}{prefix}");
            let after = after.map(|after| format!("{root}{after}"));
            let expected: Vec<&String> = all
                .iter()
                .filter(|path| path.starts_with(&prefix) && after.as_ref().is_none_or(|after| *path > after))
                .collect();
            let found = walked(&prefix, after.as_deref(), held, at_once);
            prop_assert_eq!(found.iter().collect::<Vec<_>>(), expected);
        }
    }

    fn model(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let of = |path: PathBuf| match path.is_dir() {
            true => model(&path),
            false => vec![path.to_str().unwrap().trim_start_matches('/').to_owned()],
        };
        entries.flat_map(of).collect()
    }

    #[test]
    fn drafts_sockets_and_links_to_folders_are_left_out_and_links_to_files_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("file"), "12").unwrap();
        fs::write(path(".file.0123456789abcdef.part"), "").unwrap();
        fs::write(path(".thalweg-0123456789abcdef"), "").unwrap();
        fs::create_dir(path("folder")).unwrap();
        std::os::unix::fs::symlink(path("folder"), path("to_folder")).unwrap();
        std::os::unix::fs::symlink(path("file"), path("to_file")).unwrap();
        std::os::unix::fs::symlink(path("nothing"), path("to_nothing")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        let root = format!("{}/", path_of(folder.path()).escape_ascii());
        assert_eq!(walked(&root, None, 10, 10), [format!("{root}file"), format!("{root}to_file")]);
        assert_eq!(walked(&format!("{root}absent/"), None, 10, 10), [""; 0]);
    }

    #[test]
    fn what_cannot_be_listed_does_not_keep_the_others_from_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("a"), "").unwrap();
        fs::write(root.join("z"), "").unwrap();
        fs::write(folder.path().join("secret"), "").unwrap();
        fs::write(root.join(OsString::from_vec(vec![b'm', 0xff])), "").unwrap();
        std::os::unix::fs::symlink("loop", root.join("loop")).unwrap();
        std::os::unix::fs::symlink("../secret", root.join("out")).unwrap();
        let root = format!("{}/", root.to_str().unwrap().trim_start_matches('/'));
        let shown: Vec<String> =
            walked(&root, None, 10, 1).iter().map(|found| found.replace(&root, "")).collect();
        let expected = [
            "a",
            "/loop: Too many levels of symbolic links (os error 40)",
            "/m\u{fffd}: its name is not UTF-8, and those of objects are; the source `files` reads it",
            "/out leads out",
            "z",
        ];
        assert_eq!(shown, expected);
        let mut walk = Walk::new(&root, None, true).unwrap();
        let found = walk.next(10).unwrap();
        assert_eq!(found.iter().filter(|found| matches!(found, Found::File { .. })).count(), 3);
    }
}
