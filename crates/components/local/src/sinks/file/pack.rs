//! Compresses finished pieces.
//!
//! Compression takes long, so each piece is compressed by a thread of its own beside the sink. The current
//! piece stays uncompressed so that other programs can follow it. The uncompressed piece is removed once the
//! compressed one is on disk. If the process is killed after a piece was compressed, a run that continues
//! this piece decompresses it again.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::names;
use super::opening::open_file;
use thalweg_codec::compress::Compression;

/// Returns the name of the compressed piece.
pub(super) fn packed(path: &Path, how: Compression) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(how.suffix());
    name.into()
}

/// Compresses a finished piece. An error is logged, and leaves the piece as it is.
pub(super) fn pack(path: &Path, how: Compression) {
    match try_pack(path, how) {
        Ok(()) => {}
        // The piece has been pruned meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            tracing::warn!("`{}` could not be compressed, and stays as it is: {error}", path.display());
        }
    }
}

fn try_pack(path: &Path, how: Compression) -> io::Result<()> {
    let target = packed(path, how);
    let part = names::part(&target);
    let mut from = open_file(path, OpenOptions::new().read(true))?;
    let written = write_packed(&mut from, &part, how);
    if let Err(error) = written.and_then(|()| fs::rename(&part, &target)) {
        // A partial file is useless.
        let _ = fs::remove_file(&part);
        return Err(error);
    }
    fs::remove_file(path)
}

fn write_packed(from: &mut File, part: &Path, how: Compression) -> io::Result<()> {
    let mut to = open_file(part, &mut new_file())?;
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
    // The file is synced, because the uncompressed piece, which may already be on the disk, is removed next.
    to.sync_all()
}

fn new_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    options
}

/// Decompresses a piece, if it was compressed.
pub(super) fn unpack(path: &Path, how: Compression) -> io::Result<()> {
    let from = packed(path, how);
    if fs::symlink_metadata(path).is_ok() || fs::symlink_metadata(names::part(path)).is_ok() {
        return Ok(());
    }
    let file = match open_file(&from, OpenOptions::new().read(true)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut plain = path.as_os_str().to_owned();
    plain.push(".unpacked");
    let mut to = open_file(Path::new(&plain), &mut new_file())?;
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
            // A missing file and an uncompressed file are left unchanged.
            unpack(&folder.path().join("none"), how).unwrap();
            unpack(&path, how).unwrap();
            pack(&folder.path().join("none"), how);
            assert_eq!(names(), ["out-00001.log"]);
        }
    }
}
