//! Keeps the whole messages of a compressed member that was cut off.
//!
//! A run that is killed leaves the last member of a compressed file torn. Nothing can be appended to a torn
//! member, but most of its messages can be read, and perhaps no source sends them again. They are put into a
//! whole member instead. (Rejected: to cut the member off, as for a source that sends its messages again.
//! That removes up to a second of messages that were in the output.)

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use thalweg_codec::compress::Compression;
use thalweg_codec::decompress::{Decoder, Format};
use thalweg_runtime::Failpoint;

use super::opening::open_file;
use super::piece::PieceOptions;

/// The bytes that are decompressed at once.
const BLOCK: usize = 64 << 10;

/// Replaces the torn member after the first `complete` bytes of a file by a whole one, with the whole
/// messages of the torn one. Returns the length of the file.
///
/// A file beside the old one is written in full and then takes its name. A kill on the way leaves the torn
/// file, and the next run begins again.
pub(super) fn recover(path: &Path, complete: u64, options: &PieceOptions) -> io::Result<u64> {
    let torn = || -> io::Result<File> {
        let mut file = open_file(path, OpenOptions::new().read(true))?;
        file.seek(SeekFrom::Start(complete))?;
        Ok(file)
    };
    let format = match options.compression {
        Compression::None => return Ok(complete),
        Compression::Gzip => Format::Gzip,
        Compression::Zstd => Format::Zstd,
    };
    let _claimed = options.budget.claim(options.compression.encoder_memory(options.level));
    let whole = whole_messages(Decoder::new(format, torn()?), &options.delimiter)?;
    if whole == 0 {
        return Ok(complete);
    }
    let mut beside = OsString::from(path);
    beside.push(".recovered");
    let mut to = open_file(beside.as_ref(), OpenOptions::new().write(true).create(true).truncate(true))?;
    let from = open_file(path, OpenOptions::new().read(true))?;
    to.set_permissions(from.metadata()?.permissions())?;
    io::copy(&mut from.take(complete), &mut to)?;
    compress(Decoder::new(format, torn()?).take(whole), &mut to, options)?;
    to.sync_all()?;
    Failpoint::RenameBefore.check()?;
    fs::rename(&beside, path)?;
    Failpoint::RenameAfter.pass();
    Ok(to.metadata()?.len())
}

/// Returns the number of decompressed bytes up to the end of the last whole message.
fn whole_messages(mut torn: impl Read, delimiter: &[u8]) -> io::Result<u64> {
    let (mut block, mut held, mut read, mut whole) = (vec![0; BLOCK], 0, 0, 0);
    // The last bytes of a block may be the beginning of a delimiter.
    let overlap = delimiter.len().saturating_sub(1);
    loop {
        let more = match torn.read(block.get_mut(held..).unwrap_or_default()) {
            Ok(0) => return Ok(whole),
            Ok(more) => more,
            // A part that the system cannot read is not necessarily cut off.
            Err(error) if error.raw_os_error().is_some() => return Err(error),
            Err(_) => return Ok(whole),
        };
        read += more as u64;
        let end = held + more;
        let found = block.get(..end).unwrap_or_default();
        match memchr::memmem::rfind(found, delimiter) {
            _ if delimiter.is_empty() => whole = read,
            Some(at) => whole = read - (end - at - delimiter.len()) as u64,
            None => {}
        }
        held = overlap.min(end);
        block.copy_within(end - held..end, 0);
    }
}

fn compress(mut from: impl Read, to: &mut File, options: &PieceOptions) -> io::Result<()> {
    let Some(mut encoder) = options.compression.begin(options.level)? else { return Ok(()) };
    let (mut block, mut out) = (vec![0; BLOCK], Vec::new());
    loop {
        let read = from.read(&mut block)?;
        if read == 0 {
            encoder.end(&mut out)?;
            return to.write_all(&out);
        }
        encoder.write_all(block.get(..read).unwrap_or_default())?;
        encoder.take(&mut out);
        to.write_all(&out)?;
        out.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its bytes in pieces of the given sizes, and then an error.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(into.len());
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let (now, later) = self.0.split_at(count);
            into[..count].copy_from_slice(now);
            self.0 = later;
            Ok(count)
        }
    }

    #[test]
    fn whole_messages_end_with_the_last_delimiter_however_it_arrives() {
        for size in 1..8 {
            for (text, delimiter, whole) in [
                ("one\ntwo\nthr", "\n", 8),
                ("one", "\n", 0),
                ("one\r\ntwo\r", "\r\n", 5),
                ("one-;-two-;-", "-;-", 12),
                ("one", "", 3),
            ] {
                let found = whole_messages(Pieces(text.as_bytes(), size), delimiter.as_bytes()).unwrap();
                assert_eq!(found, whole, "{text:?} by {delimiter:?} in pieces of {size}");
            }
        }
    }
}
