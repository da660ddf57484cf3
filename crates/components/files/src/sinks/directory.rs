//! `directory`: writes files into a folder.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{Component, Context, Error, FileTransform, FileTransformConfig, Mistake};
use thalweg_record::File;

use crate::directory::names::Names;
use crate::directory::{Directory, DirectoryOptions};

/// Writes files into a folder.
///
/// A file appears there when it is complete, never in part. By default it keeps its place relative to the
/// folder that the source reads, its times and its permissions.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct DirectoryConfig {
    options: DirectoryOptions,
    /// Shared by all workers.
    #[serde(skip)]
    #[schemars(skip)]
    names: Arc<Names>,
}

impl Component for DirectoryConfig {
    const NAME: &'static str = "directory";
    const EXAMPLE: &'static str = r#"
sources:
  photos: { files: { path: "photos/**" } }
pipelines:
  main: { from: photos, to: backup }
sinks:
  backup: { directory: { path: backup, name: "{date}/{folder}{name}" } }
"#;

    fn check(&self) -> Vec<Mistake> {
        self.options.check()
    }
}

impl FileTransformConfig for DirectoryConfig {
    fn target(&self, file: &mut File) -> Option<String> {
        self.options.target(file)
    }

    fn build(&self, context: &Context) -> Result<Box<dyn FileTransform>, Error> {
        let names = self.names.clone();
        Ok(Box::new(Directory::new(self.options.clone(), names, context, true)))
    }
}
