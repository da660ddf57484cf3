//! Writing: an object in one request, or in parts.
//!
//! An object that is written in parts is not visible before it is [complete](Upload::complete). To resume
//! later in another process, the caller saves [`Begun`] and the finished [`UploadedPart`]s. The caller also
//! decides how many parts are sent at once, and where their bytes are.
//!
//! | store | parts | whether the store confirms the received data |
//! | --- | --- | --- |
//! | Amazon's, and compatible ones | its multipart uploads | CRC-32C of each part, if supported |
//! | Google's | the same requests, signed in its way | CRC-32C of each part, and of the whole |
//! | Microsoft's | blocks, and a list of them | its CRC-64 of each part |
//! | folders | a draft beside the target, written at offsets | no; data that another process wrote is read again |
//!
//! See docs/decisions/036-uploads-are-our-own-requests.md.

mod answer;
mod blocks;
mod body;
mod crc;
mod draft;
mod folder;
pub mod fuzzing;
mod multipart;
mod noting;
mod parts;
mod put;
mod remote;
mod request;
pub(crate) mod signing;
mod sizes;
mod spot;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thalweg_beneath::CopyOf;

pub use body::Body;
pub use folder::PartWriter;
pub use parts::Upload;
pub(crate) use remote::Remote;
pub use sizes::{Limits, part_size};

/// How an object is written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Writing {
    /// The content type of the object. Folders do not store it.
    pub content_type: Option<String>,
    /// How an existing object is handled.
    pub on_existing: OnExisting,
    /// The permissions of what is written, for files of this machine: others never get more than these. By
    /// default they get what new files usually give them.
    pub mode: Option<u32>,
    /// The file of this machine that is copied into a folder of this machine, if there is one: others get no
    /// access to the copy that they do not have to the file.
    #[serde(skip)]
    pub copy: Option<Arc<CopyOf>>,
    /// True if no later process can resume an upload, because no record of it is kept. A draft in a folder
    /// then has no name, so that a killed process leaves nothing. If the file system has no such files, the
    /// draft belongs to its target: the next write of the target removes what a killed process left.
    #[serde(skip)]
    pub once: bool,
}

/// How an existing object is handled.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExisting {
    /// The object is replaced.
    #[default]
    Replace,
    /// The object stays, and the write is [refused](crate::StoreError::Refused).
    Keep,
    /// The object is replaced if it has this entity tag; otherwise the write is
    /// [refused](crate::StoreError::Refused). Folders have no tags, so it is impossible there.
    ReplaceIf(String),
}

/// An upload in progress: enough to resume or discard it in another process. It contains no secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// The path of the future object.
    pub path: String,
    /// The store's id of the upload.
    pub id: String,
    /// How the object is written. Conditions are checked when it is completed.
    pub writing: Writing,
    /// True if the upload was begun with checksums for its parts.
    pub has_checksums: bool,
}

/// A part that the store has received.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadedPart {
    /// The number of the part, from 1 on.
    pub number: u32,
    /// The size of the part in bytes.
    pub size: u64,
    /// The store's tag for this content of the part.
    pub tag: String,
    /// The CRC-32C of its bytes.
    pub crc32c: u32,
    /// True if the store has computed the same checksum.
    pub is_verified: bool,
}

/// The result of sending a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// The part.
    pub part: UploadedPart,
    /// True if the store was overloaded meanwhile: a caller with many concurrent requests should then reduce
    /// them.
    pub was_overloaded: bool,
}

/// An object that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The entity tag, if the store returned one.
    pub etag: Option<String>,
    /// The size of the object in bytes.
    pub size: u64,
    /// The CRC-32C of the sent bytes.
    pub crc32c: u32,
    /// Whether the store has confirmed the received data.
    pub verified: Verified,
    /// True if the store was overloaded meanwhile: a caller with many concurrent requests should then reduce
    /// them.
    pub was_overloaded: bool,
}

impl Stored {
    /// Returns an object that consists of these parts, in their order.
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

/// The checksums that a store has compared with its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verified {
    /// The checksum of the whole object.
    Whole,
    /// The checksum of each part.
    Parts,
    /// None: the store does not support our checksum.
    No,
}

impl Verified {
    /// Returns the confirmation of an object that consists of `parts`.
    fn by(parts: &[UploadedPart]) -> Self {
        if parts.iter().all(|part| part.is_verified) { Verified::Parts } else { Verified::No }
    }
}
