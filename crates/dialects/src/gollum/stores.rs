//! Turns the producers of databases into sinks.

use thalweg_config::Node;

use super::draft::{Step, Transform};
use super::formatters::id_kind;
use super::gotime::{Purpose, strftime};
use super::made::{self, Made};
use super::modulators::column;
use super::producers::field_of;
use super::report::Report;
use super::settings::{self, Settings};
use super::version::Version;

/// The settings of a stream in `StreamProperties`. gollum gives those of the index to the server.
const OF_STREAM: [&str; 7] =
    ["Index", "TimeBasedIndex", "TimeBasedFormat", "DayBasedIndex", "Type", "Mapping", "Settings"];

/// Returns the sink of `producer.ElasticSearch` for messages of a stream.
pub(super) fn elasticsearch(settings: &Settings, stream: Option<&str>, report: &mut Report) -> Node {
    let mut options = Made::new(settings.span);
    let servers = settings.list("Servers");
    let (server, span) =
        servers.first().cloned().unwrap_or_else(|| ("http://127.0.0.1:9200".to_owned(), settings.span));
    options.text("url", server, span);
    if let Some((_, span)) = servers.get(1) {
        report.remark(*span, "Only the first server is used.".to_owned());
    }
    auth(settings, &mut options, report);
    if settings.flag("SetGzip") == Some(true) {
        options.text("compression", "gzip", settings.at("SetGzip"));
    }
    options.text("encode", "raw", settings.span);
    let groups = settings.groups("StreamProperties");
    let stream = stream.unwrap_or("");
    if field_of(stream).is_some() && !groups.is_empty() {
        let message = "A router chooses the stream of a message, and with it the index.";
        report
            .mistake(settings.at("StreamProperties"), message.to_owned())
            .help("Write a producer for each of the streams.");
    }
    match groups.iter().find(|(name, _)| name == stream) {
        Some((_, group)) => {
            index(settings, group, &mut options, report);
            made::component("elasticsearch", settings.span, options.done())
        }
        None => {
            let message =
                format!("`{stream}` has no `StreamProperties`, so its messages are dropped, as in gollum.");
            report.remark(settings.at("StreamProperties"), message);
            made::component("discard", settings.span, Made::new(settings.span).done())
        }
    }
}

/// Adds the index of a stream.
fn index(settings: &Settings, group: &Node, options: &mut Made, report: &mut Report) {
    let find = |name: &str| group.entries().iter().find(|(key, _)| key.name.eq_ignore_ascii_case(name));
    for (key, _) in group.entries() {
        if !OF_STREAM.iter().any(|known| key.name.eq_ignore_ascii_case(known)) {
            report.mistake(key.span, format!("`{}` is not a setting of a stream.", key.name));
        }
    }
    for name in ["Type", "Mapping", "Settings"] {
        if let Some((key, _)) = find(name) {
            let message = format!("`{name}` has no effect here: give the server a template of the index.");
            report.remark(key.span, message);
        }
    }
    let Some((name, span)) = find("Index").and_then(|(_, node)| Some((settings::plain(node)?, node.span)))
    else {
        report
            .mistake(group.span, "The stream has no `Index`.".to_owned())
            .help("For example `Index: logs`.");
        return;
    };
    let mut name = name.replace('{', "{{").replace('}', "}}");
    let is_set = |name: &str| find(name).and_then(|(_, node)| settings::flag(node)) == Some(true);
    if is_set("TimeBasedIndex") || is_set("DayBasedIndex") {
        let format = find("TimeBasedFormat").and_then(|(_, node)| settings::plain(node));
        match strftime(format.unwrap_or("2006-01-02"), Purpose::Write) {
            Ok(format) => name += &format!("_{{meta.time:{format}}}"),
            Err(wrong) => {
                let message = format!("`{}` in this layout of a time has no equivalent here.", wrong.element);
                report.mistake(settings.at("StreamProperties"), message);
            }
        }
    }
    options.text("index", name, span);
}

/// Returns the options of the sink of `producer.InfluxDB`.
pub(super) fn influxdb(settings: &Settings, report: &mut Report) -> Made {
    let mut options = Made::new(settings.span);
    if settings.number("Version").is_some_and(|version| version <= 90) {
        let message = "This version of InfluxDB does not have the line protocol.";
        report
            .mistake(settings.at("Version"), message.to_owned())
            .help("`100` stands for InfluxDB 1.0 and later.");
    }
    let host = settings.text_or("Host", "localhost:8086");
    options.text("url", format!("http://{host}"), settings.at("Host"));
    auth(settings, &mut options, report);
    let database = settings.text_or("Database", "default");
    let has_time = settings.flag("TimeBasedName").unwrap_or(true)
        && strftime(&database, Purpose::Write).map_or(true, |format| format != database);
    if has_time {
        let message = format!("`{database}` has elements of time, and a sink has one database.");
        report
            .mistake(settings.at("Database"), message)
            .help("Set `TimeBasedName: false` if the name is meant as it is.");
    }
    options.text("database", database, settings.at("Database"));
    if let Some(policy) = settings.text("RetentionPolicy").filter(|policy| !policy.is_empty()) {
        options.text("retention_policy", policy, settings.at("RetentionPolicy"));
    }
    options.text("precision", "ms", settings.span);
    options
}

/// The field with the identifier that v0.4 makes for a message, for the field of a hash or a score.
const IDENTIFIER: &str = "redis_identifier";

/// Returns the command that a storage stands for. Others are strings, as in gollum.
fn command(settings: &Settings) -> &'static str {
    match settings.text_or("Storage", "hash").to_ascii_lowercase().as_str() {
        "hash" => "hset",
        "list" => "rpush",
        "set" => "sadd",
        "sortedset" => "zadd",
        _ => "set",
    }
}

/// True if the field of a hash or the score is an identifier.
fn wants_identifier(settings: &Settings, version: Version) -> bool {
    let has_field = settings.text("FieldFrom").is_some_and(|field| !field.is_empty());
    matches!(command(settings), "hset" | "zadd")
        && !has_field
        && (version == Version::V04 || settings.has("FieldFormatter"))
}

/// Returns the transform that makes the identifier for `producer.Redis`, if it wants one.
pub(super) fn identifier(settings: &Settings, version: Version, report: &mut Report) -> Option<Step> {
    if !wants_identifier(settings, version) {
        let names = ["FieldFormatter", "FieldAfterFormat", "IdentifierType"];
        settings.idle(&names, "with these settings: there is no identifier", report);
        return None;
    }
    let formatter = settings.text_or("FieldFormatter", "format.Identifier");
    if !formatter.eq_ignore_ascii_case("format.Identifier") {
        report
            .mistake(settings.at("FieldFormatter"), format!("`{formatter}` cannot make the field here."))
            .help("Convert the file, and add a transform that makes the field before the sink.");
    }
    let at = settings.at("IdentifierType");
    let generator = settings.text_or("IdentifierType", "time");
    let kind = id_kind(&generator).unwrap_or_else(|| {
        // gollum 0.4 took `time` then.
        report.remark(at, format!("`{generator}` is not a generator of ids, so `time` is used."));
        "time"
    });
    let mut options = Made::new(settings.span);
    options.text("into", IDENTIFIER, settings.span).text("kind", kind, at);
    if kind != "hash" && version == Version::V04 {
        options.number("start", 0, settings.span);
    }
    let mut transform = Transform::new("add_id", options.done(), settings.span);
    transform.stateful = kind != "hash";
    Some(Step::Transform(transform))
}

/// Returns an address of Redis as the sink takes it.
fn redis_address(written: &str) -> String {
    let (protocol, address) = written.split_once("://").unwrap_or(("tcp", written));
    let protocol = protocol.to_ascii_lowercase();
    let is_port = !address.is_empty() && address.bytes().all(|byte| byte.is_ascii_digit());
    match protocol.as_str() {
        // gollum takes a number for a port, and Go an address without a host for this machine.
        "tcp" | "tcp4" | "tcp6" if is_port => format!("localhost:{address}"),
        "tcp" | "tcp4" | "tcp6" if address.starts_with(':') => format!("localhost{address}"),
        "tcp" | "tcp4" | "tcp6" => address.to_owned(),
        _ => format!("{protocol}://{address}"),
    }
}

/// Returns the options of the sink of `producer.Redis`.
pub(super) fn redis(settings: &Settings, version: Version, report: &mut Report) -> Made {
    let mut options = Made::new(settings.span);
    let address = redis_address(&settings.text_or("Address", ":6379"));
    options.text("servers", address, settings.at("Address"));
    if let Some(password) = settings.text("Password").filter(|password| !password.is_empty()) {
        let mut auth = Made::new(settings.at("Password"));
        auth.text("password", password, settings.at("Password"));
        options.put("auth", auth.done());
    }
    if let Some(database) = settings.number("Database").filter(|database| *database > 0) {
        options.number("database", database, settings.at("Database"));
    }
    let storage = settings.text_or("Storage", "hash");
    let command = command(settings);
    if command == "set" && !storage.eq_ignore_ascii_case("string") {
        let message = format!("`{storage}` is not a storage, so values are strings, as in gollum.");
        report.remark(settings.at("Storage"), message);
    }
    options.text("command", command, settings.at("Storage"));
    let key = redis_key(settings, version, report);
    options.text("key", key, settings.at("KeyFrom"));
    let field = match wants_identifier(settings, version) {
        true => Some(format!("{{{IDENTIFIER}}}")),
        false => place(settings, "FieldFrom", report),
    };
    let at = settings.at("FieldFrom");
    match (command, field) {
        ("hset", Some(field)) => {
            options.text("field", field, at);
        }
        ("hset", None) => {
            let message = "Without `FieldFrom`, a value replaces the one before, as in gollum 0.5 and later.";
            report.remark(settings.span, message.to_owned());
            options.text("field", "", at);
        }
        ("zadd", Some(score)) => {
            options.text("score", score, at);
        }
        ("zadd", None) => {
            report
                .mistake(settings.at("Storage"), "A member of a sorted set has a score.".to_owned())
                .help("`FieldFrom` is the field that has it. gollum drops messages without a score.");
        }
        (_, Some(_)) => {
            report.remark(at, format!("`FieldFrom` has no effect with `Storage: {storage}`."));
        }
        (_, None) => {}
    }
    options
}

/// Returns the template of a field that a setting names.
fn place(settings: &Settings, name: &str, report: &mut Report) -> Option<String> {
    let path = settings.text(name).filter(|path| !path.is_empty())?;
    Some(format!("{{{}}}", column(&path, settings.at(name), report)))
}

fn redis_key(settings: &Settings, version: Version, report: &mut Report) -> String {
    let literal = settings.text_or("Key", "default").replace('{', "{{").replace('}', "}}");
    let key = place(settings, "KeyFrom", report);
    if key.is_none() && version != Version::V04 {
        let message = format!(
            "Without `KeyFrom`, all values go to the key `{literal}`, as gollum's documentation says; its \
             program of 0.5 and later writes to a key without a name."
        );
        report.remark(settings.at("Key"), message);
    }
    key.unwrap_or(literal)
}

/// Adds the user and the password, if there is a user.
fn auth(settings: &Settings, options: &mut Made, report: &mut Report) {
    let Some(user) = settings.text("User").filter(|user| !user.is_empty()) else {
        settings.idle(&["Password"], "without `User`", report);
        return;
    };
    let mut auth = Made::new(settings.at("User"));
    auth.text("user", user, settings.at("User"));
    if let Some(password) = settings.text("Password") {
        auth.text("password", password, settings.at("Password"));
    }
    options.put("auth", auth.done());
}
