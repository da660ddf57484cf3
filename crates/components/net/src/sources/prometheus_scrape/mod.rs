//! `prometheus_scrape`: reads the metrics that programs expose for Prometheus.
//!
//! Each target is asked on its own, so one that hangs holds back no other. A sample is a message: its payload
//! is the line of the answer, and its fields are what the line says. A line that is no sample leaves by
//! `errors`; Prometheus drops the whole answer because of it.
//!
//! A scrape has the values of its time. Nothing of it can be read again, so there is no checkpoint.

mod rows;
mod target;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue};
use reqwest::{Client, Method, Url};
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::exposition::is_label;
use thalweg_config::{ByteSize, List, TimeSpan};
use thalweg_engine::{
    Component, Context, Endless, Error, KnownFields, Mistake, Source, SourceConfig, SourceOutput,
};
use tokio::task::JoinSet;

use crate::net::{defaults, long_time};
use crate::requests::{Auth, Compression, Endpoint};
use crate::tls::TlsClient;
use target::Target;

/// The formats that are read, the better one first.
const FORMATS: &str = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";

/// The path of a URL without one.
const PATH: &str = "/metrics";

/// Reads metrics from programs that expose them for Prometheus, in its text format or in OpenMetrics.
///
/// Each sample is a message with the fields `name`, `labels` (a JSON object), `value` and `timestamp`; the
/// payload is its line. Its time is that of the scrape, unless the line has one. Histograms and summaries are
/// the samples of their lines. A line of more than 1 MiB leaves by `errors`. A scrape also makes a sample
/// `up` with the value 1.
///
/// Each target is scraped once, and the source ends with that. A target that cannot be scraped is tried again
/// until it can. With `every` targets are scraped at those times, and a target that cannot be scraped is a
/// warning, and a sample `up` with the value 0. Scrapes of a target never overlap: a time that comes
/// meanwhile is left out. A run that is killed loses the samples in flight.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PrometheusScrape {
    /// The URL of a target, or several, for example `http://127.0.0.1:9100/metrics`. A URL without a scheme
    /// uses `http://`, and one without a path `/metrics`.
    #[schemars(example = &"http://127.0.0.1:9100/metrics")]
    url: List<String, 1>,
    /// The time between the beginnings of two scrapes, for example `15s`. By default there is one scrape.
    #[serde(default)]
    every: Option<TimeSpan>,
    /// How long an answer may take. The default is 10 s.
    #[serde(default = "defaults::ten_seconds")]
    timeout: TimeSpan,
    /// Labels for all samples, for example `{ job: node }`. The label `instance` is `HOST:PORT` of the
    /// target, unless it is given here. A label of the same name that a target exposes becomes `exported_`
    /// and its name.
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// Additional headers of the requests, for example `{X-Source: thalweg}`.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// The credentials of the requests: `user` and `password`, or `bearer`. By default those of `url`
    /// (`https://USER:PASSWORD@HOST`) are sent, if it has any.
    #[serde(default)]
    auth: Option<Auth>,
    /// TLS options, for a URL with `https://`. By default certificates that the system trusts are accepted.
    #[serde(default)]
    tls: TlsClient,
    /// The largest answer, in bytes. A scrape with a larger one fails. While answers are read, they take
    /// memory beside `memory`: at most this for each target. The default is 16 MiB.
    #[serde(default = "sixteen_mebibytes")]
    max_body_bytes: ByteSize,
}

fn sixteen_mebibytes() -> ByteSize {
    ByteSize::mib(16)
}

impl PrometheusScrape {
    fn endpoint<'a>(&'a self, url: &'a str) -> Endpoint<'a> {
        Endpoint {
            url,
            headers: &self.headers,
            auth: self.auth.as_ref(),
            timeout: self.timeout.duration(),
            tls: &self.tls,
        }
    }

    /// Returns the mistake of two URLs of one target: each sample would come twice. A target may have other
    /// samples for another user.
    fn mistake_of_targets(&self) -> Option<Mistake> {
        let mut known = BTreeSet::new();
        let mut targets = self.url.iter().filter_map(|url| self.endpoint(url).url().ok());
        let is_known = |url: Url| {
            let path = if url.path() == "/" { PATH } else { url.path() };
            let host = url.host_str().unwrap_or_default().to_owned();
            let query = url.query().map(str::to_owned);
            let user = (url.username().to_owned(), url.password().map(str::to_owned));
            let port = url.port_or_known_default();
            !known.insert((url.scheme().to_owned(), user, host, port, path.to_owned(), query))
        };
        // A URL may have a password, so it is not shown.
        let mistake = || Mistake::new("url", "Two URLs are of one target, whose samples would come twice.");
        targets.any(is_known).then(|| mistake().help("Name each target once."))
    }

    fn targets(&self) -> Result<Vec<Target>, Error> {
        let client: OnceLock<Client> = OnceLock::new();
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(FORMATS));
        let target = |url: &String| -> Result<Target, Error> {
            let (headers, most) = (headers.clone(), self.max_body_bytes.as_usize());
            let mut request =
                self.endpoint(url).request(Method::GET, headers, Compression::None, most, &client)?;
            if request.url.path() == "/" {
                request.url.set_path(PATH);
            }
            Ok(Target::new(request, self.labels.clone()))
        };
        self.url.iter().map(target).collect()
    }
}

impl Component for PrometheusScrape {
    const NAME: &'static str = "prometheus_scrape";
    const EXAMPLE: &'static str = r#"
sources:
  node: { prometheus_scrape: { url: "http://127.0.0.1:9100/metrics", labels: { job: node } } }
pipelines:
  main: { from: node, to: samples }
sinks:
  samples: { file: { path: out/samples.jsonl, encode: json } }
"#;

    fn check(&self) -> Vec<Mistake> {
        // Headers, credentials and TLS are the same for all, so their mistakes are those of the first.
        let first = self.url.iter().take(1).flat_map(|url| self.endpoint(url).check());
        let others = self.url.iter().skip(1).flat_map(|url| self.endpoint(url).check());
        let others = others.filter(|mistake| mistake.option == "url");
        let mut mistakes: Vec<Mistake> = first.chain(others).collect();
        mistakes.extend(self.mistake_of_targets());
        if self.max_body_bytes.bytes() == 0 {
            let mistake = Mistake::new("max_body_bytes", "No answer has 0 bytes.");
            mistakes.push(mistake.help("The default is `16MiB`."));
        }
        if self.every.is_some_and(|every| every.is_zero()) {
            let mistake = Mistake::new("every", "`every` cannot be 0.");
            mistakes.push(mistake.help("Leave it out, or write for example `15s`."));
        }
        if let Some(name) = self.labels.keys().find(|name| !is_label(name) || *name == "__name__") {
            let mistake = Mistake::new("labels", format!("`{name}` cannot be the name of a label."));
            mistakes.push(mistake.help("Use letters, digits and underscores."));
        }
        mistakes
    }
}

impl SourceConfig for PrometheusScrape {
    fn endless(&self) -> Option<Endless> {
        Endless::by("every", self.every.is_some())
    }

    fn fields(&self) -> KnownFields {
        KnownFields::of(rows::fields())
    }

    fn blocks(&self) -> bool {
        false
    }

    fn resends(&self) -> bool {
        false
    }

    fn starts_over(&self) -> bool {
        self.every.is_none()
    }

    fn has_growing_positions(&self) -> bool {
        false
    }

    fn remarks(&self) -> Vec<Mistake> {
        let default = defaults::ten_seconds();
        let late = self.every.filter(|every| self.timeout > *every && self.timeout != default);
        let late = late.map(|every| {
            let message =
                format!("An answer may take {}, but the next scrape is due after {every}.", self.timeout);
            Mistake::new("timeout", message).help("Scrapes that are due meanwhile are left out.")
        });
        let of_store = self.auth.as_ref().filter(|auth| auth.is_of_a_store()).map(|_| {
            let message = "A target usually takes a user with a password, or a bearer token.";
            Mistake::new("auth", message).help("Give `user` and `password`, or `bearer`.")
        });
        late.into_iter().chain(of_store).chain(long_time("timeout", self.timeout)).collect()
    }

    fn needed_files(&self) -> Vec<(&'static str, PathBuf)> {
        self.tls.files()
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Source>, Error> {
        Ok(Box::new(Scraping { config: self.clone(), done: BTreeSet::new() }))
    }
}

struct Scraping {
    config: PrometheusScrape,
    /// The numbers of the targets that need no further scrape: after a temporary error, the engine runs the
    /// source again.
    done: BTreeSet<usize>,
}

#[async_trait]
impl Source for Scraping {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let every = self.config.every.map(TimeSpan::duration);
        let mut scrapes = JoinSet::new();
        for (number, target) in self.config.targets()?.into_iter().enumerate() {
            if !self.done.contains(&number) {
                let out = out.clone();
                scrapes.spawn(async move { target.follow(every, out).await.map(|()| number) });
            }
        }
        let mut result = Ok(());
        while let Some(ended) = scrapes.join_next().await {
            let ended =
                ended.unwrap_or_else(|error| Err(Error::permanent("a scrape panicked").caused_by(error)));
            result = result.and(ended.map(|number| {
                self.done.insert(number);
            }));
        }
        result
    }
}

/// The labels that a source gives to the samples of a target.
type Labels = Arc<BTreeMap<String, String>>;
