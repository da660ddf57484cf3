//! Parses times.
//!
//! A timestamp is stored in microseconds since 1970 in UTC, whatever time zone its text has, so times of
//! different sources are comparable. Neighbouring messages of a log often have the same second, so the last
//! text is cached.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, builder::TimestampMicrosecondBuilder};
use arrow_schema::DataType;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{Component, Context, Error, KnownFields, Mistake, Outputs, Transform, TransformConfig};
use thalweg_record::Batch;

use thalweg_codec::columns::{FieldType, Layout, shortened};
use thalweg_codec::keys::bytes_of;
use thalweg_codec::timestamps::{TimeFormat, TimeParser, parse_zone};

/// Parses times from text.
///
/// The result is a timestamp in microseconds. A text that does not have the format leaves by the `errors`
/// output. A message without the field gets NULL.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ParseTimestamp {
    /// The field that holds the text. The default is `time`.
    field: String,
    /// The format of the text: `rfc3339` (`2024-01-02T03:04:05.678Z`, also with a space instead of the `T`),
    /// `rfc2822` (`Tue, 02 Jan 2024 03:04:05 +0000`) or `clf` (`02/Jan/2024:03:04:05 +0000`). `unix`,
    /// `unix_ms`, `unix_us` and `unix_ns` are numbers of seconds, milliseconds, microseconds or nanoseconds
    /// since 1970. Any other format is written as for `strftime`: `%d.%m.%Y %H:%M:%S`. A format without a
    /// year means the latest such time in the past.
    ///
    /// `auto` (the default) accepts any of the named formats. The unit of a number follows from its size: up
    /// to 11 digits are seconds, up to 14 milliseconds, up to 17 microseconds, and more are nanoseconds.
    format: String,
    /// The time zone of texts that name none: `UTC` (the default), or an offset in hours and minutes, such as
    /// `+02:00`.
    timezone: String,
    /// The field that receives the timestamp. The default is `field`, whose text it replaces.
    into: Option<String>,
}

impl Default for ParseTimestamp {
    fn default() -> Self {
        Self { field: "time".to_owned(), format: "auto".to_owned(), timezone: "UTC".to_owned(), into: None }
    }
}

impl Component for ParseTimestamp {
    const NAME: &'static str = "parse_timestamp";
    const EXAMPLE: &'static str = r#"
sources:
  service: { generate: { message: 'time="10/Oct/2000:13:55:36 -0700" msg=hello', count: 3 } }
pipelines:
  main:
    from: service
    transforms:
      - parse_logfmt: {}
      - parse_timestamp: { field: time, format: clf }
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        if let Err(message) = TimeFormat::parse(&self.format) {
            mistakes.push(Mistake::new("format", message).help(
                "Write `auto`, `rfc3339`, `rfc2822`, `clf`, `unix`, `unix_ms`, `unix_us`, `unix_ns`, or a format \
                 such as `%Y-%m-%d %H:%M:%S`.",
            ));
        }
        if parse_zone(&self.timezone).is_none() {
            let message = format!("`{}` is not a known time zone.", self.timezone);
            let help = "Write `UTC`, or hours and minutes from it, such as `+02:00`.";
            mistakes.push(Mistake::new("timezone", message).help(help));
        }
        mistakes
    }
}

impl TransformConfig for ParseTimestamp {
    fn fields(&self) -> Vec<String> {
        vec![self.field.clone()]
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        before.with(self.into.as_deref().unwrap_or(&self.field), None)
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        let format = TimeFormat::parse(&self.format).map_err(Error::permanent)?;
        let zone = parse_zone(&self.timezone).unwrap_or(0);
        let into = self.into.as_deref().unwrap_or(&self.field);
        Ok(Box::new(Parser {
            field: self.field.clone(),
            format: self.format.clone(),
            layout: Layout::new(vec![Arc::new(FieldType::Timestamp.field(into))]),
            times: TimeParser::new(format, zone),
        }))
    }
}

struct Parser {
    field: String,
    format: String,
    layout: Layout,
    times: TimeParser,
}

impl Parser {
    fn column(&mut self, batch: &Batch, failed: &mut Vec<(u32, String)>) -> Result<ArrayRef, Error> {
        if let Some(column) = batch.column(&self.field)
            && matches!(column.data_type(), DataType::Timestamp(_, _) | DataType::Date32 | DataType::Date64)
        {
            return Ok(arrow_cast::cast(&column, &FieldType::Timestamp.data_type())?);
        }
        let mut builder = TimestampMicrosecondBuilder::with_capacity(batch.rows()).with_timezone("UTC");
        let input = bytes_of(batch, &self.field);
        for row in 0..batch.rows() {
            let Some(value) =
                input.as_ref().filter(|input| input.is_valid(row)).map(|input| input.value(row))
            else {
                builder.append_null();
                continue;
            };
            let time = std::str::from_utf8(value).ok().and_then(|text| self.times.parse(text.trim_ascii()));
            if time.is_none() {
                let text = String::from_utf8_lossy(value);
                let reason = format!(
                    "the field `{}` is not a time in the format `{}`: `{}`",
                    self.field,
                    self.format,
                    shortened(&text)
                );
                failed.push((row as u32, reason));
            }
            builder.append_option(time);
        }
        Ok(Arc::new(builder.finish()))
    }
}

impl Transform for Parser {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let mut failed = Vec::new();
        let column = self.column(&batch, &mut failed)?;
        Ok(self.layout.give(batch, vec![column], failed, out)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use thalweg_engine::testing;

    use crate::testing::with_text;

    #[test]
    fn it_conforms() {
        testing::transform_conforms::<ParseTimestamp>("field: payload\ninto: time", &["0", "", "x", "1"]);
        testing::transform_conforms::<ParseTimestamp>("{}", &["0", ""]);
    }

    #[test]
    fn times_are_read_misfits_rejected_and_what_is_absent_stays_so() {
        let batch = || {
            let times =
                [Some("10/Oct/2000:13:55:36 -0700"), Some("10/Oct/2000:13:55:36 -0700"), None, Some("soon")];
            with_text(&["a", "b", "c", "d"], &[("time", &times)])
        };
        let given = testing::apply::<ParseTimestamp>("format: clf", [batch()]);
        let time = 971_211_336_000_000_i64;
        assert_eq!(given.main(), [json!({"time": time}), json!({"time": time}), json!({})]);
        assert_eq!(
            given.errors(),
            [("d".to_owned(), "the field `time` is not a time in the format `clf`: `soon`".to_owned())]
        );
        let given = testing::apply::<ParseTimestamp>("{into: at, field: nothing}", [batch()]);
        assert!(given.errors().is_empty());
    }

    #[test]
    fn a_time_that_is_read_already_stays() {
        let batch = with_text(&["a"], &[("time", &[Some("1970-01-01 02:00")])]);
        let once = testing::apply::<ParseTimestamp>("timezone: '+02:00'", [batch]);
        let batch = once.outputs.into_values().flatten().next().unwrap();
        let twice = testing::apply::<ParseTimestamp>("into: at", [batch]);
        assert_eq!(twice.main(), [json!({"time": 0, "at": 0})]);
    }

    #[test]
    fn bytes_that_are_not_utf8_are_no_time() {
        let given = testing::apply::<ParseTimestamp>("field: payload", [testing::batch([&b"\xff"[..], b""])]);
        assert_eq!(
            given.reasons(),
            [
                "the field `payload` is not a time in the format `auto`: `�`",
                "the field `payload` is not a time in the format `auto`: ``",
            ]
        );
    }

    #[test]
    fn unknown_formats_and_zones_are_mistakes() {
        let mistakes = testing::options::<ParseTimestamp>("{format: '%Q', timezone: Europe/Paris}").check();
        assert_eq!(mistakes[0].message, "`%Q` has a `%` that `strftime` does not know.");
        assert_eq!(mistakes[1].message, "`Europe/Paris` is not a known time zone.");
    }
}
