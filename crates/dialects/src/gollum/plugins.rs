//! Reads the plugins of a file of v0.5 or v0.6: a mapping of ids to settings.

use std::collections::BTreeMap;

use thalweg_config::{Key, Node, Span};

use super::report::Report;
use super::settings::Settings;
use super::tables::{self, Role};

/// A consumer, producer or router.
#[derive(Debug)]
pub(super) struct Plugin {
    pub(super) id: String,
    pub(super) span: Span,
    pub(super) settings: Settings,
    /// Its filters and formatters.
    pub(super) list: Vec<Node>,
    /// Decides which plugins may be in that list: filters only for a router.
    pub(super) list_role: Role,
}

impl Plugin {
    /// Returns the streams that it reads or writes, or the stream that a router owns.
    pub(super) fn streams(&self) -> Vec<(String, Span)> {
        self.settings.list(if self.settings.kind.role == Role::Router { "Stream" } else { "Streams" })
    }
}

/// All enabled plugins of a file.
#[derive(Debug, Default)]
pub(super) struct Plugins {
    pub(super) consumers: Vec<Plugin>,
    pub(super) producers: Vec<Plugin>,
    pub(super) routers: Vec<Plugin>,
}

impl Plugins {
    pub(super) fn add(&mut self, plugin: Plugin) {
        match plugin.settings.kind.role {
            Role::Consumer => self.consumers.push(plugin),
            Role::Producer => self.producers.push(plugin),
            _ => self.routers.push(plugin),
        }
    }
}

/// Reads the mapping of plugins.
pub(super) fn read(root: &Node, report: &mut Report) -> Plugins {
    let mut plugins = Plugins::default();
    for (key, node) in root.entries() {
        if node.as_mapping().is_none() {
            let message =
                format!("The plugin `{}` is a mapping of settings, but this is {}.", key.name, node.kind());
            report.mistake(node.span, message).help("Begin with `Type:`.");
            continue;
        }
        let kind = get(node, "Type").map(|(_, node)| node);
        if kind.and_then(Node::as_str).is_some_and(|kind| kind.eq_ignore_ascii_case("Aggregate")) {
            aggregate(key, node, &mut plugins, report);
        } else {
            plugin(&key.name, key.span, node.entries(), &mut plugins, report);
        }
    }
    plugins
}

/// Returns an entry by its key, ignoring case.
pub(super) fn get<'n>(node: &'n Node, name: &str) -> Option<(&'n Key, &'n Node)> {
    node.entries().iter().find(|(key, _)| key.name.eq_ignore_ascii_case(name)).map(|(key, node)| (key, node))
}

/// Reads plugins that share settings. A plugin's own settings replace those of the aggregate.
fn aggregate(key: &Key, node: &Node, plugins: &mut Plugins, report: &mut Report) {
    let Some((_, inner)) = get(node, "Plugins") else {
        report.mistake(key.span, format!("The aggregate `{}` has no `Plugins`.", key.name));
        return;
    };
    if inner.entries().is_empty() {
        let message = format!("`Plugins` is a mapping of names to settings, but this is {}.", inner.kind());
        report.mistake(inner.span, message);
    }
    for (sub, settings) in inner.entries() {
        let defaults = node.entries().iter().filter(|(name, _)| {
            !["Type", "Plugins"].iter().any(|known| name.name.eq_ignore_ascii_case(known))
        });
        let mut entries: Vec<(Key, Node)> = Vec::new();
        if settings.as_mapping().is_none() && !settings.is_null() {
            let message = format!(
                "The plugin `{}` is a mapping of settings, but this is {}.",
                sub.name,
                settings.kind()
            );
            report.mistake(settings.span, message).help("Begin with `Type:`.");
            continue;
        }
        for (name, value) in defaults {
            if get(settings, &name.name).is_none() {
                entries.push((name.clone(), value.clone()));
            }
        }
        entries.extend(settings.entries().iter().cloned());
        plugin(&format!("{}-{}", key.name, sub.name), sub.span, &entries, plugins, report);
    }
}

fn plugin(id: &str, span: Span, entries: &[(Key, Node)], plugins: &mut Plugins, report: &mut Report) {
    let mut rest: Vec<(Key, Node)> = Vec::new();
    let mut kind = None;
    let mut enabled = true;
    for (key, node) in entries {
        if key.name.eq_ignore_ascii_case("Type") {
            kind = Some(node);
        } else if key.name.eq_ignore_ascii_case("Enable") {
            enabled = match (node.as_bool(), node.as_str()) {
                (Some(enabled), _) => enabled,
                (None, Some("true" | "yes" | "on" | "1")) => true,
                (None, Some("false" | "no" | "off" | "0")) => false,
                _ => {
                    let message = format!("`Enable` is `true` or `false`, but this is {}.", node.kind());
                    report.mistake(node.span, message);
                    true
                }
            };
        } else {
            rest.push((key.clone(), node.clone()));
        }
    }
    if !enabled {
        report.remark(span, format!("`{id}` is switched off (`Enable`), and left out."));
        return;
    }
    let Some(kind) = kind else {
        report
            .mistake(span, format!("The plugin `{id}` has no `Type`."))
            .help("Add for example `Type: consumer.File`.");
        return;
    };
    let Some(name) = kind.as_str() else {
        report.mistake(kind.span, format!("`Type` is text, but this is {}.", kind.kind()));
        return;
    };
    let Some(kind) = known(name, kind.span, report) else { return };
    let settings = Settings::new(kind, span, &rest, report);
    let list_role = kind.role;
    let list = settings.plugins(if kind.role == Role::Router { "Filters" } else { "Modulators" });
    if kind.refused.is_none() {
        let name = if kind.role == Role::Router { "Stream" } else { "Streams" };
        let is_missing = settings.list(name).is_empty() && !settings.has(name);
        if is_missing && kind.role == Role::Producer {
            report.remark(span, format!("`{id}` has no `Streams`, so it gets no messages and is left out."));
            return;
        }
        if is_missing {
            report.mistake(span, format!("`{id}` has no `{name}`.")).help(match kind.role {
                Role::Consumer => "Add the streams that its messages go to.",
                _ => "Add the stream whose messages it forwards.",
            });
        }
    }
    plugins.add(Plugin { id: id.to_owned(), span, settings, list, list_role });
}

/// Returns the type of a consumer, producer or router, or reports why it cannot be used.
pub(super) fn known(name: &str, span: Span, report: &mut Report) -> Option<&'static tables::PluginKind> {
    let allowed = |role: Role| matches!(role, Role::Consumer | Role::Producer | Role::Router);
    match tables::kind(name) {
        Some(kind) if !allowed(kind.role) => {
            let message = format!("`{name}` is a part of another plugin and cannot be used alone.");
            report.mistake(span, message).help("Put it into the `Modulators` of a consumer or producer.");
            None
        }
        Some(kind) => match kind.refused {
            Some(why) => {
                report.mistake(span, format!("`{}` cannot run here yet.", kind.name)).help(why);
                None
            }
            None => Some(kind),
        },
        None => {
            let names: Vec<&str> =
                tables::kinds().filter(|kind| allowed(kind.role)).map(|kind| kind.name).collect();
            let message = format!("There is no plugin of the type `{name}`.");
            report.unknown(
                span,
                message,
                name,
                names,
                "There are consumers, producers and routers: see `docs/from-gollum.md`.",
            );
            None
        }
    }
}

/// Makes a name unique by appending a number.
pub(super) fn unique(name: String, taken: &mut BTreeMap<String, ()>) -> String {
    let mut unique = name.clone();
    let mut number = 1;
    while taken.insert(unique.clone(), ()).is_some() {
        number += 1;
        unique = format!("{name}-{number}");
    }
    unique
}
