//! A compressed archive of a few small files: `tar` and `gzip`.
//!
//! Only plain files with short names are written, which is one header of [POSIX.1
//! `ustar`](https://pubs.opengroup.org/onlinepubs/9799919799/utilities/pax.html) each. A library for that was
//! rejected.

use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;

/// The size of a header, and the unit of the sizes of contents.
const BLOCK: usize = 512;
/// The longest name.
const LONGEST_NAME: usize = 100;
/// The folder that all files are in.
const FOLDER: &str = "thalweg-support";

/// An archive that is being written.
pub(super) struct Archive<W: Write> {
    out: GzEncoder<W>,
    time: u64,
}

impl<W: Write> Archive<W> {
    pub(super) fn new(out: W) -> Self {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Self { out: GzEncoder::new(out, Compression::default()), time }
    }

    /// Adds a file.
    pub(super) fn add(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        self.out.write_all(&header(&format!("{FOLDER}/{name}"), content.len(), self.time)?)?;
        self.out.write_all(content)?;
        let rest = content.len().next_multiple_of(BLOCK) - content.len();
        self.out.write_all(&[0; BLOCK][..rest])
    }

    /// Ends the archive.
    pub(super) fn end(mut self) -> io::Result<()> {
        self.out.write_all(&[0; 2 * BLOCK])?;
        self.out.finish()?.flush()
    }
}

/// The header of a file, with this time of its last change.
fn header(name: &str, size: usize, time: u64) -> io::Result<[u8; BLOCK]> {
    if name.len() >= LONGEST_NAME {
        return Err(io::Error::other(format!("the name `{name}` is too long")));
    }
    let mut header = [0; BLOCK];
    let mut put = |at: usize, text: &[u8]| {
        for (to, byte) in header.iter_mut().skip(at).zip(text) {
            *to = *byte;
        }
    };
    put(0, name.as_bytes());
    put(100, b"0000600\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{size:011o}\0").as_bytes());
    put(136, format!("{time:011o}\0").as_bytes());
    // The checksum counts as spaces in itself. A zero byte after the name says that it is a plain file.
    put(148, b"        0");
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    for (to, byte) in header.iter_mut().skip(148).zip(format!("{sum:06o}\0 ").bytes()) {
        *to = byte;
    }
    Ok(header)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn tar_reads_what_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar.gz");
        let mut archive = Archive::new(std::fs::File::create(&path).unwrap());
        archive.add("one.txt", b"one\n").unwrap();
        archive.add("two.txt", &[b'x'; BLOCK]).unwrap();
        archive.add("empty.txt", b"").unwrap();
        assert!(archive.add(&"n".repeat(LONGEST_NAME), b"").is_err());
        archive.end().unwrap();
        let tar = |options: &[&str]| {
            let output = Command::new("tar").args(options).arg("-f").arg(&path).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        };
        let names = "thalweg-support/one.txt\nthalweg-support/two.txt\nthalweg-support/empty.txt\n";
        assert_eq!(tar(&["-t", "-z"]), names);
        assert_eq!(tar(&["-x", "-z", "-O"]), format!("one\n{}", "x".repeat(BLOCK)));
    }
}
