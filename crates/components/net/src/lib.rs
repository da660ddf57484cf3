//! Network sources and sinks: HTTP, sockets, syslog, WebSocket, the proxy protocol and statsd, with TLS.
//!
//! [`net`] listens, dials and reads streams; [`tls`] configures rustls; [`web`] serves HTTP; [`upload`]
//! receives files; [`requests`] sends messages by HTTP; [`otlp`] sends requests of OpenTelemetry; `websocket`
//! connects by WebSocket; [`give_up`] limits how long a sink tries; [`progress`] tracks what of a batch was
//! sent. A component depends on these modules, on the engine's traits and on the codec, never on another
//! component.
//!
//! See docs/decisions/051-components-are-families-of-crates.md.

pub mod fetch;
#[doc(hidden)]
pub mod fuzzing;
pub mod give_up;
mod json_path;
pub mod net;
pub mod otlp;
pub mod progress;
mod replies;
pub mod requests;
pub mod sinks;
pub mod sources;
pub mod tls;
pub mod upload;
pub mod web;
mod websocket;

/// Adds the components of this family to a registry.
pub fn register(registry: thalweg_engine::Registry) -> thalweg_engine::Registry {
    sinks::register(sources::register(registry))
}
