//! Converts gollum's configurations.
//!
//! gollum is a message multiplexer that is no longer developed. Its consumers, routers and producers meet in
//! named *streams*, with lists of filters and formatters on them. A file is read in steps:
//!
//! 1. `plugins` (v0.5 and v0.6, a mapping) or `legacy` (v0.4, a list) reads the plugins. It checks their
//!    settings against `tables`, where every option of every plugin is used, meaningless here, or refused.
//! 2. `streams` drafts a graph of branches, beginning at the consumers. `consumers` and `producers` turn each
//!    plugin into a source or sink. `modulators` (with `filters`, `formatters`) turns lists into transforms.
//!    `text` merges neighbouring formatters that only put text around a value into one template.
//! 3. `simplify` removes the parts of the draft without effect, and `emit` writes it as a document.
//!
//! Every node keeps its position in the gollum file. An error that only the engine or a component can find is
//! therefore shown at the user's own line.

mod amazon;
mod cluster;
mod consumers;
mod draft;
mod emit;
mod filters;
mod formatters;
mod gotemplate;
mod gotime;
mod legacy;
mod modulators;
mod plugins;
mod producers;
mod settings;
mod simplify;
mod stores;
mod streams;
pub mod tables;
#[cfg(test)]
mod tests;
mod text;
mod version;

use thalweg_config::{Diagnostics, Document, Node};

use crate::{Conversion, Converted, Dialect, Environment, Selection, made, report};
use report::Report;
pub use version::Version;

/// gollum's configurations.
#[derive(Debug, Clone, Copy)]
pub struct Gollum {
    /// The version that configurations are written for; `None` to find it out.
    version: Option<Version>,
}

impl Gollum {
    /// Finds out the version of each configuration.
    pub const ANY: Self = Self { version: None };

    /// The dialect of one version.
    #[must_use]
    pub fn of(version: Version) -> &'static Self {
        match version {
            Version::V04 => &Self { version: Some(Version::V04) },
            Version::V05 => &Self { version: Some(Version::V05) },
            Version::V06 => &Self { version: Some(Version::V06) },
        }
    }
}

impl Dialect for Gollum {
    fn name(&self) -> &'static str {
        "gollum"
    }

    fn recognises(&self, document: &Document) -> bool {
        is_gollum(document)
    }

    fn read(
        &self,
        document: &Document,
        _: Environment<'_>,
        _: Selection<'_>,
    ) -> Result<Converted, Diagnostics> {
        let version = self.version.unwrap_or_else(|| Version::of(document));
        read_as(document, version).map(Converted::whole)
    }
}

/// True if a document looks like a gollum configuration: plugins with a `Type`, or in v0.4 a list of plugins
/// by their type.
pub fn is_gollum(document: &Document) -> bool {
    let root = document.root();
    let is_type = |name: &str| {
        let kinds = ["consumer.", "producer.", "router.", "stream."];
        kinds.iter().any(|kind| name.to_ascii_lowercase().starts_with(kind))
    };
    match root.as_sequence() {
        Some(items) => items.iter().any(|item| item.entries().iter().any(|(key, _)| is_type(&key.name))),
        None => root.entries().iter().any(|(_, plugin)| {
            let kind = plugins::get(plugin, "Type").and_then(|(_, kind)| kind.as_str());
            kind.is_some_and(|kind| is_type(kind) || kind.eq_ignore_ascii_case("Aggregate"))
        }),
    }
}

/// Converts a gollum configuration to thalweg's form.
///
/// # Errors
/// All mistakes in the document, each at its position.
pub fn read(document: &Document) -> Result<Conversion, Diagnostics> {
    read_as(document, Version::of(document))
}

/// Like [`read`], for a configuration of a known version.
///
/// # Errors
/// All mistakes in the document, each at its position.
pub fn read_as(document: &Document, version: Version) -> Result<Conversion, Diagnostics> {
    let mut report = Report::new(document);
    let root: &Node = document.root();
    let plugins = match root.as_sequence() {
        Some(_) => legacy::read(root, &mut report),
        None => plugins::read(root, &mut report),
    };
    let mut draft = streams::draft(&plugins, version, &mut report);
    let start = thalweg_config::Span::new(root.span.start, root.span.start);
    if report.mistakes.is_empty() {
        // gollum's own log is a source as well.
        let is_without_source = plugins.consumers.is_empty() && draft.sources.is_empty();
        for (is_missing, what) in
            [(is_without_source, "consumer"), (plugins.producers.is_empty(), "producer")]
        {
            if is_missing {
                report.mistake(start, format!("There is no {what} that is switched on."));
            }
        }
    }
    simplify::simplify(&mut draft);
    draft.feed_traces();
    // The start of each plugin, including plugins that became nothing.
    let items = root.items().iter().flat_map(Node::entries);
    let keys = root.entries().iter().chain(items).map(|(key, _)| key.span);
    let all = plugins.consumers.iter().chain(&plugins.producers).chain(&plugins.routers);
    let places: Vec<thalweg_config::Span> = keys.chain(all.map(|plugin| plugin.span)).collect();
    let (root, comments) = emit::emit(&draft, &report.remarks, &places, start);
    report.mistakes.into_result(Conversion {
        document: document.with_root(root),
        comments,
        remarks: report.remarks,
    })
}
