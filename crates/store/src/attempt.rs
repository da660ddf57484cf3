//! One attempt: a request for a range, its reply, and the conclusion from both.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use opendal::ErrorKind;
use parking_lot::Mutex;
use std::sync::Arc;
use thalweg_redact::foreign;

use crate::local;
use crate::transport::Seen;
use crate::{Fingerprint, Origin, StoreError};

/// Why an attempt did not return everything that was requested.
#[derive(Debug)]
pub enum AttemptError {
    /// A later attempt may succeed.
    Temporary {
        /// The reason.
        why: String,
        /// How long the server asks us to wait.
        asked: Option<Duration>,
        /// True if the server is overloaded.
        overloaded: bool,
    },
    /// The object is in another state now, which this text describes.
    Other(String),
    /// The server sent the whole object instead of a range.
    Ignored,
    /// The receiver no longer wants the bytes.
    Stale,
    /// A retry makes no sense.
    Fatal(StoreError),
}

impl AttemptError {
    /// Returns the error for a transfer that ended early.
    pub fn cut(why: String) -> Self {
        AttemptError::Temporary { why, asked: None, overloaded: false }
    }

    /// Returns the error for a server that sent nothing for `silence`.
    pub fn silent(silence: Duration) -> Self {
        AttemptError::cut(format!("no data arrived for {:.1} s", silence.as_secs_f64()))
    }

    /// Classifies an error of OpenDAL with the help of the reply's head. `what` is the operation on `name`
    /// that failed.
    pub fn of(error: &opendal::Error, name: &str, what: &str, seen: &Seen) -> Self {
        let why = said(error, seen);
        let overloaded = matches!(seen.status, Some(429 | 503)) || error.kind() == ErrorKind::RateLimited;
        let passing = matches!(seen.status, Some(408 | 425 | 429 | 500 | 502 | 503 | 504));
        if overloaded || passing || error.is_temporary() {
            return AttemptError::Temporary { why, asked: seen.retry_after, overloaded };
        }
        let name = name.to_owned();
        let denied = error.kind() == ErrorKind::PermissionDenied || matches!(seen.status, Some(401 | 403));
        AttemptError::Fatal(match error.kind() {
            ErrorKind::NotFound => StoreError::Absent { name },
            _ if denied => StoreError::Denied { name, what: "read", why },
            _ => StoreError::Failed { name, what: what.to_owned(), attempts: 1, why, is_temporary: false },
        })
    }
}

/// Returns the reason in one line. The status says more than OpenDAL's message, which contains the whole
/// reply.
fn said(error: &opendal::Error, seen: &Seen) -> String {
    if let Some(status) = seen.status.filter(|status| *status >= 300) {
        let reason = http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
        return format!("the origin replied {status} {}", reason.unwrap_or_default()).trim_end().to_owned();
    }
    let mut text = error.message().to_owned();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    // It may quote the reply.
    foreign(&text).into_owned()
}

/// Receives the bytes of a range.
pub trait Receiver: Send {
    /// Called once, when the head of the reply has arrived. `state` is the state of the object, if the head
    /// tells it. If it does not (a file on a disk), no byte may be visible before
    /// [`confirmed`](Self::confirmed).
    ///
    /// # Errors
    /// If it is another state.
    fn head(&mut self, state: Option<Fingerprint>) -> Result<(), AttemptError>;

    /// Called with bytes of the range, in their order. `at` is their offset from the start of the range.
    ///
    /// # Errors
    /// If the bytes are of no use.
    fn bytes(&mut self, at: u64, bytes: Bytes) -> Result<(), AttemptError>;

    /// Called after all bytes have arrived, with the state of the object, which was looked up afterwards.
    ///
    /// # Errors
    /// If it is another state.
    fn confirmed(&mut self, state: Fingerprint) -> Result<(), AttemptError>;
}

/// Requests a range of an object once. `length` is the expected length of the object, for replies that do not
/// tell it.
///
/// # Errors
/// [`AttemptError`]. `into` has received the bytes that arrived before the error.
pub async fn receive(
    origin: &Origin,
    range: Range<u64>,
    length: u64,
    silence: Duration,
    seen: &Arc<Mutex<Seen>>,
    into: &mut impl Receiver,
) -> Result<(), AttemptError> {
    if let Some(beneath) = &origin.local {
        return local::receive(origin, beneath.clone(), range, silence, into).await;
    }
    let is_whole = range == (0..length);
    let received = receive_from_server(origin, range, length, silence, seen, into).await;
    let seen = seen.lock();
    received.map_err(|error| match error {
        AttemptError::Other(is) => AttemptError::Other(seen.told(&is)),
        // There is nothing else to request.
        AttemptError::Ignored if is_whole => {
            let length = seen.length.map(|length| format!("{length} bytes"));
            AttemptError::Other(seen.told(length.as_deref().unwrap_or("of unknown length")))
        }
        error => error,
    })
}

async fn receive_from_server(
    origin: &Origin,
    range: Range<u64>,
    length: u64,
    silence: Duration,
    seen: &Arc<Mutex<Seen>>,
    into: &mut impl Receiver,
) -> Result<(), AttemptError> {
    let operator = origin.looking(seen, length);
    let wanted = range.end - range.start;
    let failure = |error: &opendal::Error| {
        let seen = seen.lock().clone();
        match seen.status {
            _ if seen.ignored_range => AttemptError::Ignored,
            // The head was right, so the next attempt may succeed.
            Some(200 | 206) => AttemptError::cut(said(error, &seen)),
            _ => AttemptError::of(
                error,
                origin.name(),
                &format!("reading {wanted} bytes at {}", range.start),
                &seen,
            ),
        }
    };
    let reader = operator.reader(origin.path()).await.map_err(|error| failure(&error))?;
    let stream = reader.clone().into_stream(range.clone()).await;
    let mut stream = stream.map_err(|error| failure(&error))?;
    let (mut received, mut has_head, mut is_confirmed) = (0, false, false);
    loop {
        let buffer = match patient(silence, stream.next()).await {
            None => return Err(AttemptError::silent(silence)),
            Some(None) => break,
            Some(Some(Err(error))) => {
                let now = seen.lock().clone();
                // A range beyond the end: the object is shorter than before.
                if let (Some(416), Some(length)) = (now.status, now.length) {
                    into.head(Some(Fingerprint { length, etag: None, modified: None }))?;
                }
                return Err(failure(&error));
            }
            Some(Some(Ok(buffer))) => buffer,
        };
        if !std::mem::replace(&mut has_head, true) {
            let seen = seen.lock().clone();
            let state = reader.metadata().map(|metadata| {
                let length = seen.length.unwrap_or_else(|| match seen.status {
                    // A part of an object of unknown length.
                    Some(_) => length,
                    None => metadata.content_length(),
                });
                Fingerprint::new(length, metadata)
            });
            is_confirmed = state.is_some();
            into.head(state)?;
        }
        let has_too_much = buffer.len() as u64 > wanted - received;
        for bytes in buffer {
            let left = usize::try_from(wanted - received).unwrap_or(usize::MAX);
            let bytes = bytes.slice(..bytes.len().min(left));
            let at = received;
            received += bytes.len() as u64;
            into.bytes(at, bytes)?;
        }
        // Such an answer need not have an end.
        if has_too_much {
            break;
        }
    }
    if !is_confirmed {
        let metadata = operator.stat(origin.path()).await.map_err(|error| failure(&error))?;
        into.confirmed(Fingerprint::new(metadata.content_length(), &metadata))?;
    }
    if received < wanted {
        return Err(AttemptError::cut(format!("only {received} of {wanted} bytes arrived")));
    }
    Ok(())
}

/// Requests the state of an object once. With `by_reading`, it requests the first byte instead: some origins
/// (for instance a signed URL) refuse to describe a file but allow reading it.
///
/// # Errors
/// [`AttemptError`].
pub async fn state(
    origin: &Origin,
    by_reading: bool,
    silence: Duration,
    seen: &Arc<Mutex<Seen>>,
) -> Result<Fingerprint, AttemptError> {
    let name = origin.name();
    if by_reading {
        return first(origin, silence, seen).await;
    }
    if let Some(beneath) = &origin.local {
        return local::found(origin, beneath.clone(), silence).await;
    }
    let operator = origin.looking(seen, 0);
    let metadata = match patient(silence, operator.stat(origin.path())).await {
        None => return Err(AttemptError::silent(silence)),
        Some(Err(error)) => {
            return Err(AttemptError::of(&error, name, "asking for its state", &seen.lock().clone()));
        }
        Some(Ok(metadata)) => metadata,
    };
    if metadata.is_dir() {
        return Err(impossible(name, "asking for its state", "it is a folder"));
    }
    Ok(Fingerprint::new(metadata.content_length(), &metadata))
}

/// Returns the state that comes with the first byte.
async fn first(
    origin: &Origin,
    silence: Duration,
    seen: &Arc<Mutex<Seen>>,
) -> Result<Fingerprint, AttemptError> {
    struct First(Option<Fingerprint>);
    impl Receiver for First {
        fn head(&mut self, state: Option<Fingerprint>) -> Result<(), AttemptError> {
            self.0 = state;
            Ok(())
        }
        fn bytes(&mut self, _: u64, _: Bytes) -> Result<(), AttemptError> {
            Ok(())
        }
        fn confirmed(&mut self, state: Fingerprint) -> Result<(), AttemptError> {
            self.0 = Some(state);
            Ok(())
        }
    }
    let mut first = First(None);
    let received = receive(origin, 0..1, 0, silence, seen, &mut first).await;
    let length = seen.lock().length;
    match (received, first.0, length) {
        (Ok(()), Some(state), Some(length)) => Ok(Fingerprint { length, ..state }),
        // The reply is the whole object: its head tells the length, and the body is not read.
        (Err(AttemptError::Ignored), _, Some(length)) => {
            Ok(Fingerprint { length, etag: None, modified: None })
        }
        (Err(AttemptError::Ignored), _, None) => Err(impossible(
            origin.name(),
            "asking for its length",
            "the server neither supports ranges nor says how long the file is; download the file first",
        )),
        (Err(failure), ..) => Err(failure),
        (Ok(()), ..) => Err(impossible(
            origin.name(),
            "asking for its first byte",
            "the origin does not say how long it is",
        )),
    }
}

fn impossible(name: &str, what: &str, why: &str) -> AttemptError {
    let (name, what, why) = (name.to_owned(), what.to_owned(), why.to_owned());
    AttemptError::Fatal(StoreError::Failed { name, what, attempts: 1, why, is_temporary: false })
}

/// Returns the result of `work`, or `None` after `silence`.
pub async fn patient<T>(silence: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(silence, work).await.ok()
}
