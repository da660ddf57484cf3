//! `prometheus_remote_write`: sends messages as samples, by version 1.0 of the remote-write protocol.
//!
//! A receiver takes the samples of a series in the order of their times, and refuses a request because of one
//! that is older than those it has. Samples of a request are sorted, and requests follow each other: two in
//! flight could overtake each other, and each would lose samples. A request that is refused is divided until
//! the samples to blame are alone. Receivers store a sample once that is sent twice.
//!
//! The protocol is described at <https://prometheus.io/docs/specs/prw/remote_write_spec/>.

mod samples;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use bytes::Bytes;
use reqwest::StatusCode;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::exposition::is_label;
use thalweg_codec::template::Template;
use thalweg_config::ByteSize;
use thalweg_engine::{Component, Context, Error, InFlight, Mistake, NeededField, Sink, SinkConfig};

use crate::requests::{Answer, Check, Parts, Reading, Request, Service, Shared, Store, StoreOptions, Target};
use samples::Samples;

/// Sends messages as samples of metrics to Prometheus, or to another receiver of remote write, such as Mimir,
/// Thanos, VictoriaMetrics or Grafana Cloud.
///
/// A message is one sample: a name, labels, a value and a time. The defaults fit the messages of the source
/// `prometheus_scrape`. `url` has the path of the receiver, such as `https://mimir.example.com/api/v1/push`;
/// without a path it is that of Prometheus, `/api/v1/write`.
///
/// A message is acknowledged when the receiver has confirmed it. Samples that the receiver refuses, for
/// example because a newer one of their series came first, leave by `errors` with its reason. So do messages
/// without a number. While the receiver is busy or away, messages wait.
///
/// After a refusal, the other samples of the request are sent again. A receiver that has kept them, as Mimir
/// does, may refuse those that are older than others of their series: they leave by `errors` although it has
/// them.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PrometheusRemoteWriteConfig {
    #[serde(flatten)]
    options: StoreOptions,
    /// The name of the metric, for example `http_requests_total`. Columns in braces are replaced for each
    /// message. The default is `{name}`.
    #[serde(default)]
    metric: Option<Template>,
    /// The field with the value, a number. The default is `value`.
    #[serde(default)]
    value: Option<String>,
    /// Labels of the sample, for example `{ host: '{meta.hostname}' }`. A label without a value is left out.
    /// By default there are none beside those of `labels_field`.
    #[serde(default)]
    labels: BTreeMap<String, Template>,
    /// The field with further labels, a JSON object. The default is `labels`. `labels` replaces those of the
    /// same name.
    #[serde(default)]
    labels_field: Option<String>,
    /// The field with the time of the sample: a point in time, or such a text in the form of RFC 3339. The
    /// default is `timestamp`. Without such a value it is the time when the message was read, which samples
    /// of a series often share: a receiver refuses the second one if it has another value.
    #[serde(default)]
    time: Option<String>,
    #[serde(skip)]
    shared: Shared,
}

/// The field with the value, by default.
const VALUE: &str = "value";

impl PrometheusRemoteWriteConfig {
    /// Returns the options with the order of requests, unless the user wants several in flight.
    fn ordered(&self) -> StoreOptions {
        StoreOptions { concurrency: self.options.concurrency.or(Some(1)), ..self.options.clone() }
    }

    /// Returns the path below the URL: that of Prometheus if the URL has none.
    fn path(&self) -> &'static str {
        let has_path = self.options.endpoint().url().is_ok_and(|url| url.path() != "/");
        if has_path { "" } else { "/api/v1/write" }
    }

    fn samples(&self) -> Result<Samples, Error> {
        let metric = match &self.metric {
            Some(metric) => metric.clone(),
            None => "{name}".parse().map_err(|_| Error::permanent("the name of the metric is wrong"))?,
        };
        let field = |name: &Option<String>, default: &str| name.clone().unwrap_or_else(|| default.to_owned());
        Ok(Samples {
            metric,
            value: field(&self.value, VALUE),
            labels: self.labels.clone().into_iter().collect(),
            labels_field: field(&self.labels_field, "labels"),
            time: field(&self.time, "timestamp"),
        })
    }
}

impl Component for PrometheusRemoteWriteConfig {
    const NAME: &'static str = "prometheus_remote_write";
    const EXAMPLE: &'static str = r#"
sources:
  messages: { generate: { message: '{"ms": %6d, "service": "shop"}', count: 1 } }
pipelines:
  main: { from: messages, transforms: [parse_json: {}], to: samples }
sinks:
  samples:
    prometheus_remote_write:
      url: "http://127.0.0.1:9090"
      metric: request_milliseconds
      labels: { service: "{service}" }
      value: ms
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.options.check(&[]);
        if let Some(name) = self.labels.keys().find(|name| !is_label(name) || *name == "__name__") {
            let mistake = Mistake::new("labels", format!("`{name}` cannot be the name of a label."));
            mistakes.push(
                mistake.help("Use letters, digits and underscores. `metric` is the name of the metric."),
            );
        }
        mistakes
    }
}

impl SinkConfig for PrometheusRemoteWriteConfig {
    fn fields(&self) -> Vec<String> {
        let named = [&self.value, &self.labels_field, &self.time].into_iter().flatten().cloned();
        named.chain(self.metric.iter().chain(self.labels.values()).flat_map(Template::fields)).collect()
    }

    fn in_flight(&self) -> InFlight {
        self.ordered().in_flight()
    }

    fn needed_fields(&self) -> Vec<NeededField> {
        let metric = match &self.metric {
            None => vec!["name".to_owned()],
            // A text beside the columns is a name as well.
            Some(metric) if metric.prefix().is_empty() && metric.suffix().is_empty() => metric.fields(),
            Some(_) => Vec::new(),
        };
        let value = vec![self.value.clone().unwrap_or_else(|| VALUE.to_owned())];
        vec![
            NeededField {
                option: "metric",
                names: metric,
                help: "Give the name of the metric, for example `metric: http_requests_total`, or the field that \
                       has it, as in `metric: '{event}'`.",
            },
            NeededField {
                option: "value",
                names: value,
                help: "Name the field with the number: `value: bytes`.",
            },
        ]
    }

    fn remarks(&self) -> Vec<Mistake> {
        self.options.remarks()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("snappy"));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("thalweg/", env!("CARGO_PKG_VERSION"))));
        headers.insert("x-prometheus-remote-write-version", HeaderValue::from_static("0.1.0"));
        let target = Target {
            path: self.path(),
            query: Vec::new(),
            headers,
            most_bytes: ByteSize::mib(5),
            is_joining: true,
            // A receiver answers it with 405, or another one. Of those that refuse the user, it has 401.
            check: Check { path: self.path(), query: Vec::new(), denied: &[401] },
        };
        Store::build(context, &self.ordered(), &self.shared, target, Receiver, self.samples()?)
    }
}

/// A receiver of samples.
pub(crate) struct Receiver;

impl Service for Receiver {
    fn body(&self, parts: &Parts) -> Bytes {
        let message = samples::request(parts);
        // A request beyond 4 GiB cannot be compressed, and is far beyond what can be configured.
        snap::raw::Encoder::new().compress_vec(&message).unwrap_or_default().into()
    }

    fn read(&self, request: &Request, answer: &Answer, _: &Parts) -> Reading {
        match answer.status {
            status if status.is_success() => Reading::Accepted,
            // Thanos answers 409 to samples that are out of order or too old.
            StatusCode::BAD_REQUEST
            | StatusCode::CONFLICT
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNPROCESSABLE_ENTITY => Reading::Refused(request.text(answer)),
            // Also wrong credentials, or a receiver that is not enabled: the samples wait.
            _ => Reading::Again(request.failure(answer)),
        }
    }
}
