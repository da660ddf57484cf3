//! Converts pictures to another type or size.
//!
//! The crate `media` works on the pixels. This module reserves memory for a picture before it is read, and
//! writes the result to a temporary file.

mod options;
mod paid;
#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{
    Component, Context, Cost, Disposition, Error, FileError, FileTransform, FileTransformConfig, Mistake,
};
use thalweg_media::image::{self, Conversion, Format, external};
use thalweg_record::{Content, File, Temporary};
use thalweg_stream::command::Command;

use crate::content::{open, open_path, put_on_disk, temporary_for, unreadable, unwritable};
use crate::mime;
use options::{Fit, ImageType, Quality, Same};

const FAILED: &str = "BIMG_IMAGE_PROCESSOR_ERROR";

/// The timeout of an external program that reads a picture which thalweg itself does not read.
const LONGEST: Duration = Duration::from_secs(300);

/// Converts pictures to another type or size.
///
/// It reads JPEG, PNG, GIF, WebP, TIFF and HEIC. It also reads AVIF if libheif's programs, libvips or
/// ImageMagick are installed. Of an animation, the first picture is converted. The file's name gets the
/// suffix of its new type.
///
/// A picture is decoded only when the memory budget has capacity for its pixels. A picture that needs more
/// than the whole budget is rejected.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConvertImage {
    /// The type to convert to: `jpeg`, `png`, `webp`, `gif`, `tiff`, `avif` or `heic`.
    to: ImageType,
    /// The quality, for types with lossy compression: `best` (100), `high` (75), `medium` (50), `low` (25),
    /// or a number from 1 to 100. The default is `high`.
    #[serde(default)]
    quality: Quality,
    /// How long to search for a smaller file: from 0, the fastest, to 6, the smallest file. The default is 2.
    effort: Option<u8>,
    /// The new width in pixels. With only a width or only a height, the proportions are kept.
    width: Option<u32>,
    /// The new height in pixels.
    height: Option<u32>,
    /// How the picture is fitted if both `width` and `height` are given. The default is `inside`.
    #[serde(default)]
    fit: Fit,
    /// True to enlarge pictures that are smaller than `width` and `height`. The default is `false`.
    #[serde(default)]
    enlarge: bool,
    /// True to rotate pictures upright, as their metadata says. The default is `true`.
    #[serde(default = "yes")]
    rotate: bool,
    /// True to remove metadata. Colour profiles stay. The default is `false`.
    #[serde(default)]
    strip: bool,
    /// How pictures are treated that already have the type `to`. The default is `keep`.
    #[serde(default)]
    same: Same,
}

fn yes() -> bool {
    true
}

impl Component for ConvertImage {
    const NAME: &'static str = "convert_image";
    const EXAMPLE: &'static str = r#"
sources:
  photos: { files: { path: "photos/*.jpg" } }
pipelines:
  main:
    from: photos
    transforms:
      - convert_image: { to: webp, quality: high, width: 1600, strip: true }
    to: web
sinks:
  web: { directory: { path: web } }
"#;

    fn check(&self) -> Vec<Mistake> {
        self.mistakes()
    }
}

impl FileTransformConfig for ConvertImage {
    fn cost(&self) -> Cost {
        Cost::Core
    }

    fn build(&self, context: &Context) -> Result<Box<dyn FileTransform>, Error> {
        Ok(Box::new(Converting { conversion: self.conversion(), same: self.same, context: context.clone() }))
    }
}

struct Converting {
    conversion: Conversion,
    same: Same,
    context: Context,
}

#[async_trait]
impl FileTransform for Converting {
    async fn apply(&mut self, file: &mut File) -> Result<Disposition, FileError> {
        let mime = mime::of(file)?;
        let to = self.conversion.to;
        let Some(from) = Format::from_mime(&mime) else {
            return Err(failed(format!("the file is not a picture of a supported type: it is `{mime}`")));
        };
        if from == to && self.same == Same::Keep && self.conversion.size.is_none() {
            return Ok(Disposition::Continue);
        }
        let (made, _lease) = if needs_program(file, from)? {
            put_on_disk(file, &self.context.temporary)?;
            let png = self.to_png(file, from).await?;
            let upright = Conversion { is_upright: true, ..self.conversion };
            paid::convert(|| open_path(png.path()), &upright, &self.context).await?
        } else {
            paid::convert(|| open(file), &self.conversion, &self.context).await?
        };
        let name = renamed(file.name(), to);
        let (mut written, held) = temporary_for(Path::new(&name), &self.context.temporary)?;
        written.write_all(&made).map_err(|error| unwritable(&error))?;
        file.set_content(Content::Temporary(held), made.len() as u64);
        file.set_name(name);
        file.set_mime(to.mime());
        Ok(Disposition::Continue)
    }
}

impl Converting {
    /// Runs an external program that converts a picture which thalweg itself does not read to PNG.
    async fn to_png(&self, file: &File, from: Format) -> Result<std::sync::Arc<Temporary>, FileError> {
        drop(open(file)?);
        let reserve =
            |suffix: &str| self.context.temporary.reserve(suffix).map_err(|error| unwritable(&error));
        // Some programs look for options in a file's name, so the program gets a link whose name has none.
        let link = reserve(&format!(".{}", from.extension()))?;
        let path =
            std::path::absolute(file.path().unwrap_or(Path::new(""))).map_err(|error| unwritable(&error))?;
        std::os::unix::fs::symlink(path, link.path()).map_err(|error| unwritable(&error))?;
        let png = reserve(".png")?;
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let Some(command) = external::to_png(std::env::split_paths(&folders), link.path(), png.path()) else {
            return Err(failed(format!("{from} is not read by thalweg itself; {}", external::INSTALL)));
        };
        let command = Command { timeout: Some(LONGEST), ..Command::new(command.program, command.arguments) };
        command.run().await.map_err(|failure| failure.into_file_error(FAILED))?;
        Ok(png)
    }
}

/// True if thalweg itself does not read the picture. HEIF is a container, of whose pictures it reads those of
/// HEVC.
fn needs_program(file: &File, from: Format) -> Result<bool, FileError> {
    if !matches!(from, Format::Avif | Format::Heic) {
        return Ok(false);
    }
    let head = open(file)?.head(paid::HEAD).map_err(|error| unreadable(&error))?;
    Ok(image::probe(&head).map_or(from == Format::Avif, |info| info.needs_program))
}

fn failed(reason: impl ToString) -> FileError {
    FileError::coded(FAILED, reason.to_string())
}

/// Returns the name with the suffix of a type. A suffix that does not belong to a type stays, as in `holiday
/// 2024.05`.
fn renamed(name: &OsStr, to: Format) -> OsString {
    let path = Path::new(name);
    let extension = path.extension().and_then(OsStr::to_str).unwrap_or_default().to_ascii_lowercase();
    let others: &[&str] = match to {
        Format::Jpeg => &["jpg", "jpeg", "jpe", "jfif"],
        Format::Tiff => &["tif", "tiff"],
        Format::Heic => &["heic", "heif"],
        _ => &[],
    };
    let is_ending = (1..=5).contains(&extension.len())
        && extension.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && extension.bytes().any(|byte| byte.is_ascii_alphabetic());
    if extension == to.extension() || others.contains(&extension.as_str()) {
        name.to_owned()
    } else if is_ending {
        path.with_extension(to.extension()).into_os_string()
    } else {
        let mut name = name.to_owned();
        name.push(".");
        name.push(to.extension());
        name
    }
}
