//! Receives datagrams for a source. Datagrams have no flow control: while the budget has no capacity, the
//! system drops those that do not fit its buffer.

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use arrow_buffer::Buffer;
use thalweg_config::ByteSize;
use thalweg_engine::{Error, SourceOutput};
use thalweg_record::Budget;
use tokio::time::Instant;

use super::gelf::{Chunks, Lost};
use super::listener::Sender;
use super::{Cut, Cuts, Datagrams, Format};
use thalweg_codec::charset::Charset;
use thalweg_codec::framing::KEPT;
use thalweg_codec::stream_framing::{By, StreamFraming};
use thalweg_stream::cut::too_long;

/// The largest datagram of either kind under the usual settings of systems, in bytes.
const LARGEST: usize = 256 << 10;

/// The size of the receive buffer, in bytes.
const ROOM: usize = 2 * LARGEST;

/// The maximum number of datagrams that are received before their messages are sent.
const MOST: usize = 4096;

/// The maximum number of messages that are rejected at once. A sender of useless chunks can send as many as
/// the network carries.
const MOST_LOST: usize = 256;

/// A datagram in the receive buffer.
struct Datagram {
    sender: Sender,
    range: Range<usize>,
    /// The reason for rejecting it.
    fault: Option<String>,
}

/// Receives datagrams until the run stops, or until none arrived for `end_after_idle`. With `framing`, each
/// datagram is cut into messages, or is a part of a message of GELF. Without it, each is one message, without
/// line feeds, carriage returns and NULs at its end. The text is in this character set.
///
/// # Errors
/// If the socket fails, or the messages cannot be sent.
pub async fn receive<F: Format>(
    socket: &Datagrams,
    framing: Option<&StreamFraming>,
    limit: ByteSize,
    charset: Charset,
    end_after_idle: Option<Duration>,
    mut format: F,
    out: &mut SourceOutput,
) -> Result<(), Error> {
    let mut receiver = Receiver::new(socket, framing, limit, charset, out.share().budget());
    let mut last = Instant::now();
    let mut is_over = false;
    while !is_over {
        is_over = receiver.wait(end_after_idle.map(|span| last + span), out).await?;
        if is_over && receiver.expiry().is_none() {
            return Ok(());
        }
        let mut lease = out.reserve(ROOM).await;
        let mut memory: Vec<u8> = Vec::with_capacity(ROOM);
        let mut datagrams = Vec::new();
        let count = match is_over {
            true => 0,
            false => receiver.collect(&mut memory, &mut datagrams).map_err(|error| broken(out, &error))?,
        };
        receiver.reject_lost(is_over, &mut memory, &mut datagrams);
        if !datagrams.is_empty() {
            if memory.len() < memory.capacity() / 4 {
                memory.shrink_to_fit();
                drop(lease.split(ROOM - memory.capacity().min(ROOM)));
            }
            receiver.send(&lease.freeze(memory), &datagrams, &mut format, out).await?;
        }
        if count > 0 {
            // Not the time of their arrival: what arrives while these wait for the pipeline is not seen.
            last = Instant::now();
        }
    }
    Ok(())
}

/// A socket, and what is known of the datagrams before.
struct Receiver<'a> {
    socket: &'a Datagrams,
    framing: Option<&'a StreamFraming>,
    limit: ByteSize,
    charset: Charset,
    /// The chunks of incomplete messages, if datagrams are parts of messages of GELF.
    chunks: Option<Chunks>,
    /// The last sender, and its name.
    peer: Option<(Sender, Arc<str>)>,
}

impl<'a> Receiver<'a> {
    fn new(
        socket: &'a Datagrams,
        framing: Option<&'a StreamFraming>,
        limit: ByteSize,
        charset: Charset,
        budget: &Budget,
    ) -> Self {
        let is_gelf = framing.is_some_and(|framing| framing.by == By::Gelf);
        Self {
            socket,
            framing: framing.filter(|_| !is_gelf),
            limit,
            charset,
            chunks: is_gelf.then(|| Chunks::new(limit, budget)),
            peer: None,
        }
    }

    /// Returns when the oldest incomplete message expires.
    fn expiry(&self) -> Option<Instant> {
        self.chunks.as_ref().and_then(Chunks::next_expiry)
    }

    /// Waits for datagrams, or until a message expires. Returns true if the source ends: the run stops, or no
    /// datagram came until `idle`.
    async fn wait(&self, idle: Option<Instant>, out: &SourceOutput) -> Result<bool, Error> {
        let expiry = self.expiry();
        let until = |time: Option<Instant>| tokio::time::sleep_until(time.unwrap_or_else(Instant::now));
        tokio::select! {
            biased;
            () = out.stopping() => Ok(true),
            ready = self.socket.ready() => ready.map(|()| false).map_err(|error| broken(out, &error)),
            () = until(expiry), if expiry.is_some() => Ok(false),
            () = until(idle), if idle.is_some() => Ok(true),
        }
    }

    /// Appends the waiting datagrams to `memory`, as far as the largest one would still fit; or, of GELF, the
    /// messages that they complete. Returns the number of datagrams.
    ///
    /// A message for which `memory` has grown is the last one. Otherwise a few datagrams that are large when
    /// they are decompressed would hold up the thread.
    fn collect(&mut self, memory: &mut Vec<u8>, datagrams: &mut Vec<Datagram>) -> io::Result<usize> {
        let capacity = memory.capacity();
        for count in 0..MOST {
            let is_full = self.chunks.as_ref().is_some_and(|chunks| chunks.lost.len() >= MOST_LOST);
            let has_grown = memory.capacity() > capacity;
            if is_full || has_grown || ROOM.saturating_sub(memory.len()) < LARGEST {
                return Ok(count);
            }
            memory.reserve(LARGEST);
            let start = memory.len();
            match self.socket.receive(memory) {
                Ok(sender) => {
                    let is_message = self.chunks.as_mut().is_none_or(|chunks| {
                        let datagram = memory.split_off(start);
                        chunks.take(sender, &datagram, Instant::now(), memory)
                    });
                    if is_message {
                        datagrams.push(Datagram { sender, range: start..memory.len(), fault: None });
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(count),
                // On UDP, an earlier packet from this socket reached no listener. Later datagrams are not
                // affected.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error),
            }
        }
        Ok(MOST)
    }

    /// Appends the messages of GELF that cannot be used, with the reasons. At the end, these are all that are
    /// incomplete.
    fn reject_lost(&mut self, is_over: bool, memory: &mut Vec<u8>, datagrams: &mut Vec<Datagram>) {
        let Some(chunks) = &mut self.chunks else { return };
        match is_over {
            true => chunks.end(),
            false => chunks.expire(Instant::now()),
        }
        datagrams.extend(chunks.lost.drain(..).map(|lost| reject(lost, memory)));
    }

    /// Sends the messages of these datagrams, which are in `buffer`.
    async fn send<F: Format>(
        &mut self,
        buffer: &Buffer,
        datagrams: &[Datagram],
        format: &mut F,
        out: &mut SourceOutput,
    ) -> Result<(), Error> {
        for group in datagrams.chunk_by(|one, other| one.sender == other.sender) {
            let Some(Datagram { sender, .. }) = group.first() else { continue };
            let name = match &self.peer {
                Some((known, name)) if known == sender => name.clone(),
                _ => self.socket.name(*sender),
            };
            self.peer = Some((*sender, name.clone()));
            let mut cut = Cut { charset: self.charset, ..Cut::of(buffer.clone()) };
            for datagram in group {
                match &datagram.fault {
                    Some(fault) => cut.rejected.push((datagram.range.clone(), fault.clone().into())),
                    None => divide(&mut cut, datagram.range.clone(), self.framing, self.limit),
                }
            }
            cut.send(format, &name, false, out, |_| {}).await?;
        }
        Ok(())
    }
}

/// Appends the bytes of a message that cannot be used to `memory`.
fn reject(lost: Lost, memory: &mut Vec<u8>) -> Datagram {
    let start = memory.len();
    memory.extend_from_slice(&lost.bytes);
    Datagram { sender: lost.sender, range: start..memory.len(), fault: Some(lost.reason) }
}

/// Adds the messages of one datagram.
fn divide(cut: &mut Cut, range: Range<usize>, framing: Option<&StreamFraming>, limit: ByteSize) {
    let Some(framing) = framing else {
        let bytes = cut.buffer.get(range.clone()).unwrap_or_default();
        let trimmed =
            bytes.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r' | 0)).map_or(0, |last| last + 1);
        if trimmed as u64 > limit.bytes() {
            let kept = limit.as_usize().min(KEPT);
            cut.rejected.push((range.start..range.start + kept, too_long(limit, kept).into()));
        } else {
            cut.messages.push(range.start..range.start + trimmed);
        }
        return;
    };
    let datagram = cut.buffer.slice_with_length(range.start, range.len());
    let moved = |piece: Range<usize>| piece.start + range.start..piece.end + range.start;
    for found in Cuts::new(datagram, framing.begin(limit, false).reading(cut.charset), limit) {
        cut.messages.extend(found.messages.into_iter().map(moved));
        cut.rejected.extend(found.rejected.into_iter().map(|(piece, reason)| (moved(piece), reason)));
    }
}

fn broken(out: &SourceOutput, error: &io::Error) -> Error {
    Error::temporary(format!("the socket of `{}` is broken: {error}", out.name()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use tokio::net::UdpSocket;

    use super::*;

    #[tokio::test]
    async fn a_datagram_that_is_large_when_it_is_decompressed_is_the_last_of_its_round() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(&vec![0_u8; 4 << 20]).unwrap();
        let large = encoder.finish().unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        for _ in 0..3 {
            client.send_to(&large, socket.local_addr().unwrap()).await.unwrap();
        }
        let (socket, limit) = (Datagrams::Udp(socket, Default::default()), ByteSize(2 << 20));
        let chunks = Some(Chunks::new(limit, &Budget::new(64 << 20)));
        let mut receiver = Receiver {
            socket: &socket,
            framing: None,
            limit,
            charset: Charset::default(),
            chunks,
            peer: None,
        };
        let mut counts = Vec::new();
        while counts.iter().sum::<usize>() < 3 {
            socket.ready().await.unwrap();
            let count = receiver.collect(&mut Vec::with_capacity(ROOM), &mut Vec::new()).unwrap();
            // The system may say too early that there is a datagram.
            counts.extend((count > 0).then_some(count));
        }
        assert_eq!(counts, [1, 1, 1]);
        assert_eq!(receiver.chunks.unwrap().lost.len(), 3);
    }
}
