//! HTTP requests for parts of a configuration: definitions, parameters.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use reqwest::redirect::Policy;
use thalweg_engine::Error;

use crate::tls::TlsClient;

/// An HTTP client with a timeout and a limit on the size of answers.
#[derive(Debug, Clone)]
pub struct Fetch {
    client: reqwest::Client,
    /// The largest accepted answer, in bytes.
    most: usize,
}

impl Fetch {
    /// Creates a client that trusts the certificates that the system trusts.
    ///
    /// # Errors
    /// If TLS cannot be set up.
    pub fn new(timeout: Duration, most: usize, redirects: Redirects) -> Result<Self, Error> {
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(TlsClient::default().config()?)
            .timeout(timeout)
            .redirect(redirects.policy())
            // The query of the first address may be a secret.
            .referer(false)
            .build()
            .map_err(|error| Error::permanent("the HTTP client cannot be created").caused_by(error))?;
        Ok(Self { client, most })
    }

    /// Returns the body at a URL.
    ///
    /// # Errors
    /// If there is no answer, it is too large, or its status is not 200.
    pub async fn get(&self, url: &str) -> Result<Vec<u8>, Error> {
        let (status, body) = self.send(self.client.get(url)).await?;
        if status != 200 {
            return Err(Error::permanent(format!("the server answered with the status {status}")));
        }
        Ok(body)
    }

    /// Posts a JSON text and returns the status and the body of the answer. If there is a token, it is sent
    /// in the header `Authorization`.
    ///
    /// # Errors
    /// If there is no answer or it is too large.
    pub async fn post(&self, url: &str, json: String, token: Option<&str>) -> Result<(u16, Vec<u8>), Error> {
        let mut request = self.client.post(url).header(CONTENT_TYPE, "application/json").body(json);
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token);
        }
        self.send(request).await
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Result<(u16, Vec<u8>), Error> {
        // The URL may contain a password, and the caller knows it already.
        let failed =
            |error: reqwest::Error| Error::temporary("there was no answer").caused_by(error.without_url());
        let mut answer = request.send().await.map_err(failed)?;
        let status = answer.status().as_u16();
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > self.most {
                return Err(Error::permanent(format!("the answer has more than {} bytes", self.most)));
            }
            body.extend_from_slice(&chunk);
        }
        Ok((status, body))
    }
}

/// Whether a client follows redirects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redirects {
    /// Up to ten, but none from HTTPS to HTTP.
    Followed,
    /// None. With a redirect, a server could have credentials sent to another one.
    Refused,
}

impl Redirects {
    fn policy(self) -> Policy {
        if self == Redirects::Refused {
            return Policy::none();
        }
        Policy::custom(|attempt| {
            let is_encrypted = attempt.previous().iter().any(|url| url.scheme() == "https");
            if is_encrypted && attempt.url().scheme() != "https" {
                attempt.error("it is redirected from HTTPS to HTTP")
            } else if attempt.previous().len() > 10 {
                attempt.error("it is redirected too often")
            } else {
                attempt.follow()
            }
        })
    }
}
