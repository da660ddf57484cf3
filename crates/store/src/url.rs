//! Parses URLs into a store and a path in it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};

use opendal::{HttpTransporter, OperationContext, Operator, services};
use thalweg_redact::{percent_decoded, without_secrets};

use crate::StoreError;
use crate::fields::field_names;
use crate::transport::{Exactly, Redirects, client};

/// The target of a URL.
pub(crate) struct Location {
    pub(crate) operator: Operator,
    pub(crate) kind: Kind,
    /// The prefix that turns a path into a name for people. For a web server, the name of the file itself.
    pub(crate) name: String,
    /// As `name`, with everything that distinguishes one store from another.
    pub(crate) key: String,
    /// The path for the operator.
    pub(crate) path: String,
}

/// The kinds of stores, each with the settings for requests that OpenDAL does not make.
#[derive(Debug)]
pub(crate) enum Kind {
    /// One file on a web server.
    Http,
    /// A WebDAV server: folders over HTTP, which can be listed and read.
    WebDav,
    /// The folders of this machine, from the root on.
    Folders,
    /// Amazon's, or a compatible store.
    S3(Settings),
    /// Google's.
    Gcs(Settings),
    /// Microsoft's.
    Azure(Settings),
}

/// The settings of an object store from its URL.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The bucket or container.
    pub(crate) holder: String,
    /// The options, by OpenDAL's names.
    pub(crate) options: BTreeMap<String, String>,
}

/// The schemes whose `://` may have been written with one slash.
const SCHEMES: [&str; 9] = ["http", "https", "webdav", "webdavs", "s3", "gs", "gcs", "az", "azblob"];

pub(crate) fn parse(url: &str) -> Result<Location, StoreError> {
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) => (scheme.to_ascii_lowercase(), rest),
        None => ("file".to_owned(), url),
    };
    if let Some((scheme, rest)) = url.split_once(":/").filter(|(scheme, rest)| {
        SCHEMES.contains(&scheme.to_ascii_lowercase().as_str()) && !rest.starts_with('/')
    }) {
        // Secrets are found behind both slashes only.
        let shown = without_secrets(&format!("{scheme}://{rest}"));
        let why = format!("a `/` is missing: write `{shown}`, or `./{scheme}:/…` for a file of this name");
        return Err(StoreError::NotAUrl { url: shown.replacen("//", "/", 1), why });
    }
    let place = match scheme.as_str() {
        "http" | "https" => http(&scheme, rest),
        "webdav" | "webdavs" => webdav(&scheme, rest),
        "file" => file(rest, url.contains("://")),
        "s3" => store::<services::S3>("bucket", &scheme, rest, Kind::S3),
        "gs" | "gcs" => store::<services::Gcs>("bucket", &scheme, rest, Kind::Gcs),
        "az" | "azblob" => store::<services::Azblob>("container", &scheme, rest, Kind::Azure),
        _ => Err(format!(
            "`{scheme}` is not among http, https, webdav, webdavs, s3, gs, az and file; write a path without `://`"
        )),
    };
    place.map_err(|why| StoreError::NotAUrl { url: without_secrets(url), why })
}

fn http(scheme: &str, rest: &str) -> Result<Location, String> {
    let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
    let (user, host, path) = authority(rest);
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let endpoint = format!("{scheme}://{host}");
    let url = format!("{endpoint}{}", escaped(&path));
    let exact: http::Uri = url.parse().map_err(|error| format!("{error}"))?;
    let mut service = services::Http::default().endpoint(&endpoint);
    if let Some((user, password)) = user {
        service = service.username(&user).password(&password);
    }
    let transport = HttpTransporter::new(Exactly { url: exact, inner: client(Redirects::Followed) });
    let operator = Operator::new(service).map_err(|error| error.to_string())?;
    let operator = operator.with_context(OperationContext::new().with_http_transport(transport));
    // The exact URL is requested regardless of the path. The path only names a copy of the file.
    let path = file_name(&path);
    Ok(Location { operator, kind: Kind::Http, name: without_secrets(&url), key: url, path })
}

/// A user name and a password.
type User = (String, String);

/// Returns the user, the server, and the rest of what follows the scheme of a URL.
fn authority(rest: &str) -> (Option<User>, &str, &str) {
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let Some((user, host)) = authority.rsplit_once('@') else { return (None, authority, path) };
    let (user, password) = user.split_once(':').unwrap_or((user, ""));
    (Some((percent_decoded(user), percent_decoded(password))), host, path)
}

fn webdav(scheme: &str, rest: &str) -> Result<Location, String> {
    let (user, host, path) = authority(rest);
    if host.is_empty() {
        return Err(format!("it must be `{scheme}://HOST/PATH`"));
    }
    let secured = if scheme == "webdavs" { "https" } else { "http" };
    let mut service = services::Webdav::default().endpoint(&format!("{secured}://{host}"));
    if let Some((user, password)) = user {
        service = service.username(&user).password(&password);
    }
    let operator = Operator::new(service).map_err(|error| error.to_string())?;
    let transport = client(Redirects::Followed);
    let operator = operator.with_context(OperationContext::new().with_http_transport(transport));
    let name = format!("{scheme}://{host}/");
    let path = percent_decoded(path.trim_start_matches('/'));
    Ok(Location { operator, kind: Kind::WebDav, key: name.clone(), name, path })
}

/// Returns the last part of the path of a URL as a file name.
fn file_name(path: &str) -> String {
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    let name = percent_decoded(path.rsplit('/').next().unwrap_or_default());
    match Path::new(&name).file_name() {
        Some(_) if !name.contains(['/', '\\', '\0']) => name,
        _ => "file".to_owned(),
    }
}

/// Parses a path of this machine. OpenDAL uses paths literally, so they are normalised first.
fn file(rest: &str, is_url: bool) -> Result<Location, String> {
    let given = if is_url {
        let rest = rest.strip_prefix("localhost").unwrap_or(rest);
        if !rest.starts_with('/') {
            return Err("a file of this machine has three slashes: `file:///path`".to_owned());
        }
        PathBuf::from(percent_decoded(rest))
    } else {
        PathBuf::from(rest)
    };
    let mut path = std::path::absolute(&given).map_err(|error| error.to_string())?;
    if path.components().any(|part| part == Component::ParentDir) {
        path = resolved(&path).map_err(|error| error.to_string())?;
    }
    let mut path = path.to_str().ok_or("the path is not UTF-8")?.trim_matches('/').to_owned();
    if rest.ends_with('/') && !path.is_empty() {
        path.push('/');
    }
    let operator = Operator::new(services::Fs::default().root("/")).map_err(|error| error.to_string())?;
    Ok(Location { operator, kind: Kind::Folders, key: "file:///".to_owned(), name: "/".to_owned(), path })
}

/// Returns a path without `..`. Existing parts are resolved, because they may be links; the rest stays as
/// written.
fn resolved(path: &Path) -> io::Result<PathBuf> {
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Err(error), Some(above), Some(name)) if error.kind() == io::ErrorKind::NotFound => {
            Ok(resolved(above)?.join(name))
        }
        (resolved, ..) => resolved,
    }
}

fn store<B>(holder: &str, scheme: &str, rest: &str, kind: fn(Settings) -> Kind) -> Result<Location, String>
where
    B: opendal::Builder + Default,
    B::Config: opendal::Configurator<Builder = B>,
{
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (holding, path) = place.split_once('/').unwrap_or((place, ""));
    if holding.is_empty() {
        return Err(format!("it must be `{scheme}://{}/KEY`", holder.to_uppercase()));
    }
    if holding.contains('@') {
        // Its name is shown in messages, so it must not hold a password.
        return Err(format!("a {holder} has no user name and password; give them as options after `?`"));
    }
    let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (percent_decoded(key).to_ascii_lowercase(), percent_decoded(value))
    });
    let mut options: BTreeMap<String, String> = pairs.collect();
    unknown_option(scheme, options.keys(), &field_names::<B::Config>())?;
    options.insert(holder.to_owned(), holding.to_owned());
    let set = |name: &str| std::env::var(name).is_ok_and(|value| !value.is_empty());
    if scheme == "s3" && !options.contains_key("region") && !set("AWS_REGION") && !set("AWS_DEFAULT_REGION") {
        // Compatible stores accept any region; Amazon's own replies with the right one.
        options.insert("region".to_owned(), "us-east-1".to_owned());
    }
    if holder == "container" && !options.contains_key("endpoint") {
        let account = options.get("account_name").cloned().or(std::env::var("AZURE_STORAGE_ACCOUNT").ok());
        let account =
            account.ok_or("it needs `?account_name=NAME`, or AZURE_STORAGE_ACCOUNT in the environment")?;
        options.insert("endpoint".to_owned(), format!("https://{account}.blob.core.windows.net"));
        options.insert("account_name".to_owned(), account);
    }
    let endpoint = options.get("endpoint").cloned().unwrap_or_default();
    let operator = Operator::from_iter::<B>(options.clone()).map_err(|error| error.to_string())?;
    let transport = client(Redirects::Refused);
    let operator = operator.with_context(OperationContext::new().with_http_transport(transport));
    let name = format!("{scheme}://{holding}/");
    let settings = Settings { holder: holding.to_owned(), options };
    Ok(Location {
        operator,
        kind: kind(settings),
        key: format!("{endpoint} {name}"),
        name,
        path: percent_decoded(path),
    })
}

/// At most this many unknown options of a URL are named.
const MOST_UNKNOWN: usize = 5;

/// Rejects options that a store does not know: it would ignore them, and a misspelt one would have no effect.
fn unknown_option<'a>(
    scheme: &str,
    given: impl Iterator<Item = &'a String>,
    known: &[&str],
) -> Result<(), String> {
    let unknown = given.filter(|option| !known.contains(&option.as_str())).take(MOST_UNKNOWN);
    let said: Vec<String> = unknown
        .map(|option| {
            let distance = |known: &&&str| strsim::osa_distance(option, known);
            let is_near = |near: &&&str| distance(near) <= option.len().div_ceil(3);
            match known.iter().min_by_key(distance).filter(is_near) {
                Some(near) => format!("`{scheme}` has no option `{option}`; did you mean `{near}`?"),
                None => format!("`{scheme}` has no option `{option}`; there is for example `endpoint`"),
            }
        })
        .collect();
    if said.is_empty() { Ok(()) } else { Err(said.join(" And ")) }
}

/// Escapes characters that are not valid in a URL but that people write: spaces, letters beyond ASCII.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_web_is_called_by_the_end_of_its_path() {
        let name = |url: &str| crate::Store::from_url(url).unwrap().1;
        assert_eq!(name("https://example.org/a/large%20one.iso?v=1#top"), "large one.iso");
        for nameless in ["https://example.org", "http://example.org/a/", "http://h/%2E%2E", "http://h/a%2Fb"]
        {
            assert_eq!(name(nameless), "file", "{nameless}");
        }
    }

    #[test]
    fn folders_of_a_server_are_places() {
        let place = parse("webdavs://me:pass@cloud.example.org:8443/dav/me/a%20b/").unwrap();
        let name = "webdavs://cloud.example.org:8443/".to_owned();
        assert_eq!((place.name, place.key, place.path), (name.clone(), name, "dav/me/a b/".to_owned()));
        let nowhere = parse("webdav:///x").err().unwrap().to_string();
        assert_eq!(nowhere, "`webdav:///x` cannot be used: it must be `webdav://HOST/PATH`");
    }

    #[test]
    fn a_misspelt_option_is_a_mistake() {
        let why = |url: &str| parse(url).err().unwrap().to_string();
        assert_eq!(
            why("s3://b/k?regon=eu"),
            "`s3://b/k?…` cannot be used: `s3` has no option `regon`; did you mean `region`?"
        );
        assert_eq!(
            why("gs://b/k?colour=red"),
            "`gs://b/k?…` cannot be used: `gs` has no option `colour`; there is for example `endpoint`"
        );
        assert_eq!(
            why("s3://b/k?regon=eu&endpont=h"),
            "`s3://b/k?…` cannot be used: `s3` has no option `endpont`; did you mean `endpoint`? And `s3` has no \
             option `regon`; did you mean `region`?"
        );
        for known in ["s3://b/k?region=eu&aws_endpoint=http://h", "az://c/k?account_name=a&endpoint=http://h"]
        {
            assert!(parse(known).is_ok(), "{known}");
        }
    }

    #[test]
    fn a_bucket_has_no_password() {
        for url in ["s3://me:pass@b/k", "gs://me@b/k"] {
            let (scheme, _) = url.split_once(':').unwrap();
            let refused = parse(url).err().unwrap().to_string();
            let reason = "a bucket has no user name and password; give them as options after `?`";
            assert_eq!(refused, format!("`{scheme}://b/k` cannot be used: {reason}"));
        }
    }

    #[test]
    fn a_url_with_one_slash_is_shown_without_its_secrets() {
        for (url, given, meant) in [
            ("http:/me:letmein@h/x?token=abc", "http:/h/x?…", "http://h/x?…"),
            ("s3:/b/k?secret_access_key=abc", "s3:/b/k?…", "s3://b/k?…"),
            ("S3:/b/k", "S3:/b/k", "S3://b/k"),
        ] {
            let (scheme, _) = given.split_once(':').unwrap();
            let expected = format!(
                "`{given}` cannot be used: a `/` is missing: write `{meant}`, or `./{scheme}:/…` for a file of this name"
            );
            assert_eq!(parse(url).err().unwrap().to_string(), expected);
        }
    }

    #[test]
    fn what_is_not_there_yet_can_be_beside_the_folder_one_is_in() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().canonicalize().unwrap();
        let path =
            parse(&format!("{}/x/../new/file", here.join("..").join(here.file_name().unwrap()).display()));
        let why = path.err().unwrap().to_string();
        assert!(why.ends_with("cannot be used: No such file or directory (os error 2)"), "{why}");
        let path = parse(&format!("{}/../new-of-{}/file", here.display(), std::process::id())).unwrap().path;
        let above = here.parent().unwrap().display().to_string();
        assert_eq!(format!("/{path}"), format!("{above}/new-of-{}/file", std::process::id()));
    }

    #[test]
    fn prefixes_and_whole_stores_are_places_too() {
        let path = |url: &str| parse(url).map(|place| (place.name, place.path)).unwrap();
        assert_eq!(path("s3://bucket"), ("s3://bucket/".to_owned(), String::new()));
        assert_eq!(path("s3://bucket/a%20b/"), ("s3://bucket/".to_owned(), "a b/".to_owned()));
        assert_eq!(path("/tmp/x/"), ("/".to_owned(), "tmp/x/".to_owned()));
        assert_eq!(path("/"), ("/".to_owned(), String::new()));
    }
}
