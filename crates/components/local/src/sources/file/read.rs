//! Reads a piece of a file.

use std::time::Instant;

use arrow_buffer::Buffer;
use thalweg_engine::{Error, SourceOutput};
use thalweg_runtime::blocking;

use super::tail::Tail;
use thalweg_codec::framing::After;
use thalweg_stream::arenas::Arenas;
use thalweg_stream::cut;

/// Reads a piece of a file and sends its messages.
pub(super) struct Reader {
    pub(super) arenas: Arenas,
}

/// How a step of reading ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// There may be more.
    More,
    /// At the end of the file.
    End,
    /// With the error in `Tail::failure`.
    Failed,
    /// With a request to stop.
    Stopped,
}

impl Reader {
    /// Reads and sends one piece. `after` says what follows the end of the file.
    pub(super) async fn step(
        &mut self,
        tail: &mut Tail,
        after: After,
        out: &mut SourceOutput,
    ) -> Result<Step, Error> {
        // Without this, the loop never yields as long as memory and the next stage have capacity.
        tokio::task::consume_budget().await;
        let mut arena = tokio::select! {
            arena = self.arenas.take(tail.carry.len(), out) => arena,
            () = out.stopping() => return Ok(Step::Stopped),
        };
        let filled = blocking(|| tail.fill(&mut arena));
        out.add_progress(filled.progress);
        if filled.progress > 0 {
            tail.active = Instant::now();
        }
        let after = if filled.is_end { after } else { After::More };
        let buffer = self.arenas.freeze(arena, filled.bytes);
        send(tail, &buffer, after, out).await?;
        Ok(match (filled.is_end, &tail.failure) {
            (_, Some(_)) => Step::Failed,
            (true, None) => Step::End,
            (false, None) => Step::More,
        })
    }
}

/// Sends the messages of a buffer. The incomplete rest is kept in the tail's `carry`.
async fn send(tail: &mut Tail, buffer: &Buffer, after: After, out: &mut SourceOutput) -> Result<(), Error> {
    let checkpoints = tail.checkpoints();
    out.set_sequence(Some(tail.sequence.clone()));
    cut::send(
        &mut tail.cutter,
        buffer,
        after,
        Some(&tail.shown),
        |position| checkpoints.checkpoint(position),
        out,
    )
    .await?;
    let done = tail.cutter.advance();
    tail.carry.extend_from_slice(buffer.get(done..).unwrap_or_default());
    Ok(())
}

/// Sends the complete messages of the tail's `carry`, now that more is known about what follows.
pub(super) async fn send_carried(tail: &mut Tail, after: After, out: &mut SourceOutput) -> Result<(), Error> {
    let buffer = Buffer::from_vec(std::mem::take(&mut tail.carry));
    send(tail, &buffer, after, out).await
}

/// If the compressed data of a file is damaged, rejects the message in which it breaks off and returns the
/// error.
pub(super) async fn reject_damaged(tail: &mut Tail, out: &mut SourceOutput) -> Result<Option<Error>, Error> {
    let Some(damage) = tail.damage() else { return Ok(None) };
    let path = tail.shown.clone();
    out.set_sequence(Some(tail.sequence.clone()));
    let reason = format!("breaks off in `{path}`: {damage}");
    cut::reject_rest(&mut tail.cutter, &tail.carry, &reason, Some(&path), out).await?;
    tail.carry.clear();
    Ok(Some(Error::permanent(format!(
        "cannot read `{path}` to its end: {damage}. Everything before the damage was read."
    ))))
}
