//! Asking each message of a batch.

use arrow_array::{BooleanArray, cast::AsArray};
use arrow_select::filter::filter;
use thalweg_engine::{Error, Outputs};
use thalweg_expression::Evaluator;
use thalweg_record::{Batch, all_but};

/// Asks whether the condition is true of each message. Those of which it cannot be said are rejected; the others
/// come back with their answers.
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
