//! The parsers of this crate that fuzz targets reach only from here.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use reqwest::header::HeaderMap;
use reqwest::{Client, Method, StatusCode};

use crate::requests::{Answer, Compression, Endpoint, Parts, Reading, Request, Service, Verdict};
use crate::sinks::{
    clickhouse, datadog_logs, elasticsearch, influxdb, loki, otlp, prometheus_remote_write, splunk_hec,
};
use crate::tls::TlsClient;

/// Reads the answer of a store to a request of this many messages, for each of the stores. Returns the
/// numbers of messages that are delivered, refused, and to be sent again. Nothing if the answer cannot be
/// one.
pub fn store_answer(status: u16, headers: &HeaderMap, body: &[u8], messages: usize) -> Vec<[usize; 3]> {
    let Some((request, answer)) = answered(status, headers, body) else { return Vec::new() };
    let mut parts = Parts::default();
    (0..messages).for_each(|_| parts.push(b"a b=1\n"));
    let export = otlp::Export { name: "otlp".to_owned() };
    let services: [&dyn Service; 8] = [
        &elasticsearch::Bulk { has_one_index: false },
        &clickhouse::Inserts::new(true),
        &loki::Push,
        &influxdb::Write,
        &splunk_hec::Collector::without_acks(),
        &datadog_logs::Intake,
        &prometheus_remote_write::Receiver,
        &export,
    ];
    services.map(|service| counts(service.read(&request, &answer, &parts), messages)).to_vec()
}

/// Returns a request that is never sent, and an answer to it. None if the answer cannot be one.
pub fn answered(status: u16, headers: &HeaderMap, body: &[u8]) -> Option<(Request, Answer)> {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    let status = StatusCode::from_u16(status).ok()?;
    let (none, tls) = (BTreeMap::new(), TlsClient::default());
    let (url, timeout) = ("http://127.0.0.1:1", Duration::from_secs(1));
    let endpoint = Endpoint { url, headers: &none, auth: None, timeout, tls: &tls };
    let request = endpoint.request(Method::POST, HeaderMap::new(), Compression::None, 1 << 20, &CLIENT);
    let (headers, body, own) = (headers.clone(), body.to_vec(), HeaderMap::new());
    Some((request.ok()?, Answer { status, headers, body, is_whole: true, own }))
}

/// Counts the messages that are delivered, refused, and to be sent again.
pub fn counts(reading: Reading, messages: usize) -> [usize; 3] {
    let mut counts = [0; 3];
    match reading {
        Reading::Accepted | Reading::Unconfirmed(_) => counts[0] = messages,
        Reading::Refused(_) | Reading::RefusedAt { .. } => counts[1] = messages,
        Reading::Again(_) => counts[2] = messages,
        Reading::Each(verdicts) => verdicts.iter().for_each(|verdict| match verdict {
            Verdict::Delivered => counts[0] += 1,
            Verdict::Rejected(_) => counts[1] += 1,
            Verdict::Again(_) => counts[2] += 1,
        }),
    }
    counts
}
