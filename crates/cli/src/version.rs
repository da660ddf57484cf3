//! The texts of `thalweg -V` and `thalweg --version`.

use std::sync::LazyLock;

/// The version, the commit and the machine: `0.1.0 (0123456789 2026-01-31, x86_64-unknown-linux-gnu)`.
pub const SHORT: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (", env!("THALWEG_BUILT_FROM"), ", ", env!("THALWEG_TARGET"), ")");

/// The optional features, and whether the program has them.
const FEATURES: [(&str, bool); 12] = [
    ("amqp", cfg!(feature = "amqp")),
    ("avif", cfg!(feature = "avif")),
    ("aws", cfg!(feature = "aws")),
    ("geoip", cfg!(feature = "geoip")),
    ("images", cfg!(feature = "images")),
    ("kafka", cfg!(feature = "kafka")),
    ("mqtt", cfg!(feature = "mqtt")),
    ("nats", cfg!(feature = "nats")),
    ("parquet", cfg!(feature = "parquet")),
    ("postgres", cfg!(feature = "postgres")),
    ("redis", cfg!(feature = "redis")),
    ("stores", cfg!(feature = "stores")),
];

/// The same with the features.
pub fn long() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(with_features);
    &TEXT
}

fn with_features() -> String {
    let with = |wanted| {
        let names = FEATURES.iter().filter(|(_, is_there)| *is_there == wanted).map(|(name, _)| *name);
        names.collect::<Vec<_>>().join(", ")
    };
    let mut text = SHORT.to_owned();
    for (title, features) in [("features", with(true)), ("without", with(false))] {
        if !features.is_empty() {
            text += &format!("\n{title}: {features}");
        }
    }
    text
}
