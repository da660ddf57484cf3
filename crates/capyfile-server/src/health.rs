//! Answers the health check.

use thalweg_dialects::capyfile::response::{Answer, Health, System, health};

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
        memory: resident(),
        held: server.budget.used() as u64,
        // Each request has one share of the budget.
        objects: under_way,
    };
    let commit = option_env!("THALWEG_COMMIT").unwrap_or("unknown");
    let version = env!("CARGO_PKG_VERSION");
    health(check.verbosity, &Health { timestamp: &timestamp, name: "thalweg", version, commit, system })
}

/// The resident memory of this process in bytes; 0 where the system does not report it.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}
