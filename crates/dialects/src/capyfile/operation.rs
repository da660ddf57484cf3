//! Reads one operation of a processor: its kind, the files it applies to, and the sources of its parameters.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;
use thalweg_config::{Node, Span, nearest};

use super::definition::{Keys, beginning, key_of, text, unknown_keys};
use super::environment::SourceType;
use super::tables::{self, KINDS, Need, OperationKind, ParameterRule};
use crate::report::Report;

/// The files that an operation applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    WithoutErrors,
    WithErrors,
    All,
}

/// The fate of a file that an operation created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cleanup {
    Keep,
    Remove,
}

/// An operation as it was written.
pub(super) struct Operation<'a> {
    pub(super) kind: &'static OperationKind,
    /// The operation's index in its processor, from 0.
    pub(super) index: usize,
    /// The offset at which the operation begins.
    pub(super) start: usize,
    /// The position of its name.
    pub(super) span: Span,
    pub(super) target: Option<(Target, Span)>,
    pub(super) cleanup: Option<(Cleanup, Span)>,
    /// The limit on files processed at once, if there is one.
    pub(super) packet: Option<(i64, Span)>,
    parameters: BTreeMap<&'static str, Parameter<'a>>,
}

/// A parameter as it was written.
#[derive(Clone, Copy)]
pub(super) struct Parameter<'a> {
    pub(super) rule: &'static ParameterRule,
    pub(super) from: SourceType,
    pub(super) source: &'a Node,
}

impl<'a> Operation<'a> {
    pub(super) fn parameter(&self, name: &str) -> Option<Parameter<'a>> {
        debug_assert!(self.kind.parameters.iter().any(|rule| rule.name == name), "{name}");
        self.parameters.get(name).copied()
    }

    pub(super) fn parameters(&self) -> impl Iterator<Item = &Parameter<'a>> {
        self.parameters.values()
    }
}

/// Reads an operation. Returns `None` if its kind is unknown.
pub(super) fn read<'a>(
    keys: Keys,
    node: &'a Node,
    index: usize,
    report: &mut Report,
) -> Option<Operation<'a>> {
    if node.as_mapping().is_none() {
        let message = format!("An operation is a mapping, but this is {}.", node.kind());
        report.mistake(node.span, message).help("Write `name:` and `params:`.");
        return None;
    }
    let mut known = vec!["name", "params"];
    known.extend(tables::SETTINGS.iter().map(|(name, _)| *name));
    let vital = ["name", "params", "targetFiles", "cleanupPolicy"];
    unknown_keys(keys, node, &known, &vital, "an operation", report);
    let kind = kind(keys, node, report);
    let target = choice(keys, node, "targetFiles", &TARGETS, report);
    let cleanup = choice(keys, node, "cleanupPolicy", &CLEANUPS, report);
    let packet = packet(keys, node, report);
    delays(keys, node, report);
    let (kind, span) = kind?;
    let parameters = parameters(keys, node, kind, span, report);
    Some(Operation { kind, index, start: node.span.start, span, target, cleanup, packet, parameters })
}

fn kind(keys: Keys, node: &Node, report: &mut Report) -> Option<(&'static OperationKind, Span)> {
    let names = || KINDS.iter().map(|kind| kind.name);
    let Some(name) = keys.get(node, "name").filter(|name| !name.is_null()) else {
        let list: Vec<String> = names().map(|name| format!("`{name}`")).collect();
        let help = format!("Add `name:` with one of {}.", list.join(", "));
        report.mistake(beginning(node), "This operation has no name.").help(help);
        return None;
    };
    let span = name.span;
    let name = text(name, "name", report)?;
    let Some(kind) = KINDS.iter().find(|kind| kind.name == name) else {
        let list: Vec<String> = names().map(|name| format!("`{name}`")).collect();
        let otherwise = format!("There are {}.", list.join(", "));
        report.unknown(span, format!("There is no operation `{name}`."), name, names(), &otherwise);
        return None;
    };
    Some((kind, span))
}

const TARGETS: [(&str, Target); 3] =
    [("without_errors", Target::WithoutErrors), ("with_errors", Target::WithErrors), ("all", Target::All)];

const CLEANUPS: [(&str, Cleanup); 2] = [("keep_files", Cleanup::Keep), ("remove_files", Cleanup::Remove)];

/// Reads one of several words. An empty word is the default, as in capyfile.
fn choice<T: Copy>(
    keys: Keys,
    node: &Node,
    key: &str,
    known: &[(&str, T)],
    report: &mut Report,
) -> Option<(T, Span)> {
    let value = keys.get(node, key).filter(|value| !value.is_null() && value.as_str() != Some(""))?;
    let written = text(value, key, report)?;
    let found = known.iter().find(|(name, _)| *name == written).map(|(_, choice)| (*choice, value.span));
    if found.is_none() {
        let list: Vec<String> = known.iter().map(|(name, _)| format!("`{name}`")).collect();
        let message = format!("`{key}` cannot be `{written}`.");
        let otherwise = format!("It is one of {}.", list.join(", "));
        report.unknown(value.span, message, written, known.iter().map(|(name, _)| *name), &otherwise);
    }
    found
}

fn packet(keys: Keys, node: &Node, report: &mut Report) -> Option<(i64, Span)> {
    let value = keys.get(node, "maxPacketSize").filter(|value| !value.is_null())?;
    match value.as_i64() {
        Some(0) => None,
        Some(size) if size > 0 => Some((size, value.span)),
        _ => {
            let message = "`maxPacketSize` is a whole number that is not negative.";
            report
                .mistake(value.span, message)
                .help("It is the number of files processed at once; 0 means no limit.");
            None
        }
    }
}

/// Checks the delays of capyfile's polling loops. Nothing is polled here, but a value that capyfile rejects
/// is a mistake here too.
fn delays(keys: Keys, node: &Node, report: &mut Report) {
    for key in ["ioTickDelay", "handlerTickDelay", "statusTickDelay"] {
        let Some(value) = keys.get(node, key).filter(|value| !value.is_null() && value.as_str() != Some(""))
        else {
            continue;
        };
        if value.text().is_some_and(is_go_duration) {
            report.remark(
                key_of(keys, node, key).map_or(value.span, |key| key.span),
                format!("`{key}` has no effect here: nothing is polled."),
            );
        } else {
            let written = value.text().unwrap_or_else(|| value.kind());
            let message = format!("`{key}` is a length of time, but this is `{written}`.");
            report.mistake(value.span, message).help("Write a number and a unit, for example `10ms`.");
        }
    }
}

fn is_go_duration(text: &str) -> bool {
    static DURATION: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"^[-+]?(?:0|(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+)$").ok()
    });
    DURATION.as_ref().is_some_and(|duration| duration.is_match(text))
}

fn parameters<'a>(
    keys: Keys,
    node: &'a Node,
    kind: &'static OperationKind,
    span: Span,
    report: &mut Report,
) -> BTreeMap<&'static str, Parameter<'a>> {
    let mut found = BTreeMap::new();
    let mut named = Vec::new();
    if let Some(node) = keys.get(node, "params").filter(|node| !node.is_null()) {
        if node.as_mapping().is_none() {
            let message =
                format!("`params` is a mapping of names to parameters, but this is {}.", node.kind());
            report
                .mistake(node.span, message)
                .help("Write `params: { NAME: { sourceType: value, source: … } }`.");
            return found;
        }
        for (key, value) in node.entries() {
            let is_meant =
                |rule: &&ParameterRule| rule.name == key.name || rule.also == Some(key.name.as_str());
            let Some(rule) = kind.parameters.iter().find(is_meant) else {
                unknown_parameter(kind, &key.name, key.span, report);
                continue;
            };
            named.push(rule.name);
            let former =
                parameter(keys, rule, value, report).and_then(|parameter| found.insert(rule.name, parameter));
            if former.is_some() {
                report.mistake(key.span, format!("`{}` is given twice, by both of its names.", rule.name));
            }
        }
    }
    for rule in kind.parameters.iter().filter(|rule| !named.contains(&rule.name)) {
        match rule.need {
            Need::Required => {
                let message = format!("failed to retrieve \"{}\" parameter", rule.name);
                let help = format!("`{}` needs it: add it to `params`.", kind.name);
                report.mistake(span, message).help(help);
            }
            Need::Assumed(value) => {
                let message =
                    format!("`{}` is missing, so it is `{value}`; capyfile requires it.", rule.name);
                report.remark(span, message);
            }
            Need::Optional => {}
        }
    }
    found
}

fn unknown_parameter(kind: &OperationKind, name: &str, span: Span, report: &mut Report) {
    let names = || kind.parameters.iter().map(|rule| rule.name);
    let message = format!("`{name}` is not a parameter of `{}`", kind.name);
    match nearest(name, names()) {
        Some(near) => {
            report.mistake(span, format!("{message}.")).help(format!("Did you mean `{near}`?"));
        }
        None => report.remark(span, format!("{message}, and has no effect.")),
    }
}

fn parameter<'a>(
    keys: Keys,
    rule: &'static ParameterRule,
    node: &'a Node,
    report: &mut Report,
) -> Option<Parameter<'a>> {
    let name = rule.name;
    if node.as_mapping().is_none() {
        let message = format!("`{name}` says where its value comes from, but this is {}.", node.kind());
        let value = node.text().unwrap_or("…");
        let help = format!("Write `{name}: {{ sourceType: value, source: {value} }}`.");
        report.mistake(node.span, message).help(help);
        return None;
    }
    let (whose, known) = (format!("the parameter `{name}`"), ["sourceType", "source"]);
    unknown_keys(keys, node, &known, &known, &whose, report);
    let types = || SourceType::NAMES.iter().map(|(name, _)| *name);
    let list = || types().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let Some(written) = keys.get(node, "sourceType").filter(|written| !written.is_null()) else {
        let message = format!("`{name}` has no `sourceType`.");
        report.mistake(beginning(node), message).help(format!("It is one of {}.", list()));
        return None;
    };
    let source_type = text(written, "sourceType", report)?;
    let Some(from) = SourceType::named(source_type) else {
        let message = format!("There is no `sourceType` `{source_type}`.");
        report.unknown(written.span, message, source_type, types(), &format!("It is one of {}.", list()));
        return None;
    };
    let Some(source) = keys.get(node, "source") else {
        let message = format!("`{name}` has no `source`.");
        let help = match from {
            SourceType::Value => "Add `source:` with its value.".to_owned(),
            _ => format!("Add `source:`, the name of the `{source_type}`."),
        };
        report.mistake(beginning(node), message).help(help);
        return None;
    };
    Some(Parameter { rule, from, source })
}

#[cfg(test)]
mod tests {
    use super::is_go_duration;

    #[test]
    fn durations_are_those_of_go() {
        for text in ["0", "+0", "10ms", "1h30m", "1.5s", ".5s", "1.s", "-3us", "2µs", "2μs"] {
            assert!(is_go_duration(text), "{text}");
        }
        for text in ["", "10", "1d", "ms", "1 s", "5 seconds", ".s", "s1"] {
            assert!(!is_go_duration(text), "{text}");
        }
    }
}
