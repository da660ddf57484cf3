//! The action that takes events, and the creation of what they are written into.
//!
//! A log stream is created before the first request for it, and not after a refusal: otherwise each new one
//! would cost a pause. If it is deleted later, the refusal says so, and it is created again.

use std::collections::HashSet;

use async_trait::async_trait;
use bytes::Bytes;
use http::HeaderMap;
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use thalweg_net::requests::{Answer, Failure, Parts, Reading, Request, Service, Verdict};

use super::events::{Event, LONGEST_SPAN};
use crate::api::LOGS;
use crate::refusal::{Kind, Refusal, not_understood};

/// The number of log streams that are known to exist. Those that are not are created again, which changes
/// nothing.
const KNOWN: usize = 10_000;

/// The action that takes events.
pub(crate) struct Put {
    /// True if what does not exist is created.
    creates: bool,
    /// The log streams that exist, as members of a body.
    known: Mutex<HashSet<Box<[u8]>>>,
}

/// The answer, as far as it is read.
#[derive(Deserialize)]
struct Taken {
    #[serde(rename = "rejectedLogEventsInfo", default)]
    rejected: Option<Rejected>,
    /// Only the answer of a service that refuses something has it, whatever its status.
    #[serde(rename = "__type", default)]
    refusal: Option<IgnoredAny>,
}

/// The events that were not taken, by their numbers in the body.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Rejected {
    /// The first one that is too new.
    too_new_log_event_start_index: Option<usize>,
    /// The one after the last that is too old.
    too_old_log_event_end_index: Option<usize>,
    /// The one after the last that is older than the log group keeps.
    expired_log_event_end_index: Option<usize>,
}

impl Rejected {
    /// Returns why the event of this number was not taken, if so.
    fn reason(&self, number: usize) -> Option<&'static str> {
        let is_before = |end: Option<usize>| end.is_some_and(|end| number < end);
        if is_before(self.expired_log_event_end_index) {
            return Some("the event is older than the log group keeps events");
        }
        if is_before(self.too_old_log_event_end_index) {
            return Some("the event is too old for CloudWatch Logs");
        }
        let is_too_new = self.too_new_log_event_start_index.is_some_and(|start| number >= start);
        is_too_new.then_some("the time of the event is too far in the future for CloudWatch Logs")
    }
}

#[derive(Deserialize)]
struct Names {
    #[serde(rename = "logGroupName")]
    group: String,
}

impl Put {
    pub(crate) fn new(creates: bool) -> Self {
        Self { creates, known: Mutex::default() }
    }
}

/// Creates the log stream with these members of a body, and its log group if need be.
async fn create(request: &Request, place: &[u8]) -> Result<(), Failure> {
    let stream = [b"{".as_slice(), place, b"}"].concat();
    if !is_absent(request, "CreateLogStream", &stream).await? {
        return Ok(());
    }
    if let Ok(Names { group }) = serde_json::from_slice(&stream) {
        let group = json!({ "logGroupName": group }).to_string();
        is_absent(request, "CreateLogGroup", group.as_bytes()).await?;
    }
    is_absent(request, "CreateLogStream", &stream).await.map(|_| ())
}

/// Creates something. Returns true if that which it is to be a part of does not exist.
async fn is_absent(request: &Request, action: &str, body: &[u8]) -> Result<bool, Failure> {
    let answer = request.send_with(LOGS.action(action), None, Bytes::copy_from_slice(body)).await?;
    if answer.status.is_success() {
        return Ok(false);
    }
    let refusal = Refusal::of(request, &answer);
    match refusal.kind {
        _ if refusal.code == "ResourceAlreadyExistsException" => Ok(false),
        // The events are refused for the same reason, or it exists and the user may only write into it.
        Kind::Messages | Kind::Forbidden => Ok(false),
        Kind::Absent => Ok(true),
        _ => Err(refusal.failure().after(answer.retry_after())),
    }
}

/// Returns the place of the events of a request, which is the same for all, and their times.
fn place_and_times(parts: &Parts) -> (&[u8], Vec<i64>) {
    let events: Vec<Event<'_>> = parts.iter().filter_map(Event::read).collect();
    let place = events.first().map_or(&[][..], |event| event.place);
    (place, events.iter().map(|event| event.time).collect())
}

/// Returns the numbers of events in the order of their times.
fn in_order(times: &[i64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..times.len()).collect();
    order.sort_by_key(|&number| times.get(number));
    order
}

/// Returns the fate of each event, from those of the events in the order of the body.
fn verdicts(rejected: &Rejected, order: &[usize]) -> Vec<Verdict> {
    let mut verdicts = vec![Verdict::Delivered; order.len()];
    for (place, &number) in order.iter().enumerate() {
        if let (Some(reason), Some(verdict)) = (rejected.reason(place), verdicts.get_mut(number)) {
            *verdict = Verdict::Rejected(reason.to_owned());
        }
    }
    verdicts
}

#[async_trait]
impl Service for Put {
    fn body(&self, parts: &Parts) -> Bytes {
        let (place, times) = place_and_times(parts);
        let mut body = Vec::with_capacity(parts.bytes().len() + 256);
        body.push(b'{');
        body.extend_from_slice(place);
        body.extend_from_slice(b",\"logEvents\":[");
        for (number, at) in in_order(&times).into_iter().enumerate() {
            let Some(Event { time, message, .. }) = Event::read(parts.get(at)) else { continue };
            if number > 0 {
                body.push(b',');
            }
            body.extend_from_slice(format!("{{\"timestamp\":{time},\"message\":").as_bytes());
            body.extend_from_slice(message);
            body.push(b'}');
        }
        body.extend_from_slice(b"]}");
        body.into()
    }

    fn headers(&self) -> HeaderMap {
        LOGS.action("PutLogEvents")
    }

    /// True if the events are for the same log stream, and not more than a day apart.
    fn joins(&self, one: &Parts, other: &Parts) -> bool {
        let ((place, mut times), (other_place, others)) = (place_and_times(one), place_and_times(other));
        times.extend(others);
        let span = match (times.iter().min(), times.iter().max()) {
            (Some(first), Some(last)) => last.saturating_sub(*first),
            _ => 0,
        };
        place == other_place && span < LONGEST_SPAN
    }

    async fn prepare(&self, request: &Request, parts: &Parts) -> Result<(), Failure> {
        let place = parts.iter().find_map(Event::read).map(|event| event.place);
        let Some(place) = place.filter(|place| self.creates && !self.known.lock().contains(*place)) else {
            return Ok(());
        };
        create(request, place).await?;
        let mut known = self.known.lock();
        if known.len() >= KNOWN {
            known.clear();
        }
        known.insert(place.into());
        Ok(())
    }

    fn read(&self, request: &Request, answer: &Answer, parts: &Parts) -> Reading {
        let (place, times) = place_and_times(parts);
        if !answer.status.is_success() {
            let refusal = Refusal::of(request, answer);
            if refusal.kind == Kind::Absent {
                self.known.lock().remove(place);
            }
            return refusal.reading(answer);
        }
        let body: &[u8] = if answer.body.is_empty() { b"{}" } else { &answer.body };
        let taken = serde_json::from_slice(body).ok().filter(|_| answer.is_whole);
        match taken {
            None | Some(Taken { refusal: Some(_), .. }) => not_understood(request),
            Some(Taken { rejected: None, .. }) => Reading::Accepted,
            Some(Taken { rejected: Some(rejected), .. }) => {
                Reading::Each(verdicts(&rejected, &in_order(&times)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_net::fuzzing::answered;

    #[test]
    fn events_that_were_not_taken_are_found_in_the_order_of_the_body() {
        let rejected = Rejected {
            too_new_log_event_start_index: Some(3),
            too_old_log_event_end_index: Some(2),
            expired_log_event_end_index: Some(1),
        };
        // In the order of the body: 1, 4, 0, 3, 2.
        let order = in_order(&[30, 10, 50, 40, 20]);
        assert_eq!(order, [1, 4, 0, 3, 2]);
        let fates: Vec<&str> = verdicts(&rejected, &order)
            .iter()
            .map(|verdict| match verdict {
                Verdict::Rejected(reason) if reason.contains("keeps") => "expired",
                Verdict::Rejected(reason) if reason.contains("too old") => "old",
                Verdict::Rejected(_) => "new",
                _ => "taken",
            })
            .collect();
        assert_eq!(fates, ["taken", "expired", "new", "new", "old"]);
    }

    #[test]
    fn a_refusal_is_no_success_whatever_its_status() {
        for (body, is_accepted) in
            [("{}", true), (r#"{"nextSequenceToken":"1"}"#, true), (r#"{"__type":"InternalFailure"}"#, false)]
        {
            let (request, answer) = answered(200, &HeaderMap::new(), body.as_bytes()).unwrap();
            let reading = Put::new(true).read(&request, &answer, &Parts::default());
            assert_eq!(matches!(reading, Reading::Accepted), is_accepted, "{body}");
            assert_eq!(matches!(reading, Reading::Again(_)), !is_accepted, "{body}");
        }
    }
}
