//! Log groups and log streams of CloudWatch Logs, with the rules for the times of events.

use std::collections::{BTreeSet, HashMap};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::{Done, Refused};

const HOUR: i64 = 60 * 60 * 1000;
/// The oldest event, the newest one, and the longest time between two of a request, in milliseconds.
const OLDEST: i64 = 14 * 24 * HOUR;
const NEWEST: i64 = 2 * HOUR;
const SPAN: i64 = 24 * HOUR;
/// The most events of a request, and the most bytes, with those that the service adds to each.
const MOST_COUNT: usize = 10_000;
const MOST_BYTES: usize = 1 << 20;
const AROUND: usize = 26;

/// An event: its time in milliseconds since 1970, and its text.
pub(super) type Event = (i64, String);

/// All log groups.
#[derive(Default)]
pub(super) struct Logs {
    groups: BTreeSet<String>,
    streams: HashMap<(String, String), Vec<Event>>,
}

fn names(body: &Value) -> (String, String) {
    let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    (text("logGroupName"), text("logStreamName"))
}

fn absent() -> Refused {
    Refused::new("ResourceNotFoundException", "The specified log group or log stream does not exist.")
}

fn exists() -> Refused {
    Refused::new("ResourceAlreadyExistsException", "It exists already.")
}

fn invalid(message: &str) -> Refused {
    Refused::new("InvalidParameterException", message)
}

impl Logs {
    /// Calls an action.
    pub(super) fn call(&mut self, action: &str, body: &Value) -> Done {
        let (group, stream) = names(body);
        match action {
            "DescribeLogGroups" => Ok(json!({ "logGroups": [] })),
            "CreateLogGroup" => self.groups.insert(group).then(|| json!({})).ok_or_else(exists),
            "CreateLogStream" => {
                if !self.groups.contains(&group) {
                    return Err(absent());
                }
                if self.streams.contains_key(&(group.clone(), stream.clone())) {
                    return Err(exists());
                }
                self.streams.insert((group, stream), Vec::new());
                Ok(json!({}))
            }
            "PutLogEvents" => {
                let kept = self.streams.get_mut(&(group, stream)).ok_or_else(absent)?;
                put(kept, body)
            }
            _ => Err(Refused::unknown(action)),
        }
    }

    /// Returns the events of a log stream in the order of their times. None if there is no such stream.
    pub(super) fn events(&self, group: &str, stream: &str) -> Vec<Event> {
        let kept = self.streams.get(&(group.to_owned(), stream.to_owned()));
        let mut events = kept.cloned().unwrap_or_default();
        events.sort_by_key(|(time, _)| *time);
        events
    }
}

/// Takes events, but for those that are too old or too new.
fn put(kept: &mut Vec<Event>, body: &Value) -> Done {
    let events = body["logEvents"].as_array().into_iter().flatten();
    let events: Vec<Event> = events
        .filter_map(|event| Some((event["timestamp"].as_i64()?, event["message"].as_str()?.to_owned())))
        .collect();
    let bytes = events.iter().map(|(_, text)| text.len() + AROUND).sum::<usize>();
    if events.is_empty() || events.len() > MOST_COUNT || bytes > MOST_BYTES {
        return Err(invalid("a request has from 1 to 10000 events, and at most 1048576 bytes"));
    }
    if !events.is_sorted_by_key(|(time, _)| *time) {
        return Err(invalid("Log events in a single PutLogEvents request must be in chronological order."));
    }
    if let (Some((first, _)), Some((last, _))) = (events.first(), events.last())
        && last - first > SPAN
    {
        return Err(invalid("The batch of log events in a single PutLogEvents request cannot span a day."));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as i64;
    let old = events.iter().filter(|(time, _)| *time < now - OLDEST).count();
    let new = events.iter().filter(|(time, _)| *time <= now + NEWEST).count();
    let mut rejected = json!({});
    if old > 0 {
        rejected["tooOldLogEventEndIndex"] = json!(old);
    }
    if new < events.len() {
        rejected["tooNewLogEventStartIndex"] = json!(new);
    }
    kept.extend(events.into_iter().take(new).skip(old));
    match rejected.as_object().is_some_and(|known| !known.is_empty()) {
        true => Ok(json!({ "nextSequenceToken": "1", "rejectedLogEventsInfo": rejected })),
        false => Ok(json!({ "nextSequenceToken": "1" })),
    }
}
