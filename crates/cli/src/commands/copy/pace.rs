//! How much is done at once, for those who compare.

use std::str::FromStr;

use clap::Args;

use crate::exit::CliError;

/// A way to do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// As many at once as do good, which is found out meanwhile.
    Auto,
    /// One after the other.
    Sequential,
    /// So many pairs of a reader and a writer.
    Parallel(usize),
    /// Readers and writers apart from one another, with a queue between them.
    Channel,
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
                None => Err("it is one of auto, sequential, parallel, parallel=N and channel".to_owned()),
            },
        }
    }
}

/// How much is done at once.
#[derive(Debug, Args)]
#[command(next_help_heading = "Comparing")]
pub struct PaceOptions {
    /// `auto` does as much at once as does good, and finds out what that is (the default); `sequential` one thing after the
    /// other; `parallel=N` N things at once (10 if N is not said); `channel` has readers and writers of their own, with
    /// a queue between them.
    #[arg(long, value_name = "MODE")]
    pub mode: Option<Mode>,
    /// How many ranges to read at the same time.
    #[arg(long, value_name = "N", value_parser = count)]
    pub readers: Option<usize>,
    /// How many parts to write at the same time.
    #[arg(long, value_name = "N", value_parser = count)]
    pub writers: Option<usize>,
    /// How many slices may be read and not yet worked on.
    #[arg(long, value_name = "N")]
    pub queue: Option<usize>,
    /// How many bytes to ask for at once where rows are read, for example `8MiB`.
    #[arg(long, value_name = "SIZE")]
    pub slice: Option<String>,
    /// How many bytes a part that is written has, for example `16MiB`.
    #[arg(long, value_name = "SIZE")]
    pub part_size: Option<String>,
}

fn count(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "it must be a number from 1 on".to_owned())
}

/// What the options come to; what is none adapts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pace {
    /// Ranges read at the same time.
    pub readers: Option<usize>,
    /// Parts written at the same time.
    pub writers: Option<usize>,
    /// Slices between them.
    pub queue: Option<usize>,
    /// Copies of the pipeline.
    pub concurrency: Option<usize>,
}

impl PaceOptions {
    /// What they come to.
    ///
    /// # Errors
    /// Options that contradict the mode.
    pub fn pace(&self) -> Result<Pace, CliError> {
        let given = [
            ("--readers", self.readers.is_some()),
            ("--writers", self.writers.is_some()),
            ("--queue", self.queue.is_some()),
        ];
        if let (Some(mode), Some((option, _))) =
            (self.mode.filter(|mode| *mode != Mode::Channel), given.iter().find(|(_, is_given)| *is_given))
        {
            let what = match mode {
                Mode::Auto => "finds out how many do good",
                _ => "says already how many there are",
            };
            return Err(CliError::Usage(format!(
                "`--mode {}` {what}, so `{option}` contradicts it; with `--mode channel`, or without a mode, you say it yourself",
                mode.name()
            )));
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
        PaceOptions { mode, readers: None, writers: None, queue: None, slice: None, part_size: None }
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
    fn what_contradicts_the_mode_is_refused() {
        for mode in ["auto", "sequential", "parallel=2"] {
            assert!(PaceOptions { readers: Some(2), ..options(Some(mode)) }.pace().is_err());
        }
        let pace = PaceOptions { readers: Some(2), ..options(Some("channel")) }.pace().unwrap();
        assert_eq!((pace.readers, pace.writers), (Some(2), Some(10)));
        assert_eq!(PaceOptions { readers: Some(2), ..options(None) }.pace().unwrap().readers, Some(2));
        assert!("parallel=0".parse::<Mode>().is_err() && "fast".parse::<Mode>().is_err());
    }
}
