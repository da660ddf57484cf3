//! The permissions of copies: a copy is never more accessible than the file that it is a copy of.
//!
//! A file can be protected by its own permissions, or by those of a folder that contains it. So new folders
//! get the permissions of the folders that they are copies of. In a folder that lets more users pass than
//! that of the file, the copy itself refuses the others.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::{Beneath, is_link_out};

/// The permissions of all users but the owner: of the group, and of others.
const CLASSES: [u32; 2] = [0o070, 0o007];

/// A file of this machine that is copied into a folder of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyOf {
    /// The file.
    pub file: PathBuf,
    /// The folder that is copied. It contains the file.
    pub root: PathBuf,
    /// The folder that corresponds to `root`.
    pub to: PathBuf,
}

impl CopyOf {
    /// Returns the permissions of the copy in a folder, if the file has these or the user asked for them.
    pub fn mode_in(&self, folder: &Path, mode: u32) -> u32 {
        let source = self.file.parent().and_then(mode_of).unwrap_or(0) & 0o111;
        // The classes that could pass nowhere yet.
        let mut closed = CLASSES.into_iter().filter(|class| source & class == 0).peekable();
        if closed.peek().is_none() {
            return mode;
        }
        let target = mode_of(folder).unwrap_or(0o111) & 0o111;
        closed.filter(|class| target & class != 0).fold(mode, |mode, class| mode & !class)
    }

    /// Returns the permissions of a new folder for the copy.
    fn folder_mode(&self, folder: &Path) -> u32 {
        let Ok(below) = folder.strip_prefix(&self.to) else { return 0o777 };
        let source = self.root.join(below);
        let private = |folder: &Path| mode_of(folder).unwrap_or_default();
        let mode = match self.file.parent().is_some_and(|parent| parent.starts_with(&source)) {
            true => private(&source),
            // The copy has another place than the file: no folder may be less private than any of the file's.
            false => {
                let above = self.file.ancestors().skip(1).take_while(|above| above.starts_with(&self.root));
                above.fold(0o777, |mode, folder| mode & private(folder))
            }
        };
        mode & 0o777 | 0o700
    }
}

impl Beneath {
    /// As [`make_folder`], without following links below the folder that this value opens.
    ///
    /// # Errors
    /// As [`make_folder`], and if the path has a link that is not followed.
    pub fn make_folder(
        &self,
        folder: &Path,
        copy: Option<&CopyOf>,
        made: &mut dyn FnMut(&Path) -> io::Result<()>,
    ) -> io::Result<()> {
        if folder == self.folder() {
            return make_folder(folder, copy, made);
        }
        let place = match self.place(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let Some(above) = folder.parent() else { return Err(error) };
                self.make_folder(above, copy, made)?;
                self.place(folder)?
            }
            place => place?,
        };
        let mode = copy.map_or(0o777, |copy| copy.folder_mode(folder));
        match DirBuilder::new().mode(mode).create(place.path()) {
            Ok(()) => made(&place.path()),
            Err(error) => match self.metadata(folder) {
                Ok(found) if found.is_dir() => Ok(()),
                Err(link) if is_link_out(&link) => Err(link),
                Ok(_) | Err(_) => Err(error),
            },
        }
    }
}

fn mode_of(path: &Path) -> Option<u32> {
    fs::metadata(path).ok().map(|found| found.mode())
}

/// Creates a folder and its parents, if they do not exist, for a copy or something else. Calls `made` for
/// each new folder.
///
/// # Errors
/// Those of the system and of `made`.
pub fn make_folder(
    folder: &Path,
    copy: Option<&CopyOf>,
    made: &mut dyn FnMut(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let create =
        || DirBuilder::new().mode(copy.map_or(0o777, |copy| copy.folder_mode(folder))).create(folder);
    let created = match create() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let Some(above) = folder.parent() else { return Err(error) };
            make_folder(above, copy, made)?;
            create()
        }
        created => created,
    };
    match created {
        Ok(()) => made(folder),
        Err(_) if folder.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn make(path: &Path, mode: u32) {
        fs::create_dir(path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_copy_is_as_private_as_the_folders_of_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for (name, mode) in [("in", 0o755), ("in/a", 0o700), ("in/a/b", 0o755), ("open", 0o755)] {
            make(&path(name), mode);
        }
        let copy = CopyOf { file: path("in/a/b/file"), root: path("in"), to: path("x/out") };
        let mut made = Vec::new();
        let mut note = |folder: &Path| {
            made.push(folder.to_owned());
            Ok(())
        };
        make_folder(&path("x/out/a/b"), Some(&copy), &mut note).unwrap();
        make_folder(&path("x/out/other/c"), Some(&copy), &mut note).unwrap();
        let names = ["x", "x/out", "x/out/a", "x/out/a/b", "x/out/other", "x/out/other/c"];
        assert_eq!(made, names.map(path));
        // The user's mask may take away from these.
        let modes = names.map(|name| mode_of(&path(name)).unwrap() & 0o777);
        assert_eq!(modes.map(|mode| mode | 0o055), [0o755, 0o755, 0o755, 0o755, 0o755, 0o755]);
        assert_eq!([modes[2], modes[4], modes[5]], [0o700; 3]);
        let secret = CopyOf { file: path("in/a/file"), ..copy.clone() };
        assert_eq!(secret.mode_in(&path("open"), 0o644), 0o600);
        assert_eq!(secret.mode_in(&path("x/out/a"), 0o644), 0o644);
        assert_eq!(copy.mode_in(&path("open"), 0o640), 0o640);
    }
}
