//! Waiting for the first of several evaluations.

use std::future::poll_fn;
use std::task::Poll;

use super::handle::Evaluation;

/// Waits until one of these evaluations is concluded, and returns its index; the lowest index if several are
/// concluded already. The others continue: a caller that needs only one ends them with
/// [`conclude_to`](Evaluation::conclude_to). Returns `None` if there are none to wait for.
///
/// For evaluations of different types, use the `select!` of any library: each evaluation is a future.
///
/// ```
/// use std::time::Duration;
/// use thalweg_runtime::evaluation::{ConcurrentProc, await_fastest, block_on, wait};
///
/// let row = ConcurrentProc::new(async |(boat, milliseconds)| {
///     wait(Duration::from_millis(milliseconds)).await;
///     boat
/// });
/// let mut boats = [row.call_detached(("barge", 60_000)), row.call_detached(("canoe", 1))];
/// let winner = block_on(await_fastest(&boats)).unwrap();
/// assert_eq!(block_on(boats[winner].await_result()), Ok("canoe"));
/// assert!(!boats[0].is_concluded());
/// ```
pub async fn await_fastest<T>(evaluations: &[Evaluation<T>]) -> Option<usize> {
    if evaluations.is_empty() {
        return None;
    }
    poll_fn(|context| {
        let first = evaluations.iter().position(|evaluation| evaluation.poll_concluded(context).is_ready());
        first.map_or(Poll::Pending, |index| Poll::Ready(Some(index)))
    })
    .await
}
