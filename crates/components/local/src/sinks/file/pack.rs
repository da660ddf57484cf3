//! Compressing pieces when they are finished.
//!
//! It is done beside the sink, by a thread for each piece, since it takes long: a piece that is being written is plain, so
//! that others can follow it. The plain piece is removed when the other is on disk. A run that continues a piece which was
//! compressed a moment before the process was killed makes it plain again.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::names;
use thalweg_codec::compress::Compression;

/// What it is called when it is compressed.
pub(super) fn packed(path: &Path, how: Compression) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(how.suffix());
    name.into()
}

/// Compresses a finished piece. What goes wrong is told, and leaves the piece as it is.
pub(super) fn pack(path: &Path, how: Compression) {
    match try_pack(path, how) {
        Ok(()) => {}
        // It was among those that are not to be kept.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            tracing::warn!("`{}` could not be compressed, and stays as it is: {error}", path.display());
        }
    }
}

fn try_pack(path: &Path, how: Compression) -> io::Result<()> {
    let target = packed(path, how);
    let part = names::part(&target);
    let mut from = File::open(path)?;
    let written = write_packed(&mut from, &part, how);
    if let Err(error) = written.and_then(|()| fs::rename(&part, &target)) {
        // Half of it is of no use.
        let _ = fs::remove_file(&part);
        return Err(error);
    }
    fs::remove_file(path)
}

fn write_packed(from: &mut File, part: &Path, how: Compression) -> io::Result<()> {
    let mut to = File::create(part)?;
    let Some(mut encoder) = how.begin(None)? else { return Err(io::ErrorKind::Unsupported.into()) };
    let mut piece = vec![0; 256 << 10];
    let mut out = Vec::new();
    loop {
        let read = match from.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        encoder.write_all(piece.get(..read).unwrap_or_default())?;
        encoder.take(&mut out);
        to.write_all(&out)?;
        out.clear();
    }
    encoder.end(&mut out)?;
    to.write_all(&out)?;
    to.set_permissions(from.metadata()?.permissions())?;
    // The plain piece goes next, and it may be on the disk already.
    to.sync_all()
}

/// Makes a piece plain that was compressed, if it was.
pub(super) fn unpack(path: &Path, how: Compression) -> io::Result<()> {
    let from = packed(path, how);
    if fs::symlink_metadata(path).is_ok() || fs::symlink_metadata(names::part(path)).is_ok() {
        return Ok(());
    }
    let file = match File::open(&from) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut plain = path.as_os_str().to_owned();
    plain.push(".unpacked");
    let mut to = File::create(&plain)?;
    match how {
        Compression::None => return Ok(()),
        Compression::Gzip => io::copy(&mut flate2::read::MultiGzDecoder::new(file), &mut to)?,
        Compression::Zstd => io::copy(&mut zstd::stream::read::Decoder::new(file)?, &mut to)?,
    };
    to.sync_all()?;
    fs::rename(&plain, path)?;
    fs::remove_file(&from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unpacked_is_what_was_packed_and_only_one_of_the_two_is_there() {
        for how in [Compression::Gzip, Compression::Zstd] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("out-00001.log");
            let text = "line\n".repeat(200_000);
            fs::write(&path, &text).unwrap();
            pack(&path, how);
            let names = || -> Vec<_> {
                fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect()
            };
            assert_eq!(names(), [packed(&path, how).file_name().unwrap()]);
            assert!(fs::metadata(packed(&path, how)).unwrap().len() < 10_000);
            unpack(&path, how).unwrap();
            assert_eq!(names(), ["out-00001.log"]);
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            // One that is not there is left alone, and so is one that is plain.
            unpack(&folder.path().join("none"), how).unwrap();
            unpack(&path, how).unwrap();
            pack(&folder.path().join("none"), how);
            assert_eq!(names(), ["out-00001.log"]);
        }
    }
}
