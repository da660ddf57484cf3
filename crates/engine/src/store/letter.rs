//! A dead letter: what could not be processed, with its reason.

use std::path::Path;

use serde::{Deserialize, Serialize};
use thalweg_beneath::{Beneath, Links};

use crate::Flow;
use crate::kept::KeptField;

/// A message or file that could not be processed, with the data needed to examine it and to process it again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// The time of the rejection, in microseconds since 1970 (UTC).
    pub time_us: i64,
    /// The component that rejected it.
    pub component: String,
    /// The transforms of its pipeline that it had passed, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed: Vec<String>,
    /// The reason of the rejection.
    pub reason: String,
    /// The source that it came from.
    pub source: String,
    /// The path or address of its origin, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The offset at which it begins in its origin, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// The properties of the file, if it is one. If its content is stored at [`path`](Self::path), the letter
    /// has no payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<KeptFile>,
    /// The payload that reached the component that rejected it, if it is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// The same payload in hexadecimal digits, if it is not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_hex: Option<String>,
    /// The fields that reached the component that rejected it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<KeptField>,
}

/// The properties of a file that are kept beside its content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptFile {
    /// The name of the file.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its MIME type, if it was detected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime: Option<String>,
    /// The folder in which it was found, if a link that leads out of it must not be followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beneath: Option<String>,
    /// True if links that stay in that folder are followed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub follows_inside: bool,
}

impl KeptFile {
    /// Returns how the file at the path of the letter is opened.
    pub fn opening(&self) -> Beneath {
        match &self.beneath {
            Some(folder) if self.follows_inside => Beneath::new(Path::new(folder), Links::Inside),
            Some(folder) => Beneath::new(Path::new(folder), Links::Refused),
            None => Beneath::chosen(),
        }
    }
}

impl DeadLetter {
    /// Returns the flow that it left: a file, or a message.
    pub fn flow(&self) -> Flow {
        if self.file.is_some() { Flow::Files } else { Flow::Messages }
    }

    /// Returns its payload.
    pub fn payload_bytes(&self) -> Vec<u8> {
        match (&self.payload, &self.payload_hex) {
            (Some(text), _) => text.clone().into_bytes(),
            (None, Some(hex)) => {
                let digits: Vec<u8> =
                    hex.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
                digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
            }
            (None, None) => Vec::new(),
        }
    }

    /// Returns the approximate number of bytes that it takes in memory.
    pub fn size(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        // Three texts, each an allocation of its own.
        let least = size_of::<KeptField>() + 3 * 16;
        let fields = self.fields.iter().map(|field| field.name.len() + text(&field.value) + least);
        size_of::<Self>()
            + text(&self.payload)
            + text(&self.payload_hex)
            + self.reason.len()
            + fields.sum::<usize>()
    }

    /// Sets its payload.
    pub fn set_payload(&mut self, payload: &[u8]) {
        match std::str::from_utf8(payload) {
            Ok(text) => self.payload = Some(text.to_owned()),
            Err(_) => self.payload_hex = Some(hex(payload)),
        }
    }
}

/// Returns bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
