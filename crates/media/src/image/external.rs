//! Commands of the system that read other formats: HEIC, whose decoder is under patents, and AVIF.
//!
//! This module runs nothing. It knows which programs can read these formats and their arguments, and looks
//! for them in given folders. The caller runs them, and so controls their time limit and output.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The call of a program that converts a picture to PNG.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The path of the program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

/// Programs that read HEIC and AVIF, the best first. All accept the two files as their last arguments.
const PROGRAMS: &[(&str, &[&str])] =
    &[("heif-dec", &[]), ("heif-convert", &[]), ("vips", &["copy"]), ("magick", &[])];

/// The advice if none of them is installed.
pub const INSTALL: &str =
    "install `libheif-examples` (`heif-dec` or `heif-convert`), libvips or ImageMagick to read it";

/// Returns the command that converts the picture `from` to a PNG `to`, with a program in one of the folders.
/// Returns `None` if none of them has such a program.
///
/// `folders` are the entries of `PATH`. `to` must end in `.png`: the programs derive the format from it.
pub fn to_png<F: AsRef<Path>>(
    folders: impl IntoIterator<Item = F>,
    from: &Path,
    to: &Path,
) -> Option<Command> {
    let folders: Vec<F> = folders.into_iter().collect();
    PROGRAMS.iter().find_map(|(name, first)| {
        let program = folders.iter().map(|folder| folder.as_ref().join(name)).find(|path| path.is_file())?;
        let arguments = first.iter().map(OsStr::new).chain([from.as_os_str(), to.as_os_str()]);
        Some(Command { program, arguments: arguments.map(OsStr::to_owned).collect() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_there_is_no_program_there_is_no_command() {
        let nowhere = [Path::new("/nowhere/at/all")];
        assert_eq!(to_png(nowhere, Path::new("a.heic"), Path::new("a.png")), None);
    }
}
