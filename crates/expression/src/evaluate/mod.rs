//! Evaluates an expression over batches.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use arrow_array::{
    Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array, cast::AsArray,
    new_null_array,
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow_select::{concat::concat, take::take};
use thalweg_record::{Batch, Budget, PAYLOAD, is_metadata};

mod own_types;

use self::own_types::{Group, Part, merge};
use crate::{
    Expression,
    bounded::{Bounds, made, most, set_made, too_many, within},
    error::words,
    payload_search::PAYLOAD_BYTES,
    plan::{self, ColumnType, Plan, Purpose},
};

/// The metadata key by which Arrow names extension types.
const EXTENSION: &str = "ARROW:extension:name";
/// The extension type of JSON text.
const JSON: &str = "arrow.json";

/// The extension type of numbers: 64-bit floats of which those without a fraction are integers.
const NUMBER: &str = "thalweg.number";

/// The most compiled plans kept per expression: one for each set of types and purpose.
const KEPT: usize = 64;

/// One value for each message.
#[derive(Debug, Clone)]
pub struct Evaluated {
    /// The values: 64-bit integers or floats, booleans, text (`Utf8View`) or times (microseconds, UTC).
    pub values: ArrayRef,
    /// The property of the values that their type does not show.
    pub kind: Kind,
    /// The messages that failed, in order, each with the reason. Their values are NULL.
    pub failed: Vec<(u32, String)>,
    /// True if messages failed only because the values of the batch are too large together. A part of the
    /// batch has to be evaluated instead: of a single message, the values are never too large.
    pub is_too_large: bool,
    /// The size of large values and of those before them, in bytes: see
    /// [`evaluate_beside`](Evaluator::evaluate_beside).
    pub held: usize,
}

impl Evaluated {
    /// Returns a nullable field for the values.
    pub fn field(&self, name: &str) -> Field {
        field_of(name, self.values.data_type().clone(), self.kind)
    }
}

/// Returns a nullable field for values of this type and kind.
pub(crate) fn field_of(name: &str, data_type: DataType, kind: Kind) -> Field {
    let field = Field::new(name, data_type, true);
    let extension = match kind {
        Kind::Json => JSON,
        Kind::Number => NUMBER,
        Kind::Plain | Kind::Meta => return field,
    };
    field.with_metadata([(EXTENSION.to_owned(), extension.to_owned())].into())
}

/// The property of a column's values that its Arrow type does not show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// All values have the type of the column.
    Plain,
    /// The values are JSON text.
    Json,
    /// The values are 64-bit floats, and those without a fraction are integers.
    Number,
    /// The column is not a field: the payload, or metadata.
    Meta,
}

/// A column that an expression may read, as it is in a batch.
#[derive(Debug, Clone)]
struct Present {
    values: ArrayRef,
    column: ColumnType,
    kind: Kind,
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
    bounds: Bounds,
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
        Evaluator { expression, compiled: Vec::new(), bounds: Bounds::largest() }
    }

    /// Limits the results for a message and for a batch to parts of a budget.
    pub fn within(mut self, budget: &Budget) -> Evaluator {
        self.bounds = Bounds::within(budget);
        self
    }

    /// Returns the expression.
    pub fn expression(&self) -> &Expression {
        &self.expression
    }

    /// Returns the values for a batch.
    pub fn evaluate(&mut self, batch: &Batch) -> Evaluated {
        self.evaluate_beside(0, batch)
    }

    /// Returns the values for a batch, beside other values of this size in bytes. Together, they have the
    /// bounds of one expression.
    pub fn evaluate_beside(&mut self, held: usize, batch: &Batch) -> Evaluated {
        within(&self.bounds.clone(), held, || {
            let mut evaluated = self.values(batch, false);
            if !evaluated.failed.is_empty() && !evaluated.is_too_large && self.depends_on_nulls(batch) {
                drop(evaluated);
                set_made(held);
                evaluated = self.values(batch, true);
            }
            // A result on the way may be in use no longer.
            let made = made().saturating_sub(held);
            evaluated.held = held + made.min(evaluated.values.get_buffer_memory_size());
            evaluated
        })
    }

    fn values(&mut self, batch: &Batch, split_nulls: bool) -> Evaluated {
        let rows = batch.rows();
        let expression = self.expression.clone();
        let groups = match self.groups(batch, Purpose::Value, split_nulls) {
            Ok(Some(groups)) => groups,
            Ok(None) => {
                let compiled = self.compiled(batch, Purpose::Value);
                return match &compiled.plan {
                    Ok(plan) => {
                        let inputs = read(plan, &compiled.seen, batch);
                        let Ran { values, failed, is_too_large } = run(plan, inputs, rows, &expression);
                        Evaluated { values, kind: plan.kind(), failed, is_too_large, held: 0 }
                    }
                    Err(reason) => nothing(rows, reason),
                };
            }
            Err(error) => return nothing(rows, &error.to_string()),
        };
        let (mut parts, mut failed, mut is_too_large) = (Vec::new(), Vec::new(), false);
        for group in groups {
            let Group { rows, columns } = group;
            let compiled = self.compiled_for(&columns, Purpose::Value);
            let (values, kind) = match &compiled.plan {
                Ok(plan) => {
                    let inputs = gather(plan, expression.possible_columns(), &columns, &rows, batch);
                    let Ran { values, failed: of_group, is_too_large: of_many } =
                        run(plan, inputs, rows.len(), &expression);
                    is_too_large |= of_many;
                    failed.extend(of_group.into_iter().map(|(row, why)| (rows.value(row as usize), why)));
                    (values, plan.kind())
                }
                Err(reason) => {
                    failed.extend(rows.values().iter().map(|row| (*row, reason.clone())));
                    (new_null_array(&DataType::Utf8View, rows.len()), Kind::Plain)
                }
            };
            parts.push(Part { rows, values, kind });
        }
        failed.sort_by_key(|(row, _)| *row);
        match merge(&parts, rows) {
            Ok((values, kind)) => Evaluated { values, kind, failed, is_too_large, held: 0 },
            Err(error) => nothing(rows, &error.to_string()),
        }
    }

    /// Returns the results for a batch. If the expression is not a condition for the types of a message, that
    /// message fails.
    pub fn condition(&mut self, batch: &Batch) -> Condition {
        within(&self.bounds.clone(), 0, || {
            let condition = self.results(batch, false);
            if condition.failed.is_empty() || !self.depends_on_nulls(batch) {
                return condition;
            }
            set_made(0);
            self.results(batch, true)
        })
    }

    fn results(&mut self, batch: &Batch, split_nulls: bool) -> Condition {
        let rows = batch.rows();
        let expression = self.expression.clone();
        let groups = match self.groups(batch, Purpose::Condition, split_nulls) {
            Ok(Some(groups)) => groups,
            Ok(None) => {
                let compiled = self.compiled(batch, Purpose::Condition);
                let inputs = |plan: &Plan| read(plan, &compiled.seen, batch);
                return condition(&compiled.plan, inputs, rows, &expression);
            }
            Err(error) => return not_one(rows, &error.to_string()),
        };
        let (mut results, mut failed) = (vec![None; rows], Vec::new());
        for Group { rows, columns } in groups {
            let compiled = self.compiled_for(&columns, Purpose::Condition);
            let names = expression.possible_columns();
            let inputs = |plan: &Plan| gather(plan, names, &columns, &rows, batch);
            let part = condition(&compiled.plan, inputs, rows.len(), &expression);
            failed.extend(part.failed.into_iter().map(|(row, why)| (rows.value(row as usize), why)));
            for (row, value) in rows.values().iter().zip(&part.values) {
                if let Some(result) = results.get_mut(*row as usize) {
                    *result = value;
                }
            }
        }
        failed.sort_by_key(|(row, _)| *row);
        Condition { values: results.into(), failed }
    }

    /// True if messages that fail may not fail alone: `CAST(a AS BIGINT) + b` is NULL if `b` is a NULL
    /// without a type, and `a` is not even read then.
    fn depends_on_nulls(&self, batch: &Batch) -> bool {
        let columns = self.columns(batch);
        columns.len() > 1 && columns.iter().flatten().any(Present::has_nulls)
    }

    /// Returns the fields of a batch that the expression may read.
    fn columns(&self, batch: &Batch) -> Vec<Option<Present>> {
        let schema = batch.fields().schema_ref();
        let names = self.expression.possible_columns();
        names.iter().map(|name| Present::field(schema, batch, name)).collect()
    }

    /// Returns the groups of messages with the same types, or `None` if the types of the columns are those of
    /// all values. With `split_nulls`, NULLs form groups of their own in any case.
    fn groups(
        &mut self,
        batch: &Batch,
        purpose: Purpose,
        split_nulls: bool,
    ) -> Result<Option<Vec<Group>>, ArrowError> {
        let columns = self.columns(batch);
        let is_mixed = |column: &Present| column.kind != Kind::Plain;
        let split_nulls = columns.iter().flatten().any(Present::has_nulls)
            && (split_nulls
                || self.expression.chooses()
                || columns.iter().flatten().any(is_mixed)
                // Types that only NULLs have may be why the expression cannot be evaluated.
                || self.compiled(batch, purpose).plan.is_err());
        own_types::groups(&columns, batch.rows(), split_nulls)
    }

    /// Returns the plan for the types of these columns, one for each of the expression's possible columns.
    fn compiled_for(&mut self, columns: &[Option<Present>], purpose: Purpose) -> &Compiled {
        let names = self.expression.possible_columns();
        let types = names.iter().zip(columns).map(|(name, column)| match column {
            Some(column) => Some(column.column.clone()),
            None => meta_type(name),
        });
        let types: Vec<Option<ColumnType>> = types.collect();
        let at = self.find_or_compile(types, purpose);
        &self.compiled[at]
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
        let at = self.find_or_compile(types, purpose);
        let compiled = &mut self.compiled[at];
        compiled.seen = Seen::of(schema, &compiled.plan);
        at
    }

    fn find_or_compile(&mut self, types: Vec<Option<ColumnType>>, purpose: Purpose) -> usize {
        if let Some(at) = self.compiled.iter().position(|c| c.purpose == purpose && c.types == types) {
            return at;
        }
        let names = self.expression.possible_columns();
        let present: HashMap<&str, ColumnType> = names
            .iter()
            .zip(&types)
            .filter_map(|(name, found)| Some((name.as_str(), found.clone()?)))
            .collect();
        let plan = plan::plan(self.expression.sql(), &present, purpose).map_err(|error| error.to_string());
        let seen = Seen { schema: Arc::new(Schema::empty()), inputs: Vec::new() };
        self.compiled.truncate(KEPT - 1);
        self.compiled.push(Compiled { purpose, types, seen, plan });
        self.compiled.len() - 1
    }
}

impl Present {
    /// Returns the column `name` of a batch if it is a field.
    fn field(schema: &SchemaRef, batch: &Batch, name: &str) -> Option<Self> {
        let (place, field) = batch.field(name)?;
        let column = column_type(schema, name)?;
        let extension = field.metadata().get(EXTENSION).map(String::as_str);
        let kind = match (extension, field.data_type()) {
            _ if column.json && column.data_type == DataType::Utf8View => Kind::Json,
            (Some(NUMBER), DataType::Float64) => Kind::Number,
            _ => Kind::Plain,
        };
        Some(Self { values: batch.fields().column(place).clone(), column, kind })
    }

    fn has_nulls(&self) -> bool {
        self.values.logical_null_count() > 0
    }
}

impl Seen {
    fn of(schema: &SchemaRef, plan: &Result<Plan, String>) -> Self {
        let input = |name: &str| match schema.index_of(name) {
            _ if name == PAYLOAD_BYTES => Input::PayloadBytes,
            Ok(at) if !is_metadata(name) => Input::Field(at),
            _ => Input::Named(name.to_owned()),
        };
        let inputs = match plan {
            Ok(plan) => plan.schema.fields().iter().map(|field| input(field.name())).collect(),
            Err(_) => Vec::new(),
        };
        Self { schema: schema.clone(), inputs }
    }
}

/// Returns the type of the column `name` in a batch with these fields, if it has one.
pub(crate) fn column_type(schema: &Schema, name: &str) -> Option<ColumnType> {
    if let Some((_, field)) = schema.fields().find(name).filter(|_| !is_metadata(name)) {
        let data_type = field.data_type().clone();
        let text = matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
        let json = text && field.metadata().get(EXTENSION).is_some_and(|extension| extension == JSON);
        return Some(ColumnType { data_type, json, field: true });
    }
    meta_type(name)
}

/// Returns the type of a column that is not a field.
fn meta_type(name: &str) -> Option<ColumnType> {
    let data_type = match name {
        PAYLOAD | "meta.source" | "meta.path" => DataType::Utf8View,
        "meta.time" => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        "meta.position" => DataType::Int64,
        _ => return None,
    };
    Some(ColumnType { data_type, json: false, field: false })
}

pub(crate) fn not_a_condition(expression: &Expression, data_type: &DataType) -> String {
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

fn nothing(rows: usize, reason: &str) -> Evaluated {
    Evaluated {
        values: new_null_array(&DataType::Utf8View, rows),
        kind: Kind::Plain,
        failed: all_failed(rows, reason),
        is_too_large: false,
        held: 0,
    }
}

fn not_one(rows: usize, reason: &str) -> Condition {
    Condition { values: BooleanArray::new_null(rows), failed: all_failed(rows, reason) }
}

/// Runs a plan as a condition.
fn condition(
    plan: &Result<Plan, String>,
    inputs: impl FnOnce(&Plan) -> Result<RecordBatch, String>,
    rows: usize,
    expression: &Expression,
) -> Condition {
    let plan = match plan {
        Ok(plan) => plan,
        Err(reason) => return not_one(rows, reason),
    };
    let Ran { values, failed, .. } = run(plan, inputs(plan), rows, expression);
    match values.as_boolean_opt() {
        Some(values) => Condition { values: values.clone(), failed },
        // A missing column makes the result NULL; that is not an error.
        None if plan.data_type == DataType::Null => {
            Condition { values: BooleanArray::new_null(rows), failed }
        }
        None => not_one(rows, &not_a_condition(expression, &plan.data_type)),
    }
}

/// The values of a plan for some messages, as in [`Evaluated`].
struct Ran {
    values: ArrayRef,
    failed: Vec<(u32, String)>,
    is_too_large: bool,
}

/// Runs a plan over a whole batch or group. If that fails, it runs the plan over ever smaller parts to find
/// the messages that fail.
fn run(plan: &Plan, inputs: Result<RecordBatch, String>, rows: usize, expression: &Expression) -> Ran {
    let nothing = |reason: &str| {
        let failed = all_failed(rows, &format!("`{expression}` failed: {reason}."));
        Ran { values: new_null_array(&plan.data_type, rows), failed, is_too_large: false }
    };
    let inputs = match inputs {
        Ok(inputs) => inputs,
        Err(reason) => return nothing(&reason),
    };
    let held = made();
    let reason = match evaluate(plan, &inputs) {
        Ok(values) => return Ran { values, failed: Vec::new(), is_too_large: false },
        Err(reason) => reason,
    };
    if inputs.num_columns() == 0 {
        return nothing(&reason);
    }
    let mut search = Search { plan, parts: Vec::new(), held, bytes: 0, failed: Vec::new(), is_full: false };
    search.divide(&inputs, 0, reason);
    let parts: Vec<&dyn Array> = search.parts.iter().map(AsRef::as_ref).collect();
    match concat(&parts) {
        Ok(values) => {
            let sentence = |(row, reason)| (row, format!("`{expression}` failed: {reason}."));
            let failed = search.failed.into_iter().map(sentence).collect();
            Ran { values, failed, is_too_large: search.is_full }
        }
        Err(error) => nothing(&error.to_string()),
    }
}

/// Returns the columns that a plan reads, for the messages `rows`. `columns` are those of `names`, for these
/// messages.
fn gather(
    plan: &Plan,
    names: &[String],
    columns: &[Option<Present>],
    rows: &UInt32Array,
    batch: &Batch,
) -> Result<RecordBatch, String> {
    let gathered = plan.schema.fields().iter().map(|field| {
        let name = field.name();
        let found = names.iter().zip(columns).find(|(known, _)| *known == name);
        if let Some((_, Some(column))) = found {
            return Ok(column.values.clone());
        }
        let whole: Option<ArrayRef> = match name.as_str() {
            PAYLOAD_BYTES => Some(Arc::new(batch.payload().clone())),
            // A field that is NULL in this group hides the payload if it has its name.
            name if batch.field(name).is_some() => None,
            name => batch.column(name),
        };
        match whole {
            Some(whole) => take(&whole, rows, None).map_err(|error| error.to_string()),
            None => Ok(new_null_array(field.data_type(), rows.len())),
        }
    });
    record(plan, gathered.collect::<Result<_, _>>()?, rows.len())
}

fn record(plan: &Plan, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, String> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(plan.schema.clone(), columns, &options)
        .map_err(|error| error.to_string())
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
    record(plan, columns, rows)
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

/// The search for the messages for which a plan fails. If the values of a batch together are too large, the
/// last messages fail for now: the budget knows nothing of these values, and the process must not run out of
/// memory.
struct Search<'a> {
    plan: &'a Plan,
    /// The values of all rows so far, in order.
    parts: Vec<ArrayRef>,
    /// The size of the values before the search.
    held: usize,
    /// The size of the values so far.
    bytes: usize,
    failed: Vec<(u32, String)>,
    /// True if messages failed because the values so far are too large.
    is_full: bool,
}

impl Search<'_> {
    /// Searches `inputs`, which failed as a whole for `reason`. Its first row is message `first`.
    fn divide(&mut self, inputs: &RecordBatch, first: usize, reason: String) {
        let rows = inputs.num_rows();
        let is_full = self.held + self.bytes > most();
        self.is_full |= is_full;
        if rows <= 1 || is_full {
            let reason = if is_full { too_many() } else { reason };
            self.parts.push(new_null_array(&self.plan.data_type, rows));
            self.failed.extend((first..first + rows).map(|row| (row as u32, reason.clone())));
            return;
        }
        let half = rows / 2;
        for (start, length) in [(0, half), (half, rows - half)] {
            let part = inputs.slice(start, length);
            set_made(self.held + self.bytes);
            match evaluate(self.plan, &part) {
                Ok(values) => {
                    let made = made().saturating_sub(self.held + self.bytes);
                    self.bytes += values.get_buffer_memory_size().min(made);
                    self.parts.push(values);
                }
                Err(reason) => self.divide(&part, first + start, reason),
            }
        }
    }
}

#[cfg(test)]
mod tests;
