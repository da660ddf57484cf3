//! The task of a source.

use std::sync::Arc;

use crate::positions::{LiveGuard, Positions};
use crate::source_output::SourceOutput;
use crate::{ErrorKind, Source};

use super::control::SourceTask;
use super::{Retries, RunFailure};

/// Runs a source until it ends, with retries after temporary errors. Then drops `guard` and `task`.
pub(super) async fn run(
    source: Box<dyn Source>,
    output: SourceOutput,
    retries: Retries,
    guard: Option<LiveGuard>,
    task: Option<SourceTask>,
) -> Result<(), RunFailure> {
    let _guards = Guards { positions: output.positions().cloned(), _running: guard, _task: task };
    let mut output = output;
    let read = read(source, &mut output, retries).await;
    if output.is_stopping() {
        output.heed_stop();
    }
    read
}

/// Tells the auxiliary sources, when it is dropped, that the source has ended. A source that panics has ended
/// too.
struct Guards {
    positions: Option<Arc<Positions>>,
    _running: Option<LiveGuard>,
    _task: Option<SourceTask>,
}

impl Drop for Guards {
    fn drop(&mut self) {
        if let Some(positions) = &self.positions {
            positions.drop_guard();
        }
    }
}

async fn read(
    mut source: Box<dyn Source>,
    output: &mut SourceOutput,
    retries: Retries,
) -> Result<(), RunFailure> {
    let name = output.name().clone();
    let mut attempt = 0;
    loop {
        let read = output.metrics.counts().rows_out;
        match source.run(output).await {
            Ok(()) => return Ok(()),
            // The stage behind the source has failed and says why. That the source cannot continue is a
            // consequence, which must not be reported in its place.
            Err(_) if output.is_abandoned() => return Ok(()),
            // A limit ends the source where it is, in the middle of its input.
            Err(error) if error.kind() == ErrorKind::Enough => return Ok(()),
            Err(error) if error.kind().is_temporary() && output.is_stopping() => {
                // The source would have ended anyway.
                tracing::warn!("`{name}`: {}; the run is stopping", error.full());
                return Ok(());
            }
            Err(error) if error.kind().is_temporary() => {
                // A source that got somewhere begins with the short pauses again.
                if output.metrics.counts().rows_out > read {
                    attempt = 0;
                }
                retries.pause(&output.metrics, &error, attempt).await;
                if output.is_stopping() {
                    return Ok(());
                }
                attempt += 1;
            }
            Err(error) => {
                let error = error.context(format!("the source `{name}` failed"));
                return Err(RunFailure::of(&output.metrics, error));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use async_trait::async_trait;
    use thalweg_record::Budget;
    use thalweg_runtime::Stop;

    use super::*;
    use crate::source_output::Rows;
    use crate::{Error, Reading, testing};

    struct One;

    #[async_trait]
    impl Source for One {
        async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
            let payload = testing::batch(["one"]).payload().clone();
            out.send(Reading { payload, path: None, positions: None, checkpoint: None }).await
        }
    }

    #[tokio::test]
    async fn a_source_does_not_fail_because_what_it_leads_to_has_failed() {
        let budget = Budget::new(1 << 20);
        let (mut output, main, errors) =
            testing::source_output(Stop::default(), &budget, 1 << 10, BTreeMap::new());
        drop((main, errors));
        assert_eq!(
            One.run(&mut output).await.unwrap_err().to_string(),
            "the stages after `source` have ended"
        );
        let retries = Retries { stop: Stop::default(), log: Arc::default() };
        run(Box::new(One), output, retries, None, None).await.unwrap();
    }

    /// Ends with an error while the run stops and its rest is left to the next one.
    struct Stopped(fn(&SourceOutput) -> Error);

    #[async_trait]
    impl Source for Stopped {
        async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
            out.stop.request();
            Err((self.0)(out))
        }
    }

    /// It was taken for the limit, and was not seen until the next run.
    #[tokio::test]
    async fn a_source_that_fails_while_its_rest_is_left_to_the_next_run_has_failed() {
        let budget = Budget::new(1 << 20);
        let ended = async |error: fn(&SourceOutput) -> Error| {
            let (output, _main, _errors) =
                testing::source_output(Stop::default(), &budget, 1 << 10, BTreeMap::new());
            let output = SourceOutput { rows: Some(Rows::new(16)), leaves_rest: true, ..output };
            let retries = Retries { stop: Stop::default(), log: Arc::default() };
            run(Box::new(Stopped(error)), output, retries, None, None).await
        };
        let failed = ended(|_| Error::permanent("the table is gone")).await.unwrap_err();
        assert_eq!(failed.to_string(), "the source `source` failed: the table is gone");
        ended(SourceOutput::limit_reached).await.unwrap();
        ended(|_| Error::temporary("no answer")).await.unwrap();
    }
}
