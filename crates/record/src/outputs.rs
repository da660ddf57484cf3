//! The outputs of a transform.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use crate::{Batch, ERROR_COMPONENT, ERROR_REASON, File, all_but};
use arrow_array::{ArrayRef, StringArray};
use arrow_schema::{ArrowError, DataType, Field};
use thalweg_redact::redacted;

/// The maximum length of a reason, in bytes. Each rejected message has a copy, and the text of an exception
/// may contain a whole batch.
const LONGEST_REASON: usize = 1 << 10;

/// The output by which a batch leaves a transform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Output {
    /// To the next transform, or the end of the pipeline.
    Main,
    /// The named output with this index, in the order in which the transform declares its outputs.
    Named(usize),
    /// The `errors` output.
    Errors,
}

/// Collects the results of a transform for one batch, until the engine takes them.
#[derive(Debug)]
pub struct Outputs {
    component: Arc<str>,
    given: Vec<(Output, Batch)>,
    files: Vec<File>,
    held: Option<Duration>,
}

impl Outputs {
    /// Creates the outputs of the transform with this name.
    pub fn new(component: Arc<str>) -> Self {
        Self { component, given: Vec::new(), files: Vec::new(), held: None }
    }

    /// Sends a batch to the main output. `None` sends nothing: a filter may have left no messages.
    pub fn send(&mut self, batch: impl Into<Option<Batch>>) {
        self.given.extend(batch.into().map(|batch| (Output::Main, batch)));
    }

    /// Sends a batch to a named output.
    pub fn send_to(&mut self, output: usize, batch: Batch) {
        self.given.push((Output::Named(output), batch));
    }

    /// Sends a batch to any output: for a transform that runs another one inside.
    pub fn pass(&mut self, output: Output, batch: Batch) {
        self.given.push((output, batch));
    }

    /// Sends a file to the main output: for a transform that writes messages into files.
    pub fn send_file(&mut self, file: File) {
        self.files.push(file);
    }

    /// Removes and returns the files, in the order in which they were sent.
    pub fn take_files(&mut self) -> Vec<File> {
        std::mem::take(&mut self.files)
    }

    /// Sends the failed messages, as (row, reason) in ascending order of rows, to `errors`. Returns the
    /// remaining messages, if any.
    ///
    /// # Errors
    /// If a row is out of range.
    pub fn reject(&mut self, batch: Batch, failed: Vec<(u32, String)>) -> Result<Option<Batch>, ArrowError> {
        let (rejected, rest) = split_rejected(batch, failed, &self.component)?;
        self.given.extend(rejected.map(|batch| (Output::Errors, batch)));
        Ok(rest)
    }

    /// Rejects all messages for one reason.
    ///
    /// # Errors
    /// As for [`reject`](Self::reject).
    pub fn reject_all(&mut self, batch: Batch, reason: &str) -> Result<(), ArrowError> {
        let reason = shown(reason);
        let rows = u32::try_from(batch.rows()).unwrap_or(u32::MAX);
        let failed = (0..rows).map(|row| (row, &*reason)).collect();
        let (rejected, rest) = split_rejected(batch, failed, &self.component)?;
        self.given.extend(rejected.map(|batch| (Output::Errors, batch)));
        self.send(rest);
        Ok(())
    }

    /// Says that the transform holds messages back. The engine passes on the results so far, waits until the
    /// next stages have capacity and `pause` is over, and then calls the transform's `resume`, before it
    /// calls the worker with another batch. A run that was asked to stop waits as well.
    pub fn hold(&mut self, pause: Duration) {
        self.held = Some(pause);
    }

    /// Removes and returns the batches, in the order in which they were sent.
    pub fn take(&mut self) -> Vec<(Output, Batch)> {
        std::mem::take(&mut self.given)
    }

    /// Returns the pause before the transform's `resume`, once, if the transform holds messages back.
    pub fn take_held(&mut self) -> Option<Duration> {
        self.held.take()
    }
}

/// Returns a reason as it is kept: without secrets, and cut off at [`LONGEST_REASON`].
pub(crate) fn shown(reason: &str) -> Cow<'_, str> {
    // Secrets are replaced first, because half a secret is not recognized.
    let plain = redacted(reason);
    if plain.len() <= LONGEST_REASON {
        return plain;
    }
    let end = plain.floor_char_boundary(LONGEST_REASON);
    format!("{}…", plain.get(..end).unwrap_or_default()).into()
}

/// Splits a batch into the rejected messages, which get the fields `error_reason` and `error_component`, and
/// the rest.
///
/// # Errors
/// If a row is out of range.
pub fn split_rejected<R: AsRef<str>>(
    batch: Batch,
    mut failed: Vec<(u32, R)>,
    component: &str,
) -> Result<(Option<Batch>, Option<Batch>), ArrowError> {
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
            let reasons = failed.iter().map(|(_, reason)| shown(reason.as_ref()));
            let reasons: ArrayRef = Arc::new(StringArray::from_iter_values(reasons));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reason_is_cut_off_where_a_character_ends() {
        assert_eq!(shown("no number"), "no number");
        let longest = "é".repeat(LONGEST_REASON / 2);
        assert_eq!(shown(&longest), longest);
        assert_eq!(shown(&format!("a{longest}")), format!("a{}…", "é".repeat(LONGEST_REASON / 2 - 1)));
    }
}
