//! Writing: an object in one request, or in parts.
//!
//! What is written in parts is seen by nobody before it is [complete](Upload::complete). What is needed to go on later, in another
//! process, is [`Begun`] and the [`UploadedPart`]s that are done: who calls keeps both. How many parts are on their way at once, and
//! where their bytes are, is the business of who calls.
//!
//! | store | parts | whether the store confirms what it got |
//! | --- | --- | --- |
//! | Amazon's, and what speaks as it does | its multipart uploads | CRC-32C of each part, where it knows that |
//! | Google's | the same requests, signed in its way | CRC-32C of each part, and of the whole |
//! | Microsoft's | blocks, and a list of them | its CRC-64 of each part |
//! | folders | a draft beside the target, written at positions | no; what another process wrote is read again |

mod answer;
mod blocks;
mod body;
mod crc;
mod draft;
mod folder;
mod multipart;
mod parts;
mod put;
mod remote;
mod request;
mod signing;
mod sizes;

use serde::{Deserialize, Serialize};

pub use body::Body;
pub(crate) use draft::is_draft;
pub use folder::PartWriter;
pub use parts::Upload;
pub(crate) use remote::Remote;
pub use sizes::{Limits, part_size};

/// How an object is to be written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Writing {
    /// Its content type. Folders do not keep it.
    pub content_type: Option<String>,
    /// What is to become of one that is there.
    pub on_existing: OnExisting,
}

/// What is to become of an object that is there already.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExisting {
    /// It is replaced.
    #[default]
    Replace,
    /// It stays, and writing is [refused](crate::StoreError::Refused).
    Keep,
    /// It is replaced if this is its entity tag, else writing is [refused](crate::StoreError::Refused). Folders have no tags, so it is
    /// impossible there.
    ReplaceIf(String),
}

/// An upload that was begun: enough to go on with it, or to throw it away, in another process. There is no secret in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// The path of the object to be.
    pub path: String,
    /// What the store calls the upload.
    pub id: String,
    /// How the object is to be written: the conditions are looked at when it is complete.
    pub writing: Writing,
    /// Whether the store was told that checksums come along with the parts.
    pub has_checksums: bool,
}

/// A part that the store has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadedPart {
    /// Which it is, from 1 on.
    pub number: u32,
    /// How many bytes it has.
    pub size: u64,
    /// What the store calls this state of it.
    pub tag: String,
    /// The CRC-32C of its bytes.
    pub crc32c: u32,
    /// Whether the store has found the same checksum.
    pub is_verified: bool,
}

/// What became of sending a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// The part.
    pub part: UploadedPart,
    /// Whether the store had too much to do meanwhile: who sends much at once should then send less.
    pub was_overloaded: bool,
}

/// An object that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its entity tag, if the store gave one.
    pub etag: Option<String>,
    /// How many bytes it has.
    pub size: u64,
    /// The CRC-32C of its bytes, as they were sent.
    pub crc32c: u32,
    /// Whether the store has confirmed what it got.
    pub verified: Verified,
    /// Whether the store had too much to do meanwhile: who writes much at once should then write less.
    pub was_overloaded: bool,
}

impl Stored {
    /// One of these parts, in their order.
    fn of(parts: &[UploadedPart]) -> Self {
        Self {
            etag: None,
            size: parts.iter().map(|part| part.size).sum(),
            crc32c: crc::of_all(parts),
            verified: Verified::by(parts),
            was_overloaded: false,
        }
    }
}

/// Whether a store has confirmed a checksum of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verified {
    /// The checksum of the whole.
    Whole,
    /// The checksum of each part.
    Parts,
    /// None: it does not know ours.
    No,
}

impl Verified {
    /// What is known of an object of parts.
    fn by(parts: &[UploadedPart]) -> Self {
        if parts.iter().all(|part| part.is_verified) { Verified::Parts } else { Verified::No }
    }
}
