//! The places of objects in a folder of this machine.
//!
//! In a store, any path is free that no object has. In a folder, no object can be below a file, or below a
//! path at which an object appears when it is complete. And a link may lead out of the folder. So the place
//! of a name is checked before its first message is accepted: the messages of an impossible name are
//! rejected, and only these. (Rejected: the error of the write. An object is moved into its place after its
//! messages were accepted, so the run would end, and each later one.)
//!
//! The folders of an accepted object are created at once. An object that would have the path of one of them
//! gets another number.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use thalweg_beneath::{Beneath, Links};

/// Checks where objects can be whose names messages decide.
pub(super) struct Places {
    /// The folder that the configuration names, with a slash at its end. Its own path may have links.
    root: String,
    beneath: Beneath,
    /// The paths of sealed objects: there is no file yet.
    sealed: HashSet<String>,
}

impl Places {
    /// Creates the check for objects in a folder.
    pub(super) fn below(root: String) -> Self {
        Self { beneath: Beneath::new(whole(&root), Links::Refused), root, sealed: HashSet::new() }
    }

    /// Notes that an object appears at a path when a checkpoint covers it.
    pub(super) fn seal(&mut self, path: &str) {
        self.sealed.insert(path.to_owned());
    }

    /// Forgets a sealed object: there is a file now.
    pub(super) fn complete(&mut self, path: &str) {
        self.sealed.remove(path);
    }

    /// Prepares the place of an object. `is_due` tells whether an open object has a path. Blocks the thread.
    ///
    /// # Errors
    /// The reason why no object can be there.
    pub(super) fn prepare(&self, path: &str, is_due: impl Fn(&str) -> bool) -> Result<(), String> {
        let mut above = None;
        for (slash, _) in path.match_indices('/').filter(|(slash, _)| *slash >= self.root.len()) {
            let folder = &path[..slash];
            if self.sealed.contains(folder) || is_due(folder) {
                return Err(format!("`/{folder}` is the path of another file, and cannot be a folder"));
            }
            let found = fs::symlink_metadata(whole(folder)).map(|found| found.file_type());
            match found {
                Ok(found) if found.is_symlink() => return Err(is_not(folder, "a symbolic link", "a folder")),
                Ok(found) if !found.is_dir() => return Err(is_not(folder, "a file", "a folder")),
                // The write says what else is wrong.
                Ok(_) | Err(_) => above = Some(folder),
            }
        }
        if fs::symlink_metadata(whole(path)).is_ok_and(|found| found.is_symlink()) {
            return Err(is_not(path, "a symbolic link", "a file"));
        }
        if let Some(folder) = above {
            // The same.
            let _ = self.beneath.make_folder(&whole(folder), None, &mut |_| Ok(()));
        }
        Ok(())
    }
}

fn is_not(path: &str, found: &str, wanted: &str) -> String {
    format!("`/{path}` is {found}, not {wanted}: remove it, or choose another name")
}

fn whole(path: &str) -> PathBuf {
    Path::new("/").join(path)
}
