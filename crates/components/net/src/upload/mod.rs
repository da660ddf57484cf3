//! Receives the files of an HTTP request: in a form (`multipart/form-data`), or as its body.
//!
//! A file is stored while it arrives: in a temporary file, or in memory if it is small and the budget has
//! capacity at once. Each request holds only a buffer of [`SMALL`] bytes for the part being read. Nothing is
//! sent on before the whole request has arrived. A request that is cut off leaves nothing behind.
//!
//! The crate `multer`, which reads such forms, was rejected. It reads all data that has arrived into memory
//! before it parses it. If the client is faster than the disk, that is the whole request.
//!
//! See docs/decisions/044-uploaded-files-are-parsed-as-they-arrive.md.

mod disposition;
mod form;
mod frames;
mod multipart;
mod store;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use hyper::StatusCode;
use hyper::body::Body;
use hyper::header::{CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_TYPE};
use hyper::http::request::Parts;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::ByteSize;
use thalweg_engine::{Error, Temporaries};
use thalweg_record::{Content, File, Lease, Origin, Share, Times};
use tokio::time::timeout;

pub use form::{pairs, percent_decoded};

use disposition::{Value, name_of_file};
use frames::Frames;
use multipart::Multipart;
use store::Storing;

/// The largest file that may stay in memory, and the size of a write to a temporary file, in bytes.
pub const SMALL: usize = 64 << 10;

/// Limits on the fields of a form beside its files: their number, the bytes of each, and the bytes of all
/// together.
const FIELDS: usize = 1000;
const FIELD: usize = 64 << 10;
const ALL_FIELDS: usize = 1 << 20;

/// The name of a file for which the client sent no name.
const UNNAMED: &str = "upload";

/// The form in which files are accepted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Accept {
    /// A form if the request says so; otherwise the body as one file.
    #[default]
    Both,
    /// A form with files.
    Multipart,
    /// The body, as one file.
    Body,
}

/// The limits on a request.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The largest file.
    pub max_file_bytes: ByteSize,
    /// The largest request: all files and fields, and the bytes between them.
    pub max_request_bytes: ByteSize,
    /// The largest number of files.
    pub max_files: usize,
    /// How long the body may pause, and how long the request may wait for memory.
    pub patience: Duration,
}

/// Why a request that waited too long for memory is refused.
const FULL: &str = "the memory budget had no capacity in time";
const PAUSED: &str = "the source is paused; send the request again later";

/// Where files are stored.
#[derive(Debug, Clone)]
pub struct Room {
    /// The reader's share of the memory budget.
    pub share: Share,
    /// Where temporary files are created.
    pub temporary: Temporaries,
    /// True if small files may stay in memory.
    pub in_memory: bool,
}

/// A file that has arrived.
#[derive(Debug, Clone)]
pub struct Upload {
    /// The name that the client sent, without folders.
    pub name: OsString,
    /// The stored content.
    pub content: Content,
    /// The size in bytes.
    pub size: u64,
    /// When the file had arrived.
    pub at: SystemTime,
    lease: Arc<Lease>,
}

impl Upload {
    /// Returns it as a file from this source.
    pub fn file(&self, source: Arc<str>) -> File {
        let mut origin = Origin::new(source, self.name.clone(), self.size);
        let at = Some(self.at);
        origin.times = Times { modified: at, accessed: at, changed: at, mode: None };
        File::new(origin, self.content.clone()).with_lease(self.lease.clone())
    }
}

/// The contents of a request.
#[derive(Debug, Default)]
pub struct Uploads {
    /// Its files, in order.
    pub files: Vec<Upload>,
    /// The other fields of its form, in order.
    pub fields: Vec<(String, String)>,
}

/// Why a request was refused.
#[derive(Debug)]
pub enum Refusal {
    /// It does not have the format it claims, or breaks off.
    Malformed(String),
    /// It has a type that is not accepted.
    Unsupported(String),
    /// It exceeds a limit.
    TooLarge(String),
    /// The body paused for too long, or was too slow as a whole.
    Late,
    /// It waited for memory for too long.
    Busy(&'static str),
    /// The files could not be stored.
    Failed(Error),
}

impl Refusal {
    /// Names the option that sets the limit.
    fn by(self, limit: &str) -> Self {
        match self {
            Self::TooLarge(reason) => Self::TooLarge(format!("{reason} (`{limit}`)")),
            other => other,
        }
    }

    /// Returns the HTTP status of the answer.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::Unsupported(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Late => StatusCode::REQUEST_TIMEOUT,
            Self::Busy(_) | Self::Failed(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Returns the reason for the client.
    pub fn reason(&self) -> &str {
        match self {
            Self::Malformed(reason) | Self::Unsupported(reason) | Self::TooLarge(reason) => reason,
            Self::Late => "the body did not arrive in time",
            Self::Busy(reason) => reason,
            // The client should not learn where files are stored.
            Self::Failed(_) => "the files cannot be stored",
        }
    }
}

/// Reads the files of a request.
///
/// # Errors
/// If the request is refused. The part that had arrived is deleted.
pub async fn read<B>(
    head: &Parts,
    body: B,
    accept: Accept,
    limits: Limits,
    room: &Room,
) -> Result<Uploads, Refusal>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let boundary = boundary(head);
    let encoding = head.headers.get(CONTENT_ENCODING).map(|value| value.as_bytes());
    if encoding.is_some_and(|encoding| !encoding.is_empty() && encoding != b"identity") {
        let reason = "a body may not be compressed by `Content-Encoding`";
        return Err(Refusal::Unsupported(reason.to_owned()));
    }
    let mut frames = Frames::new(body, limits);
    let read = async {
        frames.check_length()?;
        // Reserved before anything else is held, so that a waiting request never holds memory that another
        // one waits for.
        let Ok(lease) = timeout(limits.patience, room.share.reserve(SMALL)).await else {
            return Err(Refusal::Busy(if room.share.is_held_back() { PAUSED } else { FULL }));
        };
        let mut reader = Reader { limits, room, buffer: Vec::new(), uploads: Vec::new(), fields: Vec::new() };
        match (boundary, accept) {
            (Some(boundary), Accept::Both | Accept::Multipart) => {
                reader.form(Multipart::new(&mut frames, &boundary)).await?;
            }
            (None, Accept::Multipart) => {
                let reason = "the request is not a form with files: its type must be `multipart/form-data` with a boundary";
                return Err(Refusal::Malformed(reason.to_owned()));
            }
            (_, Accept::Body) | (None, Accept::Both) => reader.body(head, &mut frames).await?,
        }
        Ok(reader.done(lease))
    };
    let read = read.await;
    if matches!(read, Err(Refusal::TooLarge(_))) {
        // A client that is still sending would not read the answer.
        frames.drain().await;
    }
    read
}

/// Returns the boundary between the parts of a form, if the request has one.
fn boundary(head: &Parts) -> Option<Vec<u8>> {
    let kind = Value::parse(head.headers.get(CONTENT_TYPE)?.as_bytes());
    let boundary = kind.parameter("boundary").filter(|boundary| (1..=200).contains(&boundary.len()))?;
    kind.is("multipart/form-data").then(|| boundary.to_vec())
}

/// Reads the fields of a form without files, as browsers send it (`application/x-www-form-urlencoded`).
/// Returns `None` if the body is not such a form.
///
/// # Errors
/// If it is too large or breaks off.
pub async fn read_fields<B>(head: &Parts, body: B, limits: Limits) -> Result<Option<Uploads>, Refusal>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let kind = head.headers.get(CONTENT_TYPE).map(|kind| Value::parse(kind.as_bytes()));
    if !kind.is_some_and(|kind| kind.is("application/x-www-form-urlencoded")) {
        return Ok(None);
    }
    let mut frames = Frames::new(body, limits);
    frames.check_length()?;
    let mut fields = Vec::new();
    while let Some(data) = frames.next().await? {
        if fields.len() + data.len() > ALL_FIELDS {
            return Err(too_large("the fields of a form", ByteSize::mib(1)));
        }
        fields.extend_from_slice(&data);
    }
    Ok(Some(Uploads { files: Vec::new(), fields: pairs(&fields) }))
}

/// True if the request says that it is a form with files.
pub fn is_form(head: &Parts) -> bool {
    boundary(head).is_some()
}

/// Reads and drops a body, up to a limit, so that its client reads the answer.
pub async fn drain<B>(body: B, limits: Limits)
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    Frames::new(body, limits).drain().await;
}

fn too_large(what: &str, most: ByteSize) -> Refusal {
    Refusal::TooLarge(format!("{what} may have at most {most}"))
}

struct Reader<'r> {
    limits: Limits,
    room: &'r Room,
    /// Data of the current file that has arrived and is not written yet.
    buffer: Vec<u8>,
    uploads: Vec<(OsString, Content, u64)>,
    fields: Vec<(String, String)>,
}

impl Reader<'_> {
    async fn form<B>(&mut self, mut form: Multipart<'_, B>) -> Result<(), Refusal>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let mut of_fields = 0;
        while let Some(part) = form.next().await? {
            let Some(name) = part.file_name else {
                if self.fields.len() >= FIELDS {
                    let reason = format!("a form may have at most {FIELDS} fields beside its files");
                    return Err(Refusal::TooLarge(reason));
                }
                of_fields += part.name.len();
                let mut value = Vec::new();
                while let Some(data) = form.data().await? {
                    if value.len() + data.len() > FIELD || of_fields + data.len() > ALL_FIELDS {
                        let reason =
                            "a form may have fields of 64 KiB each and 1 MiB together, beside its files";
                        return Err(Refusal::TooLarge(reason.to_owned()));
                    }
                    of_fields += data.len();
                    value.extend_from_slice(&data);
                }
                self.fields.push((part.name, String::from_utf8_lossy(&value).into_owned()));
                continue;
            };
            if self.uploads.len() >= self.limits.max_files {
                let most = self.limits.max_files;
                return Err(Refusal::TooLarge(format!(
                    "a request may have at most {most} files (`max_files`)"
                )));
            }
            let mut storing = Storing::new(self.room, self.limits.max_file_bytes, &mut self.buffer);
            while let Some(data) = form.data().await? {
                storing.add(&data).await?;
            }
            let (content, size) = storing.finish().await?;
            self.uploads.push((name, content, size));
        }
        Ok(())
    }

    async fn body<B>(&mut self, head: &Parts, frames: &mut Frames<B>) -> Result<(), Refusal>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let name = head.headers.get(CONTENT_DISPOSITION);
        let name = name.and_then(|value| name_of_file(&Value::parse(value.as_bytes())));
        let mut storing = Storing::new(self.room, self.limits.max_file_bytes, &mut self.buffer);
        let mut is_there = name.is_some();
        while let Some(data) = frames.next().await? {
            is_there = true;
            storing.add(&data).await?;
        }
        // Without a body there is no file. An empty file has a name.
        if is_there {
            let (content, size) = storing.finish().await?;
            self.uploads.push((name.unwrap_or_else(|| UNNAMED.into()), content, size));
        }
        Ok(())
    }

    /// Returns the uploads. They keep the part of the lease that the file records themselves weigh.
    fn done(self, mut lease: Lease) -> Uploads {
        let kept = Arc::new(lease.split(self.uploads.len().saturating_mul(File::WEIGHT)));
        let at = SystemTime::now();
        let files = self.uploads.into_iter();
        let files =
            files.map(|(name, content, size)| Upload { name, content, size, at, lease: kept.clone() });
        Uploads { files: files.collect(), fields: self.fields }
    }
}
