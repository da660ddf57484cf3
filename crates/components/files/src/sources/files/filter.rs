//! Selects files by name, size and age.

use std::fs::Metadata;
use std::path::Path;
use std::time::{Duration, SystemTime};

use thalweg_engine::Error;

use super::FilesConfig;
use thalweg_codec::pattern::Wanted;

/// How long a watched file is left alone after its last modification, unless the configuration says
/// otherwise.
const COMPLETE_AFTER: Duration = Duration::from_secs(1);

/// The conditions on a file, apart from its path.
#[derive(Debug)]
pub struct Filter {
    names: Wanted,
    sizes: (u64, u64),
    min_age: Option<Duration>,
    max_age: Option<Duration>,
}

impl Filter {
    /// Creates the filter of a source's options.
    ///
    /// # Errors
    /// If a pattern is malformed.
    pub fn new(config: &FilesConfig) -> Result<Self, Error> {
        Ok(Self {
            names: Wanted::new(&config.include, &config.exclude)
                .map_err(|error| Error::permanent(error.to_string()))?,
            sizes: (
                config.min_file_bytes.map_or(0, |size| size.0),
                config.max_file_bytes.map_or(u64::MAX, |size| size.0),
            ),
            min_age: config.min_age.map(|age| age.0).or(config.follow.then_some(COMPLETE_AFTER)),
            max_age: config.max_age.map(|age| age.0),
        })
    }

    /// True if a file matches, or will match when it is old enough. `below` is its path relative to the
    /// folder that is read.
    pub fn allows(&self, below: &Path, metadata: &Metadata) -> bool {
        let (min, max) = self.sizes;
        self.names.allows(below)
            && (min..=max).contains(&metadata.len())
            && self.max_age.is_none_or(|most| age(metadata) <= most)
    }

    /// True if the file is younger than `min_age`.
    pub fn is_too_young(&self, metadata: &Metadata) -> bool {
        self.min_age.is_some_and(|least| age(metadata) < least)
    }
}

/// Returns the time since the last modification. Zero if that is in the future.
fn age(metadata: &Metadata) -> Duration {
    let modified = metadata.modified().ok();
    modified.and_then(|time| SystemTime::now().duration_since(time).ok()).unwrap_or_default()
}
