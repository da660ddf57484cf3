//! Turns producers into sinks.

use thalweg_config::{Node, Span};

use super::amazon;
use super::cluster::{cluster, librdkafka};
use super::consumers::{address, framing};
use super::draft::{Step, Transform};
use super::gotime::{Purpose, strftime};
use super::made::{self, Made};
use super::modulators::column;
use super::objects;
use super::report::Report;
use super::settings::Settings;
use super::stores;
use super::tables::Takes;
use super::version::Version;

/// True if a producer's work depends on the stream of a message, apart from its modulators.
pub(super) fn depends_on_stream(settings: &Settings) -> bool {
    match settings.kind.name {
        "producer.File" => settings.text_or("File", "").contains('*'),
        _ if objects::makes_objects(settings) => objects::depends_on_stream(settings),
        "producer.Kafka" | "native.KafkaProducer" => true,
        "producer.StatsdMetrics" | "producer.ElasticSearch" => true,
        "producer.AwsFirehose" | "producer.Firehose" => true,
        "producer.AwsKinesis" | "producer.Kinesis" => true,
        _ => false,
    }
}

/// Returns what a producer has a sink for, if its work depends on the stream. Two sinks that write objects to
/// one place would replace each other's.
pub(super) fn target(settings: &Settings, stream: &str) -> String {
    match objects::makes_objects(settings) {
        true => objects::place(settings, stream),
        false => stream.to_owned(),
    }
}

/// Returns the field that holds the name of the stream, if messages of several streams meet behind a
/// `router.Metadata`.
pub(super) fn field_of(stream: &str) -> Option<&str> {
    stream.strip_prefix('{')?.strip_suffix('}')
}

/// Returns why no message goes to a fallback, if none does.
pub(super) fn no_fallback(settings: &Settings) -> Option<&'static str> {
    let why = "here: a failover would keep all messages of an object in memory until it is written. It is sent \
               until the store has it";
    objects::makes_objects(settings).then_some(why)
}

/// True if the producer has a queue; only then do its timeouts have a meaning.
pub(super) fn has_queue(settings: &Settings) -> bool {
    !objects::makes_objects(settings) && settings.kind.all().any(|rule| rule.name == "ChannelTimeoutMs")
}

/// The transforms of a producer that are none of its modulators.
#[derive(Debug, Default)]
pub(super) struct OwnSteps {
    /// Those before its modulators.
    pub(super) before: Vec<Step>,
    /// Those after its modulators.
    pub(super) after: Vec<Step>,
}

/// Returns the transforms that a producer needs for messages of a stream.
pub(super) fn own_steps(
    settings: &Settings,
    stream: &str,
    version: Version,
    report: &mut Report,
) -> OwnSteps {
    let mut steps = OwnSteps::default();
    match settings.kind.name {
        _ if objects::makes_objects(settings) => {
            steps.after = objects::packing(settings, stream, report);
        }
        "native.KafkaProducer" => {
            let condition = made::text("payload <> ''", settings.span);
            steps.after.push(Step::Transform(Transform::new("filter", condition, settings.span)));
        }
        "producer.Redis" => {
            let is_after = settings.flag("FieldAfterFormat") == Some(true);
            let place = if is_after { &mut steps.after } else { &mut steps.before };
            place.extend(stores::identifier(settings, version, report));
        }
        _ => {}
    }
    steps
}

/// Returns the name that a mapping has for a stream. Without one, it is `otherwise`, or the stream's.
pub(super) fn mapped(
    settings: &Settings,
    mapping: &str,
    stream: &str,
    otherwise: Option<&str>,
) -> (String, Span) {
    let mapping = settings.map(mapping);
    let find = |wanted: &str| mapping.iter().find(|(name, _, _)| name == wanted);
    match find(stream).or_else(|| find("*")) {
        Some((_, name, span)) => (name.clone(), *span),
        None => (otherwise.unwrap_or(stream).to_owned(), settings.span),
    }
}

/// Returns the streams for which a producer has names of its own.
pub(super) fn mapped_streams(settings: &Settings) -> Vec<String> {
    let mappings = settings.kind.all().filter(|rule| rule.takes == Takes::Map);
    mappings.flat_map(|rule| settings.map(rule.name)).map(|(stream, _, _)| stream).collect()
}

/// Returns the sink of a producer for messages of a stream.
pub(super) fn sink(settings: &Settings, stream: Option<&str>, version: Version, report: &mut Report) -> Node {
    if settings.kind.name == "producer.ElasticSearch" {
        return stores::elasticsearch(settings, stream, report);
    }
    let mut writing = Writing { settings, report };
    let (kind, options) = match settings.kind.name {
        "producer.AwsCloudwatchLogs" => ("aws_cloudwatch_logs", amazon::cloudwatch(settings, writing.report)),
        "producer.AwsFirehose" | "producer.Firehose" => {
            ("aws_kinesis_firehose", amazon::firehose(settings, stream, writing.report))
        }
        "producer.AwsKinesis" | "producer.Kinesis" => {
            ("aws_kinesis_streams", amazon::kinesis(settings, stream, writing.report))
        }
        "producer.Console" => ("stdout", writing.console()),
        "producer.File" => ("file", writing.file(stream)),
        "producer.HTTPRequest" => ("http", writing.http()),
        "producer.InfluxDB" => ("influxdb", stores::influxdb(settings, writing.report)),
        "producer.Kafka" => ("kafka", writing.kafka(stream)),
        "native.KafkaProducer" => ("kafka", writing.native_kafka(stream)),
        _ if objects::makes_objects(settings) => ("objects", objects::sink(settings, stream, writing.report)),
        "producer.Proxy" => ("proxy", writing.proxy()),
        "producer.Redis" => ("redis", stores::redis(settings, version, writing.report)),
        "producer.Socket" => ("socket", writing.socket()),
        "producer.StatsdMetrics" => ("statsd", writing.statsd(stream)),
        "producer.Websocket" => ("websocket", writing.websocket()),
        _ => ("discard", Made::new(settings.span)),
    };
    made::component(kind, settings.span, options.done())
}

/// Returns the sink and the source of a spool, both in a folder of the stream.
pub(super) fn spool(settings: &Settings, stream: &str, report: &mut Report) -> (Node, Node) {
    let writing = Writing { settings, report };
    let folder = settings.text_or("Path", "/var/run/gollum/spooling");
    let folder = format!("{}/{stream}", folder.trim_end_matches('/'));
    let mut options = Made::new(settings.span);
    options.text("path", &folder, settings.at("Path"));
    options.text(
        "max_file_bytes",
        made::size_mib(settings.number("MaxFileSizeMB").filter(|size| *size > 0).unwrap_or(512)),
        settings.at("MaxFileSizeMB"),
    );
    writing.time(&mut options, "MaxFileAgeMin", "max_file_age", 60_000);
    let sink = made::component("spool", settings.span, options.done());
    let mut options = Made::new(settings.span);
    options.text("path", &folder, settings.at("Path"));
    let rate = settings.number("MaxMessagesSec").unwrap_or(100);
    if rate > 0 {
        options.number("rate", rate, settings.at("MaxMessagesSec"));
    }
    let delay = settings.number("RespoolDelaySec").unwrap_or(10).max(0);
    options.text("delay", made::time(delay.saturating_mul(1000)), settings.at("RespoolDelaySec"));
    options.flag("ends_with_others", true, settings.span);
    (sink, made::component("spool", settings.span, options.done()))
}

struct Writing<'a> {
    settings: &'a Settings,
    report: &'a mut Report,
}

impl Writing<'_> {
    fn made(&self) -> Made {
        Made::new(self.settings.span)
    }

    fn time(&self, options: &mut Made, name: &str, option: &str, unit: i64) {
        if let Some(value) = self.settings.number(name).filter(|value| *value > 0) {
            options.text(option, made::time(value.saturating_mul(unit)), self.settings.at(name));
        }
    }

    fn send_buffer_size(&self, options: &mut Made) {
        if let Some(kib) = self.settings.number("ConnectionBufferSizeKB").filter(|kib| *kib > 0) {
            options.text("send_buffer_size", format!("{kib}KiB"), self.settings.at("ConnectionBufferSizeKB"));
        }
    }

    fn console(&mut self) -> Made {
        let settings = self.settings;
        let mut options = self.made();
        match settings.text_or("Console", "stdout").to_ascii_lowercase().as_str() {
            "stdout" => {}
            "stderr" => {
                options.text("target", "stderr", settings.at("Console"));
            }
            other => {
                let message = format!("`{other}` is not a console, so `stdout` is used, as in gollum.");
                self.report.remark(settings.at("Console"), message);
            }
        }
        options.text("delimiter", "", settings.span);
        options
    }

    fn file(&mut self, stream: Option<&str>) -> Made {
        let settings = self.settings;
        let mut options = self.made();
        let path = settings.text_or("File", "/var/log/gollum.log").replace('{', "{{").replace('}', "}}");
        let path = match stream {
            Some(stream) => path.replace('*', stream),
            None => path,
        };
        options.text("path", path, settings.at("File"));
        options.text("delimiter", "", settings.span);
        let rotate = self.rotation();
        let mut overwrite = settings.flag("FileOverwrite").unwrap_or(false);
        if overwrite && rotate.is_some() {
            let message = "With rotation each file has a new name, so none is overwritten.";
            self.report.remark(settings.at("FileOverwrite"), message);
            overwrite = false;
        }
        let existing = if overwrite { "replace" } else { "append" };
        options.text("existing", existing, settings.at("FileOverwrite"));
        options.flag("atomic", false, settings.span);
        for (name, option) in [("Permissions", "mode"), ("FolderPermissions", "folder_mode")] {
            if let Some(mode) = settings.text(name) {
                options.text(option, mode, settings.at(name));
            }
        }
        if let Some(rotate) = rotate {
            options.put("rotate", rotate);
        }
        options
    }

    fn rotation(&mut self) -> Option<Node> {
        const ROTATION: [&str; 9] = [
            "Rotation/TimeoutMin",
            "Rotation/SizeMB",
            "Rotation/At",
            "Rotation/Timestamp",
            "Rotation/ZeroPadding",
            "Rotation/Compress",
            "Prune/Count",
            "Prune/AfterHours",
            "Prune/TotalSizeMB",
        ];
        let settings = self.settings;
        if !settings.flag("Rotation/Enable").unwrap_or(false) {
            settings.idle(&ROTATION, "without `Rotation: { Enable: true }`", self.report);
            return None;
        }
        let mut rotate = Made::new(settings.at("Rotation/Enable"));
        let size = settings.number("Rotation/SizeMB").unwrap_or(1024);
        rotate.text("size", made::size_mib(size), settings.at("Rotation/SizeMB"));
        let minutes = settings.number("Rotation/TimeoutMin").unwrap_or(1440);
        rotate.text("every", made::time(minutes.saturating_mul(60_000)), settings.at("Rotation/TimeoutMin"));
        if let Some(at) = settings.text("Rotation/At").filter(|at| !at.is_empty()) {
            let of_two = |part: &str, below: u32| part.parse::<u32>().is_ok_and(|number| number < below);
            match at.split_once(':') {
                Some((hour, minute)) if of_two(hour, 24) && of_two(minute, 60) => {
                    rotate.text("at", format!("{hour:0>2}:{minute:0>2}"), settings.at("Rotation/At"));
                }
                _ => {
                    let message = format!("`{at}` is not a time of day.");
                    self.report
                        .mistake(settings.at("Rotation/At"), message)
                        .help("Write hours and minutes: `03:00`.");
                }
            }
        }
        rotate.text("separator", "_", settings.span);
        rotate.text("numbers", "if_taken", settings.span);
        rotate.text("link", "{stem}_current{extension}", settings.span);
        let layout = settings.text_or("Rotation/Timestamp", "2006-01-02_15");
        match strftime(&layout, Purpose::Write) {
            Ok(format) => {
                rotate.text("timestamp", format, settings.at("Rotation/Timestamp"));
            }
            Err(wrong) => {
                let message = format!("`{}` in this layout of a time has no equivalent here.", wrong.element);
                self.report.mistake(settings.at("Rotation/Timestamp"), message);
            }
        }
        if let Some(digits) = settings.number("Rotation/ZeroPadding").filter(|digits| *digits > 0) {
            rotate.number("digits", digits, settings.at("Rotation/ZeroPadding"));
        }
        if settings.flag("Rotation/Compress") == Some(true) {
            rotate.text("compression", "gzip", settings.at("Rotation/Compress"));
        }
        let positive = |name: &str| settings.number(name).filter(|number| *number > 0);
        if let Some(count) = positive("Prune/Count") {
            rotate.number("keep", count, settings.at("Prune/Count"));
        }
        if let Some(hours) = positive("Prune/AfterHours") {
            rotate.text("keep_age", format!("{hours}h"), settings.at("Prune/AfterHours"));
        }
        if let Some(mib) = positive("Prune/TotalSizeMB") {
            rotate.text("keep_bytes", made::size_mib(mib), settings.at("Prune/TotalSizeMB"));
        }
        Some(rotate.done())
    }

    fn http(&mut self) -> Made {
        let settings = self.settings;
        let mut options = self.made();
        let address = settings.text_or("Address", "http://localhost:80");
        // Go takes an address without a host for this machine.
        let address = if address.starts_with(':') { format!("localhost{address}") } else { address };
        options.text("url", address, settings.at("Address"));
        if settings.flag("RawData").unwrap_or(true) {
            options.flag("raw_request", true, settings.at("RawData"));
            settings.idle(&["Encoding"], "where payloads are whole requests (`RawData`)", self.report);
        } else if let Some(encoding) = settings.text("Encoding") {
            options.text("content_type", encoding, settings.at("Encoding"));
        }
        options
    }

    fn proxy(&mut self) -> Made {
        let settings = self.settings;
        let mut options = self.made();
        options.text(
            "address",
            address(&settings.text_or("Address", ":5880"), "unix"),
            settings.at("Address"),
        );
        if let Some(framing) = framing(settings, self.report, false) {
            options.put("framing", framing);
        }
        self.time(&mut options, "TimeoutSec", "timeout", 1000);
        self.send_buffer_size(&mut options);
        options
    }

    fn socket(&mut self) -> Made {
        let settings = self.settings;
        let mut options = self.made();
        options.text(
            "address",
            address(&settings.text_or("Address", ":5880"), "unix"),
            settings.at("Address"),
        );
        if !settings.text_or("Address", "").starts_with("udp") {
            let mut framing = self.made();
            framing.text("by", "none", settings.span);
            options.put("framing", framing.done());
        }
        if let Some(acknowledge) = settings.text("Acknowledge").filter(|text| !text.is_empty()) {
            options.text("acknowledge", acknowledge, settings.at("Acknowledge"));
            // gollum reads one answer after each batch.
            options.text("acknowledge_per", "batch", settings.span);
            self.time(&mut options, "AckTimeoutMs", "acknowledge_timeout", 1);
        } else {
            settings.idle(&["AckTimeoutMs"], "without `Acknowledge`", self.report);
        }
        self.send_buffer_size(&mut options);
        options
    }

    /// Adds the name that a mapping has for a stream. Without one, it is `otherwise`, or the stream's.
    fn name_of_stream(
        &self,
        options: &mut Made,
        mapping: &str,
        option: &str,
        stream: Option<&str>,
        otherwise: Option<&str>,
    ) {
        let stream = stream.unwrap_or("");
        let (name, span) = mapped(self.settings, mapping, stream, otherwise);
        let is_field = field_of(stream).is_some() && name == stream;
        let name = if is_field { name } else { name.replace('{', "{{").replace('}', "}}") };
        options.text(option, name, span);
    }

    fn kafka(&mut self, stream: Option<&str>) -> Made {
        let mut options = self.made();
        cluster(self.settings, self.report, &mut options);
        self.name_of_stream(&mut options, "Topics", "topic", stream, None);
        self.records(&mut options);
        options
    }

    fn native_kafka(&mut self, stream: Option<&str>) -> Made {
        let mut options = self.made();
        librdkafka(self.settings, self.report, &mut options);
        self.name_of_stream(&mut options, "Topic", "topic", stream, Some("default"));
        self.records(&mut options);
        options
    }

    /// Adds the key of records, and how they are sent.
    fn records(&mut self, options: &mut Made) {
        let settings = self.settings;
        if let Some(key) = settings.text("KeyFrom").filter(|key| !key.is_empty()) {
            let key = column(&key, settings.at("KeyFrom"), self.report);
            options.text("key", key, settings.at("KeyFrom"));
        }
        match settings.text_or("Compression", "none").to_ascii_lowercase().as_str() {
            "none" => {}
            "zip" | "gzip" => {
                options.text("compression", "gzip", settings.at("Compression"));
            }
            "snappy" => {
                options.text("compression", "snappy", settings.at("Compression"));
            }
            other => {
                let message = format!("`{other}` is not a compression, so there is none, as in gollum.");
                self.report.remark(settings.at("Compression"), message);
            }
        }
        if let Some(0 | 1) = settings.number("RequiredAcks") {
            options.text("acks", "leader", settings.at("RequiredAcks"));
        }
        self.time(options, "TimeoutMs", "timeout", 1);
    }

    fn statsd(&mut self, stream: Option<&str>) -> Made {
        let settings = self.settings;
        let mut options = self.made();
        options.text("address", settings.text_or("Server", "localhost:8125"), settings.at("Server"));
        options.text("prefix", settings.text_or("Prefix", "gollum."), settings.at("Prefix"));
        self.name_of_stream(&mut options, "StreamMapping", "metric", stream, None);
        if settings.flag("UseMessage") == Some(true) {
            options.text("value", "payload", settings.at("UseMessage"));
        }
        if settings.flag("UseGauge") == Some(true) {
            options.text("kind", "gauge", settings.at("UseGauge"));
            options.text("gauge", "sum", settings.at("UseGauge"));
        }
        options
    }

    fn websocket(&mut self) -> Made {
        let settings = self.settings;
        let mut options = self.made();
        options.text("address", settings.text_or("Address", ":81"), settings.at("Address"));
        options.text("path", settings.text_or("Path", "/"), settings.at("Path"));
        if settings.flag("IgnoreOrigin") == Some(true) {
            let any = made::text("*", settings.at("IgnoreOrigin"));
            options.put("origins", made::list(vec![any], settings.at("IgnoreOrigin")));
        }
        self.time(&mut options, "ReadTimeoutSec", "handshake_timeout", 1000);
        options
    }
}
