//! The replies of an object store, and what they mean.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use thalweg_redact::foreign;

use crate::StoreError;
use crate::attempt::AttemptError;

/// A reply.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
    pub(super) retry_after: Option<Duration>,
}

/// The elements that replies may contain. Amazon, Google and Microsoft use the same names.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct Said {
    pub(super) upload_id: Option<String>,
    #[serde(rename = "ETag")]
    pub(super) etag: Option<String>,
    pub(super) code: Option<String>,
    pub(super) message: Option<String>,
    pub(super) uncommitted_blocks: Blocks,
    pub(super) committed_blocks: Blocks,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct Blocks {
    pub(super) block: Vec<Block>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Block {
    pub(super) name: String,
}

impl Answer {
    /// Parses the body. Returns the default if it is not XML.
    pub(super) fn said(&self) -> Said {
        quick_xml::de::from_str(self.body.trim_start_matches('\u{feff}')).unwrap_or_default()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub(super) fn etag(&self) -> Option<String> {
        self.header(header::ETAG.as_str()).map(str::to_owned)
    }

    /// Returns the reply itself if the request succeeded.
    pub(super) fn done(self, name: &str, what: &str) -> Result<Self, AttemptError> {
        if self.status.is_success() { Ok(self) } else { Err(self.failure(name, what)) }
    }

    /// True if the store says that it does not support a header of the request.
    pub(super) fn is_not_understood(&self) -> bool {
        let says = |codes: &[&str]| self.said().code.is_some_and(|code| codes.contains(&code.as_str()));
        self.status == StatusCode::NOT_IMPLEMENTED
            || self.status == StatusCode::BAD_REQUEST
                && says(&["InvalidArgument", "InvalidRequest", "NotImplemented", "UnsupportedHeader"])
    }

    /// Turns the reply of a failed request into an error.
    pub(super) fn failure(&self, name: &str, what: &str) -> AttemptError {
        let said = self.said();
        let code = said.code.as_deref().or_else(|| self.header("x-ms-error-code")).unwrap_or_default();
        let mut why = format!("the store replied {}", self.status);
        for more in [code, said.message.as_deref().and_then(|text| text.lines().next()).unwrap_or_default()] {
            if !more.is_empty() {
                why += &format!(": {}", foreign(more));
            }
        }
        let status = self.status.as_u16();
        let is_overloaded = matches!(status, 429 | 503) || code == "SlowDown";
        let is_passing = is_overloaded
            || matches!(status, 408 | 425 | 500 | 502 | 504)
            // The data was damaged on its way, or another request for the same object was faster.
            || matches!(
                code,
                "BadDigest" | "XAmzContentChecksumMismatch" | "IncompleteBody" | "InternalError" | "RequestTimeout"
                    | "OperationAborted" | "ConditionalRequestConflict" | "Crc64Mismatch"
            );
        if is_passing {
            return AttemptError::Temporary { why, asked: self.retry_after, overloaded: is_overloaded };
        }
        let name = name.to_owned();
        AttemptError::Fatal(match status {
            401 | 403 => StoreError::Denied { name, what: "written", why },
            412 => StoreError::Refused { name, why: "it exists already, or has changed".to_owned() },
            409 if code == "BlobAlreadyExists" => {
                StoreError::Refused { name, why: "it exists already".to_owned() }
            }
            _ => StoreError::Failed { name, what: what.to_owned(), attempts: 1, why, is_temporary: false },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> Answer {
        let status = StatusCode::from_u16(status).unwrap();
        Answer { status, headers: HeaderMap::new(), body: body.to_owned(), retry_after: None }
    }

    #[test]
    fn what_matters_is_found_in_answers_whatever_is_around_it() {
        let begun = answer(
            200,
            "<?xml version=\"1.0\"?><R xmlns=\"x\"><Bucket>b</Bucket><UploadId>a/+&amp;</UploadId></R>",
        );
        assert_eq!(begun.said().upload_id.as_deref(), Some("a/+&"));
        let complete = answer(200, "  <R><ETag>&quot;abc-2&quot;</ETag></R>");
        assert_eq!(complete.said().etag.as_deref(), Some("\"abc-2\""));
        let blocks = answer(
            200,
            "\u{feff}<BlockList><CommittedBlocks /><UncommittedBlocks><Block><Name>YQ==</Name><Size>1</Size></Block>\
             <Block><Name>Yg==</Name><Size>1</Size></Block></UncommittedBlocks></BlockList>",
        );
        assert_eq!(blocks.said().uncommitted_blocks.block.len(), 2);
        assert_eq!(answer(200, "not XML").said(), Said::default());
    }

    #[test]
    fn errors_are_told_apart() {
        let failure = |status, code: &str| {
            answer(status, &format!("<Error><Code>{code}</Code><Message>m</Message></Error>"))
                .failure("n", "w")
        };
        for (status, code) in [(503, "SlowDown"), (429, ""), (200, "SlowDown")] {
            assert!(matches!(failure(status, code), AttemptError::Temporary { overloaded: true, .. }));
        }
        for (status, code) in [(500, "InternalError"), (400, "BadDigest"), (409, "OperationAborted")] {
            assert!(matches!(failure(status, code), AttemptError::Temporary { overloaded: false, .. }));
        }
        assert!(matches!(failure(412, "x"), AttemptError::Fatal(StoreError::Refused { .. })));
        assert!(matches!(failure(403, "x"), AttemptError::Fatal(StoreError::Denied { what: "written", .. })));
        let AttemptError::Fatal(error) = failure(404, "NoSuchBucket") else { panic!() };
        assert_eq!(error.to_string(), "`n`: w failed: the store replied 404 Not Found: NoSuchBucket: m");
        let red = answer(404, "<Error><Code>a</Code><Message>\u{1b}[31m\u{7}</Message></Error>");
        let AttemptError::Fatal(error) = red.failure("n", "w") else { panic!() };
        assert_eq!(error.to_string(), r"`n`: w failed: the store replied 404 Not Found: a: \u{1b}[31m\u{7}");
    }
}
