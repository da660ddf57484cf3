//! The settings of one plugin, checked against the table of its type.
//!
//! Keys and types are checked once, here; callers get a valid setting or nothing. The code must read every
//! setting that a table calls used. [`Settings::finish`] reports unread settings as mistakes, so that no
//! option can be forgotten.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use thalweg_config::{Key, Node, Span, Value};

use super::report::Report;
use super::tables::{OptionRule, OptionSupport, PluginKind, Takes};

/// The settings of a plugin.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) kind: &'static PluginKind,
    /// The position of the plugin: its id, or its name in a list.
    pub(super) span: Span,
    values: BTreeMap<&'static str, Setting>,
    read: RefCell<BTreeSet<&'static str>>,
}

#[derive(Debug, Clone)]
struct Setting {
    key: Span,
    node: Node,
}

impl Settings {
    pub(super) fn new(
        kind: &'static PluginKind,
        span: Span,
        entries: &[(Key, Node)],
        report: &mut Report,
    ) -> Self {
        let mut settings = Self { kind, span, values: BTreeMap::new(), read: RefCell::default() };
        if kind.refused.is_none() {
            settings.take("", entries, report);
        }
        settings
    }

    fn take(&mut self, prefix: &str, entries: &[(Key, Node)], report: &mut Report) {
        for (key, node) in entries {
            let name = format!("{prefix}{}", key.name);
            if let Some(rule) = self.kind.all().find(|rule| rule.name.eq_ignore_ascii_case(&name)) {
                self.add(rule, key.span, node, report);
                continue;
            }
            let below = format!("{}/", name.to_ascii_lowercase());
            let is_group = self.kind.all().any(|rule| rule.name.to_ascii_lowercase().starts_with(&below));
            if is_group && node.as_mapping().is_some() {
                self.take(&format!("{name}/"), node.entries(), report);
            } else if is_group {
                let message = format!("`{name}` holds settings of its own, but this is {}.", node.kind());
                let help = format!("Write them below it, indented further: `{}`.", self.example(&below));
                report.mistake(node.span, message).help(help);
            } else {
                self.unknown(prefix, key, report);
            }
        }
    }

    fn example(&self, below: &str) -> String {
        let found = self.kind.all().find(|rule| rule.name.to_ascii_lowercase().starts_with(below));
        found.map_or_else(String::new, |rule| format!("{}: …", rule.name[below.len()..].to_owned()))
    }

    fn unknown(&self, prefix: &str, key: &Key, report: &mut Report) {
        let inside = if prefix.is_empty() {
            String::new()
        } else {
            format!(" below `{}`", prefix.trim_end_matches('/'))
        };
        let message = format!("`{}` is not a setting of `{}`{inside}.", key.name, self.kind.name);
        let names: BTreeSet<&str> = self
            .kind
            .all()
            .filter_map(|rule| rule.name.strip_prefix(prefix))
            .map(|rest| rest.split('/').next().unwrap_or(rest))
            .collect();
        // A flat name such as `BatchTimeoutSec` may be meant as the nested `Batch/TimeoutSec`.
        let flat: Vec<String> = self.kind.all().map(|rule| rule.name.replace('/', "")).collect();
        if let Some(rule) = self
            .kind
            .all()
            .zip(&flat)
            .find(|(rule, flat)| rule.name.contains('/') && flat.eq_ignore_ascii_case(&key.name))
        {
            let (group, inner) = rule.0.name.split_once('/').unwrap_or((rule.0.name, ""));
            report.mistake(key.span, message).help(format!("Write `{group}: {{ {inner}: … }}`."));
            return;
        }
        if prefix.is_empty() && key.name == "Filters" && names.contains("Modulators") {
            let help = "Put its elements into `Modulators`, before the formatters of their messages.";
            report.mistake(key.span, message).help(help);
            return;
        }
        let otherwise = if names.is_empty() {
            "It has no settings.".to_owned()
        } else {
            let list: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            format!("It has: {}.", list.join(", "))
        };
        report.unknown(key.span, message, &key.name, names, &otherwise);
    }

    fn add(&mut self, rule: &'static OptionRule, key: Span, node: &Node, report: &mut Report) {
        if let OptionSupport::Refused(instead) = rule.support {
            // An empty text is the default of these settings.
            if plain(node) == Some("") {
                return;
            }
            report
                .mistake(key, format!("`{}` of `{}` has no equivalent here.", rule.name, self.kind.name))
                .help(instead);
            return;
        }
        if node.is_null() && rule.takes != Takes::Plugins {
            // `Key:` without a value keeps the default, as in gollum.
            if let OptionSupport::Used(_) = rule.support {
                report.remark(key, format!("`{}` has no value, so its default applies.", rule.name));
            }
            return;
        }
        let wanted = match rule.takes {
            Takes::Text if plain(node).is_none() => Some("text"),
            Takes::Number if number(node).is_none() => Some("a whole number"),
            Takes::Flag if flag(node).is_none() => Some("`true` or `false`"),
            Takes::List if plain(node).is_none() && !is_list_of_texts(node) => Some("a list of names"),
            Takes::Map
                if !node.entries().iter().all(|(_, value)| plain(value).is_some())
                    || node.as_mapping().is_none() =>
            {
                Some("a mapping of names to texts")
            }
            Takes::Groups
                if node.as_mapping().is_none()
                    || !node.entries().iter().all(|(_, group)| group.as_mapping().is_some()) =>
            {
                Some("a mapping of names to settings")
            }
            Takes::Plugins if node.as_sequence().is_none() && !node.is_null() && node.as_str().is_none() => {
                Some("a list of plugins")
            }
            _ => None,
        };
        if let Some(wanted) = wanted {
            let message =
                format!("`{}` of `{}` is {wanted}, but this is {}.", rule.name, self.kind.name, shown(node));
            report.mistake(node.span, message);
            return;
        }
        if let OptionSupport::Idle(why) = rule.support {
            report.remark(key, format!("`{}` has no effect here: {why}.", rule.name));
            return;
        }
        self.values.insert(rule.name, Setting { key, node: node.clone() });
    }

    fn get(&self, name: &str) -> Option<&Setting> {
        debug_assert!(self.kind.all().any(|rule| rule.name == name), "{} has no {name}", self.kind.name);
        let (name, setting) = self.values.get_key_value(name)?;
        self.read.borrow_mut().insert(name);
        Some(setting)
    }

    /// True if the setting exists. Does not count as reading it.
    pub(super) fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// Returns the position of a setting's value, or else that of the plugin.
    pub(super) fn at(&self, name: &str) -> Span {
        self.values.get(name).map_or(self.span, |setting| setting.node.span)
    }

    /// Returns a text with its escapes resolved.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.raw_text(name).map(|text| unescape(&text))
    }

    /// Returns a text as written: patterns have escapes of their own.
    pub(super) fn raw_text(&self, name: &str) -> Option<String> {
        plain(&self.get(name)?.node).map(str::to_owned)
    }

    pub(super) fn text_or(&self, name: &str, default: &str) -> String {
        self.text(name).unwrap_or_else(|| default.to_owned())
    }

    pub(super) fn number(&self, name: &str) -> Option<i64> {
        number(&self.get(name)?.node)
    }

    pub(super) fn flag(&self, name: &str) -> Option<bool> {
        flag(&self.get(name)?.node)
    }

    /// Returns the texts of a list, each with its position.
    pub(super) fn list(&self, name: &str) -> Vec<(String, Span)> {
        let Some(setting) = self.get(name) else { return Vec::new() };
        match setting.node.as_sequence() {
            Some(items) => {
                items.iter().filter_map(|item| Some((plain(item)?.to_owned(), item.span))).collect()
            }
            None => {
                plain(&setting.node).map(|text| (text.to_owned(), setting.node.span)).into_iter().collect()
            }
        }
    }

    /// Returns the names of a mapping with their texts and positions.
    pub(super) fn map(&self, name: &str) -> Vec<(String, String, Span)> {
        let Some(setting) = self.get(name) else { return Vec::new() };
        let entry =
            |(key, value): &(Key, Node)| Some((key.name.clone(), plain(value)?.to_owned(), value.span));
        setting.node.entries().iter().filter_map(entry).collect()
    }

    /// Returns the names of a mapping, each with the settings below it.
    pub(super) fn groups(&self, name: &str) -> Vec<(String, Node)> {
        let Some(setting) = self.get(name) else { return Vec::new() };
        setting.node.entries().iter().map(|(key, group)| (key.name.clone(), group.clone())).collect()
    }

    /// Returns the nodes of a list of plugins.
    pub(super) fn plugins(&self, name: &str) -> Vec<Node> {
        let Some(setting) = self.get(name) else { return Vec::new() };
        match &setting.node.value {
            Value::Sequence(items) => items.clone(),
            Value::Null => Vec::new(),
            _ => vec![setting.node.clone()],
        }
    }

    /// Reports the settings that no code has read.
    pub(super) fn finish(&self, report: &mut Report) {
        let read = self.read.borrow();
        for (name, setting) in self.values.iter().filter(|(name, _)| !read.contains(*name)) {
            let message =
                format!("`{name}` of `{}` has no effect together with the other settings.", self.kind.name);
            report.mistake(setting.key, message).help("Leave it out.");
        }
    }

    /// Adds remarks on settings that mean nothing together with the others, and marks them as read.
    pub(super) fn idle(&self, names: &[&'static str], why: &str, report: &mut Report) {
        for name in names.iter().filter(|name| self.has(name)) {
            report.remark(self.at(name), format!("`{name}` has no effect {why}."));
        }
        self.read.borrow_mut().extend(names);
    }
}

/// Describes a value in words.
fn shown(node: &Node) -> String {
    match node.as_str() {
        Some(text) if text.chars().count() <= 40 => format!("`{text}`"),
        _ => node.kind().to_owned(),
    }
}

pub(super) fn plain(node: &Node) -> Option<&str> {
    node.text()
}

fn is_list_of_texts(node: &Node) -> bool {
    node.as_sequence().is_some_and(|items| items.iter().all(|item| plain(item).is_some()))
}

fn number(node: &Node) -> Option<i64> {
    node.as_i64().or_else(|| node.as_str()?.trim().parse().ok())
}

pub(super) fn flag(node: &Node) -> Option<bool> {
    node.as_bool().or_else(|| match node.as_str()? {
        // gollum's YAML library reads YAML 1.1.
        "true" | "True" | "yes" | "on" | "1" => Some(true),
        "false" | "False" | "no" | "off" | "0" => Some(false),
        _ => None,
    })
}

/// Resolves the escapes that gollum allows in every text, in addition to those of YAML.
pub(super) fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let meant = match (character, characters.peek()) {
            ('\\', Some('n')) => '\n',
            ('\\', Some('r')) => '\r',
            ('\\', Some('t')) => '\t',
            ('\\', Some('f')) => '\x0c',
            ('\\', Some('b')) => '\x08',
            _ => {
                out.push(character);
                continue;
            }
        };
        characters.next();
        out.push(meant);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_those_of_gollum_and_no_others() {
        assert_eq!(unescape(r"a\nb\tc\rd\fe\bf"), "a\nb\tc\rd\x0ce\x08f");
        assert_eq!(unescape(r"\d \\n \x \"), "\\d \\\n \\x \\");
    }
}
