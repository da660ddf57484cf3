//! Buffers in a state directory, as they lie on the disk, for commands that show them. Nothing is changed,
//! and a run may write meanwhile.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use arrow_array::{Array, BinaryViewArray};
use arrow_buffer::Buffer;
use serde_json::{Map, Value};

use super::FOLDER;
use crate::Error;
use crate::kept::keep;
use crate::segments::read::{Messages, Next, Segment};
use crate::segments::{DAMAGED, Entry, OPEN, entries};
use crate::store::hex;

/// A buffer on the disk.
#[derive(Debug)]
pub struct FoundBuffer {
    /// The sink or pipeline behind it.
    pub name: String,
    /// Its segments, the oldest first.
    pub segments: Vec<FoundSegment>,
}

/// A segment of a buffer.
#[derive(Debug)]
pub struct FoundSegment {
    /// The file.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// The number of its messages. Some may be delivered: a segment is removed as a whole.
    pub messages: u64,
    /// When it was begun.
    pub since: SystemTime,
    /// True if a part of it could not be read, and it was kept for that reason.
    pub is_kept: bool,
    number: u32,
    /// True if a run may be writing it: an incomplete block at its end is no damage.
    is_open: bool,
}

/// A part of a segment.
#[derive(Debug)]
pub enum Part {
    /// The messages of a block.
    Messages(Messages),
    /// The reason why bytes cannot be read as messages.
    Damage(String),
}

/// Finds the buffers in a state directory, in the order of their names.
///
/// # Errors
/// If the directory or a segment cannot be read.
pub fn find_buffers(state: &Path) -> io::Result<Vec<FoundBuffer>> {
    let listed = match fs::read_dir(state.join(FOLDER)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed?,
    };
    let mut found = Vec::new();
    for entry in listed {
        let entry = entry?;
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
        if entry.file_type()?.is_dir() {
            found.push(FoundBuffer { name, segments: segments_of(&entry.path())? });
        }
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

fn segments_of(folder: &Path) -> io::Result<Vec<FoundSegment>> {
    let mut segments = Vec::new();
    for Entry { number, kind, path, bytes } in entries(folder)? {
        let (mut segment, found) = match (Segment::open_path(&path, number), fs::metadata(&path)) {
            (Ok(segment), Ok(found)) => (segment, found),
            // It was delivered and removed meanwhile, or finished and renamed.
            (Err(error), _) | (_, Err(error)) if error.kind() == io::ErrorKind::NotFound => continue,
            (Err(error), _) | (_, Err(error)) => return Err(error),
        };
        segments.push(FoundSegment {
            bytes,
            messages: segment.skip_to(u64::MAX)?,
            since: found.created().or_else(|_| found.modified())?,
            is_kept: kind == DAMAGED,
            number,
            is_open: kind == OPEN,
            path,
        });
    }
    Ok(segments)
}

impl FoundSegment {
    /// Reads the segment, one block after the other.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn parts(&self) -> io::Result<impl Iterator<Item = io::Result<Part>> + use<>> {
        let mut segment = Segment::open_path(&self.path, self.number)?;
        let is_open = self.is_open;
        Ok(std::iter::from_fn(move || next_part(&mut segment, is_open).transpose()))
    }
}

/// Returns the next part of a segment, or None at its end.
fn next_part(segment: &mut Segment, is_open: bool) -> io::Result<Option<Part>> {
    let begin = segment.offset();
    Ok(match segment.next()? {
        Next::End => None,
        Next::Rubbish { .. } if is_open => None,
        Next::Rubbish { bytes } => {
            segment.skip_rest();
            let reason = format!("the last {bytes} bytes, from byte {begin} on, are not messages");
            Some(Part::Damage(reason))
        }
        Next::Block { bytes, rows } => {
            let mut body = vec![0; bytes];
            segment.fill(&mut body)?;
            Some(match segment.decode(Buffer::from_vec(body))? {
                Ok(messages) => Part::Messages(messages),
                Err(why) => Part::Damage(format!("{rows} messages at byte {begin} cannot be read: {why}")),
            })
        }
    })
}

impl Messages {
    /// Returns each message as a JSON object: its source, path, time, payload and fields.
    ///
    /// # Errors
    /// If its columns do not fit together.
    pub fn to_json(&self) -> Result<Vec<Value>, Error> {
        let (reading, fields) = self.part(0, self.rows())?;
        let payloads = (0..reading.payload.len()).map(|row| reading.payload.value(row));
        let rows = payloads.zip(keep(&fields)).map(|(payload, fields)| {
            let mut line = Map::new();
            line.insert("source".to_owned(), (&*self.meta.source).into());
            line.extend(self.meta.path.as_deref().map(|path| ("path".to_owned(), path.into())));
            line.insert("time_us".to_owned(), self.meta.time_us.into());
            match std::str::from_utf8(payload) {
                Ok(text) => line.insert("payload".to_owned(), text.into()),
                Err(_) => line.insert("payload_hex".to_owned(), hex(payload).into()),
            };
            if !fields.is_empty() {
                line.insert("fields".to_owned(), serde_json::to_value(fields).unwrap_or_default());
            }
            Value::Object(line)
        });
        Ok(rows.collect())
    }

    /// Returns the payloads.
    ///
    /// # Errors
    /// If the columns do not fit together.
    pub fn payloads(&self) -> Result<BinaryViewArray, Error> {
        Ok(self.part(0, self.rows())?.0.payload)
    }
}
