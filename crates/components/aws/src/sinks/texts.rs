//! Messages with a text, as queues and topics take them: up to ten in a request, and an answer for each that
//! was not taken.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::template::{BoundTemplate, Template, column};
use thalweg_engine::Mistake;
use thalweg_net::requests::{Encode, Encoded, Failure, Request, Verdict};
use thalweg_record::Batch;

use super::sending::Ids;
use crate::refusal::entry;

/// The largest number of messages in a request.
pub(super) const MOST_COUNT: usize = 10;
/// The largest number of attributes.
const MOST_ATTRIBUTES: usize = 10;

/// The parts of a message beside its text.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct TextOptions {
    /// The group of the message, for example `{customer}`. A queue or topic in order (FIFO), whose name ends
    /// with `.fifo`, keeps the order of the messages of a group, and needs this option. Columns in braces are
    /// replaced for each message.
    #[serde(default)]
    message_group: Option<Template>,
    /// The id by which a queue or topic in order recognises a message that is sent again within 5 minutes,
    /// for example `{id}`. By default, and if one of its fields is empty, messages have ids that hold for
    /// this run.
    #[serde(default)]
    deduplication_id: Option<Template>,
    /// Attributes of the message, for example `{Host: '{meta.hostname}'}`, at most 10. Columns in braces are
    /// replaced for each message. An attribute without a value is left out.
    #[serde(default)]
    attributes: BTreeMap<String, Template>,
}

impl TextOptions {
    /// Returns the mistakes that the schema cannot find, for a target that is in order or not.
    pub(super) fn check(&self, is_fifo: bool) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        if is_fifo && self.message_group.is_none() {
            let mistake = Mistake::new("message_group", "A message in order has a group.");
            mistakes
                .push(mistake.help("For example `message_group: all`, or a column such as `{customer}`."));
        }
        if !is_fifo && self.deduplication_id.is_some() {
            let message = "Only a target in order, whose name ends with `.fifo`, recognises messages.";
            mistakes.push(Mistake::new("deduplication_id", message).help("Leave it out."));
        }
        if self.deduplication_id.as_ref().is_some_and(|id| id.fields().is_empty()) {
            let message = "Of several messages with the same id, only one is kept.";
            let mistake = Mistake::new("deduplication_id", message);
            mistakes.push(mistake.help("Name a column that differs, for example `{id}`."));
        }
        if self.attributes.len() > MOST_ATTRIBUTES {
            let mistake = Mistake::new("attributes", "A message has at most 10 attributes.");
            mistakes.push(mistake.help("Put the others into the message."));
        }
        if let Some(name) = self.attributes.keys().find(|name| !is_attribute(name)) {
            let mistake = Mistake::new("attributes", format!("`{name}` is no name of an attribute."));
            mistakes.push(mistake.help(
                "It has letters, digits, and `_-.`, no period at its ends or beside another one, and begins \
                 with neither `AWS.` nor `Amazon.`.",
            ));
        }
        mistakes
    }

    /// Returns the columns that messages must have.
    pub(super) fn fields(&self) -> Vec<String> {
        let templates = self.message_group.iter().chain(&self.deduplication_id);
        templates.chain(self.attributes.values()).flat_map(Template::fields).collect()
    }

    /// Returns what writes messages. `most_bytes` is the size of the largest message, with its attributes.
    pub(super) fn texts(&self, is_fifo: bool, most_bytes: usize, ids: Ids, write: Write) -> Texts {
        Texts { options: self.clone(), subject: None, is_fifo, most_bytes, ids, first: 0, write }
    }
}

/// True if an attribute can have this name. A service refuses each message with another one.
fn is_attribute(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    (1..=256).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
        && !name.starts_with('.')
        && !name.ends_with('.')
        && !name.contains("..")
        && !["aws.", "amazon."].iter().any(|start| lower.starts_with(start))
}

/// A message with all that goes with it.
#[derive(Debug, Default)]
pub(super) struct Text<'a> {
    pub(super) text: &'a str,
    pub(super) subject: Option<String>,
    pub(super) message_group: Option<String>,
    pub(super) deduplication_id: Option<String>,
    pub(super) attributes: Vec<(&'a str, String)>,
}

impl Text<'_> {
    fn bytes(&self) -> usize {
        let attributes =
            self.attributes.iter().map(|(name, value)| name.len() + value.len() + "String".len());
        self.text.len() + attributes.sum::<usize>()
    }
}

/// Appends a message in the form of a service.
pub(super) type Write = fn(&Text<'_>, &mut Vec<u8>);

/// Writes messages in the form of a service.
pub(super) struct Texts {
    options: TextOptions,
    pub(super) subject: Option<Template>,
    is_fifo: bool,
    most_bytes: usize,
    ids: Ids,
    /// The number of the first message of the batch.
    first: u64,
    write: Write,
}

/// Returns the text of a row. None without a template, or if it is empty.
fn rendered(template: Option<&mut BoundTemplate<'_>>, row: usize) -> Option<String> {
    let mut text = Vec::new();
    template?.render(row, &mut text);
    (!text.is_empty()).then(|| String::from_utf8_lossy(&text).into_owned())
}

impl Encode for Texts {
    fn begin(&mut self, batch: &Batch) {
        self.first = self.ids.take(batch);
    }

    fn encode(&mut self, batch: &Batch, rows: &[usize], into: &mut Encoded) {
        let TextOptions { message_group, deduplication_id, attributes } = &mut self.options;
        // Messages whose ids lack a part would be equal, and all but one would be lost.
        let needed: Vec<_> =
            deduplication_id.iter().flat_map(Template::fields).map(|name| column(batch, &name)).collect();
        let is_filled = |row: usize| {
            let mut text = Vec::new();
            needed.iter().all(|values| {
                text.clear();
                values.write_text(row, &mut text);
                !text.is_empty()
            })
        };
        let mut groups = message_group.as_mut().map(|template| template.bind(batch));
        let mut ids = deduplication_id.as_mut().map(|template| template.bind(batch));
        let mut subjects = self.subject.as_mut().map(|template| template.bind(batch));
        let mut attributes: Vec<(&str, BoundTemplate<'_>)> =
            attributes.iter_mut().map(|(name, template)| (name.as_str(), template.bind(batch))).collect();
        for &row in rows {
            let Ok(text) = std::str::from_utf8(batch.payload().value(row)) else {
                let reason =
                    "the message is not UTF-8: encode it, with the transform `encode_base64` for example";
                into.reject(row, reason);
                continue;
            };
            let message_group = rendered(groups.as_mut(), row);
            let own_id = || {
                let mut id = Vec::new();
                self.ids.write(self.first + row as u64, &mut id);
                String::from_utf8_lossy(&id).into_owned()
            };
            let id = rendered(ids.as_mut(), row).filter(|_| is_filled(row));
            let values = attributes
                .iter_mut()
                .filter_map(|(name, template)| Some((*name, rendered(Some(template), row)?)));
            let message = Text {
                text,
                subject: rendered(subjects.as_mut(), row),
                deduplication_id: self.is_fifo.then(|| id.unwrap_or_else(own_id)),
                message_group,
                attributes: values.collect(),
            };
            let (size, most) = (message.bytes(), self.most_bytes);
            if text.is_empty() {
                into.reject(row, "the message is empty, which the service does not take");
            } else if self.is_fifo && message.message_group.is_none() {
                into.reject(row, "the message has no group: the fields of `message_group` are empty");
            } else if size > most {
                into.reject(row, format!("the message has {size} bytes, but at most {most} are possible"));
            } else {
                (self.write)(&message, into.buffer());
                into.end(row);
            }
        }
    }
}

/// An entry that was not taken.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Failed {
    /// The number of the message in the request.
    id: String,
    #[serde(default)]
    sender_fault: bool,
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: Option<String>,
}

/// An entry that was taken.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Successful {
    /// The number of the message in the request.
    id: String,
}

/// Returns the fate of each message of a request. One that the answer does not name is sent again.
pub(super) fn verdicts(
    request: &Request,
    count: usize,
    successful: &[Successful],
    failed: &[Failed],
) -> Vec<Verdict> {
    let text = format!("{} did not answer for the message", request.server());
    let mut verdicts = vec![Verdict::Again(Failure::temporary(text)); count];
    let place = |id: &str| id.parse::<usize>().ok().filter(|place| *place < count);
    for place in successful.iter().filter_map(|taken| place(&taken.id)) {
        verdicts[place] = Verdict::Delivered;
    }
    for Failed { id, sender_fault, code, message } in failed {
        if let Some(place) = place(id) {
            verdicts[place] = entry(request, code, message.as_deref().unwrap_or_default(), *sender_fault);
        }
    }
    verdicts
}
