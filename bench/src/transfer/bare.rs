//! A client that only moves bytes, over one or several connections: it shows the server's own rate.
//!
//! Its upload parts have the same size as thalweg's, since assembling parts is work for the server. It syncs
//! a file at the end, as thalweg does.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::connection::Connection;

/// The argument that makes this program run only the bare client.
pub const COMMAND: &str = "bare";

/// The size of a part in bytes: S3's minimum, and the size that thalweg chooses with the budget it has here.
const PART: u64 = 5 << 20;

/// The size in bytes of one write to a file.
const BLOCK: usize = 256 << 10;

/// Copies as the arguments say: `get|put|copy ADDRESS FROM TO CONNECTIONS`. A name on the server is
/// `/BUCKET/KEY`.
///
/// # Errors
/// Returns an error if the arguments are wrong or the copy fails.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let [what, address, from, to, connections] = arguments else {
        return Err("`bare` needs `get|put|copy ADDRESS FROM TO CONNECTIONS`".to_owned());
    };
    let connections = connections.parse().map_err(|_| format!("`{connections}` is not a number"))?;
    let result = match what.as_str() {
        "get" => get(address, from, to, connections),
        "put" => put(address, from, to, connections),
        "copy" => copy(address, from, to, connections),
        _ => Err(io::Error::other("the operation is not `get`, `put` or `copy`")),
    };
    result.map_err(|error| format!("{what} {from} {to}: {error}"))
}

fn get(address: &str, from: &str, to: &str, connections: usize) -> io::Result<()> {
    let file = File::create(to)?;
    if connections == 1 {
        let mut connection = Connection::open(address)?;
        let length = connection.ask("GET", from, None, &[])?.length;
        save(&mut connection, &file, 0, length)?;
        return file.sync_all();
    }
    let size = size_of(address, from)?;
    in_parts(address, size, connections, |connection, _, range| {
        let length = connection.ask("GET", from, Some(&text(&range)), &[])?.length;
        save(connection, &file, range.start, length)
    })?;
    file.sync_all()
}

fn save(connection: &mut Connection, file: &File, mut position: u64, length: u64) -> io::Result<()> {
    let (end, mut buffer) = (position + length, vec![0; BLOCK]);
    while position < end {
        let many = buffer.len().min((end - position) as usize);
        connection.read(&mut buffer[..many])?;
        file.write_all_at(&buffer[..many], position)?;
        position += many as u64;
    }
    Ok(())
}

fn put(address: &str, from: &str, to: &str, connections: usize) -> io::Result<()> {
    let file = File::open(from)?;
    let size = file.metadata()?.len();
    upload(address, to, size, connections, |_, range, part| file.read_exact_at(part, range.start))
}

fn copy(address: &str, from: &str, to: &str, connections: usize) -> io::Result<()> {
    let size = size_of(address, from)?;
    upload(address, to, size, connections, |connection, range, part| {
        connection.ask("GET", from, Some(&text(&range)), &[])?;
        connection.read(part)
    })
}

type Range = std::ops::Range<u64>;

fn text(range: &Range) -> String {
    format!("{}-{}", range.start, range.end - 1)
}

/// Uploads in parts. `fill` reads each part.
fn upload(
    address: &str,
    to: &str,
    size: u64,
    connections: usize,
    fill: impl Fn(&mut Connection, Range, &mut [u8]) -> io::Result<()> + Sync,
) -> io::Result<()> {
    let mut connection = Connection::open(address)?;
    let begun = connection.ask("POST", &format!("{to}?uploads="), None, &[])?;
    let begun = String::from_utf8_lossy(&connection.body(&begun)?).into_owned();
    let id = begun.split_once("<UploadId>").and_then(|(_, rest)| Some(rest.split_once("</UploadId>")?.0));
    let id = id.ok_or_else(|| io::Error::other(format!("the server returned no upload id: {begun}")))?;
    let etags = Mutex::new(vec![String::new(); size.div_ceil(PART) as usize]);
    in_parts(address, size, connections, |connection, index, range| {
        let mut part = vec![0; (range.end - range.start) as usize];
        fill(connection, range, &mut part)?;
        let target = format!("{to}?partNumber={}&uploadId={id}", index + 1);
        let answer = connection.ask("PUT", &target, None, &part)?;
        connection.body(&answer)?;
        if let Ok(mut etags) = etags.lock() {
            etags[index as usize] = answer.etag;
        }
        Ok(())
    })?;
    let etags = etags.into_inner().map_err(|error| io::Error::other(error.to_string()))?;
    let parts = etags
        .iter()
        .zip(1..)
        .map(|(etag, number)| format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"));
    let all =
        format!("<CompleteMultipartUpload>{}</CompleteMultipartUpload>", parts.collect::<Vec<_>>().concat());
    let answer = connection.ask("POST", &format!("{to}?uploadId={id}"), None, all.as_bytes())?;
    connection.body(&answer).map(drop)
}

/// Does `work` for each part, on one of `connections` connections.
fn in_parts(
    address: &str,
    size: u64,
    connections: usize,
    work: impl Fn(&mut Connection, u64, Range) -> io::Result<()> + Sync,
) -> io::Result<()> {
    let next = AtomicU64::new(0);
    let one = || {
        let mut connection = Connection::open(address)?;
        loop {
            let index = next.fetch_add(1, Relaxed);
            let start = index * PART;
            if start >= size {
                return Ok(());
            }
            work(&mut connection, index, start..size.min(start + PART))?;
        }
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..connections).map(|_| scope.spawn(one)).collect();
        let mut ended = all.into_iter().map(|thread| thread.join());
        ended.try_for_each(|ended| ended.unwrap_or_else(|_| Err(io::Error::other("a panic"))))
    })
}

/// Returns the length of an object in bytes, from a `HEAD` request.
fn size_of(address: &str, target: &str) -> io::Result<u64> {
    let mut connection = Connection::open(address)?;
    Ok(connection.ask("HEAD", target, None, &[])?.length)
}
