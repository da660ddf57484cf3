//! Fuzz targets: every parser that reads bytes from outside, and what must hold for any input.
//!
//! A [`Target`] is a function of bytes that panics if a promise is broken. "No panic" is the least of its
//! promises: a target also compares with a model, reads back what was written, splits the input differently,
//! and bounds the memory of a call ([`memory::bounded`]).
//!
//! The same targets run in two ways. `make test` replays the seeds, and mutates them for some seconds on the
//! stable compiler ([`mutate`]). `make fuzz` runs them under libFuzzer, which is guided by coverage. The
//! program `thalweg-fuzz` repeats one input.
//!
//! Each target is a file of [`targets`], and its seeds are the files of `seeds/TARGET`. An input that failed
//! once becomes a seed.
//!
//! Code that the program needs must not live here. Neither must a second implementation of a parser: a model
//! is either a library or much simpler than the parser.

pub mod child;
pub mod input;
pub mod memory;
pub mod messages;
pub mod mutate;
pub mod seeds;
pub mod targets;

/// A parser, and what must hold for any input.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The name: that of its file, and of the folder of its seeds.
    pub name: &'static str,
    /// The components whose parsers it covers, by their names in configurations.
    pub components: &'static [&'static str],
    /// The longest input in bytes. Longer ones take time without reaching more code.
    pub longest: usize,
    /// Words of the format, for the mutations.
    pub words: &'static [&'static str],
    /// Parses an input.
    ///
    /// # Panics
    /// If a promise is broken.
    pub run: fn(&[u8]),
}

/// Returns the target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    targets::ALL.iter().find(|target| target.name == name)
}
