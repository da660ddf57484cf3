//! A folder that is opened without links, and its files.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Dir, Mode, OFlags, open, openat};

/// An open folder. Its files are opened in it, whatever becomes of its path.
pub(super) struct Folder(OwnedFd);

impl Folder {
    /// Opens a folder. A link in its place is an error.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self(open(path, flags, Mode::empty())?))
    }

    /// The names in the folder that are texts.
    pub(super) fn names(&self) -> io::Result<impl Iterator<Item = io::Result<String>> + use<>> {
        let entries = Dir::read_from(&self.0)?;
        Ok(entries.filter_map(|entry| match entry {
            Ok(entry) => entry.file_name().to_str().ok().map(|name| Ok(name.to_owned())),
            Err(error) => Some(Err(io::Error::from(error))),
        }))
    }

    /// Opens a file for reading. A link is not followed, and a pipe does not block.
    pub(super) fn file(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(&self.0, name, flags, Mode::empty())?);
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::other(format!("`{name}` is not a regular file"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_link_is_followed_and_the_folder_stays_the_same() {
        let root = tempfile::tempdir().unwrap();
        let (runs, other) = (root.path().join("runs"), root.path().join("other"));
        for folder in [&runs, &other] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("1.json"), folder.display().to_string()).unwrap();
        }
        symlink(other.join("1.json"), runs.join("2.json")).unwrap();
        let folder = Folder::open(&runs).unwrap();
        let mut names: Vec<String> = folder.names().unwrap().collect::<io::Result<_>>().unwrap();
        names.retain(|name| name.ends_with(".json"));
        names.sort();
        assert_eq!(names, ["1.json", "2.json"]);
        assert!(folder.file("2.json").is_err() && folder.file("..").is_err());
        fs::rename(&runs, root.path().join("moved")).unwrap();
        symlink(&other, &runs).unwrap();
        assert_eq!(io::read_to_string(folder.file("1.json").unwrap()).unwrap(), runs.display().to_string());
        assert!(Folder::open(&runs).is_err());
    }
}
