//! The sources of parameters outside the service definition.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The folder in which capyfile looks for secrets.
pub const SECRETS: &str = "/run/secrets";

/// The parameters of a request: names and values, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// The query of the address, after its `?`.
    pub query: Vec<(String, String)>,
    /// The fields of a form in the body, without its files.
    pub form: Vec<(String, String)>,
    /// Headers.
    pub headers: Vec<(String, String)>,
}

impl Request {
    pub(super) fn query(&self, name: &str) -> Option<&str> {
        first(&self.query, |known| known == name)
    }

    /// Returns a field of the form, or else of the query: Go's `FormValue` reads both.
    pub(super) fn form(&self, name: &str) -> Option<&str> {
        first(&self.form, |known| known == name).or_else(|| self.query(name))
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        first(&self.headers, |known| known.eq_ignore_ascii_case(name))
    }
}

/// Returns the first value of a name, unless it is empty.
fn first(pairs: &[(String, String)], is_meant: impl Fn(&str) -> bool) -> Option<&str> {
    let (_, value) = pairs.iter().find(|(name, _)| is_meant(name))?;
    Some(value.as_str()).filter(|value| !value.is_empty())
}

/// Looks up a key in etcd: returns its value, `None` if there is no such key, or the reason why the lookup
/// failed.
pub type Etcd<'a> = &'a dyn Fn(&str) -> Result<Option<String>, String>;

/// The outside world as parameters see it.
///
/// Each parameter is fetched once, when a definition is read and before any file is.
#[derive(Clone, Copy)]
pub struct Environment<'a> {
    /// Looks up an environment variable.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// Reads a file, without the line feed at its end.
    pub file: &'a dyn Fn(&Path) -> io::Result<String>,
    /// The folder with one file for each secret, usually [`SECRETS`].
    pub secrets: &'a Path,
    /// The request being served; `None` without a server.
    pub request: Option<&'a Request>,
    /// Looks up a key in etcd; `None` if etcd is not set up.
    pub etcd: Option<Etcd<'a>>,
}

impl Environment<'static> {
    /// Returns the environment and files of this process, without a request and without etcd.
    pub fn of_this_process() -> Self {
        Self {
            variable: &|name| std::env::var(name).ok(),
            file: &read,
            secrets: Path::new(SECRETS),
            request: None,
            etcd: None,
        }
    }
}

/// Reads a file of at most 1 MiB. The limit guards against endless files such as `/dev/zero`.
fn read(path: &Path) -> io::Result<String> {
    const LARGEST: u64 = 1 << 20;
    let mut text = String::new();
    File::open(path)?.take(LARGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LARGEST {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it has more than 1 MiB"));
    }
    Ok(text)
}

/// The kinds of sources for a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceType {
    /// The definition itself.
    Value,
    /// An environment variable.
    Variable,
    /// A file.
    File,
    /// A file in the folder of secrets.
    Secret,
    /// A parameter in the query of the request's address.
    HttpGet,
    /// A field of the form in the body of the request.
    HttpPost,
    /// A header of the request.
    HttpHeader,
    /// A key of etcd.
    Etcd,
}

impl SourceType {
    /// All source types, by their names in a definition.
    pub const NAMES: [(&'static str, Self); 8] = [
        ("value", Self::Value),
        ("env_var", Self::Variable),
        ("file", Self::File),
        ("secret", Self::Secret),
        ("http_get", Self::HttpGet),
        ("http_post", Self::HttpPost),
        ("http_header", Self::HttpHeader),
        ("etcd", Self::Etcd),
    ];

    /// True if the value comes from a client, who is then to blame for a wrong value.
    pub fn is_of_request(self) -> bool {
        matches!(self, Self::HttpGet | Self::HttpPost | Self::HttpHeader)
    }

    pub(super) fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, source)| *source)
    }
}
