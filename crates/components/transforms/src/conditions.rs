//! Evaluates conditions over the messages of a batch.

use arrow_array::{BooleanArray, cast::AsArray};
use arrow_select::filter::filter;
use thalweg_engine::{Error, Outputs};
use thalweg_expression::Evaluator;
use thalweg_record::{Batch, all_but};

/// Evaluates a condition over a batch. Messages for which the evaluation fails are rejected. Returns the
/// other messages with their results.
pub(crate) fn ask(
    condition: &mut Evaluator,
    batch: Batch,
    out: &mut Outputs,
) -> Result<Option<(Batch, BooleanArray)>, Error> {
    let answers = condition.condition(&batch);
    if answers.failed.is_empty() {
        return Ok(Some((batch, answers.values)));
    }
    let keep = all_but(batch.rows(), answers.failed.iter().map(|(row, _)| *row));
    let values = filter(&answers.values, &keep)?.as_boolean().clone();
    Ok(out.reject(batch, answers.failed)?.map(|rest| (rest, values)))
}
