//! The refusal of a request, or of an entry of one, and its meaning.
//!
//! Each service has its own list of codes, but what a client has to do follows from a few of them. A code
//! that is not known does not blame the messages: they wait, as in other sinks, because a mistake at the
//! service would otherwise empty a source into the dead letters.

use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::Value;
use thalweg_engine::Error;
use thalweg_net::requests::{Answer, Failure, Reading, Request, Verdict};

/// The consequence of a refusal for a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Send other messages: these are the reason.
    Messages,
    /// Send less.
    Overload,
    /// Use other credentials.
    Credentials,
    /// Ask the owner for the right to do that.
    Forbidden,
    /// Name something that exists.
    Absent,
    /// Try again.
    Other,
}

/// Parts of codes, and the consequence. The first one that fits decides.
const CODES: [(Kind, &[&str]); 5] = [
    (
        Kind::Overload,
        &[
            "Throttl",
            "Throughput",
            "TooManyRequests",
            "LimitExceeded",
            "OverLimit",
            "ServiceUnavailable",
            "SlowDown",
            "ResourceInUse",
        ],
    ),
    (
        Kind::Credentials,
        &[
            "UnrecognizedClient",
            "InvalidClientTokenId",
            "SignatureDoesNotMatch",
            "InvalidSignature",
            "IncompleteSignature",
            "MissingAuthenticationToken",
            "ExpiredToken",
            "InvalidAccessKeyId",
            "RequestExpired",
            "RequestTimeTooSkewed",
        ],
    ),
    // A key of the key management service that cannot be used is no fault of a message.
    (Kind::Forbidden, &["AccessDenied", "AuthorizationError", "NotAuthorized", "KMS", "Kms"]),
    (Kind::Absent, &["NotFound", "NonExistentQueue", "QueueDoesNotExist", "NoSuch"]),
    (
        Kind::Messages,
        &[
            "ValidationException",
            "InvalidArgument",
            "InvalidParameter",
            "ParameterValueInvalid",
            "InvalidMessageContents",
            "BatchRequestTooLong",
            "SerializationException",
            "InvalidAttributeValue",
        ],
    ),
];

impl Kind {
    /// Returns the consequence of a code.
    pub(crate) fn of(code: &str) -> Self {
        let is_of = |parts: &[&str]| parts.iter().any(|part| code.contains(part));
        CODES.iter().find(|(_, parts)| is_of(parts)).map_or(Self::Other, |(kind, _)| *kind)
    }
}

/// A request was refused.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    pub(crate) code: String,
    pub(crate) kind: Kind,
    /// The server, the status and the server's reason, for messages.
    text: String,
    /// True if the server wants to be asked again, whatever the code.
    is_for_now: bool,
    /// True if the time of the request is wrong: a signature holds for some minutes.
    is_of_the_clock: bool,
}

/// The most bytes of a refusal that are read. Its values are kept as they are, in many times as much memory.
const MOST: usize = 64 << 10;

/// True if a refusal is because of the time of the request, which a signature has.
fn is_of_the_clock(code: &str, message: &str) -> bool {
    ["RequestExpired", "RequestTimeTooSkewed"].iter().any(|part| code.contains(part))
        || ["Signature expired", "Signature not yet current"].iter().any(|part| message.contains(part))
}

impl Refusal {
    /// Reads an answer that is no success.
    pub(crate) fn of(request: &Request, answer: &Answer) -> Self {
        let (code, message) = told(&answer.body);
        let is_for_now = answer.status.is_server_error()
            || matches!(answer.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
        let kind = match answer.status {
            StatusCode::PAYLOAD_TOO_LARGE => Kind::Messages,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Kind::Overload,
            status if status.is_server_error() => Kind::Other,
            _ => Kind::of(&code),
        };
        let text = match code.is_empty() {
            true => request.text(answer),
            false => {
                let (code, message) = (request.shown(code.as_bytes()), request.shown(message.as_bytes()));
                let colon = if message.is_empty() { "" } else { ": " };
                format!("{} answered {}: {code}{colon}{message}", request.server(), answer.status)
            }
        };
        Self { is_of_the_clock: is_of_the_clock(&code, &message), code, kind, text, is_for_now }
    }

    /// Returns the failure after which the request is sent again.
    pub(crate) fn failure(&self) -> Failure {
        match self.kind {
            Kind::Overload => Failure::overloaded(&self.text),
            _ => Failure::temporary(&self.text),
        }
    }

    /// Returns the meaning for the messages of a request.
    pub(crate) fn reading(self, answer: &Answer) -> Reading {
        match self.kind {
            Kind::Messages => Reading::Refused(self.text),
            _ => Reading::Again(self.failure().after(answer.retry_after())),
        }
    }

    /// Returns the error of a component whose call it was. A refusal that only a user can change ends the
    /// run.
    pub(crate) fn error(self) -> Error {
        match self.kind {
            Kind::Overload => Error::overloaded(self.text),
            // Iterators and tokens of lists expire, and the next call gets new ones.
            Kind::Other if self.is_for_now || self.code.starts_with("Expired") => Error::temporary(self.text),
            Kind::Credentials if self.is_of_the_clock => {
                Error::permanent(format!("{}; correct the clock of this machine", self.text))
            }
            Kind::Credentials => Error::permanent(format!("{}; correct `auth`", self.text)),
            _ => Error::permanent(self.text),
        }
    }
}

/// Returns the meaning of an answer that is no success, for the messages of a request.
pub(crate) fn refused(request: &Request, answer: &Answer) -> Reading {
    Refusal::of(request, answer).reading(answer)
}

/// Returns the meaning of an answer that cannot be read.
pub(crate) fn not_understood(request: &Request) -> Reading {
    let text = format!("the answer of {} is cut off, or not understood", request.server());
    Reading::Again(Failure::temporary(text))
}

/// Returns the fate of an entry that has this code. `is_to_blame` is true if the service says that the sender
/// made a mistake.
pub(crate) fn entry(request: &Request, code: &str, message: &str, is_to_blame: bool) -> Verdict {
    let (shown, message) = (request.shown(code.as_bytes()), request.shown(message.as_bytes()));
    let colon = if message.is_empty() { "" } else { ": " };
    let text = format!("{} answered {shown} for the message{colon}{message}", request.server());
    match Kind::of(code) {
        Kind::Overload => Verdict::Again(Failure::overloaded(text)),
        Kind::Messages => Verdict::Rejected(text),
        Kind::Other if is_to_blame => Verdict::Rejected(text),
        _ => Verdict::Again(Failure::temporary(text)),
    }
}

/// Returns the text of a member of a refusal in JSON. Services write `message` or `Message`, and some both.
fn member(body: &Value, name: &str) -> String {
    let members = body.as_object().into_iter().flatten();
    let mut named = members.filter(|(known, _)| known.eq_ignore_ascii_case(name));
    named.find_map(|(_, value)| value.as_str()).unwrap_or_default().to_owned()
}

/// The refusal of a service that answers with XML.
#[derive(Deserialize)]
struct Xml {
    #[serde(rename = "Error")]
    error: XmlError,
}

#[derive(Deserialize)]
struct XmlError {
    #[serde(rename = "Code", default)]
    code: String,
    #[serde(rename = "Message", default)]
    message: String,
}

/// Returns the code and the message of a body. Both are empty if it has none.
pub(crate) fn told(body: &[u8]) -> (String, String) {
    let told = match body.trim_ascii_start().first() {
        _ if body.len() > MOST => None,
        Some(b'{') => {
            let body = serde_json::from_slice::<Value>(body).ok();
            body.map(|body| (member(&body, "__type"), member(&body, "message")))
        }
        Some(b'<') => std::str::from_utf8(body).ok().and_then(|body| {
            let Xml { error } = quick_xml::de::from_str(body).ok()?;
            Some((error.code, error.message))
        }),
        _ => None,
    };
    let (code, message) = told.unwrap_or_default();
    // `com.amazonaws.sqs#QueueDoesNotExist`, `AWS.SimpleQueueService.NonExistentQueue`.
    let code = code.rsplit(['#', '.']).next().unwrap_or_default();
    (code.split(':').next().unwrap_or_default().to_owned(), message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderMap;
    use thalweg_net::fuzzing::answered;

    #[test]
    fn codes_are_read_in_all_their_forms() {
        for (body, code, message) in [
            (r#"{"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"no"}"#, "QueueDoesNotExist", "no"),
            (r#"{"__type":"ThrottlingException","Message":"slow"}"#, "ThrottlingException", "slow"),
            (r#"{"__type":"NotFound","message":"no","Message":"no"}"#, "NotFound", "no"),
            (r#"{"__type":"NotFound","message":null,"Message":"no"}"#, "NotFound", "no"),
            (r#"{"__type":"AWS.SimpleQueueService.NonExistentQueue"}"#, "NonExistentQueue", ""),
            (r#"{"__type":"UnrecognizedClientException:http://x/"}"#, "UnrecognizedClientException", ""),
            (
                "<ErrorResponse xmlns=\"http://x\"><Error><Type>Sender</Type><Code>NotFound</Code>\
                 <Message>a &amp; b</Message></Error><RequestId>r</RequestId></ErrorResponse>",
                "NotFound",
                "a & b",
            ),
            (r#"{"message":5}"#, "", ""),
            ("<html>", "", ""),
            ("bad gateway", "", ""),
            ("", "", ""),
        ] {
            assert_eq!(told(body.as_bytes()), (code.to_owned(), message.to_owned()), "{body}");
        }
    }

    #[test]
    fn a_refusal_of_any_length_is_not_read() {
        let body = format!(r#"{{"__type":"NotFound","message":"{}"}}"#, "x".repeat(MOST));
        assert_eq!(told(body.as_bytes()), (String::new(), String::new()));
    }

    #[test]
    fn what_to_do_follows_from_the_code() {
        for (code, kind) in [
            ("ProvisionedThroughputExceededException", Kind::Overload),
            ("KMSThrottlingException", Kind::Overload),
            ("RequestThrottled", Kind::Overload),
            ("ServiceUnavailableException", Kind::Overload),
            ("UnrecognizedClientException", Kind::Credentials),
            ("AccessDeniedException", Kind::Forbidden),
            ("ResourceNotFoundException", Kind::Absent),
            ("QueueDoesNotExist", Kind::Absent),
            ("NotFound", Kind::Absent),
            ("BatchRequestTooLong", Kind::Messages),
            ("InvalidArgumentException", Kind::Messages),
            ("InvalidMessageContents", Kind::Messages),
            ("KMSInvalidStateException", Kind::Forbidden),
            ("KmsDisabled", Kind::Forbidden),
            ("RequestExpired", Kind::Credentials),
            ("InternalFailure", Kind::Other),
            ("", Kind::Other),
        ] {
            assert_eq!(Kind::of(code), kind, "{code}");
        }
    }

    #[test]
    fn what_has_expired_is_asked_for_again_unless_it_is_the_key() {
        for (code, is_temporary) in
            [("ExpiredNextTokenException", true), ("ExpiredTokenException", false), ("Any", false)]
        {
            let body = format!(r#"{{"__type":"{code}"}}"#);
            let (request, answer) = answered(400, &HeaderMap::new(), body.as_bytes()).unwrap();
            let error = Refusal::of(&request, &answer).error();
            assert_eq!(error.kind().is_temporary(), is_temporary, "{code}");
        }
    }

    #[test]
    fn a_wrong_clock_is_no_wrong_key() {
        let error = |body: &str| {
            let (request, answer) = answered(403, &HeaderMap::new(), body.as_bytes()).unwrap();
            Refusal::of(&request, &answer).error().full()
        };
        let clock = r#"{"__type":"InvalidSignatureException","message":"Signature expired: 2026"}"#;
        assert!(error(clock).ends_with("; correct the clock of this machine"), "{}", error(clock));
        let key =
            r#"{"__type":"InvalidSignatureException","message":"The request signature does not match"}"#;
        assert!(error(key).ends_with("; correct `auth`"), "{}", error(key));
    }
}
