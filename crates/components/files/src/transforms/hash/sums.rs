//! Files that list hashes of other files, as `sha256sum` and similar programs write them: one line `HASH
//! NAME` per file.
//!
//! In a name, a line feed is written `\n` and a backslash `\\`; the line then begins with a backslash. The
//! reader also accepts the lines that BSD writes, `SHA256 (NAME) = HASH`, and a hash alone.

use std::ffi::OsStr;
use std::io::{self, BufRead, Read};
use std::os::unix::ffi::OsStrExt;

/// The maximum length of a line in bytes. A path has at most a few thousand.
const LONGEST: u64 = 64 << 10;

/// Returns the line for a file.
pub fn line(hash: &str, name: &OsStr) -> Vec<u8> {
    let mut line = Vec::new();
    let name = name.as_bytes();
    let escaped = name.iter().any(|byte| matches!(byte, b'\n' | b'\r' | b'\\'));
    if escaped {
        line.push(b'\\');
    }
    line.extend(hash.as_bytes());
    line.extend(b"  ");
    for byte in name {
        match byte {
            b'\n' => line.extend(br"\n"),
            b'\r' => line.extend(br"\r"),
            b'\\' => line.extend(br"\\"),
            byte => line.push(*byte),
        }
    }
    line.push(b'\n');
    line
}

/// Returns the hash of a file that has one of these names, in lowercase digits. `digits` is the length of the
/// hash.
///
/// # Errors
/// If reading fails.
pub fn expected(mut sums: impl BufRead, digits: usize, names: [&OsStr; 2]) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if sums.by_ref().take(LONGEST).read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        if let Some((hash, name)) = parse_line(text, digits)
            && name.is_none_or(|name| names.iter().any(|known| ends_with(&name, known.as_bytes())))
        {
            return Ok(Some(hash));
        }
    }
}

/// Returns the hash in a line, and the name of its file if the line has one.
fn parse_line(line: &[u8], digits: usize) -> Option<(String, Option<Vec<u8>>)> {
    let hash = |bytes: &[u8]| {
        let is_hash = bytes.len() == digits && bytes.iter().all(u8::is_ascii_hexdigit);
        is_hash.then(|| String::from_utf8_lossy(bytes).to_ascii_lowercase())
    };
    let (line, escaped) = match line.strip_prefix(b"\\") {
        Some(line) => (line, true),
        None => (line, false),
    };
    let name = |name: &[u8]| if escaped { plain(name) } else { name.to_vec() };
    if let Some((first, rest)) = line.split_at_checked(digits)
        && let Some(hash) = hash(first)
    {
        // A star means that the file was read as binary, not as text. Here both are the same.
        let of = rest.strip_prefix(b"  ").or_else(|| rest.strip_prefix(b" *"));
        return if rest.is_empty() { Some((hash, None)) } else { Some((hash, Some(name(of?)))) };
    }
    let at = line.windows(4).rposition(|four| four == b") = ")?;
    let begin = line.windows(2).position(|two| two == b" (")?;
    Some((hash(line.get(at + 4..)?)?, Some(name(line.get(begin + 2..at)?))))
}

fn plain(escaped: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(escaped.len());
    let mut bytes = escaped.iter();
    while let Some(byte) = bytes.next() {
        match (byte, bytes.as_slice().first()) {
            (b'\\', Some(b'n')) => plain.push(b'\n'),
            (b'\\', Some(b'r')) => plain.push(b'\r'),
            (b'\\', Some(b'\\')) => plain.push(b'\\'),
            _ => {
                plain.push(*byte);
                continue;
            }
        }
        bytes.next();
    }
    plain
}

/// True if a path is this name, or ends in a slash and this name.
fn ends_with(path: &[u8], name: &[u8]) -> bool {
    path.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with(b"/"))
}
