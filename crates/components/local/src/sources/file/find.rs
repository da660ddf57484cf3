//! Finds files by patterns.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use glob::Pattern;
use thalweg_beneath::Beneath;
use thalweg_codec::pattern;
use thalweg_config::Pattern as Regex;
use thalweg_engine::Error;

use super::walk::{MATCHING, Walk, is_link, is_loop, is_pattern};
use thalweg_stream::io_error::io_error;
use thalweg_stream::links::{LinksOut, Symlinks};

/// The identity of a file, which does not change when the file is renamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// The number of its device.
    pub device: u64,
    /// Its inode number on the device.
    pub inode: u64,
}

impl Identity {
    /// Returns the identity of the file with this metadata.
    pub fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }

    /// Returns the partition of its checkpoints.
    pub fn partition(self) -> String {
        format!("{:x}:{:x}", self.device, self.inode)
    }

    /// Returns the file that a partition belongs to.
    pub fn of_partition(partition: &str) -> Option<Self> {
        let (device, inode) = partition.split_once(':')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some(Self { device: number(device)?, inode: number(inode)? })
    }
}

/// A file that was found.
#[derive(Debug, Clone)]
pub struct Found {
    /// Its path.
    pub path: PathBuf,
    /// Its identity.
    pub identity: Identity,
    /// Its size in bytes.
    pub size: u64,
    /// True if it is to be ignored because it was not changed for the time of `max_age`.
    pub is_old: bool,
    /// Opens it.
    pub beneath: Beneath,
}

/// The files that a search has found so far, by path.
type Matches = BTreeMap<PathBuf, (Metadata, Beneath)>;

/// A pattern that no file matches.
#[derive(Debug)]
pub struct Unmatched {
    /// The pattern.
    pub pattern: String,
    /// The first link that matches it and leads out of its constant folder, if there is one.
    pub link: Option<PathBuf>,
}

/// The result of one search.
#[derive(Debug, Default)]
pub struct Findings {
    /// The files, sorted by name. A file with several names or links is listed once.
    pub files: Vec<Found>,
    /// Paths with errors: missing files that were named without a pattern, folders without permission and the
    /// like.
    pub failed: Vec<(PathBuf, io::Error)>,
    /// Links that lead back to a folder above them, or to themselves. They are skipped.
    pub loops: Vec<PathBuf>,
    /// The patterns that no file matches.
    pub unmatched: Vec<Unmatched>,
    /// Folders and files that cannot be read, found by patterns that other files match. They are skipped.
    pub skipped: Vec<(PathBuf, io::Error)>,
    /// Links that lead out of the constant folder of their pattern. They are skipped.
    pub links: LinksOut,
}

/// The files to read.
#[derive(Debug, Clone)]
pub struct Finder {
    paths: Vec<String>,
    /// Patterns of files not to read. True if the pattern applies to the name alone.
    excluded: Vec<(Pattern, bool)>,
    max_age: Option<Duration>,
    symlinks: Symlinks,
    /// The regular expressions for paths to read and for paths not to read.
    regexes: (Option<Regex>, Option<Regex>),
}

impl Finder {
    /// Creates a finder for these paths or patterns. It skips files that `exclude` matches or that were not
    /// changed for `max_age`.
    ///
    /// # Errors
    /// If a pattern is malformed; [`pattern::mistake`] has the message for users.
    pub fn new(paths: Vec<String>, exclude: &[String], max_age: Option<Duration>) -> Result<Self, Error> {
        let parse = |text: &String| match Pattern::new(text) {
            Ok(pattern) => Ok((pattern, !text.contains('/'))),
            Err(error) => {
                let message = pattern::mistake("exclude", text).map(|mistake| mistake.message);
                Err(Error::permanent(message.unwrap_or_else(|| error.to_string())))
            }
        };
        let excluded = exclude.iter().map(parse).collect::<Result<_, _>>()?;
        Ok(Self { paths, excluded, max_age, symlinks: Symlinks::default(), regexes: (None, None) })
    }

    /// Says which links are followed.
    pub fn with_symlinks(self, symlinks: Symlinks) -> Self {
        Self { symlinks, ..self }
    }

    /// Restricts the finder to paths that match `include`, and skips those that match only `exclude`.
    pub fn with_regexes(mut self, include: Option<Regex>, exclude: Option<Regex>) -> Self {
        self.regexes = (include, exclude);
        self
    }

    fn is_excluded(&self, path: &Path) -> bool {
        let found = |regex: &Regex| regex.is_match(path.as_os_str().as_bytes());
        let is_out = match &self.regexes {
            (None, None) => false,
            (Some(include), None) => !found(include),
            (None, Some(exclude)) => found(exclude),
            (Some(include), Some(exclude)) => found(exclude) && !found(include),
        };
        if is_out {
            return true;
        }
        self.excluded.iter().any(|(pattern, by_name)| match (by_name, path.file_name()) {
            (true, Some(name)) => pattern.matches_with(&name.to_string_lossy(), MATCHING),
            _ => pattern.matches_path_with(path, MATCHING),
        })
    }

    fn is_old(&self, metadata: &Metadata) -> bool {
        let age = metadata.modified().ok().and_then(|time| SystemTime::now().duration_since(time).ok());
        self.max_age.zip(age).is_some_and(|(limit, age)| age > limit)
    }

    /// Searches the file system.
    pub fn find(&self) -> Findings {
        let mut findings = Findings::default();
        let mut files = BTreeMap::new();
        for path in &self.paths {
            let literal = Path::new(path);
            if is_pattern(path) {
                self.find_matching(path, &mut files, &mut findings);
                continue;
            }
            match fs::metadata(literal).and_then(readable) {
                Ok(metadata) => {
                    files.insert(literal.to_owned(), (metadata, Beneath::chosen()));
                }
                Err(error) => findings.failed.push((literal.to_owned(), error)),
            }
        }
        let mut seen = std::collections::HashSet::new();
        for (path, (metadata, beneath)) in files {
            let identity = Identity::of(&metadata);
            if !self.is_excluded(&path) && seen.insert(identity) {
                let is_old = self.is_old(&metadata);
                findings.files.push(Found { path, identity, size: metadata.len(), is_old, beneath });
            }
        }
        findings
    }

    /// Adds the files that match a pattern to `files`, and the errors of the search to `findings`. A file may
    /// also have the pattern as its name: `log[1].txt`. (Rejected: only that file then. A file `*.log` would
    /// hide all others.)
    fn find_matching(&self, pattern: &str, files: &mut Matches, findings: &mut Findings) {
        let named = fs::symlink_metadata(pattern).ok().filter(Metadata::is_file);
        let is_named = named.is_some();
        let above = Path::new(pattern).parent().unwrap_or(Path::new(""));
        let named = named.map(|metadata| (metadata, Beneath::new(above, self.symlinks.below())));
        files.extend(named.map(|named| (PathBuf::from(pattern), named)));
        let walk = match Walk::of(pattern, self.symlinks) {
            Ok(walk) => walk,
            Err(_) if is_named => return,
            Err(error) => {
                let error = io::Error::new(ErrorKind::InvalidInput, error.to_string());
                findings.failed.push((PathBuf::from(pattern), error));
                findings.unmatched.push(Unmatched { pattern: pattern.to_owned(), link: None });
                return;
            }
        };
        findings.loops.extend(walk.loops);
        let (mut failed, mut has_matched, mut link) = (walk.failed, is_named, None);
        let beneath = Beneath::new(walk.base.as_path(), self.symlinks.below());
        for path in walk.matches {
            match self.examine(&path, &walk.base) {
                Ok(Examined::File(metadata)) => {
                    has_matched = true;
                    files.insert(path, (metadata, beneath.clone()));
                }
                Ok(Examined::LinkOut) => {
                    findings.links.add(path.to_string_lossy());
                    link.get_or_insert(path);
                }
                Ok(Examined::Other) => {}
                Err(error) if is_loop(&error) => findings.loops.push(path),
                Err(error) => failed.push((path, error)),
            }
        }
        if has_matched {
            findings.skipped.extend(failed);
        } else {
            findings.failed.extend(failed);
            findings.unmatched.push(Unmatched { pattern: pattern.to_owned(), link });
        }
    }

    /// Examines a path that matches a pattern.
    fn examine(&self, path: &Path, base: &Path) -> io::Result<Examined> {
        let metadata = match fs::metadata(path) {
            Ok(metadata) => metadata,
            // A dangling link, or a file that was removed during the search.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(Examined::Other);
            }
            Err(error) => return Err(error),
        };
        if !metadata.is_file() {
            return Ok(Examined::Other);
        }
        Ok(match self.symlinks {
            Symlinks::Skip if is_link(path) => Examined::Other,
            Symlinks::Inside if is_link(path) && self.symlinks.refuses(path, base) => Examined::LinkOut,
            _ => Examined::File(metadata),
        })
    }
}

/// The kind of a path that matches a pattern.
enum Examined {
    File(Metadata),
    /// A link that leads out of the constant folder of the pattern.
    LinkOut,
    /// A folder, a pipe, a device, a link that is not followed, or nothing.
    Other,
}

/// Rejects everything but regular files: a pipe or a device has no position to resume from.
fn readable(metadata: Metadata) -> io::Result<Metadata> {
    if metadata.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    if !metadata.is_file() {
        return Err(io::Error::new(
            ErrorKind::InvalidInput,
            "it is a pipe or a device, not a file; read it with the source `stdin`, as in `thalweg run ... < PATH`",
        ));
    }
    Ok(metadata)
}

/// Returns the error of a run whose file cannot be read.
pub fn unreadable(path: &Path, error: &io::Error) -> Error {
    let shown = path.to_string_lossy();
    if error.kind() == ErrorKind::NotFound && shown.contains('{') {
        return Error::permanent(format!(
            "cannot read `{shown}`: it does not exist. Patterns do not support braces: give a list of paths."
        ));
    }
    io_error("read", path, error)
}

/// Searches a folder for a file by its identity, whatever its name is.
pub fn find_in_folder(folder: &Path, identity: Identity) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?;
    let same =
        |entry: &fs::DirEntry| entry.metadata().is_ok_and(|metadata| Identity::of(&metadata) == identity);
    entries.filter_map(Result::ok).find(same).map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(findings: &Findings) -> Vec<String> {
        findings.files.iter().map(|f| f.path.file_name().unwrap().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn files_are_found_in_folders_below_sorted_once_and_without_the_excluded() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("b/c")).unwrap();
        for name in ["z.log", "a.log", "b/d.log", "b/c/e.log", "b/c/e.log.gz", ".hidden.log", "b/skip.log"] {
            fs::write(root.join(name), name).unwrap();
        }
        std::os::unix::fs::symlink(root.join("a.log"), root.join("y.log")).unwrap();
        std::os::unix::fs::symlink(root.join("nothing"), root.join("x.log")).unwrap();
        let pattern = |end: &str| root.join(end).to_string_lossy().into_owned();
        let paths = vec![pattern("**/*.log"), pattern("*.log")];
        let exclude = ["skip*".to_owned(), pattern("b/c/e*")];
        let findings = Finder::new(paths.clone(), &exclude, None).unwrap().find();
        assert_eq!(names(&findings), ["a.log", "d.log", "z.log"]);
        assert!(findings.failed.is_empty() && findings.unmatched.is_empty());
        let findings = Finder::new(paths, &[], Some(Duration::ZERO)).unwrap().find();
        assert!(findings.files.iter().all(|found| found.is_old));
    }

    #[test]
    fn regular_expressions_say_which_of_what_is_found_is_read() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["sys.log", "sys-new.log", "app.log", "app-new.log"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        let found = |include: Option<&str>, exclude: Option<&str>| {
            let pattern = folder.path().join("*.log").to_string_lossy().into_owned();
            let regex = |text: Option<&str>| text.map(|text| text.parse().unwrap());
            let finder = Finder::new(vec![pattern], &[], None).unwrap();
            names(&finder.with_regexes(regex(include), regex(exclude)).find())
        };
        assert_eq!(found(Some("/sys[^/]*$"), None), ["sys-new.log", "sys.log"]);
        assert_eq!(found(None, Some("/sys[^/]*$")), ["app-new.log", "app.log"]);
        assert_eq!(found(Some("-new"), Some("/sys[^/]*$")), ["app-new.log", "app.log", "sys-new.log"]);
        assert_eq!(found(Some("none"), None), [""; 0]);
    }

    #[test]
    fn a_path_with_the_letters_of_a_pattern_is_taken_as_it_is_if_it_exists() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a[1].log");
        fs::write(&path, "").unwrap();
        let finder = Finder::new(vec![path.to_string_lossy().into_owned()], &[], None).unwrap();
        assert_eq!(names(&finder.find()), ["a[1].log"]);
    }

    #[test]
    fn a_name_that_is_the_pattern_neither_hides_files_nor_leads_out_of_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("in");
        fs::create_dir(&inside).unwrap();
        fs::write(folder.path().join("secret"), "").unwrap();
        fs::write(inside.join("a.log"), "").unwrap();
        let pattern = inside.join("*.log");
        let find = || Finder::new(vec![pattern.to_string_lossy().into_owned()], &[], None).unwrap().find();
        std::os::unix::fs::symlink("../secret", &pattern).unwrap();
        let findings = find();
        assert_eq!((names(&findings), findings.links.is_empty()), (vec!["a.log".to_owned()], false));
        fs::remove_file(&pattern).unwrap();
        fs::write(&pattern, "").unwrap();
        assert_eq!(names(&find()), ["*.log", "a.log"]);
    }

    #[test]
    fn a_file_is_found_by_identity_under_another_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "").unwrap();
        let identity = Identity::of(&fs::metadata(&path).unwrap());
        fs::rename(&path, folder.path().join("b")).unwrap();
        assert_eq!(find_in_folder(folder.path(), identity), Some(folder.path().join("b")));
    }
}
