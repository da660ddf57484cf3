//! Turns consumers into sources, with the transforms that their settings need.

use thalweg_config::{Node, Span};

use super::amazon;
use super::cluster::cluster;
use super::draft::Step;
use super::draft::Transform;
use super::gotime::{Purpose, strftime};
use super::made::{self, Made};
use super::report::Report;
use super::settings::Settings;

/// The result of converting a consumer.
pub(super) struct Source {
    pub(super) node: Node,
    /// The transforms before the consumer's modulators.
    pub(super) steps: Vec<Step>,
    pub(super) notes: Vec<String>,
    /// The folder for positions, if the consumer names one.
    pub(super) state: Option<(String, Span)>,
}

pub(super) fn source(settings: &Settings, report: &mut Report) -> Source {
    let mut reading = Reading { settings, report, steps: Vec::new(), notes: Vec::new(), state: None };
    let (kind, options) = match settings.kind.name {
        "consumer.AwsKinesis" | "consumer.Kinesis" => ("aws_kinesis_streams", reading.kinesis()),
        "consumer.Console" => reading.console(),
        "consumer.File" => reading.file(),
        "consumer.HTTP" => ("http", reading.http()),
        "consumer.Kafka" => ("kafka", reading.kafka()),
        "consumer.Profiler" => ("generate", reading.profiler()),
        "consumer.Proxy" => ("proxy", reading.proxy()),
        "consumer.Socket" => ("socket", reading.socket()),
        _ => ("syslog", reading.syslog()),
    };
    let node = made::component(kind, settings.span, options.done());
    Source { node, steps: reading.steps, notes: reading.notes, state: reading.state }
}

struct Reading<'a> {
    settings: &'a Settings,
    report: &'a mut Report,
    steps: Vec<Step>,
    notes: Vec<String>,
    state: Option<(String, Span)>,
}

/// The methods check few values themselves: the component checks regular expressions and lists, at the same
/// position.
impl Reading<'_> {
    fn made(&self) -> Made {
        Made::new(self.settings.span)
    }

    fn step(&mut self, kind: &'static str, options: Made) {
        self.steps.push(Step::Transform(Transform::new(kind, options.done(), self.settings.span)));
    }

    fn milliseconds(&self, options: &mut Made, name: &str, option: &str, unit: i64) {
        if let Some(value) = self.settings.number(name).filter(|value| *value > 0) {
            options.text(option, made::time(value.saturating_mul(unit)), self.settings.at(name));
        }
    }

    fn texts(&self, options: &mut Made, names: &[(&'static str, &str)]) {
        for (name, option) in names {
            if let Some(text) = self.settings.text(name).filter(|text| !text.is_empty()) {
                options.text(option, text, self.settings.at(name));
            }
        }
    }

    fn console(&mut self) -> (&'static str, Made) {
        let settings = self.settings;
        let pipe = settings.text_or("Pipe", "stdin");
        let ends = settings.flag("ExitOnEOF").unwrap_or(true);
        if settings.flag("SetMetadata") == Some(true) {
            let mut options = self.made();
            options.text("pipe", format!("'{}'", pipe.replace('\'', "''")), settings.at("SetMetadata"));
            self.step("set", options);
        }
        if pipe.eq_ignore_ascii_case("stdin") {
            settings.idle(&["Permissions"], "for the standard input", self.report);
            if !ends {
                self.notes.push(
                    "At the end of standard input the run ends, unless another source is still running."
                        .into(),
                );
            }
            return ("stdin", self.made());
        }
        let mut options = self.made();
        options.text("path", pipe, settings.at("Pipe"));
        self.texts(&mut options, &[("Permissions", "mode")]);
        options.flag("exit_on_eof", ends, settings.at("ExitOnEOF"));
        ("pipe", options)
    }

    fn file(&mut self) -> (&'static str, Made) {
        let settings = self.settings;
        let mut options = self.made();
        let name = if settings.has("Files") { "Files" } else { "File" };
        options.text("path", settings.text_or(name, "/var/log/*.log"), settings.at(name));
        options.flag("follow", true, settings.span);
        let newest = match settings.text_or("DefaultOffset", "newest").to_ascii_lowercase().as_str() {
            "newest" | "end" => true,
            "oldest" | "start" | "begin" => false,
            other => {
                let message =
                    format!("`{other}` is not a start position, so `newest` applies, as in gollum.");
                self.report.remark(settings.at("DefaultOffset"), message);
                true
            }
        };
        if newest {
            options.text("read_from", "end", settings.at("DefaultOffset"));
        }
        let delimiter = settings.text("Delimiter").filter(|delimiter| delimiter != "\n");
        if let Some(delimiter) = delimiter {
            let mut framing = self.made();
            framing.text("delimiter", delimiter, settings.at("Delimiter"));
            options.put("framing", framing.done());
        }
        let name = if settings.has("PollingDelay") { "PollingDelay" } else { "PollingDelayMs" };
        self.milliseconds(&mut options, name, "poll_interval", 1);
        self.milliseconds(&mut options, "DirScanIntervalSec", "scan_interval", 1000);
        for (name, option) in [("BlackList", "exclude_regex"), ("WhiteList", "include_regex")] {
            if let Some(pattern) = settings.raw_text(name).filter(|pattern| !pattern.is_empty()) {
                options.text(option, pattern, settings.at(name));
            }
        }
        self.state = settings
            .text("OffsetFilePath")
            .filter(|folder| !folder.is_empty())
            .map(|folder| (folder, settings.at("OffsetFilePath")));
        if let Some(file) = settings.text("OffsetFile").filter(|file| !file.is_empty()) {
            let message = "Positions are kept in a folder. Those in gollum's file are not read.";
            self.report.remark(settings.at("OffsetFile"), message);
            self.state.get_or_insert((format!("{file}.d"), settings.at("OffsetFile")));
        }
        if settings.flag("SetMetadata") == Some(true) {
            let mut fields = self.made();
            let at = settings.at("SetMetadata");
            fields.text("file", "regexp_replace(meta.path, '^.*/', '')", at);
            fields.text("dir", "regexp_replace(meta.path, '[^/]*$', '')", at);
            self.step("set", fields);
        }
        ("file", options)
    }

    fn http(&mut self) -> Made {
        let settings = self.settings;
        let mut options = self.made();
        options.text("address", settings.text_or("Address", ":80"), settings.at("Address"));
        options.put("methods", made::list(Vec::new(), settings.span));
        if settings.flag("WithHeaders").unwrap_or(true) {
            options.text("payload", "request", settings.at("WithHeaders"));
        }
        self.texts(&mut options, &[("Htpasswd", "htpasswd"), ("BasicRealm", "realm")]);
        self.milliseconds(&mut options, "ReadTimeoutSec", "read_timeout", 1000);
        let mut tls = self.made();
        self.texts(&mut tls, &[("Certificate", "certificate"), ("PrivateKey", "key")]);
        if !tls.is_empty() {
            options.put("tls", tls.done());
        }
        options
    }

    fn kafka(&mut self) -> Made {
        let settings = self.settings;
        let mut options = self.made();
        cluster(settings, self.report, &mut options);
        let topic = settings.text_or("Topic", "default");
        options.text("topics", &topic, settings.at("Topic"));
        let group = settings.text("GroupId").filter(|group| !group.is_empty());
        let group = group.unwrap_or_else(|| {
            let name = format!("{}-{topic}", settings.text_or("ClientId", "gollum"));
            let message = format!(
                "Without `GroupId`, each gollum read all messages. Runs of thalweg with the same `group`, here \
                 `{name}`, divide them, and continue where they were."
            );
            self.report.remark(settings.at("GroupId"), message);
            name
        });
        options.text("group", group, settings.at("GroupId"));
        let start = match settings.text_or("DefaultOffset", "newest").to_ascii_lowercase().as_str() {
            "oldest" => "earliest",
            "newest" => "latest",
            other => {
                let message =
                    format!("`{other}` is not a start position, so `newest` applies, as in gollum.");
                self.report.remark(settings.at("DefaultOffset"), message);
                "latest"
            }
        };
        options.text("start", start, settings.at("DefaultOffset"));
        if let Some(bytes) = settings.number("DefaultFetchSizeByte").filter(|bytes| *bytes > 0) {
            options.number("fetch_size", bytes, settings.at("DefaultFetchSizeByte"));
        }
        if settings.flag("SetMetadata") == Some(true) {
            let at = settings.at("SetMetadata");
            let fields = ["topic", "key"].map(|name| made::text(name, at));
            options.put("fields", made::list(fields.into(), at));
        }
        options
    }

    fn kinesis(&mut self) -> Made {
        let settings = self.settings;
        let options = amazon::source(settings, self.report);
        if let Some(file) = settings.text("OffsetFile").filter(|file| !file.is_empty()) {
            let message = "Positions are kept in a folder. Those in gollum's file are not read.";
            self.report.remark(settings.at("OffsetFile"), message);
            self.state = Some((format!("{file}.d"), settings.at("OffsetFile")));
        }
        let delimiter = settings.text("RecordMessageDelimiter").filter(|delimiter| !delimiter.is_empty());
        if let Some(delimiter) = delimiter {
            let mut split = self.made();
            split.text("delimiter", delimiter, settings.at("RecordMessageDelimiter"));
            split.flag("keep_empty", true, settings.span);
            self.step("split", split);
        }
        options
    }

    fn profiler(&mut self) -> Made {
        let settings = self.settings;
        let mut options = self.made();
        options.text("message", pattern(&settings.text_or("Message", "%256s")), settings.at("Message"));
        self.texts(&mut options, &[("Characters", "characters")]);
        let runs = settings.number("Runs").unwrap_or(10_000).max(0);
        let batches = settings.number("Batches").unwrap_or(10).max(0);
        options.number("count", runs.saturating_mul(batches), settings.at("Runs"));
        if let Some(templates) = settings.number("TemplateCount").filter(|count| *count != 10) {
            options.number("templates", templates, settings.at("TemplateCount"));
        }
        if let Some(delay) = settings.number("DelayMs").filter(|delay| *delay > 0) {
            options.put("rate", rate(delay, settings.at("DelayMs")));
        }
        if settings.flag("KeepRunning") == Some(true) {
            let note = "The run ends when all its sources have ended; gollum kept running (`KeepRunning`), with nothing more to do.";
            self.notes.push(note.into());
        }
        options
    }

    fn permissions(&self, options: &mut Made) {
        self.texts(options, &[("Permissions", "mode")]);
    }

    /// Returns the framing. `keeps_all` is true if the consumer leaves binary lengths and delimiters in the
    /// messages.
    fn framing(&mut self, keeps_all: bool) -> Option<Node> {
        framing(self.settings, self.report, keeps_all)
    }

    fn proxy(&mut self) -> Made {
        let settings = self.settings;
        let mut options = self.made();
        options.text(
            "address",
            address(&settings.text_or("Address", ":5880"), "unix"),
            settings.at("Address"),
        );
        if let Some(framing) = self.framing(false) {
            options.put("framing", framing);
        }
        options
    }

    fn socket(&mut self) -> Made {
        let settings = self.settings;
        let mut options = self.made();
        let to = settings.text_or("Address", "tcp://0.0.0.0:5880");
        options.text("address", address(&to, "unix"), settings.at("Address"));
        if let Some(framing) = self.framing(true) {
            options.put("framing", framing);
        }
        if to.starts_with("unix") {
            self.permissions(&mut options);
        } else {
            settings.idle(&["Permissions", "RemoveOldSocket"], "without a unix socket", self.report);
        }
        if let Some(acknowledge) = settings.text("Acknowledge").filter(|text| !text.is_empty()) {
            if to.starts_with("udp") {
                let message = "Datagrams cannot be acknowledged.";
                self.report
                    .mistake(settings.at("Acknowledge"), message)
                    .help("Use `tcp://`, or leave it out.");
            }
            options.text("acknowledge", acknowledge, settings.at("Acknowledge"));
            self.milliseconds(&mut options, "AckTimeoutSec", "acknowledge_timeout", 1000);
        } else {
            settings.idle(&["AckTimeoutSec"], "without `Acknowledge`", self.report);
        }
        if settings.flag("RemoveOldSocket") == Some(false) && to.starts_with("unix") {
            options.flag("remove_old_socket", false, settings.at("RemoveOldSocket"));
        }
        options
    }

    fn syslog(&mut self) -> Made {
        let settings = self.settings;
        let mut options = self.made();
        let to = settings.text_or("Address", "udp://0.0.0.0:514");
        options.text("address", address(&to, "unixgram"), settings.at("Address"));
        if to.starts_with("unix") {
            self.permissions(&mut options);
        } else {
            settings.idle(&["Permissions"], "without a unix socket", self.report);
        }
        let old = match settings.text_or("Format", "RFC6587").to_ascii_uppercase().as_str() {
            "RFC3164" => true,
            "RFC5424" | "RFC6587" => false,
            other => {
                let message = format!("`{other}` is not a format of syslog.");
                self.report
                    .mistake(settings.at("Format"), message)
                    .help("There are `RFC3164`, `RFC5424` and `RFC6587`.");
                false
            }
        };
        options.text("format", if old { "rfc3164" } else { "rfc5424" }, settings.at("Format"));
        options.text("payload", "message", settings.span);
        if old {
            options.text("others", "accept", settings.span);
        }
        let with_fields = settings.flag("SetMetadata").unwrap_or(false);
        let layout = settings.text_or("TimestampFormat", "2006-01-02T15:04:05.000 MST");
        options.flag("add_fields", with_fields, settings.at("SetMetadata"));
        if with_fields {
            options.flag("codes", true, settings.span);
            if !old {
                options.text("structured_data", "key", settings.span);
            }
            let mut names = self.made();
            let renamed: &[(&str, &str)] = if old {
                &[("appname", "tag")]
            } else {
                &[("appname", "app_name"), ("procid", "proc_id"), ("msgid", "msg_id")]
            };
            for (ours, theirs) in renamed {
                names.text(ours, *theirs, settings.span);
            }
            self.step("rename", names);
            // gollum writes a missing part as it is written in the header.
            let (parts, missing): (&[&str], &str) =
                if old { (&["tag"], "") } else { (&["hostname", "app_name", "proc_id", "msg_id"], "-") };
            let mut filled = self.made();
            for part in parts {
                filled.text(part, format!("coalesce({part}, '{missing}')"), settings.span);
            }
            self.step("set", filled);
            if old {
                let gone = ["procid", "msgid", "version"].map(|name| made::text(name, settings.span));
                let gone = made::list(gone.into(), settings.span);
                self.steps.push(Step::Transform(Transform::new("drop", gone, settings.span)));
            }
            match strftime(&layout, Purpose::Write) {
                Ok(format) => {
                    let mut times = self.made();
                    times.text("field", "timestamp", settings.span);
                    times.text("format", format, settings.at("TimestampFormat"));
                    self.step("format_timestamp", times);
                }
                Err(wrong) => {
                    let message =
                        format!("`{}` in this layout of a time has no equivalent here.", wrong.element);
                    self.report.mistake(settings.at("TimestampFormat"), message);
                }
            }
        }
        options
    }
}

/// Returns the pattern of the profiler's messages with thalweg's verbs. gollum makes a text for each verb
/// that is for no number, and has Go print it.
fn pattern(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let (size, after) = after.split_at(digits);
        // The precision is not a part of the pattern.
        let precision = after
            .strip_prefix('.')
            .map_or(0, |more| 1 + more.find(|c: char| !c.is_ascii_digit()).unwrap_or(more.len()));
        let after = &after[precision..];
        let Some(verb) = after.chars().next() else {
            out.push_str("%%");
            rest = "";
            break;
        };
        out.push_str(&match verb {
            '%' => "%%".to_owned(),
            'd' | 'b' | 'o' | 'x' | 'X' | 'e' | 'f' | 'g' | 'c' | 's' => format!("%{size}{verb}"),
            'v' => format!("%{size}s"),
            'q' => format!("\"%{size}s\""),
            'T' => "string".to_owned(),
            'U' => "U+%4X".to_owned(),
            other => format!("%%!{other}(string=%{size}s)"),
        });
        rest = &after[verb.len_utf8()..];
    }
    out + rest
}

/// Turns a delay of `delay` ms between messages into a rate in messages per second.
fn rate(delay: i64, span: Span) -> Node {
    let rate = 1000.0 / delay as f64;
    Node::plain(span, &rate.to_string())
}

/// Returns an address in thalweg's notation. `unix` is the scheme that the plugin uses for a socket in the
/// file system.
pub(super) fn address(written: &str, unix: &str) -> String {
    match written.split_once("://") {
        Some(("unix", path)) => format!("{unix}://{path}"),
        _ => written.to_owned(),
    }
}

/// Returns the framing of a socket or proxy, or `None` for the default, where each line is a message.
pub(super) fn framing(settings: &Settings, report: &mut Report, keeps_binary_prefix: bool) -> Option<Node> {
    let by = settings.text_or("Partitioner", "delimiter").to_ascii_lowercase();
    let delimiter = settings.text_or("Delimiter", "\n");
    let mut options = Made::new(settings.span);
    // `binary` is another name of `binary_le`.
    let by = if by == "binary" { "binary_le".to_owned() } else { by };
    options.text("by", &by, settings.at("Partitioner"));
    let offset = settings.number("Offset").filter(|offset| *offset != 0);
    let size = settings.number("Size");
    let idle: &[&'static str] = match by.as_str() {
        "delimiter" => &["Offset", "Size"],
        "ascii" => &["Size"],
        "fixed" => &["Offset", "Delimiter"],
        _ => &["Delimiter"],
    };
    settings.idle(idle, &format!("for the partitioner `{by}`"), report);
    match by.as_str() {
        "delimiter" => {
            if delimiter != "\n" {
                options.text("delimiter", &delimiter, settings.at("Delimiter"));
            } else {
                return None;
            }
        }
        "ascii" => {
            options.text("delimiter", &delimiter, settings.at("Delimiter"));
        }
        "binary_le" | "binary_be" => {
            if let Some(size) = size {
                if !matches!(size, 1 | 2 | 4 | 8) {
                    let message = format!("A length cannot have {size} bytes.");
                    report.mistake(settings.at("Size"), message).help("It has 1, 2, 4 or 8.");
                }
                options.number("size", size, settings.at("Size"));
            }
            if keeps_binary_prefix {
                options.flag("whole", true, settings.at("Partitioner"));
            }
        }
        "fixed" => {
            options.number("size", size.unwrap_or(1), settings.at("Size"));
        }
        other => {
            let known = ["delimiter", "ascii", "binary", "binary_le", "binary_be", "fixed"];
            let message = format!("There is no partitioner `{other}`.");
            report.unknown(settings.at("Partitioner"), message, other, known, "");
        }
    }
    if let Some(offset) = offset.filter(|_| by == "ascii" || by.starts_with("binary")) {
        options.number("offset", offset, settings.at("Offset"));
    }
    Some(options.done())
}

#[cfg(test)]
mod tests {
    use super::pattern;

    #[test]
    fn verbs_of_the_profiler_are_translated() {
        assert_eq!(
            pattern("%256s %q %5.2f %3v %T %U %t 100%% %d"),
            "%256s \"%s\" %5f %3s string U+%4X %%!t(string=%s) 100%% %d"
        );
        assert_eq!(pattern("a%"), "a%%");
    }
}
