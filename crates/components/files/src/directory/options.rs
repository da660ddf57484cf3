//! The options for writing files into a folder.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::List;
use thalweg_engine::Mistake;
use thalweg_record::File;

use super::path::path_below;
use crate::file_template::{FileTemplate, Variable};

/// How files are written into a folder.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DirectoryOptions {
    /// The folder. It is created if it does not exist.
    #[schemars(example = &"out")]
    pub path: PathBuf,
    /// The name of the file in the folder: a template with properties of the file, which the page
    /// "Configuration" lists. It may contain subfolders. The default is `{folder}{name}`: the file keeps its
    /// place relative to the folder that the source reads.
    #[serde(default = "its_name_and_folder")]
    #[schemars(example = "{date}/{name}")]
    pub name: FileTemplate,
    /// The action if a file of that name exists. The default is `replace`; for files of a source that gets
    /// them only once, such as uploads, and beside `remove`, it is `rename`.
    pub existing: Option<Existing>,
    /// The properties to keep beside the content: `times` (last modified, last read) and `mode`
    /// (permissions). The default is both. A copy is never more accessible than its source: new folders have
    /// at most the permissions of the folders that they are copies of.
    #[serde(default = "all_of_it")]
    pub keep: List<Kept>,
    /// Whether each file is flushed to the disk before it counts as delivered. The default is `false`.
    /// Flushing takes about a millisecond for each file, or more.
    #[serde(default)]
    pub fsync: bool,
}

/// The action if the file exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Existing {
    /// Replaces files from before the run. A file that this run has written is never replaced: the second
    /// file of that name becomes `name-2.jpg`. The same applies to other files in a folder that is being
    /// read, and, with `--state`, to files that earlier runs wrote from another input file.
    Replace,
    /// Writes `name-2.jpg`, `name-3.jpg` and so on.
    Rename,
    /// Rejects the file.
    Error,
    /// Replaces every existing file, even if this run wrote it.
    Overwrite,
    /// Keeps the existing file. The new one is not written, and counts as delivered.
    Skip,
}

/// A property to keep beside the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// The times of the last modification and of the last read.
    Times,
    /// The permissions.
    Mode,
}

impl DirectoryOptions {
    /// Returns the path of a file if nothing is there yet.
    pub fn target(&self, file: &mut File) -> Option<String> {
        let name = self.name.render(file).ok()?;
        Some(path_below(&self.path, Path::new(&name)).ok()?.display().to_string())
    }

    /// Returns the mistakes that the schema does not show.
    pub fn check(&self) -> Vec<Mistake> {
        if self.path.as_os_str().is_empty() {
            return vec![
                Mistake::new("path", "The folder has no name.").help("`.` is the one that you are in."),
            ];
        }
        Vec::new()
    }
}

fn its_name_and_folder() -> FileTemplate {
    FileTemplate::of([Variable::Folder, Variable::Name])
}

fn all_of_it() -> List<Kept> {
    vec![Kept::Times, Kept::Mode].into()
}
