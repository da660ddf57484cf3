//! The options of sparse files, which Python passes as words.

use pyo3::prelude::*;
use thalweg_sparse::{Clock, Options, Overlap};

use super::Pool;
use crate::errors::configuration_error;

const OVERLAPS: [(&str, Overlap); 4] = [
    ("agree", Overlap::Agree),
    ("replace", Overlap::Replace),
    ("keep", Overlap::Keep),
    ("keep_first", Overlap::KeepFirst),
];
const CLOCKS: [(&str, Clock); 3] = [("off", Clock::Off), ("coarse", Clock::Coarse), ("exact", Clock::Exact)];

fn among<T: Copy>(py: Python<'_>, option: &str, word: &str, all: &[(&str, T)]) -> PyResult<T> {
    all.iter().find(|(name, _)| *name == word).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<String> = all.iter().map(|(name, _)| format!("`{name}`")).collect();
        configuration_error(py, &format!("{option} is `{word}`: it must be one of {}", names.join(", ")))
    })
}

fn word<T: Copy + PartialEq>(value: T, all: &[(&'static str, T)]) -> &'static str {
    all.iter().find(|(_, other)| *other == value).map_or("", |(name, _)| name)
}

/// Returns how a write treats bytes that are already held.
///
/// # Errors
/// `ConfigurationError` for an unknown word.
pub fn overlap(py: Python<'_>, given: &str) -> PyResult<Overlap> {
    among(py, "overlap", given, &OVERLAPS)
}

/// Returns the options of a sparse file.
///
/// # Errors
/// `ConfigurationError` for an unknown word.
pub fn options(
    py: Python<'_>,
    given: &str,
    wipe: bool,
    clock: &str,
    pool: Option<&Pool>,
    touches: bool,
) -> PyResult<Options> {
    Ok(Options {
        overlap: overlap(py, given)?,
        wipe,
        clock: among(py, "clock", clock, &CLOCKS)?,
        pool: pool.map(|pool| pool.0.clone()),
        touches,
    })
}

/// The options by name. The pool is left out because it belongs to one process.
#[derive(IntoPyObject)]
pub struct Named {
    overlap: &'static str,
    wipe: bool,
    clock: &'static str,
    touches: bool,
}

impl Named {
    pub fn of(options: &Options) -> Self {
        Self {
            overlap: word(options.overlap, &OVERLAPS),
            wipe: options.wipe,
            clock: word(options.clock, &CLOCKS),
            touches: options.touches,
        }
    }
}
