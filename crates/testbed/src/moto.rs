//! Services of Amazon: moto, which keeps everything in memory.
//!
//! It is the only program that has Kinesis, Firehose, CloudWatch Logs, SQS and SNS together without a
//! container. It does not check signatures, loses everything when it is killed, and knows no overload: tests
//! let it [hang](crate::Server::hang), and put a [`Proxy`](crate::Proxy) before it.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::Tools;
use crate::ask::{ask, send};
use crate::relay::Relay;
use crate::server::{Recipe, Server};

/// A server of Amazon's services.
pub type Moto = Server<MotoServer>;

/// The kind of [`Moto`].
pub struct MotoServer;

/// The region of all calls.
const REGION: &str = "us-east-1";
/// How long a queue keeps from other readers what it has delivered to a test, in seconds.
const HIDDEN: u64 = 10_000;
/// The most bytes of messages that are sent to a queue together.
const MOST_TOGETHER: usize = 800_000;

impl Moto {
    /// Starts a server; this takes about two seconds.
    ///
    /// # Errors
    /// If it is not installed or does not start.
    pub fn start() -> io::Result<Self> {
        let server = Tools::find().moto_server()?;
        let command = move |address: SocketAddr, _: &Path| {
            let mut command = Command::new(&server);
            command.args(["-H", &address.ip().to_string(), "-p", &address.port().to_string()]);
            command
        };
        let is_ready = |address: SocketAddr, _: &str| {
            ask(address, "GET", "/moto-api/", &[]).is_ok_and(|(status, _)| status == 200)
        };
        let recipe = Recipe { is_ready, ..Recipe::new("moto_server", command) };
        Self::launch(recipe, Relay::start()?, MotoServer, |_, _| Ok(()))
    }

    /// Returns the options `region`, `url` and `auth` of a component, for a client at this address of the
    /// server.
    pub fn options(&self, address: SocketAddr) -> String {
        format!(
            "region: {REGION}, url: 'http://{address}', auth: {{ access_key_id: k, secret_access_key: s }}"
        )
    }

    /// Calls an action of a service that speaks JSON, such as `AmazonSQS.ReceiveMessage` of `sqs`.
    ///
    /// # Errors
    /// If the service refuses it, or cannot be reached.
    pub fn call(&self, service: &str, action: &str, body: &Value) -> io::Result<Value> {
        let kind = "Content-Type: application/x-amz-json-1.1".to_owned();
        let headers = [kind, format!("X-Amz-Target: {action}")];
        let answer = self.request(service, "POST", "/", &headers, body.to_string().as_bytes())?;
        match answer.is_empty() {
            true => Ok(Value::Null),
            false => serde_json::from_slice(&answer).map_err(io::Error::other),
        }
    }

    fn request(
        &self,
        service: &str,
        method: &str,
        target: &str,
        headers: &[String],
        body: &[u8],
    ) -> io::Result<Vec<u8>> {
        // The service is found by the scope of the signature, which is not checked.
        let scope = format!("k/20260101/{REGION}/{service}/aws4_request");
        let mut all = headers.to_vec();
        all.push(format!(
            "Authorization: AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0"
        ));
        all.push(format!("Content-Length: {}", body.len()));
        let (status, answer) = send(self.address(), method, target, &all, body)?;
        match status {
            200..=299 => Ok(answer),
            _ => {
                let text = String::from_utf8_lossy(&answer).into_owned();
                Err(io::Error::other(format!("`{service}` answered {status}: {text}")))
            }
        }
    }
}

/// Queues.
impl Moto {
    /// Creates a queue with these attributes. Returns its URL.
    ///
    /// # Errors
    /// If that fails.
    pub fn create_queue(&self, name: &str, attributes: &Value) -> io::Result<String> {
        let body = json!({ "QueueName": name, "Attributes": attributes });
        let made = self.call("sqs", "AmazonSQS.CreateQueue", &body)?;
        text(&made["QueueUrl"])
    }

    /// Sends messages to a queue; to one in order, all in the group `g`.
    ///
    /// # Errors
    /// If that fails.
    pub fn enqueue(&self, queue: &str, texts: impl IntoIterator<Item = String>) -> io::Result<()> {
        let (mut entries, mut size) = (Vec::new(), 0);
        for text in texts {
            if entries.len() == 10 || size + text.len() > MOST_TOGETHER {
                self.send_batch(queue, &mut entries)?;
                size = 0;
            }
            size += text.len();
            let mut entry = json!({ "Id": entries.len().to_string(), "MessageBody": text });
            if queue.ends_with(".fifo") {
                entry["MessageGroupId"] = json!("g");
                entry["MessageDeduplicationId"] = json!(text);
            }
            entries.push(entry);
        }
        self.send_batch(queue, &mut entries)
    }

    fn send_batch(&self, queue: &str, entries: &mut Vec<Value>) -> io::Result<()> {
        let entries = std::mem::take(entries);
        if entries.is_empty() {
            return Ok(());
        }
        let body = json!({ "QueueUrl": queue, "Entries": entries });
        self.call("sqs", "AmazonSQS.SendMessageBatch", &body).map(drop)
    }

    /// Returns the messages of a queue that this did not return before. They stay in the queue, hidden: a
    /// deletion could lose a message that is being sent.
    ///
    /// # Errors
    /// If that fails.
    pub fn dequeue(&self, queue: &str) -> io::Result<Vec<Value>> {
        let body = json!({
            "QueueUrl": queue, "MaxNumberOfMessages": 10, "WaitTimeSeconds": 0, "VisibilityTimeout": HIDDEN,
            "MessageSystemAttributeNames": ["All"], "MessageAttributeNames": ["All"],
        });
        let mut all = Vec::new();
        loop {
            let mut received = self.call("sqs", "AmazonSQS.ReceiveMessage", &body)?;
            match received["Messages"].as_array_mut() {
                Some(messages) if !messages.is_empty() => all.append(messages),
                _ => return Ok(all),
            }
        }
    }

    /// Returns how many messages of a queue can be received, and how many were and are not deleted.
    ///
    /// # Errors
    /// If that fails.
    pub fn queued(&self, queue: &str) -> io::Result<(u64, u64)> {
        let body = json!({ "QueueUrl": queue, "AttributeNames": ["All"] });
        let answer = self.call("sqs", "AmazonSQS.GetQueueAttributes", &body)?;
        let number = |name: &str| {
            let value = &answer["Attributes"][name];
            value.as_str().and_then(|text| text.parse().ok()).or_else(|| value.as_u64()).unwrap_or(0)
        };
        Ok((number("ApproximateNumberOfMessages"), number("ApproximateNumberOfMessagesNotVisible")))
    }
}

/// Topics.
impl Moto {
    /// Creates a topic, and a queue of the same name that gets its messages as they are. Returns the ARN of
    /// the topic and the URL of the queue.
    ///
    /// # Errors
    /// If that fails.
    pub fn create_topic(&self, name: &str) -> io::Result<(String, String)> {
        let is_fifo = name.ends_with(".fifo");
        let attributes = if is_fifo { json!({ "FifoQueue": "true" }) } else { json!({}) };
        let queue = self.create_queue(name, &attributes)?;
        let fifo =
            if is_fifo { "&Attributes.entry.1.key=FifoTopic&Attributes.entry.1.value=true" } else { "" };
        let made = self.form(&format!("Action=CreateTopic&Name={name}{fifo}"))?;
        let topic = between(&made, "<TopicArn>", "</TopicArn>")?;
        let endpoint = topic.replace(":sns:", ":sqs:");
        self.form(&format!(
            "Action=Subscribe&TopicArn={topic}&Protocol=sqs&Endpoint={endpoint}\
             &Attributes.entry.1.key=RawMessageDelivery&Attributes.entry.1.value=true"
        ))?;
        Ok((topic, queue))
    }

    fn form(&self, form: &str) -> io::Result<String> {
        let headers = ["Content-Type: application/x-www-form-urlencoded".to_owned()];
        let form = format!("{}&Version=2010-03-31", form.replace(':', "%3A"));
        let answer = self.request("sns", "POST", "/", &headers, form.as_bytes())?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

/// Streams.
impl Moto {
    /// Creates a stream with this number of shards.
    ///
    /// # Errors
    /// If that fails.
    pub fn create_stream(&self, name: &str, shards: u32) -> io::Result<()> {
        let body = json!({ "StreamName": name, "ShardCount": shards });
        self.call("kinesis", "Kinesis_20131202.CreateStream", &body).map(drop)
    }

    /// Puts records into a stream, each with its partition key.
    ///
    /// # Errors
    /// If that fails.
    pub fn put_records<'a>(
        &self,
        stream: &str,
        records: impl IntoIterator<Item = (&'a str, String)>,
    ) -> io::Result<()> {
        let records: Vec<Value> = records
            .into_iter()
            .map(|(key, data)| json!({ "PartitionKey": key, "Data": STANDARD.encode(data) }))
            .collect();
        for records in records.chunks(20) {
            let body = json!({ "StreamName": stream, "Records": records });
            self.call("kinesis", "Kinesis_20131202.PutRecords", &body)?;
        }
        Ok(())
    }

    /// Returns the ids of the shards of a stream.
    ///
    /// # Errors
    /// If that fails.
    pub fn shards(&self, stream: &str) -> io::Result<Vec<String>> {
        let body = json!({ "StreamName": stream });
        let listed = self.call("kinesis", "Kinesis_20131202.ListShards", &body)?;
        let shards = listed["Shards"].as_array().into_iter().flatten();
        shards.map(|shard| text(&shard["ShardId"])).collect()
    }

    /// Returns the records of a stream, shard by shard, each with its partition key.
    ///
    /// # Errors
    /// If that fails.
    pub fn records(&self, stream: &str) -> io::Result<Vec<(String, Vec<u8>)>> {
        let mut all = Vec::new();
        for shard in self.shards(stream)? {
            let body = json!({ "StreamName": stream, "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON" });
            let begun = self.call("kinesis", "Kinesis_20131202.GetShardIterator", &body)?;
            let mut iterator = begun["ShardIterator"].clone();
            loop {
                let body = json!({ "ShardIterator": iterator, "Limit": 1000 });
                let got = self.call("kinesis", "Kinesis_20131202.GetRecords", &body)?;
                let records = got["Records"].as_array().cloned().unwrap_or_default();
                if records.is_empty() {
                    break;
                }
                for record in records {
                    let data = STANDARD.decode(text(&record["Data"])?).map_err(io::Error::other)?;
                    all.push((text(&record["PartitionKey"])?, data));
                }
                iterator = got["NextShardIterator"].clone();
            }
        }
        Ok(all)
    }

    /// Divides a shard in the middle of its keys.
    ///
    /// # Errors
    /// If that fails.
    pub fn split_shard(&self, stream: &str, shard: &str) -> io::Result<()> {
        let half = (u128::MAX / 2).to_string();
        let body = json!({ "StreamName": stream, "ShardToSplit": shard, "NewStartingHashKey": half });
        self.call("kinesis", "Kinesis_20131202.SplitShard", &body).map(drop)
    }
}

/// Delivery streams and logs.
impl Moto {
    /// Creates a delivery stream that writes into a bucket of the same name.
    ///
    /// # Errors
    /// If that fails.
    pub fn create_delivery_stream(&self, name: &str) -> io::Result<()> {
        self.request("s3", "PUT", &format!("/{name}"), &[], &[])?;
        let body = json!({
            "DeliveryStreamName": name,
            "DeliveryStreamType": "DirectPut",
            "ExtendedS3DestinationConfiguration": {
                "RoleARN": "arn:aws:iam::123456789012:role/any",
                "BucketARN": format!("arn:aws:s3:::{name}"),
            },
        });
        self.call("firehose", "Firehose_20150804.CreateDeliveryStream", &body).map(drop)
    }

    /// Returns what a delivery stream has written, in any order of requests.
    ///
    /// # Errors
    /// If that fails.
    pub fn delivered(&self, name: &str) -> io::Result<Vec<u8>> {
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let target = format!("/{name}?list-type=2&start-after={after}");
            let listed = self.request("s3", "GET", &target, &[], &[])?;
            let listed = String::from_utf8_lossy(&listed).into_owned();
            let keys: Vec<&str> =
                listed.split("<Key>").skip(1).filter_map(|rest| rest.split("</Key>").next()).collect();
            let Some(last) = keys.last() else { return Ok(all) };
            for key in &keys {
                all.extend(self.request("s3", "GET", &format!("/{name}/{key}"), &[], &[])?);
            }
            after = (*last).to_owned();
        }
    }

    /// Returns the events of a log stream in the order of their times, each with its time in milliseconds
    /// since
    /// 1970. None if there is no such stream.
    ///
    /// # Errors
    /// If that fails.
    pub fn events(&self, group: &str, stream: &str) -> io::Result<Vec<(i64, String)>> {
        let mut body =
            json!({ "logGroupName": group, "logStreamName": stream, "startFromHead": true, "limit": 10_000 });
        let mut all = Vec::new();
        loop {
            let got = match self.call("logs", "Logs_20140328.GetLogEvents", &body) {
                Err(error) if error.to_string().contains("ResourceNotFound") => return Ok(all),
                got => got?,
            };
            let events = got["events"].as_array().cloned().unwrap_or_default();
            if events.is_empty() {
                return Ok(all);
            }
            for event in events {
                all.push((event["timestamp"].as_i64().unwrap_or(0), text(&event["message"])?));
            }
            body["nextToken"] = got["nextForwardToken"].clone();
        }
    }
}

fn text(value: &Value) -> io::Result<String> {
    value.as_str().map(str::to_owned).ok_or_else(|| io::Error::other(format!("`{value}` is no text")))
}

fn between(answer: &str, start: &str, end: &str) -> io::Result<String> {
    let found = answer.split(start).nth(1).and_then(|rest| rest.split(end).next());
    found.map(str::to_owned).ok_or_else(|| io::Error::other(format!("no `{start}` in `{answer}`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_service_keeps_what_it_is_given() {
        let moto = Moto::start().unwrap();
        let queue = moto.create_queue("q", &json!({})).unwrap();
        moto.enqueue(&queue, ["one".to_owned(), "two".to_owned()]).unwrap();
        assert_eq!(moto.queued(&queue).unwrap(), (2, 0));
        let received = moto.dequeue(&queue).unwrap();
        assert_eq!((&received[0]["Body"], &received[1]["Body"]), (&json!("one"), &json!("two")));
        assert_eq!((moto.dequeue(&queue).unwrap().len(), moto.queued(&queue).unwrap()), (0, (0, 2)));
        moto.create_stream("s", 2).unwrap();
        moto.put_records("s", [("k", "record".to_owned())]).unwrap();
        assert_eq!(moto.records("s").unwrap(), [("k".to_owned(), b"record".to_vec())]);
        assert_eq!(moto.shards("s").unwrap().len(), 2);
        moto.create_delivery_stream("delivery").unwrap();
        assert_eq!(moto.delivered("delivery").unwrap(), b"");
        assert_eq!(moto.events("g", "none").unwrap(), []);
        let (topic, _) = moto.create_topic("t").unwrap();
        assert!(topic.ends_with(":t"), "{topic}");
        assert!(
            moto.call("sqs", "AmazonSQS.ReceiveMessage", &json!({ "QueueUrl": "http://x/1/none" })).is_err()
        );
    }
}
