//! Checks the signatures of requests (version 4 of Amazon's), with a secret that client and server share.
//!
//! The program signs with a library. The check is written from the specification, because a check by the same
//! library would accept its mistakes.

use std::fmt::Write as _;

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

/// A request whose signature is checked.
pub(super) struct Signed<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) query: &'a str,
    /// Names in lower case, and values.
    pub(super) headers: &'a [(String, String)],
    pub(super) body: &'a [u8],
}

/// The parts of the header `Authorization`.
struct Authorization<'a> {
    key: &'a str,
    scope: &'a str,
    headers: &'a str,
    signature: &'a str,
}

fn authorization(text: &str) -> Option<Authorization<'_>> {
    let rest = text.strip_prefix("AWS4-HMAC-SHA256 ")?;
    let (mut credential, mut headers, mut signature) = (None, None, None);
    for part in rest.split(',') {
        match part.trim().split_once('=')? {
            ("Credential", value) => credential = Some(value),
            ("SignedHeaders", value) => headers = Some(value),
            ("Signature", value) => signature = Some(value),
            _ => return None,
        }
    }
    let (key, scope) = credential?.split_once('/')?;
    Some(Authorization { key, scope, headers: headers?, signature: signature? })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a text does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn code(key: &[u8], text: &str) -> Vec<u8> {
    let mut code = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length");
    code.update(text.as_bytes());
    code.finalize().into_bytes().to_vec()
}

impl Signed<'_> {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the code by which a service refuses the request. None if it is signed by the owner of this
    /// key.
    pub(super) fn refusal(&self, id: &str, secret: &str) -> Option<&'static str> {
        let Some(header) = self.header("authorization") else {
            return Some("MissingAuthenticationTokenException");
        };
        let Some(Authorization { key, scope, headers, signature }) = authorization(header) else {
            return Some("IncompleteSignatureException");
        };
        if key != id {
            return Some("UnrecognizedClientException");
        }
        let is_signed = |name: &str| headers.split(';').any(|known| known == name);
        if !is_signed("host") || (self.header("x-amz-target").is_some() && !is_signed("x-amz-target")) {
            return Some("IncompleteSignatureException");
        }
        let is_right = self.signature(headers, scope, secret).is_some_and(|known| known == signature);
        (!is_right).then_some("InvalidSignatureException")
    }

    /// Returns the signature of the request with these headers. None if it does not have them.
    fn signature(&self, headers: &str, scope: &str, secret: &str) -> Option<String> {
        let mut canonical = format!("{}\n{}\n{}\n", self.method, self.path, self.query);
        for name in headers.split(';') {
            canonical += &format!("{name}:{}\n", self.header(name)?.trim());
        }
        canonical += &format!("\n{headers}\n{}", hex(&Sha256::digest(self.body)));
        let time = self.header("x-amz-date")?;
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", hex(&Sha256::digest(canonical)));
        let key = format!("AWS4{secret}").into_bytes();
        let key = scope.split('/').fold(key, |key, part| code(&key, part));
        Some(hex(&code(&key, &text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

    fn headers(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    /// Two examples that Amazon has published.
    #[test]
    fn published_signatures_are_found() {
        let time = ("x-amz-date", "20150830T123600Z");
        let own = headers(&[("host", "example.amazonaws.com"), time]);
        let post = Signed { method: "POST", path: "/", query: "", headers: &own, body: b"" };
        assert_eq!(
            post.signature("host;x-amz-date", "20150830/us-east-1/service/aws4_request", SECRET).as_deref(),
            Some("5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b")
        );
        let kind = ("content-type", "application/x-www-form-urlencoded; charset=utf-8");
        let own = headers(&[kind, ("host", "iam.amazonaws.com"), time]);
        let query = "Action=ListUsers&Version=2010-05-08";
        let get = Signed { method: "GET", path: "/", query, headers: &own, body: b"" };
        assert_eq!(
            get.signature("content-type;host;x-amz-date", "20150830/us-east-1/iam/aws4_request", SECRET)
                .as_deref(),
            Some("5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7")
        );
    }

    #[test]
    fn a_request_with_another_body_or_of_another_user_is_refused() {
        let signature = "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b";
        let scope = "20150830/us-east-1/service/aws4_request";
        let header = format!(
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/{scope}, SignedHeaders=host;x-amz-date, \
             Signature={signature}"
        );
        let own = headers(&[
            ("host", "example.amazonaws.com"),
            ("x-amz-date", "20150830T123600Z"),
            ("authorization", &header),
        ]);
        let request =
            |body: &'static [u8]| Signed { method: "POST", path: "/", query: "", headers: &own, body };
        assert_eq!(request(b"").refusal("AKIDEXAMPLE", SECRET), None);
        assert_eq!(request(b"x").refusal("AKIDEXAMPLE", SECRET), Some("InvalidSignatureException"));
        assert_eq!(request(b"").refusal("AKIDEXAMPLE", "other"), Some("InvalidSignatureException"));
        assert_eq!(request(b"").refusal("other", SECRET), Some("UnrecognizedClientException"));
        let without = Signed { method: "POST", path: "/", query: "", headers: &own[..2], body: b"" };
        assert_eq!(without.refusal("AKIDEXAMPLE", SECRET), Some("MissingAuthenticationTokenException"));
    }
}
