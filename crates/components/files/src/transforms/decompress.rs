//! Decompresses files.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::path::Path;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::ByteSize;
use thalweg_engine::{
    Component, Context, Cost, Disposition, Error, FileError, FileTransform, FileTransformConfig, Mistake,
};
use thalweg_record::{Content, File};

use crate::content::{open, temporary_for, unreadable, unwritable};
use thalweg_codec::decompress::{Compression, Damage, Decoder, Format};

/// Files up to this size, in bytes, are never rejected for their ratio.
const UNSUSPICIOUS: u64 = 1 << 20;

/// Decompresses files. Their names lose the suffix of the format.
///
/// Files of several parts, as `cat a.gz b.gz` writes them, are read to their end. Damaged files are rejected.
/// Files that become too large are rejected as well: a small file could otherwise fill any disk.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Decompress {
    /// The compression format. `auto` (the default) detects it from the first bytes, and files that are not
    /// compressed pass unchanged. With another value, files that do not have this format are rejected.
    #[serde(default)]
    format: Form,
    /// The maximum size of a decompressed file. The default is 16 GiB.
    #[serde(default = "sixteen_gib")]
    max_bytes: ByteSize,
    /// The maximum size of a decompressed file, as a multiple of its compressed size. It applies to files
    /// that become larger than 1 MiB. gzip never reaches more than 1032. The default is 1000.
    #[serde(default = "thousand")]
    max_ratio: u32,
}

/// A compression format of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Form {
    /// The format is detected from the first bytes.
    #[default]
    Auto,
    /// gzip (`.gz`).
    Gzip,
    /// Zstandard (`.zst`).
    Zstd,
}

fn sixteen_gib() -> ByteSize {
    ByteSize::gib(16)
}

fn thousand() -> u32 {
    1000
}

impl Component for Decompress {
    const NAME: &'static str = "decompress";
    const EXAMPLE: &'static str = r#"
sources:
  archive: { files: { path: "archive/*" } }
pipelines:
  main:
    from: archive
    transforms:
      - decompress: { max_bytes: 1GiB }
    to: logs
sinks:
  logs: { directory: { path: logs } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        if self.max_bytes.0 == 0 {
            mistakes.push(
                Mistake::new("max_bytes", "`max_bytes` must be at least 1B.")
                    .help("It is the maximum size of a decompressed file, for example `1GiB`."),
            );
        }
        if self.max_ratio == 0 {
            mistakes.push(
                Mistake::new("max_ratio", "`max_ratio` must be at least 1.")
                    .help("It is how many times as large a file may become, for example 1000."),
            );
        }
        mistakes
    }
}

impl FileTransformConfig for Decompress {
    fn cost(&self) -> Cost {
        Cost::Core
    }

    fn build(&self, context: &Context) -> Result<Box<dyn FileTransform>, Error> {
        Ok(Box::new(Decompressing { options: self.clone(), context: context.clone() }))
    }
}

struct Decompressing {
    options: Decompress,
    context: Context,
}

#[async_trait]
impl FileTransform for Decompressing {
    async fn apply(&mut self, file: &mut File) -> Result<Disposition, FileError> {
        let mut from = open(file)?;
        let head = from.head(4).map_err(|error| unreadable(&error))?;
        let found = Compression::Auto.of(&head).flatten();
        let format = match (self.options.format, found) {
            (Form::Auto, None) => return Ok(Disposition::Continue),
            (Form::Auto, Some(format)) => format,
            (Form::Gzip, Some(Format::Gzip)) => Format::Gzip,
            (Form::Zstd, Some(Format::Zstd)) => Format::Zstd,
            (Form::Gzip, _) => return Err(other(Format::Gzip)),
            (Form::Zstd, _) => return Err(other(Format::Zstd)),
        };
        // The window of files that were compressed with usual settings. A file may ask for sixteen times as
        // much.
        let memory = if format == Format::Gzip { 256 << 10 } else { 8 << 20 };
        let _lease = self.context.memory.reserve(memory).await;
        let name = shortened(file.name());
        let (mut to, held) = temporary_for(Path::new(&name), &self.context.temporary)?;
        let memory = self.context.memory.budget().limit();
        let mut decoder = Decoder::new(format, from).within(memory);
        let mut piece = vec![0; 128 << 10];
        let mut size = 0_u64;
        loop {
            let read = decoder.read(&mut piece).map_err(|error| match Damage::of(&error) {
                Some(damage) => rejected(damage.to_string()),
                None => unreadable(&error),
            })?;
            let Some(got) = piece.get(..read).filter(|got| !got.is_empty()) else { break };
            size += read as u64;
            self.refuse_a_bomb(size, decoder.consumed())?;
            to.write_all(got).map_err(|error| unwritable(&error))?;
        }
        file.set_content(Content::Temporary(held), size);
        file.set_name(name);
        Ok(Disposition::Continue)
    }
}

impl Decompressing {
    fn refuse_a_bomb(&self, size: u64, compressed: u64) -> Result<(), FileError> {
        let Decompress { max_bytes, max_ratio, .. } = self.options;
        if size > max_bytes.0 {
            return Err(rejected(format!("it becomes larger than `max_bytes`, {max_bytes}")));
        }
        if size > UNSUSPICIOUS && size / u64::from(max_ratio) > compressed {
            let compressed = ByteSize(compressed);
            return Err(rejected(format!(
                "it becomes more than {max_ratio} times as large as its compressed form (see `max_ratio`): its first {compressed} become more than {}",
                ByteSize::mib(size >> 20)
            )));
        }
        Ok(())
    }
}

fn rejected(reason: String) -> FileError {
    FileError::coded("FILE_CAN_NOT_BE_DECOMPRESSED", format!("the file cannot be decompressed: {reason}"))
}

fn other(format: Format) -> FileError {
    rejected(format!(
        "it is not a {format} file; with `format: auto`, files that are not compressed pass unchanged"
    ))
}

/// Returns the name without the suffix of a compression format.
fn shortened(name: &OsStr) -> OsString {
    let path = Path::new(name);
    let extension = path.extension().and_then(OsStr::to_str).map(str::to_ascii_lowercase);
    let new = match extension.as_deref() {
        Some("gz" | "zst" | "zstd") => path.with_extension(""),
        Some("tgz" | "tzst") => path.with_extension("tar"),
        _ => return name.to_owned(),
    };
    new.into_os_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use thalweg_engine::testing::{context, file_of, messages, options};
    use thalweg_record::Problem;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// Returns the name and content after decompression, or the problem. Checks that no temporary file is
    /// left.
    async fn decompressed(yaml: &str, name: &str, bytes: &[u8]) -> Result<(String, Vec<u8>), Problem> {
        let context = context();
        let (_, probe) = context.temporary.create("").unwrap();
        let folder = probe.path().parent().unwrap().to_owned();
        let left = || fs::read_dir(&folder).unwrap().count();
        let before = left();
        let mut file = file_of(name, bytes);
        let mut transform = options::<Decompress>(yaml).build(&context).unwrap();
        let result = match transform.apply(&mut file).await {
            Ok(disposition) => {
                assert_eq!(disposition, Disposition::Continue);
                let mut content = Vec::new();
                open(&file).unwrap().read_to_end(&mut content).unwrap();
                assert_eq!(content.len() as u64, file.size());
                Ok((file.name().to_str().unwrap().to_owned(), content))
            }
            Err(FileError::Rejected(problem)) => {
                assert_eq!((file.name().to_str(), file.size()), (Some(name), bytes.len() as u64));
                Err(problem)
            }
            Err(FileError::Failed(error)) => panic!("{error}"),
        };
        drop(file);
        assert_eq!(left(), before);
        result
    }

    #[tokio::test]
    async fn all_parts_are_read_and_the_name_loses_its_ending() {
        let parts = [gzip(b"one "), gzip(b"two")].concat();
        let text = b"one two".to_vec();
        assert_eq!(decompressed("{}", "a.log.GZ", &parts).await, Ok(("a.log".into(), text.clone())));
        let zstd = zstd::encode_all(&*text, 3).unwrap();
        assert_eq!(
            decompressed("{ format: zstd }", "a.tzst", &zstd).await,
            Ok(("a.tar".into(), text.clone()))
        );
        assert_eq!(decompressed("{}", "a.zst", &zstd).await, Ok(("a".into(), text.clone())));
        assert_eq!(decompressed("{}", "a", &zstd).await, Ok(("a".into(), text)));
    }

    #[tokio::test]
    async fn what_is_not_compressed_goes_on_with_auto_and_is_rejected_otherwise() {
        assert_eq!(decompressed("{}", "a.gz", b"text").await, Ok(("a.gz".into(), b"text".to_vec())));
        assert_eq!(decompressed("{}", "a.gz", b"").await, Ok(("a.gz".into(), Vec::new())));
        for (yaml, bytes, name) in
            [("{ format: gzip }", b"text".to_vec(), "gzip"), ("{ format: zstd }", gzip(b"text"), "zstd")]
        {
            let problem = decompressed(yaml, "a.gz", &bytes).await.unwrap_err();
            let expected = format!(
                "the file cannot be decompressed: it is not a {name} file; with `format: auto`, \
                 files that are not compressed pass unchanged"
            );
            assert_eq!(problem.reason, expected);
        }
    }

    #[tokio::test]
    async fn a_bomb_is_refused_and_leaves_nothing_behind() {
        let bomb = zstd::encode_all(&*vec![0; 64 << 20], 19).unwrap();
        let problem = decompressed("{}", "a.zst", &bomb).await.unwrap_err();
        assert_eq!(problem.code, Some("FILE_CAN_NOT_BE_DECOMPRESSED"));
        let expected = "the file cannot be decompressed: it becomes more than 1000 times as large as its \
                        compressed form (see `max_ratio`)";
        assert_eq!(problem.reason.split_once(": its first ").unwrap().0, expected);
        let bomb = gzip(&vec![0; 8 << 20]);
        let problem = decompressed("{ max_ratio: 100 }", "a.gz", &bomb).await.unwrap_err();
        let expected = "the file cannot be decompressed: it becomes more than 100 times as large as its \
                        compressed form (see `max_ratio`)";
        assert_eq!(problem.reason.split_once(": its first ").unwrap().0, expected);
        let problem = decompressed("{ max_bytes: 1MiB, max_ratio: 5000 }", "a.gz", &bomb).await.unwrap_err();
        assert_eq!(
            problem.reason,
            "the file cannot be decompressed: it becomes larger than `max_bytes`, 1MiB"
        );
        let whole = decompressed("{ max_bytes: 8MiB, max_ratio: 5000 }", "a.gz", &bomb).await.unwrap();
        assert_eq!((whole.0.as_str(), whole.1.len()), ("a", 8 << 20));
        // A file that stays small is allowed at any ratio.
        let small = decompressed("{ max_ratio: 1 }", "a.gz", &gzip(&vec![0; 1 << 20])).await.unwrap();
        assert_eq!((small.0.as_str(), small.1.len()), ("a", 1 << 20));
    }

    #[tokio::test]
    async fn what_is_damaged_is_rejected() {
        let whole = gzip(&b"text that is long enough".repeat(100));
        let problem = decompressed("{}", "a.gz", &whole[..whole.len() - 9]).await.unwrap_err();
        assert_eq!(
            problem.reason,
            format!(
                "the file cannot be decompressed: its gzip data is truncated: it ends at byte {}, in the middle",
                whole.len() - 9
            )
        );
        let mut longer = whole.clone();
        longer.extend(b"rubbish");
        assert_eq!(
            decompressed("{}", "a.gz", &longer).await.unwrap_err().reason,
            format!(
                "the file cannot be decompressed: its gzip data is corrupt near byte {}: \
                 the bytes after the last valid member are not gzip data",
                whole.len()
            )
        );
        assert_eq!(
            messages(options::<Decompress>("{ max_bytes: 0, max_ratio: 0 }").check()),
            ["`max_bytes` must be at least 1B.", "`max_ratio` must be at least 1."]
        );
    }
}
