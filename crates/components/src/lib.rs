//! The sources, transforms and sinks that come with thalweg: a file each, and the [`registry`].
//!
//! A component depends on the engine's traits, on what flows, and on libraries; never on another component.
//! What several need is in `shared`.

pub(crate) mod shared;
pub mod sinks;
pub mod sources;
pub mod transforms;

use thalweg_engine::Registry;

/// All components: a line each.
pub fn registry() -> Registry {
    Registry::new()
        // Sources.
        .source::<sources::file::FileSource>()
        .source::<sources::stdin::StdinSource>()
}
