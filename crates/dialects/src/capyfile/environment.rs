//! Where parameters come from, beside the service definition itself.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The folder in which capyfile looks for secrets.
pub const SECRETS: &str = "/run/secrets";

/// What a request says: names and values, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// Of the address, after its `?`.
    pub query: Vec<(String, String)>,
    /// Of a form in the body; files are not among them.
    pub form: Vec<(String, String)>,
    /// Headers.
    pub headers: Vec<(String, String)>,
}

impl Request {
    pub(super) fn query(&self, name: &str) -> Option<&str> {
        first(&self.query, |known| known == name)
    }

    /// What a form says, or else the address: both are one to Go.
    pub(super) fn form(&self, name: &str) -> Option<&str> {
        first(&self.form, |known| known == name).or_else(|| self.query(name))
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        first(&self.headers, |known| known.eq_ignore_ascii_case(name))
    }
}

/// The first value of a name, if it is not empty.
fn first(pairs: &[(String, String)], is_meant: impl Fn(&str) -> bool) -> Option<&str> {
    let (_, value) = pairs.iter().find(|(name, _)| is_meant(name))?;
    Some(value.as_str()).filter(|value| !value.is_empty())
}

/// What etcd says to a key: its value, nothing, or why it cannot be asked.
pub type Etcd<'a> = &'a dyn Fn(&str) -> Result<Option<String>, String>;

/// The world as parameters see it.
///
/// Everything that is asked of it is asked once for each parameter when a definition is read, before any file is.
#[derive(Clone, Copy)]
pub struct Environment<'a> {
    /// A variable of the environment.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// The content of a file, of which the last line feed is left out.
    pub file: &'a dyn Fn(&Path) -> io::Result<String>,
    /// The folder with a file for each secret, as a rule [`SECRETS`].
    pub secrets: &'a Path,
    /// The request that is served; none where there is no server.
    pub request: Option<&'a Request>,
    /// etcd; none where it is not set up.
    pub etcd: Option<Etcd<'a>>,
}

impl Environment<'static> {
    /// The environment and the files of this process, without a request and without etcd.
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

/// The content of a file that is not larger than a parameter can be: the one that is named may have no end.
fn read(path: &Path) -> io::Result<String> {
    const LARGEST: u64 = 1 << 20;
    let mut text = String::new();
    File::open(path)?.take(LARGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LARGEST {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it has more than 1 MiB"));
    }
    Ok(text)
}

/// The kinds of places that a value may come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceType {
    /// It stands in the definition.
    Value,
    /// A variable of the environment.
    Variable,
    /// A file.
    File,
    /// A file in the folder of secrets.
    Secret,
    /// A parameter in the address of the request.
    HttpGet,
    /// A field of the form in the body of the request.
    HttpPost,
    /// A header of the request.
    HttpHeader,
    /// A key of etcd.
    Etcd,
}

impl SourceType {
    /// All of them, by their names in a definition.
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

    /// Whether the value is a client's, and so what is wrong with it.
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
