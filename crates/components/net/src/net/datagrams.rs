//! Receives datagrams for a source. Datagrams have no flow control: while the budget has no capacity, the
//! system drops those that do not fit its buffer.

use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use thalweg_config::ByteSize;
use thalweg_engine::{Error, SourceOutput};
use tokio::time::Instant;

use super::listener::Sender;
use super::{Cut, Datagrams, Format};
use thalweg_codec::partitioner::Partition;

/// The largest datagram of either kind under the usual settings of systems, in bytes.
const LARGEST: usize = 256 << 10;

/// The size of the receive buffer, in bytes.
const ROOM: usize = 2 * LARGEST;

/// Receives datagrams until the run stops, or until none arrived for `end_after_idle`. With `partition`, each
/// datagram is cut into messages. Without it, each is one message, without line feeds, carriage returns and
/// NULs at its end.
///
/// # Errors
/// If the socket fails, or the messages cannot be sent.
pub async fn receive<F: Format>(
    socket: &Datagrams,
    partition: Option<&Partition>,
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
        let mut datagrams: Vec<(Sender, Range<usize>)> = Vec::new();
        while memory.capacity() - memory.len() >= LARGEST {
            let start = memory.len();
            match socket.receive(&mut memory) {
                Ok(sender) => datagrams.push((sender, start..memory.len())),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // On UDP, an earlier packet from this socket reached no listener. Later datagrams are not
                // affected.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(broken(out, &error)),
            }
        }
        if datagrams.is_empty() {
            continue;
        }
        last = Instant::now();
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
            let mut cut = Cut { buffer: buffer.clone(), messages: Vec::new(), rejected: Vec::new() };
            for (_, range) in group {
                divide(&mut cut, range.clone(), partition, limit);
            }
            cut.send(&mut format, &name, false, out, |_, _| {}).await?;
        }
    }
}

/// Adds the messages of one datagram.
fn divide(cut: &mut Cut, range: Range<usize>, partition: Option<&Partition>, limit: ByteSize) {
    let Some(partition) = partition else {
        let bytes = cut.buffer.get(range.clone()).unwrap_or_default();
        let trimmed =
            bytes.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r' | 0)).map_or(0, |last| last + 1);
        if trimmed as u64 > limit.bytes() {
            let reason = format!("is longer than `max_message_bytes` ({limit})");
            cut.rejected.push((range.start..range.start + limit.as_usize(), reason));
        } else {
            cut.messages.push(range.start..range.start + trimmed);
        }
        return;
    };
    let datagram = cut.buffer.slice_with_length(range.start, range.len());
    let found = Cut::all(datagram, partition.begin(limit, false), limit);
    let moved = |piece: Range<usize>| piece.start + range.start..piece.end + range.start;
    cut.messages.extend(found.messages.into_iter().map(moved));
    cut.rejected.extend(found.rejected.into_iter().map(|(piece, reason)| (moved(piece), reason)));
}

fn broken(out: &SourceOutput, error: &std::io::Error) -> Error {
    Error::temporary(format!("the socket of `{}` is broken: {error}", out.name()))
}
