//! Tests single plugins: every type with every option of its table.

use super::tables::{OptionRule, OptionSupport, PluginKind, Role, Takes};
use super::*;

/// Returns a valid value for an option.
fn value(kind: &PluginKind, rule: &OptionRule) -> String {
    let special = match (kind.name, rule.name) {
        ("consumer.File", "DefaultOffset") => "oldest",
        ("format.Flatten", "Target") => "a",
        ("format.Template", "SkipIfEmpty") => "false",
        ("consumer.Console", "Pipe") => "/tmp/pipe",
        ("producer.InfluxDB", "Version") => "100",
        ("consumer.AwsKinesis" | "consumer.Kinesis", "DefaultOffset") => "oldest",
        (_, "Credential/Type") => "environment",
        (_, "Partitioner") => "binary_be",
        ("consumer.Syslogd", "Format") => "RFC3164",
        ("producer.Console", "Console") => "stderr",
        ("format.Cast", "ToType") => "int",
        ("format.Copy", "Mode") => "append",
        ("format.Identifier", "Generator") => "seqhex",
        ("format.ExtractJSON", "Precision") => "0",
        ("format.MetadataCopy", "Mode") => "append",
        ("format.TemplateJSON", "SkipIfEmpty") => "false",
        ("format.TextToJSON", "Directives") => "\"a:b:a::key\"",
        ("format.TextToJSON", "UnixTimestampRead") => "ms",
        ("format.ProcessTSV", "Directives") => "\"0:remove\"",
        (_, "Rotation/At") => "\"3:05\"",
        (_, "Permissions" | "FolderPermissions") => "\"0640\"",
        (_, "Address") => "\"unix:///tmp/socket\"",
        (_, "StreamModulator" | "Modulators" | "Left" | "Right") => "[format.Trim]",
        (_, "AnyFilters" | "Filters") => "[filter.RegExp: { Expression: a }]",
        (_, "Streams" | "Stream" | "TargetStreams" | "FallbackStream" | "FilteredStream") => "other",
        (_, "Size") => "8",
        (_, "Directives") => "\"a:remove\"",
        _ => match rule.takes {
            Takes::Text => "\"abc\"",
            Takes::Number => "\"7\"",
            Takes::Flag => "\"true\"",
            Takes::List => "one",
            Takes::Map => "{ other: metric }",
            Takes::Groups => "{ s: { Index: a, Type: b, TimeBasedIndex: true } }",
            Takes::Plugins => "[]",
        },
    };
    special.to_owned()
}

/// Returns the other settings that a type requires besides an option.
fn needed(kind: &PluginKind, option: &str) -> Vec<(&'static str, &'static str)> {
    let mut needed = match kind.name {
        "format.Move" | "format.Flatten" => vec![("Source", "a")],
        "format.SplitToFields" => vec![("Fields", "[x, y]")],
        "format.Split" => vec![("Target", "a")],
        "format.Grok" | "format.GrokToJSON" => vec![("Patterns", "\"%{IP:ip}\"")],
        "format.TextToJSON" => vec![("Directives", "\"a:b:a::key\"")],
        "format.GeoIP" => vec![("GeoIPFile", "geo.mmdb")],
        "format.ToCSV" => vec![("Keys", "[x, y]")],
        "format.ExtractJSON" => vec![("Field", "x")],
        "router.Distribute" => vec![("TargetStreams", "[s, other]")],
        _ => Vec::new(),
    };
    if kind.name == "format.StreamRoute" && matches!(option, "Source" | "Target") {
        needed.extend([("Source", "abc"), ("Target", "abc")]);
    }
    if option.starts_with("Rotation/") || option.starts_with("Prune/") {
        needed.push(("Rotation/Enable", "true"));
    }
    if kind.name == "producer.InfluxDB" && option == "Password" {
        needed.push(("User", "me"));
    }
    match option {
        "Credential/Id" | "Credential/Secret" | "Credential/Token" => {
            needed.push(("Credential/Type", "static"));
        }
        "Credential/Profile" => needed.push(("Credential/Type", "shared")),
        _ => {}
    }
    if option.starts_with("Tls") {
        needed.push(("TlsEnable", "true"));
    }
    if option.starts_with("Sasl") {
        needed.push(("SaslEnable", "true"));
    }
    if option.starts_with("Ack") && option != "Acknowledge" {
        needed.push(("Acknowledge", "OK"));
    }
    needed.retain(|(name, _)| {
        *name != option && !(option == "ApplyTo" && matches!(*name, "Source" | "Target"))
    });
    needed
}

fn setting(indent: &str, name: &str, value: &str) -> String {
    match name.split_once('/') {
        Some((group, name)) => format!("{indent}{group}:\n{indent}  {name}: {value}\n"),
        None => format!("{indent}{name}: {value}\n"),
    }
}

/// Returns a file with a plugin of this type and these settings.
fn file(kind: &PluginKind, settings: &[(&str, String)]) -> String {
    let mut merged: Vec<(String, Vec<(String, String)>)> = Vec::new();
    for (name, value) in settings {
        let (group, inner) = name.split_once('/').unwrap_or((name, ""));
        match merged.iter_mut().find(|(known, _)| known == group) {
            Some((_, inners)) => inners.push((inner.to_owned(), value.clone())),
            None => merged.push((group.to_owned(), vec![(inner.to_owned(), value.clone())])),
        }
    }
    let written = |indent: &str| -> String {
        let one = |(group, inners): &(String, Vec<(String, String)>)| match inners.as_slice() {
            [(inner, value)] if inner.is_empty() => setting(indent, group, value),
            inners => {
                let lines: String =
                    inners.iter().map(|(name, value)| format!("{indent}  {name}: {value}\n")).collect();
                format!("{indent}{group}:\n{lines}")
            }
        };
        merged.iter().map(one).collect()
    };
    let consumer = "In:\n  Type: consumer.Console\n  Streams: [s, t]\n";
    let others = "Other:\n  Type: producer.Null\n  Streams: [other, one]\nAll:\n  Type: producer.Null\n  Streams: \"*\"\n";
    let has = |name: &str| settings.iter().any(|(known, _)| *known == name);
    let name = kind.name;
    match kind.role {
        Role::Consumer => {
            let streams = if has("Streams") { "" } else { "  Streams: s\n" };
            format!("{consumer}Tested:\n  Type: {name}\n{streams}{}{others}", written("  "))
        }
        Role::Producer if name == "producer.Spooling" => {
            let streams = if has("Streams") { "" } else { "  Streams: spool\n" };
            let failing = "Failing:\n  Type: producer.Console\n  Streams: s\n  FallbackStream: spool\n"
                .replace(
                    "FallbackStream: spool",
                    if has("Streams") { "FallbackStream: other" } else { "FallbackStream: spool" },
                );
            format!(
                "{consumer}{failing}Tested:\n  Type: {name}\n{streams}{}Other:\n  Type: producer.Null\n  Streams: [one, tail]\n",
                written("  ").replace("FallbackStream: other", "FallbackStream: tail")
            )
        }
        Role::Producer => {
            let streams = if has("Streams") { "" } else { "  Streams: s\n" };
            format!("{consumer}Tested:\n  Type: {name}\n{streams}{}{others}", written("  "))
        }
        Role::Router => {
            let stream = if has("Stream") { "" } else { "  Stream: s\n" };
            let consumer =
                if has("Stream") { consumer.replace("[s, t]", "[other]") } else { consumer.to_owned() };
            format!("{consumer}Tested:\n  Type: {name}\n{stream}{}{others}", written("  "))
        }
        Role::Filter => {
            format!(
                "{consumer}Out:\n  Type: producer.Null\n  Streams: s\n  Modulators:\n  - {name}:\n{}{others}",
                written("      ")
            )
        }
        Role::Formatter => {
            let consumer = consumer.replace("[s, t]", "s");
            format!("{consumer}  Modulators:\n  - {name}:\n{}{others}", written("      "))
        }
    }
}

fn outcome(text: &str) -> Result<(String, String), String> {
    let document = Document::parse("gollum.conf", text).unwrap_or_else(|wrong| panic!("{wrong}\n{text}"));
    let conversion = read(&document).map_err(|mistakes| mistakes.to_string())?;
    Ok((write(conversion.document.root(), &conversion.comments), conversion.remarks.to_string()))
}

#[test]
fn every_option_of_every_plugin_is_honoured_remarked_or_refused() {
    for kind in tables::kinds() {
        if kind.refused.is_some() {
            let wrong = outcome(&file(kind, &[])).unwrap_err();
            assert!(wrong.contains("cannot run here yet"), "{wrong}");
            continue;
        }
        for rule in kind.all() {
            let mut settings: Vec<(&str, String)> =
                needed(kind, rule.name).into_iter().map(|(name, value)| (name, value.to_owned())).collect();
            settings.push((rule.name, value(kind, rule)));
            let text = file(kind, &settings);
            let what = format!("{} {}\n{text}", kind.name, rule.name);
            match (rule.support, outcome(&text)) {
                (OptionSupport::Refused(_), Err(wrong)) => {
                    assert!(wrong.contains("no equivalent here"), "{wrong}\n{what}")
                }
                (OptionSupport::Idle(why), Ok((_, remarks))) => {
                    assert!(remarks.contains(why), "{remarks}\n{what}")
                }
                (OptionSupport::Used(_), Ok(_)) => {}
                // `ApplyTo` would move a value to where it already is.
                (OptionSupport::Used(_), Err(_)) if (kind.name, rule.name) == ("format.Move", "ApplyTo") => {}
                (_, other) => panic!("{other:?}\n{what}"),
            }
        }
    }
}

#[test]
fn an_option_that_is_not_there_is_a_mistake() {
    for kind in tables::kinds().filter(|kind| kind.refused.is_none()) {
        let mut settings: Vec<(&str, String)> =
            needed(kind, "").into_iter().map(|(name, value)| (name, value.to_owned())).collect();
        settings.push(("Nonsense", "1".to_owned()));
        let wrong = outcome(&file(kind, &settings)).unwrap_err();
        assert!(wrong.contains("`Nonsense` is not a setting of"), "{wrong}");
    }
}

#[test]
fn formatters() {
    assert_snapshot!(modulated(
        r#"
- format.JSON: {}
- format.JSON: { Source: a/b, Target: c }
- format.Envelope: { Prefix: "<{", ApplyTo: c/d, SkipIfEmpty: true }
- format.Timestamp
- format.Hostname
- format.Sequence: { Separator: "\t" }
- format.StreamName
- format.Envelope
- format.Agent: { Source: ua, Prefix: ua_ }
- format.Base64Encode
- format.Base64Decode: { Dictionary: abc, Target: x }
- format.Cast: { ToType: int, Source: n, Target: n }
- format.Cast: { ToType: float }
- format.ConvertTime: { FromFormat: "2006-01-02 15:04:05", ToFormat: "", ApplyTo: time }
- format.ConvertTime: { ToFormat: "2006-01-02T15:04:05Z07:00" }
- format.Copy: { Source: a, Target: b, Mode: append, Separator: "," }
- format.Delete: { Target: secret }
- format.Delete: { ApplyTo: other/thing }
- format.Delete
- format.Double: { Left: [format.Identifier: { Generator: seq }], Right: [format.Envelope: { Postfix: "" }] }
- format.Double: { Left: [format.Base64Encode], Right: [] }
- format.Flatten: { Source: a, Separator: _ }
- format.GeoIP: { Source: ip, Target: geo, GeoIPFile: db.mmdb }
- format.Grok: { Patterns: ["%{IP:ip}"], RemoveEmptyValues: false, SkipDefaultPatterns: true }
- format.Identifier: { Target: id, Generator: hash }
- format.Move: { Source: a, Target: b }
- format.Move: { Source: c, Target: d }
- format.Move: { Source: d, Target: e }
- format.Move: { Target: raw }
- format.Override: { Value: constant, Target: c }
- format.RegExp: { Expression: '(a|b)\b', Template: "${1}" }
- format.Replace: { Search: a, ReplaceWith: b }
- format.Replace: { ReplaceWith: all }
- format.Runlength
- format.Split: { Target: list }
- format.SplitPick: { Index: 1 }
- format.SplitToFields: { Fields: [a, b], Target: t }
- format.Template: { Template: "{{.a.b}}{{if .c}}x{{end}}", Source: root }
- format.ToCSV: { Keys: [a, b/c], Separator: ";" }
- format.ToCSV: { Keys: [a, b], Separator: "||", KeepLastSeparator: true }
- format.ToJSON: { Root: a, Ignore: [x/y] }
- format.Trim
- format.TrimToBounds: { LeftBounds: "[", RightOffset: 2 }
- format.Aggregate: { Source: a, Target: a, Modulators: [format.Trim, format.Envelope: { Prefix: ">" }] }
- filter.RegExp: { Expression: "it's", ExpressionNot: '^\d', Target: a/b }
- filter.Any: { AnyFilters: [filter.RegExp: { Expression: a }, filter.None] }
- filter.Rate: { MessagesPerSec: "10" }
- filter.Sample: { SampleRatePerGroup: 2, SampleGroupSize: 10 }
- filter.Stream: { Block: other }"#
            .trim_start()
    ));
}

#[test]
fn the_directives_of_processjson() {
    assert_snapshot!(modulated(
        r#"
- format.ProcessJSON:
    GeoIPFile: geo.mmdb
    Directives:
      - 'host:split: :host:@timestamp'
      - '@timestamp:time:20060102150405:2006-01-02 15\:04\:05'
      - 'at:unixtimestamp:ms:15\:04'
      - 'error:replace:°:\n'
      - 'text:trim: \t'
      - 'foo:rename:bar'
      - 'foobar:remove'
      - 'user_agent:agent:browser:os:version'
      - 'client:geoip:country:city'
      - 'deep:flatten'"#
            .trim_start()
    ));
}
