//! Looks messages up in a table, a batch at a time.

use std::sync::{Arc, Weak};

use arrow_array::{Array, ArrayRef, BinaryViewArray, BooleanArray, UInt32Array};
use arrow_schema::{DataType, FieldRef};
use thalweg_codec::columns::{Layout, shortened};
use thalweg_codec::keys::bytes_of;
use thalweg_engine::{Error, Outputs, Transform};
use thalweg_record::{Batch, Outcome};

use super::comparable;
use super::on::Keys;
use super::table::Table;
use super::watched::Watched;
use super::{OnFound, OnMissing};

/// The instance of one worker.
pub(super) struct Joiner {
    watched: Arc<Watched>,
    /// The table of the last batch. A worker without messages must not keep a former table in memory.
    last: Weak<Table>,
    /// The fields of that table.
    layout: Layout,
    keys: Keys,
    /// The path of the table, for reasons.
    path: String,
    on_found: OnFound,
    on_missing: OnMissing,
}

impl Joiner {
    pub(super) fn new(
        watched: Arc<Watched>,
        keys: Keys,
        path: String,
        on_found: OnFound,
        on_missing: OnMissing,
    ) -> Self {
        Self { watched, last: Weak::new(), layout: Layout::default(), keys, path, on_found, on_missing }
    }

    /// Returns the present table, which serves a whole batch.
    fn table(&mut self) -> Arc<Table> {
        let table = self.watched.table();
        if self.last.as_ptr() != Arc::as_ptr(&table) {
            self.layout = Layout::new(table.fields().to_vec());
            self.last = Arc::downgrade(&table);
        }
        table
    }

    /// Returns the row of each message, and the messages to reject.
    fn find(&self, table: &Table, batch: &Batch) -> (Vec<Option<u32>>, Vec<(u32, String)>) {
        let keys = self.keys.equal.iter().map(|(field, _)| comparable::of_messages(batch, field));
        let keys: Option<Vec<BinaryViewArray>> = keys.collect();
        let within = self.keys.within.as_ref().zip(table.kind());
        let points = within.map(|((field, _), kind)| kind.of_messages(batch, field));
        let taken = self.taken(table, batch);
        let mut texts = None;
        let (mut rows, mut failed) = (Vec::with_capacity(batch.rows()), Vec::new());
        for message in 0..batch.rows() {
            let point = points.as_ref().and_then(|points| points.get(message));
            let row = match (&keys, point) {
                (_, Some(Err(reason))) => {
                    failed.push((message as u32, reason.clone()));
                    rows.push(None);
                    continue;
                }
                (Some(keys), Some(Ok(point))) => table.find(keys, message, *point),
                (Some(keys), None) => table.find(keys, message, None),
                (None, _) => None,
            };
            rows.push(row);
            let leaves_with_columns = row.is_some() || self.on_missing == OnMissing::Keep;
            if row.is_none() && self.on_missing == OnMissing::Error {
                let texts = texts.get_or_insert_with(|| self.texts(batch));
                failed.push((message as u32, self.reason(texts, message)));
            } else if leaves_with_columns
                && let Some((name, _)) = taken.iter().find(|(_, column)| column.is_valid(message))
            {
                failed.push((message as u32, format!("the field `{name}` exists already")));
            }
        }
        (rows, failed)
    }

    /// Returns the fields of messages that columns of the table would replace.
    fn taken<'b>(&self, table: &'b Table, batch: &'b Batch) -> Vec<(&'b str, &'b ArrayRef)> {
        let fields: &'b [FieldRef] = match self.on_found {
            OnFound::Add => table.fields(),
            OnFound::Drop => &[],
        };
        let present = |name: &'b str| {
            let (place, _) = batch.field(name)?;
            let column = batch.fields().column(place);
            let has_values = column.data_type() != &DataType::Null && column.null_count() < column.len();
            has_values.then_some((name, column))
        };
        fields.iter().filter_map(|field| present(field.name().as_str())).collect()
    }

    /// Returns the values that are looked up, for reasons.
    fn texts(&self, batch: &Batch) -> Vec<Option<BinaryViewArray>> {
        self.keys.fields().map(|field| bytes_of(batch, field)).collect()
    }

    /// Returns the reason for rejecting a message that has no row.
    fn reason(&self, texts: &[Option<BinaryViewArray>], message: usize) -> String {
        let value = |(field, column): (&str, &Option<BinaryViewArray>)| {
            let column = column.as_ref().filter(|column| column.is_valid(message))?;
            let text = String::from_utf8_lossy(column.value(message));
            Some(format!("`{field}` = `{}`", shortened(&text)))
        };
        let values: Option<Vec<String>> = self.keys.fields().zip(texts).map(value).collect();
        match values {
            Some(values) => format!("the table `{}` has no row for {}", self.path, values.join(" and ")),
            None => {
                let fields: Vec<String> = self.keys.fields().map(|field| format!("`{field}`")).collect();
                format!("there is no {} to look up in `{}`", fields.join(" and "), self.path)
            }
        }
    }

    /// Sends messages with the columns of their rows.
    fn add(
        &mut self,
        table: &Table,
        batch: Batch,
        rows: UInt32Array,
        out: &mut Outputs,
    ) -> Result<(), Error> {
        if table.fields().is_empty() {
            out.send(batch);
            return Ok(());
        }
        let columns = table.taken(&rows)?;
        out.send(self.layout.extend(batch, columns)?);
        Ok(())
    }
}

impl Transform for Joiner {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let table = self.table();
        let (mut rows, failed) = self.find(&table, &batch);
        let batch = if failed.is_empty() {
            batch
        } else {
            let mut others = failed.iter().map(|(message, _)| *message).peekable();
            let mut message = 0_u32..;
            rows.retain(|_| others.next_if_eq(&message.next().unwrap_or_default()).is_none());
            let Some(rest) = out.reject(batch, failed)? else { return Ok(()) };
            rest
        };
        if self.on_found == OnFound::Add && matches!(self.on_missing, OnMissing::Keep | OnMissing::Error) {
            return self.add(&table, batch, rows.into_iter().collect(), out);
        }
        let is_found: BooleanArray = rows.iter().map(|row| Some(row.is_some())).collect();
        let (found, missing) = batch.partition(&is_found)?;
        match (missing, self.on_missing) {
            (Some(missing), OnMissing::Keep) => out.send(missing),
            (Some(missing), OnMissing::Route) => out.send_to(0, missing),
            (Some(missing), OnMissing::Drop | OnMissing::Error) => missing.settle(Outcome::Filtered),
            (None, _) => {}
        }
        match (found, self.on_found) {
            (Some(found), OnFound::Add) => self.add(&table, found, rows.into_iter().flatten().collect(), out),
            (Some(found), OnFound::Drop) => {
                found.settle(Outcome::Filtered);
                Ok(())
            }
            (None, _) => Ok(()),
        }
    }
}
