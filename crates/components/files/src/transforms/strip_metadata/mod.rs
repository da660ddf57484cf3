//! Removes the metadata of pictures.

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
use thalweg_engine::{
    Component, Context, Cost, Disposition, Error, FileError, FileTransform, FileTransformConfig,
};
use thalweg_media::image::Format;
use thalweg_record::{Content, File, FileState, Temporary};
use thalweg_stream::command::{self, Command};

use crate::content::{Opened, is_other, open, put_on_disk, suffix_of, unwritable};
use crate::directory::draft::Draft;
use crate::mime;

const FAILED: &str = "FILE_METADATA_CAN_NOT_BE_WRITTEN";

/// Removes the metadata of files, such as the author, place and camera of a photo.
///
/// The pixels of a picture stay the same, byte by byte. thalweg itself removes metadata from JPEG, PNG and
/// WebP; it keeps the colour profile and the orientation. `exiftool`, if it is installed, removes metadata
/// from more than a hundred types, as completely as it can.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StripMetadata {
    /// The program that removes the metadata: `auto` (the default), `native` or `exiftool`.
    #[serde(default)]
    with: With,
    /// True to rewrite the file itself. The new file replaces it at once and keeps its permissions. The
    /// default is `false`: the result is another file.
    #[serde(default)]
    in_place: bool,
}

/// The program that removes the metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum With {
    /// thalweg itself if it can, otherwise `exiftool`.
    #[default]
    Auto,
    /// thalweg itself.
    Native,
    /// `exiftool`, which is looked up in the folders of `PATH`.
    Exiftool,
}

impl Component for StripMetadata {
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
}

impl FileTransformConfig for StripMetadata {
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
                    "thalweg itself removes metadata only from JPEG, PNG and WebP, but the file is `{mime}`; use `with: auto` and install exiftool"
                );
                return Err(FileError::coded(FAILED, reason));
            }
            (With::Auto, _) if is_ours => self.strip(file).await?,
            (With::Native, _) => self.strip(file).await?,
            (With::Auto | With::Exiftool, Some(exiftool)) => self.run(exiftool, file).await?,
            (With::Auto, None) => {
                let reason = format!(
                    "removing metadata from `{mime}` needs exiftool, which is not in `PATH`; install exiftool"
                );
                return Err(FileError::coded(FAILED, reason));
            }
            (With::Exiftool, None) => {
                let reason = "exiftool is not in any folder of `PATH`; install it, or use `with: auto`";
                return Err(FileError::coded(FAILED, reason));
            }
        }
        // The type of the file has not changed.
        file.set_mime(mime);
        Ok(Disposition::Continue)
    }
}

impl Stripping {
    async fn strip(&self, file: &mut File) -> Result<(), FileError> {
        let stripped = native::strip(file, &self.context).await?;
        let Some((stripped, _lease)) = stripped else { return Ok(()) };
        let size = stripped.len() as u64;
        if self.replaces(file, |to| io::Write::write_all(to, &stripped))? {
            file.set_content(file.content().clone(), size);
            return Ok(());
        }
        let suffix = suffix_of(Path::new(file.name()));
        let made = self.context.temporary.create(&suffix).and_then(|(mut to, held)| {
            io::Write::write_all(&mut to, &stripped)?;
            Ok(held)
        });
        file.set_content(Content::Temporary(made.map_err(|error| unwritable(&error))?), size);
        Ok(())
    }

    async fn run(&self, exiftool: &Path, file: &mut File) -> Result<(), FileError> {
        put_on_disk(file, &self.context.temporary)?;
        // A bare name may begin with a dash; an absolute path never does.
        let from = file.path().map(std::path::absolute).unwrap_or_else(|| Ok(PathBuf::new()));
        let from = from.map_err(|error| unwritable(&error))?;
        if let Opened::File(file) = open(file)? {
            drop(file);
        }
        let made = self.context.temporary.reserve(&suffix_of(Path::new(file.name())));
        let made: Arc<Temporary> = made.map_err(|error| unwritable(&error))?;
        let arguments: [OsString; 4] = ["-all:all=".into(), "-o".into(), verbatim(made.path()), from.into()];
        let command = Command::new(exiftool, arguments.into());
        command.run().await.map_err(|failure| failure.into_file_error(FAILED))?;
        let found = fs::metadata(made.path()).map_err(|error| {
            FileError::coded(FAILED, format!("exiftool succeeded, but wrote no file: {error}"))
        })?;
        let copy = |to: &mut fs::File| io::copy(&mut fs::File::open(made.path())?, to).map(drop);
        let content = match self.replaces(file, copy)? {
            true => file.content().clone(),
            false => Content::Temporary(made),
        };
        file.set_content(content, found.len());
        Ok(())
    }

    /// Rewrites the file itself if it is to be, and if it is still the one that was read. Returns true if so.
    fn replaces(
        &self,
        file: &File,
        write: impl FnOnce(&mut fs::File) -> io::Result<()>,
    ) -> Result<bool, FileError> {
        match file.content() {
            Content::Path(path) if self.options.in_place => {
                replace(file, path, write).map_err(|error| not_replaced(path, &error))
            }
            _ => Ok(false),
        }
    }
}

/// Doubles percent signs: exiftool would replace them in the output's name by parts of the input's name.
fn verbatim(path: &Path) -> OsString {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let bytes = path.as_os_str().as_bytes();
    let doubled = bytes.iter().flat_map(|byte| std::iter::repeat_n(*byte, 1 + usize::from(*byte == b'%')));
    OsString::from_vec(doubled.collect())
}

/// Writes the new content to a file beside the old one, which then replaces it. A link to the file stays a
/// link. Returns false if the old file is another one by now: it stays.
fn replace(
    file: &File,
    path: &Path,
    write: impl FnOnce(&mut fs::File) -> io::Result<()>,
) -> io::Result<bool> {
    let origin = file.origin();
    let place = origin.opening(path).resolved_place(path)?;
    let mode = fs::symlink_metadata(place.path())?.permissions().mode();
    let mut draft = Draft::new(&place.folder_path(), Some(mode))?;
    write(&mut draft.file)?;
    // Without setuid and setgid: the new file may belong to another user.
    draft.file.set_permissions(fs::Permissions::from_mode(mode & 0o777))?;
    if is_other(origin, path, &place) {
        tracing::warn!(
            "`{}` is not rewritten: it was replaced or changed after it was found. It counts as a new file",
            path.display()
        );
        return Ok(false);
    }
    let change = (origin.path.as_deref() == Some(path)).then(|| origin.begin_change());
    draft.publish(&place.path(), true)?;
    if let Some(change) = change {
        change.end(FileState::of(&draft.file.metadata()?));
    }
    Ok(true)
}

fn not_replaced(path: &Path, error: &io::Error) -> FileError {
    FileError::coded(FAILED, format!("the file at `{}` cannot be rewritten: {error}", path.display()))
}
