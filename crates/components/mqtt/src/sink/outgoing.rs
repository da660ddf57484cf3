//! From the rows of a batch to the messages of the server.

use arrow_array::BinaryViewArray;
use thalweg_codec::template::{BoundTemplate, Template};
use thalweg_record::Batch;

use super::MqttSink;
use crate::topic::{LONGEST, TOPIC_RULE, is_text, is_topic};
use crate::wire::{Outgoing, Qos, Version, number_property, pair_property, property, text_property};

/// Makes messages of rows.
pub(super) struct Rows {
    version: Version,
    topic: Template,
    qos: Qos,
    is_retained: bool,
    /// The bytes of the properties that all messages have.
    constant: Vec<u8>,
    content_type: Option<Template>,
    response_topic: Option<Template>,
    properties: Vec<(String, Template)>,
}

impl Rows {
    pub(super) fn new(config: &MqttSink) -> Self {
        let mut constant = Vec::new();
        if let Some(age) = config.max_age {
            let seconds = u32::try_from(age.duration().as_secs()).unwrap_or(u32::MAX);
            number_property(property::MESSAGE_EXPIRY, seconds, &mut constant);
        }
        Self {
            version: config.servers.version(),
            topic: config.topic.clone(),
            qos: config.qos.0,
            is_retained: config.retain,
            constant,
            content_type: config.content_type.clone(),
            response_topic: config.response_topic.clone(),
            properties: config.properties.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        }
    }

    /// Looks up the columns in a batch.
    pub(super) fn bind<'a>(&'a mut self, batch: &'a Batch) -> Bound<'a> {
        Bound {
            version: self.version,
            payload: batch.payload(),
            qos: self.qos,
            is_retained: self.is_retained,
            constant: &self.constant,
            topic: self.topic.bind(batch),
            content_type: self.content_type.as_mut().map(|value| value.bind(batch)),
            response_topic: self.response_topic.as_mut().map(|value| value.bind(batch)),
            properties: self
                .properties
                .iter_mut()
                .map(|(name, value)| (&**name, value.bind(batch)))
                .collect(),
            rendered: Rendered::default(),
        }
    }
}

/// A batch of which messages are made.
pub(super) struct Bound<'a> {
    version: Version,
    payload: &'a BinaryViewArray,
    qos: Qos,
    is_retained: bool,
    constant: &'a [u8],
    topic: BoundTemplate<'a>,
    content_type: Option<BoundTemplate<'a>>,
    response_topic: Option<BoundTemplate<'a>>,
    properties: Vec<(&'a str, BoundTemplate<'a>)>,
    rendered: Rendered,
}

/// The texts of the last message, whose memory is used again.
#[derive(Default)]
struct Rendered {
    topic: Vec<u8>,
    text: Vec<u8>,
    properties: Vec<u8>,
}

impl Bound<'_> {
    /// Returns the message of a row, or why there is none. `most` is the size of the largest packet, in
    /// bytes.
    pub(super) fn message(&mut self, row: usize, most: usize) -> Result<Outgoing<'_>, String> {
        let Rendered { topic, text, properties } = &mut self.rendered;
        topic.clear();
        self.topic.render(row, topic);
        if !std::str::from_utf8(topic).is_ok_and(is_topic) {
            return Err(format!("the topic of the message is not {TOPIC_RULE}"));
        }
        properties.clear();
        properties.extend_from_slice(self.constant);
        if let Some(value) = &mut self.content_type {
            render("content_type", value, row, text)?;
            text_property(property::CONTENT_TYPE, text, properties);
        }
        if let Some(value) = &mut self.response_topic {
            text.clear();
            value.render(row, text);
            if !std::str::from_utf8(text).is_ok_and(is_topic) {
                return Err(format!("the `response_topic` of the message is not {TOPIC_RULE}"));
            }
            text_property(property::RESPONSE_TOPIC, text, properties);
        }
        for (name, value) in &mut self.properties {
            render(name, value, row, text)?;
            pair_property(name.as_bytes(), text, properties);
        }
        let message = Outgoing {
            topic,
            payload: self.payload.value(row),
            qos: self.qos,
            is_retained: self.is_retained,
            properties,
        };
        match message.length(self.version) {
            length if length > most => {
                Err(format!("the message has {length} bytes, more than the server takes ({most})"))
            }
            _ => Ok(message),
        }
    }
}

fn render(name: &str, value: &mut BoundTemplate<'_>, row: usize, text: &mut Vec<u8>) -> Result<(), String> {
    text.clear();
    value.render(row, text);
    if text.len() > LONGEST {
        return Err(format!("the property `{name}` of the message has more than 65,535 bytes"));
    }
    if !std::str::from_utf8(text).is_ok_and(is_text) {
        return Err(format!("the property `{name}` of the message is no UTF-8, or has a control character"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, RecordBatch, StringViewArray};
    use thalweg_engine::testing::{batch, options};

    use super::*;

    #[test]
    fn a_message_for_which_a_server_may_end_the_connection_is_not_sent() {
        let config: MqttSink = options(
            "{ servers: h, topic: 'a/{place}', response_topic: 'b/{answer}', properties: { unit: '{unit}' } }",
        );
        let column = |values: [&str; 5]| -> ArrayRef {
            Arc::new(values.into_iter().map(Some).collect::<StringViewArray>())
        };
        let columns = [
            ("place", column(["x", "a\tb", "x", "x", "x"])),
            ("answer", column(["x", "x", "#", "\u{ffff}", "x"])),
            ("unit", column(["K", "K", "K", "K", "a\nb"])),
        ];
        let batch = batch(["y"; 5]).with_fields(RecordBatch::try_from_iter(columns).unwrap()).unwrap();
        let mut rows = Rows::new(&config);
        let mut bound = rows.bind(&batch);
        let reasons: Vec<Option<String>> =
            (0..5).map(|row| bound.message(row, 1000).map(|_| ()).err()).collect();
        let answer = Some(format!("the `response_topic` of the message is not {TOPIC_RULE}"));
        let expected = [
            None,
            Some(format!("the topic of the message is not {TOPIC_RULE}")),
            answer.clone(),
            answer,
            Some("the property `unit` of the message is no UTF-8, or has a control character".to_owned()),
        ];
        assert_eq!(reasons, expected);
    }
}
