//! Checks between the parts of a configuration: names exist, every output has a target, no pipeline feeds
//! itself, flows match.

use std::collections::{BTreeMap, HashMap, HashSet};

use thalweg_config::{Node, Span, nearest};

use super::sections::Sections;
use super::{Reader, list, terms};
use crate::component::Flow;
use crate::flow::{Flows, Mismatch, MismatchPart};
use crate::graph::{Feed, Graph, Pipeline};
use crate::index::{Index, Labels};

/// At most this many circles are reported, and this many of the pipelines in each.
const SHOWN: usize = 10;

impl Reader<'_> {
    /// Connects the pipelines, and checks the graph as a whole.
    pub(super) fn connections(&mut self, root: &Node, graph: &mut Graph) {
        let is_list = |section: &&str| root.get(section).is_some_and(|node| node.as_sequence().is_some());
        if ["sources", "pipelines", "sinks"].iter().any(is_list) {
            // A list has no names.
            return;
        }
        let sections = Sections::of(root);
        let labels = Labels::of(graph);
        let has_all_components = self.diagnostics.is_empty();
        for at in 0..sections.pipelines.entries.len() {
            self.connect_inputs(at, &sections, &labels, graph);
            self.connect_targets(at, &sections, graph);
        }
        let wrong_names = self.diagnostics.len();
        self.inputs(&sections, graph);
        let index = Index::new(graph);
        if !self.diagnostics.is_empty() {
            // Outputs and circles can only be found if all names are right.
            if has_all_components && self.diagnostics.len() == wrong_names {
                self.leftover_ends(root, &sections, &index);
            }
            return;
        }
        self.leftovers(root, &sections, &index);
        self.circles(root, &sections, &index);
        let flows = Flows::of(&index);
        self.flows(&sections, &index, &flows);
        self.buffers(&sections, &index, &flows);
        if self.diagnostics.is_empty() {
            self.removals(root, &index, &flows);
            self.shared_files(root, &index);
            self.shared_targets(root, &index);
            self.own_input(root, &index);
            self.claims(root, &sections, &index);
            self.ends(root, &sections, &index);
            self.transactions(root, &sections, &index);
            self.positions_through_buffers(root, &sections, &index);
            self.growing_positions(root, &sections, &index);
        }
    }

    /// Connects a pipeline with the outputs that its `from` names.
    fn connect_inputs(&mut self, at: usize, sections: &Sections<'_>, labels: &Labels, graph: &mut Graph) {
        let Some(from) = sections.pipelines.entries[at].1.get("from") else { return };
        let feeds: Vec<&Node> = from.as_sequence().map_or_else(|| vec![from], |items| items.iter().collect());
        if feeds.is_empty() {
            self.diagnostics.error(from.span, "`from` is empty.").help("Name at least one source.");
        }
        for feed in feeds {
            let found = self.feed(feed, graph, sections, labels);
            graph.pipelines[at].from.extend(found);
        }
    }

    /// Connects a pipeline with the pipelines that its `to` names.
    fn connect_targets(&mut self, at: usize, sections: &Sections<'_>, graph: &mut Graph) {
        let (key, node) = &sections.pipelines.entries[at];
        let to = node.get("to");
        // Found once a name is wrong.
        let mut spans = None;
        let feed = Feed::Chosen(graph.pipelines[at].name.clone());
        for name in graph.pipelines[at].to.names().to_vec() {
            if let Some(next) = sections.pipelines.number(&name) {
                graph.pipelines[next].from.push(feed.clone());
            } else if !sections.sinks.has(&name) {
                let span = spans.get_or_insert_with(|| spans_of(to)).get(&*name).copied();
                let span = span.or_else(|| Some(to?.span)).unwrap_or(key.span);
                let known = sections.sinks.entries.iter().chain(sections.pipelines.entries);
                let help = match self.nearest(&name, known.map(|(key, _)| key.name.as_str())) {
                    Some(near) => format!("Did you mean `{near}`?"),
                    None => "Add it under `sinks:`.".to_owned(),
                };
                let message = format!("There is no sink or pipeline called `{name}`.");
                self.diagnostics.error(span, message).help(help);
            }
        }
    }

    /// Checks that each pipeline has an input.
    fn inputs(&mut self, sections: &Sections<'_>, graph: &Graph) {
        for ((key, node), pipeline) in sections.pipelines.entries.iter().zip(&graph.pipelines) {
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
    }

    /// Checks that no file is removed on one way while it may still be read on another.
    fn removals(&mut self, root: &Node, index: &Index<'_>, flows: &Flows) {
        let graph = index.graph;
        let sources = graph.sources.iter().map(|source| Feed::Source(source.name.clone()));
        let pipelines = graph.pipelines.iter().map(|pipeline| Feed::Pipeline(pipeline.name.clone()));
        let carries_files = |feed: &Feed| flows.fed(index, feed).contains(&Flow::Files);
        for feed in sources.chain(pipelines).filter(carries_files) {
            let copies = index.copies_of(&feed);
            let Some((removed, removal)) = copies
                .iter()
                .find_map(|name| Some((name, index.removal(name)?)))
                .filter(|_| copies.len() > 1)
            else {
                continue;
            };
            let others: Vec<String> =
                copies.iter().filter(|name| *name != removed).map(|name| format!("`{name}`")).collect();
            let section = if matches!(feed, Feed::Source(_)) { "sources" } else { "pipelines" };
            let found = root.get(section).and_then(|node| Some((node.key(&feed.to_string())?, node)));
            let at = found.and_then(|(key, node)| {
                let to = node.get(&key.name)?.get("to");
                spans_of(to).get(&**removed).copied()
            });
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
    fn flows(&mut self, sections: &Sections<'_>, index: &Index<'_>, flows: &Flows) {
        for Mismatch { pipeline, part, message, help } in flows.mismatches(index) {
            let Some((key, node)) = sections.pipelines.entries.get(pipeline) else { continue };
            let found = match part {
                MismatchPart::From => node.get("from"),
                MismatchPart::Transform(at) => node.get("transforms").and_then(|list| list.items().get(at)),
                MismatchPart::To => node.get("to"),
            };
            self.diagnostics.error(found.map_or(key.span, |node| node.span), message).help(help);
        }
    }

    fn feed(&mut self, node: &Node, graph: &Graph, sections: &Sections<'_>, labels: &Labels) -> Option<Feed> {
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
        let Sections { sources, pipelines, sinks } = sections;
        let number = pipelines.number(name);
        let pipeline = number.map(|at| &graph.pipelines[at]);
        if pipeline.is_none() && !sources.has(name) && !sinks.has(name) {
            let names = self.names.keys().map(String::as_str);
            let help = match self.nearest(name, names) {
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
            None if sources.has(name) => Some(Feed::Source(name.into())),
            None => {
                let message = format!("`{name}` is a sink: nothing comes out of it but `{name}.errors`.");
                self.diagnostics.error(node.span, message);
                None
            }
            Some(output) => {
                // The outputs of a step with a mistake, and of those behind it, are unknown.
                let is_partial =
                    |pipeline: &Pipeline| pipeline.transforms.len() < pipelines.steps(name).len();
                let has_it = number.is_some_and(|at| labels.step(at, output).is_some());
                if has_it || pipeline.is_some_and(is_partial) {
                    return Some(Feed::Named(name.into(), output.to_owned()));
                }
                self.no_output(node, pipeline, name, output);
                None
            }
        }
    }

    /// Reports an output that a component does not have.
    fn no_output(&mut self, node: &Node, pipeline: Option<&Pipeline>, name: &str, output: &str) {
        let outputs = pipeline.into_iter().flat_map(|pipeline| pipeline.outputs());
        let mut all: Vec<String> = outputs.map(|(_, _, label)| label).collect();
        all.push("errors".to_owned());
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let help = match nearest(output, all.iter().copied()) {
            Some(near) => format!("Did you mean `{name}.{near}`?"),
            None => format!("It has: {}.", list(&all)),
        };
        let message = format!("`{name}` has no output called `{output}`.");
        self.diagnostics.error(node.span, message).help(help);
    }

    fn leftovers(&mut self, root: &Node, sections: &Sections<'_>, index: &Index<'_>) {
        self.leftover_ends(root, sections, index);
        for pipeline in &index.graph.pipelines {
            let at = sections.pipelines.span(&pipeline.name).unwrap_or(root.span);
            self.leftover_outputs(pipeline, at, index);
        }
    }

    /// Checks that each source and sink is connected, unless another mistake names it.
    fn leftover_ends(&mut self, root: &Node, sections: &Sections<'_>, index: &Index<'_>) {
        let texts =
            self.diagnostics.iter().flat_map(|mistake| [Some(&mistake.message), mistake.help.as_ref()]);
        let named = texts.flatten().flat_map(|text| text.split('`').skip(1).step_by(2));
        let named: HashSet<String> = named.map(str::to_owned).collect();
        let is_meant = |name: &str| named.contains(name);
        for source in &index.graph.sources {
            if index.fed_by(&Feed::Source(source.name.clone())).is_empty() && !is_meant(&source.name) {
                let message = format!("No pipeline reads the source `{}`.", source.name);
                let help = format!("Add a pipeline with `from: {}`, or remove it.", source.name);
                let span = sections.sources.span(&source.name).unwrap_or(root.span);
                self.diagnostics.error(span, message).help(help);
            }
        }
        for sink in &index.graph.sinks {
            if index.leading_to(&sink.name).is_empty() && !is_meant(&sink.name) {
                let message = format!("No pipeline feeds the sink `{}`.", sink.name);
                let help = format!("Add a pipeline with `to: {}`, or remove it.", sink.name);
                let span = sections.sinks.span(&sink.name).unwrap_or(root.span);
                self.diagnostics.error(span, message).help(help);
            }
        }
    }

    /// Checks that each output of a pipeline has one name and leads somewhere once.
    fn leftover_outputs(&mut self, pipeline: &Pipeline, at: Span, index: &Index<'_>) {
        let onward = index.fed_by(&Feed::Pipeline(pipeline.name.clone()));
        if pipeline.to.names().is_empty() && onward.is_empty() {
            let message = format!("The output of the pipeline `{}` goes nowhere.", pipeline.name);
            self.diagnostics.error(at, message).help("Add `to:` with a sink (`discard` throws it away).");
        }
        let mut labels = BTreeMap::new();
        for (_, _, label) in pipeline.outputs() {
            if labels.insert(label.clone(), ()).is_some() {
                let message = format!("The pipeline `{}` has two outputs called `{label}`.", pipeline.name);
                self.diagnostics.error(at, message).help("Rename one of them.");
            } else if index.fed_by(&Feed::Named(pipeline.name.clone(), label.clone())).is_empty() {
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

    /// Checks that no pipeline feeds itself, directly or through others. The errors of its sinks count as
    /// well.
    fn circles(&mut self, root: &Node, sections: &Sections<'_>, index: &Index<'_>) {
        let pipelines = &index.graph.pipelines;
        let mut done = vec![false; pipelines.len()];
        let mut on_trail: Vec<Option<usize>> = vec![None; pipelines.len()];
        let mut found = 0;
        for start in 0..pipelines.len() {
            if done[start] {
                continue;
            }
            let mut trail = vec![(start, feeding(start, index))];
            on_trail[start] = Some(0);
            while let Some((number, open)) = trail.last_mut() {
                let Some(next) = open.pop() else {
                    done[*number] = true;
                    on_trail[*number] = None;
                    trail.pop();
                    continue;
                };
                if let Some(at) = on_trail[next] {
                    let circle = trail[at..].iter().rev().map(|(number, _)| &*pipelines[*number].name);
                    let message = format!("These pipelines feed each other in a circle: {}.", around(circle));
                    let span = sections.pipelines.span(&pipelines[next].name).unwrap_or(root.span);
                    self.diagnostics.error(span, message).help("Messages must come to an end somewhere.");
                    found += 1;
                    if found == SHOWN {
                        return;
                    }
                } else if !done[next] {
                    on_trail[next] = Some(trail.len());
                    trail.push((next, feeding(next, index)));
                }
            }
        }
    }
}

/// Returns the numbers of the pipelines that feed a pipeline. The errors of a sink come from all that lead to
/// it.
fn feeding(number: usize, index: &Index<'_>) -> Vec<usize> {
    let mut before = Vec::new();
    for feed in &index.graph.pipelines[number].from {
        match feed {
            Feed::Source(_) => {}
            Feed::Pipeline(name) | Feed::Chosen(name) | Feed::Named(name, _) => {
                before.extend(index.number(name));
            }
            Feed::Errors(name) => match index.number(name) {
                Some(number) => before.push(number),
                None => before.extend(index.leading_to(name)),
            },
        }
    }
    before
}

/// Returns the pipelines of a circle and the first again. Of a long one, the middle is left out.
fn around<'g>(circle: impl ExactSizeIterator<Item = &'g str> + Clone) -> String {
    let more = circle.len().saturating_sub(SHOWN);
    let mut shown = circle.clone().take(SHOWN).collect::<Vec<_>>().join(" → ");
    if more > 0 {
        shown += &format!(" → ({more} more)");
    }
    for first in circle.take(1) {
        shown += " → ";
        shown += first;
    }
    shown
}

/// Returns the first position of each name within `to`, at any depth.
fn spans_of(to: Option<&Node>) -> HashMap<&str, Span> {
    let (mut spans, mut open) = (HashMap::new(), Vec::from_iter(to));
    while let Some(node) = open.pop() {
        if let Some(name) = node.text() {
            spans.entry(name).or_insert(node.span);
        }
        // The first is the next.
        open.extend(node.entries().iter().rev().map(|(_, value)| value));
        open.extend(node.items().iter().rev());
    }
    spans
}

#[cfg(test)]
mod tests {
    use thalweg_config::Document;

    use super::*;
    use crate::Registry;

    #[test]
    fn a_long_circle_is_shown_in_part() {
        let names: Vec<String> = (0..40_000).map(|number| format!("p{number}")).collect();
        let shown = |count: usize| around(names[..count].iter().map(String::as_str));
        assert_eq!(shown(1), "p0 → p0");
        assert_eq!(shown(3), "p0 → p1 → p2 → p0");
        let long = "p0 → p1 → p2 → p3 → p4 → p5 → p6 → p7 → p8 → p9 → (39990 more) → p0";
        assert_eq!(shown(40_000), long);
    }

    #[test]
    fn an_output_of_steps_with_a_mistake_is_not_reported_as_missing() {
        for (transforms, expected) in [("[]", 1), ("[nope]", 0)] {
            let text =
                format!("pipelines:\n  p: {{ from: s, transforms: {transforms} }}\n  q: {{ from: p.x }}\n");
            let document = Document::parse("x.yaml", &text).unwrap();
            let Err(mistakes) = crate::read(&document, &Registry::new()) else {
                panic!("there is no source")
            };
            let found = mistakes.iter().filter(|mistake| mistake.message == "`p` has no output called `x`.");
            assert_eq!(found.count(), expected, "{mistakes}");
        }
    }

    /// Each wrong name was searched for in all of its list, and all known names were listed for it.
    #[test]
    fn many_wrong_names_are_reported_in_linear_time() {
        let names = |count: usize, start: &str| -> Vec<String> {
            (0..count).map(|number| format!("{start}{number}")).collect()
        };
        let (from, to) = (names(100_000, "f"), names(100_000, "t"));
        let known: String = names(5000, "k").iter().map(|name| format!("  {name}: {{}}\n")).collect();
        let wrong = format!("    from: [{}]\n    to: [{}]\n", from.join(", "), to.join(", "));
        let text = format!("pipelines:\n{known}  p:\n{wrong}");
        let document = Document::parse("x.yaml", &text).unwrap();
        let Err(mistakes) = crate::read(&document, &Registry::new()) else { panic!("the names are wrong") };
        let unknown = mistakes.iter().filter(|mistake| mistake.message.starts_with("There is no s"));
        let places = unknown.map(|mistake| &text[mistake.span.start..mistake.span.end]);
        assert!(places.eq(from.iter().chain(&to)));
    }
}
