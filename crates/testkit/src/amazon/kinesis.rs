//! Streams of Kinesis: shards with numbered records, that are divided and then continued by others.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Done, Refused};

/// The most records of a request, and the most bytes of one, in base64.
const MOST_COUNT: usize = 500;
const MOST_RECORD: usize = 10 << 20;
/// The most bytes of the records of an answer, in base64.
const MOST_ANSWER: usize = 13 << 20;
/// The shards of a page of a listing. The service has a thousand, and a test a few.
const PAGE: usize = 2;

/// All streams.
#[derive(Default)]
pub(super) struct Streams {
    all: HashMap<String, Stream>,
}

/// A stream.
#[derive(Default)]
pub(super) struct Stream {
    shards: Vec<Shard>,
    /// The number of the last record.
    last: u64,
}

struct Shard {
    id: String,
    parent: Option<String>,
    /// The hashes of its keys, from the first to the last.
    hashes: (u128, u128),
    /// The number of the last record, if it is closed.
    ending: Option<String>,
    records: Vec<Record>,
}

struct Record {
    number: String,
    key: String,
    /// In base64.
    data: String,
    /// In milliseconds since 1970.
    arrived: u64,
}

fn absent(name: &str) -> Refused {
    Refused::new("ResourceNotFoundException", &format!("the stream or shard `{name}` does not exist"))
}

/// Returns the hash of a key, which decides its shard. The service takes another one.
fn hash(key: &str) -> u128 {
    let digest = Sha256::digest(key);
    digest.iter().take(16).fold(0, |hash, byte| (hash << 8) | u128::from(*byte))
}

impl Streams {
    /// Creates a stream with this number of shards.
    pub(super) fn create(&mut self, name: &str, shards: u32) {
        let mut stream = Stream::default();
        let width = u128::MAX / u128::from(shards.max(1));
        for number in 0..shards {
            let first = width * u128::from(number);
            let last = if number + 1 == shards { u128::MAX } else { first + width - 1 };
            stream.add(None, (first, last));
        }
        self.all.insert(name.to_owned(), stream);
    }

    /// Returns a stream.
    pub(super) fn named(&mut self, name: &str) -> Result<&mut Stream, Refused> {
        self.all.get_mut(name).ok_or_else(|| absent(name))
    }

    /// Calls an action.
    pub(super) fn call(&mut self, action: &str, body: &Value) -> Done {
        match action {
            "GetRecords" => return self.records(body),
            "ListShards" if body["NextToken"].is_string() => return self.list(body),
            _ => {}
        }
        let arn = body["StreamARN"].as_str().and_then(|arn| arn.rsplit('/').next());
        let name = arn.or_else(|| body["StreamName"].as_str()).unwrap_or_default().to_owned();
        let stream = self.named(&name)?;
        match action {
            "DescribeStreamSummary" => Ok(json!({
                "StreamDescriptionSummary": { "StreamName": name, "StreamStatus": "ACTIVE" },
            })),
            "ListShards" => self.list(&json!({ "NextToken": format!("{name}|0") })),
            "GetShardIterator" => stream.iterator(&name, body),
            "PutRecords" => stream.put_records(body),
            _ => Err(Refused::unknown(action)),
        }
    }

    fn list(&mut self, body: &Value) -> Done {
        let token = body["NextToken"].as_str().unwrap_or_default();
        let (name, from) = token.split_once('|').unwrap_or((token, ""));
        let from: usize = from.parse().unwrap_or(0);
        let stream = self.named(name)?;
        let shards: Vec<Value> = stream.shards.iter().skip(from).take(PAGE).map(Shard::shown).collect();
        let mut answer = json!({ "Shards": shards });
        if from + PAGE < stream.shards.len() {
            answer["NextToken"] = json!(format!("{name}|{}", from + PAGE));
        }
        Ok(answer)
    }

    fn records(&mut self, body: &Value) -> Done {
        let iterator = body["ShardIterator"].as_str().unwrap_or_default();
        let parts: Vec<&str> = iterator.split('|').collect();
        let [name, shard, from] = parts[..] else {
            return Err(Refused::new("InvalidArgumentException", "this is no iterator"));
        };
        let (shard, from) = (self.named(name)?.shard(shard)?, from.parse::<usize>().unwrap_or(0));
        let most = body["Limit"].as_u64().unwrap_or(10_000) as usize;
        let (mut records, mut bytes) = (Vec::new(), 0);
        for record in shard.records.iter().skip(from).take(most) {
            bytes += record.data.len();
            if bytes > MOST_ANSWER && !records.is_empty() {
                break;
            }
            records.push(record.shown());
        }
        let next = from + records.len();
        let is_at_end = next >= shard.records.len();
        let mut answer =
            json!({ "Records": records, "MillisBehindLatest": if is_at_end { 0 } else { 1000 } });
        if !is_at_end || shard.ending.is_none() {
            answer["NextShardIterator"] = json!(format!("{name}|{}|{next}", shard.id));
        }
        Ok(answer)
    }
}

impl Shard {
    fn shown(&self) -> Value {
        let mut shown = json!({
            "ShardId": self.id,
            "HashKeyRange": {
                "StartingHashKey": self.hashes.0.to_string(),
                "EndingHashKey": self.hashes.1.to_string(),
            },
            "SequenceNumberRange": { "StartingSequenceNumber": "0" },
        });
        if let Some(parent) = &self.parent {
            shown["ParentShardId"] = json!(parent);
        }
        if let Some(ending) = &self.ending {
            shown["SequenceNumberRange"]["EndingSequenceNumber"] = json!(ending);
        }
        shown
    }
}

impl Record {
    fn shown(&self) -> Value {
        json!({
            "SequenceNumber": self.number,
            "PartitionKey": self.key,
            "Data": self.data,
            "ApproximateArrivalTimestamp": self.arrived as f64 / 1000.0,
            "EncryptionType": "NONE",
        })
    }
}

impl Stream {
    fn add(&mut self, parent: Option<String>, hashes: (u128, u128)) {
        let id = format!("shardId-{:012}", self.shards.len());
        self.shards.push(Shard { id, parent, hashes, ending: None, records: Vec::new() });
    }

    fn shard(&mut self, id: &str) -> Result<&mut Shard, Refused> {
        self.shards.iter_mut().find(|shard| shard.id == id).ok_or_else(|| absent(id))
    }

    /// Returns the keys and the data of all records in base64, shard by shard.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        let records = self.shards.iter().flat_map(|shard| &shard.records);
        records.map(|record| (record.key.as_str(), record.data.as_str()))
    }

    /// Divides a shard in the middle of its hashes: it is closed, and two others continue it.
    pub(super) fn split(&mut self, id: &str) -> Result<(), Refused> {
        let last = number(self.last);
        let shard = self.shard(id)?;
        shard.ending = Some(last);
        let (first, last) = shard.hashes;
        let middle = first + (last - first) / 2;
        self.add(Some(id.to_owned()), (first, middle));
        self.add(Some(id.to_owned()), (middle + 1, last));
        Ok(())
    }

    /// Puts a record into the open shard of its key. Returns the ids of the shard and of the record.
    pub(super) fn put(&mut self, key: &str, data: &str) -> Result<(String, String), Refused> {
        if key.is_empty() || data.len() > MOST_RECORD {
            return Err(Refused::new("ValidationException", "a record has a key, and at most 10 MiB"));
        }
        let (hash, since) = (hash(key), SystemTime::now().duration_since(UNIX_EPOCH));
        let arrived = since.unwrap_or_default().as_millis() as u64;
        self.last += 1;
        let number = number(self.last);
        let is_of =
            |shard: &&mut Shard| shard.ending.is_none() && (shard.hashes.0..=shard.hashes.1).contains(&hash);
        let shard = self.shards.iter_mut().find(is_of).ok_or_else(|| absent(key))?;
        let (key, data) = (key.to_owned(), data.to_owned());
        shard.records.push(Record { number: number.clone(), key, data, arrived });
        Ok((shard.id.clone(), number))
    }

    fn put_records(&mut self, body: &Value) -> Done {
        let records = body["Records"].as_array().map(Vec::as_slice).unwrap_or_default();
        if records.is_empty() || records.len() > MOST_COUNT {
            return Err(Refused::new("ValidationException", "a request has from 1 to 500 records"));
        }
        let mut answers = Vec::with_capacity(records.len());
        for record in records {
            let text = |name: &str| record[name].as_str().unwrap_or_default();
            let (shard, number) = self.put(text("PartitionKey"), text("Data"))?;
            answers.push(json!({ "ShardId": shard, "SequenceNumber": number }));
        }
        Ok(json!({ "FailedRecordCount": 0, "Records": answers }))
    }

    fn iterator(&mut self, name: &str, body: &Value) -> Done {
        let id = body["ShardId"].as_str().unwrap_or_default();
        let records = &self.shard(id)?.records;
        let count = |is_before: &dyn Fn(&Record) -> bool| records.iter().filter(|one| is_before(one)).count();
        let from = match body["ShardIteratorType"].as_str().unwrap_or_default() {
            "TRIM_HORIZON" => 0,
            "LATEST" => records.len(),
            "AT_TIMESTAMP" => {
                let time = body["Timestamp"].as_f64().unwrap_or(0.0) * 1000.0;
                count(&|record| (record.arrived as f64) < time)
            }
            "AFTER_SEQUENCE_NUMBER" => {
                let after = body["StartingSequenceNumber"].as_str().unwrap_or_default();
                count(&|record| record.number.as_str() <= after)
            }
            other => return Err(Refused::new("InvalidArgumentException", &format!("no type `{other}`"))),
        };
        Ok(json!({ "ShardIterator": format!("{name}|{id}|{from}") }))
    }
}

/// Returns the number of a record as a text, whose order is that of the numbers.
fn number(number: u64) -> String {
    format!("4{number:054}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_that_was_divided_ends_and_others_get_the_records_that_follow() {
        let mut streams = Streams::default();
        streams.create("s", 1);
        let stream = streams.named("s").ok().unwrap();
        let (first, _) = stream.put("a", "YQ==").ok().unwrap();
        stream.split(&first).ok().unwrap();
        let (second, _) = stream.put("a", "Yg==").ok().unwrap();
        assert_ne!(first, second);
        let body = json!({ "StreamName": "s", "ShardId": first, "ShardIteratorType": "TRIM_HORIZON" });
        let begun = streams.call("GetShardIterator", &body).ok().unwrap();
        let body = json!({ "ShardIterator": begun["ShardIterator"], "Limit": 10 });
        let page = streams.call("GetRecords", &body).ok().unwrap();
        assert_eq!(
            (page["Records"][0]["Data"].as_str(), &page["NextShardIterator"]),
            (Some("YQ=="), &Value::Null)
        );
        let listed = streams.call("ListShards", &json!({ "StreamName": "s" })).ok().unwrap();
        let rest = streams.call("ListShards", &json!({ "NextToken": listed["NextToken"] })).ok().unwrap();
        assert_eq!(listed["Shards"].as_array().unwrap().len() + rest["Shards"].as_array().unwrap().len(), 3);
        assert_eq!(rest["NextToken"], Value::Null);
    }
}
