//! Copies a file with its holes.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;

use rustix::fs::SeekFrom as Find;
use rustix::io::Errno;

/// The size in bytes of the blocks that a file system counts.
const BLOCK: u64 = 512;

/// Copies a file from its beginning to its end. A hole stays a hole, where the file system tells of it.
/// Between two files, `io::copy` lets the kernel copy.
pub(super) fn copy_file(from: &mut File, to: &mut File) -> io::Result<()> {
    let metadata = from.metadata()?;
    if metadata.blocks() * BLOCK < metadata.len() {
        copy_data(from, to)?;
    }
    // The whole of a file without holes, and what was added to another one since.
    io::copy(from, to).map(drop)
}

/// Copies what is between the holes. Leaves both files at the same position.
fn copy_data(from: &mut File, to: &mut File) -> io::Result<()> {
    let end = from.metadata()?.len();
    let mut position = 0;
    while position < end {
        let data = match rustix::fs::seek(&*from, Find::Data(position)) {
            Ok(data) => data.min(end),
            // No data follows.
            Err(Errno::NXIO) => end,
            // The file system does not tell.
            Err(Errno::INVAL) => position,
            Err(error) => return Err(error.into()),
        };
        let hole = match rustix::fs::seek(&*from, Find::Hole(data)) {
            Ok(hole) => hole.clamp(data, end),
            Err(Errno::NXIO | Errno::INVAL) => end,
            Err(error) => return Err(error.into()),
        };
        from.seek(SeekFrom::Start(data))?;
        to.seek(SeekFrom::Start(data))?;
        io::copy(&mut Read::by_ref(from).take(hole - data), to)?;
        position = hole.max(data);
    }
    // The file may have been cut meanwhile: the copy has no zeros in place of what is gone.
    let end = end.min(from.metadata()?.len());
    to.set_len(end)?;
    from.seek(SeekFrom::Start(end))?;
    to.seek(SeekFrom::Start(end)).map(drop)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn holes_stay_holes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sparse");
        let mut from = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        from.set_len(64 << 20).unwrap();
        from.write_all_at(b"middle", 32 << 20).unwrap();
        let mut to =
            File::options().read(true).write(true).create_new(true).open(folder.path().join("to")).unwrap();
        copy_file(&mut from, &mut to).unwrap();
        let (one, other) = (from.metadata().unwrap(), to.metadata().unwrap());
        assert_eq!(other.len(), 64 << 20);
        assert!(other.blocks() <= one.blocks() + 64, "{} of {}", other.blocks(), one.blocks());
        let mut middle = [0; 8];
        to.read_exact_at(&mut middle, (32 << 20) - 1).unwrap();
        assert_eq!(&middle, b"\0middle\0");
    }

    #[test]
    fn a_file_without_holes_is_copied() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plain");
        std::fs::write(&path, "text").unwrap();
        let mut to = File::create_new(folder.path().join("to")).unwrap();
        copy_file(&mut File::open(&path).unwrap(), &mut to).unwrap();
        assert_eq!(std::fs::read(folder.path().join("to")).unwrap(), b"text");
    }
}
