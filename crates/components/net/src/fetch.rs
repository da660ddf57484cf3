//! Asking over HTTP for what belongs to a configuration: definitions, parameters.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use thalweg_engine::Error;

use crate::tls::TlsClient;

/// Asks, and waits for no answer longer than it was told.
#[derive(Debug, Clone)]
pub struct Fetch {
    client: reqwest::Client,
    /// The longest answer that is taken, in bytes.
    most: usize,
}

impl Fetch {
    /// Trusts what the system trusts.
    ///
    /// # Errors
    /// If TLS cannot be set up.
    pub fn new(timeout: Duration, most: usize) -> Result<Self, Error> {
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(TlsClient::default().config()?)
            .timeout(timeout)
            .build()
            .map_err(|error| Error::permanent("the client for HTTP cannot be made").caused_by(error))?;
        Ok(Self { client, most })
    }

    /// What is at an address.
    ///
    /// # Errors
    /// If it cannot be had, and if the status says that it is something else.
    pub async fn get(&self, url: &str) -> Result<Vec<u8>, Error> {
        let (status, body) = self.send(self.client.get(url)).await?;
        if status != 200 {
            return Err(Error::permanent(format!("the server answered with the status {status}")));
        }
        Ok(body)
    }

    /// The status and the answer to a text in JSON, with a token in the header `Authorization` if there is one.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn post(&self, url: &str, json: String, token: Option<&str>) -> Result<(u16, Vec<u8>), Error> {
        let mut request = self.client.post(url).header(CONTENT_TYPE, "application/json").body(json);
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token);
        }
        self.send(request).await
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Result<(u16, Vec<u8>), Error> {
        // The address may have a password in it, and is known to whoever asked.
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
