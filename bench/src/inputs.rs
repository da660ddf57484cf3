//! Creates the inputs: written once, identical in every run.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Writes lines of about 100 bytes, similar to a service's log; about one in a hundred contains the word
/// `error`. Returns the number of lines.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub fn lines(path: &Path, bytes: u64) -> std::io::Result<u64> {
    let mut random = fastrand::Rng::with_seed(1);
    write(path, bytes, |line, number| {
        let level = if random.u8(..) < 3 { "error" } else { "info" };
        let (user, took, id) = (random.u32(..100_000), random.u16(..3000), random.u64(..));
        write!(
            line,
            "2026-11-21T{:02}:{:02}:{:02}Z {level} api request={id:016x} user={user} took={took}ms path=/v1/items/{}",
            number / 3600 % 24,
            number / 60 % 60,
            number % 60,
            number % 1000,
        )
    })
}

/// Writes JSON lines of about 200 bytes and eight fields; about half have a status of 300 or more. Returns
/// the number of lines.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub fn json(path: &Path, bytes: u64) -> std::io::Result<u64> {
    const STATUS: [u16; 8] = [200, 200, 201, 204, 301, 304, 404, 500];
    const METHOD: [&str; 4] = ["GET", "POST", "PUT", "DELETE"];
    let mut random = fastrand::Rng::with_seed(2);
    write(path, bytes, |line, number| {
        write!(
            line,
            r#"{{"time":"2026-11-21T{:02}:{:02}:{:02}Z","client":"10.{}.{}.{}","method":"{}","path":"/v1/items/{}/reviews","status":{},"bytes":{},"took":{:.3},"agent":"Mozilla/5.0 (X11; Linux x86_64)"}}"#,
            number / 3600 % 24,
            number / 60 % 60,
            number % 60,
            random.u8(..),
            random.u8(..),
            random.u8(..),
            METHOD[random.usize(..4)],
            random.u32(..100_000),
            STATUS[random.usize(..8)],
            random.u32(..200_000),
            random.f64(),
        )
    })
}

fn write(
    path: &Path,
    bytes: u64,
    mut line: impl FnMut(&mut Vec<u8>, u64) -> std::io::Result<()>,
) -> std::io::Result<u64> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut buffer = Vec::new();
    let (mut written, mut count) = (0, 0);
    while written < bytes {
        buffer.clear();
        line(&mut buffer, count)?;
        buffer.push(b'\n');
        out.write_all(&buffer)?;
        written += buffer.len() as u64;
        count += 1;
    }
    out.flush()?;
    Ok(count)
}
