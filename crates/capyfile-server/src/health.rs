//! Answers the health check.

use thalweg_dialects::capyfile::response::{Answer, Health, System, health};
use thalweg_job::process_memory;

use crate::server::Server;

/// The health check.
#[derive(Debug, Clone)]
pub struct Check {
    /// Its path.
    pub endpoint: String,
    /// How much it reports: 0, 1 or 2.
    pub verbosity: u8,
}

/// The answer.
pub(super) fn answer(check: &Check, server: &Server) -> Answer {
    let timestamp = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
    let under_way = server.under_way.load(std::sync::atomic::Ordering::Relaxed);
    let system = System {
        version: env!("CARGO_PKG_RUST_VERSION"),
        under_way,
        memory: process_memory("VmRSS").unwrap_or(0),
        held: server.budget.used() as u64,
        // Each request has one share of the budget.
        objects: under_way,
    };
    let commit = option_env!("THALWEG_COMMIT").unwrap_or("unknown");
    let version = env!("CARGO_PKG_VERSION");
    health(check.verbosity, &Health { timestamp: &timestamp, name: "thalweg", version, commit, system })
}
