//! Where a copy reads and writes.

use std::fs;
use std::path::Path;

use thalweg_files::sources::objects::ObjectsSource;
use thalweg_redact::without_secrets;
use thalweg_store::Store;

use super::rows::Rows;
use crate::error::LoadError;

/// The URLs of a copy, in the form for the source and the sink.
pub struct Endpoints {
    /// The URL or pattern that is read.
    pub from: String,
    /// The object that is written, or, with a slash at its end, the prefix of all objects.
    pub to: String,
    /// True if several objects may be read.
    pub is_many: bool,
}

impl Endpoints {
    /// Checks the two URLs.
    ///
    /// # Errors
    /// If one is invalid, or they do not fit each other.
    pub fn new(from: &str, to: &str, rows: &Rows) -> Result<Self, LoadError> {
        let is_many =
            ObjectsSource::new(from, Vec::new(), Vec::new()).is_many().map_err(LoadError::Options)?;
        if is_local(from) && !from.ends_with('/') && Path::new(local(from)).is_dir() {
            return Err(LoadError::Options(format!(
                "`{from}` is a folder; to copy all that is below it, write it with a slash at the end: `{from}/`"
            )));
        }
        Store::from_url(to).map_err(|error| LoadError::Options(error.to_string()))?;
        let (mut url, query) = parts(to);
        if is_local(to) && !url.ends_with('/') && Path::new(local(to)).is_dir() {
            url.push('/');
        }
        let is_folder = url.ends_with('/') || is_whole_store(&url);
        let is_rows = rows.parse.is_some();
        match (is_many, is_rows, is_folder) {
            (true, false, false) => {
                return Err(LoadError::Options(format!(
                    "several objects cannot be copied to one name; to copy them below a folder, write TO with a slash at the \
                     end: `{}/`. With `--parse`, their rows become one object",
                    shown(&url)
                )));
            }
            (true, true, true) => {
                return Err(LoadError::Options(format!(
                    "the rows of several objects become one object, but `{}` is a folder; give TO a name, for example \
                     `{}`",
                    shown(&url),
                    joined(&shown(&url), &rows.name_for("all"))
                )));
            }
            (false, true, true) if is_stream(from) => {
                let to = shown(&url);
                return Err(LoadError::Options(format!(
                    "the standard input has no name, and `{to}` is a folder; give TO a name, for example `{}`",
                    joined(&to, &rows.name_for("all"))
                )));
            }
            (false, true, true) => url = joined(&url, &rows.name_for(&escaped(name_of(from), &url))),
            _ => {}
        }
        Ok(Self { from: from.to_owned(), to: format!("{url}{query}"), is_many })
    }

    /// Rejects a copy of an object onto itself. `below` is the name of an object relative to the prefix that
    /// is read.
    ///
    /// # Errors
    /// If the copy would be read again.
    pub fn refuse_itself(&self, source: &ObjectsSource, below: &str) -> Result<(), LoadError> {
        if is_stream(&self.to) {
            return Ok(());
        }
        let (url, query) = parts(&self.to);
        let target = match url.ends_with('/') || is_whole_store(&url) {
            true => joined(&url, &escaped(below, &url)),
            false => url,
        };
        let is_same_file = !self.is_many
            && is_local(&self.from)
            && is_local(&target)
            && fs::canonicalize(local(&self.from))
                .ok()
                .zip(fs::canonicalize(local(&target)).ok())
                .is_some_and(|(from, to)| from == to);
        let is_read = source.reads(&format!("{target}{query}")).map_err(LoadError::Options)?;
        let shown = shown(&target);
        match (is_same_file || is_read, self.is_many) {
            (false, _) => Ok(()),
            (true, false) => Err(LoadError::Options(format!("FROM and TO are the same object: `{shown}`"))),
            (true, true) => Err(LoadError::Options(format!(
                "the copy would be read again: FROM matches `{shown}`; choose another target"
            ))),
        }
    }
}

/// True for the standard input or output.
pub(super) fn is_stream(url: &str) -> bool {
    url == "-"
}

/// A URL or a path for messages, without secrets.
pub(super) fn shown(url: &str) -> String {
    if is_local(url) { url.to_owned() } else { without_secrets(url) }
}

/// A URL without its query, and the query.
fn parts(url: &str) -> (String, String) {
    match url.find('?').filter(|_| !is_local(url)) {
        Some(at) => (url[..at].to_owned(), url[at..].to_owned()),
        None => (url.to_owned(), String::new()),
    }
}

fn is_local(url: &str) -> bool {
    !url.contains("://") || url.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("file://"))
}

fn local(url: &str) -> &str {
    if url.contains("://") { url.get(7..).unwrap_or_default() } else { url }
}

/// True for `s3://bucket`, without a path.
fn is_whole_store(url: &str) -> bool {
    url.split_once("://").is_some_and(|(_, rest)| !rest.contains('/'))
}

fn joined(folder: &str, name: &str) -> String {
    format!("{}/{name}", folder.strip_suffix('/').unwrap_or(folder))
}

/// The last part of a URL's path.
fn name_of(url: &str) -> &str {
    let end = url.find('?').filter(|_| !is_local(url)).unwrap_or(url.len());
    let path = &url[..end];
    path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("rows")
}

/// Escapes a name for a URL. Local paths have no escapes.
fn escaped(name: &str, target: &str) -> String {
    match target.contains("://") {
        true => name.replace('%', "%25").replace('?', "%3F").replace('#', "%23"),
        false => name.to_owned(),
    }
}
