//! Walks folders.
//!
//! Only one open folder for each level is held, without its entries. If sorted by name, the remaining entries
//! of each open folder are held.

use std::fs::{self, DirEntry, Metadata, ReadDir};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Folders;
use thalweg_beneath::unfinished::is_unfinished;
use thalweg_beneath::{Beneath, Links};
use thalweg_codec::pattern::Root;
use thalweg_stream::links::Symlinks;

/// How to walk.
#[derive(Debug, Clone, Copy)]
pub struct Walking {
    pub recursive: bool,
    pub symlinks: Symlinks,
    pub hidden: Option<bool>,
    pub sorted: bool,
    pub folders: Folders,
}

/// One result of a walk.
pub enum Step {
    /// A file, or a link to one.
    File {
        /// The path.
        path: PathBuf,
        /// The metadata, of the target if the path is a link.
        metadata: Metadata,
    },
    /// A link to a file outside of the folder that is read.
    LinkOut {
        /// The path of the link.
        path: PathBuf,
    },
    /// An entry that cannot be examined.
    Failed {
        /// The path.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
}

/// A walk through the files of a root.
pub struct Walk<'a> {
    root: &'a Root,
    how: Walking,
    base: Arc<Path>,
    /// How the files that were found are opened.
    opening: Beneath,
    /// The metadata of the root, if the root is a file.
    file: Option<Metadata>,
    open: Vec<Level>,
}

enum Level {
    Unsorted(ReadDir),
    /// In descending order: the next entry is the last.
    Sorted(Vec<DirEntry>),
}

impl Iterator for Level {
    type Item = io::Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Level::Unsorted(entries) => entries.next(),
            Level::Sorted(entries) => entries.pop().map(Ok),
        }
    }
}

impl<'a> Walk<'a> {
    /// Starts a walk.
    ///
    /// # Errors
    /// If the root does not exist or cannot be read.
    pub fn new(root: &'a Root, how: Walking) -> io::Result<Self> {
        let base = root.base();
        let found = fs::metadata(base)?;
        let opening = Beneath::new(base.clone(), how.symlinks.below()).held();
        let mut walk = Self { root, how, base: base.clone(), opening, file: None, open: Vec::new() };
        if found.is_dir() {
            if root.is_pattern() || how.folders == Folders::Enter {
                let level = walk.level(base)?;
                walk.open.push(level);
            }
        } else if !root.is_pattern() {
            if !found.is_file() {
                let message = "it is a pipe or a device, not a file";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
            }
            walk.base = base.parent().unwrap_or(base).into();
            // A path without a pattern is opened as it is written.
            walk.opening = Beneath::new(walk.base.clone(), Links::Followed);
            walk.file = Some(found);
        }
        Ok(walk)
    }

    /// Returns the folder that is read.
    pub fn base(&self) -> &Arc<Path> {
        &self.base
    }

    /// Returns how the files that were found are opened.
    pub fn opening(&self) -> Beneath {
        self.opening.clone()
    }

    fn level(&self, folder: &Path) -> io::Result<Level> {
        let entries = fs::read_dir(folder)?;
        if !self.how.sorted {
            return Ok(Level::Unsorted(entries));
        }
        let mut entries = entries.collect::<io::Result<Vec<_>>>()?;
        entries.sort_by_cached_key(|entry| std::cmp::Reverse(entry.file_name()));
        Ok(Level::Sorted(entries))
    }

    /// Returns the next step.
    pub fn next_step(&mut self) -> Option<Step> {
        if let Some(metadata) = self.file.take() {
            return Some(Step::File { path: self.root.base().to_path_buf(), metadata });
        }
        loop {
            let entry = match self.open.last_mut()?.next() {
                None => {
                    self.open.pop();
                    continue;
                }
                Some(Err(error)) => return Some(Step::Failed { path: self.base.to_path_buf(), error }),
                Some(Ok(entry)) => entry,
            };
            if let Some(step) = self.look_at(&entry) {
                return Some(step);
            }
        }
    }

    fn look_at(&mut self, entry: &DirEntry) -> Option<Step> {
        let path = entry.path();
        let kind = match entry.file_type() {
            Ok(kind) => kind,
            Err(error) => return Some(Step::Failed { path, error }),
        };
        // A run that was killed left it.
        if kind.is_file() && path.file_name().is_some_and(is_unfinished) {
            return None;
        }
        let is_link = kind.is_symlink();
        if is_link && self.how.symlinks == Symlinks::Skip {
            return None;
        }
        if kind.is_file() || is_link {
            if !is_link && !self.finds(&path) {
                return None;
            }
            match if is_link { fs::metadata(&path) } else { entry.metadata() } {
                Ok(metadata)
                    if metadata.is_file()
                        && is_link
                        && self.finds(&path)
                        && self.how.symlinks.refuses(&path, &self.base) =>
                {
                    return Some(Step::LinkOut { path });
                }
                Ok(metadata) if metadata.is_file() && (!is_link || self.finds(&path)) => {
                    return Some(Step::File { path, metadata });
                }
                Ok(metadata) if metadata.is_dir() && self.how.symlinks == Symlinks::Follow => {}
                Ok(_) => return None,
                // The file was deleted meanwhile, or the link is broken.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
                Err(error) => return Some(Step::Failed { path, error }),
            }
            if self.leads_to_itself(&path) {
                return None;
            }
        } else if !kind.is_dir() {
            return None;
        }
        if !self.enters(&path) {
            return None;
        }
        match self.level(&path) {
            Ok(level) => {
                self.open.push(level);
                None
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => Some(Step::Failed { path, error }),
        }
    }

    fn below<'p>(&self, path: &'p Path) -> &'p Path {
        // Paths found in the working directory lack the `./` of the base.
        path.strip_prefix(&self.base).unwrap_or(path)
    }

    fn finds(&self, path: &Path) -> bool {
        if self.root.is_pattern() {
            return self.root.finds(self.below(path), self.how.hidden.unwrap_or(false));
        }
        self.how.hidden.unwrap_or(true) || !is_hidden(path)
    }

    fn enters(&self, path: &Path) -> bool {
        if self.root.is_pattern() {
            return self.root.leads_into(self.below(path), self.how.hidden.unwrap_or(false));
        }
        self.how.recursive && (self.how.hidden.unwrap_or(true) || !is_hidden(path))
    }

    /// True if a link leads to a folder that contains it: such a walk would not end.
    fn leads_to_itself(&self, path: &Path) -> bool {
        match (fs::canonicalize(path), path.parent().map(fs::canonicalize)) {
            (Ok(to), Some(Ok(from))) => from.starts_with(to),
            _ => false,
        }
    }
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}
