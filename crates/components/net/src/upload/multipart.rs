//! Forms with files (RFC 7578): parts separated by boundary lines, each with its own headers.

use std::ffi::OsString;
use std::fmt::Display;

use bytes::{Bytes, BytesMut};
use hyper::body::Body;
use memchr::memmem;

use super::Refusal;
use super::disposition::{Value, name_of_file};
use super::frames::Frames;

/// The largest head of a part, in bytes.
const HEAD: usize = 16 << 10;

/// The end of a head.
const EMPTY_LINE: &[u8] = b"\r\n\r\n";

/// The head of a part.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PartHead {
    /// The name of the field; empty if it has none.
    pub(super) name: String,
    /// The name of the file, if the part is one.
    pub(super) file_name: Option<OsString>,
}

/// Parses a form. It holds at most one piece of the body and a line that may be a boundary.
pub(super) struct Multipart<'f, B> {
    frames: &'f mut Frames<B>,
    buffer: BytesMut,
    /// The line feed before a boundary, the two dashes, and the boundary.
    delimiter: memmem::Finder<'static>,
    /// How many bytes of the buffer are known to be data.
    data: usize,
}

impl<'f, B> Multipart<'f, B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Display,
{
    pub(super) fn new(frames: &'f mut Frames<B>, boundary: &[u8]) -> Self {
        let delimiter = [b"\r\n--", boundary].concat();
        let delimiter = memmem::Finder::new(&delimiter).into_owned();
        // The first boundary may be at the very beginning.
        Self { frames, buffer: BytesMut::from(&b"\r\n"[..]), delimiter, data: 0 }
    }

    /// Returns the head of the next part, or `None` after the last. Unread data of the current part is
    /// skipped.
    pub(super) async fn next(&mut self) -> Result<Option<PartHead>, Refusal> {
        while self.data().await?.is_some() {}
        drop(self.buffer.split_to(self.delimiter.needle().len()));
        // Blanks may follow a boundary.
        loop {
            self.at_least(2).await?;
            match self.buffer.get(..2) {
                Some([b' ' | b'\t', _]) => drop(self.buffer.split_to(1)),
                Some(b"\r\n") => break,
                Some(b"--") => {
                    // Bytes after the end of the form are ignored, but they have to arrive.
                    while self.frames.next().await?.is_some() {}
                    return Ok(None);
                }
                _ => return Err(malformed("a boundary is not followed by a new line")),
            }
        }
        let mut from = 0;
        let end = loop {
            let found = self.buffer.get(from..).and_then(|rest| memmem::find(rest, EMPTY_LINE));
            if let Some(found) = found {
                break from + found;
            }
            if self.buffer.len() > HEAD {
                return Err(malformed("the head of a part is longer than 16 KiB"));
            }
            from = self.buffer.len().saturating_sub(EMPTY_LINE.len() - 1);
            self.fill().await?;
        };
        let head = self.buffer.split_to(end + EMPTY_LINE.len());
        part(&head).map(Some)
    }

    /// Returns the next data of the part, or `None` at its end.
    pub(super) async fn data(&mut self) -> Result<Option<Bytes>, Refusal> {
        let length = self.delimiter.needle().len();
        loop {
            let rest = self.buffer.get(self.data..).unwrap_or_default();
            match self.delimiter.find(rest) {
                Some(at) => match rest.get(at + length) {
                    // The same text may begin a longer line, which is data.
                    Some(b' ' | b'\t' | b'\r' | b'-') if self.data + at == 0 => return Ok(None),
                    Some(b' ' | b'\t' | b'\r' | b'-') | None if self.data + at > 0 => {
                        let data = self.buffer.split_to(self.data + at).freeze();
                        self.data = 0;
                        return Ok(Some(data));
                    }
                    None => {}
                    Some(_) => {
                        self.data += at + length;
                        continue;
                    }
                },
                None => {
                    let data = self.buffer.len().saturating_sub(length).max(self.data);
                    self.data = 0;
                    if data > 0 {
                        return Ok(Some(self.buffer.split_to(data).freeze()));
                    }
                }
            }
            self.fill().await?;
        }
    }

    async fn at_least(&mut self, bytes: usize) -> Result<(), Refusal> {
        while self.buffer.len() < bytes {
            self.fill().await?;
        }
        Ok(())
    }

    async fn fill(&mut self) -> Result<(), Refusal> {
        match self.frames.next().await? {
            Some(data) => self.buffer.extend_from_slice(&data),
            None => return Err(malformed("it ends before its last boundary")),
        }
        Ok(())
    }
}

fn malformed(what: &str) -> Refusal {
    Refusal::Malformed(format!("the form cannot be read: {what}"))
}

/// Parses a head: lines of `name: value`, one of which describes the part.
fn part(head: &[u8]) -> Result<PartHead, Refusal> {
    let is_line = |line: &[u8]| line.trim_ascii().is_empty() || line.contains(&b':');
    if !head.split(|byte| *byte == b'\n').all(is_line) {
        return Err(malformed("a line in the head of a part has no colon"));
    }
    let disposition = head.split(|byte| *byte == b'\n').find_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = (line.get(..colon)?, line.get(colon + 1..)?);
        name.trim_ascii().eq_ignore_ascii_case(b"content-disposition").then(|| Value::parse(value))
    });
    let Some(disposition) = disposition else {
        return Ok(PartHead { name: String::new(), file_name: None });
    };
    let name = String::from_utf8_lossy(disposition.parameter("name").unwrap_or_default()).into_owned();
    Ok(PartHead { name, file_name: name_of_file(&disposition) })
}
