//! Turns the consumer and the producers of Amazon's services into sources and sinks.

use super::made::{self, Made};
use super::producers::field_of;
use super::report::Report;
use super::settings::Settings;

/// Returns the options of the sink of a producer, with what all of them have. Credentials are written where
/// gollum has them.
fn service(settings: &Settings, report: &mut Report) -> Made {
    let mut options = Made::new(settings.span);
    options.text("region", settings.text_or("Region", "us-east-1"), settings.at("Region"));
    if let Some(endpoint) = settings.text("Endpoint").filter(|endpoint| !endpoint.is_empty()) {
        // Go's library takes an address without a scheme for one of HTTPS.
        let url = if endpoint.contains("://") { endpoint } else { format!("https://{endpoint}") };
        options.text("url", url, settings.at("Endpoint"));
    }
    let mut auth = Made::new(settings.at("Credential/Type"));
    let kind = settings.text_or("Credential/Type", "none").to_ascii_lowercase();
    let parts: &[(&'static str, &str)] = match kind.as_str() {
        "static" => &[
            ("Credential/Id", "access_key_id"),
            ("Credential/Secret", "secret_access_key"),
            ("Credential/Token", "session_token"),
        ],
        "shared" => &[("Credential/Profile", "profile")],
        "environment" => &[],
        "none" => {
            let message = "Requests are always signed. Credentials are looked for as Amazon's own tools do.";
            report.remark(settings.at("Credential/Type"), message.to_owned());
            &[]
        }
        other => {
            let known = ["environment", "static", "shared", "none"];
            let message = format!("`{other}` is no kind of credentials.");
            report.unknown(settings.at("Credential/Type"), message, other, known, "");
            &[]
        }
    };
    let all: [&'static str; 4] =
        ["Credential/Id", "Credential/Secret", "Credential/Token", "Credential/Profile"];
    for (name, option) in parts {
        if let Some(text) = settings.text(name).filter(|text| !text.is_empty()) {
            auth.text(option, text, settings.at(name));
        }
    }
    for name in all.into_iter().filter(|name| parts.iter().all(|(part, _)| part != name)) {
        settings.idle(&[name], &format!("with `Type: {kind}`"), report);
    }
    if let Some(role) = settings.text("Credential/AssumeRole").filter(|role| !role.is_empty()) {
        auth.text("role", role, settings.at("Credential/AssumeRole"));
    }
    if !auth.is_empty() {
        options.put("auth", auth.done());
    }
    options
}

/// Adds the name that a stream has in Amazon's service.
fn stream(settings: &Settings, stream: Option<&str>, report: &mut Report, options: &mut Made) {
    let mapping = settings.map("StreamMapping");
    let stream = stream.unwrap_or("");
    let find = |wanted: &str| mapping.iter().find(|(name, _, _)| name == wanted);
    match find(stream).or_else(|| find("*")) {
        Some((_, name, span)) => options.text("stream", name, *span),
        None => {
            if field_of(stream).is_some() {
                let message = "A router chooses the stream of a message, and with it that of the service.";
                report
                    .mistake(settings.at("StreamMapping"), message.to_owned())
                    .help("Write a producer for each of the streams.");
            }
            options.text("stream", stream, settings.span)
        }
    };
}

/// Returns the options of the sink of `producer.AwsKinesis` for messages of a stream.
pub(super) fn kinesis(settings: &Settings, of: Option<&str>, report: &mut Report) -> Made {
    let mut options = service(settings, report);
    stream(settings, of, report, &mut options);
    options
}

/// Returns the options of the sink of `producer.AwsFirehose` for messages of a stream.
pub(super) fn firehose(settings: &Settings, of: Option<&str>, report: &mut Report) -> Made {
    let mut options = service(settings, report);
    stream(settings, of, report, &mut options);
    // gollum puts the delimiter between the messages of a record, and nothing between records.
    let delimiter = settings.text_or("RecordMessageDelimiter", "\n");
    let joins = settings.number("RecordMaxMessages").is_some_and(|most| most > 1);
    let (delimiter, at) = match joins {
        true => (delimiter, settings.at("RecordMessageDelimiter")),
        false => {
            settings.idle(&["RecordMessageDelimiter"], "with one message in a record", report);
            (String::new(), settings.span)
        }
    };
    options.text("delimiter", delimiter, at);
    options
}

/// Returns the options of the sink of `producer.AwsCloudwatchLogs`.
pub(super) fn cloudwatch(settings: &Settings, report: &mut Report) -> Made {
    let mut options = service(settings, report);
    for (name, option) in [("LogGroup", "log_group"), ("LogStream", "log_stream")] {
        let text = settings.text_or(name, "").replace('{', "{{").replace('}', "}}");
        options.text(option, text, settings.at(name));
    }
    options
}

/// Returns the options of the source of `consumer.AwsKinesis`.
pub(super) fn source(settings: &Settings, report: &mut Report) -> Made {
    let mut options = service(settings, report);
    options.text("stream", settings.text_or("KinesisStream", "default"), settings.at("KinesisStream"));
    let start = match settings.text_or("DefaultOffset", "newest").to_ascii_lowercase().as_str() {
        "oldest" => "earliest",
        "newest" => "latest",
        other => {
            let message = format!("`{other}` would be a number of a record in each shard.");
            report
                .mistake(settings.at("DefaultOffset"), message)
                .help("Write `newest` or `oldest`; the source `aws_kinesis_streams` also begins at a time.");
            "latest"
        }
    };
    options.text("start", start, settings.at("DefaultOffset"));
    if let Some(pause) = settings.number("QuerySleepTimeMs").filter(|pause| *pause >= 10) {
        options.text("poll_interval", made::time(pause), settings.at("QuerySleepTimeMs"));
    }
    options
}
