//! Conditions: their evaluation over the messages of a batch, and mistakes in them.

use arrow_array::{BooleanArray, cast::AsArray};
use arrow_schema::{DataType, Schema};
use arrow_select::filter::filter;
use thalweg_config::FormatError;
use thalweg_engine::{Error, FieldMistake, KnownFields, Mistake, Outputs};
use thalweg_expression::{Evaluator, Expression, ExpressionError};
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

/// Returns the mistake in a condition that is the same value for all messages, and not true or false.
pub(crate) fn constant(condition: &Expression) -> Option<Mistake> {
    if !condition.possible_columns().is_empty() {
        return None;
    }
    let kind = condition.result("condition", &Schema::empty()).ok()?;
    let is_condition = matches!(kind.data_type(), DataType::Boolean | DataType::Null);
    let message = format!("`{}` is a value, and no condition.", condition.sql());
    let help = "Compare it with a field, for example `status = 'yes'`.";
    (!is_condition).then(|| Mistake::new("condition", message).help(help))
}

/// Returns the mistake in a condition whose types do not fit, if those of all its fields are known.
pub(crate) fn unfit(condition: &Expression, known: &KnownFields) -> Option<FieldMistake> {
    let columns = known.schema_of(condition.possible_columns())?;
    condition.check_condition(&columns).err().map(|error| mistake(condition, &error))
}

/// Returns a mistake in an expression, for a message at its place.
pub(crate) fn mistake(expression: &Expression, error: &ExpressionError) -> FieldMistake {
    let ExpressionError { range, message, help } = error.clone();
    FieldMistake { text: expression.sql().to_owned(), error: FormatError { range, message, help } }
}
