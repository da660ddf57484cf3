//! Delivery streams of Firehose, which join the data of records.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Done, Refused};

/// The most records of a request, the most bytes of all, and of one.
const MOST_COUNT: usize = 500;
const MOST_BYTES: usize = 4 << 20;
const MOST_RECORD: usize = 1000 << 10;

/// All delivery streams, with what they have got.
#[derive(Default)]
pub(super) struct DeliveryStreams {
    all: HashMap<String, Vec<u8>>,
}

impl DeliveryStreams {
    pub(super) fn create(&mut self, name: &str) {
        self.all.insert(name.to_owned(), Vec::new());
    }

    /// Returns what a delivery stream has got.
    pub(super) fn delivered(&self, name: &str) -> Vec<u8> {
        self.all.get(name).cloned().unwrap_or_default()
    }

    /// Calls an action.
    pub(super) fn call(&mut self, action: &str, body: &Value) -> Done {
        let name = body["DeliveryStreamName"].as_str().unwrap_or_default();
        let delivered = self.all.get_mut(name).ok_or_else(|| {
            Refused::new("ResourceNotFoundException", &format!("the delivery stream `{name}` does not exist"))
        })?;
        match action {
            "DescribeDeliveryStream" => {
                Ok(json!({ "DeliveryStreamDescription": { "DeliveryStreamStatus": "ACTIVE" } }))
            }
            "PutRecordBatch" => put(delivered, body),
            _ => Err(Refused::unknown(action)),
        }
    }
}

fn put(delivered: &mut Vec<u8>, body: &Value) -> Done {
    let records = body["Records"].as_array().into_iter().flatten();
    let data: Option<Vec<Vec<u8>>> =
        records.map(|record| STANDARD.decode(record["Data"].as_str()?).ok()).collect();
    let data = data.ok_or_else(|| Refused::new("SerializationException", "a record has data in base64"))?;
    let bytes = data.iter().map(Vec::len).sum::<usize>();
    let is_large = data.iter().any(|data| data.len() > MOST_RECORD);
    if data.is_empty() || data.len() > MOST_COUNT || bytes > MOST_BYTES || is_large {
        let message = "a request has from 1 to 500 records, of 1000 KiB, and 4 MiB in all";
        return Err(Refused::new("InvalidArgumentException", message));
    }
    delivered.extend(data.iter().flatten());
    let answers = vec![json!({ "RecordId": "r" }); data.len()];
    Ok(json!({ "FailedPutCount": 0, "RequestResponses": answers }))
}
