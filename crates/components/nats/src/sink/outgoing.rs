//! From the rows of a batch to the messages of the server.

use arrow_array::BinaryViewArray;
use thalweg_codec::template::{BoundTemplate, Template};
use thalweg_record::Batch;

use super::NatsSink;
use crate::options::{SUBJECT_RULE, Wildcards, is_subject};

/// The header with the id of a message, which a stream compares with those of others.
const MESSAGE_ID: &str = "Nats-Msg-Id";

/// A message to send.
#[derive(Debug, Clone)]
pub(super) struct Outgoing<'a> {
    pub(super) subject: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) payload: &'a [u8],
}

/// Makes messages of rows.
pub(super) struct Rows {
    subject: Template,
    message_id: Option<Template>,
    headers: Vec<(String, Template)>,
}

impl Rows {
    pub(super) fn new(config: &NatsSink) -> Self {
        let headers = config.headers.iter().map(|(name, value)| (name.clone(), value.clone()));
        Self {
            subject: config.subject.clone(),
            message_id: config.message_id.clone(),
            headers: headers.collect(),
        }
    }

    /// True if all messages have the same subject.
    pub(super) fn has_one_subject(&self) -> bool {
        self.subject.is_constant()
    }

    /// Looks up the columns in a batch.
    pub(super) fn bind<'a>(&'a mut self, batch: &'a Batch) -> Bound<'a> {
        Bound {
            payload: batch.payload(),
            subject: self.subject.bind(batch),
            message_id: self.message_id.as_mut().map(|id| id.bind(batch)),
            headers: self
                .headers
                .iter_mut()
                .map(|(name, value)| (name.as_str(), value.bind(batch)))
                .collect(),
        }
    }
}

/// A batch of which messages are made.
pub(super) struct Bound<'a> {
    payload: &'a BinaryViewArray,
    subject: BoundTemplate<'a>,
    message_id: Option<BoundTemplate<'a>>,
    headers: Vec<(&'a str, BoundTemplate<'a>)>,
}

impl<'a> Bound<'a> {
    /// Returns the message of a row, or why there is none. `id` is its id if the configuration has none.
    pub(super) fn message(&mut self, row: usize, id: Option<String>) -> Result<Outgoing<'a>, String> {
        let mut headers = Vec::with_capacity(self.headers.len() + 1);
        for (name, value) in &mut self.headers {
            headers.push(((*name).to_owned(), header_value(value, row, name)?));
        }
        let id = match &mut self.message_id {
            Some(template) => Some(header_value(template, row, MESSAGE_ID)?),
            None => id,
        };
        // A message without an id is not compared with others.
        if let Some(id) = id.filter(|id| !id.is_empty()) {
            headers.push((MESSAGE_ID.to_owned(), id));
        }
        Ok(Outgoing { subject: self.subject(row)?, headers, payload: self.payload.value(row) })
    }

    /// Returns the subject of a row.
    pub(super) fn subject(&mut self, row: usize) -> Result<String, String> {
        let mut text = Vec::new();
        self.subject.render(row, &mut text);
        String::from_utf8(text)
            .ok()
            .filter(|text| is_subject(text, Wildcards::Refused))
            .ok_or_else(|| format!("the subject of the message is not {SUBJECT_RULE}"))
    }
}

fn header_value(value: &mut BoundTemplate<'_>, row: usize, name: &str) -> Result<String, String> {
    let mut text = Vec::new();
    value.render(row, &mut text);
    let text = String::from_utf8(text).map_err(|_| format!("the header `{name}` is no UTF-8"))?;
    match text.contains(['\r', '\n']) {
        true => Err(format!("the header `{name}` has a line break")),
        false => Ok(text),
    }
}
