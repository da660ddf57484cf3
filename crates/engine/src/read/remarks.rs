//! Remarks on a graph that works, but probably not as it is meant.
//!
//! A remark is no mistake: the same configuration may be right. It is therefore given only where the likely
//! meaning is another one, and says both.
//!
//! See docs/decisions/101-mistakes-never-work-remarks-may-be-meant.md.

use std::collections::BTreeMap;

use thalweg_config::{Diagnostics, Document, Node, Span};

use super::fields::{add_remarks, entering, reaching};
use super::list;
use super::sections::{Section, Sections};
use crate::component::{Endless, KnownFields, Membership, TransactionPlace};
use crate::graph::{Graph, SinkNode, SourceNode};
use crate::index::Index;
use crate::pairs::Reached;
use crate::registry::report;

/// At most this many members of groups of one name are compared with each further one.
const MOST_COMPARED: usize = 1000;

/// Returns the remarks on a configuration, each at its place. Its graph must be that of the document, and
/// without mistakes.
pub fn remarks(document: &Document, graph: &Graph) -> Diagnostics {
    let root = document.root();
    let (sections, index) = (Sections::of(root), Index::new(graph));
    let mut remarks = Remarks { root, sections, index, found: document.diagnostics() };
    remarks.of_options();
    remarks.of_payloads();
    remarks.of_transactions();
    remarks.of_ids();
    remarks.of_groups();
    remarks.of_schedule();
    add_remarks(document, graph, &remarks.index, &mut remarks.found);
    remarks.found
}

struct Remarks<'a> {
    root: &'a Node,
    sections: Sections<'a>,
    index: Index<'a>,
    found: Diagnostics,
}

impl Remarks<'_> {
    fn add(&mut self, span: Option<Span>, message: String, help: impl Into<String>) {
        self.found.error(span.unwrap_or(self.root.span), message).help(help);
    }

    /// Adds the remarks that components have themselves.
    fn of_options(&mut self) {
        let Sections { sources, sinks, .. } = &self.sections;
        for source in &self.index.graph.sources {
            let Some(node) = sources.node(&source.name) else { continue };
            let options = node.get(source.kind).unwrap_or(node);
            report(source.config.remarks(), options, node.span, &mut self.found);
        }
        for sink in &self.index.graph.sinks {
            let Some(node) = sinks.node(&sink.name) else { continue };
            let options = node.get(sink.kind).unwrap_or(node);
            report(sink.config.remarks(), options, node.span, &mut self.found);
        }
    }

    /// Finds sinks that write the fields beside a payload that was never parsed, and not the payload.
    fn of_payloads(&mut self) {
        let graph = self.index.graph;
        if !graph.sources.iter().any(|source| source.config.describes_payload()) {
            return;
        }
        let written = Section::of(self.root, "pipelines");
        let entering = entering(&written, &self.index);
        for sink in graph.sinks.iter().filter(|sink| writes_fields(sink)) {
            let known = reaching(&sink.name, &written, &self.index, &entering);
            let is_lost = |source: &&SourceNode| {
                source.config.describes_payload()
                    && source.config.fields() == known
                    && self.index.reaches(&source.name, &sink.name)
            };
            let Some(source) = graph.sources.iter().find(is_lost) else { continue };
            let span = self.sections.sinks.option_span(&sink.name, sink.kind, "encode");
            self.lost_payload(span, source, sink, &known);
        }
    }

    fn lost_payload(
        &mut self,
        span: Option<Span>,
        source: &SourceNode,
        sink: &SinkNode,
        known: &KnownFields,
    ) {
        let mut names: Vec<&str> = known.names().collect();
        let message = format!(
            "`{}` writes only the fields of `{}`: {}. The payload, which no transform made fields of, is left out.",
            sink.name,
            source.name,
            list(&names)
        );
        names.push("payload");
        let help = format!(
            "Parse the payload, for example with `parse_json`; name it, as in `encode: {{ format: json, fields: [{}] }}`; \
             or write it alone: `encode: {{ format: text, template: \"{{payload}}\" }}`. If it is not wanted, name the \
             `fields` that are.",
            names.join(", ")
        );
        self.add(span, message, help);
    }

    /// Finds a source and a sink that are not linked, because their systems have no address in common,
    /// although they are probably one.
    fn of_transactions(&mut self) {
        let graph = self.index.graph;
        let places: Vec<(&SinkNode, TransactionPlace)> =
            graph.sinks.iter().filter_map(|sink| Some((sink, sink.config.transaction_place()?))).collect();
        if places.is_empty() {
            return;
        }
        for source in &graph.sources {
            let Some(place) = source.config.positions_place() else { continue };
            let reached = Reached::from(&self.index, &source.name).sinks;
            for (sink, of_sink) in places.iter().filter(|(sink, _)| reached.contains(&&sink.name)) {
                let Some((one, other)) = place.spelling_of(of_sink) else { continue };
                let message = format!(
                    "The transactions of `{}` do not have the positions of `{}`, because `{other}` is another \
                     address than `{one}`: messages may be there twice after a kill.",
                    sink.name, source.name
                );
                let help = "If both are one system, write one of its addresses in the same way in both.";
                self.add(self.sections.sinks.span(&sink.name), message, help);
            }
        }
    }

    /// Finds two sinks with transactions of one id, whose systems have no address in common, although they
    /// are probably one.
    fn of_ids(&mut self) {
        let mut known: BTreeMap<(&'static str, String), Vec<&SinkNode>> = BTreeMap::new();
        for sink in self.index.graph.sinks.iter().filter(|sink| sink.config.transaction_place().is_some()) {
            for claim in sink.config.claims() {
                let others = known.entry(claim.key()).or_default();
                let place = sink.config.transaction_place();
                let first = others.iter().take(MOST_COMPARED).find(|other| {
                    let other = other.config.transaction_place();
                    place.as_ref().zip(other.as_ref()).is_some_and(|(a, b)| a.spelling_of(b).is_some())
                });
                if let Some(first) = first {
                    let message = format!("`{}` has the `{}` of `{}`.", sink.name, claim.option, first.name);
                    let help = "If both systems are one, each ends the transactions of the other: give each sink an \
                                id of its own.";
                    let span = self.sections.sinks.option_span(&sink.name, sink.kind, claim.option);
                    self.found.error(span.unwrap_or(self.root.span), message).help(help);
                }
                others.push(sink);
            }
        }
    }

    /// Finds a source that never ends under a schedule, whose next run waits for that.
    fn of_schedule(&mut self) {
        if self.index.graph.schedule.is_none() {
            return;
        }
        for source in self.index.graph.sources.iter().filter(|source| !source.config.is_auxiliary()) {
            let Some(endless) = source.config.endless() else { continue };
            let (option, end) = match endless {
                Endless::By(option) => {
                    (Some(option), format!(", or change `{option}` so that each run ends"))
                }
                Endless::Without(option) => (None, format!(", or give `{option}`, so that each run ends")),
            };
            let message = format!(
                "`{}` never ends: the first run of the `schedule` is the only one, unless it fails.",
                source.name
            );
            let help = format!("Leave out `schedule`, and the run begins at once{end}.");
            let sources = &self.sections.sources;
            let written = option.and_then(|option| sources.option_span(&source.name, source.kind, option));
            self.add(written.or_else(|| sources.span(&source.name)), message, help);
        }
    }

    /// Finds two members of one group that read different things.
    fn of_groups(&mut self) {
        let mut known: BTreeMap<String, Vec<(&SourceNode, Membership)>> = BTreeMap::new();
        for source in &self.index.graph.sources {
            let Some(membership) = source.config.membership() else { continue };
            let others = known.entry(membership.group.clone()).or_default();
            let first = others.iter().take(MOST_COMPARED).find(|(_, other)| membership.differs(other));
            if let Some((first, _)) = first {
                let message = format!(
                    "`{}` is a member of the group `{}`, as `{}` is, but reads other topics.",
                    source.name, membership.group, first.name
                );
                let help = "Members of a group share what they read, and a change of one stops the others for a \
                            moment: give each source a group of its own, or one source all topics.";
                let span = self.sections.sources.option_span(&source.name, source.kind, membership.option);
                self.found.error(span.unwrap_or(self.root.span), message).help(help);
            }
            others.push((source, membership));
        }
    }
}

/// True if a sink writes the fields that messages have, whatever they are, and not the payload.
fn writes_fields(sink: &SinkNode) -> bool {
    sink.config.encoder().is_some_and(|encoder| !encoder.names_intrinsic() && encoder.fields().is_empty())
}
