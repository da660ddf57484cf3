//! Where transforms and sinks put what they give.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, StringArray};
use arrow_schema::{DataType, Field};
use thalweg_record::{Batch, ERROR_COMPONENT, ERROR_REASON, File, all_but};

use crate::Error;

/// Where a batch that a transform gives is bound for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Output {
    /// On to the next transform, or the end of the pipeline.
    Main,
    /// The named output of this number, in the order of [`outputs`](crate::TransformConfig::outputs).
    Named(usize),
    /// The `errors` output.
    Errors,
}

/// Collects what a transform gives for one batch.
#[derive(Debug)]
pub struct Outlets {
    component: Arc<str>,
    given: Vec<(Output, Batch)>,
    files: Vec<File>,
    pause: Duration,
}

impl Outlets {
    /// For the transform of this name.
    pub fn new(component: Arc<str>) -> Self {
        Self { component, given: Vec::new(), files: Vec::new(), pause: Duration::ZERO }
    }

    /// Gives a batch to the output that leads on; where none is left (of a filter, say), there is nothing to give.
    pub fn send(&mut self, batch: impl Into<Option<Batch>>) {
        self.given.extend(batch.into().map(|batch| (Output::Main, batch)));
    }

    /// Gives a batch to a named output: see [`outputs`](crate::TransformConfig::outputs).
    pub fn send_to(&mut self, output: usize, batch: Batch) {
        self.given.push((Output::Named(output), batch));
    }

    /// Gives what a transform gave that this one runs within itself.
    pub fn pass(&mut self, output: Output, batch: Batch) {
        self.given.push((output, batch));
    }

    /// Gives a file to the output that leads on: of a transform that makes files of messages.
    pub fn send_file(&mut self, file: File) {
        self.files.push(file);
    }

    /// Takes the files that were given, in the order given.
    pub fn take_files(&mut self) -> Vec<File> {
        std::mem::take(&mut self.files)
    }

    /// Parts with the messages that failed, given as (row, reason) in ascending order of rows: they leave by
    /// `errors`. Gives back the others, if any.
    ///
    /// # Errors
    /// If a row is out of range.
    pub fn reject(&mut self, batch: Batch, failed: Vec<(u32, String)>) -> Result<Option<Batch>, Error> {
        let (rejected, rest) = part_rejected(batch, failed, &self.component)?;
        self.given.extend(rejected.map(|batch| (Output::Errors, batch)));
        Ok(rest)
    }

    /// Asks the engine to take no further batch into this copy before `pause` is over. What was given by now
    /// goes on first.
    pub fn pause(&mut self, pause: Duration) {
        self.pause = self.pause.max(pause);
    }

    /// Takes what was given, in the order given.
    pub fn take(&mut self) -> Vec<(Output, Batch)> {
        std::mem::take(&mut self.given)
    }

    /// Takes the pause that was asked for.
    pub fn take_pause(&mut self) -> Duration {
        std::mem::take(&mut self.pause)
    }
}

/// Collects the messages that a sink cannot write.
#[derive(Debug, Default)]
pub struct Rejects {
    rows: Vec<(u32, String)>,
}

impl Rejects {
    /// The message in this row of the batch being written cannot be written, ever. Rows are given in ascending order.
    pub fn reject(&mut self, row: u32, reason: impl Into<String>) {
        self.rows.push((row, reason.into()));
    }

    /// Takes what was rejected since the last time.
    pub fn take(&mut self) -> Vec<(u32, String)> {
        std::mem::take(&mut self.rows)
    }
}

/// Parts a batch in the rejected messages, which get the fields `error_reason` and `error_component`, and the rest.
pub(crate) fn part_rejected(
    batch: Batch,
    mut failed: Vec<(u32, String)>,
    component: &str,
) -> Result<(Option<Batch>, Option<Batch>), Error> {
    if failed.is_empty() {
        return Ok((None, Some(batch)));
    }
    failed.dedup_by_key(|(row, _)| *row);
    let rows: Vec<u32> = failed.iter().map(|(row, _)| *row).collect();
    let rejected = batch.share().select(&rows)?;
    let keep = all_but(batch.rows(), rows);
    let rest = batch.filter(&keep)?;
    let rejected = match rejected {
        Some(rejected) => {
            let reasons: ArrayRef =
                Arc::new(StringArray::from_iter_values(failed.iter().map(|(_, reason)| reason)));
            let components: ArrayRef =
                Arc::new(StringArray::from_iter_values(std::iter::repeat_n(component, rejected.rows())));
            Some(rejected.set_fields([
                (Field::new(ERROR_REASON, DataType::Utf8, false), reasons),
                (Field::new(ERROR_COMPONENT, DataType::Utf8, false), components),
            ])?)
        }
        None => None,
    };
    Ok((rejected, rest))
}
