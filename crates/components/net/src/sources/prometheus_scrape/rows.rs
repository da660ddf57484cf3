//! Batches of samples, and of lines that are none.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, StringViewArray, TimestampMicrosecondArray};
use arrow_schema::Field;
use thalweg_codec::columns::FieldType;
use thalweg_codec::exposition::Sample;
use thalweg_codec::json::write_text;
use thalweg_config::ByteSize;
use thalweg_engine::{Error, Reading, Received, SourceOutput};
use thalweg_stream::whole::{self, Whole};

/// About how many bytes a row takes beside its texts.
const ROW: usize = 100;

/// Returns the fields of samples.
pub(super) fn fields() -> [Field; 4] {
    [
        FieldType::Text.field("name"),
        FieldType::Json.field("labels"),
        FieldType::Float.field("value"),
        FieldType::Timestamp.field("timestamp"),
    ]
}

/// Samples that are sent together.
pub(super) struct Rows<'a> {
    lines: Vec<&'a [u8]>,
    names: Vec<String>,
    labels: Vec<String>,
    values: Vec<f64>,
    /// In microseconds since 1970.
    times: Vec<i64>,
    bytes: usize,
    /// The labels that all samples get.
    own: &'a BTreeMap<String, String>,
    /// The time of the scrape, in milliseconds since 1970.
    at: i64,
}

impl<'a> Rows<'a> {
    pub(super) fn new(own: &'a BTreeMap<String, String>, at: i64) -> Self {
        let (lines, names, labels) = (Vec::new(), Vec::new(), Vec::new());
        Self { lines, names, labels, values: Vec::new(), times: Vec::new(), bytes: 0, own, at }
    }

    /// About the memory of the samples.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the sample of a line.
    pub(super) fn push(&mut self, line: &'a [u8], sample: &Sample<'_>) {
        let labels = labels(sample, self.own);
        self.bytes += line.len() + sample.name.len() + labels.len() + ROW;
        self.lines.push(line);
        self.names.push(sample.name.clone().into_owned());
        self.labels.push(labels);
        self.values.push(sample.value);
        self.times.push(sample.timestamp_ms.unwrap_or(self.at).saturating_mul(1000));
    }

    /// Sends the samples, if there are any.
    pub(super) async fn send(self, path: &Arc<str>, out: &mut SourceOutput) -> Result<(), Error> {
        if self.lines.is_empty() {
            return Ok(());
        }
        let columns: [ArrayRef; 4] = [
            Arc::new(self.names.iter().map(Some).collect::<StringViewArray>()),
            Arc::new(self.labels.iter().map(Some).collect::<StringViewArray>()),
            Arc::new(Float64Array::from(self.values)),
            Arc::new(TimestampMicrosecondArray::from(self.times).with_timezone("UTC")),
        ];
        let fields = whole::fields(fields().into_iter().zip(columns), self.lines.len())?;
        let reading = reading(&self.lines, path, out).await;
        out.send(Received { reading, fields }).await
    }
}

/// Lines that are no samples.
#[derive(Default)]
pub(super) struct Bad<'a> {
    lines: Vec<&'a [u8]>,
    reasons: Vec<String>,
    bytes: usize,
}

impl<'a> Bad<'a> {
    /// About the memory of the lines.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a line with the reason.
    pub(super) fn push(&mut self, line: &'a [u8], reason: String) {
        self.bytes += line.len() + reason.len() + ROW;
        self.lines.push(line);
        self.reasons.push(format!("the line {reason}"));
    }

    /// Rejects the lines, if there are any.
    pub(super) async fn send(self, path: &Arc<str>, out: &mut SourceOutput) -> Result<(), Error> {
        if self.lines.is_empty() {
            return Ok(());
        }
        let reading = reading(&self.lines, path, out).await;
        out.reject_each(reading, self.reasons).await
    }
}

async fn reading(lines: &[&[u8]], path: &Arc<str>, out: &SourceOutput) -> Reading {
    // The limit on an answer is the limit on a line.
    let whole = Whole::new(ByteSize::mib(1 << 20));
    let payload = whole.payload(lines, out).await;
    Reading { payload, path: Some(path.clone()), positions: None, checkpoint: None }
}

/// Returns the labels of a sample as a JSON object: its own and those that all samples get. If both have a
/// name, that of the sample is put behind `exported_`.
fn labels(sample: &Sample<'_>, own: &BTreeMap<String, String>) -> String {
    let owned = own.iter().map(|(name, value)| (Cow::Borrowed(name.as_str()), value.as_str()));
    let mut all: BTreeMap<Cow<'_, str>, &str> = owned.collect();
    let (taken, others): (Vec<_>, Vec<_>) =
        sample.labels.iter().partition(|(name, _)| own.contains_key(&**name));
    for (name, value) in others {
        all.insert(Cow::Borrowed(&**name), &**value);
    }
    for (name, value) in taken {
        let mut renamed = format!("exported_{name}");
        while all.contains_key(renamed.as_str()) {
            renamed.insert_str(0, "exported_");
        }
        all.insert(Cow::Owned(renamed), &**value);
    }
    let mut json = vec![b'{'];
    for (number, (name, value)) in all.iter().enumerate() {
        if number > 0 {
            json.push(b',');
        }
        write_text(name, &mut json);
        json.push(b':');
        write_text(value, &mut json);
    }
    json.push(b'}');
    String::from_utf8_lossy(&json).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_that_the_source_gives_renames_that_of_the_target() {
        let own =
            [("job", "mine"), ("instance", "h:1")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let of = |labels: &[(&'static str, &'static str)]| {
            let owned = labels.iter().map(|(name, value)| ((*name).into(), (*value).into()));
            let sample = Sample { name: "a".into(), labels: owned.collect(), value: 0.0, timestamp_ms: None };
            labels_of(&sample, &own)
        };
        assert_eq!(of(&[("b", "\"1\"")]), "{\"b\":\"\\\"1\\\"\",\"instance\":\"h:1\",\"job\":\"mine\"}");
        assert_eq!(
            of(&[("job", "x"), ("exported_job", "y")]),
            "{\"exported_exported_job\":\"x\",\"exported_job\":\"y\",\"instance\":\"h:1\",\"job\":\"mine\"}"
        );
    }

    fn labels_of(sample: &Sample<'_>, own: &[(String, String)]) -> String {
        labels(sample, &own.iter().cloned().collect())
    }
}
