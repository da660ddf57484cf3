//! The number of files and connections that this process may have open.

use rustix::process::{Resource, getrlimit};

/// The descriptors of a run with one file at a time: of the runtime, the state directory and the streams.
pub const LEAST: u64 = 32;

/// Returns how many descriptors this process may have, or `None` if there is no limit.
pub fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Returns how many descriptors the connections of all clients may take. A run itself needs [`LEAST`] of
/// them, and a quarter of the others is left for its files and for the servers that it calls.
pub fn for_clients() -> usize {
    let spare = limit().map_or(u64::MAX, |limit| limit.saturating_sub(LEAST));
    usize::try_from(spare / 4 * 3).unwrap_or(usize::MAX)
}
