//! Sends metrics to statsd.
//!
//! Values are aggregated here and sent when the engine flushes, about once a second while messages arrive. A
//! message costs an addition, not a datagram.

#[cfg(test)]
mod tests;

use std::io::{self, ErrorKind, Write};
use std::time::Instant;

use arrow_array::{Array, BinaryViewArray};
use async_trait::async_trait;
use hashbrown::HashMap;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{ByteSize, TimeSpan};
use thalweg_engine::{Component, Context, Error, Mistake, Rejects, Sink, SinkConfig, WriteOutcome};
use thalweg_record::Batch;
use tokio::net::UdpSocket;

use crate::net::{Address, connect_udp, net_error};
use thalweg_codec::keys::bytes_of;
use thalweg_codec::template::{BoundTemplate, Template};

/// Counts messages, or values in them, for statsd.
///
/// Values are sent about once a second, and at the end, several in a datagram. A message is delivered when
/// its value has been sent; the arrival of a datagram is never confirmed. Messages without a number in the
/// field `value` leave by `errors`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StatsdConfig {
    /// The address of statsd, as `HOST:PORT`.
    address: String,
    /// The prefix of all metric names.
    prefix: String,
    /// The name of a message's metric: a template in which `{name}` is replaced by the value of that field.
    /// The default is the name of the source. `:`, `|`, `@` and spaces become `_`.
    metric: Option<Template>,
    /// The type of the metrics. The default is `count`.
    kind: Kind,
    /// The field that contains the value, or `payload`. By default each message counts as 1.
    value: Option<String>,
    /// For `kind: gauge`: how several values are aggregated. The default is `last`.
    gauge: Gauge,
    /// For `gauge: sum`: after this time, the sum restarts at 0.
    every: TimeSpan,
    /// The largest datagram, in bytes, from 64 to 65507. The default fits into one Ethernet packet.
    max_datagram_bytes: ByteSize,
}

/// The type of a metric.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Kind {
    /// Values are added up.
    #[default]
    Count,
    /// A current level; see `gauge`.
    Gauge,
    /// A duration in milliseconds. Each value is sent separately.
    Timing,
}

/// How several values of a gauge are aggregated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Gauge {
    /// The last value is sent.
    #[default]
    Last,
    /// The sum of the values within `every` is sent.
    Sum,
}

impl Default for StatsdConfig {
    fn default() -> Self {
        Self {
            address: "localhost:8125".to_owned(),
            prefix: "thalweg.".to_owned(),
            metric: None,
            kind: Kind::Count,
            value: None,
            gauge: Gauge::Last,
            every: TimeSpan::seconds(10),
            max_datagram_bytes: ByteSize(1432),
        }
    }
}

impl Component for StatsdConfig {
    const NAME: &'static str = "statsd";
    const EXAMPLE: &'static str = r#"
sources:
  messages: { generate: { message: '{"status": %1d, "seconds": %2f}', count: 1000 } }
pipelines:
  main: { from: messages, transforms: [parse_json: {}], to: statuses }
sinks:
  statuses: { statsd: { address: 127.0.0.1:18125, metric: "status.{status}" } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        if let Err(error) = Address::check_host_and_port(&self.address) {
            mistakes.push(Mistake::new("address", error.message).help("For example `localhost:8125`."));
        }
        if self.gauge != Gauge::Last && self.kind != Kind::Gauge {
            mistakes.push(Mistake::new("gauge", "`gauge` is for `kind: gauge`.").help("Leave it out."));
        }
        if self.kind == Kind::Timing && self.value.is_none() {
            let mistake = Mistake::new("value", "A timing needs a value.");
            mistakes.push(mistake.help("Name the field with the milliseconds."));
        }
        if !(64..=65_507).contains(&self.max_datagram_bytes.bytes()) {
            let mistake = Mistake::new("max_datagram_bytes", "A datagram has 64 to 65507 bytes.");
            mistakes.push(mistake.help("The default is 1432."));
        }
        mistakes
    }
}

impl SinkConfig for StatsdConfig {
    fn build(&self, _: &Context) -> Result<Box<dyn Sink>, Error> {
        Ok(Box::new(Statsd {
            config: self.clone(),
            socket: None,
            sums: HashMap::new(),
            timings: Vec::new(),
            begun: Instant::now(),
            name: Vec::new(),
        }))
    }
}

struct Statsd {
    config: StatsdConfig,
    socket: Option<UdpSocket>,
    /// The value of each metric, and whether it changed since it was last sent.
    sums: HashMap<Vec<u8>, (f64, bool)>,
    /// Complete lines to be sent.
    timings: Vec<Vec<u8>>,
    /// When the sums of gauges last started at 0.
    begun: Instant,
    name: Vec<u8>,
}

impl Statsd {
    fn add(&mut self, batch: &Batch, rejects: &mut Rejects) -> Result<(), Error> {
        let Self { config, sums, timings, begun, name, .. } = self;
        let values = config.value.as_ref().map(|field| bytes_of(batch, field));
        // Sums restart only after all of them have been sent.
        let is_over = config.gauge == Gauge::Sum && begun.elapsed() >= config.every.duration();
        if is_over && sums.values().all(|(_, changed)| !changed) {
            sums.clear();
            *begun = Instant::now();
        }
        let mut metric = config.metric.as_mut().map(|metric| metric.bind(batch));
        for row in 0..batch.rows() {
            let value = match &values {
                None => Some(1.0),
                Some(values) => values.as_ref().and_then(|values| number_of(values, row)),
            };
            let Some(value) = value else {
                let field = config.value.as_deref().unwrap_or_default();
                rejects.reject(row as u32, format!("has no number in `{field}`"));
                continue;
            };
            write_name(name, &config.prefix, metric.as_mut(), batch, row);
            if config.kind == Kind::Timing {
                let mut line = name.clone();
                write_value(&mut line, value, "ms");
                timings.push(line);
                continue;
            }
            let is_last = config.kind == Kind::Gauge && config.gauge == Gauge::Last;
            match sums.get_mut(name) {
                Some((sum, changed)) => {
                    *sum = if is_last { value } else { *sum + value };
                    *changed = true;
                }
                None => {
                    sums.insert(name.clone(), (value, true));
                }
            }
        }
        Ok(())
    }

    /// Returns the datagrams to be sent.
    fn datagrams(&self) -> Vec<Vec<u8>> {
        let most = self.config.max_datagram_bytes.as_usize();
        let mut datagrams: Vec<Vec<u8>> = Vec::new();
        let mut add = |line: &[u8]| match datagrams.last_mut() {
            Some(last) if last.len() + 1 + line.len() <= most => {
                last.push(b'\n');
                last.extend_from_slice(line);
            }
            _ => datagrams.push(line.to_vec()),
        };
        let mut line = Vec::new();
        for (name, (value, changed)) in &self.sums {
            if !changed {
                continue;
            }
            line.clear();
            line.extend_from_slice(name);
            if self.config.kind == Kind::Gauge {
                if *value < 0.0 {
                    // statsd reads a signed value as a change of the gauge, so it is set to 0 first.
                    write_value(&mut line, 0.0, "g\n");
                    line.extend_from_slice(name);
                }
                write_value(&mut line, *value, "g");
            } else {
                write_value(&mut line, *value, "c");
            }
            add(&line);
        }
        self.timings.iter().for_each(|line| add(line));
        datagrams
    }

    /// Forgets the values that have been sent.
    fn sent(&mut self) {
        self.timings.clear();
        match self.config.kind {
            Kind::Count => self.sums.clear(),
            Kind::Gauge if self.config.gauge == Gauge::Last => self.sums.clear(),
            _ => self.sums.values_mut().for_each(|(_, changed)| *changed = false),
        }
    }
}

/// Returns the number in a row, if there is one and it is finite.
fn number_of(values: &BinaryViewArray, row: usize) -> Option<f64> {
    if values.is_null(row) {
        return None;
    }
    let text = std::str::from_utf8(values.value(row).trim_ascii()).ok()?;
    text.parse::<f64>().ok().filter(|number| number.is_finite())
}

/// Replaces `name` by the name of a message's metric.
fn write_name(
    name: &mut Vec<u8>,
    prefix: &str,
    metric: Option<&mut BoundTemplate<'_>>,
    batch: &Batch,
    row: usize,
) {
    name.clear();
    name.extend_from_slice(prefix.as_bytes());
    match metric {
        Some(metric) => metric.render(row, name),
        None => name.extend_from_slice(batch.meta().source.as_bytes()),
    }
    for byte in name {
        if matches!(byte, b':' | b'|' | b'@' | 0..=b' ') {
            *byte = b'_';
        }
    }
}

fn write_value(line: &mut Vec<u8>, value: f64, kind: &str) {
    // Writing to memory does not fail.
    let _ = write!(line, ":{value}|{kind}");
}

#[async_trait]
impl Sink for Statsd {
    async fn write(&mut self, batch: &Batch, rejects: &mut Rejects) -> Result<WriteOutcome, Error> {
        self.add(batch, rejects)?;
        Ok(WriteOutcome::Buffered)
    }

    async fn flush(&mut self) -> Result<(), Error> {
        let datagrams = self.datagrams();
        if datagrams.is_empty() {
            return Ok(());
        }
        let failed = |error: io::Error| net_error("send to", &self.config.address, &error);
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => connect_udp(&self.config.address).await.map_err(failed)?,
        };
        for datagram in datagrams {
            match socket.send(&datagram).await {
                // An earlier datagram reached no listener. This one may.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    tracing::debug!("no process listens on `{}`", self.config.address);
                }
                sent => drop(sent.map_err(failed)?),
            }
        }
        self.socket = Some(socket);
        self.sent();
        Ok(())
    }
}
