//! Walks folders for the files that a pattern matches.
//!
//! The walk of the crate `glob` panics at a name that is not UTF-8, and fails at a link that leads back to a
//! folder above it. Both happen in folders that others write to, and one such name must not keep a service
//! from all other files. So only the matching of names is the crate's.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern, PatternError};
use rustix::io::Errno;

use super::find::Identity;
use thalweg_stream::links::Symlinks;

/// Matches as shells do: `*` does not cross folders, and does not match a leading dot.
pub(super) const MATCHING: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };

/// A part of a pattern between two slashes.
#[derive(Debug)]
enum Segment {
    /// `**`: any number of folders, including none.
    Folders,
    /// A name without wildcards.
    Name(String),
    Wildcard(Pattern),
}

/// True if a path is a pattern for several files.
pub(super) fn is_pattern(path: &str) -> bool {
    path.contains(['*', '?', '['])
}

/// True if links lead to a path again and again.
pub(super) fn is_loop(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

/// The results of a walk.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// The paths that match, in no order. They may be folders.
    pub(super) matches: Vec<PathBuf>,
    /// The folders that could not be read.
    pub(super) failed: Vec<(PathBuf, io::Error)>,
    /// Links that lead back to a folder above them. They are not followed.
    pub(super) loops: Vec<PathBuf>,
    /// The constant folder at the beginning of the pattern.
    pub(super) base: PathBuf,
    symlinks: Symlinks,
}

impl Walk {
    /// Finds all paths that match a pattern. Below its constant folder, links to folders are only followed if
    /// `symlinks` says so.
    ///
    /// # Errors
    /// If the pattern is malformed.
    pub(super) fn of(pattern: &str, symlinks: Symlinks) -> Result<Self, PatternError> {
        let mut segments = Vec::new();
        for text in pattern.split('/').filter(|text| !text.is_empty() && *text != ".") {
            segments.push(match text {
                "**" if matches!(segments.last(), Some(Segment::Folders)) => continue,
                "**" => Segment::Folders,
                text if is_pattern(text) => Segment::Wildcard(Pattern::new(text)?),
                text => Segment::Name(text.to_owned()),
            });
        }
        let root = Path::new(if pattern.starts_with('/') { "/" } else { "" });
        let names = segments.iter().map_while(|segment| match segment {
            Segment::Name(name) => Some(Path::new(name)),
            _ => None,
        });
        let base = [root].into_iter().chain(names).collect();
        let mut walk = Self { base, symlinks, ..Self::default() };
        walk.visit(root, &segments, &mut Vec::new());
        Ok(walk)
    }

    /// Follows the rest of a pattern from a folder. `above` are the folders that `**` went through.
    fn visit(&mut self, folder: &Path, segments: &[Segment], above: &mut Vec<Identity>) {
        match segments.split_first() {
            None => self.matches.push(folder.to_owned()),
            Some((Segment::Name(name), rest)) => {
                let path = folder.join(name);
                if if rest.is_empty() { exists(&path) } else { self.enters(&path) } {
                    self.visit(&path, rest, above);
                }
            }
            Some((Segment::Wildcard(pattern), rest)) => {
                for path in self.names(folder, |name| pattern.matches_with(name, MATCHING)) {
                    if rest.is_empty() || self.enters(&path) {
                        self.visit(&path, rest, above);
                    }
                }
            }
            Some((Segment::Folders, rest)) => {
                // `**` at the end matches folders only.
                if !rest.is_empty() {
                    self.visit(folder, rest, above);
                    self.descend(folder, segments, above);
                }
            }
        }
    }

    /// True unless a path below the constant folder is a link to a folder that must not be followed.
    fn enters(&self, path: &Path) -> bool {
        self.symlinks == Symlinks::Follow || self.base.starts_with(path) || !is_link(path)
    }

    /// Follows a pattern that begins with `**` in the folders below a folder.
    fn descend(&mut self, folder: &Path, segments: &[Segment], above: &mut Vec<Identity>) {
        let Ok(metadata) = fs::metadata(present(folder)) else { return };
        above.push(Identity::of(&metadata));
        for path in self.names(folder, |name| !name.starts_with('.')) {
            match fs::metadata(&path) {
                Ok(found) if found.is_dir() && !self.enters(&path) => {}
                Ok(found) if found.is_dir() && above.contains(&Identity::of(&found)) => self.loops.push(path),
                Ok(found) if found.is_dir() => self.visit(&path, segments, above),
                // Files, and names that were removed meanwhile. Paths that match are opened and reported
                // later.
                _ => {}
            }
        }
        above.pop();
    }

    /// Returns the paths in a folder whose names are wanted. A name that is not UTF-8 is shown with `U+FFFD`
    /// in place of its invalid bytes.
    fn names(&mut self, folder: &Path, is_wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
        let entries = fs::read_dir(present(folder))
            .and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>());
        match entries {
            Ok(names) => {
                let wanted = names.into_iter().filter(|name| is_wanted(&name.to_string_lossy()));
                wanted.map(|name| folder.join(name)).collect()
            }
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                Vec::new()
            }
            Err(error) if is_loop(&error) => {
                self.loops.push(folder.to_owned());
                Vec::new()
            }
            Err(error) => {
                self.failed.push((folder.to_owned(), error));
                Vec::new()
            }
        }
    }
}

/// True unless it is sure that there is nothing with this path.
fn exists(path: &Path) -> bool {
    !fs::symlink_metadata(path).is_err_and(|error| is_missing(&error))
}

/// True if the path is a symbolic link.
pub(super) fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink())
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// The path of a folder for the system, which does not take an empty one.
fn present(folder: &Path) -> &Path {
    if folder == Path::new("") { Path::new(".") } else { folder }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    fn walk(root: &Path, pattern: &str) -> (Vec<PathBuf>, Vec<PathBuf>) {
        walk_with(root, pattern, Symlinks::Follow)
    }

    fn walk_with(root: &Path, pattern: &str, symlinks: Symlinks) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let walk = Walk::of(&format!("{}/{pattern}", root.display()), symlinks).unwrap();
        assert!(walk.failed.is_empty(), "{:?}", walk.failed);
        let below = |paths: Vec<PathBuf>| {
            let mut below: Vec<PathBuf> =
                paths.iter().map(|path| path.strip_prefix(root).unwrap().to_owned()).collect();
            below.sort();
            below
        };
        (below(walk.matches), below(walk.loops))
    }

    #[test]
    fn a_name_that_is_not_utf_8_is_found_like_others() {
        let folder = tempfile::tempdir().unwrap();
        let odd = OsStr::from_bytes(b"bad\xff");
        fs::write(folder.path().join(odd), "x").unwrap();
        fs::write(folder.path().join("good"), "x").unwrap();
        fs::create_dir(folder.path().join(OsStr::from_bytes(b"sub\xfe"))).unwrap();
        let deep = PathBuf::from(OsStr::from_bytes(b"sub\xfe/deep"));
        fs::write(folder.path().join(&deep), "x").unwrap();
        for (pattern, expected) in [
            ("*d?", vec![odd.into()]),
            ("bad*", vec![odd.into()]),
            ("goo[a-d]", vec!["good".into()]),
            ("**/deep", vec![deep]),
        ] {
            assert_eq!(walk(folder.path(), pattern).0, expected, "{pattern}");
        }
    }

    #[test]
    fn a_link_that_leads_back_is_skipped_and_a_link_to_another_folder_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (root, link) = (folder.path(), std::os::unix::fs::symlink::<&Path, PathBuf>);
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/x.log"), "x").unwrap();
        link(root, root.join("a/b/up")).unwrap();
        link(Path::new("self"), root.join("self")).unwrap();
        link(&root.join("a/b"), root.join("other")).unwrap();
        let (matches, loops) = walk(root, "**/*.log");
        assert_eq!(matches, [Path::new("a/b/x.log"), Path::new("other/x.log")]);
        assert_eq!(loops, [Path::new("a/b/up"), Path::new("other/up")]);
        assert_eq!(walk(root, "self/*.log").1, [Path::new("self")]);
        for pattern in ["**/*.log", "*/x.log", "o*/x.log"] {
            let found = walk_with(root, pattern, Symlinks::Inside).0;
            assert!(!found.iter().any(|path| path.starts_with("other")), "{pattern}");
        }
        // The constant folder may be a link.
        assert_eq!(walk_with(root, "other/*.log", Symlinks::Inside).0, [Path::new("other/x.log")]);
    }

    #[test]
    fn wildcards_match_as_in_a_shell() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/.hidden/c")).unwrap();
        for name in ["1", "a/2", "a/.3", "a/.hidden/4", "a/.hidden/c/5"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        for (pattern, expected) in [
            ("*", &["1", "a"][..]),
            ("./*/*", &["a/2"]),
            ("**/*", &["1", "a", "a/2"]),
            ("**/**/2", &["a/2"]),
            ("a/**", &[]),
            ("*/.[0-9]", &["a/.3"]),
            ("a/.hidden/**/*", &["a/.hidden/4", "a/.hidden/c", "a/.hidden/c/5"]),
            ("none/*", &[]),
            ("1/*", &[]),
        ] {
            let found = walk(folder.path(), pattern).0;
            assert_eq!(found, expected.iter().map(PathBuf::from).collect::<Vec<_>>(), "{pattern}");
        }
        assert!(Walk::of("a[", Symlinks::Inside).is_err());
    }
}
