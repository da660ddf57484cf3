//! The concurrency of a copy, for comparisons.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::LoadError;

/// A way to overlap reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub enum Mode {
    /// The concurrency adapts.
    Auto,
    /// One request at a time.
    Sequential,
    /// This number of pairs of a reader and a writer.
    Parallel(usize),
    /// Separate readers and writers, with a queue between them.
    Channel,
}

impl TryFrom<String> for Mode {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "sequential" => Ok(Self::Sequential),
            "parallel" => Ok(Self::Parallel(10)),
            "channel" => Ok(Self::Channel),
            _ => match text.strip_prefix("parallel=").map(str::parse) {
                Some(Ok(count @ 1..=10_000)) => Ok(Self::Parallel(count)),
                Some(_) => Err("`parallel=` needs a number from 1 to 10000".to_owned()),
                None => Err("it must be one of auto, sequential, parallel, parallel=N or channel".to_owned()),
            },
        }
    }
}

/// The options of concurrency.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PaceOptions {
    /// The way to overlap reads and writes.
    pub mode: Option<Mode>,
    /// The number of ranges read at the same time.
    pub readers: Option<usize>,
    /// The number of parts written at the same time.
    pub writers: Option<usize>,
    /// The number of slices between readers and writers.
    pub queue: Option<usize>,
    /// The size of a read request for rows.
    pub slice_size: Option<String>,
    /// The size of a written part.
    pub part_size: Option<String>,
}

/// The concurrency that the options ask for; `None` adapts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pace {
    /// The number of ranges read at the same time.
    pub readers: Option<usize>,
    /// The number of parts written at the same time.
    pub writers: Option<usize>,
    /// The number of slices between them.
    pub queue: Option<usize>,
    /// The parallelism of the pipeline.
    pub concurrency: Option<usize>,
}

impl PaceOptions {
    /// Returns the concurrency that the options ask for.
    ///
    /// # Errors
    /// If an option contradicts the mode.
    pub fn pace(&self) -> Result<Pace, LoadError> {
        let given = [
            ("--readers", self.readers.is_some()),
            ("--writers", self.writers.is_some()),
            ("--queue", self.queue.is_some()),
        ];
        for (option, number) in [("--readers", self.readers), ("--writers", self.writers)] {
            if number == Some(0) {
                return Err(LoadError::Options(format!("`{option}` must be 1 or more")));
            }
        }
        let contradiction = self
            .mode
            .filter(|mode| *mode != Mode::Channel)
            .zip(given.iter().find(|(_, is_given)| *is_given))
            .map(|(mode, (option, _))| mode.contradiction(option));
        if let Some(contradiction) = contradiction {
            return Err(LoadError::Options(contradiction));
        }
        Ok(match self.mode {
            None | Some(Mode::Auto) => {
                Pace { readers: self.readers, writers: self.writers, queue: self.queue, concurrency: None }
            }
            Some(Mode::Sequential) => {
                Pace { readers: Some(1), writers: Some(1), queue: Some(0), concurrency: Some(1) }
            }
            Some(Mode::Parallel(count)) => {
                Pace { readers: Some(count), writers: Some(count), queue: Some(0), concurrency: None }
            }
            Some(Mode::Channel) => Pace {
                readers: self.readers.or(Some(8)),
                writers: self.writers.or(Some(10)),
                queue: self.queue.or(Some(100)),
                concurrency: None,
            },
        })
    }
}

impl Mode {
    /// Says that an option contradicts this mode.
    fn contradiction(self, option: &str) -> String {
        let verb = if self == Self::Auto { "adapts" } else { "sets" };
        format!(
            "`--mode {}` {verb} this number itself, so `{option}` contradicts it; use `--mode channel`, or no mode",
            self.name()
        )
    }

    fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Sequential => "sequential",
            Self::Parallel(_) => "parallel",
            Self::Channel => "channel",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(mode: Option<&str>) -> PaceOptions {
        let mode = mode.map(|mode| mode.parse().unwrap());
        PaceOptions { mode, ..PaceOptions::default() }
    }

    #[test]
    fn a_mode_says_how_many_there_are() {
        let pace = |mode| options(mode).pace().unwrap();
        assert_eq!(pace(None), Pace::default());
        assert_eq!(pace(Some("auto")), Pace::default());
        assert_eq!(pace(Some("sequential")).concurrency, Some(1));
        assert_eq!(pace(Some("parallel")).writers, Some(10));
        assert_eq!(pace(Some("parallel=3")).readers, Some(3));
        assert_eq!(pace(Some("channel")).queue, Some(100));
    }

    #[test]
    fn options_that_contradict_the_mode_are_rejected() {
        for mode in ["auto", "sequential", "parallel=2"] {
            assert!(PaceOptions { readers: Some(2), ..options(Some(mode)) }.pace().is_err());
        }
        let pace = PaceOptions { readers: Some(2), ..options(Some("channel")) }.pace().unwrap();
        assert_eq!((pace.readers, pace.writers), (Some(2), Some(10)));
        assert_eq!(PaceOptions { readers: Some(2), ..options(None) }.pace().unwrap().readers, Some(2));
        assert!(PaceOptions { readers: Some(0), ..options(None) }.pace().is_err());
        assert!("parallel=0".parse::<Mode>().is_err() && "fast".parse::<Mode>().is_err());
    }
}
