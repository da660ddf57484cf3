//! From the rows of a batch to commands.

use std::collections::BTreeMap;

use arrow_array::BinaryViewArray;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::template::{BoundTemplate, Template};
use thalweg_record::Batch;

use super::RedisSink;
use crate::id::Id;
use crate::resp::Commands;

/// The command that writes a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Command {
    /// Sets the key to the value, for a time if `max_age` is given.
    Set,
    /// Sets fields of the hash: `field` to the value, or `field_values`.
    Hset,
    /// Adds the value to the beginning of the list.
    Lpush,
    /// Adds the value to the end of the list.
    Rpush,
    /// Adds the value to the set.
    Sadd,
    /// Adds the value to the sorted set, with `score`.
    Zadd,
    /// Adds an entry with `field_values` to the stream. By default the value is its field `payload`.
    Xadd,
    /// Sends the value to the present subscribers of the channel, which is the key.
    Publish,
}

impl Command {
    fn word(self) -> &'static [u8] {
        match self {
            Self::Set => b"SET",
            Self::Hset => b"HSET",
            Self::Lpush => b"LPUSH",
            Self::Rpush => b"RPUSH",
            Self::Sadd => b"SADD",
            Self::Zadd => b"ZADD",
            Self::Xadd => b"XADD",
            Self::Publish => b"PUBLISH",
        }
    }
}

/// Makes commands of rows.
pub(super) struct Rows {
    command: Command,
    key: Template,
    value: Option<Template>,
    field: Option<Template>,
    fields: BTreeMap<String, Template>,
    score: Option<Template>,
    id: Option<Template>,
    /// In milliseconds.
    max_age: Option<String>,
    max_length: Option<String>,
}

impl Rows {
    pub(super) fn new(config: &RedisSink) -> Self {
        Self {
            command: config.command,
            key: config.key.clone(),
            value: config.value.clone(),
            field: config.field.clone(),
            fields: config.field_values.clone(),
            score: config.score.clone(),
            id: config.id.clone(),
            max_age: config.max_age.map(|max_age| max_age.duration().as_millis().to_string()),
            max_length: config.max_length.map(|length| length.to_string()),
        }
    }

    /// Looks up the columns in a batch.
    pub(super) fn bind<'a>(&'a mut self, batch: &'a Batch) -> Bound<'a> {
        Bound {
            command: self.command,
            payload: batch.payload(),
            key: self.key.bind(batch),
            value: self.value.as_mut().map(|value| value.bind(batch)),
            field: self.field.as_mut().map(|field| field.bind(batch)),
            fields: self.fields.iter_mut().map(|(name, value)| (name.as_str(), value.bind(batch))).collect(),
            score: self.score.as_mut().map(|score| score.bind(batch)),
            id: self.id.as_mut().map(|id| id.bind(batch)),
            max_age: self.max_age.as_deref(),
            max_length: self.max_length.as_deref(),
        }
    }
}

/// A batch of which commands are made.
pub(super) struct Bound<'a> {
    command: Command,
    payload: &'a BinaryViewArray,
    key: BoundTemplate<'a>,
    value: Option<BoundTemplate<'a>>,
    field: Option<BoundTemplate<'a>>,
    fields: Vec<(&'a str, BoundTemplate<'a>)>,
    score: Option<BoundTemplate<'a>>,
    id: Option<BoundTemplate<'a>>,
    max_age: Option<&'a str>,
    max_length: Option<&'a str>,
}

impl Bound<'_> {
    /// Returns the key of a row.
    pub(super) fn key(&mut self, row: usize) -> Vec<u8> {
        rendered(&mut self.key, row)
    }

    /// True if the command writes to a key, which one node of a cluster has. A channel is known to all.
    pub(super) fn has_key(&self) -> bool {
        self.command != Command::Publish
    }

    /// Returns the id of the entry of a row, if the row says it.
    pub(super) fn id(&mut self, row: usize) -> Option<Id> {
        Id::read(&rendered(self.id.as_mut()?, row))
    }

    /// Adds the command of a row, or returns why there is none.
    pub(super) fn write(&mut self, row: usize, key: &[u8], commands: &mut Commands) -> Result<(), String> {
        let word = self.command.word();
        match self.command {
            Command::Lpush | Command::Rpush | Command::Sadd | Command::Publish => {
                let value = self.value(row);
                commands.push(&[word, key, &value]);
            }
            Command::Set => {
                let value = self.value(row);
                match self.max_age {
                    Some(max_age) => commands.push(&[word, key, &value, b"PX", max_age.as_bytes()]),
                    None => commands.push(&[word, key, &value]),
                }
            }
            Command::Zadd => {
                let score = self.score.as_mut().map(|score| rendered(score, row)).unwrap_or_default();
                let is_score =
                    std::str::from_utf8(&score).ok().and_then(|text| text.trim().parse::<f64>().ok());
                if is_score.is_none_or(f64::is_nan) {
                    return Err("the score of the message is no number".to_owned());
                }
                let value = self.value(row);
                commands.push(&[word, key, score.trim_ascii(), &value]);
            }
            Command::Hset => {
                let fields = self.fields(row);
                commands.begin(2 + 2 * fields.len());
                commands.word(word);
                commands.word(key);
                write_fields(&fields, commands);
            }
            Command::Xadd => self.write_entry(row, key, commands),
        }
        Ok(())
    }

    fn write_entry(&mut self, row: usize, key: &[u8], commands: &mut Commands) {
        let fields = self.fields(row);
        let id = self.id.as_mut().map(|id| rendered(id, row)).filter(|id| !id.is_empty());
        let limit = if self.max_length.is_some() { 3 } else { 0 };
        commands.begin(3 + limit + 2 * fields.len());
        commands.word(Command::Xadd.word());
        commands.word(key);
        if let Some(length) = self.max_length {
            [&b"MAXLEN"[..], b"~", length.as_bytes()].iter().for_each(|word| commands.word(word));
        }
        commands.word(id.as_deref().unwrap_or(b"*"));
        write_fields(&fields, commands);
    }

    /// Returns the value of a row: the payload, if nothing else is configured.
    fn value(&mut self, row: usize) -> Vec<u8> {
        match &mut self.value {
            Some(value) => rendered(value, row),
            None => self.payload.value(row).to_vec(),
        }
    }

    /// Returns the fields of a hash or an entry.
    fn fields(&mut self, row: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        if !self.fields.is_empty() {
            let fields = self.fields.iter_mut();
            return fields.map(|(name, value)| (name.as_bytes().to_vec(), rendered(value, row))).collect();
        }
        let name = self.field.as_mut().map_or_else(|| b"payload".to_vec(), |field| rendered(field, row));
        vec![(name, self.value(row))]
    }
}

fn rendered(template: &mut BoundTemplate<'_>, row: usize) -> Vec<u8> {
    let mut text = Vec::new();
    template.render(row, &mut text);
    text
}

fn write_fields(fields: &[(Vec<u8>, Vec<u8>)], commands: &mut Commands) {
    for (name, value) in fields {
        commands.word(name);
        commands.word(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use arrow_array::{ArrayRef, RecordBatch, StringViewArray};
    use thalweg_engine::testing::{batch, options};

    /// Returns the commands for two messages: with `k` and `n` `a` and `1`, and `b` and `x`.
    fn commands(yaml: &str) -> Vec<String> {
        let column = |values: [&str; 2]| Arc::new(StringViewArray::from_iter_values(values)) as ArrayRef;
        let fields = [("k", column(["a", "b"])), ("n", column(["1", "x"]))];
        let batch = batch(["p q", ""]).with_fields(RecordBatch::try_from_iter(fields).unwrap()).unwrap();
        let mut rows = Rows::new(&options::<RedisSink>(&format!("{{ servers: h, {yaml} }}")));
        let mut bound = rows.bind(&batch);
        let mut written = |row| -> Result<String, String> {
            let (mut commands, key) = (Commands::default(), bound.key(row));
            bound.write(row, &key, &mut commands)?;
            let text = String::from_utf8(commands.bytes().to_vec()).unwrap();
            let words: Vec<&str> = text.split("\r\n").skip(1).collect();
            Ok(words.chunks_exact(2).map(|word| word[1]).collect::<Vec<&str>>().join("|"))
        };
        [0, 1].map(|row| written(row).unwrap_or_else(|reason| reason)).to_vec()
    }

    #[test]
    fn a_command_follows_from_the_row() {
        for (yaml, expected) in [
            ("command: set, key: 'x:{k}'", ["SET|x:a|p q", "SET|x:b|"]),
            ("command: set, key: '{k}', value: '{n}', max_age: 2s", ["SET|a|1|PX|2000", "SET|b|x|PX|2000"]),
            ("command: hset, key: h, field: '{k}'", ["HSET|h|a|p q", "HSET|h|b|"]),
            (
                "command: hset, key: '{k}', field_values: { f: '{n}', g: c }",
                ["HSET|a|f|1|g|c", "HSET|b|f|x|g|c"],
            ),
            ("command: lpush, key: l", ["LPUSH|l|p q", "LPUSH|l|"]),
            ("command: rpush, key: l", ["RPUSH|l|p q", "RPUSH|l|"]),
            ("command: sadd, key: s", ["SADD|s|p q", "SADD|s|"]),
            (
                "command: zadd, key: z, score: '{n}'",
                ["ZADD|z|1|p q", "the score of the message is no number"],
            ),
            ("command: xadd, key: s", ["XADD|s|*|payload|p q", "XADD|s|*|payload|"]),
            (
                "command: xadd, key: s, id: '{n}-1', max_length: 10, field_values: { f: '{k}' }",
                ["XADD|s|MAXLEN|~|10|1-1|f|a", "XADD|s|MAXLEN|~|10|x-1|f|b"],
            ),
            ("command: publish, key: c", ["PUBLISH|c|p q", "PUBLISH|c|"]),
        ] {
            assert_eq!(commands(yaml), expected, "{yaml}");
        }
    }
}
