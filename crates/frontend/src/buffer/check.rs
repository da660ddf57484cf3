//! `thalweg buffer check`.

use serde_json::json;
use thalweg_engine::{FoundBuffer, Part};

use super::{BufferOptions, nothing_in};
use crate::exit::{CommandError, Exit};
use crate::format::counted;
use crate::paint::Paint;
use crate::print;

/// The content of the segments of a buffer.
#[derive(Default)]
struct Checked {
    messages: u64,
    /// The file, and the reason why a part of it cannot be read.
    damage: Vec<(String, String)>,
}

/// Reads all that is in buffers, and compares it with its checksums. The exit code is 1 if something cannot
/// be read.
///
/// # Errors
/// If the state directory or the configuration cannot be read, or the output cannot be written.
pub fn check(options: &BufferOptions) -> Result<Exit, CommandError> {
    let (folder, found) = options.find()?;
    let mut is_whole = true;
    for buffer in &found {
        let checked = read(buffer)?;
        is_whole &= checked.damage.is_empty();
        match options.json {
            true => print::out(&json_of(buffer, &checked))?,
            false => print::show(&text_of(buffer, &checked, Paint::stdout()))?,
        }
    }
    if found.is_empty() && !options.json {
        print::show(&nothing_in(&folder))?;
    }
    Ok(if is_whole { Exit::Done } else { Exit::Errors })
}

fn read(buffer: &FoundBuffer) -> Result<Checked, CommandError> {
    let mut checked = Checked::default();
    for segment in &buffer.segments {
        for part in segment.parts()? {
            match part? {
                Part::Messages(messages) => checked.messages += messages.rows() as u64,
                Part::Damage(why) => checked.damage.push((segment.path.display().to_string(), why)),
            }
        }
    }
    Ok(checked)
}

fn json_of(buffer: &FoundBuffer, checked: &Checked) -> String {
    let damage: Vec<_> =
        checked.damage.iter().map(|(file, reason)| json!({ "file": file, "reason": reason })).collect();
    format!("{}\n", json!({ "buffer": buffer.name, "messages": checked.messages, "damage": damage }))
}

fn text_of(buffer: &FoundBuffer, checked: &Checked, paint: Paint) -> String {
    let messages = counted(checked.messages, "message");
    let mut text = format!("{}: {messages} can be read\n", paint.cyan(&buffer.name));
    for (file, reason) in &checked.damage {
        text += &format!("  {} `{file}`: {reason}\n", paint.yellow("damaged:"));
    }
    text
}
