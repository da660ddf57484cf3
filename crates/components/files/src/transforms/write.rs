//! Writes files into a folder and passes them on.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{Component, Context, Error, FileTransform, FileTransformConfig, Mistake};
use thalweg_record::File;

use crate::directory::names::Names;
use crate::directory::{Directory, DirectoryOptions};

/// Writes files into a folder and passes them on unchanged.
///
/// The options are those of the sink `directory`; use that sink if nothing comes after it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Write {
    options: DirectoryOptions,
    /// The names that all workers share.
    #[serde(skip)]
    #[schemars(skip)]
    names: Arc<Names>,
}

impl Component for Write {
    const NAME: &'static str = "write";
    const EXAMPLE: &'static str = r#"
sources:
  reports: { files: { path: "reports/*.csv" } }
pipelines:
  main:
    from: reports
    transforms:
      - write: { path: originals }
      - compress: { format: zstd }
    to: compressed
sinks:
  compressed: { directory: { path: compressed } }
"#;

    fn check(&self) -> Vec<Mistake> {
        self.options.check()
    }
}

impl FileTransformConfig for Write {
    fn has_effects(&self) -> bool {
        true
    }

    fn target(&self, file: &mut File) -> Option<String> {
        self.options.target(file)
    }

    fn build(&self, context: &Context) -> Result<Box<dyn FileTransform>, Error> {
        let names = self.names.clone();
        Ok(Box::new(Directory::new(self.options.clone(), names, context, false)))
    }
}
