//! Evaluates an expression over batches.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use arrow_array::{
    Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, cast::AsArray, new_null_array,
};
use arrow_schema::{DataType, SchemaRef, TimeUnit};
use arrow_select::concat::concat;
use thalweg_record::{Batch, PAYLOAD};

use crate::{
    Expression,
    error::words,
    payload_search::PAYLOAD_BYTES,
    plan::{self, ColumnType, Plan, Purpose},
};

/// The metadata key by which Arrow names extension types.
const EXTENSION: &str = "ARROW:extension:name";
/// The extension type of JSON text.
const JSON: &str = "arrow.json";

/// The most compiled plans kept per expression: one for each set of types and purpose.
const KEPT: usize = 8;

/// One value for each message.
#[derive(Debug, Clone)]
pub struct Evaluated {
    /// The values: 64-bit integers or floats, booleans, text (`Utf8View`) or times (microseconds, UTC).
    pub values: ArrayRef,
    /// True if the values are JSON text: the expression is a JSON column or a part of one.
    pub json: bool,
    /// The messages that failed, in order, each with the reason. Their values are NULL.
    pub failed: Vec<(u32, String)>,
}

/// True, false or NULL for each message.
#[derive(Debug, Clone)]
pub struct Condition {
    /// The results. NULL counts as false.
    pub values: BooleanArray,
    /// The messages that failed, in order, each with the reason. Their results are NULL.
    pub failed: Vec<(u32, String)>,
}

/// Evaluates one expression over batches. It compiles the expression when a batch has types that are not
/// among the recently used ones. Only the types of columns in the expression matter.
#[derive(Debug)]
pub struct Evaluator {
    expression: Expression,
    /// The compiled plans, most recently used first.
    compiled: Vec<Compiled>,
}

#[derive(Debug)]
struct Compiled {
    purpose: Purpose,
    /// The types of the plan, one for each of the expression's possible columns.
    types: Vec<Option<ColumnType>>,
    /// The schema in which those types were last found, and the columns' places in it.
    seen: Seen,
    /// A mistake is cached too, so an invalid expression is not planned again for every batch.
    plan: Result<Plan, String>,
}

#[derive(Debug)]
struct Seen {
    schema: SchemaRef,
    inputs: Vec<Input>,
}

/// The origin of a plan's column.
#[derive(Debug)]
enum Input {
    Field(usize),
    PayloadBytes,
    /// The payload as text, or a `meta` column.
    Named(String),
}

impl Evaluator {
    /// Creates an evaluator without compiled plans.
    pub fn new(expression: Expression) -> Evaluator {
        Evaluator { expression, compiled: Vec::new() }
    }

    /// Returns the expression.
    pub fn expression(&self) -> &Expression {
        &self.expression
    }

    /// Returns the values for a batch.
    pub fn evaluate(&mut self, batch: &Batch) -> Evaluated {
        let expression = self.expression.clone();
        let compiled = self.compiled(batch, Purpose::Value);
        match &compiled.plan {
            Ok(plan) => {
                let (values, failed) = run(plan, &compiled.seen, batch, &expression);
                Evaluated { values, json: plan.json, failed }
            }
            Err(reason) => Evaluated {
                values: new_null_array(&DataType::Utf8View, batch.rows()),
                json: false,
                failed: all_failed(batch.rows(), reason),
            },
        }
    }

    /// Returns the results for a batch. If the expression is not a condition for the column types of the
    /// batch, every message fails.
    pub fn condition(&mut self, batch: &Batch) -> Condition {
        let expression = self.expression.clone();
        let rows = batch.rows();
        let compiled = self.compiled(batch, Purpose::Condition);
        let reason = match &compiled.plan {
            Ok(plan) => {
                let (values, failed) = run(plan, &compiled.seen, batch, &expression);
                if let Some(values) = values.as_boolean_opt() {
                    return Condition { values: values.clone(), failed };
                }
                // A missing column makes the result NULL; that is not an error.
                if plan.data_type == DataType::Null {
                    return Condition { values: BooleanArray::new_null(rows), failed };
                }
                not_a_condition(&expression, &plan.data_type)
            }
            Err(reason) => reason.clone(),
        };
        Condition { values: BooleanArray::new_null(rows), failed: all_failed(rows, &reason) }
    }

    /// Returns the plan for the types in a batch, compiled if necessary, and moves it to the front.
    fn compiled(&mut self, batch: &Batch, purpose: Purpose) -> &Compiled {
        let schema = batch.fields().schema_ref();
        let same_schema =
            |compiled: &Compiled| compiled.purpose == purpose && Arc::ptr_eq(&compiled.seen.schema, schema);
        let at = self.compiled.iter().position(same_schema).unwrap_or_else(|| self.meet(schema, purpose));
        if at > 0 {
            self.compiled[..=at].rotate_right(1);
        }
        &self.compiled[0]
    }

    /// Finds or compiles the plan for a new schema object. Usually a plan for its types exists already.
    fn meet(&mut self, schema: &SchemaRef, purpose: Purpose) -> usize {
        let names = self.expression.possible_columns();
        let types: Vec<Option<ColumnType>> = names.iter().map(|name| column_type(schema, name)).collect();
        if let Some(at) = self.compiled.iter().position(|c| c.purpose == purpose && c.types == types) {
            let compiled = &mut self.compiled[at];
            compiled.seen = Seen::of(schema, &compiled.plan);
            return at;
        }
        let present: HashMap<&str, ColumnType> = names
            .iter()
            .zip(&types)
            .filter_map(|(name, found)| Some((name.as_str(), found.clone()?)))
            .collect();
        let plan = plan::plan(self.expression.sql(), &present, purpose).map_err(|error| error.to_string());
        let seen = Seen::of(schema, &plan);
        self.compiled.truncate(KEPT - 1);
        self.compiled.push(Compiled { purpose, types, seen, plan });
        self.compiled.len() - 1
    }
}

impl Seen {
    fn of(schema: &SchemaRef, plan: &Result<Plan, String>) -> Self {
        let input = |name: &str| match schema.index_of(name) {
            _ if name == PAYLOAD_BYTES => Input::PayloadBytes,
            Ok(at) => Input::Field(at),
            Err(_) => Input::Named(name.to_owned()),
        };
        let inputs = match plan {
            Ok(plan) => plan.schema.fields().iter().map(|field| input(field.name())).collect(),
            Err(_) => Vec::new(),
        };
        Self { schema: schema.clone(), inputs }
    }
}

/// Returns the type of the column `name` in a batch with these fields, if it has one.
fn column_type(schema: &SchemaRef, name: &str) -> Option<ColumnType> {
    if let Some((_, field)) = schema.fields().find(name) {
        let data_type = field.data_type().clone();
        let text = matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
        let json = text && field.metadata().get(EXTENSION).is_some_and(|extension| extension == JSON);
        return Some(ColumnType { data_type, json, field: true });
    }
    let data_type = match name {
        PAYLOAD | "meta.source" | "meta.path" => DataType::Utf8View,
        "meta.time" => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        "meta.position" => DataType::Int64,
        _ => return None,
    };
    Some(ColumnType { data_type, json: false, field: false })
}

fn not_a_condition(expression: &Expression, data_type: &DataType) -> String {
    let value = match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "text",
        data_type if data_type.is_numeric() => "a number",
        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 => "a time",
        _ => "another kind of value",
    };
    format!(
        "`{expression}` is not a condition: it returns {value}. Compare it with something, or write `CAST({expression} AS BOOLEAN)`."
    )
}

fn all_failed(rows: usize, reason: &str) -> Vec<(u32, String)> {
    (0..rows).map(|row| (row as u32, reason.to_owned())).collect()
}

/// Runs a plan over a whole batch. If that fails, it runs the plan over ever smaller parts to find the
/// messages that fail.
fn run(plan: &Plan, seen: &Seen, batch: &Batch, expression: &Expression) -> (ArrayRef, Vec<(u32, String)>) {
    let rows = batch.rows();
    let nothing = |reason: &str| {
        let reason = format!("`{expression}` failed: {reason}.");
        (new_null_array(&plan.data_type, rows), all_failed(rows, &reason))
    };
    let inputs = match read(plan, seen, batch) {
        Ok(inputs) => inputs,
        Err(reason) => return nothing(&reason),
    };
    let reason = match evaluate(plan, &inputs) {
        Ok(values) => return (values, Vec::new()),
        Err(reason) => reason,
    };
    if inputs.num_columns() == 0 {
        return nothing(&reason);
    }
    let mut search = Search { plan, parts: Vec::new(), failed: Vec::new() };
    search.divide(&inputs, 0, reason);
    let parts: Vec<&dyn Array> = search.parts.iter().map(AsRef::as_ref).collect();
    match concat(&parts) {
        Ok(values) => {
            let sentence = |(row, reason)| (row, format!("`{expression}` failed: {reason}."));
            (values, search.failed.into_iter().map(sentence).collect())
        }
        Err(error) => nothing(&error.to_string()),
    }
}

/// Returns the columns that a plan reads.
fn read(plan: &Plan, seen: &Seen, batch: &Batch) -> Result<RecordBatch, String> {
    let rows = batch.rows();
    let columns = seen
        .inputs
        .iter()
        .zip(plan.schema.fields())
        .map(|(input, field)| match input {
            Input::Field(at) => batch.fields().column(*at).clone(),
            Input::PayloadBytes => Arc::new(batch.payload().clone()),
            // Not every batch has a path or positions.
            Input::Named(name) => {
                batch.column(name).unwrap_or_else(|| new_null_array(field.data_type(), rows))
            }
        })
        .collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(plan.schema.clone(), columns, &options)
        .map_err(|error| error.to_string())
}

/// Returns the values of a plan over some messages, or the reason for a failure. A panic in a kernel counts
/// as a failure.
fn evaluate(plan: &Plan, inputs: &RecordBatch) -> Result<ArrayRef, String> {
    let rows = inputs.num_rows();
    let work = AssertUnwindSafe(|| plan.physical.evaluate(inputs).and_then(|values| values.into_array(rows)));
    match catch_unwind(work) {
        Ok(Ok(values)) => Ok(values),
        Ok(Err(error)) => Err(words(&error)),
        Err(_) => Err("the value is too large, or a function panicked on it".to_owned()),
    }
}

/// The search for the messages for which a plan fails.
struct Search<'a> {
    plan: &'a Plan,
    /// The values of all rows so far, in order.
    parts: Vec<ArrayRef>,
    failed: Vec<(u32, String)>,
}

impl Search<'_> {
    /// Searches `inputs`, which failed as a whole for `reason`. Its first row is message `first`.
    fn divide(&mut self, inputs: &RecordBatch, first: usize, reason: String) {
        let rows = inputs.num_rows();
        if rows <= 1 {
            self.parts.push(new_null_array(&self.plan.data_type, rows));
            self.failed.push((first as u32, reason));
            return;
        }
        let half = rows / 2;
        for (start, length) in [(0, half), (half, rows - half)] {
            let part = inputs.slice(start, length);
            match evaluate(self.plan, &part) {
                Ok(values) => self.parts.push(values),
                Err(reason) => self.divide(&part, first + start, reason),
            }
        }
    }
}

#[cfg(test)]
mod tests;
