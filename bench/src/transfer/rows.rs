//! The object that is copied, and its expected output.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

/// The numeric columns, for the transform that reads them.
pub const TYPES: &str = "{ as_number: int, requests: int, request_bytes: int, response_bytes: int }";

const HEADER: &[u8] = b"tenant_id,as_number,requests,request_bytes,response_bytes\n";

/// The number of customers, each of which occurs repeatedly.
const TENANTS: usize = 10_000;

/// The expected size, line count and checksum of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Print {
    /// The number of bytes.
    pub bytes: u64,
    /// The number of lines.
    pub lines: u64,
    checksum: u64,
}

/// The table of the seed: the requests of each customer from each network.
pub struct Rows {
    /// The path of the table.
    pub path: PathBuf,
    /// The fingerprint of the table.
    pub input: Print,
    /// The fingerprint of the same rows as lines of JSON.
    pub json: Print,
}

impl Rows {
    /// Writes the table, identical in every run, until it has `bytes` bytes.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn make(path: &Path, bytes: u64) -> std::io::Result<Self> {
        let mut random = fastrand::Rng::with_seed(7);
        let tenants: Vec<String> = (0..TENANTS).map(|_| identifier(random.u128(..))).collect();
        let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
        let (mut input, mut json) = (Counting::default(), Counting::default());
        let (mut row, mut object) = (HEADER.to_vec(), Vec::new());
        loop {
            out.write_all(&row)?;
            input.add(&row);
            json.add(&object);
            if input.bytes >= bytes {
                break;
            }
            row.clear();
            object.clear();
            let tenant = &tenants[random.usize(..TENANTS)];
            let (network, requests) = (random.u32(1..400_000), random.u32(1..1_000_000));
            let (sent, received) = (random.u64(..1 << 34), random.u64(..1 << 40));
            writeln!(row, "{tenant},{network},{requests},{sent},{received}")?;
            writeln!(
                object,
                r#"{{"tenant_id":"{tenant}","as_number":{network},"requests":{requests},"request_bytes":{sent},"response_bytes":{received}}}"#
            )?;
        }
        out.flush()?;
        Ok(Self { path: path.to_owned(), input: input.print(), json: json.print() })
    }
}

impl Print {
    /// Compares a file with this fingerprint.
    ///
    /// # Errors
    /// Returns the difference as an error, or the reason why the file cannot be read.
    pub fn compare(&self, path: &Path) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let mut file = File::open(path).map_err(failed)?;
        let (mut found, mut buffer) = (Counting::default(), vec![0; 1 << 20]);
        loop {
            match file.read(&mut buffer).map_err(failed)? {
                0 => break,
                many => found.add(&buffer[..many]),
            }
        }
        let found = found.print();
        if found == *self {
            return Ok(());
        }
        let is_other = if (found.bytes, found.lines) == (self.bytes, self.lines) {
            "; as many, but different or in another order"
        } else {
            ""
        };
        Err(format!(
            "{} lines and {} bytes instead of {} and {}{is_other}",
            found.lines, found.bytes, self.lines, self.bytes
        ))
    }
}

#[derive(Default)]
struct Counting {
    bytes: u64,
    lines: u64,
    checksum: Xxh3,
}

impl Counting {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.lines += memchr::memchr_iter(b'\n', bytes).count() as u64;
        self.checksum.update(bytes);
    }

    fn print(&self) -> Print {
        Print { bytes: self.bytes, lines: self.lines, checksum: self.checksum.digest() }
    }
}

/// Returns the text of a UUID of version 4.
fn identifier(random: u128) -> String {
    let bits = random & !(0xf << 76 | 0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let digits = format!("{bits:032x}");
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_are_the_same_each_time_and_their_json_says_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        let (rows, again) = (Rows::make(&one, 10_000).unwrap(), Rows::make(&other, 10_000).unwrap());
        assert_eq!((rows.input, rows.json), (again.input, again.json));
        assert_eq!(rows.input.lines, rows.json.lines + 1);
        rows.input.compare(&other).unwrap();
        let text = std::fs::read_to_string(&one).unwrap();
        let row: Vec<&str> = text.lines().nth(1).unwrap().split(',').collect();
        assert_eq!(row.iter().map(|value| value.len()).next(), Some(36));
        assert_eq!(row.len(), 5);
    }

    #[test]
    fn rows_in_another_order_or_fewer_of_them_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows");
        let rows = Rows::make(&path, 10_000).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
        lines.swap(1, 2);
        std::fs::write(&path, lines.concat()).unwrap();
        let why = rows.input.compare(&path).unwrap_err();
        assert!(why.contains("in another order"), "{why}");
        lines.pop();
        std::fs::write(&path, lines.concat()).unwrap();
        let why = rows.input.compare(&path).unwrap_err();
        assert!(why.contains("lines and") && !why.contains("order"), "{why}");
    }
}
