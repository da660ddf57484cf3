//! Sends the messages of a batch until each has its fate, or no request succeeds any more.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{Array, BinaryViewArray};
use thalweg_config::TimeSpan;
use thalweg_engine::{Error, Rejects};
use thalweg_runtime::ConcurrencyLimit;
use thalweg_runtime::limit::Permit;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::failure::{Failure, Verdict};
use crate::give_up::GiveUp;
use crate::progress::{PAUSE, Progress};

/// After this number of failures in a row, no further piece is sent in a round.
const MOST_IN_A_ROW: usize = 3;

/// The longest pause between two rounds.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Messages of a batch that are sent together.
pub(crate) struct Piece {
    /// Their rows.
    pub(crate) rows: Vec<usize>,
    /// Their bytes.
    pub(crate) bytes: usize,
    /// Sends them once, and returns the fate of each.
    pub(crate) work: Pin<Box<dyn Future<Output = Vec<Verdict>> + Send>>,
}

/// Sends batches in rounds. One writer of a sink has one.
pub(crate) struct Rounds {
    /// The name of the sink.
    name: Arc<str>,
    /// Limits the pieces of a batch that are sent at the same time.
    limit: ConcurrencyLimit,
    /// True if a piece may be sent only after the one before it.
    in_order: bool,
    /// When messages leave by `errors`.
    give_up: GiveUp,
    progress: Progress,
    /// The server wants no request before.
    not_before: Option<Instant>,
}

/// The results of a round.
#[derive(Default)]
struct Round {
    /// True if a message was delivered or rejected.
    has_progress: bool,
    /// The failure that tells the most, if messages failed.
    failed: Option<Failure>,
    failures: usize,
    /// The failures since a message last succeeded.
    in_a_row: usize,
}

impl Round {
    /// True if no further piece may be sent: the server has too much to do, or is gone.
    fn is_over(&self, in_order: bool) -> bool {
        let is_hopeless = |failure: &Failure| failure.is_overload() || !failure.is_temporary();
        self.in_a_row >= MOST_IN_A_ROW
            || self.failed.as_ref().is_some_and(|failure| in_order || is_hopeless(failure))
    }

    /// Records the fate of the messages of a piece.
    fn note(&mut self, rows: &[usize], verdicts: Vec<Verdict>, progress: &mut Progress) {
        let mut failed = None;
        for (row, verdict) in rows.iter().zip(verdicts) {
            match verdict {
                Verdict::Delivered => progress.done(*row),
                Verdict::Rejected(reason) => progress.reject(*row, reason),
                Verdict::Again(failure) => {
                    self.failures += 1;
                    failed = Some(Failure::worse(failed, failure));
                    continue;
                }
            }
            self.has_progress = true;
        }
        match failed {
            Some(failure) => {
                self.in_a_row += 1;
                self.failed = Some(Failure::worse(self.failed.take(), failure));
            }
            None => self.in_a_row = 0,
        }
    }
}

impl Rounds {
    pub(crate) fn new(
        name: &str,
        limit: ConcurrencyLimit,
        in_order: bool,
        give_up: Option<TimeSpan>,
    ) -> Self {
        let (give_up, progress) = (GiveUp::after(give_up), Progress::default());
        Self { name: name.into(), limit, in_order, give_up, progress, not_before: None }
    }

    /// Begins a batch, or resumes it if it is the same batch as before. Returns true if it is another one.
    pub(crate) fn begin(&mut self, payload: &BinaryViewArray) -> bool {
        let is_new = self.progress.begin(payload);
        if is_new {
            self.give_up.end();
        }
        is_new
    }

    fn open(&self, rows: usize) -> Vec<usize> {
        (0..rows).filter(|&row| !self.progress.is_done(row)).collect()
    }

    /// Rejects a message of the present batch, which cannot be sent.
    pub(crate) fn reject(&mut self, row: usize, reason: String) {
        self.progress.reject(row, reason);
    }

    /// Sends the messages of the batch. `pieces` makes the pieces of those rows.
    ///
    /// Messages that fail for now are sent again here as long as others succeed: the engine's pauses grow
    /// with each failed write of the same batch.
    ///
    /// # Errors
    /// If no message succeeded: the engine decides how long to wait, and whether the batch goes another way.
    pub(crate) async fn send<I: Iterator<Item = Piece> + Send>(
        &mut self,
        payload: &BinaryViewArray,
        rejects: &mut Rejects,
        pieces: impl Fn(Vec<usize>) -> I + Send,
    ) -> Result<(), Error> {
        let mut overloads = 0;
        loop {
            self.give_up.attempt();
            self.wait().await;
            let round = self.round(pieces(self.open(payload.len()))).await?;
            if round.has_progress {
                self.give_up.succeeded();
            }
            let Some(failure) = round.failed else { break };
            self.not_before = failure.delay().map(|delay| Instant::now() + delay);
            let reason = self.give_up.reason(failure.text()).filter(|_| failure.is_temporary());
            if let Some(reason) = reason {
                self.open(payload.len())
                    .into_iter()
                    .for_each(|row| self.progress.reject(row, reason.clone()));
                break;
            }
            if !round.has_progress || !failure.is_temporary() {
                return Err(failure.error());
            }
            tracing::warn!("`{}`: {} messages are sent again: {}", self.name, round.failures, failure.text());
            overloads = if failure.is_overload() { overloads + 1 } else { 0 };
            tokio::time::sleep(pause(overloads)).await;
        }
        self.give_up.end();
        for (row, reason) in self.progress.finish() {
            rejects.reject(row, reason);
        }
        Ok(())
    }

    /// Forgets the batch, which takes another route.
    pub(crate) fn forget(&mut self) {
        self.progress.forget();
        self.give_up.end();
    }

    /// Waits as long as the server wants no request.
    async fn wait(&mut self) {
        if let Some(at) = self.not_before.take() {
            tokio::time::sleep_until(at).await;
        }
    }

    /// Sends each piece once.
    async fn round(&mut self, pieces: impl Iterator<Item = Piece>) -> Result<Round, Error> {
        let mut under_way: JoinSet<(Vec<usize>, Vec<Verdict>)> = JoinSet::new();
        let mut round = Round::default();
        let mut pieces = pieces.peekable();
        loop {
            let bytes = match round.is_over(self.in_order) {
                false => pieces.peek().map(|piece| piece.bytes as u64),
                true => None,
            };
            tokio::select! {
                biased;
                Some(ended) = under_way.join_next() => match ended {
                    Ok((rows, verdicts)) => round.note(&rows, verdicts, &mut self.progress),
                    Err(error) => return Err(Error::permanent("a request panicked").caused_by(error)),
                },
                permit = self.limit.acquire(bytes.unwrap_or(0)), if bytes.is_some() => {
                    let Some(Piece { rows, work, .. }) = pieces.next() else { continue };
                    under_way.spawn(async move {
                        let verdicts = work.await;
                        end(permit, &verdicts);
                        (rows, verdicts)
                    });
                }
                else => return Ok(round),
            }
        }
    }
}

/// Tells the limit how a request ended.
pub(super) fn end(permit: Permit, verdicts: &[Verdict]) {
    let failures = verdicts.iter().filter_map(|verdict| match verdict {
        Verdict::Again(failure) => Some(failure),
        _ => None,
    });
    let (count, is_overload) =
        failures.fold((0, false), |(count, known), failure| (count + 1, known || failure.is_overload()));
    match count {
        0 => permit.succeeded(),
        _ if is_overload => permit.overloaded(),
        _ => permit.failed(),
    }
}

/// Returns the pause after a round, at random within a quarter, so that writers do not return together. It is
/// longer after each round in a row that found the server overloaded.
fn pause(overloads: u32) -> Duration {
    let doubled = PAUSE.saturating_mul(2u32.saturating_pow(overloads.saturating_sub(1)));
    doubled.min(LONGEST_PAUSE).mul_f64(0.75 + fastrand::f64() / 4.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_with_overload_only_and_have_an_end() {
        for (overloads, longest) in [(0, 100), (1, 100), (2, 200), (5, 1600), (8, 10_000), (u32::MAX, 10_000)]
        {
            let pause = pause(overloads).as_millis();
            assert!((longest * 3 / 4..=longest).contains(&pause), "{overloads}: {pause}");
        }
    }
}
