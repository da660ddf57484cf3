//! The symbolic link that leads to the current piece.
//!
//! Readers that follow a file open the link again once it leads elsewhere, as `tail -F` does. The link is
//! replaced by a rename, so it exists at every moment and always leads to one whole piece of the name. It is
//! changed only while the lock is held, because the threads that compress pieces change it too.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use thalweg_codec::part_name;

use super::names;

/// The name of the link, for all files of a sink.
#[derive(Debug, Clone)]
pub(super) struct Link {
    pattern: Arc<str>,
    changing: Arc<Mutex<()>>,
}

impl Link {
    pub(super) fn new(pattern: &str) -> Self {
        Self { pattern: pattern.into(), changing: Arc::default() }
    }

    /// True if the pattern gives the name of a file in the folder of the pieces.
    pub(super) fn is_name(pattern: &str) -> bool {
        let name = filled(pattern, "a", ".b");
        !matches!(name.as_str(), "" | "." | "..") && !name.contains(['/', '\0', '{', '}'])
    }

    /// Makes the link of a name lead to a file.
    ///
    /// # Errors
    /// If something else than a link has its name, or the system refuses.
    pub(super) fn lead(&self, name: &str, to: &Path) -> io::Result<()> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        replace(&self.path(name), to)
    }

    /// Makes the link of a name lead to the new name of a file, if it leads to the old one.
    pub(super) fn follow(&self, name: &str, from: &Path, to: &Path) -> io::Result<()> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.path(name);
        match fs::read_link(&path) {
            Ok(leads) if leads == target(&path, from)? => replace(&path, to),
            _ => Ok(()),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        let folder = names::folder(Path::new(name));
        let (stem, extension) = part_name::split(name);
        let stem = stem.rsplit_once('/').map_or(stem, |(_, stem)| stem);
        folder.join(filled(&self.pattern, stem, extension))
    }
}

fn filled(pattern: &str, stem: &str, extension: &str) -> String {
    pattern.replace("{extension}", extension).replace("{stem}", stem)
}

/// Returns the text of a link at `path` that leads to a file: the name alone if the file is beside the link,
/// so that the folder can be moved.
fn target(path: &Path, to: &Path) -> io::Result<PathBuf> {
    match to.file_name() {
        Some(name) if names::folder(path) == names::folder(to) => Ok(name.into()),
        _ => std::path::absolute(to),
    }
}

fn replace(path: &Path, to: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok_and(|found| !found.is_symlink()) {
        let text = format!(
            "`{}` is not a symbolic link: remove it, or choose another name for `link`",
            path.display()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidFilename, text));
    }
    let part = names::part(path);
    // A process that was killed may have left it.
    match fs::remove_file(&part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => symlink(target(path, to)?, &part)?,
    }
    fs::rename(&part, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_leads_to_the_file_beside_it_and_follows_only_that() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let name = at("o.log");
        let name = name.to_str().unwrap();
        let link = Link::new("{stem}_current{extension}");
        fs::write(at("o_current.log.part"), "left by a killed process").unwrap();
        let leads = || fs::read_link(at("o_current.log")).unwrap();
        link.lead(name, &at("o_1.log.part")).unwrap();
        assert_eq!(leads(), Path::new("o_1.log.part"));
        link.follow(name, &at("o_1.log.part"), &at("o_1.log")).unwrap();
        assert_eq!(leads(), Path::new("o_1.log"));
        link.follow(name, &at("o_0.log"), &at("o_0.log.gz")).unwrap();
        assert_eq!(leads(), Path::new("o_1.log"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_with_the_name_of_the_link_stays() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("o.log");
        fs::write(folder.path().join("current"), "a file").unwrap();
        let link = Link::new("current");
        let error = link.lead(name.to_str().unwrap(), &name).unwrap_err().to_string();
        assert!(
            error.ends_with("/current` is not a symbolic link: remove it, or choose another name for `link`"),
            "{error}"
        );
        assert_eq!(fs::read_to_string(folder.path().join("current")).unwrap(), "a file");
    }

    #[test]
    fn a_pattern_is_a_name_in_the_folder_of_the_pieces() {
        for (pattern, is_name) in [
            ("current", true),
            ("{stem}_current{extension}", true),
            ("{stem}{extension}", true),
            ("", false),
            ("..", false),
            ("../current", false),
            ("{service}", false),
        ] {
            assert_eq!(Link::is_name(pattern), is_name, "{pattern}");
        }
    }
}
