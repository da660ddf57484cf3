use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use opendal::{HttpTransporter, Operator};
use parking_lot::Mutex;
use thalweg_beneath::Beneath;

use crate::answers::Pages;
use crate::transport::{Looking, Seen};
use crate::url::Kind;
use crate::{Store, StoreError};

/// One file in a place that OpenDAL can read.
#[derive(Clone)]
pub struct Origin {
    pub(crate) operator: Operator,
    pub(crate) path: String,
    pub(crate) name: String,
    pub(crate) key: String,
    /// Opens a file of this machine. OpenDAL does not read those: it follows all links.
    pub(crate) local: Option<Beneath>,
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Origin({})", self.name)
    }
}

impl Origin {
    /// Creates an origin from the file at `path` of any operator. `name` is its name in messages and its key
    /// in caches.
    ///
    /// The operator should not retry by itself (no retry layer). The reader retries, and knows better which
    /// bytes of a range are still missing.
    pub fn new(operator: Operator, path: impl Into<String>, name: impl Into<String>) -> Self {
        let name = name.into();
        Self { operator, path: path.into(), key: name.clone(), name, local: None }
    }

    /// Creates an origin from a URL:
    ///
    /// - `http://…` and `https://…`, with an optional query, and `user:password@` for basic authentication;
    /// - `s3://BUCKET/KEY`, `gs://BUCKET/KEY` and `az://CONTAINER/KEY`. Options of OpenDAL's service may
    ///   follow as a query: `?region=eu-central-1&endpoint=http://localhost:9000`, `?account_name=…`.
    ///   Credentials are looked up where each store's own tools look them up: in the environment and the
    ///   usual files;
    /// - `webdav://HOST/PATH` and, over TLS, `webdavs://…`, with an optional `user:password@`;
    /// - `file:///PATH`, or just a path.
    ///
    /// # Errors
    /// [`StoreError::NotAUrl`], also if the URL is that of a folder.
    pub fn from_url(url: &str) -> Result<Self, StoreError> {
        let (store, path) = Store::from_url(url)?;
        let wrong = |why: &str| StoreError::NotAUrl {
            url: thalweg_redact::without_secrets(url),
            why: why.to_owned(),
        };
        match store.kind() {
            Kind::Http => {}
            Kind::Folders if path.is_empty() => return Err(wrong("this is not a file")),
            Kind::Folders => {
                let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
                if !std::path::Path::new("/").join(folder).is_dir() {
                    return Err(wrong(&format!("there is no folder `/{folder}`")));
                }
            }
            _ if path.is_empty() || path.ends_with('/') => {
                return Err(wrong(&format!("it must be `{}KEY`", store.name(""))));
            }
            _ => {}
        }
        Ok(store.origin(&path))
    }

    /// Returns the name for messages: the URL without secrets.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the key that identifies the file in a cache.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the path for the operator.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the operator for one attempt. It stores the head of the reply in `seen`. `whole` is the length
    /// of the whole file, or 0 if it is not known.
    pub fn looking(&self, seen: &Arc<Mutex<Seen>>, whole: u64) -> Operator {
        let seen = seen.clone();
        self.through(|inner| HttpTransporter::new(Looking { inner, seen, whole }))
    }

    /// Returns the operator for one listing. In addition, it fails requests for a page that was requested
    /// before, and for a further page after too many empty ones, which it counts in `empty`.
    pub(crate) fn listing(&self, seen: &Arc<Mutex<Seen>>, empty: &Arc<AtomicU32>) -> Operator {
        let (seen, empty) = (seen.clone(), empty.clone());
        self.through(|inner| {
            let inner = HttpTransporter::new(Pages { inner, requested: Mutex::default(), empty });
            HttpTransporter::new(Looking { inner, seen, whole: 0 })
        })
    }

    fn through(&self, transport: impl FnOnce(HttpTransporter) -> HttpTransporter) -> Operator {
        let (context, service) = self.operator.clone().into_parts();
        let inner = context.http_transport().clone();
        Operator::from_parts(context.with_http_transport(transport(inner)), service)
    }
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
    }

    #[test]
    fn stores_take_their_options_from_the_query() {
        let origin =
            Origin::from_url("s3://bucket/a/b%20c?region=eu-west-1&endpoint=http%3A%2F%2F127.0.0.1%3A9")
                .unwrap();
        assert_eq!((origin.name(), origin.path()), ("s3://bucket/a/b c", "a/b c"));
        assert_eq!(Origin::from_url("gs://bucket/x").unwrap().path(), "x");
        assert_eq!(Origin::from_url("az://box/x?account_name=me").unwrap().path(), "x");
    }

    #[test]
    fn what_is_no_origin_is_refused_with_a_reason() {
        assert_eq!(
            refused("ftp://example.org/x"),
            "`ftp://example.org/x` cannot be used: `ftp` is not among http, https, webdav, webdavs, s3, gs, az and file; write a path without `://`"
        );
        assert_eq!(refused("s3://bucket"), "`s3://bucket` cannot be used: it must be `s3://bucket/KEY`");
        assert_eq!(refused("s3:///x"), "`s3:///x` cannot be used: it must be `s3://BUCKET/KEY`");
        assert_eq!(
            refused("file://x/y"),
            "`file://x/y` cannot be used: a file of this machine has three slashes: `file:///path`"
        );
        assert_eq!(
            refused("/no such folder/x"),
            "`/no such folder/x` cannot be used: there is no folder `/no such folder`"
        );
        assert_eq!(refused("http://exa mple/"), "`http://exa mple/` cannot be used: invalid uri character");
    }
}
