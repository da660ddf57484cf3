//! Writes a draft as a document in thalweg's form.

use std::collections::{BTreeMap, VecDeque};

use thalweg_config::{Comments, Diagnostics, Node, Span};

use super::draft::{Branch, Draft, End, Feed, Station, Step, Way};
use super::made::{self, Made};
use super::modulators::valid_name;
use super::plugins::unique;
use super::text::TextPart;

/// Returns the nodes of the document, and the comments to print beside them.
pub(super) fn emit(draft: &Draft, remarks: &Diagnostics, plugins: &[Span], root: Span) -> (Node, Comments) {
    let order = order(draft);
    let mut taken = BTreeMap::new();
    let mut name = |wanted: &str| unique(valid_name(wanted), &mut taken);
    let sources: Vec<String> = draft.sources.iter().map(|source| name(&source.name)).collect();
    let fed = |sink: usize| {
        order.iter().any(|&branch| {
            draft.branches[branch].as_ref().is_some_and(|branch| branch.to.contains(&End::Sink(sink)))
        })
    };
    let sinks: Vec<Option<String>> =
        draft.sinks.iter().enumerate().map(|(index, sink)| fed(index).then(|| name(&sink.name))).collect();
    let branches: BTreeMap<usize, String> = order
        .iter()
        .filter_map(|&branch| Some((branch, name(&draft.branches[branch].as_ref()?.name))))
        .collect();
    let mut emitter = Emitter { sources, sinks, branches, comments: Comments::default() };

    let mut document = Made::new(root);
    if let Some((folder, span)) = &draft.state {
        document.text("state", folder, *span);
    }
    let mut section = Made::new(root);
    for (name, source) in emitter.sources.clone().into_iter().zip(&draft.sources) {
        emitter.station("sources", &name, source, &mut section);
    }
    document.put("sources", section.done());
    let mut section = Made::new(root);
    for index in &order {
        if let (Some(branch), Some(name)) = (&draft.branches[*index], emitter.branches.get(index).cloned()) {
            emitter.pipeline(&name, branch, &mut section);
        }
    }
    document.put("pipelines", section.done());
    let mut section = Made::new(root);
    for (name, sink) in emitter.sinks.clone().into_iter().zip(&draft.sinks) {
        if let Some(name) = name {
            emitter.station("sinks", &name, sink, &mut section);
        }
    }
    document.put("sinks", section.done());
    emitter.remarks(draft, remarks, plugins);
    (document.done(), emitter.comments)
}

/// Returns the branches that sources lead to, each after its predecessors where possible.
fn order(draft: &Draft) -> Vec<usize> {
    let living = |branch: &usize| draft.branches[*branch].is_some();
    let fed = |branch: &usize| {
        draft.branches[*branch]
            .as_ref()
            .is_some_and(|branch| branch.from.iter().any(|feed| matches!(feed, Feed::Source(_))))
    };
    let mut waiting: VecDeque<usize> = (0..draft.branches.len()).filter(living).filter(fed).collect();
    let mut order = Vec::new();
    while let Some(index) = waiting.pop_front() {
        if order.contains(&index) {
            continue;
        }
        order.push(index);
        let Some(branch) = &draft.branches[index] else { continue };
        for end in &branch.to {
            if let End::Branch(next) = end {
                waiting.push_back(*next);
            }
        }
        let takes = |other: &Branch| {
            other.from.iter().any(|feed| matches!(feed, Feed::Output(from, _) if *from == index))
        };
        for (next, other) in draft.branches.iter().enumerate() {
            if other.as_ref().is_some_and(takes) {
                waiting.push_back(next);
            }
        }
    }
    order
}

struct Emitter {
    sources: Vec<String>,
    sinks: Vec<Option<String>>,
    branches: BTreeMap<usize, String>,
    comments: Comments,
}

impl Emitter {
    fn station(&mut self, section: &str, name: &str, station: &Station, into: &mut Made) {
        into.put_at(name, station.span, station.node.clone());
        for note in &station.notes {
            self.comments.add(format!("{section}/{name}"), note);
        }
    }

    fn pipeline(&mut self, name: &str, branch: &Branch, into: &mut Made) {
        let mut made = Made::new(branch.span);
        let place = format!("pipelines/{name}");
        for note in &branch.notes {
            self.comments.add(&place, note);
        }
        let feeds: Vec<Node> = branch.from.iter().filter_map(|feed| self.feed(feed, branch.span)).collect();
        match feeds.as_slice() {
            [] => {}
            [feed] => {
                made.put("from", feed.clone());
            }
            _ => {
                made.put("from", made::list(feeds, branch.span));
            }
        }
        if let Some((count, span)) = branch.concurrency {
            made.number("concurrency", count, span);
        }
        let mut transforms = Vec::new();
        for step in &branch.steps {
            self.step(step, &place, &mut transforms);
        }
        if !transforms.is_empty() {
            made.put("transforms", made::list(transforms, branch.span));
        }
        made.put("to", self.to(branch));
        into.put_at(name, branch.span, made.done());
    }

    fn feed(&self, feed: &Feed, span: Span) -> Option<Node> {
        Some(match feed {
            Feed::Source(source) => made::text(self.sources.get(*source)?, span),
            Feed::Output(branch, output) => {
                made::text(format!("{}.{output}", self.branches.get(branch)?), span)
            }
        })
    }

    fn step(&mut self, step: &Step, place: &str, transforms: &mut Vec<Node>) {
        let at = format!("{place}/transforms/{}", transforms.len());
        match step {
            Step::Text(text) => {
                let has_time = text.parts.iter().any(|part| matches!(part, TextPart::Time(_)));
                for (kind, options) in text.transforms() {
                    if has_time && kind == "encode" {
                        let at = format!("{place}/transforms/{}", transforms.len());
                        self.comments.add(at, "Times are UTC; gollum wrote those of its own time zone.");
                    }
                    transforms.push(made::component(kind, text.span, options));
                }
            }
            Step::Transform(transform) => {
                for note in &transform.notes {
                    self.comments.add(&at, note);
                }
                transforms.push(made::component(transform.kind, transform.span, transform.options.clone()));
            }
        }
    }

    fn to(&self, branch: &Branch) -> Node {
        let span = branch.span;
        let name = |end: &End| match end {
            End::Branch(branch) => self.branches.get(branch).cloned(),
            End::Sink(sink) => self.sinks.get(*sink).cloned().flatten(),
        };
        let names: Vec<Node> = branch.to.iter().filter_map(name).map(|name| made::text(name, span)).collect();
        let mut chosen = Made::new(span);
        match (branch.way, names.as_slice()) {
            (Way::All, [name]) => return name.clone(),
            (Way::All, _) => return made::list(names, span),
            (Way::RoundRobin, _) => chosen.put("round_robin", made::list(names, span)),
            (Way::Random, _) => chosen.put("random", made::list(names, span)),
            (Way::Failover(None), _) => chosen.put("failover", made::list(names, span)),
            (Way::Failover(Some(milliseconds)), _) => {
                let mut options = Made::new(span);
                options.put("to", made::list(names, span)).text("timeout", made::time(milliseconds), span);
                chosen.put("failover", options.done())
            }
        };
        chosen.done()
    }

    /// Adds each remark as a comment at the node that its plugin became, or at the head of the document.
    fn remarks(&mut self, draft: &Draft, remarks: &Diagnostics, plugins: &[Span]) {
        let mut places: BTreeMap<usize, String> = BTreeMap::new();
        // If a plugin became several nodes, a sink takes precedence over a pipeline, and a pipeline over a
        // source.
        for (index, name) in &self.branches {
            if let Some(branch) = &draft.branches[*index] {
                places.insert(branch.span.start, format!("pipelines/{name}"));
            }
        }
        for (name, sink) in self.sinks.iter().zip(&draft.sinks) {
            if let Some(name) = name {
                places.insert(sink.span.start, format!("sinks/{name}"));
            }
        }
        for (name, source) in self.sources.iter().zip(&draft.sources) {
            places.entry(source.span.start).or_insert_with(|| format!("sources/{name}"));
        }
        for remark in remarks.iter() {
            let owner =
                plugins.iter().map(|span| span.start).filter(|start| *start <= remark.span.start).max();
            let place = owner.and_then(|owner| places.get(&owner)).map_or("", String::as_str);
            self.comments.add(place, &remark.message);
        }
    }
}
