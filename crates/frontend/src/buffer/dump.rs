//! `thalweg buffer dump`.

use std::io::{BufWriter, Write};

use serde_json::{Map, Value};
use thalweg_engine::Part;
use thalweg_engine::segments::read::Messages;

use super::BufferOptions;
use crate::exit::{CommandError, Exit};
use crate::print;

/// The messages to print.
#[derive(Debug, Clone, Default)]
pub struct DumpOptions {
    /// Where they are. They are printed as JSON in any case.
    pub buffers: BufferOptions,
    /// The most that are printed, the oldest of each buffer first; all if `None`.
    pub limit: Option<u64>,
    /// True if only payloads are printed, a line each.
    pub payload: bool,
}

/// Prints the messages in buffers, in their order, without removing them.
///
/// # Errors
/// If the state directory or the configuration cannot be read, or the output cannot be written.
pub fn dump(options: &DumpOptions) -> Result<Exit, CommandError> {
    let (_, found) = options.buffers.find()?;
    let mut output = BufWriter::new(std::io::stdout().lock());
    let mut left = options.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    for buffer in &found {
        for segment in &buffer.segments {
            for part in segment.parts()? {
                let lines = match part? {
                    _ if left == 0 => break,
                    Part::Messages(messages) => lines_of(&buffer.name, &messages, options.payload)?,
                    Part::Damage(why) => {
                        print::err(&format!("`{}`: {why}\n", segment.path.display()));
                        continue;
                    }
                };
                for line in lines.iter().take(left) {
                    output.write_all(line)?;
                    output.write_all(b"\n")?;
                }
                left = left.saturating_sub(lines.len());
            }
        }
    }
    output.flush()?;
    Ok(Exit::Done)
}

/// The messages of a block, a line each.
fn lines_of(buffer: &str, messages: &Messages, payload: bool) -> Result<Vec<Vec<u8>>, CommandError> {
    if payload {
        return Ok(messages.payloads()?.iter().flatten().map(<[u8]>::to_vec).collect());
    }
    let line = |message: Value| {
        let mut line = Map::from_iter([("buffer".to_owned(), buffer.into())]);
        line.extend(message.as_object().cloned().into_iter().flatten());
        Value::Object(line).to_string().into_bytes()
    };
    Ok(messages.to_json()?.into_iter().map(line).collect())
}
