//! Pictures without what they tell beside their pixels.

mod native;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{Context, Cost, Disposition, Error, FileError, FileTransform, FileTransformConfig};
use thalweg_media::image::Format;
use thalweg_record::{Content, File, Temporary};

use crate::command::{self, Command};
use crate::content::{Opened, open, put_on_disk, suffix_of, unwritable};
use crate::directory::draft::Draft;
use crate::mime;

const FAILED: &str = "FILE_METADATA_CAN_NOT_BE_WRITTEN";

/// Removes what files tell beside their content: who took a photo, where, and with what.
///
/// The pixels of a picture stay what they are, byte by byte. So does its colour profile, and which way up it is, where thalweg
/// itself does it: that is for JPEG, PNG and WebP. `exiftool` does it for more than a hundred types, where it is installed, and
/// removes all that it knows to remove.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StripMetadata {
    /// Who does it.
    #[serde(default)]
    with: With,
    /// Whether the file itself is rewritten, where it lies. It is replaced at once by the new one, and keeps its permissions.
    /// Otherwise the file that goes on is another.
    #[serde(default)]
    in_place: bool,
}

/// Who removes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum With {
    /// thalweg where it can; otherwise `exiftool`.
    #[default]
    Auto,
    /// thalweg itself.
    Native,
    /// `exiftool`, looked for in the folders of `PATH`.
    Exiftool,
}

impl FileTransformConfig for StripMetadata {
    const NAME: &'static str = "strip_metadata";
    const EXAMPLE: &'static str = r#"
sources:
  photos: { files: { path: "photos/*.jpg" } }
pipelines:
  main:
    from: photos
    transforms:
      - strip_metadata: {}
    to: public
sinks:
  public: { directory: { path: public } }
"#;

    fn cost(&self) -> Cost {
        Cost::Core
    }

    fn build(&self, context: &Context) -> Result<Box<dyn FileTransform>, Error> {
        static EXIFTOOL: OnceLock<Option<PathBuf>> = OnceLock::new();
        let exiftool = EXIFTOOL.get_or_init(|| command::find("exiftool")).clone();
        Ok(Box::new(Stripping { options: self.clone(), exiftool, context: context.clone() }))
    }
}

struct Stripping {
    options: StripMetadata,
    exiftool: Option<PathBuf>,
    context: Context,
}

#[async_trait]
impl FileTransform for Stripping {
    async fn apply(&mut self, file: &mut File) -> Result<Disposition, FileError> {
        let mime = mime::of(file)?;
        let is_ours = matches!(Format::from_mime(&mime), Some(Format::Jpeg | Format::Png | Format::Webp));
        match (self.options.with, &self.exiftool) {
            (With::Native, _) if !is_ours => {
                let reason = format!(
                    "metadata is removed from JPEG, PNG and WebP, and this is `{mime}`; use `with: auto` and install exiftool"
                );
                return Err(FileError::coded(FAILED, reason));
            }
            (With::Auto, _) if is_ours => self.strip(file).await?,
            (With::Native, _) => self.strip(file).await?,
            (With::Auto | With::Exiftool, Some(exiftool)) => self.run(exiftool, file).await?,
            (With::Auto, None) => {
                let reason =
                    format!("nothing here removes metadata from `{mime}`; install exiftool, which may");
                return Err(FileError::coded(FAILED, reason));
            }
            (With::Exiftool, None) => {
                let reason = "exiftool is in no folder of `PATH`; install it, or use `with: auto`";
                return Err(FileError::coded(FAILED, reason));
            }
        }
        // What it is has not changed.
        file.set_mime(mime);
        Ok(Disposition::Continue)
    }
}

impl Stripping {
    async fn strip(&self, file: &mut File) -> Result<(), FileError> {
        let stripped = native::strip(file, &self.context).await?;
        let Some((stripped, _lease)) = stripped else { return Ok(()) };
        let size = stripped.len() as u64;
        match file.content() {
            Content::Path(path) if self.options.in_place => {
                let path = path.clone();
                replace(&path, |to| io::Write::write_all(to, &stripped))
                    .map_err(|error| not_replaced(&path, &error))?;
                file.set_content(Content::Path(path), size);
            }
            _ => {
                let suffix = suffix_of(Path::new(file.name()));
                let made = self.context.temporary.create(&suffix).and_then(|(mut to, held)| {
                    io::Write::write_all(&mut to, &stripped)?;
                    Ok(held)
                });
                file.set_content(Content::Temporary(made.map_err(|error| unwritable(&error))?), size);
            }
        }
        Ok(())
    }

    async fn run(&self, exiftool: &Path, file: &mut File) -> Result<(), FileError> {
        put_on_disk(file, &self.context.temporary)?;
        // A name alone may begin with a dash; a whole path never does.
        let from = file.path().map(std::path::absolute).unwrap_or_else(|| Ok(PathBuf::new()));
        let from = from.map_err(|error| unwritable(&error))?;
        if let Opened::File(file) = open(file)? {
            drop(file);
        }
        let made = self.context.temporary.reserve(&suffix_of(Path::new(file.name())));
        let made: Arc<Temporary> = made.map_err(|error| unwritable(&error))?;
        let arguments: [OsString; 4] = ["-all:all=".into(), "-o".into(), verbatim(made.path()), from.into()];
        Command::new(exiftool, arguments.into()).run().await.map_err(|failure| {
            if failure.is_temporary() {
                FileError::Failed(Error::temporary(failure.to_string()))
            } else {
                FileError::coded(FAILED, failure.to_string())
            }
        })?;
        let found = fs::metadata(made.path()).map_err(|error| {
            FileError::coded(FAILED, format!("exiftool ended well, but made no file: {error}"))
        })?;
        match file.content() {
            Content::Path(path) if self.options.in_place => {
                let path = path.clone();
                let copied = replace(&path, |to| io::copy(&mut fs::File::open(made.path())?, to).map(drop));
                copied.map_err(|error| not_replaced(&path, &error))?;
                file.set_content(Content::Path(path), found.len());
            }
            _ => file.set_content(Content::Temporary(made), found.len()),
        }
        Ok(())
    }
}

/// exiftool takes percent signs in the name of what it makes for parts of the name of what it reads.
fn verbatim(path: &Path) -> OsString {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let bytes = path.as_os_str().as_bytes();
    let doubled = bytes.iter().flat_map(|byte| std::iter::repeat_n(*byte, 1 + usize::from(*byte == b'%')));
    OsString::from_vec(doubled.collect())
}

/// Writes a file anew, beside itself first. Where a link leads to it, the link stays.
fn replace(path: &Path, write: impl FnOnce(&mut fs::File) -> io::Result<()>) -> io::Result<()> {
    let path = fs::canonicalize(path)?;
    let mode = fs::metadata(&path)?.permissions().mode();
    let mut draft = Draft::new(path.parent().unwrap_or(Path::new("/")))?;
    write(&mut draft.file)?;
    draft.file.set_permissions(fs::Permissions::from_mode(mode))?;
    draft.publish(&path, true)
}

fn not_replaced(path: &Path, error: &io::Error) -> FileError {
    FileError::coded(FAILED, format!("the file at `{}` cannot be rewritten: {error}", path.display()))
}
