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

impl Check {
    /// True if it answers at this path. An endpoint that ends with `/` includes all paths below it.
    pub(super) fn is_at(&self, path: &str) -> bool {
        self.endpoint == path || self.endpoint.ends_with('/') && path.starts_with(&self.endpoint)
    }
}

/// The answer.
pub(super) fn answer(check: &Check, server: &Server) -> Answer {
    let timestamp = of_go(&chrono::Local::now().to_rfc3339_opts(chrono::SecondsFormat::Nanos, true));
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

/// Removes the zeros at the end of a fraction, and the fraction if nothing is left of it.
fn of_go(timestamp: &str) -> String {
    let Some((seconds, rest)) = timestamp.split_once('.') else { return timestamp.to_owned() };
    let end = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
    let (fraction, zone) = rest.split_at(end);
    match fraction.trim_end_matches('0') {
        "" => format!("{seconds}{zone}"),
        fraction => format!("{seconds}.{fraction}{zone}"),
    }
}

#[cfg(test)]
mod tests {
    use super::of_go;

    #[test]
    fn a_time_has_the_digits_that_it_needs() {
        for (given, expected) in [
            ("2024-02-14T01:02:03.120000000Z", "2024-02-14T01:02:03.12Z"),
            ("2024-02-14T01:02:03.000000000+01:00", "2024-02-14T01:02:03+01:00"),
            ("2024-02-14T01:02:03.000000001-01:00", "2024-02-14T01:02:03.000000001-01:00"),
        ] {
            assert_eq!(of_go(given), expected);
        }
    }
}
