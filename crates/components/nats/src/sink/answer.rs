//! The answer of a stream to a message.

use serde::Deserialize;
use thalweg_redact::foreign;

use crate::wire::{Message, status};

/// The meaning of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// The stream has the message.
    Stored,
    /// The stream never takes the message.
    Refused(String),
    /// No stream has the subject, or JetStream has not started yet.
    NoStream,
    /// A retry may succeed.
    Later(String),
}

#[derive(Deserialize)]
struct Written {
    stream: Option<String>,
    error: Option<WrittenError>,
}

/// The number of the error of an account that has used up its storage. Streams are freed of old messages, as
/// one that is full by itself, which has a code above 500.
const ACCOUNT_IS_FULL: u64 = 10002;

#[derive(Deserialize)]
struct WrittenError {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: String,
}

impl Answer {
    /// Reads an answer.
    pub(super) fn of(message: &Message) -> Self {
        match message.status() {
            Some(status::NO_RESPONDERS) => Self::NoStream,
            _ => Self::read(&message.payload),
        }
    }

    fn read(payload: &[u8]) -> Self {
        match serde_json::from_slice::<Written>(payload) {
            Ok(Written { error: Some(WrittenError { code, err_code, description }), .. }) => {
                let description = foreign(&description).into_owned();
                // Too slow requests; a message with the same id that is not stored yet, and may be lost; too
                // many requests.
                let passes = matches!(code, 408 | 409 | 429) || err_code == ACCOUNT_IS_FULL;
                match (400..500).contains(&code) && !passes {
                    true => Self::Refused(description),
                    false => Self::Later(description),
                }
            }
            Ok(Written { stream: Some(_), .. }) => Self::Stored,
            _ => Self::Later("the answer is not that of a stream".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_answer_says_whether_a_retry_may_succeed() {
        let later = |text: &str| Answer::Later(text.to_owned());
        let no_stream = "the answer is not that of a stream";
        for (payload, expected) in [
            (r#"{"stream":"S","seq":1}"#, Answer::Stored),
            (r#"{"stream":"S","seq":1,"duplicate":true,"domain":"hub"}"#, Answer::Stored),
            (
                r#"{"type":"x","error":{"code":400,"err_code":10054,"description":"message size exceeds maximum allowed"},"stream":"S","seq":0}"#,
                Answer::Refused("message size exceeds maximum allowed".to_owned()),
            ),
            (
                r#"{"error":{"code":503,"description":"maximum bytes exceeded"}}"#,
                later("maximum bytes exceeded"),
            ),
            (r#"{"error":{"code":429,"description":"too many requests"}}"#, later("too many requests")),
            (
                r#"{"error":{"code":409,"err_code":10158,"description":"duplicate message id is in process"}}"#,
                later("duplicate message id is in process"),
            ),
            (
                r#"{"error":{"code":400,"err_code":10002,"description":"resource limits exceeded for account"}}"#,
                later("resource limits exceeded for account"),
            ),
            (r#"{"error":{}}"#, later("")),
            (r#"{"error":7}"#, later(no_stream)),
            ("{}", later(no_stream)),
            ("", later(no_stream)),
            ("hello", later(no_stream)),
        ] {
            assert_eq!(Answer::read(payload.as_bytes()), expected, "{payload}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_answer(payload: Vec<u8>) {
            let _ = Answer::read(&payload);
        }
    }
}
