//! The values of a batch, and the messages that cannot be counted.

use std::collections::BTreeMap;

use arrow_array::BooleanArray;
use thalweg_expression::Evaluator;
use thalweg_record::Batch;

use super::function::Kind;
use super::running::{Aggregator, Applied};
use super::timing::is_usable;
use crate::scalar::{Column, View};

/// The longest text of a key, or of a value that is kept, in bytes.
const LONGEST: usize = 16 << 10;

/// The values of a batch, and the messages that cannot be counted.
pub(super) struct Evaluation {
    pub(super) keys: Vec<Column>,
    pub(super) values: Vec<Option<Column>>,
    /// The times of the messages, if windows are by event time.
    pub(super) times: Option<Column>,
    pub(super) failed: BTreeMap<u32, String>,
}

impl Aggregator {
    /// Evaluates keys, times and values. Returns None if those of all messages are too large together.
    pub(super) fn evaluate(&mut self, batch: &Batch) -> Option<Evaluation> {
        let mut failed = BTreeMap::new();
        let mut held = 0;
        let mut values = |evaluator: &mut Evaluator, what: &dyn Fn() -> String| {
            let mut evaluated = evaluator.evaluate_beside(held, batch);
            held = evaluated.held;
            if evaluated.is_too_large && batch.rows() > 1 {
                return None;
            }
            for (row, reason) in std::mem::take(&mut evaluated.failed) {
                failed.entry(row).or_insert_with(|| format!("{} cannot be computed: {reason}", what()));
            }
            Some(Column::of(&evaluated))
        };
        let mut keys = Vec::with_capacity(self.keys.len());
        for (evaluator, name) in self.keys.iter_mut().zip(&self.by) {
            keys.push(values(evaluator, &|| format!("the key `{name}`"))?);
        }
        let times = match &mut self.time {
            Some((name, evaluator)) => Some(values(evaluator, &|| format!("the time `{name}`"))?),
            None => None,
        };
        let mut columns = Vec::with_capacity(self.functions.len());
        for Applied { kind, text, of } in &mut self.functions {
            columns.push(match of {
                None => None,
                Some(_) if kind.takes_condition() => None,
                Some(evaluator) => Some(values(evaluator, &|| format!("`{text}`"))?),
            });
        }
        for (Applied { kind, text, of }, column) in self.functions.iter_mut().zip(&mut columns) {
            if kind.takes_condition()
                && let Some(condition) = of
            {
                let condition = condition.condition(batch);
                for (row, reason) in condition.failed {
                    failed.entry(row).or_insert_with(|| format!("`{text}` cannot be computed: {reason}"));
                }
                let is_true = condition.values.iter().map(|value| value.filter(|value| *value));
                *column = Some(Column::Bool(is_true.collect::<BooleanArray>()));
            }
        }
        Some(Evaluation { keys, values: columns, times, failed })
    }

    /// Returns why a message cannot be counted, whatever is counted so far.
    pub(super) fn objection(&self, evaluation: &Evaluation, row: usize) -> Option<String> {
        for (key, name) in evaluation.keys.iter().zip(&self.by) {
            if key.view(row).heap() > LONGEST {
                return Some(format!("the key `{name}` has more than {} KiB", LONGEST >> 10));
            }
        }
        if let (Some(times), Some((name, _))) = (&evaluation.times, &self.time) {
            match times.view(row) {
                View::Time(time) if is_usable(time) => {}
                View::Null => return Some(format!("the time `{name}` is missing")),
                _ => return Some(format!("`{name}` is not a time: give it the type `timestamp`")),
            }
        }
        for (applied, column) in self.functions.iter().zip(&evaluation.values) {
            let Some(view) = column.as_ref().map(|column| column.view(row)).filter(|view| !view.is_null())
            else {
                continue;
            };
            let text = &applied.text;
            match applied.kind {
                Kind::Sum | Kind::Mean | Kind::Variance | Kind::Deviation if view.number().is_none() => {
                    return Some(format!("the value of `{text}` is not a number"));
                }
                Kind::Quantile(_) if !view.number().is_some_and(|number| number.as_float().is_finite()) => {
                    return Some(format!("the value of `{text}` is not a finite number"));
                }
                Kind::Min | Kind::Max | Kind::First | Kind::Last | Kind::List(_) | Kind::Top(_)
                    if view.heap() > LONGEST =>
                {
                    return Some(format!("the value of `{text}` has more than {} KiB", LONGEST >> 10));
                }
                _ => {}
            }
        }
        None
    }
}
