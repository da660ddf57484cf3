//! The smaller formatters, each a function from one text to another.

use memchr::memmem;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::json_columns::members;
use thalweg_config::List;

use super::go::{Style, write_raw, write_text};
use super::printf::fixed;
use super::raw::{Raw, checked, text};

/// Extracts one member of a JSON object as text (`format.ExtractJSON`).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ExtractJson {
    /// The member's name. Without such a member, the text is empty.
    member: String,
    /// The decimal places of a number. The default is as many as it has.
    #[serde(default)]
    precision: Option<usize>,
    /// True to remove white space at both ends. The default is `false`.
    #[serde(default)]
    trim: bool,
}

impl ExtractJson {
    /// Appends the member.
    ///
    /// # Errors
    /// The reason why the value is not a JSON object.
    pub(super) fn write(&self, value: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let json = checked(value)?;
        let mut found = None;
        members(json, |name, value| {
            // The last of several members of this name counts.
            if text(json, name) == self.member {
                found = Some(value);
            }
        })
        .map_err(|reason| format!("it {reason}"))?;
        let Some(found) = found else { return Ok(()) };
        let start = out.len();
        let token = json.get(found.range()).unwrap_or_default();
        match token.as_bytes().first() {
            Some(b'-' | b'0'..=b'9') => {
                let number: f64 = token.parse().unwrap_or_default();
                let text = self.precision.map_or_else(|| number.to_string(), |places| fixed(number, places));
                out.extend_from_slice(text.as_bytes());
            }
            _ => write_raw(token, Style::Print, out),
        }
        if self.trim {
            trim_blanks(out, start);
        }
        Ok(())
    }
}

/// Removes white space at both ends of the text from `start` on.
fn trim_blanks(out: &mut Vec<u8>, start: usize) {
    let Some(Ok(text)) = out.get(start..).map(std::str::from_utf8) else { return };
    let (end, begin) = (start + text.trim_end().len(), text.len() - text.trim_start().len());
    out.truncate(end);
    out.drain(start..(start + begin).min(end));
}

/// Writes members of a JSON object one after the other (`format.JSONToArray`).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct JsonToArray {
    /// The members' names. A missing member is empty.
    fields: List<String>,
    /// The text between them. The default is a comma.
    #[serde(default = "crate::comma")]
    separator: String,
}

impl JsonToArray {
    /// Appends the members.
    ///
    /// # Errors
    /// The reason why the value is not a JSON object.
    pub(super) fn write(&self, value: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let json = checked(value)?;
        let mut found = vec![None; self.fields.len()];
        members(json, |name, value| {
            let name = text(json, name);
            let wanted = self.fields.iter().zip(&mut found).filter(|(field, _)| **field == name);
            wanted.for_each(|(_, found)| *found = Some(value));
        })
        .map_err(|reason| format!("it {reason}"))?;
        for (index, found) in found.into_iter().enumerate() {
            if index > 0 {
                out.extend_from_slice(self.separator.as_bytes());
            }
            let found = found.map(|found| Raw::of(json, found));
            if let Some(text) = found.as_ref().and_then(Raw::scalar) {
                out.extend_from_slice(text.as_bytes());
            }
        }
        Ok(())
    }
}

/// Splits a text and writes the parts as a JSON object (`format.SplitToJSON`).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SplitToJson {
    /// The names of the parts.
    keys: List<String>,
    /// The text between the parts. The default is `|`.
    #[serde(default = "bar")]
    #[schemars(length(min = 1))]
    separator: String,
    /// True (the default) to write parts that are JSON as they are.
    #[serde(default = "yes")]
    keep_json: bool,
}

fn bar() -> String {
    "|".to_owned()
}

fn yes() -> bool {
    true
}

impl SplitToJson {
    /// Appends the object.
    pub(super) fn write(&self, value: &[u8], out: &mut Vec<u8>) {
        let separator = self.separator.as_bytes();
        let mut parts = Vec::new();
        let mut start = 0;
        for at in memmem::find_iter(value, separator) {
            parts.push(value.get(start..at).unwrap_or_default());
            start = at + separator.len();
        }
        parts.push(value.get(start..).unwrap_or_default());
        for (index, (key, part)) in self.keys.iter().zip(parts).enumerate() {
            out.push(if index == 0 { b'{' } else { b',' });
            write_text(key, out);
            out.push(b':');
            if self.keep_json && serde_json::from_slice::<serde::de::IgnoredAny>(part).is_ok() {
                out.extend_from_slice(part);
            } else {
                write_text(&String::from_utf8_lossy(part), out);
            }
        }
        if !self.keys.is_empty() {
            out.push(b'}');
        }
    }
}

/// Removes the text outside of two separators (`format.Trim` of v0.5).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Trim {
    /// The result begins after the first byte of this text.
    #[serde(default)]
    left: String,
    /// The result ends before the last of this text.
    #[serde(default)]
    right: String,
    /// The number of further bytes to remove at the start. The default is 0.
    #[serde(default)]
    left_offset: usize,
    /// The number of further bytes to remove at the end. The default is 0.
    #[serde(default)]
    right_offset: usize,
}

impl Trim {
    /// Appends the text between the separators.
    pub(super) fn write(&self, value: &[u8], out: &mut Vec<u8>) {
        let right = (!self.right.is_empty()).then(|| memmem::rfind(value, self.right.as_bytes())).flatten();
        let end = right.filter(|at| *at > 0).unwrap_or(value.len()).saturating_sub(self.right_offset);
        // gollum searches the whole value, and goes on after one byte of the separator.
        let left = (!self.left.is_empty()).then(|| memmem::find(value, self.left.as_bytes())).flatten();
        let start = left.map_or(0, |at| at + 1).saturating_add(self.left_offset);
        out.extend_from_slice(value.get(start..end).unwrap_or_default());
    }
}

/// Removes the text outside of two bounds (`format.TrimToBounds` of v0.6).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TrimToBounds {
    /// The result begins after the first byte of this text.
    #[serde(default)]
    left: String,
    /// The result ends before the last of this text.
    #[serde(default)]
    right: String,
    /// The number of bytes at the start in which `left` is not searched for. The default is 0.
    #[serde(default)]
    left_offset: usize,
    /// The number of bytes at the end in which `right` is not searched for. The default is 0.
    #[serde(default)]
    right_offset: usize,
}

impl TrimToBounds {
    /// Appends the text between the bounds.
    pub(super) fn write(&self, value: &[u8], out: &mut Vec<u8>) {
        let mut end = value.len().saturating_sub(self.right_offset);
        if end > 0 && !self.right.is_empty() {
            end = memmem::rfind(&value[..end], self.right.as_bytes()).unwrap_or(value.len());
        }
        let mut start = self.left_offset.min(value.len().saturating_sub(1));
        if !self.left.is_empty() {
            // gollum goes on after one byte of the bound.
            start += memmem::find(&value[start..], self.left.as_bytes()).map_or(0, |at| at + 1);
        }
        out.extend_from_slice(value.get(start..end).unwrap_or_default());
    }
}
