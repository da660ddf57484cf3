//! Messages that are not counted.

use arrow_array::BooleanArray;
use thalweg_engine::{Error, Outputs};
use thalweg_record::{Batch, Outcome};

use super::OnLate;
use super::running::Aggregator;

/// The messages of a batch that are not counted.
#[derive(Default)]
pub(super) struct Left {
    pub(super) failed: Vec<(u32, String)>,
    pub(super) late: Vec<bool>,
    pub(super) has_late: bool,
}

/// The reason why late messages are rejected.
const LATE: &str = "late: the results of its window have left already";

impl Aggregator {
    /// Sends the messages that are not counted. Returns the others.
    pub(super) fn send_left(
        &self,
        whole: Batch,
        left: Left,
        out: &mut Outputs,
    ) -> Result<Option<Batch>, Error> {
        if !left.has_late {
            return Ok(out.reject(whole, left.failed)?);
        }
        if self.on_late == OnLate::Error {
            let mut failed = left.failed;
            let late = left.late.iter().enumerate().filter(|(_, late)| **late);
            failed.extend(late.map(|(row, _)| (row as u32, LATE.to_owned())));
            failed.sort_unstable_by_key(|(row, _)| *row);
            return Ok(out.reject(whole, failed)?);
        }
        let is_late = BooleanArray::from(left.late.clone());
        let (late, rest) = whole.partition(&is_late)?;
        if let Some(late) = late {
            match self.on_late {
                OnLate::Route => out.send_to(0, late),
                OnLate::Drop | OnLate::Error => late.settle(Outcome::Filtered),
            }
        }
        let Some(rest) = rest else { return Ok(None) };
        // The rows of the rest have other numbers.
        let mut before = 0;
        let mut late = left.late.iter();
        let mut at = 0;
        let failed = left.failed.into_iter().map(|(row, reason)| {
            while at < row {
                before += u32::from(late.next().copied().unwrap_or_default());
                at += 1;
            }
            (row - before, reason)
        });
        let failed = failed.collect();
        Ok(out.reject(rest, failed)?)
    }
}
