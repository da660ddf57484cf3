//! Reduces files to parts of their content.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{ByteRange, ByteSize, List};
use thalweg_engine::{
    Component, Context, Disposition, Error, FileError, FileTransform, FileTransformConfig, Mistake,
    Temporaries,
};
use thalweg_record::{Content, File};

use crate::content::{copy, open, temporary_for, unreadable, unwritable};

/// Reduces each file to parts of its content, one after the other.
///
/// Of files on servers (source `remote_files`), only these parts are fetched.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Slice {
    /// The ranges to keep, each from a start to an end offset in bytes: `0:1KiB`. Either offset may be left
    /// out, and a negative offset counts from the end: `-64KiB:` is the last 64 KiB. A file that is too short
    /// for a range is rejected.
    ranges: List<ByteRange>,
}

impl Component for Slice {
    const NAME: &'static str = "slice";
    const EXAMPLE: &'static str = r#"
sources:
  photos: { files: { path: "photos/*" } }
pipelines:
  main:
    from: photos
    transforms:
      - slice: { ranges: ["0:1KiB", "-1KiB:"] }
    to: ends
sinks:
  ends: { directory: { path: ends } }
"#;

    fn check(&self) -> Vec<Mistake> {
        if self.ranges.is_empty() {
            let help = "Give it at least one range, as `slice: { ranges: [\"0:1KiB\"] }`.";
            return vec![Mistake::new("ranges", "Nothing would be left of the files.").help(help)];
        }
        Vec::new()
    }
}

impl FileTransformConfig for Slice {
    fn build(&self, context: &Context) -> Result<Box<dyn FileTransform>, Error> {
        Ok(Box::new(Slicing { ranges: self.ranges.to_vec(), temporary: context.temporary.clone() }))
    }
}

struct Slicing {
    ranges: Vec<ByteRange>,
    temporary: Temporaries,
}

#[async_trait]
impl FileTransform for Slicing {
    async fn apply(&mut self, file: &mut File) -> Result<Disposition, FileError> {
        let mut from = open(file)?;
        let length = from.size().map_err(|error| unreadable(&error))?;
        let mut spans = Vec::new();
        for range in &self.ranges {
            let Some(span) = range.within(length) else {
                let reason =
                    format!("the range `{range}` is not within the file, which has {}", ByteSize(length));
                return Err(FileError::rejected(reason));
            };
            spans.push(span);
        }
        let (mut to, held) = temporary_for(Path::new(file.name()), &self.temporary)?;
        let mut size = 0;
        for span in spans {
            from.seek(SeekFrom::Start(span.start)).map_err(|error| unreadable(&error))?;
            let length = span.end - span.start;
            let copied = copy(&mut from.by_ref().take(length), &mut to, unwritable)?;
            if copied != length {
                return Err(unreadable(&io::ErrorKind::UnexpectedEof.into()));
            }
            size += length;
        }
        file.set_content(Content::Temporary(held), size);
        Ok(Disposition::Continue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::testing::{apply_to_file, file_of, messages, options};

    #[tokio::test]
    async fn the_parts_come_one_after_the_other() {
        let mut file = file_of("x", b"0123456789");
        apply_to_file::<Slice>("ranges: ['-3:', '0:2', '4:-5']", &mut file).await.unwrap();
        let mut text = String::new();
        open(&file).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), file.size()), ("789014", 6));
    }

    #[tokio::test]
    async fn a_range_that_is_not_there_is_the_files_fault() {
        let mut file = file_of("x", b"0123456789");
        let problem = apply_to_file::<Slice>("ranges: ['0:11']", &mut file).await.unwrap_err();
        assert_eq!(problem.reason, "the range `:11B` is not within the file, which has 10B");
        assert_eq!(messages(options::<Slice>("ranges: []").check()), ["Nothing would be left of the files."]);
    }
}
