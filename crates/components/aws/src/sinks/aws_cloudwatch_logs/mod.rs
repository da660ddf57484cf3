//! `aws_cloudwatch_logs`: sends messages as events of CloudWatch Logs.
//!
//! A request is for one log stream, its events are in the order of their times, and no two of them are more
//! than a day apart. The messages of a batch are therefore sorted, and divided where one of that changes
//! ([`events`]). A log group and a log stream are created before the first request for them ([`put`]).

mod events;
mod put;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use thalweg_codec::template::Template;
use thalweg_config::ByteSize;
use thalweg_engine::{Component, Context, Error, InFlight, Mistake, Sink, SinkConfig, TransformConfig};
use thalweg_stream::encode::EncodeConfig;

use super::sending::{Common, Plan, Probe, SendingOptions};
use crate::api::LOGS;
use crate::options::AwsOptions;
use events::Events;
pub(crate) use put::Put;

/// The largest number of events in a request.
const MOST_COUNT: usize = 10_000;

/// Sends messages to Amazon CloudWatch Logs, each as an event of a log stream.
///
/// A message is acknowledged when CloudWatch Logs has confirmed its event. An event that is too old, too new
/// or too large leaves by `errors` with the reason. Bytes that are not UTF-8 are replaced. Log groups and log
/// streams are created if they do not exist. While the service does not answer, messages wait.
///
/// After a lost answer or a restart, events are sent again, and are there twice.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AwsCloudwatchLogs {
    #[serde(flatten)]
    aws: AwsOptions,
    #[serde(flatten)]
    sending: SendingOptions,
    /// The log group, for example `shop/{service}`. Columns in braces are replaced for each message. A
    /// message without a valid name leaves by `errors`.
    log_group: Template,
    /// The log stream, for example `{meta.hostname}`. Columns in braces are replaced for each message. Each
    /// log stream has requests of its own, so use only columns with few values.
    log_stream: Template,
    /// Whether log groups and log streams are created that do not exist. The default is `true`.
    #[serde(default = "thalweg_net::net::defaults::yes")]
    create: bool,
    /// The field with the time of the event: a point in time, or such a text in the form of RFC 3339. By
    /// default, and without such a value, it is the time when the message was read.
    #[serde(default)]
    time: Option<String>,
    /// The format of events, for example `json`. By default the payload is the event.
    #[serde(default)]
    encode: EncodeConfig,
    #[serde(skip)]
    common: Common,
}

impl AwsCloudwatchLogs {
    fn plan(&self) -> Plan<'_> {
        Plan {
            service: &LOGS,
            aws: &self.aws,
            sending: &self.sending,
            common: &self.common,
            place: "",
            most_count: MOST_COUNT,
            most_bytes: ByteSize::mib(1),
            is_in_order: false,
        }
    }
}

impl Component for AwsCloudwatchLogs {
    const NAME: &'static str = "aws_cloudwatch_logs";
    const EXAMPLE: &'static str = r#"
sources:
  messages: { generate: { message: '{"id": %6d, "service": "shop"}', count: 100 } }
pipelines:
  main: { from: messages, transforms: [parse_json: {}], to: logs }
sinks:
  logs:
    aws_cloudwatch_logs:
      region: us-east-1
      url: "http://127.0.0.1:4566"
      auth: { access_key_id: test, secret_access_key: test }
      log_group: "services/{service}"
      log_stream: "{meta.hostname}"
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.aws.check();
        mistakes.extend(self.encode.mistakes());
        let names = [("log_group", &self.log_group), ("log_stream", &self.log_stream)];
        for (option, name) in names.into_iter().filter(|(_, name)| name.is_constant()) {
            if let Some(reason) = events::mistake_of_name(option, name.prefix()) {
                let mistake = Mistake::new(option, format!("This is no name: {reason}."));
                mistakes.push(mistake.help("For example `services/shop`."));
            }
        }
        mistakes
    }
}

impl SinkConfig for AwsCloudwatchLogs {
    fn encoder(&self) -> Option<Box<dyn TransformConfig>> {
        self.encode.encoder()
    }

    fn fields(&self) -> Vec<String> {
        let names = [&self.log_group, &self.log_stream];
        names.into_iter().flat_map(Template::fields).chain(self.time.clone()).collect()
    }

    fn remarks(&self) -> Vec<Mistake> {
        let names = [("log_group", &self.log_group), ("log_stream", &self.log_stream)];
        names.into_iter().filter_map(|(option, name)| name.remark(option)).collect()
    }

    fn in_flight(&self) -> InFlight {
        self.plan().in_flight()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error> {
        let probe =
            Probe { action: "DescribeLogGroups", body: Bytes::from(json!({ "limit": 1 }).to_string()) };
        let events = Events {
            log_group: self.log_group.clone(),
            log_stream: self.log_stream.clone(),
            time: self.time.clone(),
        };
        self.plan().build(context, probe, Put::new(self.create), events)
    }
}
