//! Files that say hashes of others, as `sha256sum` and its like write them: a line `HASH  NAME` for each.
//!
//! A name with a line feed or a backslash in it has them written `\n` and `\\`, and the line begins with a backslash. Also
//! read are the lines that BSD writes, `SHA256 (NAME) = HASH`, and a hash alone.

use std::ffi::OsStr;
use std::io::{self, BufRead, Read};
use std::os::unix::ffi::OsStrExt;

/// Longer lines say no hash: paths have some thousand bytes.
const LONGEST: u64 = 64 << 10;

/// The line for a file.
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

/// The hash of so many digits that is said of a file that has one of these names, in small digits.
///
/// # Errors
/// Those of reading.
pub fn expected(mut sums: impl BufRead, digits: usize, names: [&OsStr; 2]) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if sums.by_ref().take(LONGEST).read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        if let Some((hash, name)) = said(text, digits)
            && name.is_none_or(|name| names.iter().any(|known| ends_with(&name, known.as_bytes())))
        {
            return Ok(Some(hash));
        }
    }
}

/// The hash in a line, and whose it is, if it says.
fn said(line: &[u8], digits: usize) -> Option<(String, Option<Vec<u8>>)> {
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
        // A star says that it was read as it is, and not as text: the same here.
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

/// Whether a path is this name, or leads to it.
fn ends_with(path: &[u8], name: &[u8]) -> bool {
    path.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with(b"/"))
}
