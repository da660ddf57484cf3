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
    /// The HTTP Event Collector of Splunk, whose events are records. All of them are indexed.
    Splunk,
    /// The log intake of Datadog. The message of an entry is the record.
    Datadog,
    /// Samples whose label `record` is the record.
    Prometheus,
    /// A program that exposes a metric. It takes nothing.
    Metrics,
    /// An interface with two items. It takes nothing.
    Items,
    /// A receiver of OpenTelemetry: log records whose body is the record.
    Otlp,
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
            System::Splunk => return events(body, state),
            System::Datadog => entries(body).iter().for_each(|line| accept(line, state)),
            System::Prometheus => samples(body).iter().for_each(|line| accept(line, state)),
            System::Metrics => return "requests_total{code=\"200\"} 5\n".to_owned(),
            System::Items => return r#"{"items":[{"id":1},{"id":2}]}"#.to_owned(),
            System::Otlp => within(body, &BODIES).for_each(|text| accept(&text, state)),
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

/// Takes events, or answers that events are indexed.
fn events(body: &[u8], state: &State) -> String {
    let question =
        serde_json::from_slice::<Value>(body).ok().and_then(|question| question.get("acks").cloned());
    if let Some(Value::Array(numbers)) = question {
        let acks = numbers.iter().map(|number| (number.to_string(), Value::Bool(true)));
        let acks: serde_json::Map<String, Value> = acks.collect();
        return json!({ "acks": acks }).to_string();
    }
    let text = String::from_utf8_lossy(body);
    let event = |line: &str| {
        let (_, event) = line.split_once("\"event\":")?;
        Some(event.strip_suffix('}')?.to_owned())
    };
    text.lines().filter_map(event).for_each(|event| accept(&event, state));
    json!({ "text": "Success", "code": 0, "ackId": 0 }).to_string()
}

/// Returns the message of each entry.
fn entries(body: &[u8]) -> Vec<String> {
    let entries: Vec<Value> = serde_json::from_slice(body).unwrap_or_default();
    entries.iter().filter_map(|entry| entry["message"].as_str().map(str::to_owned)).collect()
}

/// Returns the label `record` of each series.
fn samples(body: &[u8]) -> Vec<String> {
    let message = snap::raw::Decoder::new().decompress_vec(body).unwrap_or_default();
    let labels = fields(&message, 1).into_iter().flat_map(|series| fields(series, 1));
    let records = labels.filter(|label| fields(label, 1) == [b"record"]).flat_map(|label| fields(label, 2));
    records.map(|record| String::from_utf8_lossy(record).into_owned()).collect()
}

/// The numbers of the fields that lead from a request to the texts of its log records.
const BODIES: [u64; 5] = [1, 2, 2, 5, 1];

/// Returns the texts that these fields of Protocol Buffers lead to, one within the other.
fn within(message: &[u8], numbers: &[u64]) -> impl Iterator<Item = String> {
    let mut found = vec![message];
    for number in numbers {
        found = found.into_iter().flat_map(|message| fields(message, *number)).collect();
    }
    let texts: Vec<String> =
        found.into_iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect();
    texts.into_iter()
}

/// Returns the fields of this number that have a length.
fn fields(mut message: &[u8], wanted: u64) -> Vec<&[u8]> {
    let mut found = Vec::new();
    while let Some(tag) = varint(&mut message) {
        let length = match tag & 7 {
            0 => {
                varint(&mut message);
                0
            }
            1 => 8,
            2 => varint(&mut message).unwrap_or(0) as usize,
            _ => 4,
        };
        let Some((value, rest)) = message.split_at_checked(length) else { break };
        message = rest;
        if tag >> 3 == wanted && tag & 7 == 2 {
            found.push(value);
        }
    }
    found
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = message.split_first()?;
        *message = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            break;
        }
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_found_in_the_bodies_of_each_system() {
        let push = br#"{"streams":[{"stream":{"a":"b"},"values":[["1","{\"n\":1}"],["2","x",{"c":"d"}]]}]}"#;
        assert_eq!(lines(push), ["{\"n\":1}", "x"]);
        assert_eq!(points(b"m payload=\"{\\\"n\\\":1}\" 5\n"), ["{\"n\":1}"]);
        let entry = br#"[{"timestamp":1,"message":"{\"n\":1}"},{"message":"x"}]"#;
        assert_eq!(entries(entry), ["{\"n\":1}", "x"]);
        let series = b"\x0a\x10\x0a\x0e\x0a\x06record\x12\x04abcd";
        assert_eq!(samples(&snap::raw::Encoder::new().compress_vec(series).unwrap()), ["abcd"]);
        // A record with a number, a time and the body `x`.
        let request = b"\x0a\x14\x12\x12\x12\x10\x10\x09\x09\0\0\0\0\0\0\0\0\x2a\x03\x0a\x01x";
        assert_eq!(within(request, &BODIES).collect::<Vec<_>>(), ["x"]);
        let state = State::default();
        assert_eq!(events(b"{\"acks\":[3]}", &state), r#"{"acks":{"3":true}}"#);
        events(b"{\"time\":1,\"event\":{\"n\":2}}\n", &state);
        assert_eq!(state.accepted(), b"{\"n\":2}\n");
        let answer = documents(b"{\"index\":{}}\n{\"n\":1}\n", Mood::Failing, &state);
        assert_eq!(answer, r#"{"errors":false,"items":[{"index":{"status":201}}]}"#);
    }
}
