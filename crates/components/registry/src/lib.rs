//! The registry of the components that come with thalweg: one line for each family, which is a cargo feature.
//!
//! The components are in the families beside this crate: `transforms`, `net`, `files` and `local`; `encode`
//! is in `stream`. A component must not live here.
//!
//! See docs/decisions/051-components-are-families-of-crates.md.

pub mod reference;

#[cfg(feature = "files")]
pub use thalweg_files::custom;

use thalweg_config::FormatError;
use thalweg_engine::Registry;

/// Returns the registry of all components: a line for each family, whose own list has a line for each
/// component.
pub fn registry() -> Registry {
    thalweg_config::register_format("sql", check_expression);
    let registry = Registry::new().transform::<thalweg_stream::encode::EncodeConfig>();
    #[cfg(feature = "transforms")]
    let registry = thalweg_transforms::register(registry);
    #[cfg(feature = "local")]
    let registry = thalweg_local::register(registry);
    #[cfg(feature = "files")]
    let registry = thalweg_files::register(registry);
    #[cfg(feature = "net")]
    let registry = thalweg_net::register(registry);
    #[cfg(feature = "aws")]
    let registry = thalweg_aws::register(registry);
    #[cfg(feature = "kafka")]
    let registry = thalweg_kafka::register(registry);
    #[cfg(feature = "amqp")]
    let registry = thalweg_amqp::register(registry);
    #[cfg(feature = "mqtt")]
    let registry = thalweg_mqtt::register(registry);
    #[cfg(feature = "nats")]
    let registry = thalweg_nats::register(registry);
    #[cfg(feature = "redis")]
    let registry = thalweg_redis::register(registry);
    #[cfg(feature = "postgres")]
    let registry = thalweg_postgres::register(registry);
    registry
}

/// Checks an expression when a configuration is read, so that a mistake is reported at its position in the
/// document.
fn check_expression(sql: &str) -> Result<(), FormatError> {
    thalweg_expression::check(sql).map_err(|error| {
        let mut mistake = FormatError::new(error.message);
        mistake.range = error.range;
        mistake.help = error.help;
        mistake
    })
}
