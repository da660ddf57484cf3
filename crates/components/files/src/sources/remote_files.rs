//! `remote_files`: files on servers whose ranges are fetched when they are read.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{ByteSize, List};
use thalweg_engine::{Component, Context, Error, Flow, Mistake, Source, SourceConfig, SourceOutput};
use thalweg_record::{Content, Fetching, File, Origin as Found, Problem, ReadRanges};
use thalweg_sparse::{BudgetAccount, Cache, Origin, Pool, RemoteError, RemoteFile, RemoteOptions};
use tokio::runtime::Handle;
use xxhash_rust::xxh3::xxh3_64;

/// Reads files on servers and fetches only the ranges that are needed, for example by `slice` or
/// `check_type`.
///
/// Ranges that are close to each other are fetched together. Temporary errors are retried. If a file changes
/// while it is read, that is an error.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoteFilesConfig {
    /// The URLs: `https://…`, `s3://BUCKET/KEY`, `gs://BUCKET/KEY`, `az://CONTAINER/KEY`, `webdavs://…`.
    /// Options of a store follow as a query (`?region=eu-central-1`). Credentials come from the environment,
    /// or from where the store's own tools keep them.
    #[schemars(example = "https://example.org/large.zip")]
    url: List<String>,
    /// A folder that keeps fetched ranges. Ranges in this cache are not fetched again. Several processes may
    /// share it. By default there is no cache.
    cache: Option<PathBuf>,
    /// The maximum size of the cache in bytes. The ranges that were not used for the longest time are removed
    /// first. By default there is no limit.
    max_cache_bytes: Option<ByteSize>,
}

impl Component for RemoteFilesConfig {
    const NAME: &'static str = "remote_files";
    const EXAMPLE: &'static str = r#"# Runs until it is stopped.
sources:
  archives: { remote_files: { url: "https://example.org/large.zip", cache: cache } }
pipelines:
  main:
    from: archives
    transforms:
      - slice: { ranges: ["-64KiB:"] }
    to: ends
sinks:
  ends: { directory: { path: ends } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let wrong = self.url.iter().filter_map(|url| Origin::from_url(url).err());
        let mut mistakes: Vec<Mistake> = wrong.map(|error| Mistake::of("url", &error.to_string())).collect();
        if self.max_cache_bytes.is_some() && self.cache.is_none() {
            mistakes.push(
                Mistake::new("max_cache_bytes", "There is no cache to limit.").help("Add `cache: FOLDER`."),
            );
        }
        mistakes
    }
}

impl SourceConfig for RemoteFilesConfig {
    fn blocks(&self) -> bool {
        false
    }

    fn gives(&self) -> Flow {
        Flow::Files
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Source>, Error> {
        let mut options = RemoteOptions::default();
        if let Some(folder) = &self.cache {
            let cache = Cache::new(folder, self.max_cache_bytes.map(|limit| limit.0)).map_err(|error| {
                Error::permanent(format!("the cache `{}` cannot be used: {error}", folder.display()))
            })?;
            options.cache = Some(cache);
        }
        let budget = context.memory.budget().clone();
        // The memory of all files together. It is only a part of the budget, because other components need
        // the rest.
        options.pool = Some(Pool::with_account(budget.limit() / 4, BudgetAccount::new(&budget)));
        options.budget = Some(budget);
        Ok(Box::new(RemoteFiles { urls: self.url.to_vec(), options }))
    }
}

struct RemoteFiles {
    urls: Vec<String>,
    options: RemoteOptions,
}

#[async_trait]
impl Source for RemoteFiles {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        while let Some(url) = self.urls.first() {
            if out.is_stopping() {
                return Ok(());
            }
            let lease = Arc::new(out.reserve(File::WEIGHT).await);
            let name = name_of(url);
            let origin = Origin::from_url(url).map_err(|error| Error::permanent(error.to_string()))?;
            // Without secrets: it is shown, and kept with dead letters.
            let address = address_of(url, origin.name());
            match RemoteFile::open(origin, self.options.clone()).await {
                Ok(remote) => {
                    let found = Found::new(out.name().clone(), name.into(), remote.length()).at(&address);
                    let content =
                        Content::Ranges(Arc::new(Remote { file: remote, runtime: Handle::current() }));
                    out.send_files(vec![File::new(found, content).with_lease(lease)], None).await?;
                }
                Err(error @ RemoteError::Failed { .. }) => return Err(Error::temporary(error.to_string())),
                // One failure does not keep the other files from being read.
                Err(error) => {
                    let found = Found::new(out.name().clone(), name.into(), 0).at(&address);
                    let problem = Problem::new(error.to_string()).code("FILE_CAN_NOT_BE_OPENED");
                    out.reject_file(File::new(found, Content::from(Vec::new())), problem, None).await?;
                }
            }
            self.urls.remove(0);
        }
        Ok(())
    }
}

/// Returns the address of a file: its name without secrets. URLs that differ only in their queries are
/// different files.
fn address_of(url: &str, name: &str) -> String {
    match url.contains('?') {
        true => format!("{name}#{:08x}", xxh3_64(url.as_bytes()) >> 32),
        false => name.to_owned(),
    }
}

/// Returns the last part of a URL's path.
fn name_of(url: &str) -> String {
    let path = url.split(['?', '#']).next().unwrap_or(url).trim_end_matches('/');
    path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("file").to_owned()
}

/// A remote file for components. Reading blocks their thread.
struct Remote {
    file: RemoteFile,
    runtime: Handle,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.file.fmt(f)
    }
}

impl ReadRanges for Remote {
    fn length(&self) -> u64 {
        self.file.length()
    }

    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.file.length().saturating_sub(position)).unwrap_or(usize::MAX);
        let length = left.min(into.len());
        let into = &mut into[..length];
        let read = self.file.read_into(position, into);
        thalweg_runtime::wait_for(&self.runtime, read).map_err(io::Error::other)?;
        Ok(length)
    }

    fn fetch<'a>(&'a self, position: u64, into: &'a mut [u8]) -> Fetching<'a> {
        Box::pin(async move { self.file.read_into(position, into).await.map_err(io::Error::other) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::testing::options;

    #[test]
    fn names_are_what_stands_at_the_end_of_a_url() {
        assert_eq!(name_of("https://example.org/a/b.zip?region=x/y#z"), "b.zip");
        assert_eq!(name_of("s3://bucket/"), "bucket");
        assert_eq!(name_of(""), "file");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_file_that_cannot_be_opened_is_named_without_secrets() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for mut client in server.incoming().flatten() {
                use std::io::{Read, Write};
                let _ = client.read(&mut [0; 4096]);
                let _ = client
                    .write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            }
        });
        let yaml = format!("url: 'http://u:SECRET@127.0.0.1:{port}/a?sig=TOKEN'");
        let running = thalweg_engine::testing::start::<RemoteFilesConfig>(&yaml, 1 << 20, Default::default());
        let Some((_, thalweg_engine::testing::Arrived::Files(files))) = running.errors.take().await else {
            panic!("nothing was rejected");
        };
        let shown = format!("{:?} {:?}", files[0].origin(), files[0].problem());
        assert!(
            shown.contains("127.0.0.1") && !shown.contains("SECRET") && !shown.contains("TOKEN"),
            "{shown}"
        );
    }

    #[test]
    fn what_is_no_url_is_a_mistake() {
        assert_eq!(options::<RemoteFilesConfig>("url: 'gopher://x/y'").check()[0].option, "url");
        assert_eq!(
            options::<RemoteFilesConfig>("{ url: 'https://x/y', max_cache_bytes: 1GiB }").check()[0].option,
            "max_cache_bytes"
        );
    }
}
