//! What can be said of writing files into a folder.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::Mistake;

use crate::file_template::{FileTemplate, Variable};

/// How files are written into a folder.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DirectoryOptions {
    /// The folder. It is made if need be.
    #[schemars(example = &"out")]
    pub path: PathBuf,
    /// The name in it, which may lead into folders below. At first that is where each file was below the folder that was
    /// read.
    #[serde(default = "its_name_and_folder")]
    #[schemars(example = "{date}/{name}")]
    pub name: FileTemplate,
    /// What to do where there is a file of that name already.
    #[serde(default)]
    pub on_exists: OnExists,
    /// What to keep of the file beside its content: the times at which it was written and read, its permissions.
    #[serde(default = "all_of_it")]
    pub keep: Vec<Kept>,
    /// Whether each file is on the disk, and not only with the system, before it counts as delivered. It costs about a
    /// millisecond a file and more.
    #[serde(default)]
    pub fsync: bool,
}

/// What to do where there is a file already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnExists {
    /// Replace what was there before the run began. What this run has written is never replaced: if two files have the
    /// same name, the second is called `name-2.jpg`. Neither are other files of a folder that is being read.
    #[default]
    Replace,
    /// Call it `name-2.jpg`, and so on.
    Rename,
    /// Reject the file.
    Error,
    /// Replace it, whatever it is.
    Overwrite,
    /// Leave the one that is there alone: the file counts as delivered.
    Skip,
}

/// What can be kept of a file beside its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// When it was written and read last.
    Times,
    /// Its permissions.
    Mode,
}

impl DirectoryOptions {
    /// What is wrong with them beyond their schema.
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

fn all_of_it() -> Vec<Kept> {
    vec![Kept::Times, Kept::Mode]
}
