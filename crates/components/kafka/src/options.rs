//! The options of a connection to a cluster, which the source and the sink share.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::List;
use thalweg_engine::{Mistake, TransactionPlace};
use thalweg_net::tls::TlsClient;

/// A cluster, and how to connect to it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct ClusterOptions {
    /// The brokers to ask first, each as `HOST:PORT`; one that answers is enough. The other brokers of the
    /// cluster are found through it.
    #[schemars(example = &"kafka-1.example.com:9092")]
    pub(crate) brokers: List<String>,
    /// Connect with TLS. By default connections are not encrypted.
    #[serde(default)]
    tls: Option<TlsClient>,
    /// The user of the connections, for SASL. By default connections have no user.
    #[serde(default)]
    pub(crate) auth: Option<Auth>,
    /// The name of this program in the broker's logs and quotas. The default is `thalweg`.
    #[serde(default = "thalweg_net::net::defaults::client_id")]
    pub(crate) client_id: String,
}

/// The user of connections: a name with a password, or a token.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    /// The name of the user.
    #[serde(default)]
    user: Option<String>,
    /// The password of the user.
    #[serde(default)]
    password: Option<String>,
    /// How the password is presented. `plain` shows it to the broker: use it with TLS only.
    #[serde(default)]
    mechanism: Mechanism,
    /// The file with the token of the user, instead of a name with a password: for SASL with OAUTHBEARER. It
    /// is read again after five minutes at the latest, so another program may renew the token. The broker
    /// sees the token: use it with TLS only.
    #[serde(default)]
    token_file: Option<PathBuf>,
}

/// How connections prove who their user is.
pub(crate) enum Proof<'a> {
    Password {
        user: &'a str,
        password: &'a str,
        mechanism: Mechanism,
    },
    /// The token in a file.
    Token(&'a Path),
}

impl Auth {
    /// Returns the proof, if the options say one.
    pub(crate) fn proof(&self) -> Option<Proof<'_>> {
        match (&self.user, &self.password, &self.token_file) {
            (Some(user), Some(password), None) => {
                Some(Proof::Password { user, password, mechanism: self.mechanism })
            }
            (None, None, Some(file)) => Some(Proof::Token(file)),
            _ => None,
        }
    }
}

/// How a password is presented.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mechanism {
    /// As it is.
    Plain,
    /// By SCRAM with SHA-256.
    #[serde(rename = "scram_sha_256")]
    ScramSha256,
    /// By SCRAM with SHA-512.
    #[default]
    #[serde(rename = "scram_sha_512")]
    ScramSha512,
}

/// The files of TLS, as the client reads them.
#[derive(Debug, Clone)]
pub(crate) struct TlsFiles {
    /// The authorities to trust. Without any, no broker is trusted.
    pub(crate) authorities: Option<PathBuf>,
    /// The certificate to present, and its key.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
    pub(crate) is_insecure: bool,
    pub(crate) server_name: Option<String>,
}

impl ClusterOptions {
    /// Returns the files without which a run cannot begin.
    pub(crate) fn needed_files(&self) -> Vec<(&'static str, PathBuf)> {
        self.tls.as_ref().map(TlsClient::files).unwrap_or_default()
    }

    /// Returns the mistakes that the schema cannot find.
    pub(crate) fn check(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        let is_right = |broker: &String| {
            let host = |host: &str| !host.is_empty() && !host.contains(['/', '@', ' ']);
            broker.rsplit_once(':').is_some_and(|(name, port)| host(name) && port.parse::<u16>().is_ok())
        };
        if !self.brokers.iter().all(is_right) {
            // The text is not shown: it may be a URL with a password.
            let mistake = Mistake::new("brokers", "A broker is a host with a port.");
            mistakes.push(mistake.help("For example `kafka-1.example.com:9092`."));
        }
        if self.brokers.is_empty() {
            let mistake = Mistake::new("brokers", "There is no broker to connect to.");
            mistakes.push(mistake.help("For example `brokers: kafka-1.example.com:9092`."));
        }
        if self.auth.as_ref().is_some_and(|auth| auth.proof().is_none()) {
            let mistake = Mistake::new("auth", "A user has a name and a password, or a token.");
            mistakes.push(mistake.help("Give `user` and `password`, or `token_file`."));
        }
        mistakes.extend(self.tls.as_ref().and_then(TlsClient::check));
        mistakes
    }

    /// Returns the files of `tls`; `None` without TLS.
    pub(crate) fn tls(&self) -> Option<TlsFiles> {
        let tls = self.tls.as_ref()?;
        Some(TlsFiles {
            authorities: tls.authorities(),
            identity: tls.identity(),
            is_insecure: tls.is_insecure(),
            server_name: tls.server_name().map(str::to_owned),
        })
    }

    /// Returns the cluster, as far as its brokers tell: two with a broker in common are one.
    pub(crate) fn place(&self) -> TransactionPlace {
        TransactionPlace::new("kafka", self.brokers.iter().cloned())
    }

    /// Returns the brokers as one text, for messages.
    pub(crate) fn shown(&self) -> String {
        self.brokers.join(", ")
    }
}
