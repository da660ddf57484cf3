//! Writes messages as samples, and samples as a request.
//!
//! The part of a message is its labels, as they are in the request, its value and its time. A request has
//! each series once, with its samples in the order of their times.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;
use thalweg_codec::exposition::{is_label, is_metric};
use thalweg_codec::protobuf::write;
use thalweg_codec::template::{BoundTemplate, Template, column};
use thalweg_codec::values::Values;
use thalweg_record::Batch;
use thalweg_redact::beginning;

use crate::requests::{Encode, Encoded, Parts};

/// The label with the name of the metric.
const NAME: &str = "__name__";

/// Writes messages as samples.
pub(super) struct Samples {
    pub(super) metric: Template,
    pub(super) value: String,
    pub(super) labels: Vec<(String, Template)>,
    pub(super) labels_field: String,
    pub(super) time: String,
}

impl Encode for Samples {
    fn encode(&mut self, batch: &Batch, rows: &[usize], into: &mut Encoded) {
        let labels = self.labels.iter_mut().map(|(name, value)| (name.as_str(), value.bind(batch)));
        let mut bound = Bound {
            metric: self.metric.bind(batch),
            labels: labels.collect(),
            further: column(batch, &self.labels_field),
            value: column(batch, &self.value),
            value_name: &self.value,
            times: column(batch, &self.time),
            read_at: batch.meta().time_us / 1000,
            text: Vec::new(),
        };
        for &row in rows {
            match bound.write(row, into.buffer()) {
                Ok(()) => into.end(row),
                Err(reason) => into.reject(row, reason),
            }
        }
    }
}

/// The columns of a batch.
struct Bound<'a> {
    metric: BoundTemplate<'a>,
    labels: Vec<(&'a str, BoundTemplate<'a>)>,
    further: Values,
    value: Values,
    value_name: &'a str,
    times: Values,
    /// The time of a message without one, in milliseconds since 1970.
    read_at: i64,
    text: Vec<u8>,
}

impl Bound<'_> {
    fn write(&mut self, row: usize, out: &mut Vec<u8>) -> Result<(), String> {
        let value = self.number(row)?;
        let time = self.times.time(row).map_or(self.read_at, |time| time.timestamp_millis());
        let labels = self.labels(row)?;
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        for (name, value) in &labels {
            let mut label = Vec::with_capacity(name.len() + value.len() + 8);
            write::bytes(1, name.as_bytes(), &mut label);
            write::bytes(2, value.as_bytes(), &mut label);
            write::bytes(1, &label, out);
        }
        let length = (out.len() - start - 4) as u32;
        if let Some(place) = out.get_mut(start..start + 4) {
            place.copy_from_slice(&length.to_le_bytes());
        }
        out.extend_from_slice(&value.to_le_bytes());
        out.extend_from_slice(&time.to_le_bytes());
        Ok(())
    }

    fn number(&mut self, row: usize) -> Result<f64, String> {
        self.text.clear();
        self.value.write_text(row, &mut self.text);
        let number = std::str::from_utf8(&self.text).ok().and_then(|text| text.trim().parse().ok());
        number.ok_or_else(|| format!("the message has no number in `{}`", self.value_name))
    }

    /// Returns the labels in the order of their names.
    fn labels(&mut self, row: usize) -> Result<BTreeMap<String, String>, String> {
        let mut labels = self.further_labels(row)?;
        for (name, value) in &mut self.labels {
            self.text.clear();
            value.render(row, &mut self.text);
            labels.insert((*name).to_owned(), String::from_utf8_lossy(&self.text).into_owned());
        }
        self.text.clear();
        self.metric.render(row, &mut self.text);
        let metric = String::from_utf8_lossy(&self.text).into_owned();
        if !is_metric(&metric) {
            return Err(format!("`{}` cannot be the name of a metric", shown(&metric)));
        }
        labels.insert(NAME.to_owned(), metric);
        // An empty label is the same as none.
        labels.retain(|_, value| !value.is_empty());
        Ok(labels)
    }

    /// Returns the labels of the field that has them as a JSON object.
    fn further_labels(&mut self, row: usize) -> Result<BTreeMap<String, String>, String> {
        self.text.clear();
        self.further.write_text(row, &mut self.text);
        if self.text.is_empty() {
            return Ok(BTreeMap::new());
        }
        let members: BTreeMap<String, Value> =
            serde_json::from_slice(&self.text).map_err(|_| "the labels are no JSON object".to_owned())?;
        if let Some(name) = members.keys().find(|name| !is_label(name)) {
            return Err(format!("`{}` cannot be the name of a label", shown(name)));
        }
        let text = |value: Value| match value {
            Value::String(text) => text,
            Value::Null => String::new(),
            other => other.to_string(),
        };
        Ok(members.into_iter().map(|(name, value)| (name, text(value))).collect())
    }
}

/// Returns the beginning of a text, for reasons.
fn shown(text: &str) -> String {
    beginning(text, 100).into_owned()
}

/// Divides a part into the labels, the value and the time.
fn divided(part: &[u8]) -> Option<(&[u8], f64, i64)> {
    let (length, rest) = part.split_first_chunk::<4>()?;
    let (labels, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    let (value, rest) = rest.split_first_chunk::<8>()?;
    let (time, _) = rest.split_first_chunk::<8>()?;
    Some((labels, f64::from_le_bytes(*value), i64::from_le_bytes(*time)))
}

/// A time and a value.
type Point = (i64, f64);

/// Returns the message `WriteRequest` with these samples.
pub(super) fn request(parts: &Parts) -> Vec<u8> {
    let mut places: HashMap<&[u8], usize> = HashMap::new();
    // The times and values of each series.
    let mut all: Vec<(&[u8], Vec<Point>)> = Vec::new();
    for (labels, value, time) in parts.iter().filter_map(divided) {
        let place = *places.entry(labels).or_insert_with(|| {
            all.push((labels, Vec::new()));
            all.len() - 1
        });
        if let Some((_, samples)) = all.get_mut(place) {
            samples.push((time, value));
        }
    }
    let mut message = Vec::with_capacity(parts.bytes().len());
    let (mut series, mut sample) = (Vec::new(), Vec::new());
    for (labels, mut samples) in all {
        samples.sort_by_key(|(time, _)| *time);
        series.clear();
        series.extend_from_slice(labels);
        for (time, value) in samples {
            sample.clear();
            write::double(1, value, &mut sample);
            write::number(2, time as u64, &mut sample);
            write::bytes(2, &sample, &mut series);
        }
        write::bytes(1, &series, &mut message);
    }
    message
}
