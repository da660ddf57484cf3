//! Parses syslog messages that came by another way than the source `syslog`: from files, queues or HTTP.
//!
//! [`thalweg_codec::syslog`] parses them, as for that source.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::{Array, ArrayRef};
use chrono::Utc;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::columns::{FieldType, Layout, missing, reject_all};
use thalweg_codec::keys::bytes_of;
use thalweg_codec::syslog::{SyslogColumns, SyslogOptions};
use thalweg_engine::{Component, Context, Error, KnownFields, Outputs, Transform, TransformConfig};
use thalweg_record::{Batch, TextBuilder};
use thalweg_stream::pieces::Pieces;

/// Parses syslog messages: RFC 5424, or the older RFC 3164 in its common variants.
///
/// The parts of a message become fields: `hostname`, `appname`, `procid`, `msgid`, `version`, `priority` (a
/// number), `facility` and `severity` (names), `timestamp`, `message` (the text), and structured data as
/// `sd.ID.KEY`, or in `sd` if there is too much of it (`max_fields`). Parts that a message does not have are
/// NULL. A malformed element of structured data stays at the beginning of the text, with all that follows.
/// Times without a time zone are UTC. Times without a year are placed within the last twelve months. A
/// message of another form leaves by the `errors` output.
///
/// The source `syslog` receives and parses messages in one step. The formats are described at
/// <https://www.rfc-editor.org/rfc/rfc5424> and <https://www.rfc-editor.org/rfc/rfc3164>.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ParseSyslog {
    #[serde(flatten)]
    options: SyslogOptions,
    /// The field to parse. The default is the payload.
    #[serde(default = "crate::payload")]
    field: String,
}

impl Component for ParseSyslog {
    const NAME: &'static str = "parse_syslog";
    const EXAMPLE: &'static str = r#"
sources:
  log:
    generate:
      message: '<165>1 2003-10-11T22:14:15.003Z example.com evntslog 123 ID47 [origin ip="10.0.0.7"] An event'
      count: 3
pipelines:
  main:
    from: log
    transforms:
      - parse_syslog: {}
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;
}

impl TransformConfig for ParseSyslog {
    fn fields(&self) -> Vec<String> {
        vec![self.field.clone()]
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        before.with_others()
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        Ok(Box::new(Parser {
            options: self.options.clone(),
            field: self.field.clone(),
            layout: Layout::default(),
            names: Vec::new(),
            // Each row counts as one, so a piece has at most this number of rows.
            pieces: Pieces::new(self.options.most_rows()),
        }))
    }
}

struct Parser {
    options: SyslogOptions,
    field: String,
    /// The place of the fields of the last messages, which mostly have the same.
    layout: Layout,
    names: Vec<String>,
    /// The messages that are not parsed yet: with structured data, columns can take far more memory than the
    /// text.
    pieces: Pieces,
}

impl Parser {
    /// Parses a batch of at most `most_rows` messages.
    fn parse(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let Some(input) = bytes_of(&batch, &self.field) else {
            return Ok(reject_all(batch, &missing(&self.field), out)?);
        };
        let buffers = input.data_buffers();
        let mut columns = SyslogColumns::over(buffers, input.len(), &self.options);
        let mut texts = TextBuilder::over(buffers, input.len());
        let mut failed = Vec::new();
        let now = Utc::now();
        for row in 0..input.len() {
            let value = if input.is_null(row) { Err(missing(&self.field)) } else { Ok(input.value(row)) };
            let parsed = value.and_then(|value| {
                let parsed = self.options.parse(value, now).map_err(str::to_owned)?;
                let text = std::str::from_utf8(parsed.text).map_err(|_| thalweg_codec::not_utf8(value))?;
                Ok((parsed, text))
            });
            match &parsed {
                Ok((parsed, text)) => {
                    columns.push(parsed);
                    texts.push(text);
                }
                Err(_) => {
                    columns.push_null();
                    texts.push_null();
                }
            }
            failed.extend(parsed.err().map(|reason| (row as u32, reason)));
        }
        let fields = columns.finish(&self.options)?;
        let schema = fields.schema();
        if !schema.fields().iter().map(|field| field.name()).eq(&self.names) {
            self.names = schema.fields().iter().map(|field| field.name().clone()).collect();
            let message = FieldType::Text.field(&format!("{}message", self.options.prefix));
            let all = schema.fields().iter().cloned().chain([Arc::new(message)]);
            self.layout = Layout::new(all.collect());
        }
        let mut columns = fields.columns().to_vec();
        columns.push(Arc::new(texts.finish()) as ArrayRef);
        Ok(self.layout.give(batch, columns, failed, out)?)
    }
}

impl Transform for Parser {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        self.pieces.push(batch);
        self.resume(out)
    }

    fn resume(&mut self, out: &mut Outputs) -> Result<(), Error> {
        if let Some(batch) = self.pieces.take() {
            self.pieces.cut(batch, 1);
        }
        if let Some(piece) = self.pieces.next_piece() {
            self.parse(piece, out)?;
        }
        if !self.pieces.is_empty() {
            out.hold(Duration::ZERO);
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

    use crate::testing::{no_line_is_lost, written};

    fn parsed(yaml: &str, lines: &[&str]) -> testing::Given {
        testing::apply::<ParseSyslog>(yaml, [testing::batch(lines)])
    }

    #[test]
    fn it_conforms() {
        let lines = [
            "<34>1 - h a p m - x",
            "",
            "<34>",
            "x",
            "<34>Oct 11 22:14:15 h a: x",
            "<1>1 - - - - - [a b=\"c\"]",
        ];
        testing::transform_conforms::<ParseSyslog>("{}", &lines);
        testing::transform_conforms::<ParseSyslog>(
            "{ prefix: s., structured_data: key, codes: true }",
            &lines,
        );
    }

    /// The examples of section 6.5 of RFC 5424.
    #[test]
    fn the_parts_of_a_message_are_fields() {
        let given = parsed(
            "{}",
            &[
                "<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 - \u{feff}'su root' failed for lonvick on /dev/pts/8",
                "<165>1 2003-08-24T05:14:15.000003-07:00 192.0.2.1 myproc 8710 - - %% It's time to make the do-nuts.",
                "<165>1 2003-10-11T22:14:15.003Z mymachine.example.com evntslog - ID47 [exampleSDID@32473 iut=\"3\" eventSource=\"Application\" eventID=\"1011\"][examplePriority@32473 class=\"high\"]",
            ],
        );
        assert_eq!(given.reasons(), [""; 0]);
        assert_eq!(
            written(given),
            [
                json!({"timestamp": "2003-10-11T22:14:15.003Z", "hostname": "mymachine.example.com", "appname": "su",
                    "msgid": "ID47", "version": 1, "facility": "auth", "severity": "crit", "priority": 34,
                    "message": "'su root' failed for lonvick on /dev/pts/8"}),
                json!({"timestamp": "2003-08-24T12:14:15.000003Z", "hostname": "192.0.2.1", "appname": "myproc",
                    "procid": "8710", "version": 1, "facility": "local4", "severity": "notice", "priority": 165,
                    "message": "%% It's time to make the do-nuts."}),
                json!({"timestamp": "2003-10-11T22:14:15.003Z", "hostname": "mymachine.example.com", "appname": "evntslog",
                    "msgid": "ID47", "version": 1, "facility": "local4", "severity": "notice", "priority": 165,
                    "sd.exampleSDID@32473.iut": "3", "sd.exampleSDID@32473.eventSource": "Application",
                    "sd.exampleSDID@32473.eventID": "1011", "sd.examplePriority@32473.class": "high", "message": ""}),
            ]
        );
    }

    /// The first example of section 5.4 of RFC 3164.
    #[test]
    fn the_older_form_has_fewer_parts() {
        let line = "<34>Oct 11 22:14:15 mymachine su: 'su root' failed for lonvick on /dev/pts/8";
        let mut row = written(parsed("{ format: rfc3164, codes: true, prefix: s. }", &[line])).swap_remove(0);
        let time = row.as_object_mut().and_then(|row| row.remove("s.timestamp")).unwrap();
        assert!(time.as_str().unwrap().ends_with("-10-11T22:14:15Z"), "{time}");
        assert_eq!(
            row,
            json!({"s.hostname": "mymachine", "s.appname": "su", "s.facility": 4, "s.severity": 2, "s.priority": 34,
                "s.message": "'su root' failed for lonvick on /dev/pts/8"})
        );
    }

    /// The fraction was a part of the text, and there was no host.
    #[test]
    fn a_time_of_the_older_form_may_have_a_fraction_of_a_second() {
        let lines = [
            "<34>Nov 27 10:00:00.123 host app[007]: [a b=\"c\"] text 1.5 ",
            "<34>Nov 27 2026 10:00:00,000250 host app: text",
            "<34>Nov 27 10:00:00 host app: .5 text",
        ];
        let rows = written(parsed("{}", &lines));
        let parts = |row: &serde_json::Value| {
            ["hostname", "appname", "procid", "message"].map(|name| row[name].clone())
        };
        assert_eq!(parts(&rows[0]), [json!("host"), json!("app"), json!("007"), json!("text 1.5")]);
        assert_eq!(rows[0]["sd.a.b"], json!("c"));
        assert!(rows[0]["timestamp"].as_str().unwrap().ends_with("-11-27T10:00:00.123Z"), "{}", rows[0]);
        assert_eq!(parts(&rows[1]), [json!("host"), json!("app"), json!(null), json!("text")]);
        assert_eq!(rows[1]["timestamp"], json!("2026-11-27T10:00:00.000250Z"));
        assert_eq!(rows[2]["message"], json!(".5 text"));
    }

    /// It was taken for the fraction of the time, and the text lost it.
    #[test]
    fn a_number_after_a_time_of_the_older_form_stays() {
        let rows = written(parsed("{}", &["<34>Nov 27 2026 10:00:00 20.5 degrees: text"]));
        assert_eq!(rows[0]["hostname"], json!("20.5"));
        assert_eq!(rows[0]["timestamp"], json!("2026-11-27T10:00:00Z"));
    }

    /// The column of one sender's key replaced that of all hosts.
    #[test]
    fn a_key_with_the_name_of_a_field_does_not_replace_the_field() {
        let lines = [
            "<34>1 - one - - - [x@1 hostname=\"forged\" message=\"m\" b=\"c\"] text",
            "<34>1 - two - - - - text",
        ];
        let rows = written(parsed("structured_data: key", &lines));
        let parts = |row: &serde_json::Value| ["hostname", "message", "b"].map(|name| row[name].clone());
        assert_eq!(parts(&rows[0]), [json!("one"), json!("text"), json!("c")]);
        assert_eq!(parts(&rows[1]), [json!("two"), json!("text"), json!(null)]);
        assert_eq!(
            (&rows[0]["sd.x@1.hostname"], &rows[0]["sd.x@1.message"]),
            (&json!("forged"), &json!("m"))
        );
    }

    #[test]
    fn what_is_of_another_form_leaves_with_a_reason() {
        let given = testing::apply::<ParseSyslog>(
            "format: rfc5424",
            [testing::batch([
                &b"x"[..],
                b"<34>Oct 11 22:14:15 a b: c",
                b"<34>1 - h a - - - caf\xe9",
                b"<34>1 - h a - - - d",
            ])],
        );
        assert_eq!(
            given.reasons(),
            [
                "is not a syslog message: it does not begin with a priority, as in `<34>`",
                "is not a syslog message of RFC 5424",
                "is not UTF-8, at byte 21",
            ]
        );
        assert_eq!(given.main()[0]["message"], json!("d"));
    }

    /// Each element was read up to the end of the message.
    #[test]
    fn many_malformed_elements_are_rejected_in_linear_time() {
        let line = format!("<1>1 - - - - - {}", "[\" c=\"]".repeat(100_000));
        let given = parsed("{}", &[&line, "<1>1 - - - - - [a b][c d=\"e\"] text"]);
        assert_eq!(given.reasons(), ["has too many malformed elements of structured data"]);
        assert_eq!(given.main()[0]["sd.c.d"], json!("e"));
    }

    /// All of these parts were lost.
    #[test]
    fn structured_data_that_is_repeated_or_malformed_is_kept() {
        let message = |data: &str| format!("<34>1 - h a 012 - {data} m");
        let lines = [
            r#"[o ip="1" ip="2" ip_3="x" ip="3" ip="4"]"#,
            r#"[a b="first"][a b="second"]"#,
            r#"[x user="bob]"#,
            "[x user=bob]",
            r#"[x user="bob" ]"#,
            r#"[x y="z"][bad bob][x y="z"]"#,
            r#"[x p="C:\new\\ \]\""]"#,
        ]
        .map(message);
        let lines = lines.each_ref().map(String::as_str);
        let parts = |text: &str, data: serde_json::Value| {
            let mut row = json!({"hostname": "h", "appname": "a", "procid": "012", "version": 1, "facility": "auth",
                "severity": "crit", "priority": 34, "message": text});
            row.as_object_mut().unwrap().extend(data.as_object().unwrap().clone());
            row
        };
        let rows = [
            parts(
                "m",
                json!({"sd.o.ip": "1", "sd.o.ip_2": "2", "sd.o.ip_3": "x", "sd.o.ip_4": "3", "sd.o.ip_5": "4"}),
            ),
            parts("m", json!({"sd.a.b": "first", "sd.a.b_2": "second"})),
            parts(r#"[x user="bob] m"#, json!({})),
            parts("[x user=bob] m", json!({})),
            parts(r#"[x user="bob" ] m"#, json!({})),
            parts(r#"[bad bob][x y="z"] m"#, json!({"sd.x.y": "z", "sd.x.y_2": "z"})),
            parts("m", json!({"sd.x.p": r#"C:\new\ ]""#})),
        ];
        assert_eq!(written(parsed("{}", &lines)), rows);
        let rest = written(parsed("max_fields: 0", &lines)).swap_remove(0);
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(rest["sd"].as_str().unwrap()).unwrap(),
            json!({"o.ip": "1", "o.ip_2": "2", "o.ip_3": "x", "o.ip_4": "3", "o.ip_5": "4"})
        );
        let old = written(parsed("{}", &["<34>Oct 11 22:14:15 h a[007]: m"]));
        assert_eq!((&old[0]["procid"], &old[0]["message"]), (&json!("007"), &json!("m")));
    }

    /// Each repetition tried all numbers of those before it.
    #[test]
    fn many_repetitions_are_numbered_in_linear_time() {
        let line = format!("<1>1 - - - - - [a{}]", " b=\"c\"".repeat(100_000));
        let rows = written(parsed("max_fields: 1", &[&line]));
        assert_eq!(rows[0]["sd.a.b"], json!("c"));
        assert!(rows[0]["sd"].as_str().unwrap().contains("\"a.b_100000\":\"c\""));
    }

    #[test]
    fn many_fields_make_small_batches() {
        let lines: Vec<String> =
            (0..3000).map(|n| format!("<1>1 - - - - - [s{} a=\"b\"]", n % 1000)).collect();
        let given = testing::apply::<ParseSyslog>("max_fields: 1024", [testing::batch(&lines)]);
        let batches = &given.outputs[&thalweg_engine::Output::Main];
        assert!(batches.iter().all(|batch| batch.rows() * 1024 <= 1 << 19));
        assert_eq!(batches.iter().map(Batch::rows).sum::<usize>(), 3000);
    }

    /// A transform of the same segment may send several batches at once.
    #[test]
    fn batches_that_come_while_others_wait_are_parsed_in_order() {
        let config = testing::options::<ParseSyslog>("max_fields: 1024");
        let mut parser = config.build(&testing::context()).unwrap();
        let mut out = Outputs::new("test".into());
        for start in [0, 2000, 4000] {
            let lines: Vec<String> = (start..start + 2000).map(|n| format!("<1>1 - {n} - - - - x")).collect();
            parser.apply(testing::batch(&lines), &mut out).unwrap();
        }
        let mut hosts = Vec::new();
        loop {
            let rows = out.take().into_iter().flat_map(|(_, batch)| testing::rows(batch.fields()));
            hosts.extend(rows.map(|row| row["hostname"].clone()));
            if out.take_held().is_none() {
                break;
            }
            parser.resume(&mut out).unwrap();
        }
        assert!(hosts.into_iter().eq((0..6000).map(|n| json!(n.to_string()))));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            priority in 0..192_i64, names in prop::collection::vec("-|[A-Za-z][A-Za-z0-9.-]{0,7}", 4),
            data in prop::collection::btree_map("[a-z]{1,3}", "[a-z\"\\]\\\\ =é]{0,8}", 0..4), text in "([!-~é]([ -~é]{0,18}[!-~é])?)?",
        ) {
            let escaped = |text: &str| text.replace('\\', r"\\").replace('"', "\\\"").replace(']', "\\]");
            let pairs: String = data.iter().map(|(key, value)| format!(" {key}=\"{}\"", escaped(value))).collect();
            let pairs = if data.is_empty() { "-".to_owned() } else { format!("[x@1{pairs}]") };
            let [host, app, process, id] = names.as_slice() else { unreachable!() };
            let line = format!("<{priority}>1 2003-10-11T22:14:15Z {host} {app} {process} {id} {pairs} {text}");
            let row = written(parsed("codes: true", &[&line])).swap_remove(0);
            let part = |value: &str| if value == "-" { json!(null) } else { json!(value) };
            for (name, expected) in [
                ("hostname", part(host)), ("appname", part(app)), ("procid", part(process)), ("msgid", part(id)),
                ("priority", json!(priority)), ("facility", json!(priority / 8)), ("message", json!(text)),
            ] {
                prop_assert_eq!(&row[name], &expected, "{} of {}", name, line);
            }
            for (key, value) in &data {
                prop_assert_eq!(&row[format!("sd.x@1.{key}")], &json!(value), "{}", line);
            }
        }

        #[test]
        fn every_line_leaves(lines in prop::collection::vec("(<34>|1 |- |\\[|\\]|a=|\"x\"|Oct 11 22:14:15 | ){0,12}", 1..20)) {
            no_line_is_lost::<ParseSyslog>("max_fields: 2", &lines)?;
        }
    }
}
