//! What type a file has by its first bytes, and whether that is among those that are allowed.
//!
//! Names and extensions are those of Go's `mimetype` library, which others check uploads with, so that a list
//! of allowed types means the same here. A signature decides first; what has none and is text is looked at as text.

mod compound;
mod markup;
mod matcher;
mod signatures;
mod text;
mod types;

pub use matcher::{Matcher, NotAType};
pub use types::{Type, canonical, extension_of};

/// So many bytes of the beginning of a file are enough for [`detect`]; what is given beyond is not looked at.
pub const HEAD: usize = 3072;

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Detected {
    /// The type, with a `charset` parameter where it is plain text, HTML or XML: `text/plain; charset=utf-8`.
    pub mime: &'static str,
    /// The usual extension without a dot; empty if there is none, as for what is not known.
    pub extension: &'static str,
}

/// What `head`, the first [`HEAD`] bytes of a file (all if it has fewer), shows the file to be.
///
/// What is not known is `application/octet-stream`, unless it is text. An empty file is `text/plain; charset=utf-8`.
pub fn detect(head: &[u8]) -> Detected {
    let cut = head.len() >= HEAD;
    let head = head.get(..HEAD).unwrap_or(head);
    match signatures::find(head) {
        Some(found) => Detected { mime: found.name, extension: found.extension },
        None => text::detect(head, cut),
    }
}

#[cfg(test)]
mod tests;
