//! The protocols of systems that are written to by HTTP, as far as the sinks use them.

use serde_json::{Value, json};

use crate::servers::{Mood, State};

/// A system whose requests a server takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// Each line of a body is a record: also ClickHouse.
    Lines,
    /// The bulk interface of Elasticsearch.
    Elasticsearch,
    /// Loki's lines, with their streams.
    Loki,
    /// Points whose field `payload` is the record.
    Influxdb,
}

/// Of this number of documents, a failing server finds one too many for now.
const BUSY: usize = 37;

impl System {
    /// Accepts the records of a body. Returns the body of the answer.
    pub(crate) fn take(self, body: &[u8], mood: Mood, state: &State) -> String {
        match self {
            System::Lines => state.accept(body),
            System::Elasticsearch => return documents(body, mood, state),
            System::Loki => lines(body).iter().for_each(|line| accept(line, state)),
            System::Influxdb => points(body).iter().for_each(|line| accept(line, state)),
        }
        String::new()
    }
}

fn accept(record: &str, state: &State) {
    state.accept(format!("{record}\n").as_bytes());
}

/// Takes documents, each after its action. If the server fails at times, some documents are for later.
fn documents(body: &[u8], mood: Mood, state: &State) -> String {
    let text = String::from_utf8_lossy(body);
    let all: Vec<&str> = text.lines().skip(1).step_by(2).collect();
    let item = |(number, document): (usize, &&str)| {
        if mood != Mood::Well && number % BUSY == BUSY - 1 {
            return json!({ "index": { "status": 429, "error": { "type": "es_rejected_execution_exception" } } });
        }
        accept(document, state);
        json!({ "index": { "status": 201 } })
    };
    let items: Vec<Value> = all.iter().enumerate().map(item).collect();
    json!({ "errors": false, "items": items }).to_string()
}

/// Returns the lines of all streams.
fn lines(body: &[u8]) -> Vec<String> {
    let Ok(body) = serde_json::from_slice::<Value>(body) else { return Vec::new() };
    let streams = body["streams"].as_array().into_iter().flatten();
    let values = streams.flat_map(|stream| stream["values"].as_array().into_iter().flatten());
    values.filter_map(|value| value[1].as_str().map(str::to_owned)).collect()
}

/// Returns the field `payload` of each point. Records have no line feeds.
fn points(body: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(body);
    let record = |line: &str| {
        let (_, value) = line.split_once("payload=\"")?;
        let (value, _) = value.rsplit_once('"')?;
        Some(value.replace("\\\"", "\"").replace("\\\\", "\\"))
    };
    text.lines().filter_map(record).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_found_in_the_bodies_of_each_system() {
        let push = br#"{"streams":[{"stream":{"a":"b"},"values":[["1","{\"n\":1}"],["2","x",{"c":"d"}]]}]}"#;
        assert_eq!(lines(push), ["{\"n\":1}", "x"]);
        assert_eq!(points(b"m payload=\"{\\\"n\\\":1}\" 5\n"), ["{\"n\":1}"]);
        let state = State::default();
        let answer = documents(b"{\"index\":{}}\n{\"n\":1}\n", Mood::Failing, &state);
        assert_eq!(answer, r#"{"errors":false,"items":[{"index":{"status":201}}]}"#);
    }
}
