//! Detects the type of a file by its first bytes, and matches it against an allow list.
//!
//! Names and extensions are those of Go's `mimetype` library, which other programs check uploads with, so
//! that an allow list means the same here. A signature decides first; a file without one is examined as text.

mod compound;
mod markup;
mod matcher;
mod script;
mod signatures;
mod table;
mod text;
mod types;

pub use matcher::{Matcher, NotAType};
pub use types::{Type, canonical, extension_of};

/// The number of bytes at the beginning of a file that [`detect`] examines; it ignores further ones.
pub const HEAD: usize = 3072;

/// The type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Detected {
    /// The MIME type, with a `charset` parameter for plain text, HTML and XML: `text/plain; charset=utf-8`.
    pub mime: &'static str,
    /// The usual extension without a dot; empty if there is none, as for an unknown type.
    pub extension: &'static str,
}

/// Detects the type of a file by `head`, its first [`HEAD`] bytes (all of them if it has fewer).
///
/// An unknown type is `application/octet-stream`, unless it is text. An empty file is `text/plain`.
pub fn detect(head: &[u8]) -> Detected {
    if head.is_empty() {
        // No byte says what the encoding is.
        return Detected { mime: "text/plain", extension: types::PLAIN.extension };
    }
    let cut = head.len() >= HEAD;
    let head = head.get(..HEAD).unwrap_or(head);
    match signatures::find(head) {
        Some(found) => Detected { mime: found.name, extension: found.extension },
        None => text::detect(head, cut),
    }
}

#[cfg(test)]
mod tests;
