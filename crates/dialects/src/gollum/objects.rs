//! Turns the producers of S3 into transforms that make files of messages, and a sink that sends them.
//!
//! gollum begins an object by its size, its age and the number of its messages, and looks at them when a
//! message arrives. So does `pack`. The sink `objects` also takes messages, but does not count them, does not
//! compress them, and has no name with the time at which an object was begun.

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

/// The size of an object if only its messages are counted, in MiB. A request to S3 has at most 5 GiB.
const MOST_MIB: i64 = 1024;

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
        let (folder, name) = match path.rsplit_once('/') {
            Some((folder, name)) => (format!("{folder}/"), name.to_owned()),
            None => (String::new(), path),
        };
        Self { bucket: bucket.to_owned(), folder, name, span }
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

/// Returns the options of the sink.
pub(super) fn sink(settings: &Settings, stream: Option<&str>, report: &mut Report) -> Made {
    let stream = stream.unwrap_or("");
    let place = Place::of(settings, stream);
    if field_of(stream).is_some() {
        let message = "A router chooses the stream of a message, and with it the object.";
        report.mistake(settings.span, message).help("Write a producer for each of the streams.");
    }
    if place.bucket.is_empty() {
        report
            .mistake(place.span, format!("`{}` has no bucket.", settings.kind.name))
            .help("Name it: `Bucket: logs`, or `Bucket: logs/folder`.");
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
    options.text("max_file_bytes", made::size_mib(size.max(1)), settings.at("Rotation/SizeMB"));
    let age = made::time(minutes.max(1).saturating_mul(60_000));
    options.text("max_age", age, settings.at("Rotation/TimeoutMin"));
    options.text("delimiter", "", settings.span);
    vec![pack(options, settings.span)]
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
        // `rename_file` adds the rest. A name cannot be empty.
        false if begin.is_empty() => "{number}".to_owned(),
        false => begin.clone(),
    };
    options.text("name", name, settings.at("TimestampWrite"));
    limits(settings, &mut options, report);
    if compresses {
        options.text("compression", "gzip", settings.at("Compress"));
    }
    let mut steps = vec![pack(options, settings.span)];
    if !has_id {
        let begin = if begin.is_empty() { "" } else { "{name}" };
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
    let most = if is_of_v04(settings) { 5000 } else { 500 };
    let count = settings.number("ObjectMaxMessages").unwrap_or(most).max(1);
    options.number("max_count", count, settings.at("ObjectMaxMessages"));
    if settings.text("LocalPath").is_some_and(|path| !path.is_empty()) {
        let message = "Unfinished objects are kept in memory, in temporary files, and with `--state` there.";
        report.remark(settings.at("LocalPath"), message.to_owned());
        limits_of_files(settings, options);
    } else {
        settings.idle(&["FileMaxAgeSec", "FileMaxMB"], "without `LocalPath`", report);
        options.text("max_file_bytes", made::size_mib(MOST_MIB), settings.span);
    }
    let at = settings.at("ObjectMessageDelimiter");
    let delimiter = settings.text_or("ObjectMessageDelimiter", "\n");
    let delimiter = if delimiter.is_empty() && count > 1 { "\n".to_owned() } else { delimiter };
    if !delimiter.is_empty() {
        report.remark(at, "An object has the delimiter also after its last message.".to_owned());
    }
    options.text("delimiter", delimiter, at);
}

/// Adds the size and the age of an object that gollum builds in a file.
fn limits_of_files(settings: &Settings, options: &mut Made) {
    let at = settings.at("FileMaxMB");
    // Megabytes became mebibytes.
    let size = match (settings.number("FileMaxMB").map(|size| size.max(1)), is_of_v04(settings)) {
        (size, true) => format!("{}MB", size.unwrap_or(1000)),
        (size, false) => made::size_mib(size.unwrap_or(1024)),
    };
    options.text("max_file_bytes", size, at);
    let age = settings.number("FileMaxAgeSec").unwrap_or(if is_of_v04(settings) { 3600 } else { 360 });
    let age = made::time(age.max(1).saturating_mul(1000));
    options.text("max_age", age, settings.at("FileMaxAgeSec"));
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
