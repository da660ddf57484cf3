//! From the rows of a batch to the messages of the server.

use std::fmt::Display;
use std::str::FromStr;

use arrow_array::BinaryViewArray;
use async_nats::{HeaderMap, HeaderName, HeaderValue, Subject, header};
use bytes::Bytes;
use thalweg_codec::template::{BoundTemplate, Template};
use thalweg_record::Batch;

use super::NatsSink;
use crate::options::{SUBJECT_RULE, Wildcards, is_subject};

/// A message to send.
#[derive(Debug, Clone)]
pub(super) struct Outgoing {
    pub(super) subject: Subject,
    pub(super) headers: HeaderMap,
    pub(super) payload: Bytes,
}

/// Makes messages of rows.
pub(super) struct Rows {
    subject: Template,
    message_id: Option<Template>,
    headers: Vec<(HeaderName, Template)>,
}

impl Rows {
    pub(super) fn new(config: &NatsSink) -> Self {
        let headers = config.headers.iter().filter_map(|(name, value)| {
            // Other names are mistakes of the configuration.
            Some((HeaderName::from_str(name).ok()?, value.clone()))
        });
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
            headers: self.headers.iter_mut().map(|(name, value)| (&*name, value.bind(batch))).collect(),
        }
    }
}

/// A batch of which messages are made.
pub(super) struct Bound<'a> {
    payload: &'a BinaryViewArray,
    subject: BoundTemplate<'a>,
    message_id: Option<BoundTemplate<'a>>,
    headers: Vec<(&'a HeaderName, BoundTemplate<'a>)>,
}

impl Bound<'_> {
    /// Returns the message of a row, or why there is none. `id` is its id if the configuration has none.
    pub(super) fn message(&mut self, row: usize, id: Option<String>) -> Result<Outgoing, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in &mut self.headers {
            headers.insert((*name).clone(), header_value(value, row, *name)?);
        }
        let id = match &mut self.message_id {
            Some(template) => Some(header_value(template, row, header::NATS_MESSAGE_ID)?),
            None => id.map(HeaderValue::from),
        };
        // A message without an id is not compared with others.
        if let Some(id) = id.filter(|id| !id.as_str().is_empty()) {
            headers.insert(header::NATS_MESSAGE_ID, id);
        }
        let payload = Bytes::copy_from_slice(self.payload.value(row));
        Ok(Outgoing { subject: self.subject(row)?, headers, payload })
    }

    /// Returns the subject of a row.
    pub(super) fn subject(&mut self, row: usize) -> Result<Subject, String> {
        let mut text = Vec::new();
        self.subject.render(row, &mut text);
        String::from_utf8(text)
            .ok()
            .filter(|text| is_subject(text, Wildcards::Refused))
            .map(Subject::from)
            .ok_or_else(|| format!("the subject of the message is not {SUBJECT_RULE}"))
    }
}

fn header_value(
    value: &mut BoundTemplate<'_>,
    row: usize,
    name: impl Display,
) -> Result<HeaderValue, String> {
    let mut text = Vec::new();
    value.render(row, &mut text);
    let text = String::from_utf8(text).map_err(|_| format!("the header `{name}` is no UTF-8"))?;
    HeaderValue::from_str(&text).map_err(|_| format!("the header `{name}` has a line break"))
}
