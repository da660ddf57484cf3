//! Pictures that a program of the system reads: HEIC, whose decoder is under patents, and AVIF.
//!
//! Nothing is run here. This says which programs can do it and how they are called, and looks for them in the folders that
//! it is given; who runs them has their time and their output in hand.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// How a program is called that makes a PNG of a picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Where it is.
    pub program: PathBuf,
    /// What it is given.
    pub arguments: Vec<OsString>,
}

/// Programs that read HEIC and AVIF, the best first. All take the two files as their last arguments.
const PROGRAMS: &[(&str, &[&str])] =
    &[("heif-dec", &[]), ("heif-convert", &[]), ("vips", &["copy"]), ("magick", &[])];

/// What to install where there is none of them.
pub const INSTALL: &str = "install `libheif-examples` (`heif-dec` or `heif-convert`), libvips or ImageMagick, one of which then reads it";

/// How to make a PNG at `to` of the picture at `from` by a program in one of the folders; none if there is none.
///
/// `folders` are those of the `PATH`, split. `to` has to end in `.png`: that is how the programs know what to make.
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
