//! The task of a source.

use crate::Source;
use crate::outlet::SourceOutput;
use crate::positions::LiveGuard;

use super::{Retries, RunFailure};

/// Runs a source until it ends, again and again after temporary errors. `guard` is dropped then.
pub(super) async fn run(
    source: Box<dyn Source>,
    outlet: SourceOutput,
    retries: Retries,
    guard: Option<LiveGuard>,
) -> Result<(), RunFailure> {
    let positions = outlet.positions.clone();
    let result = read(source, outlet, retries).await;
    positions.drop_guard();
    drop(guard);
    result
}

async fn read(
    mut source: Box<dyn Source>,
    mut outlet: SourceOutput,
    retries: Retries,
) -> Result<(), RunFailure> {
    let name = outlet.name().clone();
    let mut attempt = 0;
    loop {
        let read = outlet.metrics.counts().rows_out;
        match source.run(&mut outlet).await {
            Ok(()) => return Ok(()),
            // What failed there says why; that this source cannot go on is nothing but a consequence, which must not be
            // told in its place.
            Err(_) if outlet.is_abandoned() => return Ok(()),
            Err(error) if error.kind().is_temporary() && outlet.is_stopping() => {
                // It is to read no more in any case.
                tracing::warn!("`{name}`: {}; the run is stopping", error.full());
                return Ok(());
            }
            Err(error) if error.kind().is_temporary() => {
                // One that got somewhere starts anew with the short pauses.
                attempt = if outlet.metrics.counts().rows_out > read { 0 } else { attempt + 1 };
                if retries.pause(&outlet.metrics, error, attempt).await.is_err() {
                    return Ok(());
                }
            }
            Err(error) => {
                let error = error.context(format!("the source `{name}` failed"));
                return Err(RunFailure::of(&outlet.metrics, error));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use async_trait::async_trait;
    use thalweg_record::Budget;
    use thalweg_runtime::Stop;

    use super::*;
    use crate::outlet::loose_outlet;
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
    async fn that_what_it_leads_to_has_failed_is_no_failure_of_its_own() {
        let budget = Budget::new(1 << 20);
        let (mut outlet, main, errors) = loose_outlet(Stop::default(), &budget, 1 << 10, BTreeMap::new());
        drop((main, errors));
        assert!(One.run(&mut outlet).await.is_err());
        let retries = Retries { stop: Stop::default(), log: Arc::default() };
        assert!(run(Box::new(One), outlet, retries, None).await.is_ok());
    }
}
