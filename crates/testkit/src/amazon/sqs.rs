//! Queues of SQS: visibility timeouts, handles, groups in order, and identities of messages.
//!
//! Where the service promises little, this does the least: a handle that is not the last one of its message
//! deletes nothing, although the request succeeds, and a message is delivered again as soon as its visibility
//! timeout has passed.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::{ACCOUNT, Done, REGION, Refused};

/// How long a queue in order recognises a message that is sent again.
const RECOGNISED: Duration = Duration::from_secs(300);
/// The visibility timeout of a request that names none, in seconds.
const HIDDEN: u64 = 30;
/// The most messages of a request, and the most bytes of their texts.
const MOST_COUNT: usize = 10;
const MOST_BYTES: usize = 1 << 20;

/// All queues.
pub(super) struct Queues {
    /// The address in URLs.
    address: String,
    all: HashMap<String, Queue>,
}

/// A queue.
#[derive(Default)]
pub(super) struct Queue {
    is_fifo: bool,
    /// Those that are not deleted, in their order.
    messages: VecDeque<Message>,
    /// All that were ever sent, also those that are deleted.
    sent: Vec<Value>,
    /// When a message was sent with an id, and the id that it got.
    known: HashMap<String, (Instant, String)>,
    count: u64,
}

/// A message that is not deleted.
struct Message {
    id: String,
    entry: Value,
    /// In milliseconds since 1970.
    sent: u128,
    sequence: u64,
    deliveries: u64,
    /// The handle of the last delivery.
    handle: Option<String>,
    hidden_until: Instant,
}

impl Message {
    fn group(&self) -> Option<&str> {
        self.entry["MessageGroupId"].as_str()
    }

    fn is_visible(&self, now: Instant) -> bool {
        self.hidden_until <= now
    }

    /// Returns the message with those of its attributes that are wanted.
    fn shown(&self, body: &Value, is_fifo: bool) -> Value {
        let mut system = json!({
            "SentTimestamp": self.sent.to_string(),
            "ApproximateReceiveCount": self.deliveries.to_string(),
        });
        if is_fifo {
            system["SequenceNumber"] = json!(format!("{:020}", self.sequence));
        }
        for name in ["MessageGroupId", "MessageDeduplicationId"] {
            if !self.entry[name].is_null() {
                system[name] = self.entry[name].clone();
            }
        }
        json!({
            "MessageId": self.id,
            "ReceiptHandle": self.handle,
            "Body": self.entry["MessageBody"],
            "Attributes": wanted(&system, &body["MessageSystemAttributeNames"]),
            "MessageAttributes": wanted(&self.entry["MessageAttributes"], &body["MessageAttributeNames"]),
        })
    }
}

/// Returns those of some members that a list names.
fn wanted(all: &Value, names: &Value) -> Value {
    let names = names.as_array().into_iter().flatten().filter_map(Value::as_str);
    names.filter_map(|name| Some((name.to_owned(), all.get(name)?.clone()))).collect()
}

/// The entries of a request, with their ids.
fn entries(body: &Value) -> Result<Vec<(&str, &Value)>, Refused> {
    let entries = body["Entries"].as_array().map(Vec::as_slice).unwrap_or_default();
    let entries: Vec<(&str, &Value)> =
        entries.iter().map(|entry| (entry["Id"].as_str().unwrap_or_default(), entry)).collect();
    if entries.is_empty() {
        return Err(Refused::new("com.amazonaws.sqs#EmptyBatchRequest", "there are no entries"));
    }
    if entries.len() > MOST_COUNT {
        return Err(Refused::new("com.amazonaws.sqs#TooManyEntriesInBatchRequest", "more than 10 entries"));
    }
    let ids: HashSet<&str> = entries.iter().map(|(id, _)| *id).collect();
    if ids.len() < entries.len() {
        return Err(Refused::new("com.amazonaws.sqs#BatchEntryIdsNotDistinct", "two entries have an id"));
    }
    Ok(entries)
}

/// Returns the answer to a request for several entries, from the fate of each: the members of the answer, or
/// the code of a mistake of the sender.
fn answer<'a>(fates: impl Iterator<Item = (&'a str, Result<Value, &'static str>)>) -> Value {
    let (mut successful, mut failed) = (Vec::new(), Vec::new());
    for (id, fate) in fates {
        match fate {
            Ok(mut taken) => {
                taken["Id"] = json!(id);
                successful.push(taken);
            }
            Err(code) => {
                failed
                    .push(json!({ "Id": id, "SenderFault": true, "Code": code, "Message": "not possible" }));
            }
        }
    }
    json!({ "Successful": successful, "Failed": failed })
}

impl Queues {
    pub(super) fn new(address: String) -> Self {
        Self { address, all: HashMap::new() }
    }

    fn url(&self, name: &str) -> String {
        format!("http://{}/{ACCOUNT}/{name}", self.address)
    }

    /// Creates a queue, which is in order if its name says so. Returns its URL.
    pub(super) fn create(&mut self, name: &str) -> String {
        let queue = Queue { is_fifo: name.ends_with(".fifo"), ..Queue::default() };
        self.all.insert(name.to_owned(), queue);
        self.url(name)
    }

    /// Returns a queue, by its URL or name.
    pub(super) fn named(&mut self, queue: &str) -> Result<&mut Queue, Refused> {
        let name = queue.rsplit('/').next().unwrap_or_default();
        self.all.get_mut(name).ok_or_else(|| {
            Refused::new("com.amazonaws.sqs#QueueDoesNotExist", "The specified queue does not exist.")
        })
    }

    /// Returns the queue that a request names.
    pub(super) fn of(&mut self, body: &Value) -> Result<&mut Queue, Refused> {
        self.named(body["QueueUrl"].as_str().unwrap_or_default())
    }

    /// Calls an action, but for `ReceiveMessage`.
    pub(super) fn call(&mut self, action: &str, body: &Value) -> Done {
        let now = Instant::now();
        match action {
            "GetQueueUrl" => {
                let name = body["QueueName"].as_str().unwrap_or_default();
                self.named(name)?;
                Ok(json!({ "QueueUrl": self.url(name) }))
            }
            "GetQueueAttributes" => Ok(self.of(body)?.attributes(body, now)),
            "SendMessageBatch" => self.of(body)?.send_batch(body, now),
            "DeleteMessageBatch" => self.of(body)?.delete_batch(body, now),
            "ChangeMessageVisibilityBatch" => self.of(body)?.change_batch(body, now),
            _ => Err(Refused::unknown(action)),
        }
    }
}

impl Queue {
    /// Returns all messages that were ever sent, as they were sent, but without those that were recognised.
    pub(super) fn sent(&self) -> &[Value] {
        &self.sent
    }

    /// Returns how many messages can be received, and how many were and are not deleted.
    pub(super) fn counts(&self, now: Instant) -> (usize, usize) {
        let visible = self.messages.iter().filter(|message| message.is_visible(now)).count();
        (visible, self.messages.len() - visible)
    }

    fn attributes(&self, body: &Value, now: Instant) -> Value {
        let (visible, hidden) = self.counts(now);
        let all = json!({
            "QueueArn": format!("arn:aws:sqs:{REGION}:{ACCOUNT}:queue"),
            "ApproximateNumberOfMessages": visible.to_string(),
            "ApproximateNumberOfMessagesNotVisible": hidden.to_string(),
            "ApproximateNumberOfMessagesDelayed": "0",
        });
        json!({ "Attributes": wanted(&all, &body["AttributeNames"]) })
    }

    fn send_batch(&mut self, body: &Value, now: Instant) -> Done {
        let entries = entries(body)?;
        let bytes = entries.iter().map(|(_, entry)| entry["MessageBody"].as_str().map_or(0, str::len));
        if bytes.sum::<usize>() > MOST_BYTES {
            return Err(Refused::new("com.amazonaws.sqs#BatchRequestTooLong", "more than 1048576 bytes"));
        }
        Ok(answer(entries.into_iter().map(|(id, entry)| (id, self.send(entry, now)))))
    }

    /// Takes a message, unless it was sent before. Returns the members of the answer.
    pub(super) fn send(&mut self, entry: &Value, now: Instant) -> Result<Value, &'static str> {
        if entry["MessageBody"].as_str().is_none_or(str::is_empty) {
            return Err("MissingParameter");
        }
        let (group, id) = (entry["MessageGroupId"].as_str(), entry["MessageDeduplicationId"].as_str());
        self.count += 1;
        let own = format!("message-{}", self.count);
        if self.is_fifo {
            let (Some(_), Some(id)) = (group, id) else { return Err("MissingParameter") };
            self.known.retain(|_, (at, _)| now.duration_since(*at) < RECOGNISED);
            if let Some((_, own)) = self.known.get(id) {
                return Ok(json!({ "MessageId": own }));
            }
            self.known.insert(id.to_owned(), (now, own.clone()));
        }
        let sent = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        self.sent.push(entry.clone());
        self.messages.push_back(Message {
            id: own.clone(),
            entry: entry.clone(),
            sent,
            sequence: self.count,
            deliveries: 0,
            handle: None,
            hidden_until: now,
        });
        Ok(json!({ "MessageId": own }))
    }

    /// Returns the places of messages that can be received. Of a group with a message on its way, none can.
    fn ready(&self, now: Instant, most: usize) -> Vec<usize> {
        let hidden = self.messages.iter().filter(|message| !message.is_visible(now));
        let blocked: HashSet<&str> = match self.is_fifo {
            true => hidden.filter_map(Message::group).collect(),
            false => HashSet::new(),
        };
        let is_ready = |message: &Message| {
            message.is_visible(now) && message.group().is_none_or(|group| !blocked.contains(group))
        };
        let ready = self.messages.iter().enumerate().filter(|&(_, message)| is_ready(message));
        ready.map(|(place, _)| place).take(most).collect()
    }

    /// True if a message can be received.
    pub(super) fn has_some(&self, now: Instant) -> bool {
        !self.ready(now, 1).is_empty()
    }

    /// Delivers messages.
    pub(super) fn receive(&mut self, body: &Value, now: Instant) -> Value {
        let most = body["MaxNumberOfMessages"].as_u64().unwrap_or(1).clamp(1, MOST_COUNT as u64);
        let hidden = Duration::from_secs(body["VisibilityTimeout"].as_u64().unwrap_or(HIDDEN));
        let is_fifo = self.is_fifo;
        let mut delivered = Vec::new();
        for place in self.ready(now, most as usize) {
            let message = &mut self.messages[place];
            message.deliveries += 1;
            message.handle = Some(format!("{}/{}", message.id, message.deliveries));
            message.hidden_until = now + hidden;
            delivered.push(message.shown(body, is_fifo));
        }
        json!({ "Messages": delivered })
    }

    /// Returns the place of the message whose last delivery had this handle.
    fn place(&self, entry: &Value) -> Option<usize> {
        let handle = entry["ReceiptHandle"].as_str()?;
        self.messages.iter().position(|message| message.handle.as_deref() == Some(handle))
    }

    fn delete_batch(&mut self, body: &Value, now: Instant) -> Done {
        let entries = entries(body)?;
        Ok(answer(entries.into_iter().map(|(id, entry)| {
            let fate = match self.place(entry) {
                Some(place) if self.is_fifo && self.messages[place].is_visible(now) => {
                    Err("ReceiptHandleIsInvalid")
                }
                Some(place) => {
                    self.messages.remove(place);
                    Ok(json!({}))
                }
                None => Ok(json!({})),
            };
            (id, fate)
        })))
    }

    fn change_batch(&mut self, body: &Value, now: Instant) -> Done {
        let entries = entries(body)?;
        Ok(answer(entries.into_iter().map(|(id, entry)| {
            let seconds = entry["VisibilityTimeout"].as_u64().unwrap_or(HIDDEN);
            let fate = match self.place(entry) {
                Some(place) if !self.messages[place].is_visible(now) => {
                    self.messages[place].hidden_until = now + Duration::from_secs(seconds);
                    Ok(json!({}))
                }
                Some(_) => Err("MessageNotInflight"),
                None => Err("ReceiptHandleIsInvalid"),
            };
            (id, fate)
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bodies(received: &Value) -> Vec<&str> {
        let all = received["Messages"].as_array().into_iter().flatten();
        all.filter_map(|message| message["Body"].as_str()).collect()
    }

    fn queue(is_fifo: bool, texts: &[&str]) -> Queue {
        let mut queue = Queue { is_fifo, ..Queue::default() };
        for text in texts {
            let entry =
                json!({ "MessageBody": text, "MessageGroupId": &text[..1], "MessageDeduplicationId": text });
            queue.send(&entry, Instant::now()).unwrap();
        }
        queue
    }

    #[test]
    fn a_group_waits_for_its_messages_that_are_on_their_way_and_comes_again_in_order() {
        let mut queue = queue(true, &["a1", "a2", "a3", "b1", "a1"]);
        assert_eq!(queue.sent().len(), 4);
        let (now, two) = (Instant::now(), json!({ "MaxNumberOfMessages": 2, "VisibilityTimeout": 10 }));
        assert_eq!(bodies(&queue.receive(&two, now)), ["a1", "a2"]);
        assert_eq!(bodies(&queue.receive(&two, now)), ["b1"]);
        assert_eq!(queue.counts(now), (1, 3));
        let later = now + Duration::from_secs(10);
        let all = json!({ "MaxNumberOfMessages": 10 });
        assert_eq!(bodies(&queue.receive(&all, later)), ["a1", "a2", "a3", "b1"]);
    }

    #[test]
    fn only_the_last_handle_deletes_a_message() {
        let mut queue = queue(false, &["a"]);
        let (now, hidden) = (Instant::now(), json!({ "VisibilityTimeout": 1 }));
        let handle = |received: &Value| received["Messages"][0]["ReceiptHandle"].clone();
        let first = handle(&queue.receive(&hidden, now));
        let later = now + Duration::from_secs(2);
        let second = handle(&queue.receive(&hidden, later));
        let delete = |handle: &Value| json!({ "Entries": [{ "Id": "0", "ReceiptHandle": handle }] });
        let answer = queue.delete_batch(&delete(&first), later).ok().unwrap();
        assert_eq!((answer["Successful"][0]["Id"].as_str(), queue.counts(later)), (Some("0"), (0, 1)));
        queue.delete_batch(&delete(&second), later).ok().unwrap();
        assert_eq!(queue.counts(later), (0, 0));
    }
}
