//! Sinks under test: opened, written to, and compared with the duties of their role.

use std::time::Duration;

use thalweg_patience::Patience;
use thalweg_record::{Batch, Outcome};

use super::{batch, context, options};
use crate::component::SinkConfig;
use crate::{Component, Error, Output, Outputs, Rejects, Sink, WriteOutcome};

/// The pause before each further attempt of a sink that failed.
const PAUSE: Duration = Duration::from_millis(10);

/// Writes batches to a sink and finishes it. Returns what was rejected, as (batch, row, reason).
///
/// # Errors
/// The first error of the sink.
pub async fn write_all<C: Component + SinkConfig>(
    yaml: &str,
    batches: impl IntoIterator<Item = Batch>,
) -> Result<Vec<(usize, u32, String)>, Error> {
    let config = options::<C>(yaml);
    let mut encoder = config.encoder().map(|encoder| encoder.build(&context())).transpose()?;
    let mut sink = config.build(&context())?;
    let mut rejected = Vec::new();
    sink.open(None).await?;
    for (number, batch) in batches.into_iter().enumerate() {
        let batches = match &mut encoder {
            Some(encoder) => {
                let mut out = Outputs::new("test".into());
                encoder.apply(batch, &mut out)?;
                while out.take_held().is_some() {
                    encoder.resume(&mut out)?;
                }
                out.take().into_iter().filter(|(output, _)| *output == Output::Main).map(|(_, b)| b).collect()
            }
            None => vec![batch],
        };
        for batch in batches {
            let mut rejects = Rejects::default();
            sink.write(&batch, &mut rejects).await?;
            rejected.extend(rejects.take().into_iter().map(|(row, reason)| (number, row, reason)));
            batch.settle(Outcome::Delivered);
        }
    }
    sink.finish().await?;
    Ok(rejected)
}

/// Returns the reasons of the rows that [`write_all`] returned, with their numbers.
pub fn reasons(rejected: &[(usize, u32, String)]) -> Vec<(u32, &str)> {
    rejected.iter().map(|(_, row, reason)| (*row, reason.as_str())).collect()
}

/// Builds a sink and opens it, again after each temporary error, as a run does.
///
/// # Panics
/// If it cannot be built or opened, or not within five minutes.
pub async fn open_sink<C: Component + SinkConfig>(yaml: &str) -> Box<dyn Sink> {
    let mut sink = options::<C>(yaml).build(&context()).expect("it can be built");
    let patience = Patience::begin();
    while let Err(error) = sink.open(None).await {
        assert!(error.kind().is_temporary(), "{}", error.full());
        patience.check(|| error.full());
        tokio::time::sleep(PAUSE).await;
    }
    sink
}

/// Writes a batch as a run does: again after each temporary error, until it is durable. Calls `failed` after
/// each of them. Returns the rejected rows with their reasons.
///
/// # Panics
/// After another error, and if a batch is not durable after five minutes, which no working sink needs.
pub async fn write_until_durable(
    sink: &mut dyn Sink,
    batch: Batch,
    mut failed: impl FnMut(&Error),
) -> Vec<(u32, String)> {
    let patience = Patience::begin();
    loop {
        let mut rejects = Rejects::default();
        match sink.write(&batch, &mut rejects).await {
            Ok(outcome) => {
                assert_eq!(outcome, WriteOutcome::Durable);
                batch.settle(Outcome::Delivered);
                return rejects.take();
            }
            Err(error) => {
                assert!(error.kind().is_temporary(), "{}", error.full());
                patience.check(|| error.full());
                failed(&error);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Tests the duties of every sink: it opens, writes, flushes with nothing pending, writes again, and
/// finishes. A flush makes buffered messages durable.
///
/// # Panics
/// If the component does not conform.
pub async fn sink_conforms<C: Component + SinkConfig>(yaml: &str) {
    let config = options::<C>(yaml);
    let mut sink: Box<dyn Sink> = config.build(&context()).expect("it can be built");
    sink.open(None).await.expect("it opens");
    sink.flush().await.expect("it flushes when nothing was written");
    for _ in 0..2 {
        let batch = batch(["a message", "another message that is longer"]);
        let mut rejects = Rejects::default();
        let written = sink.write(&batch, &mut rejects).await.expect("it writes");
        assert!(rejects.take().is_empty(), "it rejected a plain message");
        if written == WriteOutcome::Buffered {
            sink.flush().await.expect("it flushes");
        }
    }
    sink.finish().await.expect("it finishes");
}
