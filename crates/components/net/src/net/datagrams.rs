//! Receives datagrams for a source. Datagrams have no flow control: while the budget has no capacity, the
//! system drops those that do not fit its buffer.

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use thalweg_config::ByteSize;
use thalweg_engine::{Error, SourceOutput};
use tokio::time::Instant;

use super::listener::Sender;
use super::{Cut, Cuts, Datagrams, Format};
use thalweg_codec::framing::KEPT;
use thalweg_codec::stream_framing::StreamFraming;

/// The largest datagram of either kind under the usual settings of systems, in bytes.
const LARGEST: usize = 256 << 10;

/// The size of the receive buffer, in bytes.
const ROOM: usize = 2 * LARGEST;

/// Receives datagrams until the run stops, or until none arrived for `end_after_idle`. With `framing`, each
/// datagram is cut into messages. Without it, each is one message, without line feeds, carriage returns and
/// NULs at its end.
///
/// # Errors
/// If the socket fails, or the messages cannot be sent.
pub async fn receive<F: Format>(
    socket: &Datagrams,
    framing: Option<&StreamFraming>,
    limit: ByteSize,
    end_after_idle: Option<Duration>,
    mut format: F,
    out: &mut SourceOutput,
) -> Result<(), Error> {
    let mut last = Instant::now();
    let mut peer: Option<(Sender, Arc<str>)> = None;
    loop {
        tokio::select! {
            biased;
            () = out.stopping() => return Ok(()),
            ready = socket.ready() => ready.map_err(|error| broken(out, &error))?,
            () = tokio::time::sleep_until(last + end_after_idle.unwrap_or_default()), if end_after_idle.is_some() => {
                return Ok(());
            }
        }
        let mut lease = out.reserve(ROOM).await;
        let mut memory: Vec<u8> = Vec::with_capacity(ROOM);
        let datagrams = collect(socket, &mut memory).map_err(|error| broken(out, &error))?;
        if datagrams.is_empty() {
            continue;
        }
        if memory.len() < memory.capacity() / 4 {
            memory.shrink_to_fit();
            drop(lease.split(ROOM - memory.capacity().min(ROOM)));
        }
        let buffer = lease.freeze(memory);
        for group in datagrams.chunk_by(|(one, _), (other, _)| one == other) {
            let Some((sender, _)) = group.first() else { continue };
            let name = match &peer {
                Some((known, name)) if known == sender => name.clone(),
                _ => socket.name(*sender),
            };
            peer = Some((*sender, name.clone()));
            let mut cut = Cut::of(buffer.clone());
            for (_, range) in group {
                divide(&mut cut, range.clone(), framing, limit);
            }
            cut.send(&mut format, &name, false, out, |_| {}).await?;
        }
        // Not the time of their arrival: what arrives while these wait for the pipeline is not seen.
        last = Instant::now();
    }
}

/// Appends the waiting datagrams to `memory`, as far as the largest one would still fit. Returns the sender
/// and the range of each.
fn collect(socket: &Datagrams, memory: &mut Vec<u8>) -> io::Result<Vec<(Sender, Range<usize>)>> {
    let mut datagrams = Vec::new();
    while memory.capacity() - memory.len() >= LARGEST {
        let start = memory.len();
        match socket.receive(memory) {
            Ok(sender) => datagrams.push((sender, start..memory.len())),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            // On UDP, an earlier packet from this socket reached no listener. Later datagrams are not
            // affected.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(error),
        }
    }
    Ok(datagrams)
}

/// Adds the messages of one datagram.
fn divide(cut: &mut Cut, range: Range<usize>, framing: Option<&StreamFraming>, limit: ByteSize) {
    let Some(framing) = framing else {
        let bytes = cut.buffer.get(range.clone()).unwrap_or_default();
        let trimmed =
            bytes.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r' | 0)).map_or(0, |last| last + 1);
        if trimmed as u64 > limit.bytes() {
            let kept = limit.as_usize().min(KEPT);
            let reason = format!(
                "is longer than `max_message_bytes` ({limit}), and only its first {kept} bytes are kept"
            );
            cut.rejected.push((range.start..range.start + kept, reason.into()));
        } else {
            cut.messages.push(range.start..range.start + trimmed);
        }
        return;
    };
    let datagram = cut.buffer.slice_with_length(range.start, range.len());
    let moved = |piece: Range<usize>| piece.start + range.start..piece.end + range.start;
    for found in Cuts::new(datagram, framing.begin(limit, false), limit) {
        cut.messages.extend(found.messages.into_iter().map(moved));
        cut.rejected.extend(found.rejected.into_iter().map(|(piece, reason)| (moved(piece), reason)));
    }
}

fn broken(out: &SourceOutput, error: &io::Error) -> Error {
    Error::temporary(format!("the socket of `{}` is broken: {error}", out.name()))
}
