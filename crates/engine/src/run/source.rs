//! The task of a source.

use crate::outlet::Outlet;
use crate::{Error, ErrorKind, Source};

use super::Retries;

/// Runs a source until it ends, again and again after temporary errors.
pub(super) async fn run(
    mut source: Box<dyn Source>,
    mut outlet: Outlet,
    retries: Retries,
) -> Result<(), Error> {
    let name = outlet.name().clone();
    let mut attempt = 0;
    loop {
        let read = outlet.metrics.counts().rows_out;
        match source.run(&mut outlet).await {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() != ErrorKind::Permanent && outlet.is_stopping() => {
                // It is to read no more in any case.
                tracing::warn!("`{name}`: {}; the run is stopping", error.full());
                return Ok(());
            }
            Err(error) if error.kind() != ErrorKind::Permanent => {
                // One that got somewhere starts anew with the short pauses.
                attempt = if outlet.metrics.counts().rows_out > read { 0 } else { attempt + 1 };
                if retries.pause(&name, error, attempt).await.is_err() {
                    return Ok(());
                }
            }
            Err(error) => {
                return Err(Error::permanent(format!("the source `{name}` failed")).caused_by(error));
            }
        }
    }
}
