//! `thalweg tap`: shows messages of a run as they pass.

use std::io::{BufRead, ErrorKind, Read};

use serde_json::Value;
use thalweg_redact::{foreign, percent_encoded};

use super::{RunTarget, is_place};
use crate::exit::{CommandError, Exit};
use crate::format::counted;
use crate::paint::Paint;
use crate::print;

/// The longest line that is read, in bytes. Those of a run are shorter.
const LONGEST_LINE: u64 = 4 << 20;

/// Which messages to show.
#[derive(Debug, Clone, Default)]
pub struct TapOptions {
    /// Their run.
    pub target: RunTarget,
    /// The components whose outputs are shown, perhaps after the place of the run.
    pub edges: Vec<String>,
    /// At most this many messages a second.
    pub rate: u32,
    /// Texts are cut to this many bytes.
    pub max_bytes: u32,
    /// The number of messages after which the command ends, if there is one.
    pub limit: Option<u64>,
    /// True if each is printed as JSON.
    pub json: bool,
}

/// Shows messages until the run ends, or as many as asked for.
///
/// # Errors
/// If the run does not answer, or has no such component.
pub fn tap(options: &TapOptions) -> Result<Exit, CommandError> {
    let (target, edges) = options.divided();
    if edges.is_empty() {
        return Err(CommandError::Usage("name the components whose messages are shown, or `*`".to_owned()));
    }
    let edges: String = edges.iter().map(|edge| format!("edge={}&", percent_encoded(edge))).collect();
    let path = format!("/api/v1/tap?{edges}rate={}&max_bytes={}", options.rate, options.max_bytes);
    let mut lines = target.client()?.lines(&path)?;
    let mut shown = 0;
    while let Some(line) = next_line(&mut lines)? {
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        match message.get("left_out").and_then(Value::as_u64) {
            _ if options.json => print::json(&line)?,
            Some(0) => {}
            Some(number) => print::err(&format!("{} left out so far\n", counted(number, "message"))),
            None => print::show(&shown_line(&message, Paint::stdout()))?,
        }
        shown += u64::from(message.get("left_out").is_none());
        if options.limit.is_some_and(|limit| shown >= limit) {
            break;
        }
    }
    Ok(Exit::Done)
}

/// Reads a line with its end. None if the stream has ended, as it does with the run.
fn next_line(lines: &mut impl BufRead) -> Result<Option<String>, CommandError> {
    let mut line = String::new();
    match lines.by_ref().take(LONGEST_LINE).read_line(&mut line) {
        Ok(_) if line.ends_with('\n') => Ok(Some(line)),
        Ok(length) if length as u64 == LONGEST_LINE => {
            Err(CommandError::Failed(format!("the run sends a line of more than {LONGEST_LINE} bytes")))
        }
        Ok(_) => Ok(None),
        Err(error) if is_end(error.kind()) => Ok(None),
        Err(error) => Err(CommandError::Failed(format!("the run sends no more: {error}"))),
    }
}

fn is_end(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::UnexpectedEof)
}

impl TapOptions {
    /// The run and the names of components. The first argument may be the place of the run.
    fn divided(&self) -> (RunTarget, &[String]) {
        match self.edges.split_first() {
            Some((first, rest)) if self.target.place.is_none() && is_place(first) => {
                (RunTarget { place: Some(first.clone()), ..self.target.clone() }, rest)
            }
            _ => (self.target.clone(), &self.edges),
        }
    }
}

/// A message on one line: the time, the edge, the payload, the fields, and the reason of a rejection.
fn shown_line(message: &Value, paint: Paint) -> String {
    let text = |name: &str| message.get(name).and_then(Value::as_str).unwrap_or_default();
    let time = text("time");
    let clock = time.split_once('T').map_or(time, |(_, clock)| clock.trim_end_matches('Z'));
    let edge = match text("output") {
        "" | "main" | "input" => text("edge").to_owned(),
        output => format!("{}.{output}", text("edge")),
    };
    let mut line = format!("{} {}", paint.dim(&foreign(clock)), paint.cyan(&foreign(&edge)));
    if let Some(payload) = message.get("payload").and_then(Value::as_str) {
        let is_cut = message.get("payload_is_cut").and_then(Value::as_bool).unwrap_or_default();
        line += &format!(" {}{}", foreign(payload), if is_cut { "…" } else { "" });
    }
    if let Some(fields) =
        message.get("fields").filter(|fields| fields.as_object().is_some_and(|f| !f.is_empty()))
    {
        line += &format!(" {}", paint.dim(&foreign(&fields.to_string())));
    }
    if let Some(reason) = message.get("reason").and_then(Value::as_str) {
        line += &format!(" {}", paint.yellow(&foreign(reason)));
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_without_an_end_is_not_read_without_end() {
        let mut lines = &b"one\ntwo"[..];
        assert_eq!(next_line(&mut lines).unwrap().as_deref(), Some("one\n"));
        assert_eq!(next_line(&mut lines).unwrap(), None);
        let mut endless = std::io::BufReader::new(std::io::repeat(b'x'));
        assert!(matches!(next_line(&mut endless), Err(CommandError::Failed(_))));
    }

    #[test]
    fn a_message_is_one_line() {
        let message = json!({
            "time": "2026-11-25T13:42:47.123Z", "edge": "main.parse_json", "output": "errors",
            "payload": "a\nb\u{1b}[2J", "payload_is_cut": true, "fields": { "n": 1 }, "reason": "no JSON",
        });
        let shown = "13:42:47.123 main.parse_json.errors a\\nb\\u{1b}[2J… {\"n\":1} no JSON\n";
        assert_eq!(shown_line(&message, Paint::off()), shown);
        let plain = json!({ "time": "now", "edge": "in", "output": "main", "payload": "x", "fields": {} });
        assert_eq!(shown_line(&plain, Paint::off()), "now in x\n");
    }

    #[test]
    fn the_first_argument_may_be_the_place_of_the_run() {
        let of = |edges: &[&str], place: Option<&str>| {
            let edges = edges.iter().map(|edge| (*edge).to_owned()).collect();
            let target = RunTarget { place: place.map(str::to_owned), token_file: None };
            let options = TapOptions { target, edges, ..TapOptions::default() };
            let (target, edges) = options.divided();
            (target.place, edges.join(" "))
        };
        let here = |place: &str, edges: &str| (Some(place.to_owned()), edges.to_owned());
        assert_eq!(of(&["127.0.0.1:80", "in"], None), here("127.0.0.1:80", "in"));
        assert_eq!(of(&["./state", "in", "*"], None), here("./state", "in *"));
        assert_eq!(of(&["in", "main.filter"], None), (None, "in main.filter".to_owned()));
        assert_eq!(of(&["a:1", "in"], Some("b:1")), here("b:1", "a:1 in"));
    }
}
