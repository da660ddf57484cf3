//! Decides which requests are admitted.

use std::path::Path;

use hyper::body::Incoming;
use hyper::header::{ALLOW, AUTHORIZATION, WWW_AUTHENTICATE};
use hyper::{Request, StatusCode};
use thalweg_engine::{Error, Mistake};

use super::htpasswd::Htpasswd;
use super::{Answer, text};

/// Refuses requests with the wrong path, method or password.
#[derive(Debug)]
pub struct Admission {
    users: Option<Htpasswd>,
    realm: String,
    path: Option<String>,
    methods: Vec<String>,
}

/// Returns the mistakes in the options `path` and `methods`. `example` is a path shown in the help.
pub fn check(path: Option<&str>, methods: &[String], example: &str) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    if let Some(method) = methods.iter().find(|method| method.parse::<hyper::Method>().is_err()) {
        let mistake = Mistake::new("methods", format!("`{method}` is not a method."));
        mistakes.push(mistake.help("For example `POST`."));
    }
    if path.is_some_and(|path| !path.starts_with('/')) {
        let mistake = Mistake::new("path", "A path begins with `/`.");
        mistakes.push(mistake.help(format!("For example `{example}`.")));
    }
    mistakes
}

impl Admission {
    /// Admits requests with this path, one of these methods (any method if the list is empty), and a user of
    /// this file.
    ///
    /// # Errors
    /// If the file cannot be used.
    pub fn new(
        htpasswd: Option<&Path>,
        realm: &str,
        path: Option<&str>,
        methods: &[String],
    ) -> Result<Self, Error> {
        Ok(Self {
            users: htpasswd.map(Htpasswd::read).transpose()?,
            realm: realm.replace(['"', '\\'], "'"),
            path: path.map(str::to_owned),
            methods: methods.to_vec(),
        })
    }

    /// Decides whether a request is admitted. Returns the user if it is.
    ///
    /// # Errors
    /// The answer to a request that is refused.
    pub async fn admit(&self, request: &Request<Incoming>) -> Result<Option<String>, Box<Answer>> {
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
