//! The content at the ends of a file, by which a copy of the file is known.
//!
//! A copy of a folder, such as a restored backup, has files of other identities. A copied file is recognised
//! by its name, by its first bytes, and by those before its saved length: it must have the same bytes at the
//! same places. Fewer than [`LEAST`] bytes decide nothing, because files of other programs may begin with
//! them: with the header of the same columns, for example. The last bytes alone are not enough either: they
//! may be the same few values again and again. (Rejected: a checksum of the whole file. A large file would be
//! read in full by each run that resumes. Also rejected: the name alone. A file of another program may have
//! it.)

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use super::opening::open_file;

/// The number of bytes at each end of a file that are compared.
const MOST: u64 = 4 << 10;

/// The length from which on a file is recognised by its content, in bytes.
const LEAST: u64 = 64;

/// Returns the checksum of the first bytes and of those before `length`, or `None` if they are too few, or
/// the file is shorter.
pub(super) fn ending(file: &File, length: u64) -> io::Result<Option<u64>> {
    if length < LEAST || file.metadata()?.len() < length {
        return Ok(None);
    }
    let start = length.saturating_sub(MOST);
    let [first, last] =
        [start.min(MOST), length - start].map(|size| usize::try_from(size).unwrap_or_default());
    let mut bytes = vec![0; first + last];
    let (first, last) = bytes.split_at_mut(first);
    file.read_exact_at(first, 0)?;
    file.read_exact_at(last, start)?;
    Ok(Some(xxh3_64(&bytes)))
}

/// True if the file of this name has this checksum up to `length`. False if the checksum is not known, or the
/// file cannot be read.
pub(super) fn has_ending(path: &Path, length: u64, checksum: Option<u64>) -> bool {
    let found = || {
        let file = open_file(path, OpenOptions::new().read(true)).ok()?;
        ending(&file, length).ok()?
    };
    checksum.is_some() && found() == checksum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_the_same_bytes_at_the_same_place_is_recognised_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
        let text: String = (0..2_000).map(|number| format!("{number}\n")).collect();
        for length in [LEAST, MOST, MOST + 1, 2 * MOST, text.len() as u64] {
            std::fs::write(&one, &text).unwrap();
            let checksum = ending(&File::open(&one).unwrap(), length).unwrap();
            assert!(checksum.is_some());
            std::fs::write(&other, format!("{text}more")).unwrap();
            assert!(has_ending(&other, length, checksum));
            std::fs::write(&other, &text.as_bytes()[..length as usize - 1]).unwrap();
            assert!(!has_ending(&other, length, checksum), "it is shorter");
            std::fs::write(&other, format!("x{text}")).unwrap();
            assert!(!has_ending(&other, length, checksum), "its bytes are at another place");
            std::fs::write(&other, text.replacen('0', "x", 1)).unwrap();
            assert!(!has_ending(&other, length, checksum), "it begins with other bytes");
            assert!(!has_ending(&one, length, None));
            assert!(!has_ending(&folder.path().join("none"), length, checksum));
        }
        assert_eq!(ending(&File::open(&one).unwrap(), LEAST - 1).unwrap(), None);
    }
}
