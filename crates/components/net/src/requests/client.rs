//! The server of a sink: its URL, credentials and headers, and the client that sends to it.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::dns::Resolve;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, ClientBuilder, Method, Url, redirect};
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::TimeSpan;
use thalweg_engine::{Error, Mistake};

use super::request::Request;
use crate::net::check_timeout;
use crate::tls::TlsClient;
use crate::upload::{pairs, percent_decoded};

/// The credentials of requests.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Auth {
    /// The user name, for basic authentication.
    user: Option<String>,
    /// The password, for basic authentication.
    password: Option<String>,
    /// The bearer token, instead of `user` and `password`.
    bearer: Option<String>,
    /// The key that is sent as `Authorization: ApiKey …`, as Elasticsearch has them in their encoded form.
    api_key: Option<String>,
    /// The token that is sent as `Authorization: Token …`, as InfluxDB has them.
    token: Option<String>,
}

/// How bodies are compressed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Compression {
    /// Not compressed.
    #[default]
    None,
    /// With gzip.
    Gzip,
    /// With Zstandard.
    Zstd,
}

impl Compression {
    /// Returns the mistake if a system does not know the compression. `known` are those that it knows.
    pub(super) fn mistake(self, known: &[Self]) -> Option<Mistake> {
        (self != Self::None && !known.contains(&self)).then(|| {
            let mistake = Mistake::new("compression", "The server does not take bodies in this form.");
            mistake.help(if known.is_empty() { "Leave it out." } else { "Use `gzip` or `none`." })
        })
    }
}

/// A server, as the options of a sink name it.
pub(crate) struct Endpoint<'a> {
    pub(crate) url: &'a str,
    pub(crate) headers: &'a BTreeMap<String, String>,
    pub(crate) auth: Option<&'a Auth>,
    pub(crate) timeout: Duration,
    pub(crate) tls: &'a TlsClient,
}

impl Endpoint<'_> {
    /// Returns the mistakes in these options that the schema cannot find.
    pub(crate) fn check(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        if let Err(message) = self.url() {
            mistakes.push(Mistake::new("url", message).help("For example `https://logs.example.com/in`."));
        }
        if let Err(message) = self.headers(HeaderMap::new()) {
            mistakes.push(Mistake::new("headers", message).help("For example `{ X-Source: thalweg }`."));
        }
        if let Err(message) = self.authorization() {
            mistakes.push(
                Mistake::new("auth", message)
                    .help("Give `user` and `password`, or one of `bearer`, `api_key` and `token`."),
            );
        }
        if self.auth.is_some() && self.has_user() {
            let mistake = Mistake::new("url", "The credentials are in `url` and in `auth`.");
            mistakes
                .push(mistake.help("Those of `auth` are sent: remove the user and the password from `url`."));
        }
        mistakes.extend(self.tls.check());
        mistakes.extend(check_timeout("timeout", TimeSpan(self.timeout)));
        mistakes
    }

    /// True if the URL has credentials.
    pub(crate) fn has_user(&self) -> bool {
        self.url().is_ok_and(|url| !url.username().is_empty() || url.password().is_some())
    }

    /// Returns the URL, with its credentials.
    pub(crate) fn url(&self) -> Result<Url, String> {
        let text = match self.url.contains("://") {
            true => self.url.to_owned(),
            false => format!("http://{}", self.url),
        };
        // The URL may contain a password, so it is not shown.
        let url = Url::parse(&text).map_err(|error| format!("It is not a URL: {error}."))?;
        match url.scheme() {
            "http" | "https" if url.has_host() && has_host(&text) => Ok(url),
            "http" | "https" => Err("The URL has no host.".to_owned()),
            other => Err(format!("`{other}` is not a scheme of HTTP.")),
        }
    }

    /// Adds the headers of the options to those that requests have anyway.
    pub(crate) fn headers(&self, mut headers: HeaderMap) -> Result<HeaderMap, String> {
        for (name, text) in self.headers {
            let known = HeaderName::try_from(name).map_err(|_| format!("`{name}` cannot be a header."))?;
            headers.insert(known, header(&format!("`{name}`"), text)?);
        }
        Ok(headers)
    }

    /// Returns the header with the credentials of `auth`, or else of the URL, if there are any.
    pub(crate) fn authorization(&self) -> Result<Option<HeaderValue>, String> {
        let text = match self.auth {
            Some(auth) => auth.header()?,
            None => match self.url() {
                Ok(url) if !url.username().is_empty() || url.password().is_some() => {
                    let part = |text: &str| percent_decoded(text.as_bytes());
                    basic(&part(url.username()), &part(url.password().unwrap_or_default()))
                }
                _ => return Ok(None),
            },
        };
        // The value is secret, so it is not shown.
        let mut value = HeaderValue::try_from(text).map_err(|_| {
            "`auth` has a character that a header cannot have, such as a line feed.".to_owned()
        })?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// Returns the state that all requests share. `headers` are those of the system, `client` is shared by
    /// the writers of a sink.
    pub(crate) fn request(
        &self,
        method: Method,
        headers: HeaderMap,
        compression: Compression,
        most_answer: usize,
        client: &OnceLock<Client>,
    ) -> Result<Request, Error> {
        let mut url = self.url().map_err(Error::permanent)?;
        let secrets = self.secrets(&url, &headers);
        let mut headers = self.headers(headers).map_err(Error::permanent)?;
        if let Some(value) = self.authorization().map_err(Error::permanent)? {
            headers.insert(AUTHORIZATION, value);
        }
        // The header has them. A URL with a host can be without them.
        let _ = (url.set_username(""), url.set_password(None));
        let client = self.client(client)?;
        Ok(Request { client, url, method, headers, compression, secrets, most_answer, sign: None })
    }

    /// Returns the parts of the options, and of the sensitive headers of the system, that no message may
    /// contain: a server may repeat them in its answer.
    fn secrets(&self, url: &Url, headers: &HeaderMap) -> Vec<String> {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let mut secrets: Vec<String> = self.headers.values().cloned().collect();
        let sensitive = headers.values().filter(|value| value.is_sensitive());
        for value in sensitive.filter_map(|value| value.to_str().ok()) {
            // Without the scheme, such as `Splunk`.
            secrets.push(value.split_once(' ').map_or(value, |(_, secret)| secret).to_owned());
        }
        secrets.extend(self.auth.into_iter().flat_map(Auth::secrets));
        if let Ok(Some(header)) = self.authorization() {
            let encoded = header.to_str().ok().and_then(|header| header.split_once(' '));
            secrets.extend(encoded.map(|(_, encoded)| encoded.to_owned()));
        }
        if let Some(password) = url.password() {
            secrets.extend([password.to_owned(), text(percent_decoded(password.as_bytes()))]);
        }
        if let Some(query) = url.query() {
            secrets.push(query.to_owned());
            secrets.extend(pairs(query.as_bytes()).into_iter().map(|(_, value)| value));
        }
        // The longest first: it may contain others.
        secrets.retain(|secret| !secret.is_empty());
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets
    }

    fn client(&self, known: &OnceLock<Client>) -> Result<Client, Error> {
        if let Some(client) = known.get() {
            return Ok(client.clone());
        }
        let built = built(self.builder()?)?;
        Ok(known.get_or_init(|| built).clone())
    }

    /// Returns a client that looks up the names of servers in this way.
    pub(crate) fn client_with(&self, names: impl Resolve + 'static) -> Result<Client, Error> {
        built(self.builder()?.dns_resolver(names))
    }

    fn builder(&self) -> Result<ClientBuilder, Error> {
        let builder = Client::builder()
            .tls_backend_preconfigured(self.tls.config_with_name()?)
            .timeout(self.timeout)
            // Following a redirection may turn the request into one without a body.
            .redirect(redirect::Policy::none());
        Ok(builder)
    }
}

fn built(builder: ClientBuilder) -> Result<Client, Error> {
    let failed = |error| Error::permanent("the HTTP client cannot be created").caused_by(error);
    builder.build().map_err(failed)
}

/// True if the text of a URL has a host. A parser reads `http:///in` as the host `in`, and what became of
/// `http:/host` as the host `http`.
fn has_host(text: &str) -> bool {
    let rest = text.split_once("://").map_or("", |(_, rest)| rest);
    let host = rest.split(['/', '\\', '?', '#']).next().unwrap_or_default();
    !host.is_empty() && !["http:", "https:"].contains(&host)
}

impl Auth {
    /// True if it is of a kind that only some stores take.
    pub(crate) fn is_of_a_store(&self) -> bool {
        self.api_key.is_some() || self.token.is_some()
    }

    /// Returns the value of the header `Authorization`.
    fn header(&self) -> Result<String, String> {
        match self {
            Self { user: Some(user), password, bearer: None, api_key: None, token: None } => {
                Ok(basic(user.as_bytes(), password.as_deref().unwrap_or_default().as_bytes()))
            }
            Self { user: None, password: None, bearer, api_key, token } => match (bearer, api_key, token) {
                (Some(token), None, None) => Ok(format!("Bearer {token}")),
                (None, Some(key), None) => Ok(format!("ApiKey {key}")),
                (None, None, Some(token)) => Ok(format!("Token {token}")),
                _ => Err("`auth` is a user with a password, or a token.".to_owned()),
            },
            _ => Err("`auth` is a user with a password, or a token.".to_owned()),
        }
    }

    fn secrets(&self) -> Vec<String> {
        let Self { user: _, password, bearer, api_key, token } = self;
        [password, bearer, api_key, token].into_iter().flatten().cloned().collect()
    }
}

fn basic(user: &[u8], password: &[u8]) -> String {
    format!("Basic {}", STANDARD.encode([user, b":".as_slice(), password].concat()))
}

/// Returns the value of a header that no message may contain.
pub(crate) fn secret_header(of: &str, text: &str) -> Result<HeaderValue, String> {
    let mut value = header(of, text)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns the value of a header. It may be secret, so a mistake does not show it.
pub(crate) fn header(of: &str, text: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_str(text)
        .map_err(|_| format!("{of} has a character that a header cannot have, such as a line feed."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::testing::options;

    #[test]
    fn a_url_has_a_scheme_of_http_and_a_host() {
        let (headers, tls) = (BTreeMap::new(), TlsClient::default());
        let check = |url: &str, auth: Option<&Auth>| {
            let timeout = Duration::from_secs(1);
            let found = Endpoint { url, headers: &headers, auth, timeout, tls: &tls }.check();
            found.into_iter().map(|mistake| mistake.message).collect::<Vec<_>>()
        };
        for url in ["http:///in", "http:/host/in", "https://http://host", "/in", "//in"] {
            assert_eq!(check(url, None), ["The URL has no host."], "{url}");
        }
        assert_eq!(check("ftp://host", None), ["`ftp` is not a scheme of HTTP."]);
        for url in ["host", "host:9200/in", "http://u:p@host:1/in?a=b", "https://[::1]:2"] {
            assert_eq!(check(url, None), [""; 0], "{url}");
        }
        let auth = options::<Auth>("{ bearer: a }");
        let both = check("http://u:SEKRET@host", Some(&auth));
        assert_eq!(both, ["The credentials are in `url` and in `auth`."]);
    }

    #[test]
    fn credentials_are_of_one_kind() {
        let header = |yaml: &str| options::<Auth>(yaml).header();
        let wrong = Err("`auth` is a user with a password, or a token.".to_owned());
        assert_eq!(header("{ user: me, password: pw }"), Ok("Basic bWU6cHc=".to_owned()));
        assert_eq!(header("{ bearer: a }"), Ok("Bearer a".to_owned()));
        assert_eq!(header("{ api_key: a }"), Ok("ApiKey a".to_owned()));
        assert_eq!(header("{ token: a }"), Ok("Token a".to_owned()));
        for yaml in ["{}", "{ token: a, api_key: b }", "{ user: a, token: b }", "{ bearer: a, password: b }"]
        {
            assert_eq!(header(yaml), wrong, "{yaml}");
        }
    }
}
