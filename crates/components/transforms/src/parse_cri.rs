//! Parses the lines of container logs, as container runtimes write them for Kubernetes.
//!
//! A runtime cuts long lines into parts. Sources join them (`framing: { join: cri }`), because joining holds
//! back checkpoints until the last part comes. Parts that were not joined stay messages of their own here.

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::columns::{Columns, FieldType, unknown_types};
use thalweg_engine::{Component, Context, Error, KnownFields, Mistake, Transform, TransformConfig};

use crate::text_parser::{TextOptions, TextParser, TextReader};

/// Parses container logs of Kubernetes, in the format of the container runtime interface (CRI).
///
/// A line such as `2016-10-06T00:17:09.669794202Z stdout F text` has the fields `time`, `stream`, `partial`
/// and `message`. A runtime cuts long lines, mostly after 16 KiB. `partial` is true for each part but the
/// last. With `framing: { join: cri }`, the source joins the parts, and `partial` is false. A line of another
/// form leaves by the `errors` output.
///
/// Docker's `json-file` is read by `parse_json`. The format is described at
/// <https://github.com/kubernetes/design-proposals-archive/blob/main/node/kubelet-cri-logging.md>.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ParseCri {
    #[serde(flatten)]
    options: TextOptions,
}

/// The fields and their types.
const FIELDS: [(&str, FieldType); 4] = [
    ("time", FieldType::Timestamp),
    ("stream", FieldType::Text),
    ("partial", FieldType::Bool),
    ("message", FieldType::Text),
];

impl Component for ParseCri {
    const NAME: &'static str = "parse_cri";
    const EXAMPLE: &'static str = r#"
sources:
  container: { generate: { message: "2016-10-06T00:17:09.669794202Z stdout F it went well", count: 3 } }
pipelines:
  main:
    from: container
    transforms:
      - parse_cri: {}
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;

    fn check(&self) -> Vec<Mistake> {
        unknown_types(&self.options.types, FIELDS.iter().map(|(name, _)| *name)).collect()
    }
}

impl TransformConfig for ParseCri {
    fn fields(&self) -> Vec<String> {
        vec![self.options.field.clone()]
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        self.options.fields_after(before, FIELDS)
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        let columns = Columns::new(self.options.typing(FIELDS), FIELDS.map(|(name, _)| name));
        Ok(Box::new(TextParser::new(Cri, columns, &self.options.field)))
    }
}

struct Cri;

impl TextReader for Cri {
    #[inline]
    fn read(&mut self, text: &str, columns: &mut Columns) -> Result<(), String> {
        let (time, rest) = text.split_once(' ').ok_or("does not begin with a time and a space")?;
        let stream_at = time.len() + 1;
        let (stream, rest) = rest
            .split_once(' ')
            .ok_or_else(|| format!("has nothing after the stream at byte {stream_at}"))?;
        if !matches!(stream, "stdout" | "stderr") {
            return Err(format!("there is neither `stdout` nor `stderr` at byte {stream_at}"));
        }
        // More tags may follow the first, separated by colons. A runtime writes no space after the tags of an
        // empty line if spaces at the end are removed on the way.
        let (tags, message) = rest.split_once(' ').unwrap_or((rest, ""));
        let partial = match tags.split(':').next() {
            Some("P") => "true",
            Some("F") => "false",
            _ => return Err(format!("there is no tag `P` or `F` at byte {}", stream_at + stream.len() + 1)),
        };
        for (column, piece) in [time, stream, partial, message].into_iter().enumerate() {
            columns.push(column, piece)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use thalweg_engine::testing;

    #[test]
    fn it_conforms() {
        let line = "2016-10-06T00:17:09.669794202Z stdout P log content 1";
        testing::transform_conforms::<ParseCri>("{}", &[line, "", "x", line]);
    }

    #[test]
    fn lines_become_fields() {
        let given = testing::apply::<ParseCri>(
            "{}",
            [testing::batch([
                "2016-10-06T00:17:09.669794202Z stdout P log content 1",
                "2016-10-06T00:17:09.669794203Z stderr F log  content ",
                "2024-01-02T03:04:05.5+02:00 stdout F:x ",
                "2024-01-02T03:04:05Z stdout F",
            ])],
        );
        assert_eq!(
            given.main(),
            [
                json!({"time": 1_475_713_029_669_794_i64, "stream": "stdout", "partial": true, "message": "log content 1"}),
                json!({"time": 1_475_713_029_669_794_i64, "stream": "stderr", "partial": false, "message": "log  content "}),
                json!({"time": 1_704_157_445_500_000_i64, "stream": "stdout", "partial": false, "message": ""}),
                json!({"time": 1_704_164_645_000_000_i64, "stream": "stdout", "partial": false, "message": ""}),
            ]
        );
    }

    #[test]
    fn what_is_not_of_this_form_says_where() {
        let lines = [
            "",
            "2024-01-02T03:04:05Z stdout",
            "2024-01-02T03:04:05Z stdin F x",
            "x stdout F y",
            "1 stdout Q y",
        ];
        let given = testing::apply::<ParseCri>("{}", [testing::batch(lines)]);
        assert_eq!(
            given.reasons(),
            [
                "does not begin with a time and a space",
                "has nothing after the stream at byte 21",
                "there is neither `stdout` nor `stderr` at byte 21",
                "the field `time` is not a time: `x`",
                "there is no tag `P` or `F` at byte 9",
            ]
        );
        let types = testing::options::<ParseCri>("types: { log: int }").check();
        assert_eq!(testing::messages(types), ["`log` is given a type, but there is no field of that name."]);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(is_partial: bool, message in "[ -~é]{0,40}") {
            let tag = if is_partial { "P" } else { "F" };
            let line = format!("1970-01-01T00:00:01Z stderr {tag} {message}");
            let given = testing::apply::<ParseCri>("{}", [testing::batch([line])]);
            let expected = json!({"time": 1_000_000, "stream": "stderr", "partial": is_partial, "message": message});
            prop_assert_eq!(given.main(), [expected]);
        }
    }
}
