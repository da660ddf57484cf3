use super::RemoteError;
use super::transport::{Exactly, Looking, Seen, client};
use opendal::{HttpTransporter, OperationContext, Operator, services};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// One file in a place that OpenDAL can read.
#[derive(Clone)]
pub struct Origin {
    operator: Operator,
    path: String,
    name: String,
    key: String,
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Origin({})", self.name)
    }
}

impl Origin {
    /// The file at `path` of any operator. `name` is what messages call it and a cache knows it by.
    ///
    /// The operator should not try again by itself (no retry layer): a [`RemoteFile`](crate::RemoteFile) does, and knows
    /// better what of a range is still missing.
    pub fn new(operator: Operator, path: impl Into<String>, name: impl Into<String>) -> Self {
        let name = name.into();
        Self { operator, path: path.into(), key: name.clone(), name }
    }

    /// What a URL says:
    ///
    /// - `http://…` and `https://…`, with a query if there is one, and `user:password@` for basic authentication;
    /// - `s3://BUCKET/KEY`, `gs://BUCKET/KEY` and `az://CONTAINER/KEY`. Options of OpenDAL's service may follow as a query:
    ///   `?region=eu-central-1&endpoint=http://localhost:9000`, `?account_name=…`. Credentials are looked for where the
    ///   tools of each look for them: the environment and the usual files;
    /// - `file:///PATH`, or just a path.
    ///
    /// # Errors
    /// [`RemoteError::NotAnOrigin`].
    pub fn from_url(url: &str) -> Result<Self, RemoteError> {
        let wrong = |why: String| RemoteError::NotAnOrigin { url: without_secrets(url), why };
        let (scheme, rest) = match url.split_once("://") {
            Some((scheme, rest)) => (scheme.to_ascii_lowercase(), rest),
            None => ("file".to_owned(), url),
        };
        match scheme.as_str() {
            "http" | "https" => http(&scheme, rest).map_err(wrong),
            "file" => file(rest, url.contains("://")).map_err(wrong),
            "s3" => store::<services::S3>("bucket", &scheme, rest).map_err(wrong),
            "gs" | "gcs" => store::<services::Gcs>("bucket", &scheme, rest).map_err(wrong),
            "az" | "azblob" => store::<services::Azblob>("container", &scheme, rest).map_err(wrong),
            _ => Err(wrong(format!(
                "`{scheme}` is not among http, https, s3, gs, az and file; a path stands without `://`"
            ))),
        }
    }

    /// What messages call it: the URL without what may be secret in it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is known by in a cache.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The operator for one attempt, which notes in `seen` what the head of the reply says.
    pub(crate) fn looking(&self, seen: &Arc<Mutex<Seen>>) -> Operator {
        let (context, service) = self.operator.clone().into_parts();
        let inner = context.http_transport().clone();
        let looking = HttpTransporter::new(Looking { inner, seen: seen.clone() });
        Operator::from_parts(context.with_http_transport(looking), service)
    }
}

fn http(scheme: &str, rest: &str) -> Result<Origin, String> {
    let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
    let (authority, path) = match rest.find(['/', '?']) {
        Some(at) if rest[at..].starts_with('/') => (&rest[..at], rest[at..].to_owned()),
        Some(at) => (&rest[..at], format!("/{}", &rest[at..])),
        None => (rest, "/".to_owned()),
    };
    let (user, host) =
        authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    let endpoint = format!("{scheme}://{host}");
    let url = format!("{endpoint}{}", escaped(&path));
    let exact: http::Uri = url.parse().map_err(|error| format!("{error}"))?;
    let mut service = services::Http::default().endpoint(&endpoint);
    if let Some((user, password)) = user.map(|user| user.split_once(':').unwrap_or((user, ""))) {
        service = service.username(&decoded(user)).password(&decoded(password));
    }
    let transport = HttpTransporter::new(Exactly { url: exact, inner: client() });
    let operator = Operator::new(service).map_err(|error| error.to_string())?;
    let operator = operator.with_context(OperationContext::new().with_http_transport(transport));
    // The exact URL is asked for whatever the path: it must only not look like a folder's.
    Ok(Origin { operator, path: "file".to_owned(), name: without_secrets(&url), key: url })
}

fn file(rest: &str, is_url: bool) -> Result<Origin, String> {
    let given = if is_url {
        let rest = rest.strip_prefix("localhost").unwrap_or(rest);
        if !rest.starts_with('/') {
            return Err("a file of this machine has three slashes: `file:///path`".to_owned());
        }
        PathBuf::from(decoded(rest))
    } else {
        PathBuf::from(rest)
    };
    let path = std::path::absolute(&given).map_err(|error| error.to_string())?;
    if path.components().any(|part| part == Component::ParentDir) {
        // OpenDAL takes paths as they are written, so they are made plain before.
        let path = path.canonicalize().map_err(|error| error.to_string())?;
        return file_at(&path);
    }
    file_at(&path)
}

fn file_at(path: &Path) -> Result<Origin, String> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err("this is not a file".to_owned());
    };
    let (Some(folder), Some(name)) = (folder.to_str(), name.to_str()) else {
        return Err("the path is not UTF-8".to_owned());
    };
    if !Path::new(folder).is_dir() {
        return Err(format!("there is no folder `{folder}`"));
    }
    let operator = Operator::new(services::Fs::default().root(folder)).map_err(|error| error.to_string())?;
    let shown = path.display().to_string();
    Ok(Origin { operator, path: name.to_owned(), key: format!("file://{shown}"), name: shown })
}

fn store<B>(holder: &str, scheme: &str, rest: &str) -> Result<Origin, String>
where
    B: opendal::Builder + Default,
    B::Config: opendal::Configurator<Builder = B>,
{
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (name, path) = place.split_once('/').unwrap_or((place, ""));
    if name.is_empty() || path.is_empty() || path.ends_with('/') {
        return Err(format!("it must be `{scheme}://{}/KEY`", holder.to_uppercase()));
    }
    let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(key).to_ascii_lowercase(), decoded(value))
    });
    let mut options: BTreeMap<String, String> = pairs.collect();
    options.insert(holder.to_owned(), name.to_owned());
    let set = |name: &str| std::env::var(name).is_ok_and(|value| !value.is_empty());
    if scheme == "s3" && !options.contains_key("region") && !set("AWS_REGION") && !set("AWS_DEFAULT_REGION") {
        // Stores other than Amazon's take any; Amazon's own says which is right.
        options.insert("region".to_owned(), "us-east-1".to_owned());
    }
    if holder == "container" && !options.contains_key("endpoint") {
        let account = options.get("account_name").cloned().or(std::env::var("AZURE_STORAGE_ACCOUNT").ok());
        let account =
            account.ok_or("it needs `?account_name=NAME`, or AZURE_STORAGE_ACCOUNT in the environment")?;
        options.insert("endpoint".to_owned(), format!("https://{account}.blob.core.windows.net"));
        options.insert("account_name".to_owned(), account);
    }
    let place_of_store = options.get("endpoint").cloned().unwrap_or_default();
    let operator = Operator::from_iter::<B>(options).map_err(|error| error.to_string())?;
    let operator = operator.with_context(OperationContext::new().with_http_transport(client()));
    let name = format!("{scheme}://{name}/{path}");
    Ok(Origin { operator, path: decoded(path), key: format!("{name} {place_of_store}"), name })
}

/// The URL without password and query.
fn without_secrets(url: &str) -> String {
    let plain = url.split_once('?').map_or_else(|| url.to_owned(), |(plain, _)| format!("{plain}?…"));
    let Some((scheme, rest)) = plain.split_once("://") else { return plain };
    let end = rest.find('/').unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => plain,
    }
}

/// What may not stand in a URL as it is, but people write (spaces, letters beyond ASCII), escaped.
fn escaped(path: &str) -> String {
    let mut escaped = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_graphic() && !br#""<>\^`{|}"#.contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped += &format!("%{byte:02X}");
        }
    }
    escaped
}

/// With `%41` as `A`.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let digit = |at: usize| tail.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> String {
        Origin::from_url(url).unwrap_err().to_string()
    }

    #[test]
    fn what_may_be_secret_is_in_no_name() {
        let origin =
            Origin::from_url("https://me:pass%20word@example.org:8080/a b/c.tif?X-Amz-Signature=s#top")
                .unwrap();
        assert_eq!(origin.name(), "https://example.org:8080/a%20b/c.tif?…");
        assert_eq!(origin.key(), "https://example.org:8080/a%20b/c.tif?X-Amz-Signature=s");
        assert_eq!(without_secrets("https://u:p@h/p@q?r=s"), "https://h/p@q?…");
    }

    #[test]
    fn stores_take_their_options_from_the_query() {
        let origin =
            Origin::from_url("s3://bucket/a/b%20c?region=eu-west-1&endpoint=http%3A%2F%2F127.0.0.1%3A9")
                .unwrap();
        assert_eq!((origin.name(), origin.path()), ("s3://bucket/a/b%20c", "a/b c"));
        assert_eq!(Origin::from_url("gs://bucket/x").unwrap().path(), "x");
        assert_eq!(Origin::from_url("az://box/x?account_name=me").unwrap().path(), "x");
    }

    #[test]
    fn what_is_no_origin_is_refused_with_a_reason() {
        assert!(refused("ftp://example.org/x").contains("`ftp` is not among"));
        assert!(refused("s3://bucket").contains("s3://BUCKET/KEY"));
        assert!(refused("file://x/y").contains("three slashes"));
        assert!(refused("/no such folder/x").contains("there is no folder"));
        assert!(refused("http://exa mple/").contains("cannot be read from"));
    }
}
