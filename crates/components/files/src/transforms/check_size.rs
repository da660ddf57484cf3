//! Rejects files that are too small or too large.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::ByteSize;
use thalweg_engine::{
    Component, Context, Disposition, Error, FileError, FileTransform, FileTransformConfig, Mistake,
};
use thalweg_record::File;

use crate::content;

/// Rejects files that are too small or too large. A size equal to a bound is allowed.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckSize {
    /// The minimum size of a file. Without it there is no minimum.
    #[schemars(example = "1B")]
    min_bytes: Option<ByteSize>,
    /// The maximum size of a file. Without it there is no maximum.
    #[schemars(example = "10MiB")]
    max_bytes: Option<ByteSize>,
}

impl Component for CheckSize {
    const NAME: &'static str = "check_size";
    const EXAMPLE: &'static str = r#"
sources:
  photos: { files: { path: "photos/*" } }
pipelines:
  main:
    from: photos
    transforms:
      - check_size: { min_bytes: 1B, max_bytes: 10MiB }
    to: kept
sinks:
  kept: { directory: { path: kept } }
"#;

    fn check(&self) -> Vec<Mistake> {
        match (self.min_bytes, self.max_bytes) {
            (None, None) => vec![
                Mistake::new("", "`check_size` says neither `min_bytes` nor `max_bytes`.")
                    .help("Give it at least one of them, as `check_size: { max_bytes: 10MiB }`."),
            ],
            (Some(min), Some(max)) if min.0 > max.0 => {
                let message = format!("No file has at least {min} and at most {max}.");
                vec![Mistake::new("min_bytes", message).help("Exchange them.")]
            }
            _ => Vec::new(),
        }
    }
}

impl FileTransformConfig for CheckSize {
    fn build(&self, _: &Context) -> Result<Box<dyn FileTransform>, Error> {
        let (min, max) =
            (self.min_bytes.unwrap_or(ByteSize(0)), self.max_bytes.unwrap_or(ByteSize(u64::MAX)));
        Ok(Box::new(Checking { min, max }))
    }
}

struct Checking {
    min: ByteSize,
    max: ByteSize,
}

#[async_trait]
impl FileTransform for Checking {
    async fn apply(&mut self, file: &mut File) -> Result<Disposition, FileError> {
        // The size may have changed since the file was found, and the file may have gone.
        let size = content::size(file)?;
        let (code, words, bound) = match size {
            _ if size < self.min.0 => ("FILE_SIZE_IS_TOO_SMALL", "less than", self.min),
            _ if size > self.max.0 => ("FILE_SIZE_IS_TOO_BIG", "greater than", self.max),
            _ => return Ok(Disposition::Continue),
        };
        let reason = format!("the file's size is {}, which is {words} {bound}", ByteSize(size));
        Err(FileError::coded(code, reason))
    }

    fn only_reads(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::testing::{apply_to_file, file_at, file_of, messages, options};

    #[tokio::test]
    async fn the_bounds_are_allowed_and_what_is_beyond_is_not() {
        for (length, code) in
            [(1, Some("FILE_SIZE_IS_TOO_SMALL")), (2, None), (4, None), (5, Some("FILE_SIZE_IS_TOO_BIG"))]
        {
            let mut file = file_of("x", &vec![0; length]);
            let applied = apply_to_file::<CheckSize>("{ min_bytes: 2B, max_bytes: 4B }", &mut file).await;
            assert_eq!(applied.err().and_then(|problem| problem.code), code, "{length}");
        }
    }

    #[tokio::test]
    async fn a_file_that_has_gone_is_rejected_and_one_that_grew_has_its_new_size() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, "1").unwrap();
        let mut file = file_at(&path);
        std::fs::write(&path, "12345").unwrap();
        let problem = apply_to_file::<CheckSize>("{ max_bytes: 4B }", &mut file).await.unwrap_err();
        assert_eq!(problem.reason, "the file's size is 5B, which is greater than 4B");
        std::fs::remove_file(&path).unwrap();
        // The first one is open.
        let mut other = file.share();
        let problem = apply_to_file::<CheckSize>("{ max_bytes: 4B }", &mut other).await.unwrap_err();
        assert_eq!(problem.reason, "the file cannot be read: it is no longer there");
    }

    #[test]
    fn bounds_that_allow_all_or_nothing_are_mistakes() {
        assert_eq!(
            messages(options::<CheckSize>("{}").check()),
            ["`check_size` says neither `min_bytes` nor `max_bytes`."]
        );
        assert_eq!(
            messages(options::<CheckSize>("{ min_bytes: 2B, max_bytes: 1B }").check()),
            ["No file has at least 2B and at most 1B."]
        );
        assert!(options::<CheckSize>("{ min_bytes: 0B }").check().is_empty());
    }
}
