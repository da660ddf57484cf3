//! Writes times as text or numbers.

use std::sync::Arc;

use arrow_array::builder::Int64Builder;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{Array, ArrayRef, TimestampMicrosecondArray, cast::AsArray};
use arrow_schema::DataType;
use chrono::DateTime;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{Component, Context, Error, KnownFields, Mistake, Outputs, Transform, TransformConfig};
use thalweg_record::{Batch, PAYLOAD, PayloadWriter};

use thalweg_codec::columns::{FieldType, Layout, shortened};
use thalweg_codec::target::{Input, Slot, Target};
use thalweg_codec::time_text::TimeText;
use thalweg_codec::timestamps::{TimeFormat, TimeParser, parse_zone};

/// Writes times in a format.
///
/// The field holds a timestamp, a number since 1970, or a text that `parse_timestamp` reads with `auto`. For
/// texts in other forms, put `parse_timestamp` before it. A value that is not a time leaves by the `errors`
/// output.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FormatTimestamp {
    #[serde(flatten)]
    target: Target,
    /// The format: `rfc3339` (the default, `2024-01-02T03:04:05.678+00:00`), `rfc2822` (`Tue, 02 Jan 2024
    /// 03:04:05 +0000`) or `clf` (`02/Jan/2024:03:04:05 +0000`). `unix`, `unix_ms`, `unix_us` and `unix_ns`
    /// write the seconds, milliseconds, microseconds or nanoseconds since 1970; in a field, they are a whole
    /// number. Any other format is written as for `strftime`: `%d.%m.%Y %H:%M:%S`.
    #[serde(default = "rfc3339")]
    format: String,
    /// The time zone of the result, and of texts that name none: `UTC` (the default), or an offset in hours
    /// and minutes, such as `+02:00`.
    #[serde(default = "utc")]
    timezone: String,
}

fn rfc3339() -> String {
    "rfc3339".to_owned()
}

fn utc() -> String {
    "UTC".to_owned()
}

/// How a time is written.
#[derive(Debug)]
enum Form {
    Text(TimeText),
    /// A number of units: the microseconds divided by `per`, multiplied by `times`.
    Number {
        times: i64,
        per: i64,
    },
}

impl FormatTimestamp {
    fn form(&self) -> Option<Form> {
        let zone = parse_zone(&self.timezone)?;
        let text = |format: &str| Some(Form::Text(TimeText::new(format)?.in_zone(zone)));
        match self.format.as_str() {
            "rfc3339" => text("%Y-%m-%dT%H:%M:%S%.f%:z"),
            "rfc2822" => text("%a, %d %b %Y %H:%M:%S %z"),
            "clf" => text("%d/%b/%Y:%H:%M:%S %z"),
            "unix" => Some(Form::Number { times: 1, per: 1_000_000 }),
            "unix_ms" => Some(Form::Number { times: 1, per: 1_000 }),
            "unix_us" => Some(Form::Number { times: 1, per: 1 }),
            "unix_ns" => Some(Form::Number { times: 1_000, per: 1 }),
            format if format.contains('%') => text(format),
            _ => None,
        }
    }
}

impl Component for FormatTimestamp {
    const NAME: &'static str = "format_timestamp";
    const EXAMPLE: &'static str = r#"
sources:
  service: { generate: { message: 'time="2000-10-10T20:55:36Z" msg=hello', count: 3 } }
pipelines:
  main:
    from: service
    transforms:
      - parse_logfmt: {}
      - format_timestamp: { field: time, format: "%d.%m.%Y %H:%M", timezone: "+02:00" }
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;

    fn check(&self) -> Vec<Mistake> {
        if parse_zone(&self.timezone).is_none() {
            let message = format!("`{}` is not a known time zone.", self.timezone);
            let help = "Write `UTC`, or hours and minutes from it, such as `+02:00`.";
            return vec![Mistake::new("timezone", message).help(help)];
        }
        if self.form().is_none() {
            let message = format!("`{}` is not a format for times.", self.format);
            return vec![Mistake::new("format", message).help(
                "Write `rfc3339`, `rfc2822`, `clf`, `unix`, `unix_ms`, `unix_us`, `unix_ns`, or a format such as \
                 `%Y-%m-%d %H:%M:%S`.",
            )];
        }
        Vec::new()
    }
}

impl TransformConfig for FormatTimestamp {
    fn fields(&self) -> Vec<String> {
        vec![self.target.input().field]
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        before.with(self.target.output(), None)
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        let wrong = || Error::permanent(format!("`{}` is not a format for times", self.format));
        let into = self.target.output();
        Ok(Box::new(Formatter {
            form: self.form().ok_or_else(wrong)?,
            times: TimeParser::new(TimeFormat::Auto, parse_zone(&self.timezone).unwrap_or(0)),
            slot: Slot::new(into, FieldType::Text),
            numbers: (into != PAYLOAD).then(|| Layout::new(vec![Arc::new(FieldType::Int.field(into))])),
            input: self.target.input(),
        }))
    }
}

struct Formatter {
    input: Input,
    form: Form,
    times: TimeParser,
    slot: Slot,
    /// The target field of numbers; `None` if the target is the payload.
    numbers: Option<Layout>,
}

impl Formatter {
    /// Returns the column as timestamps; `None` if there is no such column.
    fn read(&mut self, batch: &Batch, failed: &mut Vec<(u32, String)>) -> Result<Option<ArrayRef>, Error> {
        let input = &self.input;
        let wanted = FieldType::Timestamp.data_type();
        let is_field =
            batch.fields().column_by_name(&input.field).is_some() || input.field.starts_with("meta.");
        if let Some(column) = batch.column(&input.field).filter(|_| is_field)
            && matches!(column.data_type(), DataType::Timestamp(..) | DataType::Date32 | DataType::Date64)
        {
            return Ok(Some(arrow_cast::cast(&column, &wanted)?));
        }
        let Some(column) = input.read(batch) else { return Ok(None) };
        let mut times = Vec::with_capacity(column.len());
        for row in 0..column.len() {
            let value = column.is_valid(row).then(|| column.value(row));
            let text = value.map(std::str::from_utf8);
            let time = text.and_then(Result::ok).and_then(|text| self.times.parse(text.trim_ascii()));
            if let (Some(value), None) = (value, time) {
                let text = String::from_utf8_lossy(value);
                failed.push((row as u32, format!("`{}` is not a time: `{}`", input.field, shortened(&text))));
            }
            times.push(time);
        }
        Ok(Some(Arc::new(TimestampMicrosecondArray::from(times).with_timezone("UTC"))))
    }
}

impl Transform for Formatter {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let mut failed = Vec::new();
        let Some(times) = self.read(&batch, &mut failed)? else {
            out.send(batch);
            return Ok(());
        };
        let times = times.as_primitive::<TimestampMicrosecondType>();
        let number = |micros: i64, times: i64, per: i64| micros.div_euclid(per).saturating_mul(times);
        if let (Form::Number { times: factor, per }, Some(layout)) = (&self.form, &mut self.numbers) {
            let mut numbers = Int64Builder::with_capacity(times.len());
            times.iter().for_each(|time| numbers.append_option(time.map(|time| number(time, *factor, *per))));
            return Ok(layout.give(batch, vec![Arc::new(numbers.finish())], failed, out)?);
        }
        let mut written = PayloadWriter::with_capacity(times.len() * 32, times.len());
        for micros in times {
            match (&mut self.form, micros) {
                (_, None) => {}
                (Form::Number { times, per }, Some(micros)) => {
                    let text = itoa::Buffer::new().format(number(micros, *times, *per)).to_owned();
                    written.buffer().extend_from_slice(text.as_bytes());
                }
                (Form::Text(text), Some(micros)) => {
                    let text = DateTime::from_timestamp_micros(micros).map_or("", |time| text.of(time));
                    written.buffer().extend_from_slice(text.as_bytes());
                }
            }
            written.end();
        }
        let written = written.finish();
        let (views, buffers, _) = written.into_parts();
        let written = arrow_array::BinaryViewArray::try_new(views, buffers, times.nulls().cloned())?;
        Ok(self.slot.put(batch, written, failed, out)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use thalweg_engine::{Output, testing};

    use crate::parse_timestamp::ParseTimestamp;
    use crate::testing::with_text;

    #[test]
    fn it_conforms() {
        for yaml in ["{}", "format: unix", "{format: unix, into: a}", "{field: meta.time, into: a}"] {
            testing::transform_conforms::<FormatTimestamp>(yaml, &["0", "", "x", "2000-10-10T20:55:36Z"]);
        }
    }

    #[test]
    fn times_are_written_in_any_form() {
        let texts = [Some("2000-10-10T20:55:36.250Z"), None, Some("soon"), Some("971211336")];
        let batch = || with_text(&["a", "b", "c", "d"], &[("time", &texts)]);
        let given = |yaml: &str| {
            let given = testing::apply::<FormatTimestamp>(&format!("{{field: time, {yaml}}}"), [batch()]);
            assert_eq!(given.errors(), [("c".to_owned(), "`time` is not a time: `soon`".to_owned())]);
            let rows = given.main();
            assert_eq!(rows[1], json!({}));
            [rows[0]["time"].clone(), rows[2]["time"].clone()]
        };
        assert_eq!(given("into: time"), ["2000-10-10T20:55:36.250+00:00", "2000-10-10T20:55:36+00:00"]);
        assert_eq!(given("format: '%d.%m.%Y %H:%M %Z'")[0], "10.10.2000 20:55 UTC");
        assert_eq!(given("format: clf, timezone: '-07:00'")[0], "10/Oct/2000:13:55:36 -0700");
        assert_eq!(given("format: rfc2822")[0], "Tue, 10 Oct 2000 20:55:36 +0000");
        assert_eq!(given("format: unix"), [971_211_336_i64, 971_211_336]);
        assert_eq!(given("format: unix_ns")[0], 971_211_336_250_000_000_i64);
    }

    #[test]
    fn a_point_in_time_and_the_payload_do_as_well() {
        let parsed =
            testing::apply::<ParseTimestamp>("{field: payload, into: t}", [testing::batch(["0", "86400"])]);
        let batch = parsed.outputs.into_values().flatten().next().unwrap();
        let given =
            testing::apply::<FormatTimestamp>("{field: t, into: payload, format: '%F'}", [batch.share()]);
        assert_eq!(given.payloads(Output::Main), ["1970-01-01", "1970-01-02"]);
        let given = testing::apply::<FormatTimestamp>("{field: t, into: payload, format: unix_ms}", [batch]);
        assert_eq!(given.payloads(Output::Main), ["0", "86400000"]);
        let given = testing::apply::<FormatTimestamp>(
            "{field: meta.time, into: y, format: '%Y'}",
            [testing::batch(["a"])],
        );
        assert_eq!(given.main(), [json!({"y": "2023"})]);
    }

    #[test]
    fn mistakes() {
        let mistakes = |yaml: &str| testing::options::<FormatTimestamp>(yaml).check()[0].message.clone();
        assert_eq!(mistakes("format: iso"), "`iso` is not a format for times.");
        assert_eq!(mistakes("format: '%!'"), "`%!` is not a format for times.");
        assert_eq!(mistakes("timezone: Paris"), "`Paris` is not a known time zone.");
    }
}
