//! Sources, transforms and sinks of whole files and of objects in stores.
//!
//! Files travel on edges of their own. [`content`] opens them, [`directory`] writes them, [`ahead`] reads a
//! remote object in parallel slices, and [`stored`] maps the errors of stores.
//!
//! A component depends on these modules, on the engine's traits and on the codec, but not on another
//! component. The one exception is `upload`, which is the sink `objects` in the middle of a pipeline.
//!
//! See docs/decisions/051-components-are-families-of-crates.md.

mod ahead;
mod content;
pub mod custom;
mod directory;
// Public for its fuzz target.
#[doc(hidden)]
pub mod file_template;
mod group;
mod kept_bytes;
pub mod mime;
mod padding;
mod plain;
pub mod sinks;
pub mod sources;
#[cfg(feature = "stores")]
mod stored;
pub mod transforms;

/// The key of a file's note with the address in a store that it was written to.
pub const URL: &str = "url";

/// Adds the components of this family to a registry.
pub fn register(registry: thalweg_engine::Registry) -> thalweg_engine::Registry {
    sinks::register(transforms::register(sources::register(registry)))
}
