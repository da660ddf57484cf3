//! Whether the addresses on which the parts of a new configuration listen are free.
//!
//! A source waits for an address that is in use, and ends the run if it stays so: at the start, the program
//! before this one may still be ending. A reload finds it out before anything is stopped. Addresses of the
//! configuration that runs are handed over, and not tried.

use std::sync::Arc;

use super::difference::{Change, Refused};
use super::division::Version;
use crate::Claim;
use crate::graph::Graph;

/// Tries the addresses that the parts of the last version do not have.
///
/// # Errors
/// If one cannot be listened on.
pub(super) fn check(change: &Change, last: &Version) -> Result<(), Refused> {
    let known: Vec<Claim> =
        last.parts.iter().flat_map(|part| claims_of(&part.graph)).map(|(_, claim)| claim).collect();
    let joining = change.joining.iter().flat_map(|(part, _)| claims_of(&part.graph));
    for (name, claim) in joining.filter(|(_, claim)| !known.iter().any(|known| known.meets(claim))) {
        claim
            .try_out()
            .map_err(|error| Refused::Unusable(format!("`{name}` cannot listen on {claim}: {error}")))?;
    }
    Ok(())
}

fn claims_of(graph: &Graph) -> impl Iterator<Item = (Arc<str>, Claim)> {
    let sources = graph.sources.iter().map(|source| (&source.name, source.config.claims()));
    let sinks = graph.sinks.iter().map(|sink| (&sink.name, sink.config.claims()));
    sources.chain(sinks).flat_map(|(name, claims)| claims.into_iter().map(move |claim| (name.clone(), claim)))
}
