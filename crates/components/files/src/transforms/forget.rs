//! Ends the processing of files.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{Component, Context, Disposition, Error, FileError, FileTransform, FileTransformConfig};
use thalweg_record::{File, Outcome};

/// Ends the processing of files without touching them: they stay where they are. Their temporary files are
/// removed.
///
/// Add `for: with_errors` to end only files that were rejected before.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Forget {}

impl Component for Forget {
    const NAME: &'static str = "forget";
    const EXAMPLE: &'static str = r#"
sources:
  photos: { files: { path: "photos/*" } }
pipelines:
  main:
    from: photos
    on_error: carry
    transforms:
      - check_size: { min_bytes: 1B }
      - forget: {}
        for: with_errors
    to: kept
sinks:
  kept: { directory: { path: kept } }
"#;
}

impl FileTransformConfig for Forget {
    fn build(&self, _: &Context) -> Result<Box<dyn FileTransform>, Error> {
        Ok(Box::new(Forget {}))
    }
}

#[async_trait]
impl FileTransform for Forget {
    async fn apply(&mut self, _: &mut File) -> Result<Disposition, FileError> {
        Ok(Disposition::End(Outcome::Filtered))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::testing::{apply_to_file, file_at};

    #[tokio::test]
    async fn it_ends_there_and_stays_where_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, "1").unwrap();
        let mut file = file_at(&path);
        let disposition = apply_to_file::<Forget>("{}", &mut file).await;
        assert_eq!(disposition, Ok(Disposition::End(Outcome::Filtered)));
        file.settle(Outcome::Filtered);
        assert!(path.exists());
    }
}
