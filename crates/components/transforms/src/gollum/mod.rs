//! Formatters of gollum that no other transform replaces.
//!
//! They take a text apart, change it and write it again, with details that are gollum's own. Transforms of
//! thalweg would do the same in several steps, but not with the same bytes; and a configuration that was
//! migrated must write what it wrote before. New configurations use `parse_json`, `set` and `encode`.
//!
//! Each formatter is a function from bytes to bytes, so this is one transform with a choice.

pub(crate) mod go;
mod influx;
mod places;
pub(crate) mod printf;
mod process_json;
mod process_tsv;
mod raw;
mod serialize;
#[cfg(test)]
mod tests;
mod text;
mod text_to_json;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::columns::FieldType;
use thalweg_codec::target::{Edit, Editor, Target};
use thalweg_engine::{Component, Context, Error, Mistake, Outputs, Transform, TransformConfig};
use thalweg_record::Batch;

use crate::on_error::OnError;

/// Applies a formatter of gollum, for configurations that were migrated from it.
///
/// New configurations use the other transforms: `parse_json`, `set`, `encode` and so on.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gollum {
    #[serde(flatten)]
    target: Target,
    /// The formatter, with its options.
    formatter: Formatter,
    /// How a value is treated that the formatter cannot process. `reject` (the default) sends the message to
    /// the `errors` output, as gollum 0.5 discards it; `keep` leaves it unchanged and `clear` empties it, as
    /// gollum 0.4 does.
    #[serde(default)]
    on_error: OnError,
}

/// A formatter of gollum.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Formatter {
    /// Writes collectd's JSON as points for InfluxDB.
    CollectdToInflux(influx::CollectdToInflux),
    /// Extracts one member of a JSON object as text.
    ExtractJson(text::ExtractJson),
    /// Writes members of a JSON object one after the other.
    JsonToArray(text::JsonToArray),
    /// Writes a JSON object as a point in InfluxDB's line protocol.
    JsonToInflux(influx::JsonToInflux),
    /// Changes the members of a JSON object.
    ProcessJson(process_json::ProcessJson),
    /// Changes the columns of delimited text.
    ProcessTsv(process_tsv::ProcessTsv),
    /// Writes a message with its stream, time and fields, in a form that gollum reads.
    Serialize(serialize::Serialize),
    /// Splits a text and writes the parts as a JSON object.
    SplitToJson(text::SplitToJson),
    /// Turns text into a JSON object by a state machine.
    TextToJson(text_to_json::TextToJson),
    /// Removes the text outside of two separators.
    Trim(text::Trim),
    /// Removes the text outside of two bounds.
    TrimToBounds(text::TrimToBounds),
}

impl Component for Gollum {
    const NAME: &'static str = "gollum";
    const EXAMPLE: &'static str = r#"
sources:
  service: { generate: { message: '{"host": "a", "level": "info "}', count: 3 } }
pipelines:
  main:
    from: service
    transforms:
      - gollum:
          formatter:
            process_json:
              directives:
                - { member: host, action: rename, parameters: [server] }
    to: screen
sinks:
  screen: { stdout: {} }
"#;

    fn check(&self) -> Vec<Mistake> {
        self.formatter
            .build(None)
            .err()
            .map(|message| Mistake::new("formatter", message))
            .into_iter()
            .collect()
    }
}

impl TransformConfig for Gollum {
    fn build(&self, context: &Context) -> Result<Box<dyn Transform>, Error> {
        if let Formatter::Serialize(formatter) = &self.formatter {
            return Ok(Box::new(formatter.build(&self.target)));
        }
        let editor = self.target.editor(FieldType::Text);
        let built = self.formatter.build(Some(context)).map_err(Error::permanent)?;
        Ok(Box::new(Formatting { editor, built, on_error: self.on_error }))
    }
}

/// A formatter that is ready to run.
enum Built {
    CollectdToInflux(influx::CollectdToInflux),
    ExtractJson(text::ExtractJson),
    JsonToArray(text::JsonToArray),
    JsonToInflux(Box<influx::Points>),
    ProcessJson(process_json::Processor),
    ProcessTsv(process_tsv::Table),
    Serialize,
    SplitToJson(text::SplitToJson),
    TextToJson(Box<text_to_json::Machine>),
    Trim(text::Trim),
    TrimToBounds(text::TrimToBounds),
}

impl Formatter {
    /// Prepares the formatter. Without a context, it only checks the options.
    fn build(&self, context: Option<&Context>) -> Result<Built, String> {
        Ok(match self {
            Self::CollectdToInflux(formatter) => Built::CollectdToInflux(formatter.clone()),
            Self::ExtractJson(formatter) => Built::ExtractJson(formatter.clone()),
            Self::JsonToArray(formatter) => Built::JsonToArray(formatter.clone()),
            Self::JsonToInflux(formatter) => Built::JsonToInflux(Box::new(formatter.build()?)),
            Self::ProcessJson(formatter) => Built::ProcessJson(formatter.build(context)?),
            Self::ProcessTsv(formatter) => Built::ProcessTsv(formatter.build()?),
            // It is built by itself, because it takes whole messages.
            Self::Serialize(_) => Built::Serialize,
            Self::SplitToJson(formatter) => Built::SplitToJson(formatter.clone()),
            Self::TextToJson(formatter) => Built::TextToJson(Box::new(formatter.build()?)),
            Self::Trim(formatter) => Built::Trim(formatter.clone()),
            Self::TrimToBounds(formatter) => Built::TrimToBounds(formatter.clone()),
        })
    }
}

impl Built {
    fn write(&mut self, value: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        match self {
            Self::CollectdToInflux(formatter) => formatter.write(value, out),
            Self::ExtractJson(formatter) => formatter.write(value, out),
            Self::JsonToArray(formatter) => formatter.write(value, out),
            Self::JsonToInflux(formatter) => formatter.write(value, out),
            Self::ProcessJson(formatter) => formatter.write(value, out),
            Self::ProcessTsv(formatter) => formatter.write(value, out),
            Self::Serialize => Ok(()),
            Self::SplitToJson(formatter) => {
                formatter.write(value, out);
                Ok(())
            }
            Self::TextToJson(formatter) => formatter.write(value, out),
            Self::Trim(formatter) => {
                formatter.write(value, out);
                Ok(())
            }
            Self::TrimToBounds(formatter) => {
                formatter.write(value, out);
                Ok(())
            }
        }
    }
}

struct Formatting {
    editor: Editor,
    built: Built,
    on_error: OnError,
}

impl Transform for Formatting {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let Self { editor, built, on_error } = self;
        Ok(editor.edit(batch, out, |value, written| match built.write(value, written) {
            Ok(()) => Ok(Edit::Written),
            Err(reason) => on_error.edit(value, reason),
        })?)
    }
}
