//! Reads files of v0.4: a list of plugins by their type, with flat settings.
//!
//! They are converted to their equivalent in v0.6, under their old positions. `stream.X` becomes a router.
//! `Formatter` and the formatters that its options name become a list in the order of execution, after those
//! of `Filter`. `Instances` becomes that many plugins. Options get their new names.

use std::collections::BTreeMap;

use thalweg_config::{Key, Node, Span};

use super::made::{self, Made};
use super::plugins::{Plugin, Plugins, get, known, unique};
use super::report::Report;
use super::settings::Settings;
use super::tables::{self, OptionSupport, Role, consumers, formatters, producers};

/// A filter of v0.4: its type, its options with their new names, and the defaults of omitted options.
struct FormerFilter {
    name: &'static str,
    options: &'static [(&'static str, &'static str)],
    defaults: &'static [(&'static str, &'static str)],
}

const FILTERS: &[FormerFilter] = &[
    FormerFilter { name: "filter.All", options: &[], defaults: &[] },
    FormerFilter { name: "filter.None", options: &[], defaults: &[] },
    FormerFilter { name: "filter.Any", options: &[("AnyFilter", "AnyFilters")], defaults: &[] },
    FormerFilter {
        name: "filter.JSON",
        options: &[("FilterReject", "Reject"), ("FilterAccept", "Accept")],
        defaults: &[],
    },
    FormerFilter {
        name: "filter.Rate",
        options: &[
            ("RateLimitPerSec", "MessagesPerSec"),
            ("RateLimitDropToStream", "FilteredStream"),
            ("RateLimitIgnore", "Ignore"),
        ],
        defaults: &[],
    },
    FormerFilter {
        name: "filter.RegExp",
        options: &[("FilterExpression", "Expression"), ("FilterExpressionNot", "ExpressionNot")],
        defaults: &[],
    },
    FormerFilter {
        name: "filter.Sample",
        options: &[
            ("SampleRatePerGroup", "SampleRatePerGroup"),
            ("SampleGroupSize", "SampleGroupSize"),
            ("SampleDropToStream", "FilteredStream"),
            ("SampleIgnore", "SampleIgnore"),
        ],
        defaults: &[("SampleGroupSize", "1")],
    },
    FormerFilter {
        name: "filter.Stream",
        options: &[("FilterBlockStreams", "Block"), ("FilterOnlyStreams", "Only")],
        defaults: &[],
    },
];

/// The stream of messages that could not be delivered.
const DROPPED: &str = "_DROPPED_";

/// Reads the list of plugins.
pub(super) fn read(root: &Node, report: &mut Report) -> Plugins {
    let listens_to_dropped = root.items().iter().flat_map(Node::entries).any(|(key, settings)| {
        key.name.to_ascii_lowercase().starts_with("producer.")
            && streams(settings)
                .is_some_and(|(_, streams)| texts(&streams).iter().any(|stream| stream == DROPPED))
    });
    let mut reader =
        Reader { plugins: Plugins::default(), names: BTreeMap::new(), listens_to_dropped, report };
    for item in root.items() {
        match item.entries() {
            [(key, settings)] if settings.as_mapping().is_some() || settings.is_null() => {
                reader.plugin(key, settings);
            }
            [(first, nothing), (second, _), ..] if nothing.is_null() => {
                let message = format!("`{}` is next to `{}` and not inside it.", second.name, first.name);
                let help = format!("Indent the settings of `{}` further than its name.", first.name);
                reader.report.mistake(second.span, message).help(help);
            }
            _ => {
                let message = "A plugin of the old form is its type with its settings.";
                reader
                    .report
                    .mistake(item.span, message)
                    .help("Write `- \"consumer.Console\":`, and the settings below it.");
            }
        }
    }
    reader.plugins
}

fn streams(settings: &Node) -> Option<(Span, Node)> {
    get(settings, "Stream").map(|(key, node)| (key.span, node.clone()))
}

fn texts(node: &Node) -> Vec<String> {
    match node.as_sequence() {
        Some(items) => items.iter().filter_map(|item| item.text().map(str::to_owned)).collect(),
        None => node.text().map(str::to_owned).into_iter().collect(),
    }
}

struct Reader<'a> {
    plugins: Plugins,
    names: BTreeMap<String, ()>,
    listens_to_dropped: bool,
    report: &'a mut Report,
}

impl Reader<'_> {
    fn plugin(&mut self, key: &Key, settings: &Node) {
        let mut rest: Vec<(Key, Node)> = settings.entries().to_vec();
        let mut take = |name: &str| {
            let at = rest.iter().position(|(key, _)| key.name.eq_ignore_ascii_case(name))?;
            Some(rest.remove(at).1)
        };
        let id = take("ID").and_then(|node| node.text().map(str::to_owned)).filter(|id| !id.is_empty());
        let enabled = take("Enable").and_then(|node| node.as_bool()) != Some(false);
        let instances = take("Instances");
        let stream = take("Stream");
        let count = instances.as_ref().map_or(Some(1), Node::as_i64);
        let Some(count) = count.map(|count| count.max(0)).filter(|count| *count <= 1000) else {
            let span = instances.map_or(key.span, |node| node.span);
            self.report.mistake(span, "`Instances` is a whole number, up to 1000.");
            return;
        };
        if !enabled || count == 0 {
            self.report.remark(key.span, format!("`{}` is switched off, and left out.", key.name));
            return;
        }
        let Some((kind, rest)) = self.kind(key, rest) else { return };
        let stream = stream.unwrap_or_else(|| made::text("*", key.span));
        let list = self.list(kind, &rest);
        let mut entries = Vec::new();
        for (option, node) in rest {
            if !belongs_to_list(&option.name) || kind.all().any(|rule| rule.name == option.name) {
                self.option(kind, option, node, &mut entries);
            }
        }
        if kind.role == Role::Producer
            && self.listens_to_dropped
            && !texts(&stream).iter().any(|name| name == DROPPED)
        {
            let has = entries.iter().any(|(key, _)| key.name == "FallbackStream");
            if !has {
                let name = Key { name: "FallbackStream".to_owned(), span: key.span };
                entries.push((name, made::text(DROPPED, key.span)));
            }
        }
        let name = |name: &str| Key { name: name.to_owned(), span: stream.span };
        if kind.role == Role::Router {
            for stream_name in texts(&stream) {
                let mut entries = entries.clone();
                entries.push((name("Stream"), made::text(&stream_name, stream.span)));
                let id = unique(id.clone().unwrap_or(stream_name), &mut self.names);
                self.add(id, key.span, kind, &entries, &list);
            }
            return;
        }
        entries.push((name("Streams"), stream.clone()));
        let id = id.unwrap_or_else(|| key.name.rsplit('.').next().unwrap_or(&key.name).to_owned());
        for number in 1..=count {
            let id = if count > 1 { format!("{id}-{number}") } else { id.clone() };
            let id = unique(id, &mut self.names);
            self.add(id, key.span, kind, &entries, &list);
        }
    }

    fn add(
        &mut self,
        id: String,
        span: Span,
        kind: &'static tables::PluginKind,
        entries: &[(Key, Node)],
        list: &[Node],
    ) {
        let settings = Settings::new(kind, span, entries, self.report);
        // In v0.4 a stream could have formatters as well, and a formatter could choose another stream.
        let list_role = if kind.role == Role::Router { Role::Consumer } else { kind.role };
        self.plugins.add(Plugin { id, span, settings, list: list.to_vec(), list_role });
    }

    fn kind(
        &mut self,
        key: &Key,
        mut rest: Vec<(Key, Node)>,
    ) -> Option<(&'static tables::PluginKind, Vec<(Key, Node)>)> {
        let name = match key.name.strip_prefix("stream.") {
            Some("Route") => {
                match rest.iter_mut().find(|(key, _)| key.name == "Routes") {
                    Some((routes, _)) => routes.name = "TargetStreams".to_owned(),
                    None => return tables::kind("router.Broadcast").map(|kind| (kind, rest)),
                }
                "router.Distribute".to_owned()
            }
            Some(other) => format!("router.{other}"),
            None if key.name == "producer.Statsd" => "producer.StatsdMetrics".to_owned(),
            None => key.name.clone(),
        };
        Some((known(&name, key.span, self.report)?, rest))
    }

    /// Adds a setting of the plugin itself, under its new name.
    fn option(
        &mut self,
        kind: &'static tables::PluginKind,
        key: Key,
        node: Node,
        entries: &mut Vec<(Key, Node)>,
    ) {
        let (former, gone) = match kind.role {
            Role::Consumer => (consumers::FORMER, consumers::GONE),
            _ => (producers::FORMER, producers::GONE),
        };
        if let Some(rule) = gone.iter().find(|rule| rule.name == key.name) {
            match rule.support {
                OptionSupport::Refused(instead) => {
                    let message = format!("`{}` has no equivalent here.", rule.name);
                    self.report.mistake(key.span, message).help(instead);
                }
                OptionSupport::Idle(why) | OptionSupport::Used(why) => {
                    self.report.remark(key.span, format!("`{}` has no effect here: {why}.", rule.name));
                }
            }
            return;
        }
        let is_known = |name: &str| kind.all().any(|rule| rule.name.eq_ignore_ascii_case(name));
        let renamed = former.iter().find(|(old, new)| *old == key.name && is_known(new) && !is_known(old));
        let name = renamed.map_or(key.name, |(_, new)| (*new).to_owned());
        let below = format!("{}/", name.to_ascii_lowercase());
        if !is_known(&name) && !kind.all().any(|rule| rule.name.to_ascii_lowercase().starts_with(&below)) {
            let message =
                format!("`{name}` is not a setting of `{}`, and does nothing, as in gollum 0.4.", kind.name);
            self.report.remark(key.span, message);
            return;
        }
        entries.push((Key { name, span: key.span }, node));
    }

    /// Returns the filters and formatters in the order of execution.
    fn list(&mut self, kind: &'static tables::PluginKind, settings: &[(Key, Node)]) -> Vec<Node> {
        let find = |name: &str| settings.iter().find(|(key, _)| key.name == name).map(|(_, node)| node);
        let mut list = Vec::new();
        for filter in find("Filter").map(names).unwrap_or_default() {
            list.extend(self.filter(&filter, settings));
        }
        let mut formatters = Vec::new();
        let mut next = find("Formatter").map(names).and_then(|names| names.into_iter().next());
        while let Some(formatter) = next.take() {
            if formatters.len() > 32 {
                self.report.mistake(formatter.span, "These formatters name each other in a circle.");
                break;
            }
            let Some(former) =
                formatters::FORMER.iter().find(|former| formatter.as_str() == Some(former.name))
            else {
                let name = formatter.as_str().unwrap_or_default();
                let message = format!("There was no formatter called `{name}` in v0.4.");
                let known = formatters::FORMER.iter().map(|former| former.name).collect::<Vec<_>>();
                self.report.unknown(formatter.span, message, name, known, "");
                break;
            };
            let mut options = Made::new(formatter.span);
            for (new, value) in former.defaults {
                if !former.options.iter().any(|(old, name)| name == new && find(old).is_some()) {
                    options.text(new, *value, formatter.span);
                }
            }
            for (old, new) in former.options {
                if let Some(node) = find(old) {
                    options.put(new, node.clone());
                }
            }
            if former.name != "format.Forward" {
                formatters.push(made::component(former.today(), formatter.span, options.done()));
            }
            next = (!former.before.is_empty())
                .then(|| find(former.before).map(names).and_then(|names| names.into_iter().next()))
                .flatten();
        }
        list.extend(formatters.into_iter().rev());
        for filter in find("FilterAfterFormat").map(names).unwrap_or_default() {
            list.extend(self.filter(&filter, settings));
        }
        if kind.role == Role::Consumer && !list.is_empty() {
            let span =
                find("Formatter").or_else(|| find("Filter")).map_or(kind_span(settings), |node| node.span);
            let message = "Consumers of v0.4 had no filters and formatters.";
            self.report.mistake(span, message).help("Put them into the stream or the producer.");
        }
        list
    }

    fn filter(&mut self, filter: &Node, settings: &[(Key, Node)]) -> Option<Node> {
        let name = filter.as_str().unwrap_or_default();
        let Some(former) = FILTERS.iter().find(|former| former.name == name) else {
            let message = format!("There was no filter called `{name}` in v0.4.");
            let known = FILTERS.iter().map(|former| former.name).collect::<Vec<_>>();
            self.report.unknown(filter.span, message, name, known, "");
            return None;
        };
        if former.name == "filter.All" {
            return None;
        }
        let mut options = Made::new(filter.span);
        for (old, new) in former.options {
            let found = settings.iter().find(|(key, _)| key.name == *old).map(|(_, node)| node);
            let default = former.defaults.iter().find(|(name, _)| name == new);
            if former.name == "filter.Any" {
                let inner: Vec<Node> = found
                    .map(names)
                    .unwrap_or_default()
                    .iter()
                    .filter_map(|inner| self.filter(inner, settings))
                    .collect();
                options.put(new, made::list(inner, filter.span));
            } else if let Some(node) = found {
                options.put(new, node.clone());
            } else if let Some((_, value)) = default {
                options.text(new, *value, filter.span);
            }
        }
        Some(made::component(former.name, filter.span, options.done()))
    }
}

fn kind_span(settings: &[(Key, Node)]) -> Span {
    settings.first().map_or_else(Span::default, |(key, _)| key.span)
}

/// Returns the names in a text or a list.
fn names(node: &Node) -> Vec<Node> {
    match node.as_sequence() {
        None if node.is_null() => Vec::new(),
        Some(items) => items.to_vec(),
        None => vec![node.clone()],
    }
}

/// True if a setting belongs to a filter or formatter.
fn belongs_to_list(name: &str) -> bool {
    let of_formatter = |former: &formatters::Former| {
        !former.before.is_empty() && former.before == name
            || former.options.iter().any(|(old, _)| *old == name)
    };
    matches!(name, "Formatter" | "Filter" | "FilterAfterFormat")
        || formatters::FORMER.iter().any(of_formatter)
        || FILTERS.iter().any(|former| former.options.iter().any(|(old, _)| *old == name))
}
