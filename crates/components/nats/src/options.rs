//! The options of a connection, which the source and the sink share.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::List;
use thalweg_engine::Mistake;
use thalweg_net::net::Address;
use thalweg_net::tls::TlsClient;

/// Servers, and how to connect to them.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct ServerOptions {
    /// The servers to connect to, each as `HOST` or `HOST:PORT`; one that answers is enough. The port is 4222
    /// by default. The other servers of the cluster are found through them.
    #[schemars(example = &"nats-1.example.com:4222")]
    pub(crate) servers: List<String>,
    /// Connect with TLS. By default connections are encrypted only if the server requires it.
    #[serde(default)]
    pub(crate) tls: Option<TlsClient>,
    /// The user of the connections. By default connections have no user.
    #[serde(default)]
    pub(crate) auth: Option<Auth>,
    /// The name of this program in the server's monitoring. The default is `thalweg`.
    #[serde(default = "thalweg_net::net::defaults::client_id")]
    pub(crate) client_id: String,
    /// The beginning of the subjects at which this program receives answers. The user must be allowed to
    /// subscribe to them. The default is `_INBOX`.
    #[serde(default = "inbox")]
    pub(crate) inbox_prefix: String,
}

/// The user of connections, by one of these ways.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Auth {
    /// The name of the user. Needs `password`.
    pub(crate) user: Option<String>,
    /// The password of the user.
    pub(crate) password: Option<String>,
    /// The token that the server expects.
    pub(crate) token: Option<String>,
    /// The seed of an NKey, which begins with `SU`.
    pub(crate) nkey: Option<String>,
    /// The path of a credentials file, with a JWT and the seed of its NKey.
    pub(crate) credentials_file: Option<PathBuf>,
}

fn inbox() -> String {
    "_INBOX".to_owned()
}

impl Auth {
    fn mistake(&self) -> Option<Mistake> {
        if self.user.is_some() != self.password.is_some() {
            let mistake = Mistake::new("auth", "`user` and `password` belong together.");
            return Some(mistake.help("Give both, or neither."));
        }
        let ways =
            [self.user.is_some(), self.token.is_some(), self.nkey.is_some(), self.credentials_file.is_some()];
        let given = ways.into_iter().filter(|is_given| *is_given).count();
        (given != 1).then(|| {
            let mistake = Mistake::new("auth", "A connection has one user.");
            mistake.help("Give `user` and `password`, or `token`, or `nkey`, or `credentials_file`.")
        })
    }
}

impl ServerOptions {
    /// Returns the mistakes that the schema cannot find.
    pub(crate) fn check(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        if self.servers.is_empty() {
            let mistake = Mistake::new("servers", "There is no server to connect to.");
            mistakes.push(mistake.help("For example `servers: nats-1.example.com`."));
        }
        if !self.servers.iter().all(|server| host_and_port(server).is_some()) {
            // The text is not shown: it may be a URL with a password.
            let mistake = Mistake::new("servers", "A server is a host, or a host with a port.");
            mistakes
                .push(mistake.help("For example `nats-1.example.com:4222`; a user has its place in `auth`."));
        }
        if !is_subject(&self.inbox_prefix, Wildcards::Refused) {
            let mistake = Mistake::new(
                "inbox_prefix",
                format!("`{}` is no beginning of a subject.", self.inbox_prefix),
            );
            mistakes.push(mistake.help("The default is `_INBOX`."));
        }
        mistakes.extend(self.auth.as_ref().and_then(Auth::mistake));
        mistakes.extend(self.tls.as_ref().and_then(TlsClient::check));
        mistakes
    }

    /// True if connections are encrypted, whatever the server requires.
    pub(crate) fn requires_tls(&self) -> bool {
        self.tls.is_some() || self.servers.iter().any(|server| server.starts_with("tls://"))
    }

    /// Returns the servers as one text, for messages.
    pub(crate) fn shown(&self) -> String {
        self.servers.join(", ")
    }
}

/// Returns a server as `HOST:PORT`, of a text that may have the scheme that other programs write. `None` if
/// it is no server.
pub(crate) fn host_and_port(text: &str) -> Option<String> {
    let address =
        ["nats://", "tls://"].into_iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(text);
    Address::split(address, 4222).map(|(host, port)| format!("{host}:{port}"))
}

/// Whether a subject may have the wildcards `*` and `>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wildcards {
    Allowed,
    Refused,
}

/// The rule of [`is_subject`], for messages.
pub(crate) const SUBJECT_RULE: &str = "words without spaces, joined by dots";

/// True if a text is a subject: words without white space, joined by dots. `>` is the last word only.
pub(crate) fn is_subject(text: &str, wildcards: Wildcards) -> bool {
    let words = text.split('.').count();
    text.split('.').enumerate().all(|(number, word)| match word {
        "" => false,
        "*" => wildcards == Wildcards::Allowed,
        ">" => wildcards == Wildcards::Allowed && number + 1 == words,
        word => !word.contains(|c: char| c.is_whitespace() || c.is_control()),
    })
}

/// True if a stream or a consumer can have this name.
pub(crate) fn is_name(text: &str) -> bool {
    let is_wrong = |c: char| c.is_whitespace() || c.is_control() || ".*>/\\".contains(c);
    !text.is_empty() && !text.contains(is_wrong)
}

/// True if a header can have this name: printable ASCII without spaces and colons.
pub(crate) fn is_header_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thalweg_engine::testing::{messages, options};

    #[test]
    fn options_that_cannot_work_are_mistakes() {
        for (yaml, expected) in [
            ("{ servers: [] }", "There is no server to connect to."),
            ("{ servers: 'nats://user:secret@host' }", "A server is a host, or a host with a port."),
            ("{ servers: 'host:port' }", "A server is a host, or a host with a port."),
            ("{ servers: h, inbox_prefix: 'a.*' }", "`a.*` is no beginning of a subject."),
            ("{ servers: h, auth: { user: u } }", "`user` and `password` belong together."),
            ("{ servers: h, auth: {} }", "A connection has one user."),
            ("{ servers: h, auth: { token: t, nkey: n } }", "A connection has one user."),
            ("{ servers: h, tls: { key: k } }", "`certificate` and `key` belong together."),
        ] {
            assert_eq!(messages(options::<ServerOptions>(yaml).check()), [expected], "{yaml}");
        }
        for good in ["h", "h:4222", "nats://h:1", "tls://h", "[::1]", "[::1]:4222", "127.0.0.1"] {
            assert!(host_and_port(good).is_some(), "{good}");
        }
    }

    #[test]
    fn a_subject_has_words_and_wildcards_at_their_places() {
        for (subject, plain, with_wildcards) in [
            ("a", true, true),
            ("a.b-c.D_1", true, true),
            ("", false, false),
            ("a..b", false, false),
            (".a", false, false),
            ("a.", false, false),
            ("a b", false, false),
            ("a\tb", false, false),
            ("a.*.b", false, true),
            ("a.>", false, true),
            (">", false, true),
            (">.a", false, false),
            ("a*", true, true),
        ] {
            assert_eq!(is_subject(subject, Wildcards::Refused), plain, "{subject}");
            assert_eq!(is_subject(subject, Wildcards::Allowed), with_wildcards, "{subject}");
        }
        assert!(is_name("ORDERS-1") && !is_name("a.b") && !is_name("") && !is_name("a b"));
    }

    proptest! {
        #[test]
        fn any_text_is_a_subject_or_not(text in "\\PC*") {
            let is_plain = is_subject(&text, Wildcards::Refused);
            prop_assert!(!is_plain || is_subject(&text, Wildcards::Allowed));
            prop_assert!(!is_plain || !text.contains(' '));
        }
    }
}
