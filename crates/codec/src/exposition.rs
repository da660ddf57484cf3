//! Prometheus' text format and OpenMetrics: the metrics that a program exposes.
//!
//! Each sample is a line of its own. Comments tell types and help texts, which are not read: a histogram is
//! the samples of its buckets. The two formats differ in the unit of timestamps, and OpenMetrics ends with a
//! line that says so, and has exemplars behind values, which are skipped.
//!
//! A parser of whole documents was rejected: it refuses all samples because of one line.
//!
//! The formats are described at <https://prometheus.io/docs/instrumenting/exposition_formats/> and
//! <https://prometheus.io/docs/specs/om/open_metrics_spec/>.

use std::borrow::Cow;

use thalweg_redact::beginning;

/// A format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Prometheus' text format, whose timestamps are milliseconds.
    Text,
    /// OpenMetrics, whose timestamps are seconds.
    OpenMetrics,
}

impl Form {
    /// Returns the format that a header `Content-Type` names. Without a name it is the text format.
    pub fn of_content_type(content_type: &str) -> Self {
        let (kind, _) = content_type.split_once(';').unwrap_or((content_type, ""));
        match kind.trim().eq_ignore_ascii_case("application/openmetrics-text") {
            true => Self::OpenMetrics,
            false => Self::Text,
        }
    }

    /// True if the document is whole: OpenMetrics says where it ends.
    pub fn is_whole(self, document: &[u8]) -> bool {
        self == Self::Text || document.trim_ascii_end().ends_with(b"# EOF")
    }
}

/// The most labels of a sample. Each name is compared with those before it.
const MOST_LABELS: usize = 1000;

/// The last time that a column can have, and the first one behind a minus: columns have microseconds.
const MOST: i64 = i64::MAX / 1000;

/// A sample of a metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample<'a> {
    /// The name of the metric.
    pub name: Cow<'a, str>,
    /// The names and values of labels, in their order.
    pub labels: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// The value.
    pub value: f64,
    /// The time, in milliseconds since 1970.
    pub timestamp_ms: Option<i64>,
}

/// True if a label can have this name, as all versions of Prometheus have them.
pub fn is_label(name: &str) -> bool {
    let is_right = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.bytes().all(is_right) && name.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

/// True if a metric can have this name, as all versions of Prometheus have them.
pub fn is_metric(name: &str) -> bool {
    let is_right = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':';
    name.bytes().all(is_right) && name.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

/// Returns the sample of a line. None for an empty line and for a comment.
///
/// # Errors
/// If the line is neither, with the reason.
pub fn sample(line: &[u8], form: Form) -> Result<Option<Sample<'_>>, String> {
    let text = std::str::from_utf8(line)
        .map_err(|error| format!("is not UTF-8, at byte {}", error.valid_up_to()))?;
    let mut rest = Rest(text.trim_matches([' ', '\t', '\r', '\n']));
    if rest.0.is_empty() || rest.0.starts_with('#') {
        return Ok(None);
    }
    let mut name = Cow::Borrowed(rest.until(|character| character == '{' || is_blank(character)));
    let mut labels = Vec::new();
    rest.skip_blanks();
    if rest.skip('{') {
        read_labels(&mut rest, &mut name, &mut labels)?;
    }
    if name.is_empty() {
        return Err("has no name".to_owned());
    }
    let value = read_value(&mut rest)?;
    let timestamp_ms = read_timestamp(&mut rest, form)?;
    rest.skip_blanks();
    let has_exemplar = form == Form::OpenMetrics && rest.0.starts_with('#');
    match rest.0.is_empty() || has_exemplar {
        true => Ok(Some(Sample { name, labels, value, timestamp_ms })),
        false => Err(format!("has {} behind its end", shown(rest.0))),
    }
}

fn is_blank(character: char) -> bool {
    character == ' ' || character == '\t'
}

/// Returns the beginning of a text, for reasons.
fn shown(text: &str) -> String {
    format!("`{}`", beginning(text, 40))
}

/// The part of a line that is not read yet.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn skip_blanks(&mut self) {
        self.0 = self.0.trim_start_matches(is_blank);
    }

    /// Skips a character. Returns false if it is not the next one.
    fn skip(&mut self, character: char) -> bool {
        let rest = self.0.strip_prefix(character);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// Returns the text before the first such character, or all of it.
    fn until(&mut self, ends: impl Fn(char) -> bool) -> &'a str {
        let (text, rest) = self.0.split_at(self.0.find(ends).unwrap_or(self.0.len()));
        self.0 = rest;
        text
    }

    /// Returns a text in quotes, the first of which is skipped already.
    fn quoted(&mut self) -> Result<Cow<'a, str>, String> {
        let mut is_escaped = false;
        let end = self.0.find(|character| {
            let ends = character == '"' && !is_escaped;
            is_escaped = character == '\\' && !is_escaped;
            ends
        });
        let (text, rest) = self.0.split_at(end.ok_or("has a text without its last quote")?);
        self.0 = rest.strip_prefix('"').unwrap_or(rest);
        Ok(if text.contains('\\') { Cow::Owned(unescaped(text)) } else { Cow::Borrowed(text) })
    }
}

/// Returns a text without its escapes. Any other backslash stays.
fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            plain.push(character);
            continue;
        }
        match characters.next() {
            Some('n') => plain.push('\n'),
            Some(escaped @ ('\\' | '"')) => plain.push(escaped),
            other => {
                plain.push('\\');
                plain.extend(other);
            }
        }
    }
    plain
}

/// Reads the labels behind a brace. A text in quotes without a value is the name of the metric.
fn read_labels<'a>(
    rest: &mut Rest<'a>,
    name: &mut Cow<'a, str>,
    labels: &mut Vec<(Cow<'a, str>, Cow<'a, str>)>,
) -> Result<(), String> {
    loop {
        rest.skip_blanks();
        if rest.skip('}') {
            return Ok(());
        }
        let is_quoted = rest.skip('"');
        let label = match is_quoted {
            true => rest.quoted()?,
            false => {
                Cow::Borrowed(rest.until(|character| "=,}\"".contains(character)).trim_end_matches(is_blank))
            }
        };
        rest.skip_blanks();
        match rest.skip('=') {
            true => add_label(rest, label, labels)?,
            false if is_quoted && name.is_empty() => *name = label,
            false => return Err(format!("has no value for the label {}", shown(&label))),
        }
        rest.skip_blanks();
        if !rest.skip(',') && !rest.0.starts_with('}') {
            return Err("has no comma or brace behind a label".to_owned());
        }
    }
}

fn add_label<'a>(
    rest: &mut Rest<'a>,
    label: Cow<'a, str>,
    labels: &mut Vec<(Cow<'a, str>, Cow<'a, str>)>,
) -> Result<(), String> {
    rest.skip_blanks();
    if label.is_empty() {
        return Err("has a label without a name".to_owned());
    }
    if !rest.skip('"') {
        return Err(format!("has no text in quotes for the label {}", shown(&label)));
    }
    if labels.len() >= MOST_LABELS {
        return Err(format!("has more than {MOST_LABELS} labels"));
    }
    if labels.iter().any(|(known, _)| *known == label) {
        return Err(format!("has the label {} twice", shown(&label)));
    }
    labels.push((label, rest.quoted()?));
    Ok(())
}

fn read_value(rest: &mut Rest<'_>) -> Result<f64, String> {
    rest.skip_blanks();
    match rest.until(is_blank) {
        "" => Err("has no value".to_owned()),
        text => text.parse().map_err(|_| format!("has the value {}, which is no number", shown(text))),
    }
}

fn read_timestamp(rest: &mut Rest<'_>, form: Form) -> Result<Option<i64>, String> {
    rest.skip_blanks();
    if rest.0.is_empty() || rest.0.starts_with('#') {
        return Ok(None);
    }
    let text = rest.until(is_blank);
    let time = match form {
        Form::Text => text.parse().ok(),
        Form::OpenMetrics => {
            text.parse::<f64>().ok().map(|seconds| (seconds * 1000.0).round()).and_then(millis)
        }
    };
    time.filter(|time| (-MOST..=MOST).contains(time))
        .map(Some)
        .ok_or_else(|| format!("has the timestamp {}, which is no time", shown(text)))
}

/// Returns a number of milliseconds, if it is one.
fn millis(number: f64) -> Option<i64> {
    // The numbers between which all whole ones are exact.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    (-EXACT..=EXACT).contains(&number).then_some(number as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Option<Sample<'_>>, String> {
        sample(line.as_bytes(), Form::Text)
    }

    fn of<'a>(
        name: &'a str,
        labels: &[(&'a str, &'a str)],
        value: f64,
        timestamp_ms: Option<i64>,
    ) -> Sample<'a> {
        let labels = labels.iter().map(|(label, value)| (Cow::Borrowed(*label), Cow::Borrowed(*value)));
        Sample { name: name.into(), labels: labels.collect(), value, timestamp_ms }
    }

    #[test]
    fn a_line_is_a_sample() {
        let two = [("method", "post"), ("code", "200")];
        for (line, expected) in [
            ("up 1", of("up", &[], 1.0, None)),
            ("\tup  1 \r", of("up", &[], 1.0, None)),
            (
                "a:b_total{method=\"post\",code=\"200\"} 1027 1395066363000",
                of("a:b_total", &two, 1027.0, Some(1_395_066_363_000)),
            ),
            ("a { method = \"post\" , code = \"200\" , } 3e2 -5", of("a", &two, 300.0, Some(-5))),
            ("a{} +Inf", of("a", &[], f64::INFINITY, None)),
            ("a{x=\"C:\\\\d\\\"}\\n\\t\"} -1.5", of("a", &[("x", "C:\\d\"}\n\\t")], -1.5, None)),
            ("{\"my.metric\",\"a b\"=\"é\"} 0", of("my.metric", &[("a b", "é")], 0.0, None)),
        ] {
            assert_eq!(read(line), Ok(Some(expected)), "{line}");
        }
        assert!(read("a NaN").unwrap().unwrap().value.is_nan());
        for line in ["", "  ", "# HELP a b", "#"] {
            assert_eq!(read(line), Ok(None), "{line}");
        }
    }

    #[test]
    fn open_metrics_has_seconds_and_exemplars() {
        assert_eq!(
            sample(b"a_bucket{le=\"0.1\"} 8 1520879607.789 # {trace_id=\"x # y\"} 0.05", Form::OpenMetrics),
            Ok(Some(of("a_bucket", &[("le", "0.1")], 8.0, Some(1_520_879_607_789))))
        );
        assert_eq!(sample(b"a 8 # {} 1", Form::OpenMetrics), Ok(Some(of("a", &[], 8.0, None))));
        assert!(Form::OpenMetrics.is_whole(b"a 1\n# EOF\n") && !Form::OpenMetrics.is_whole(b"a 1\n"));
        assert_eq!(
            Form::of_content_type("application/openmetrics-text; version=1.0.0; charset=utf-8"),
            Form::OpenMetrics
        );
        assert_eq!(Form::of_content_type(" Application/OpenMetrics-Text"), Form::OpenMetrics);
        assert_eq!(Form::of_content_type("text/plain; version=0.0.4"), Form::Text);
    }

    #[test]
    fn what_is_no_sample_has_a_reason() {
        for (line, reason) in [
            ("a", "has no value"),
            ("a x", "has the value `x`, which is no number"),
            ("a 1 x", "has the timestamp `x`, which is no time"),
            ("a 1 1.5", "has the timestamp `1.5`, which is no time"),
            ("a 1 9223372036854775807", "has the timestamp `9223372036854775807`, which is no time"),
            ("a 1 2 3", "has `3` behind its end"),
            ("a 1 # {} 1", "has `# {} 1` behind its end"),
            ("{a=\"b\"} 1", "has no name"),
            ("a{b} 1", "has no value for the label `b`"),
            ("a{b=c} 1", "has no text in quotes for the label `b`"),
            ("a{b=\"c} 1", "has a text without its last quote"),
            ("a{b=\"c\" d=\"e\"} 1", "has no comma or brace behind a label"),
            ("a{b=\"c\",b=\"d\"} 1", "has the label `b` twice"),
            ("a{=\"c\"} 1", "has a label without a name"),
            ("a{", "has no value for the label ``"),
        ] {
            assert_eq!(read(line), Err(reason.to_owned()), "{line}");
        }
        let many: String = (0..=MOST_LABELS).map(|number| format!("l{number}=\"\",")).collect();
        assert_eq!(read(&format!("a{{{many}}} 1")), Err("has more than 1000 labels".to_owned()));
        assert_eq!(sample(b"a\xff 1", Form::Text), Err("is not UTF-8, at byte 1".to_owned()));
        assert!(sample(b"a 1 1e300", Form::OpenMetrics).is_err());
    }

    #[test]
    fn a_secret_at_a_cut_is_not_shown_in_part() {
        let secret = "3Rm-a-token-that-a-program-exposes";
        thalweg_redact::keep_credential(secret);
        for before in [35, 39] {
            let start = "x".repeat(before);
            let reason = format!("has the value `{start}…`, which is no number");
            assert_eq!(read(&format!("a {start}{secret}")), Err(reason), "{before}");
        }
    }

    #[test]
    fn names_are_known() {
        assert!(is_label("a_1") && is_metric("a:b_1"));
        for wrong in ["", "1a", "a-b", "\u{e4}"] {
            assert!(!is_label(wrong) && !is_metric(wrong), "{wrong}");
        }
        assert!(!is_label("a:b"));
    }
}
