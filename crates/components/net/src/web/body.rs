//! Reads the bodies of requests, and of answers to ours, into memory of the budget.
//!
//! More memory is reserved only as a body arrives: what a client announces may never come.

use std::fmt::Display;
use std::io::{Cursor, Read};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Body;
use hyper::header::CONTENT_ENCODING;
use hyper::{HeaderMap, StatusCode};
use thalweg_codec::decompress::{Decoder, Format as Compression};
use thalweg_config::ByteSize;
use thalweg_engine::SourceOutput;
use thalweg_record::{Incomplete, Lease, size_text};
use tokio::time::Instant;

use super::Refusal;

/// How many bytes are reserved before a body arrives.
const STEP: usize = 16 << 10;

/// The bytes before a message of gRPC: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// Why a request that waited too long for memory is refused.
const FULL: &str = "the memory is full of messages that are not delivered yet";
const PAUSED: &str = "the source is paused; send the request again later";

/// The wrapping of a body's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrapping {
    /// Nothing.
    Plain,
    /// It is compressed.
    Compressed(Compression),
    /// It is one message of gRPC, which may be compressed like this.
    Message(Option<Compression>),
}

impl Wrapping {
    /// Returns the compression that the headers of a request name.
    ///
    /// # Errors
    /// The answer to a request that is compressed in another way.
    pub fn of(headers: &HeaderMap) -> Result<Self, Refusal> {
        match headers.get(CONTENT_ENCODING).map(|value| value.as_bytes()) {
            None | Some(b"" | b"identity") => Ok(Self::Plain),
            Some(b"gzip" | b"x-gzip") => Ok(Self::Compressed(Compression::Gzip)),
            Some(b"zstd") => Ok(Self::Compressed(Compression::Zstd)),
            Some(_) => {
                let reason = "a body may be compressed with gzip or zstd";
                Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason))
            }
        }
    }
}

/// How bodies are read.
#[derive(Debug, Clone, Copy)]
pub struct Bodies {
    /// The largest body, decompressed.
    pub most: ByteSize,
    /// How long a body may take to arrive.
    pub read_timeout: Duration,
    /// How long a request waits for memory, in all, before it is refused with 429. None if only
    /// `read_timeout` ends the wait.
    pub memory_timeout: Option<Duration>,
}

impl Bodies {
    /// Reads a body, and takes off what is around it, within the time limit.
    ///
    /// # Errors
    /// The answer to a request that is refused.
    pub async fn read(
        &self,
        body: impl Body<Data = Bytes, Error: Display> + Unpin,
        wrapping: Wrapping,
        out: &SourceOutput,
    ) -> Result<(Vec<u8>, Lease), Refusal> {
        let length = body.size_hint().exact().unwrap_or(0);
        if length > self.most_read(wrapping) as u64 {
            return Err(self.too_large());
        }
        if length > attainable(out) as u64 {
            return Err(beyond_memory(out));
        }
        let part = out.share().begin_message();
        let read = async {
            let mut growing = Growing::begin(&part, out, 0, Patience(self.memory_timeout)).await?;
            self.fill(body, self.most_read(wrapping), &mut growing).await?;
            self.unwrapped(growing, wrapping).await
        };
        tokio::select! {
            read = tokio::time::timeout(self.read_timeout, read) => match read {
                Ok(read) => read.map(|read| (read.memory, read.lease)),
                // Not the fault of the client, which may send it again.
                Err(_) if out.is_paused() => Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, PAUSED)),
                Err(_) => {
                    Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"))
                }
            },
            () = part.dropped() => {
                Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "incomplete requests used up the memory"))
            }
        }
    }

    /// The largest body before anything is taken off.
    fn most_read(&self, wrapping: Wrapping) -> usize {
        let prefix = if matches!(wrapping, Wrapping::Message(_)) { PREFIX } else { 0 };
        self.most.as_usize().saturating_add(prefix)
    }

    /// Reads a body as the budget permits. When its first bytes have come, memory for all of it is reserved:
    /// bodies that grow bit by bit would wait for each other. Not if it is a large part of the budget.
    async fn fill(
        &self,
        mut body: impl Body<Data = Bytes, Error: Display> + Unpin,
        most: usize,
        into: &mut Growing<'_>,
    ) -> Result<(), Refusal> {
        let announced = usize::try_from(body.size_hint().exact().unwrap_or(0)).unwrap_or(usize::MAX);
        let announced = if announced > into.out.share().budget().limit() / 3 { 0 } else { announced };
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                Refusal::new(StatusCode::BAD_REQUEST, format!("the body cannot be read: {error}"))
            })?;
            let Ok(data) = frame.into_data() else { continue };
            if data.len() > most - into.memory.len() {
                return Err(self.too_large());
            }
            into.reserve(data.len().max(announced.saturating_sub(into.memory.len()))).await?;
            into.memory.extend_from_slice(&data);
        }
        Ok(())
    }

    /// Takes off what is around the content of a body.
    async fn unwrapped<'b>(&self, mut body: Growing<'b>, wrapping: Wrapping) -> Result<Growing<'b>, Refusal> {
        match wrapping {
            Wrapping::Plain => Ok(body),
            // The compressed body is held until it has been read.
            Wrapping::Compressed(compression) => self.decompressed(&body, 0, compression).await,
            Wrapping::Message(compression) => match (is_compressed(&body.memory)?, compression) {
                (false, _) => {
                    body.memory.drain(..PREFIX);
                    Ok(body)
                }
                (true, Some(compression)) => self.decompressed(&body, PREFIX, compression).await,
                (true, None) => {
                    let reason = "a message is compressed, but `grpc-encoding` does not say how";
                    Err(Refusal::new(StatusCode::BAD_REQUEST, reason))
                }
            },
        }
    }

    /// Decompresses a body, from this place on, as the budget permits.
    async fn decompressed<'b>(
        &self,
        body: &Growing<'b>,
        from: usize,
        compression: Compression,
    ) -> Result<Growing<'b>, Refusal> {
        let Growing { part, out, patience, .. } = *body;
        let memory = out.share().budget().limit();
        let compressed = body.memory.get(from..).unwrap_or_default();
        let mut decoder = Decoder::new(compression, Cursor::new(compressed)).within(memory);
        let mut decoded = Growing::begin(part, out, body.lease.bytes(), patience).await?;
        loop {
            decoded.reserve(STEP).await?;
            let read = decoder.by_ref().take(STEP as u64).read_to_end(&mut decoded.memory);
            let read = read.map_err(|error| {
                Refusal::new(StatusCode::BAD_REQUEST, format!("the body cannot be decompressed: {error}"))
            })?;
            if decoded.memory.len() > self.most.as_usize() {
                return Err(self.too_large());
            }
            if read == 0 {
                return Ok(decoded);
            }
        }
    }

    fn too_large(&self) -> Refusal {
        let reason = format!("a body may have at most {}", self.most);
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, reason)
    }
}

/// Reads what stands before a message of gRPC: whether it is compressed. It must be the only one.
fn is_compressed(body: &[u8]) -> Result<bool, Refusal> {
    let malformed = |reason: String| Refusal::new(StatusCode::BAD_REQUEST, reason);
    let Some((&[flag, a, b, c, d], message)) = body.split_first_chunk::<PREFIX>() else {
        return Err(malformed("the message is cut off".to_owned()));
    };
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    match flag {
        _ if length != message.len() => Err(malformed(format!(
            "a message of {length} bytes is announced, but {} have come: a request has one message",
            message.len()
        ))),
        0 => Ok(false),
        1 => Ok(true),
        other => Err(malformed(format!("the compression of the message is {other}, not 0 or 1"))),
    }
}

/// A body that is arriving, in memory that grows with it.
struct Growing<'b> {
    part: &'b Incomplete,
    out: &'b SourceOutput,
    memory: Vec<u8>,
    lease: Lease,
    /// The other memory that the request holds, in bytes.
    beside: usize,
    patience: Patience,
}

impl<'b> Growing<'b> {
    async fn begin(
        part: &'b Incomplete,
        out: &'b SourceOutput,
        beside: usize,
        mut patience: Patience,
    ) -> Result<Self, Refusal> {
        if_attainable(out, beside, STEP)?;
        let lease = patience.wait(|| out.is_paused(), out.share().reserve_for(STEP, Some(part))).await?;
        part.hold(beside + STEP);
        Ok(Self { part, out, memory: Vec::with_capacity(STEP), lease, beside, patience })
    }

    /// Makes capacity for `more` bytes, at least doubling the memory. Refuses the request if the budget can
    /// never grant them.
    async fn reserve(&mut self, more: usize) -> Result<(), Refusal> {
        let free = self.memory.capacity() - self.memory.len();
        if free >= more {
            return Ok(());
        }
        let (held, least) = (self.beside + self.lease.bytes(), more - free);
        if_attainable(self.out, held, least)?;
        let more = self.out.share().growth(held, least, more.max(self.memory.len()));
        let (out, part) = (self.out, self.part);
        let room = self.patience.wait(|| out.is_paused(), out.share().reserve_for(more, Some(part))).await?;
        // Both leases belong to one share, so the merge always succeeds.
        drop(self.lease.merge(room));
        self.memory.reserve_exact(free + more);
        self.part.hold(self.beside + self.lease.bytes());
        Ok(())
    }
}

/// How long a request may still wait for memory. None if for any time.
#[derive(Debug, Clone, Copy)]
struct Patience(Option<Duration>);

impl Patience {
    /// Waits for memory. Refuses the request when all its waits together have taken too long: because of a
    /// pause, or because there is none.
    async fn wait<T>(
        &mut self,
        is_paused: impl Fn() -> bool,
        reserved: impl Future<Output = T>,
    ) -> Result<T, Refusal> {
        let Some(left) = self.0 else { return Ok(reserved.await) };
        let begun = Instant::now();
        let reserved = tokio::time::timeout(left, reserved).await.map_err(|_| {
            let reason = if is_paused() { PAUSED } else { FULL };
            Refusal::new(StatusCode::TOO_MANY_REQUESTS, reason)
        })?;
        self.0 = Some(left.saturating_sub(begun.elapsed()));
        Ok(reserved)
    }
}

/// Returns how many bytes one request can ever hold: what sources may fill, or the first step, which is
/// granted to a source that holds nothing.
fn attainable(out: &SourceOutput) -> usize {
    out.share().budget().ceiling().max(STEP)
}

/// Refuses a request that holds `held` bytes and needs `more` if the budget can never grant them: it would
/// wait for its own memory.
fn if_attainable(out: &SourceOutput, held: usize, more: usize) -> Result<(), Refusal> {
    if held + more > attainable(out) { Err(beyond_memory(out)) } else { Ok(()) }
}

fn beyond_memory(out: &SourceOutput) -> Refusal {
    let reason = format!(
        "a request may hold at most {}, three quarters of `memory`, and a compressed one holds its \
         decompressed body as well; send less in one request, or raise `memory`",
        size_text(attainable(out))
    );
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_waits_of_a_request_for_memory_have_one_limit() {
        let seconds = |seconds| tokio::time::sleep(Duration::from_secs(seconds));
        let mut patience = Patience(Some(Duration::from_secs(5)));
        assert!(patience.wait(|| false, seconds(3)).await.is_ok());
        for (is_paused, reason) in [(false, FULL), (true, PAUSED)] {
            let refused = patience.wait(|| is_paused, seconds(3)).await.unwrap_err();
            assert_eq!((refused.status, &*refused.reason), (StatusCode::TOO_MANY_REQUESTS, reason));
        }
        assert!(Patience(None).wait(|| false, seconds(1000)).await.is_ok());
    }

    #[test]
    fn the_prefix_of_a_message_is_checked() {
        let read = |body: &[u8]| is_compressed(body).map_err(|refusal| refusal.reason);
        assert_eq!(read(b"\0\0\0\0\x02ab"), Ok(false));
        assert_eq!(read(b"\x01\0\0\0\0"), Ok(true));
        assert_eq!(read(b"\0\0\0\0"), Err("the message is cut off".to_owned()));
        let two = "a message of 1 bytes is announced, but 2 have come: a request has one message";
        assert_eq!(read(b"\0\0\0\0\x01ab"), Err(two.to_owned()));
        let flag = "the compression of the message is 2, not 0 or 1";
        assert_eq!(read(b"\x02\0\0\0\0"), Err(flag.to_owned()));
    }
}
