//! Sources and sinks of Amazon's services: Kinesis, Firehose, CloudWatch Logs, SQS and SNS.
//!
//! [`options`] says where a service is and who may use it; [`api`] sends a request, and [`refusal`]
//! understands why a service refuses one. The sinks send as the stores of `thalweg-net` do, with requests
//! that are signed by `thalweg-store`. A component depends on these modules, never on another component.
//!
//! See docs/decisions/100-amazons-services-by-signed-json.md.

mod api;
#[doc(hidden)]
pub mod fuzzing;
mod options;
mod queue;
mod refusal;
pub mod sinks;
pub mod sources;

/// Adds the components of this family to a registry.
pub fn register(registry: thalweg_engine::Registry) -> thalweg_engine::Registry {
    sinks::register(sources::register(registry))
}
