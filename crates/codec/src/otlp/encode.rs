//! Writes columns as records of requests.
//!
//! A record stands below its metric, scope and resource, which it shares with others. Records of several
//! batches may be joined in one request, so each record is written as a part that begins with them:
//! [`join`](super::join) groups parts that begin alike. The rejected alternative encodes the groups of a
//! batch at once: a request that is divided, or joined with others, would have to be taken apart again.

use std::collections::BTreeMap;

use thalweg_record::Batch;

use super::Signal;
use super::from_json::{attribute, field as json_field, identifier, scalar};
use super::plan::{Mapped, MetricKind, Plan, Target};
use super::schema::{BODY, Field, HEAD, Kind, Label, SCHEMA_URL, any};
use super::write::{begin, bits, bytes_field, bytes_if_any, end, number_field};
use crate::columns::shortened;
use crate::template::column;
use crate::values::Values;

/// Writes messages as records.
#[derive(Debug)]
pub struct Encoder {
    /// The signal of messages that have none.
    signal: Signal,
    /// The content of the resource of messages that have none.
    resource: Vec<u8>,
    /// The fields that are attributes of the record.
    attributes: Vec<String>,
}

impl Encoder {
    /// Creates an encoder. `signal` and `resource` are for messages that do not have them. `attributes` are
    /// further fields of messages that become attributes of the records.
    pub fn new(signal: Signal, resource: &BTreeMap<String, String>, attributes: Vec<String>) -> Self {
        let mut content = Vec::new();
        for (name, value) in resource {
            let start = begin(ATTRIBUTES, &mut content);
            bytes_if_any(super::schema::KEY, name.as_bytes(), &mut content);
            let inner = begin(super::schema::VALUE, &mut content);
            bytes_field(any::TEXT, value.as_bytes(), &mut content);
            end(inner, &mut content);
            end(start, &mut content);
        }
        Self { signal, resource: content, attributes }
    }

    /// Looks up the columns of a batch.
    pub fn bind<'b>(&'b self, batch: &'b Batch) -> Bound<'b> {
        let extra = self.attributes.iter().map(|name| (name.as_str(), column(batch, name)));
        Bound {
            encoder: self,
            batch,
            signal: column(batch, "signal"),
            extra: extra.collect(),
            columns: [None, None, None],
            scratch: Vec::new(),
        }
    }
}

/// The number of the attributes of a resource.
const ATTRIBUTES: u32 = 1;

/// An [`Encoder`] with the columns of a batch.
pub struct Bound<'b> {
    encoder: &'b Encoder,
    batch: &'b Batch,
    signal: Values,
    extra: Vec<(&'b str, Values)>,
    /// The columns of each signal, once they were needed.
    columns: [Option<Vec<Values>>; 3],
    scratch: Vec<u8>,
}

impl Bound<'_> {
    /// Returns the signal of a message.
    ///
    /// # Errors
    /// The reason why it has none.
    pub fn signal(&mut self, row: usize) -> Result<Signal, String> {
        if !self.signal.has_text(row) {
            return Ok(self.encoder.signal);
        }
        self.scratch.clear();
        self.signal.write_text(row, &mut self.scratch);
        let name = String::from_utf8_lossy(&self.scratch);
        Signal::named(&name)
            .ok_or_else(|| format!("`signal` is not `logs`, `metrics` or `traces`: `{}`", shortened(&name)))
    }

    /// Writes a message as a part of a request.
    ///
    /// # Errors
    /// The reason why it cannot be one. The bytes that were written then must not be used.
    pub fn write(&mut self, signal: Signal, row: usize, out: &mut Vec<u8>) -> Result<(), String> {
        let plan = Plan::of(signal);
        let batch = self.batch;
        let columns = self.columns[signal as usize].get_or_insert_with(|| {
            plan.schema.fields().iter().map(|field| column(batch, field.name())).collect()
        });
        // Other messages than those of OTLP have their text in the payload only.
        let payload: &[u8] = match self.signal.has_text(row) {
            true => &[],
            false => batch.payload().value(row),
        };
        let mut record = Row { columns, row, scratch: &mut self.scratch };
        let kind = record.metric_kind(plan)?;
        out.extend([signal as u8, kind.map_or(0, |kind| kind.number as u8)]);
        slice(out, |out| record.resource(plan, &self.encoder.resource, out))?;
        slice(out, |out| record.text(SCHEMA_URL, plan.resource_schema_url, out))?;
        slice(out, |out| record.head(&plan.scope, out))?;
        slice(out, |out| record.text(SCHEMA_URL, plan.scope_schema_url, out))?;
        if let (Some(metrics), Some(kind)) = (&plan.metrics, kind) {
            // The fields before the data of a metric, those behind it, and those behind its points.
            slice(out, |out| record.message(&metrics.metric, |number| number < DATA, out))?;
            slice(out, |out| record.message(&metrics.metric, |number| number > DATA, out))?;
            slice(out, |out| record.message(&kind.data, |_| true, out))?;
        }
        let mapped = plan.record.as_ref().or(kind.map(|kind| &kind.point));
        let Some(mapped) = mapped else { return Ok(()) };
        slice(out, |out| record.record(mapped, (signal, payload), &self.extra, out))
    }
}

/// The fields of a metric with a smaller number stand before its data, others behind it.
const DATA: u32 = 4;

/// Writes a slice with its length before it.
fn slice(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Result<(), String>) -> Result<(), String> {
    let start = out.len();
    out.extend([0; 4]);
    write(out)?;
    let length = u32::try_from(out.len() - start - 4).map_err(|_| "is larger than 4 GiB".to_owned())?;
    if let Some(place) = out.get_mut(start..start + 4) {
        place.copy_from_slice(&length.to_le_bytes());
    }
    Ok(())
}

/// The columns of a message.
struct Row<'c> {
    columns: &'c [Values],
    row: usize,
    scratch: &'c mut Vec<u8>,
}

impl Row<'_> {
    /// Returns the kind of the metric, if the message is of one.
    fn metric_kind<'p>(&mut self, plan: &'p Plan) -> Result<Option<&'p MetricKind>, String> {
        let Some(metrics) = &plan.metrics else { return Ok(None) };
        let text = self.value(metrics.kind).unwrap_or_default();
        match metrics.kinds.iter().find(|kind| kind.name == text) {
            Some(kind) => Ok(Some(kind)),
            None if text.is_empty() => Err("the message has no `type`, so it is no metric".to_owned()),
            None => Err(format!("`type` is no type of metrics: `{}`", shortened(&text))),
        }
    }

    /// Returns the text of a column.
    fn value(&mut self, column: usize) -> Option<String> {
        let values = self.columns.get(column).filter(|values| values.has_text(self.row))?;
        self.scratch.clear();
        values.write_text(self.row, self.scratch);
        Some(String::from_utf8_lossy(self.scratch).into_owned())
    }

    fn text(&mut self, number: u32, column: usize, out: &mut Vec<u8>) -> Result<(), String> {
        bytes_if_any(number, self.value(column).unwrap_or_default().as_bytes(), out);
        Ok(())
    }

    /// Writes the description of a group, if there is one.
    fn head(&mut self, mapped: &Mapped, out: &mut Vec<u8>) -> Result<(), String> {
        self.within(HEAD, out, |row, out| row.message(mapped, |_| true, out))
    }

    /// Writes a message in a field, if it has a field itself.
    fn within(
        &mut self,
        number: u32,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Self, &mut Vec<u8>) -> Result<(), String>,
    ) -> Result<(), String> {
        let before = out.len();
        let start = begin(number, out);
        write(self, out)?;
        match out.len() == start {
            true => out.truncate(before),
            false => end(start, out),
        }
        Ok(())
    }

    /// Writes the resource: that of the message, or `other` if it has no attributes.
    fn resource(&mut self, plan: &Plan, other: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        self.within(HEAD, out, |row, out| {
            let start = out.len();
            row.message(&plan.resource, |_| true, out)?;
            if out.len() == start {
                out.extend_from_slice(other);
            }
            Ok(())
        })
    }

    /// Writes those fields of a message whose numbers are wanted.
    fn message(
        &mut self,
        mapped: &Mapped,
        is_wanted: impl Fn(u32) -> bool,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        for (field, target) in mapped.message.fields.iter().zip(&mapped.targets) {
            if is_wanted(field.number) {
                self.target(field, target, out)?;
            }
        }
        Ok(())
    }

    /// Writes a record. The payload of a message without a body is the body of a log record.
    fn record(
        &mut self,
        mapped: &Mapped,
        (signal, payload): (Signal, &[u8]),
        extra: &[(&str, Values)],
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        for (field, target) in mapped.message.fields.iter().zip(&mapped.targets) {
            let start = out.len();
            self.target(field, target, out)?;
            let is_body = signal == Signal::Logs && field.number == BODY;
            if is_body && out.len() == start && !payload.is_empty() {
                let start = begin(BODY, out);
                bytes_field(any::TEXT, String::from_utf8_lossy(payload).as_bytes(), out);
                end(start, out);
            }
            if field.name == "attributes" {
                self.extra(field.number, extra, out)?;
            }
        }
        Ok(())
    }

    fn extra(&mut self, number: u32, extra: &[(&str, Values)], out: &mut Vec<u8>) -> Result<(), String> {
        for (name, values) in extra {
            if values.has_text(self.row) {
                self.scratch.clear();
                values.write_json(self.row, self.scratch);
                attribute(number, name, self.scratch, out).map_err(|error| unfit(name, &error))?;
            }
        }
        Ok(())
    }

    fn target(&mut self, field: &'static Field, target: &Target, out: &mut Vec<u8>) -> Result<(), String> {
        match target {
            Target::Skipped => Ok(()),
            Target::Nested(inner) => {
                self.within(field.number, out, |row, out| row.message(inner, |_| true, out))
            }
            Target::Column(column) => {
                let Some(values) = self.columns.get(*column) else { return Ok(()) };
                if !values.has_text(self.row) {
                    return Ok(());
                }
                self.scratch.clear();
                written(field, values, self.row, self.scratch, out)
            }
        }
    }
}

#[cold]
fn unfit(name: &str, reason: &str) -> String {
    format!("the field `{name}` cannot be sent: {reason}")
}

/// Writes the value of a column as a field.
fn written(
    field: &'static Field,
    values: &Values,
    row: usize,
    scratch: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    if field.kind == Kind::Time
        && let Some(time) = values.time(row)
    {
        let time = time.timestamp_nanos_opt().and_then(|time| u64::try_from(time).ok());
        let time = time.ok_or_else(|| unfit(field.name, "a time is between 1970 and 2262"))?;
        number_field(field, time, out);
        return Ok(());
    }
    if field.kind == Kind::Value {
        values.write_json(row, scratch);
        return json_field(field, scratch, out).map_err(|error| unfit(field.name, &error));
    }
    values.write_text(row, scratch);
    let is_json = field.label == Label::List || matches!(field.kind, Kind::Attributes | Kind::Message(_));
    if is_json {
        return json_field(field, scratch, out).map_err(|error| unfit(field.name, &error));
    }
    let text = String::from_utf8_lossy(scratch);
    match field.kind {
        Kind::Text if field.label == Label::Implicit => bytes_if_any(field.number, text.as_bytes(), out),
        Kind::Text | Kind::Bytes => bytes_field(field.number, text.as_bytes(), out),
        Kind::Id(length) => {
            let id = identifier(field, Some(length), &text).map_err(|error| unfit(field.name, &error))?;
            bytes_if_any(field.number, &id, out);
        }
        kind => {
            let bits = scalar(kind, &text).or_else(|| whole(kind, &text));
            let bits =
                bits.ok_or_else(|| unfit(field.name, &format!("its value is `{}`", shortened(&text))))?;
            number_field(field, bits, out);
        }
    }
    Ok(())
}

/// Returns the bits of an integer that is written with a point: a transform may have calculated it.
fn whole(kind: Kind, text: &str) -> Option<u64> {
    let value: f64 = text.trim_ascii().parse().ok()?;
    if value.fract() == 0.0 && value.abs() < 1e19 { bits(kind, value as i128) } else { None }
}
