//! Running an expression over batches.

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

/// For how many sets of types, and purposes, an expression is kept compiled.
const KEPT: usize = 8;

/// One value for each message.
#[derive(Debug, Clone)]
pub struct Evaluated {
    /// The values, as 64-bit integers or floats, truth values, text (`Utf8View`) or times (microseconds,
    /// UTC).
    pub values: ArrayRef,
    /// Whether the values are JSON text: where the expression is just a JSON column or a part of one.
    pub json: bool,
    /// The messages for which it failed, in order, each with the reason. Their values are NULL.
    pub failed: Vec<(u32, String)>,
}

/// Yes, no or NULL for each message.
#[derive(Debug, Clone)]
pub struct Condition {
    /// The answers. NULL counts as no.
    pub values: BooleanArray,
    /// The messages for which it failed, in order, each with the reason. Their answers are NULL.
    pub failed: Vec<(u32, String)>,
}

/// Evaluates one expression over batches. It is compiled when a batch comes with types of the columns that
/// it refers to which were not seen lately; other columns do not matter.
#[derive(Debug)]
pub struct Evaluator {
    expression: Expression,
    /// The last used first.
    compiled: Vec<Compiled>,
}

#[derive(Debug)]
struct Compiled {
    purpose: Purpose,
    /// The types for which it is compiled, one for each of the expression's possible columns.
    types: Vec<Option<ColumnType>>,
    /// The schema in which those types were last found, and where.
    seen: Seen,
    /// The mistake is kept too, so that it is not looked for with every batch.
    plan: Result<Plan, String>,
}

#[derive(Debug)]
struct Seen {
    schema: SchemaRef,
    inputs: Vec<Input>,
}

/// Where a plan's column comes from.
#[derive(Debug)]
enum Input {
    Field(usize),
    PayloadBytes,
    /// The payload as text, or one of `meta`.
    Named(String),
}

impl Evaluator {
    /// An evaluator that has not compiled anything yet.
    pub fn new(expression: Expression) -> Evaluator {
        Evaluator { expression, compiled: Vec::new() }
    }

    /// The expression.
    pub fn expression(&self) -> &Expression {
        &self.expression
    }

    /// The values for a batch.
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

    /// The answers for a batch. If the expression is no condition for the types that its columns have there,
    /// every message has failed.
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
                // A column that is not there gives no answer, and that is not a mistake.
                if plan.data_type == DataType::Null {
                    return Condition { values: BooleanArray::new_null(rows), failed };
                }
                not_a_condition(&expression, &plan.data_type)
            }
            Err(reason) => reason.clone(),
        };
        Condition { values: BooleanArray::new_null(rows), failed: all_failed(rows, &reason) }
    }

    /// The plan for the types in a batch, compiled if need be; it comes first from then on.
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

    /// Finds or makes the plan for a schema that comes as a new object: usually the types are known already.
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

/// The type of the column of that name in a batch with these fields, if it has one.
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
    let gives = match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "text",
        data_type if data_type.is_numeric() => "a number",
        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 => "a time",
        _ => "another kind of value",
    };
    format!(
        "`{expression}` is not a condition: it gives {gives}. Compare it with something, or write `CAST({expression} AS BOOLEAN)`."
    )
}

fn all_failed(rows: usize, reason: &str) -> Vec<(u32, String)> {
    (0..rows).map(|row| (row as u32, reason.to_owned())).collect()
}

/// Runs a plan over a batch: over the whole of it, and if that fails over ever smaller parts of it, until
/// the messages are found that it fails for.
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

/// The columns that a plan reads.
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

/// The values of a plan over some messages, or why there are none. What panics in a kernel is a failure
/// like another.
fn evaluate(plan: &Plan, inputs: &RecordBatch) -> Result<ArrayRef, String> {
    let rows = inputs.num_rows();
    let work = AssertUnwindSafe(|| plan.physical.evaluate(inputs).and_then(|values| values.into_array(rows)));
    match catch_unwind(work) {
        Ok(Ok(values)) => Ok(values),
        Ok(Err(error)) => Err(words(&error)),
        Err(_) => Err("the value is too large, or a function broke on it".to_owned()),
    }
}

/// The search for the messages that a plan fails for.
struct Search<'a> {
    plan: &'a Plan,
    /// The values of all rows so far, in order.
    parts: Vec<ArrayRef>,
    failed: Vec<(u32, String)>,
}

impl Search<'_> {
    /// Looks into `inputs`, the first of which is message `first`, and which as a whole failed for `reason`.
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
