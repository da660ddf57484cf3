//! Checks between the parts of a configuration: names exist, every output has a target, no pipeline feeds
//! itself, flows match.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use thalweg_config::{Node, Span, nearest};

use super::{Reader, list, terms};
use crate::component::Flow;
use crate::flow::{Flows, Mismatch, MismatchPart};
use crate::graph::{Feed, Graph};

impl Reader<'_> {
    /// Connects the pipelines, and checks the graph as a whole.
    pub(super) fn connections(&mut self, root: &Node, graph: &mut Graph) {
        let is_list = |section: &&str| root.get(section).is_some_and(|node| node.as_sequence().is_some());
        if ["sources", "pipelines", "sinks"].iter().any(is_list) {
            // A list has no names.
            return;
        }
        let pipelines = root.get("pipelines").map(Node::entries).unwrap_or_default();
        let has = |section: &str, name: &str| root.get(section).is_some_and(|node| node.get(name).is_some());
        for (at, (key, node)) in pipelines.iter().enumerate() {
            if let Some(from) = node.get("from") {
                let feeds: Vec<&Node> =
                    from.as_sequence().map_or_else(|| vec![from], |items| items.iter().collect());
                if feeds.is_empty() {
                    self.diagnostics.error(from.span, "`from` is empty.").help("Name at least one source.");
                }
                for feed in feeds {
                    let found = self.feed(feed, graph, &has);
                    graph.pipelines[at].from.extend(found);
                }
            }
            let feed = Feed::Chosen(graph.pipelines[at].name.clone());
            for name in graph.pipelines[at].to.names().to_vec() {
                if let Some(next) = graph.pipelines.iter_mut().find(|pipeline| pipeline.name == name) {
                    next.from.push(feed.clone());
                } else if !has("sinks", &name) {
                    let span = span_of(node.get("to"), &name);
                    let span = span.or_else(|| Some(node.get("to")?.span)).unwrap_or(key.span);
                    let known = |section| root.get(section).map(Node::entries).unwrap_or_default();
                    let known = known("sinks").iter().chain(known("pipelines"));
                    let help = match nearest(&name, known.map(|(key, _)| key.name.as_str())) {
                        Some(near) => format!("Did you mean `{near}`?"),
                        None => "Add it under `sinks:`.".to_owned(),
                    };
                    let message = format!("There is no sink or pipeline called `{name}`.");
                    self.diagnostics.error(span, message).help(help);
                }
            }
        }
        for ((key, node), pipeline) in pipelines.iter().zip(&graph.pipelines) {
            let has_other_word = || {
                let mut keys = node.entries().iter().map(|(key, _)| key.name.as_str());
                keys.any(|key| terms::key(key, &["from"]).is_some() || nearest(key, ["from"]).is_some())
            };
            if node.as_mapping().is_some()
                && node.get("from").is_none()
                && pipeline.from.is_empty()
                && !has_other_word()
            {
                let message = format!("The pipeline `{}` has no input.", key.name);
                let help = "Add `from:` with a source or an output of another pipeline, or name it in the `to` of one.";
                self.diagnostics.error(key.span, message).help(help);
            }
        }
        if !self.diagnostics.is_empty() {
            // Unused components and circles can only be found if all names are right.
            return;
        }
        self.leftovers(root, graph);
        self.circles(root, graph);
        self.flows(root, graph);
        if self.diagnostics.is_empty() {
            self.removals(root, graph);
            self.shared_files(root, graph);
            self.shared_targets(root, graph);
            self.own_input(root, graph);
        }
    }

    /// Checks that no file is removed on one way while it may still be read on another.
    fn removals(&mut self, root: &Node, graph: &Graph) {
        let sources = graph.sources.iter().map(|source| Feed::Source(source.name.clone()));
        let pipelines = graph.pipelines.iter().map(|pipeline| Feed::Pipeline(pipeline.name.clone()));
        let flows = Flows::of(graph);
        let carries_files = |feed: &Feed| flows.fed(graph, feed).contains(&Flow::Files);
        for feed in sources.chain(pipelines).filter(carries_files) {
            let copies = graph.copies_of(&feed);
            let Some((removed, removal)) = copies
                .iter()
                .find_map(|name| Some((name, graph.removal(name)?)))
                .filter(|_| copies.len() > 1)
            else {
                continue;
            };
            let others: Vec<String> =
                copies.iter().filter(|name| *name != removed).map(|name| format!("`{name}`")).collect();
            let section = if matches!(feed, Feed::Source(_)) { "sources" } else { "pipelines" };
            let found = root.get(section).and_then(|node| Some((node.key(&feed.to_string())?, node)));
            let at = found.and_then(|(key, node)| span_of(node.get(&key.name)?.get("to"), removed));
            let span = at.or(found.map(|(key, _)| key.span)).unwrap_or(root.span);
            let message = format!(
                "`{removal}` removes files of `{feed}` that {} may not have read yet.",
                others.join(" and ")
            );
            let help =
                "Write the files with a transform, such as `write` or `upload`, before they are removed.";
            self.diagnostics.error(span, message).help(help);
        }
    }

    /// Checks that messages and files go only to components that accept them.
    fn flows(&mut self, root: &Node, graph: &Graph) {
        for Mismatch { pipeline, part, message, help } in Flows::of(graph).mismatches(graph) {
            let Some((key, node)) = root.get("pipelines").and_then(|node| node.entries().get(pipeline))
            else {
                continue;
            };
            let found = match part {
                MismatchPart::From => node.get("from"),
                MismatchPart::Transform(at) => node.get("transforms").and_then(|list| list.items().get(at)),
                MismatchPart::To => node.get("to"),
            };
            self.diagnostics.error(found.map_or(key.span, |node| node.span), message).help(help);
        }
    }

    fn feed(&mut self, node: &Node, graph: &Graph, has: &dyn Fn(&str, &str) -> bool) -> Option<Feed> {
        // A name may look like a number.
        let Some(text) = node.text() else {
            let message = format!("`from` names a source or an output, but this is {}.", node.kind());
            self.diagnostics.error(node.span, message);
            return None;
        };
        let (name, output) = match text.split_once('.') {
            Some((name, output)) => (name, Some(output)),
            None => (text, None),
        };
        let pipeline = graph.pipeline(name);
        let known = has("sources", name) || has("sinks", name) || has("pipelines", name);
        if !known {
            let names = self.names.keys().map(String::as_str);
            let help = match nearest(name, names) {
                Some(near) => format!("Did you mean `{near}`?"),
                None => "Add it under `sources:`.".to_owned(),
            };
            let message = format!("There is no source or pipeline called `{name}`.");
            self.diagnostics.error(node.span, message).help(help);
            return None;
        }
        match output {
            Some("errors") => Some(Feed::Errors(name.into())),
            None if pipeline.is_some() => Some(Feed::Pipeline(name.into())),
            None if has("sources", name) => Some(Feed::Source(name.into())),
            None => {
                let message = format!("`{name}` is a sink: nothing comes out of it but `{name}.errors`.");
                self.diagnostics.error(node.span, message);
                None
            }
            Some(output) => {
                let outputs: Vec<String> =
                    pipeline.map(|p| p.outputs().map(|(_, _, label)| label).collect()).unwrap_or_default();
                if outputs.iter().any(|label| label == output) {
                    return Some(Feed::Named(name.into(), output.to_owned()));
                }
                let mut all: Vec<&str> = outputs.iter().map(String::as_str).collect();
                all.push("errors");
                let help = match nearest(output, all.iter().copied()) {
                    Some(near) => format!("Did you mean `{name}.{near}`?"),
                    None => format!("It has: {}.", list(&all)),
                };
                let message = format!("`{name}` has no output called `{output}`.");
                self.diagnostics.error(node.span, message).help(help);
                None
            }
        }
    }

    fn leftovers(&mut self, root: &Node, graph: &Graph) {
        let span = |section: &str, name: &str| {
            root.get(section).and_then(|node| node.key(name)).map_or(root.span, |key| key.span)
        };
        for source in &graph.sources {
            if graph.fed_by(&Feed::Source(source.name.clone())).is_empty() {
                let message = format!("No pipeline reads the source `{}`.", source.name);
                let help = format!("Add a pipeline with `from: {}`, or remove it.", source.name);
                self.diagnostics.error(span("sources", &source.name), message).help(help);
            }
        }
        for sink in &graph.sinks {
            if !graph.pipelines.iter().any(|pipeline| pipeline.to.names().contains(&sink.name)) {
                let message = format!("No pipeline feeds the sink `{}`.", sink.name);
                let help = format!("Add a pipeline with `to: {}`, or remove it.", sink.name);
                self.diagnostics.error(span("sinks", &sink.name), message).help(help);
            }
        }
        for pipeline in &graph.pipelines {
            let at = span("pipelines", &pipeline.name);
            let onward = graph.fed_by(&Feed::Pipeline(pipeline.name.clone()));
            if pipeline.to.names().is_empty() && onward.is_empty() {
                let message = format!("The output of the pipeline `{}` goes nowhere.", pipeline.name);
                self.diagnostics.error(at, message).help("Add `to:` with a sink (`discard` throws it away).");
            }
            let mut labels = BTreeMap::new();
            for (_, _, label) in pipeline.outputs() {
                if labels.insert(label.clone(), ()).is_some() {
                    let message =
                        format!("The pipeline `{}` has two outputs called `{label}`.", pipeline.name);
                    self.diagnostics.error(at, message).help("Rename one of them.");
                } else if graph.fed_by(&Feed::Named(pipeline.name.clone(), label.clone())).is_empty() {
                    let message = format!("The output `{}.{label}` goes nowhere.", pipeline.name);
                    let help = format!("Add a pipeline with `from: {}.{label}`.", pipeline.name);
                    self.diagnostics.error(at, message).help(help);
                }
            }
            let mut names = pipeline.to.names().to_vec();
            names.sort();
            if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
                let message = format!("The pipeline `{}` leads to `{}` twice.", pipeline.name, twice[0]);
                self.diagnostics.error(at, message).help("Name it once.");
            }
        }
    }

    /// Checks that no pipeline feeds itself, directly or through others. The errors of its sinks count as
    /// well.
    fn circles(&mut self, root: &Node, graph: &Graph) {
        let feeds_of = |name: &str| -> Vec<Arc<str>> {
            let Some(pipeline) = graph.pipeline(name) else { return Vec::new() };
            let mut before: Vec<Arc<str>> = Vec::new();
            for feed in &pipeline.from {
                match feed {
                    Feed::Source(_) => {}
                    Feed::Pipeline(name) | Feed::Chosen(name) | Feed::Named(name, _) => {
                        before.push(name.clone());
                    }
                    Feed::Errors(name) if graph.pipeline(name).is_some() => before.push(name.clone()),
                    Feed::Errors(sink) => before.extend(
                        graph
                            .pipelines
                            .iter()
                            .filter(|pipeline| pipeline.to.names().contains(sink))
                            .map(|pipeline| pipeline.name.clone()),
                    ),
                }
            }
            before
        };
        let mut done: BTreeSet<Arc<str>> = BTreeSet::new();
        for start in &graph.pipelines {
            if done.contains(&start.name) {
                continue;
            }
            let mut trail: Vec<(Arc<str>, Vec<Arc<str>>)> = vec![(start.name.clone(), feeds_of(&start.name))];
            while let Some((name, open)) = trail.last_mut() {
                let Some(next) = open.pop() else {
                    done.insert(name.clone());
                    trail.pop();
                    continue;
                };
                if let Some(at) = trail.iter().position(|(name, _)| *name == next) {
                    let mut circle: Vec<&str> = trail[at..].iter().map(|(name, _)| &**name).collect();
                    circle.reverse();
                    circle.push(circle[0]);
                    let message =
                        format!("These pipelines feed each other in a circle: {}.", circle.join(" → "));
                    let span =
                        root.get("pipelines").and_then(|node| node.key(&next)).map_or(root.span, |k| k.span);
                    self.diagnostics.error(span, message).help("Messages must come to an end somewhere.");
                } else if !done.contains(&next) {
                    let feeds = feeds_of(&next);
                    trail.push((next, feeds));
                }
            }
        }
    }
}

/// Returns the position of a name within `to`, at any depth.
fn span_of(node: Option<&Node>, name: &str) -> Option<Span> {
    let node = node?;
    if node.text() == Some(name) {
        return Some(node.span);
    }
    let below = node.items().iter().chain(node.entries().iter().map(|(_, value)| value));
    below.into_iter().find_map(|child| span_of(Some(child), name))
}
