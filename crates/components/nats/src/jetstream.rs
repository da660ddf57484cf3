//! The requests of JetStream that this program sends: about a stream, and about a consumer, which it creates.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use thalweg_engine::Error;
use thalweg_redact::{foreign, redacted_start};

use crate::connection::Connection;

/// The bytes of a text of the server that an error shows.
const SHOWN: usize = 300;

/// The subjects of JetStream.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    prefix: String,
}

/// The server has refused a request.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Refusal {
    /// As in HTTP.
    #[serde(default)]
    pub(crate) code: u16,
    /// The number of the error among those of JetStream.
    #[serde(default)]
    pub(crate) err_code: u64,
    #[serde(default)]
    description: String,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (error {})", shown(&self.description), self.err_code)
    }
}

impl std::error::Error for Refusal {}

/// Returns the beginning of a text of the server, for an error. Secrets are replaced before it is cut.
pub(crate) fn shown(text: &str) -> String {
    foreign(&redacted_start(text, SHOWN)).into_owned()
}

/// The reason why a request has no result.
#[derive(Debug)]
pub(crate) enum Failure {
    Refused(Refusal),
    /// There was no answer, or none that can be understood.
    Unanswered(Error),
}

/// The server's description of a consumer, as far as it is used.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ConsumerInfo {
    /// When it was created, as a text.
    #[serde(default)]
    created: String,
    pub(crate) config: ConsumerConfig,
    #[serde(default)]
    pub(crate) ack_floor: Floor,
    /// The number of messages without an acknowledgement.
    #[serde(default)]
    pub(crate) num_ack_pending: usize,
    /// The number of messages that are to be delivered.
    #[serde(default)]
    pub(crate) num_pending: u64,
}

/// How far a consumer is.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Floor {
    /// All messages of the stream up to this number are acknowledged.
    #[serde(default)]
    pub(crate) stream_seq: u64,
}

/// The configuration of a consumer that exists. Times are in nanoseconds.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ConsumerConfig {
    /// Where the server sends the messages to without being asked.
    pub(crate) deliver_subject: Option<String>,
    pub(crate) ack_policy: String,
    ack_wait: i64,
    /// The number of messages that may be without an acknowledgement.
    pub(crate) max_ack_pending: i64,
    pub(crate) max_batch: i64,
    pub(crate) max_bytes: i64,
    max_expires: i64,
}

impl ConsumerInfo {
    /// Returns when the consumer was created, in one form, however the server writes it.
    pub(crate) fn created(&self) -> String {
        match DateTime::parse_from_rfc3339(&self.created) {
            Ok(time) => time.with_timezone(&Utc).to_rfc3339_opts(SecondsFormat::Nanos, true),
            Err(_) => self.created.clone(),
        }
    }
}

impl ConsumerConfig {
    /// Returns how long the server waits for an acknowledgement. `None` if it does not say it.
    pub(crate) fn ack_wait(&self) -> Option<Duration> {
        duration(self.ack_wait)
    }

    /// Returns how long a request may last. `None` if there is no limit.
    pub(crate) fn max_expires(&self) -> Option<Duration> {
        duration(self.max_expires)
    }
}

fn duration(nanoseconds: i64) -> Option<Duration> {
    u64::try_from(nanoseconds).ok().filter(|nanoseconds| *nanoseconds > 0).map(Duration::from_nanos)
}

/// A consumer to create.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct NewConsumer<'a> {
    pub(crate) durable_name: &'a str,
    pub(crate) deliver_policy: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) opt_start_seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) opt_start_time: Option<String>,
    pub(crate) ack_policy: &'static str,
    /// In nanoseconds.
    pub(crate) ack_wait: u64,
    pub(crate) replay_policy: &'static str,
    pub(crate) max_ack_pending: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) filter_subject: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub(crate) filter_subjects: &'a [String],
}

#[derive(Serialize)]
struct Creation<'a> {
    stream_name: &'a str,
    config: &'a NewConsumer<'a>,
}

/// A request for messages.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Pull {
    /// The number of messages.
    pub(crate) batch: usize,
    /// How long it lasts, in nanoseconds.
    pub(crate) expires: u64,
    /// The size of the messages. None for any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_bytes: Option<usize>,
}

/// The part of an answer that says that the request was refused.
#[derive(Deserialize)]
struct Refused {
    error: Option<Refusal>,
}

/// An answer of which only the success counts.
#[derive(Deserialize)]
struct Done {}

impl Api {
    /// The subjects of a domain. By default that of the server.
    pub(crate) fn new(domain: Option<&str>) -> Self {
        Self { prefix: domain.map_or("$JS.API".to_owned(), |domain| format!("$JS.{domain}.API")) }
    }

    /// Asks whether a stream exists.
    ///
    /// # Errors
    /// If it does not, or nothing answers.
    pub(crate) async fn find_stream(&self, connection: &Connection, stream: &str) -> Result<(), Failure> {
        let found: Result<Done, Failure> =
            self.ask(connection, &format!("STREAM.INFO.{stream}"), &json!({})).await;
        found.map(drop)
    }

    /// Asks about a consumer.
    ///
    /// # Errors
    /// If it does not exist, or nothing answers.
    pub(crate) async fn consumer(
        &self,
        connection: &Connection,
        stream: &str,
        name: &str,
    ) -> Result<ConsumerInfo, Failure> {
        self.ask(connection, &format!("CONSUMER.INFO.{stream}.{name}"), &json!({})).await
    }

    /// Creates a durable consumer.
    ///
    /// # Errors
    /// If the server refuses it, or nothing answers.
    pub(crate) async fn create_consumer(
        &self,
        connection: &Connection,
        stream: &str,
        config: &NewConsumer<'_>,
    ) -> Result<ConsumerInfo, Failure> {
        let name = config.durable_name;
        // The rights of a user may depend on the subject.
        let filter = config.filter_subject.map(|subject| format!(".{subject}")).unwrap_or_default();
        let creation = Creation { stream_name: stream, config };
        self.ask(connection, &format!("CONSUMER.CREATE.{stream}.{name}{filter}"), &creation).await
    }

    /// Returns the subject for requests for messages.
    pub(crate) fn pull(&self, stream: &str, name: &str) -> String {
        format!("{}.CONSUMER.MSG.NEXT.{stream}.{name}", self.prefix)
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        connection: &Connection,
        subject: &str,
        request: &impl Serialize,
    ) -> Result<T, Failure> {
        let subject = format!("{}.{subject}", self.prefix);
        let malformed = |error: serde_json::Error| {
            let error =
                Error::temporary(format!("the answer from `{subject}` cannot be read")).caused_by(error);
            Failure::Unanswered(error)
        };
        let payload = serde_json::to_vec(request).map_err(malformed)?;
        let answer = connection.request(&subject, &payload).await.map_err(Failure::Unanswered)?;
        match serde_json::from_slice::<Refused>(&answer.payload).map_err(malformed)?.error {
            Some(refusal) => Err(Failure::Refused(refusal)),
            None => serde_json::from_slice(&answer.payload).map_err(malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_of_a_consumer_is_read_and_the_rest_is_not_needed() {
        let info: ConsumerInfo = serde_json::from_str(
            r#"{"type":"x","stream_name":"S","name":"c","created":"2026-11-25T09:00:00.5+01:00",
                "config":{"durable_name":"c","ack_policy":"explicit","ack_wait":30000000000,"max_waiting":512,
                "max_expires":-1},"delivered":{"consumer_seq":1,"stream_seq":2},
                "ack_floor":{"consumer_seq":1,"stream_seq":7},"num_ack_pending":3,"num_pending":4}"#,
        )
        .unwrap();
        assert_eq!(info.created(), "2026-11-25T08:00:00.500000000Z");
        assert_eq!((info.ack_floor.stream_seq, info.num_ack_pending, info.num_pending), (7, 3, 4));
        assert_eq!(info.config.ack_wait(), Some(Duration::from_secs(30)));
        assert_eq!((info.config.max_expires(), info.config.deliver_subject), (None, None));
        let little: ConsumerInfo = serde_json::from_str(r#"{"config":{}}"#).unwrap();
        assert_eq!((little.created(), little.config.ack_policy.as_str()), (String::new(), ""));
    }

    #[test]
    fn of_a_long_description_the_beginning_is_shown_without_a_part_of_a_secret() {
        thalweg_redact::keep("a-secret-at-the-cut", Some("${PW}"));
        let description = format!("{}a-secret-at-the-cut{}", "x".repeat(SHOWN - 5), "y".repeat(500_000));
        let refusal = Refusal { code: 400, err_code: 7, description };
        assert_eq!(refusal.to_string(), format!("{}${{PW}} (error 7)", "x".repeat(SHOWN - 5)));
    }

    #[test]
    fn a_request_has_what_it_needs() {
        let new = NewConsumer {
            durable_name: "c",
            deliver_policy: "by_start_sequence",
            opt_start_seq: Some(7),
            opt_start_time: None,
            ack_policy: "explicit",
            ack_wait: 1,
            replay_policy: "instant",
            max_ack_pending: 5,
            filter_subject: Some("a.>"),
            filter_subjects: &[],
        };
        let expected = r#"{"stream_name":"S","config":{"durable_name":"c","deliver_policy":"by_start_sequence","opt_start_seq":7,"ack_policy":"explicit","ack_wait":1,"replay_policy":"instant","max_ack_pending":5,"filter_subject":"a.>"}}"#;
        assert_eq!(serde_json::to_string(&Creation { stream_name: "S", config: &new }).unwrap(), expected);
        let pull = Pull { batch: 1, expires: 2, max_bytes: None };
        assert_eq!(serde_json::to_string(&pull).unwrap(), r#"{"batch":1,"expires":2}"#);
        assert_eq!(Api::new(None).pull("S", "c"), "$JS.API.CONSUMER.MSG.NEXT.S.c");
        assert_eq!(Api::new(Some("hub")).pull("S", "c"), "$JS.hub.API.CONSUMER.MSG.NEXT.S.c");
    }
}
