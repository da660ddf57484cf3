//! Conditions: their evaluation over the messages of a batch, and mistakes in them.

use arrow_array::{BooleanArray, cast::AsArray};
use arrow_schema::{DataType, Schema};
use arrow_select::filter::filter;
use thalweg_config::{FormatError, nearest};
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

/// Returns the mistake in a condition whose types do not fit, if those of all its fields are known, or that
/// is none for any types.
pub(crate) fn unfit(condition: &Expression, known: &KnownFields) -> Option<FieldMistake> {
    let checked = match known.schema_of(condition.possible_columns()) {
        Some(columns) => condition.check_condition(&columns),
        None => condition.check_possible_condition(),
    };
    checked.err().map(|error| mistake(condition, &error))
}

/// Returns the remarks on an expression: names that may be missing and always are, and what means something
/// else in another language.
pub(crate) fn remarks(expression: &Expression, known: &KnownFields) -> Vec<FieldMistake> {
    let is_known = |name: &str| known.names().any(|known| known == name);
    let found = expression.remarks(&is_known);
    let foreign = found.iter().map(|error| mistake(expression, error));
    let sql = expression.sql();
    let is_absent = |name: &&String| known.lacks(name) && !expression.needed_columns().contains(name);
    let absent = expression.columns().iter().filter(is_absent).map(|name| {
        let message = format!("No message has a field `{name}` here: in `{sql}` it is always NULL.");
        let help = match nearest(name, known.names()) {
            Some(near) => format!("Did you mean `{near}`?"),
            None => "If no message should have it, leave it out.".to_owned(),
        };
        let range = sql.find(name.as_str()).map(|at| at..at + name.len());
        FieldMistake { text: sql.to_owned(), error: FormatError { range, message, help: Some(help) } }
    });
    foreign.chain(absent).collect()
}

/// Returns a mistake in an expression, for a message at its place.
pub(crate) fn mistake(expression: &Expression, error: &ExpressionError) -> FieldMistake {
    let ExpressionError { range, message, help } = error.clone();
    FieldMistake { text: expression.sql().to_owned(), error: FormatError { range, message, help } }
}
