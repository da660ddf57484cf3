//! Compresses files.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use async_trait::async_trait;
use flate2::write::GzEncoder;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{
    Component, Context, Cost, Disposition, Error, FileError, FileTransform, FileTransformConfig, Mistake,
};
use thalweg_record::{Content, File};

use crate::content::{Opened, copy, open, temporary_for, unwritable};

/// Compresses files. Their names get the suffix of the format: `.gz` or `.zst`.
///
/// Equal contents always become equal bytes, on every machine and at any time.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Compress {
    /// The compression format. The default is `gzip`.
    #[serde(default)]
    format: Format,
    /// The compression level: 0 to 9 for `gzip` (the default is 6), 1 to 19 for `zstd` (the default is 3).
    /// Higher levels are slower and make smaller files.
    level: Option<u8>,
}

/// A compression format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Format {
    /// gzip (`.gz`), which every program reads.
    #[default]
    Gzip,
    /// Zstandard (`.zst`), which is several times faster and makes smaller files.
    Zstd,
}

impl Format {
    /// The lowest, the highest and the default level.
    fn levels(self) -> (u8, u8, u8) {
        match self {
            Self::Gzip => (0, 9, 6),
            Self::Zstd => (1, 19, 3),
        }
    }

    /// The approximate memory of an encoder in bytes, without the file.
    fn memory(self, level: u8) -> usize {
        match (self, level) {
            (Self::Gzip, _) => 512 << 10,
            (Self::Zstd, ..=4) => 4 << 20,
            (Self::Zstd, ..=12) => 32 << 20,
            (Self::Zstd, _) => 96 << 20,
        }
    }
}

impl Component for Compress {
    const NAME: &'static str = "compress";
    const EXAMPLE: &'static str = r#"
sources:
  logs: { files: { path: "logs/*.log", min_age: 1d } }
pipelines:
  main:
    from: logs
    transforms:
      - compress: { format: zstd, level: 9 }
    to: archive
sinks:
  archive: { directory: { path: archive } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let (least, most, _) = self.format.levels();
        match self.level {
            Some(level) if !(least..=most).contains(&level) => {
                vec![Mistake::new("level", format!("`level` is {level}, but it must be {least} to {most}."))]
            }
            _ => Vec::new(),
        }
    }
}

impl FileTransformConfig for Compress {
    fn cost(&self) -> Cost {
        Cost::Core
    }

    fn build(&self, context: &Context) -> Result<Box<dyn FileTransform>, Error> {
        let level = self.level.unwrap_or(self.format.levels().2);
        Ok(Box::new(Compressing { format: self.format, level, context: context.clone() }))
    }
}

struct Compressing {
    format: Format,
    level: u8,
    context: Context,
}

#[async_trait]
impl FileTransform for Compressing {
    async fn apply(&mut self, file: &mut File) -> Result<Disposition, FileError> {
        let _lease = self.context.memory.reserve(self.format.memory(self.level)).await;
        let from = open(file)?;
        let mut name: OsString = file.name().to_owned();
        name.push(if self.format == Format::Gzip { ".gz" } else { ".zst" });
        let (to, held) = temporary_for(Path::new(&name), &self.context.temporary)?;
        let size = match self.format {
            Format::Gzip => compressed(
                from,
                GzEncoder::new(to, flate2::Compression::new(self.level.into())),
                GzEncoder::finish,
            )?,
            Format::Zstd => {
                let mut encoder =
                    zstd::Encoder::new(to, self.level.into()).map_err(|error| unwritable(&error))?;
                encoder.include_checksum(true).map_err(|error| unwritable(&error))?;
                compressed(from, encoder, zstd::Encoder::finish)?
            }
        };
        file.set_content(Content::Temporary(held), size);
        file.set_name(name);
        Ok(Disposition::Continue)
    }
}

/// Compresses everything that `from` holds; returns the number of compressed bytes.
fn compressed<W: Write>(
    mut from: Opened,
    mut to: W,
    finish: impl FnOnce(W) -> io::Result<fs::File>,
) -> Result<u64, FileError> {
    copy(&mut from, &mut to, unwritable)?;
    let written = finish(to).and_then(|file| file.metadata());
    Ok(written.map_err(|error| unwritable(&error))?.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::testing::{apply_to_file, file_at, file_of, messages, options};

    #[tokio::test]
    async fn what_was_compressed_is_what_it_was_and_its_temporary_file_goes_with_it() {
        let text = b"a line that comes again\n".repeat(10_000);
        for (yaml, name) in [
            ("{}", "x.log.gz"),
            ("{ level: 0 }", "x.log.gz"),
            ("{ format: zstd }", "x.log.zst"),
            ("{ format: zstd, level: 19 }", "x.log.zst"),
        ] {
            let mut file = file_of("x.log", &text);
            assert_eq!(apply_to_file::<Compress>(yaml, &mut file).await, Ok(Disposition::Continue));
            assert_eq!(file.name(), name);
            let path = file.path().unwrap().to_owned();
            let packed = fs::read(&path).unwrap();
            assert_eq!(packed.len() as u64, file.size());
            let mut unpacked = Vec::new();
            if name.ends_with("gz") {
                io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&*packed), &mut unpacked).unwrap();
            } else {
                unpacked = zstd::decode_all(&*packed).unwrap();
            }
            assert!(unpacked == text);
            drop(file);
            assert!(!path.exists());
        }
    }

    #[tokio::test]
    async fn a_file_that_has_gone_is_rejected_and_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, "1").unwrap();
        let mut file = file_at(&path);
        fs::remove_file(&path).unwrap();
        let problem = apply_to_file::<Compress>("{}", &mut file).await.unwrap_err();
        assert_eq!(problem.code, Some("FILE_CAN_NOT_BE_OPENED"));
        assert_eq!((file.name().to_str(), file.path()), (Some("x"), Some(&*path)));
    }

    #[test]
    fn levels_that_there_are_not_are_mistakes() {
        assert_eq!(
            messages(options::<Compress>("{ level: 10 }").check()),
            ["`level` is 10, but it must be 0 to 9."]
        );
        assert_eq!(
            messages(options::<Compress>("{ format: zstd, level: 0 }").check()),
            ["`level` is 0, but it must be 1 to 19."]
        );
        assert!(options::<Compress>("{ format: zstd, level: 19 }").check().is_empty());
    }
}
