//! Symbolic links in folders that sources read: which are followed, and those that are skipped because they
//! lead out of the folder.

use std::fs;
use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_beneath::Links;

/// The action for symbolic links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Symlinks {
    /// Reads files through links that stay in the folder that is read. Skips links that lead out of it, and
    /// links to folders.
    #[default]
    Inside,
    /// Reads files through all links, and skips links to folders. A user who may write into the folder can
    /// then have any file read that this process may read.
    Files,
    /// Reads files and folders through links.
    Follow,
    /// Skips all links.
    Skip,
}

impl Symlinks {
    /// Returns which links are followed when a file that was found is opened.
    pub fn below(self) -> Links {
        match self {
            Symlinks::Inside => Links::Inside,
            Symlinks::Files | Symlinks::Follow => Links::Followed,
            Symlinks::Skip => Links::Refused,
        }
    }

    /// True if a link to a file must not be read, because it leads out of the folder that is read.
    pub fn refuses(self, link: &Path, folder: &Path) -> bool {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let is_inside = || Some(fs::canonicalize(link).ok()?.starts_with(fs::canonicalize(folder).ok()?));
        self == Symlinks::Inside && is_inside() != Some(true)
    }
}

/// The links that a walk through a folder has skipped.
#[derive(Debug, Default)]
pub struct LinksOut {
    count: u64,
    first: Option<String>,
}

impl LinksOut {
    /// Counts a link.
    pub fn add(&mut self, link: impl Into<String>) {
        self.count += 1;
        self.first.get_or_insert_with(|| link.into());
    }

    /// True if no link was skipped.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Reports the links of a source, if there are any. `option` is the one that reads them, in backticks.
    pub fn report(&self, source: &str, option: &str) {
        let (count, Some(first)) = (self.count, &self.first) else { return };
        match count {
            1 => tracing::warn!(
                "`{source}`: the link `{first}` leads out of the folder that is read, and was skipped. {option} reads it"
            ),
            _ => tracing::warn!(
                "`{source}`: {count} links lead out of the folder that is read, and were skipped: the first is \
                 `{first}`. {option} reads them"
            ),
        }
    }
}
