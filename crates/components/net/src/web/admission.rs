//! Decides which requests are admitted.

use std::path::PathBuf;

use hyper::StatusCode;
use hyper::header::{ALLOW, AUTHORIZATION, WWW_AUTHENTICATE};
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{List, TimeSpan};
use thalweg_engine::{Error, Mistake};

use super::htpasswd::Htpasswd;
use super::{Answer, ConnectionOptions, Request, text};

/// The options of all sources that serve HTTP. Their configurations flatten this struct.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RequestOptions {
    /// The methods that requests may have. Requests with another method are answered with 405. An empty list
    /// allows all methods.
    methods: List<String>,
    /// The path of a file with users and passwords, as the program `htpasswd` writes it with `-B` (bcrypt),
    /// `-m` (MD5) or `-s` (SHA). Requests must then carry a name and password of this file (basic
    /// authentication). Other requests are answered with 401. By default no password is needed.
    htpasswd: Option<PathBuf>,
    /// The realm of basic authentication: clients show it when they ask for the password.
    realm: String,
    /// Whether a connection may carry several requests. If `false`, it is closed after the first answer.
    keep_alive: bool,
}

impl Default for RequestOptions {
    fn default() -> Self {
        Self {
            methods: vec!["POST".to_owned(), "PUT".to_owned()].into(),
            htpasswd: None,
            realm: "thalweg".to_owned(),
            keep_alive: true,
        }
    }
}

impl RequestOptions {
    /// The options of a source whose requests are all POST, with users and passwords in this file.
    pub fn posts(htpasswd: Option<PathBuf>) -> Self {
        Self { methods: vec!["POST".to_owned()].into(), htpasswd, ..Self::default() }
    }

    /// Returns the mistakes in these options and in the option `path`. `example` is a path shown in the help.
    pub fn check(&self, path: Option<&str>, example: &str) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        if let Some(method) = self.methods.iter().find(|method| method.parse::<hyper::Method>().is_err()) {
            let mistake = Mistake::new("methods", format!("`{method}` is not a method."));
            mistakes.push(mistake.help("For example `POST`."));
        }
        if path.is_some_and(|path| !path.starts_with('/')) {
            let mistake = Mistake::new("path", "A path begins with `/`.");
            mistakes.push(mistake.help(format!("For example `{example}`.")));
        }
        if let Some(Err(error)) = self.htpasswd.as_deref().map(Htpasswd::read) {
            mistakes.push(Mistake::new("htpasswd", error.to_string()));
        }
        mistakes
    }

    /// Returns how to serve a connection.
    pub fn connection(&self, read_timeout: TimeSpan) -> ConnectionOptions {
        ConnectionOptions { read_timeout: read_timeout.duration(), keep_alive: self.keep_alive }
    }
}

/// Refuses requests with the wrong path, method or password.
#[derive(Debug)]
pub struct Admission {
    users: Option<Htpasswd>,
    realm: String,
    path: Option<String>,
    methods: Vec<String>,
}

impl Admission {
    /// Admits requests with this path (any path if `None`) that these options allow.
    ///
    /// # Errors
    /// If the file with the passwords cannot be used.
    pub fn new(options: &RequestOptions, path: Option<&str>) -> Result<Self, Error> {
        Ok(Self {
            users: options.htpasswd.as_deref().map(Htpasswd::read).transpose()?,
            realm: options.realm.replace(['"', '\\'], "'"),
            path: path.map(str::to_owned),
            methods: options.methods.to_vec(),
        })
    }

    /// Decides whether a request is admitted. Returns the user if it is.
    ///
    /// # Errors
    /// The answer to a request that is refused.
    pub async fn admit(&self, request: &Request) -> Result<Option<String>, Box<Answer>> {
        let mut user = None;
        if let Some(users) = &self.users {
            user = match request.headers().get(AUTHORIZATION) {
                Some(header) => users.user(header.as_bytes()).await,
                None => None,
            };
            if user.is_none() {
                let mut refused = text(StatusCode::UNAUTHORIZED, "name and password are needed");
                if let Ok(challenge) = format!("Basic realm=\"{}\"", self.realm).parse() {
                    refused.headers_mut().insert(WWW_AUTHENTICATE, challenge);
                }
                return Err(refused.into());
            }
        }
        if self.path.as_ref().is_some_and(|path| request.uri().path() != path) {
            return Err(text(StatusCode::NOT_FOUND, "there is nothing at this path").into());
        }
        let method = request.method().as_str();
        if !self.methods.is_empty() && !self.methods.iter().any(|allowed| allowed == method) {
            let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, format!("{method} is not allowed here"));
            if let Ok(allowed) = self.methods.join(", ").parse() {
                refused.headers_mut().insert(ALLOW, allowed);
            }
            return Err(refused.into());
        }
        Ok(user)
    }
}
