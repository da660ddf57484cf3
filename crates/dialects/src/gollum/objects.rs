//! Turns the producers of S3 into transforms that make files of messages, and a sink that sends them.
//!
//! gollum begins an object by its size, its age and the number of its messages. So does `pack`. The sink
//! `objects` also takes messages, but does not count them, does not compress them, and has no name with the
//! time at which an object was begun.
//!
//! There is no failover to these sinks: it would keep each message in memory until its object is written. An
//! object may be larger than the memory, and would then never be finished.

use std::net::Ipv4Addr;

use thalweg_config::Span;

use super::amazon::{credentials, endpoint};
use super::draft::{Step, Transform};
use super::gotime::{Purpose, strftime};
use super::made::{self, Made};
use super::producers::{field_of, mapped};
use super::report::Report;
use super::settings::Settings;
use crate::store_url;

/// The size of an object if only its messages are counted, in MiB.
const COUNTED_MIB: i64 = 1024;

/// The largest size of an object in S3, in MiB.
const LARGEST_MIB: i64 = 5 << 20;

/// The largest age of an object, in milliseconds: a hundred years.
const OLDEST: i64 = 100 * 365 * 24 * 3_600_000;

/// The place of the objects of a stream.
struct Place {
    bucket: String,
    /// The folder in the bucket: empty, or with a slash at its end.
    folder: String,
    /// The last part of the path.
    name: String,
    span: Span,
}

impl Place {
    /// Returns the place of a bucket with a path behind it, and of a name in it.
    fn new(written: &str, name: &str, span: Span) -> Self {
        let (bucket, below) = written.split_once('/').unwrap_or((written, ""));
        let path = format!("{below}{name}");
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path.as_str()));
        // Amazon's library for Go takes several slashes for one, and leaves out the first.
        let folders = folder.split('/').filter(|part| !part.is_empty());
        let folder = folders.map(|part| format!("{part}/")).collect();
        Self { bucket: bucket.to_owned(), folder, name: name.to_owned(), span }
    }

    fn of(settings: &Settings, stream: &str) -> Self {
        if !is_former(settings) {
            let bucket = settings.text_or("Bucket", "");
            let file = settings.text_or("File", "gollum_*.log").replace('*', stream);
            let has_folder = bucket.contains('/') && !bucket.ends_with('/');
            let file = if has_folder { format!("/{file}") } else { file };
            return Self::new(&bucket, &file, settings.at("Bucket"));
        }
        // gollum 0.5 and later send a stream without a mapping to the bucket `default`.
        let otherwise = (!is_of_v04(settings)).then_some("default");
        let (path, span) = mapped(settings, "StreamMapping", stream, otherwise);
        Self::new(&path, "", span)
    }
}

/// True for the producer that gollum 0.5 calls deprecated.
fn is_former(settings: &Settings) -> bool {
    settings.kind.name != "producer.AwsS3"
}

fn is_of_v04(settings: &Settings) -> bool {
    settings.kind.name == "producer.S3"
}

/// True if a producer writes objects.
pub(super) fn makes_objects(settings: &Settings) -> bool {
    matches!(settings.kind.name, "producer.AwsS3" | "producer.S3" | "deprecated.producer.S3")
}

/// True if streams may have objects of their own.
pub(super) fn depends_on_stream(settings: &Settings) -> bool {
    if !is_former(settings) {
        return settings.text_or("File", "*").contains('*');
    }
    let mapping = settings.map("StreamMapping");
    let has_others = mapping.iter().any(|(stream, _, _)| stream == "*");
    // gollum 0.5 and later have a bucket for all streams without a mapping.
    mapping.iter().any(|(stream, _, _)| stream != "*") || is_of_v04(settings) && !has_others
}

/// True if the name of a stream is in the place of its objects, unless a mapping has another for it.
fn has_name_of_stream(settings: &Settings) -> bool {
    match is_former(settings) {
        true => {
            is_of_v04(settings) && settings.map("StreamMapping").iter().all(|(stream, _, _)| stream != "*")
        }
        false => depends_on_stream(settings),
    }
}

/// Returns the bucket with the beginning of the objects' names.
pub(super) fn place(settings: &Settings, stream: &str) -> String {
    let Place { bucket, folder, name, .. } = Place::of(settings, stream);
    format!("{bucket}/{folder}{name}")
}

/// Reports a bucket that cannot be a part of a URL.
fn check_bucket(settings: &Settings, place: &Place, report: &mut Report) {
    let (option, example) = match is_former(settings) {
        true => ("StreamMapping", "`StreamMapping: { \"*\": logs/folder }`"),
        false => ("Bucket", "`Bucket: logs`, or `Bucket: logs/folder`"),
    };
    let has_meaning = |character: char| {
        character.is_whitespace() || character.is_control() || "?#@:%\\{}".contains(character)
    };
    if place.bucket.is_empty() {
        report
            .mistake(place.span, format!("`{}` has no bucket.", settings.kind.name))
            .help(format!("Name it: {example}."));
    } else if place.bucket.contains(has_meaning) {
        // The text is not shown: it may be a URL with a password.
        report
            .mistake(place.span, format!("`{option}` begins with what cannot be a bucket."))
            .help(format!("Write it without `s3://`: {example}."));
    }
}

/// Returns the options of the sink.
pub(super) fn sink(settings: &Settings, stream: Option<&str>, report: &mut Report) -> Made {
    let stream = stream.unwrap_or("");
    let place = Place::of(settings, stream);
    // The sink of a producer to which nothing is sent has no stream, and is left out.
    let is_left_out = is_former(settings) && depends_on_stream(settings) && stream.is_empty();
    if field_of(stream).is_some() && has_name_of_stream(settings) {
        let message = "A router chooses the stream of a message, and with it the object.";
        report.mistake(settings.span, message).help("Write a producer for each of the streams.");
    } else if !is_left_out {
        check_bucket(settings, &place, report);
    }
    let default = if is_former(settings) { "eu-west-1" } else { "us-east-1" };
    let region = settings.text_or("Region", default);
    let endpoint = endpoint(settings).unwrap_or_default();
    let mut url = vec![("region", region), ("endpoint", endpoint.clone())];
    let credentials = credentials(settings, report);
    let role = settings.text_or("Credential/AssumeRole", "");
    // Without a type, the former producer looked for credentials in the usual places.
    if credentials.kind == "none" && role.is_empty() && !is_former(settings) {
        url.push(("skip_signature", "true".to_owned()));
    }
    url.extend(credentials.parts.into_iter().map(|(_, option, text)| (option, text)));
    url.push(("role_arn", role));
    if is_former(settings)
        && let Some(class) = settings.text("StorageClass").filter(|class| class != "STANDARD")
    {
        url.push(("default_storage_class", class));
    }
    if is_before_host(&place.bucket, &endpoint) {
        url.push(("enable_virtual_host_style", "true".to_owned()));
    }
    let url: Vec<(&str, &str)> = url.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut options = Made::new(settings.span);
    options.text("url", store_url::s3(&place.bucket, &place.folder, &url), place.span);
    // As in gollum, an object of an earlier run is replaced, and no permission is needed to look for it.
    options.text("existing", "replace", settings.span);
    if !is_former(settings) {
        let message = "An object replaces one of an earlier run that has the same name, as in gollum. With \
                       `--state` it gets another name.";
        report.remark(settings.at("Rotation/Timestamp"), message);
    }
    options
}

/// True if gollum makes the bucket a part of the host's name. It does so even where the host is an address,
/// which leads nowhere.
fn is_before_host(bucket: &str, endpoint: &str) -> bool {
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let host = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest);
    let host = host.split(['/', ':']).next().unwrap_or(host);
    let is_address = host.starts_with('[') || host.parse::<Ipv4Addr>().is_ok() || host == "localhost";
    bucket.bytes().all(is_name) && !is_address
}

/// Returns the transforms that make files of messages.
pub(super) fn packing(settings: &Settings, stream: &str, report: &mut Report) -> Vec<Step> {
    let place = Place::of(settings, stream);
    if is_former(settings) {
        return former(settings, &place, report);
    }
    let (stem, extension) = match place.name.rfind('.') {
        Some(at) => place.name.split_at(at),
        None => (place.name.as_str(), ""),
    };
    let time = time(settings, "Rotation/Timestamp", "2006-01-02_15", report);
    let mut options = Made::new(settings.span);
    let name = format!("{}_{time}{}", literal(stem), literal(extension));
    options.text("name", name, settings.at("File"));
    let size = settings.number("Rotation/SizeMB").unwrap_or(1024);
    let minutes = settings.number("Rotation/TimeoutMin").unwrap_or(1440);
    if size <= 0 || minutes <= 0 {
        // Such an object is always too large or too old.
        options.number("max_count", 1, settings.span);
    }
    let size = made::size_mib(size.clamp(1, LARGEST_MIB));
    options.text("max_file_bytes", size, settings.at("Rotation/SizeMB"));
    options.text("max_age", age(minutes, 60_000), settings.at("Rotation/TimeoutMin"));
    options.text("delimiter", "", settings.span);
    vec![pack(options, settings.span)]
}

/// Returns an age for an option, from a number of units of this many milliseconds.
fn age(number: i64, unit: i64) -> String {
    made::time(number.max(1).saturating_mul(unit).min(OLDEST))
}

/// Returns the transforms of the former producer. The name of its object has the time and a checksum.
fn former(settings: &Settings, place: &Place, report: &mut Report) -> Vec<Step> {
    let time = time(settings, "TimestampWrite", "2006-01-02T15:04:05", report);
    let compresses = settings.flag("Compress") == Some(true);
    let suffix = if compresses { ".gz" } else { "" };
    let begin = format!("{}{time}", literal(&place.name));
    let has_id = has_id(settings, report);
    let mut options = Made::new(settings.span);
    let name = match has_id {
        true => format!("{begin}{{id}}{suffix}"),
        // `rename_file` adds the rest. Until then a name must not be empty, or be `..`.
        false if time.is_empty() => "{number}".to_owned(),
        false => begin.clone(),
    };
    options.text("name", name, settings.at("TimestampWrite"));
    limits(settings, &mut options, report);
    if compresses {
        options.text("compression", "gzip", settings.at("Compress"));
    }
    let mut steps = vec![pack(options, settings.span)];
    if !has_id {
        let begin = if time.is_empty() { begin.as_str() } else { "{name}" };
        let (mut hash, mut rename) = (Made::new(settings.span), Made::new(settings.span));
        hash.text("algorithm", "sha1", settings.span);
        rename.text("to", format!("{begin}{{hash}}{suffix}"), settings.span);
        let step = |kind, options: Made| Step::Transform(Transform::new(kind, options.done(), settings.span));
        steps.extend([step("hash", hash), step("rename_file", rename)]);
    }
    steps
}

/// Adds the end of an object, and the text between its messages.
fn limits(settings: &Settings, options: &mut Made, report: &mut Report) {
    let has_files = settings.text("LocalPath").is_some_and(|path| !path.is_empty());
    let is_none = |name: &str| has_files && settings.number(name).is_some_and(|most| most <= 0);
    let most = if is_of_v04(settings) { 5000 } else { 500 };
    let most = settings.number("ObjectMaxMessages").unwrap_or(most).max(1);
    // Each message is an object if none may be larger or older than nothing.
    let count = if is_none("FileMaxMB") || is_none("FileMaxAgeSec") { 1 } else { most };
    options.number("max_count", count, settings.at("ObjectMaxMessages"));
    if has_files {
        let message = "Unfinished objects are kept in memory, in temporary files, and with `--state` there.";
        report.remark(settings.at("LocalPath"), message.to_owned());
        limits_of_files(settings, options, report);
    } else {
        settings.idle(&["FileMaxAgeSec", "FileMaxMB"], "without `LocalPath`", report);
        options.text("max_file_bytes", made::size_mib(COUNTED_MIB), settings.span);
        // gollum wrote its objects with each batch.
        let seconds = settings.number("BatchTimeoutSec").unwrap_or(if is_of_v04(settings) { 30 } else { 3 });
        options.text("max_age", age(seconds, 1000), settings.at("BatchTimeoutSec"));
    }
    let at = settings.at("ObjectMessageDelimiter");
    let delimiter = settings.text("ObjectMessageDelimiter").filter(|delimiter| !delimiter.is_empty());
    let delimiter = if count == 1 { String::new() } else { delimiter.unwrap_or_else(|| "\n".to_owned()) };
    if delimiter.is_empty() {
        settings.idle(&["ObjectMessageDelimiter"], "in an object of one message", report);
    } else {
        report.remark(at, "An object has the delimiter also after its last message.".to_owned());
    }
    options.text("delimiter", delimiter, at);
}

/// Adds the size and the age of an object that gollum builds in a file.
fn limits_of_files(settings: &Settings, options: &mut Made, report: &mut Report) {
    settings.idle(&["BatchTimeoutSec"], "with `LocalPath`", report);
    let size = settings.number("FileMaxMB").map(|size| size.clamp(1, LARGEST_MIB));
    // Megabytes became mebibytes.
    let size = match is_of_v04(settings) {
        true => format!("{}MB", size.unwrap_or(1000)),
        false => made::size_mib(size.unwrap_or(1024)),
    };
    options.text("max_file_bytes", size, settings.at("FileMaxMB"));
    let seconds = settings.number("FileMaxAgeSec").unwrap_or(if is_of_v04(settings) { 3600 } else { 360 });
    options.text("max_age", age(seconds, 1000), settings.at("FileMaxAgeSec"));
}

/// True if an identifier takes the place of the checksum in the name.
fn has_id(settings: &Settings, report: &mut Report) -> bool {
    let Some(formatter) = settings.text("PathFormatter").filter(|formatter| !formatter.is_empty()) else {
        return false;
    };
    let at = settings.at("PathFormatter");
    if formatter.eq_ignore_ascii_case("format.Identifier") {
        report.remark(at, "The identifier of an object is one of thalweg.".to_owned());
    } else {
        report
            .mistake(at, format!("`{formatter}` cannot make a part of an object's name here."))
            .help("Use `format.Identifier`, or leave it out: the name then has the SHA-1 of the object.");
    }
    true
}

/// Returns the time in the name of an object.
fn time(settings: &Settings, option: &'static str, default: &str, report: &mut Report) -> String {
    let layout = settings.text_or(option, default);
    if layout.is_empty() {
        return String::new();
    }
    let at = settings.at(option);
    match strftime(&layout, Purpose::Write) {
        Ok(format) if format.contains(['/', '{', '}']) => {
            let message = format!("`{layout}` cannot be a part of an object's name here.");
            report.mistake(at, message).help("Write it without slashes and braces.");
            String::new()
        }
        Ok(format) => format!("{{time:{format}}}"),
        Err(wrong) => {
            let message = format!("`{}` in this layout of a time has no equivalent here.", wrong.element);
            report.mistake(at, message);
            String::new()
        }
    }
}

fn literal(text: &str) -> String {
    text.replace('{', "{{").replace('}', "}}")
}

fn pack(options: Made, span: Span) -> Step {
    let mut transform = Transform::new("pack", options.done(), span);
    transform.stateful = true;
    Step::Transform(transform)
}

#[cfg(test)]
mod tests {
    use super::is_before_host;

    #[test]
    fn a_bucket_is_a_part_of_a_hosts_name_but_not_of_an_address() {
        for (bucket, endpoint) in
            [("logs", ""), ("logs", "https://s3.example.org"), ("l-1", "http://h:9000/x")]
        {
            assert!(is_before_host(bucket, endpoint), "{bucket} {endpoint}");
        }
        for (bucket, endpoint) in [
            ("logs.example.org", ""),
            ("Logs", ""),
            ("logs", "http://127.0.0.1:9000"),
            ("logs", "http://[::1]:9000"),
            ("logs", "http://localhost:9000"),
        ] {
            assert!(!is_before_host(bucket, endpoint), "{bucket} {endpoint}");
        }
    }
}
