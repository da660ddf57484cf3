//! Requests to services of Amazon that are no stores, signed with credentials that are found in the same
//! places.
//!
//! The requests, their answers and their failures belong to the caller. See
//! docs/decisions/100-amazons-services-by-signed-json.md.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use http::HeaderValue;
use http::request::Parts;
use opendal::services::S3Config;
use reqsign_core::Signer;
use reqsign_core::hash::hex_sha256;

use crate::upload::signing;

/// The header with the hash of a body.
const CONTENT_HASH: &str = "x-amz-content-sha256";

/// The known parts of the credentials. The rest is looked for in the environment, in the files of profiles,
/// by the token of a web identity, and in the metadata of a container or of the machine.
#[derive(Clone, Default)]
pub struct AmazonAccess {
    /// The id of an access key.
    pub access_key_id: Option<String>,
    /// The access key.
    pub secret_access_key: Option<String>,
    /// The token of a temporary access key.
    pub session_token: Option<String>,
    /// The profile in the files of profiles.
    pub profile: Option<String>,
    /// The ARN of the role to assume.
    pub role: Option<String>,
    /// The id that the owner of the role asks for.
    pub external_id: Option<String>,
}

/// Signs requests to a service of Amazon in a region.
pub struct AmazonSigner {
    signer: Signer<reqsign_aws_v4::Credential>,
    /// True if there were credentials once.
    has_signed: AtomicBool,
}

/// A request could not be signed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot get credentials of Amazon: {why}")]
pub struct SigningError {
    why: String,
    /// True if a later attempt may succeed.
    pub is_temporary: bool,
}

impl fmt::Debug for AmazonSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AmazonSigner")
    }
}

impl AmazonSigner {
    /// Prepares to sign. Credentials are looked for with the first request. `service` is the name in the
    /// scope of signatures, such as `sqs`.
    pub fn new(service: &str, region: &str, access: AmazonAccess) -> Self {
        let mut config = S3Config::default();
        config.access_key_id = access.access_key_id;
        config.secret_access_key = access.secret_access_key;
        config.session_token = access.session_token;
        config.profile = access.profile;
        config.role_arn = access.role;
        config.external_id = access.external_id;
        Self { signer: signing::amazon(&config, service, region), has_signed: AtomicBool::new(false) }
    }

    /// Signs the head of a request with this body. The URI must have a host.
    ///
    /// # Errors
    /// If there are no credentials. The search for them does not say why it finds none. If it has found some
    /// before, what gives them is probably away for a while.
    pub async fn sign(&self, head: &mut Parts, body: &[u8]) -> Result<(), SigningError> {
        // Only S3 takes bodies without a hash.
        if let Ok(hash) = HeaderValue::from_str(&hex_sha256(body)) {
            head.headers.insert(CONTENT_HASH, hash);
        }
        self.signer.sign(head, None).await.map_err(|error| SigningError {
            why: error.to_string(),
            is_temporary: error.is_retryable() || self.has_signed.load(Relaxed),
        })?;
        self.has_signed.store(true, Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use reqsign_aws_v4::{Credential, RequestSigner};
    use reqsign_core::time::Timestamp;
    use reqsign_core::{Context, ProvideCredential};

    use super::*;

    fn access() -> AmazonAccess {
        AmazonAccess {
            access_key_id: Some("AKIDEXAMPLE".to_owned()),
            secret_access_key: Some("SECRETEXAMPLE".to_owned()),
            ..AmazonAccess::default()
        }
    }

    #[tokio::test]
    async fn the_signature_covers_the_body_and_names_the_service() {
        let signer = AmazonSigner::new("sqs", "eu-west-1", access());
        let request = http::Request::post("https://sqs.eu-west-1.amazonaws.com/")
            .header("x-amz-target", "AmazonSQS.ReceiveMessage")
            .body(())
            .unwrap();
        let (mut head, ()) = request.into_parts();
        signer.sign(&mut head, b"{}").await.unwrap();
        let header = |name: &str| head.headers[name].to_str().unwrap().to_owned();
        assert_eq!(header(CONTENT_HASH), "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
        let authorization = header("authorization");
        assert!(authorization.starts_with("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/"), "{authorization}");
        assert!(authorization.contains("/eu-west-1/sqs/aws4_request"), "{authorization}");
        assert!(authorization.contains("x-amz-target"), "{authorization}");
        assert!(!authorization.contains("SECRETEXAMPLE"));
    }
    /// Has a credential that must be renewed soon, once.
    #[derive(Debug, Default)]
    struct Once(AtomicBool);

    impl ProvideCredential for Once {
        type Credential = Credential;

        async fn provide_credential(&self, _: &Context) -> reqsign_core::Result<Option<Credential>> {
            Ok((!self.0.swap(true, Relaxed)).then(|| Credential {
                access_key_id: "AKIDEXAMPLE".to_owned(),
                secret_access_key: "SECRETEXAMPLE".to_owned(),
                session_token: None,
                expires_in: Some(Timestamp::now() + Duration::from_secs(110)),
            }))
        }
    }

    /// Signs a request. An error is true if it is temporary.
    async fn signed(signer: &AmazonSigner) -> Result<(), bool> {
        let (mut head, ()) = http::Request::post("https://h/").body(()).unwrap().into_parts();
        signer.sign(&mut head, b"").await.map_err(|error| error.is_temporary)
    }

    #[tokio::test]
    async fn credentials_that_cannot_be_renewed_may_come_back() {
        let signer = |provider: Once| AmazonSigner {
            signer: Signer::new(Context::new(), provider, RequestSigner::new("sqs", "eu-west-1")),
            has_signed: AtomicBool::new(false),
        };
        let running = signer(Once::default());
        assert_eq!(signed(&running).await, Ok(()));
        assert_eq!(signed(&running).await, Err(true));
        let without = signer(Once(AtomicBool::new(true)));
        assert_eq!(signed(&without).await, Err(false));
    }
}
