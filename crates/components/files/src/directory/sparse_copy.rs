//! Copies a file with its holes.
//!
//! A small file is read and written: two calls of the system, where a copy by the kernel takes four.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;

use rustix::fs::SeekFrom as Find;
use rustix::io::Errno;
use thalweg_record::OpenContent;

use crate::content::fill;

/// The size in bytes of the blocks that a file system counts.
const BLOCK: u64 = 512;

/// The size in bytes up to which a file is small.
const SMALL: u64 = 64 << 10;

/// Copies a file from its beginning to its end. Returns the number of bytes, with holes. A hole stays a hole,
/// where the file system tells of it. Between two files, `io::copy` lets the kernel copy.
pub(super) fn copy_file(
    OpenContent { file: from, metadata }: &mut OpenContent,
    to: &mut File,
) -> io::Result<u64> {
    let size = metadata.len();
    let copied = match size {
        _ if metadata.blocks() * BLOCK < size => copy_data(from, to)?,
        ..=SMALL => {
            let copied = copy_small(from, size, to)?;
            if copied <= size {
                return Ok(copied);
            }
            copied
        }
        _ => 0,
    };
    // A large file without holes, and what was added to another one since.
    Ok(copied + io::copy(from, to)?)
}

/// Copies a file of `size` bytes. Returns the number of bytes: one more than `size`, if the file has grown.
/// Both files are then at that position.
fn copy_small(from: &mut File, size: u64, to: &mut File) -> io::Result<u64> {
    let mut content = vec![0; usize::try_from(size).unwrap_or_default() + 1];
    let filled = fill(from, &mut content)?;
    to.write_all(content.get(..filled).unwrap_or_default())?;
    let copied = filled as u64;
    if copied > size {
        from.seek(SeekFrom::Start(copied))?;
    }
    Ok(copied)
}

/// Copies what is between the holes. Leaves both files at the same position, and returns it.
fn copy_data(from: &mut File, to: &mut File) -> io::Result<u64> {
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
    to.seek(SeekFrom::Start(end))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    fn opened(file: File) -> OpenContent {
        let metadata = file.metadata().unwrap();
        OpenContent { file, metadata }
    }

    #[test]
    fn holes_stay_holes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sparse");
        let from = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        from.set_len(64 << 20).unwrap();
        from.write_all_at(b"middle", 32 << 20).unwrap();
        let mut to =
            File::options().read(true).write(true).create_new(true).open(folder.path().join("to")).unwrap();
        let mut from = opened(from);
        assert_eq!(copy_file(&mut from, &mut to).unwrap(), 64 << 20);
        let (one, other) = (from.metadata, to.metadata().unwrap());
        assert_eq!(other.len(), 64 << 20);
        assert!(other.blocks() <= one.blocks() + 64, "{} of {}", other.blocks(), one.blocks());
        let mut middle = [0; 8];
        to.read_exact_at(&mut middle, (32 << 20) - 1).unwrap();
        assert_eq!(&middle, b"\0middle\0");
    }

    #[test]
    fn files_without_holes_are_copied_with_what_is_added_and_without_what_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for length in [0, 1, SMALL, SMALL + 1, 300_000] {
            for now in [length, length + 1, length + 100_000, length / 2] {
                let content: Vec<u8> = (0..now).map(|number| number as u8).collect();
                std::fs::write(path("from"), vec![b'x'; usize::try_from(length).unwrap()]).unwrap();
                let mut from = opened(File::open(path("from")).unwrap());
                std::fs::write(path("from"), &content).unwrap();
                let mut to = File::create(path("to")).unwrap();
                assert_eq!(copy_file(&mut from, &mut to).unwrap(), now);
                assert_eq!(std::fs::read(path("to")).unwrap(), content, "{length} {now}");
            }
        }
    }
}
