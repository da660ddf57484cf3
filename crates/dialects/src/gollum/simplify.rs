//! Removes the parts of a draft without effect, so that the printed result looks as if written by hand.
//!
//! Three steps repeat until none applies. `absorb` merges a branch into its only target, if nothing else
//! feeds that target. `unite` merges branches that do the same. `pass_through` removes a branch without
//! transforms, if its predecessors can lead to its targets directly.

use std::collections::BTreeSet;

use thalweg_config::{Node, Value};

use super::draft::{Branch, Draft, End, Feed, Step, Way, push};
use super::text::{Text, TextPart};

pub(super) fn simplify(draft: &mut Draft) {
    while absorb(draft) || unite(draft) || pass_through(draft) {}
    line_feeds(draft);
    while absorb(draft) || unite(draft) || pass_through(draft) {}
}

/// Leaves the line feed after each message to the sink. In gollum a formatter appends it to the payload; a
/// sink of thalweg writes one by default, unless its delimiter is set to be empty. Applies to sinks where all
/// arriving messages end with a line feed.
fn line_feeds(draft: &mut Draft) {
    let mut able: BTreeSet<usize> =
        (0..draft.sinks.len()).filter(|&sink| delimiter(&draft.sinks[sink].node) == Some("")).collect();
    // A branch that leads to several sinks can drop its line feed only for all of them, so one unsuitable
    // sink excludes the others.
    loop {
        let before = able.len();
        for branch in draft.branches.iter().flatten() {
            let fits = branch.steps.last().is_some_and(ends_line)
                && branch.to.iter().all(|end| matches!(end, End::Sink(sink) if able.contains(sink)));
            if !fits {
                able.retain(|sink| !branch.to.contains(&End::Sink(*sink)));
            }
        }
        if able.len() == before {
            break;
        }
    }
    for branch in draft.branches.iter_mut().flatten() {
        let Some(End::Sink(sink)) = branch.to.first() else { continue };
        let Some(Step::Text(text)) = branch.steps.last_mut().filter(|_| able.contains(sink)) else {
            continue;
        };
        if let Some(TextPart::Literal(literal)) = text.parts.last_mut() {
            literal.pop();
            if literal.is_empty() {
                text.parts.pop();
            }
        }
        if text.parts == [TextPart::Column("payload".to_owned())] {
            branch.steps.pop();
        }
    }
    for sink in able {
        if let Value::Mapping(kinds) = &mut draft.sinks[sink].node.value
            && let Some((_, options)) = kinds.first_mut()
            && let Value::Mapping(options) = &mut options.value
        {
            options.retain(|(key, _)| key.name != "delimiter");
        }
    }
}

fn delimiter(sink: &Node) -> Option<&str> {
    sink.entries().first()?.1.get("delimiter")?.as_str()
}

fn ends_line(step: &Step) -> bool {
    let Step::Text(Text { parts, into, unless_empty: None, .. }) = step else { return false };
    into == "payload" && matches!(parts.last(), Some(TextPart::Literal(text)) if text.ends_with('\n'))
}

/// Returns the branches that lead to a branch.
fn inflow(draft: &Draft, branch: usize) -> Vec<usize> {
    let branches = draft.branches.iter().enumerate();
    branches
        .filter(|(_, other)| other.as_ref().is_some_and(|other| other.to.contains(&End::Branch(branch))))
        .map(|(index, _)| index)
        .collect()
}

fn living(draft: &Draft) -> Vec<usize> {
    (0..draft.branches.len()).filter(|&index| draft.branches[index].is_some()).collect()
}

/// Replaces every reference to the branch `from` with `to`.
fn redirect(draft: &mut Draft, from: usize, to: usize) {
    if draft.traces == Some(from) {
        draft.traces = Some(to);
    }
    for branch in draft.branches.iter_mut().flatten() {
        for end in &mut branch.to {
            if *end == End::Branch(from) {
                *end = End::Branch(to);
            }
        }
        for feed in &mut branch.from {
            if let Feed::Output(branch, _) = feed
                && *branch == from
            {
                *branch = to;
            }
        }
    }
}

fn outputs(branch: &Branch) -> Vec<&str> {
    branch.steps.iter().flat_map(|step| step.outputs()).map(String::as_str).collect()
}

/// Merges a branch into its only target, if nothing else feeds that target.
fn absorb(draft: &mut Draft) -> bool {
    for first in living(draft) {
        let Some(branch) = &draft.branches[first] else { continue };
        let (Way::All, [End::Branch(second)]) = (branch.way, branch.to.as_slice()) else { continue };
        let second = *second;
        let Some(next) = draft.branches[second].as_ref().filter(|_| second != first) else { continue };
        let taken = outputs(branch);
        let clashes = outputs(next).iter().any(|output| taken.contains(output));
        let disagree = next.concurrency.is_some() && branch.concurrency.is_some();
        let is_circle =
            next.from.iter().any(|feed| matches!(feed, Feed::Output(branch, _) if *branch == first));
        let alone = inflow(draft, second) == [first] && next.from.is_empty();
        // A branch without transforms can also join other inputs of the same target.
        let joins = branch.steps.is_empty()
            && branch.concurrency.is_none()
            && branch.notes.is_empty()
            && inflow(draft, first).is_empty();
        // The errors of a branch that makes files are none that the branch of traces can take.
        let keeps_traces = draft.traces.is_some() && next.steps.iter().any(Step::makes_files);
        // A message that comes to the target by both is there twice.
        let is_twice = branch.from.iter().any(|feed| next.from.contains(feed));
        if clashes || disagree || is_circle || keeps_traces || is_twice || !(alone || joins) {
            continue;
        }
        let Some(mut first_branch) = draft.branches[first].take() else { continue };
        let Some(next) = draft.branches[second].as_mut() else { continue };
        if first_branch.rank > next.rank {
            next.name = first_branch.name;
            next.rank = first_branch.rank;
        }
        let mut steps = std::mem::take(&mut first_branch.steps);
        for step in std::mem::take(&mut next.steps) {
            push(&mut steps, step);
        }
        next.steps = steps;
        next.concurrency = next.concurrency.or(first_branch.concurrency);
        first_branch.notes.append(&mut next.notes);
        next.notes = first_branch.notes;
        for feed in first_branch.from {
            if !next.from.contains(&feed) {
                next.from.push(feed);
            }
        }
        next.from.sort_by_key(|feed| match feed {
            Feed::Source(source) => (0, *source),
            Feed::Output(branch, _) => (1, *branch),
        });
        redirect(draft, first, second);
        return true;
    }
    false
}

/// Removes a branch without transforms that is fed by branches only. Its predecessors then lead to its
/// targets.
fn pass_through(draft: &mut Draft) -> bool {
    for index in living(draft) {
        let Some(branch) = &draft.branches[index] else { continue };
        let before = inflow(draft, index);
        let to = branch.to.clone();
        let is_plain = branch.steps.is_empty()
            && branch.from.is_empty()
            && branch.way == Way::All
            && branch.notes.is_empty()
            && branch.concurrency.is_none();
        let fits = |other: &usize| {
            draft.branches[*other].as_ref().is_some_and(|other| {
                (other.way == Way::All || to.len() == 1) && !other.to.iter().any(|end| to.contains(end))
            })
        };
        if !is_plain || before.is_empty() || before.len() > 1 && to.len() > 1 || !before.iter().all(fits) {
            continue;
        }
        for other in before {
            if let Some(other) = draft.branches[other].as_mut() {
                let at = other.to.iter().position(|end| *end == End::Branch(index)).unwrap_or(0);
                other.to.splice(at..=at, to.iter().copied());
            }
        }
        draft.branches[index] = None;
        return true;
    }
    false
}

/// Merges branches that do the same with their messages.
fn unite(draft: &mut Draft) -> bool {
    let branches = living(draft);
    for (at, &first) in branches.iter().enumerate() {
        for &second in &branches[at + 1..] {
            let (Some(one), Some(other)) = (&draft.branches[first], &draft.branches[second]) else {
                continue;
            };
            let alike =
                one.way == Way::All
                    && other.way == Way::All
                    && one.to == other.to
                    && one.concurrency.map(|(count, _)| count) == other.concurrency.map(|(count, _)| count)
                    && one.notes == other.notes
                    && one.steps.len() == other.steps.len()
                    && one.steps.iter().zip(&other.steps).all(|(one, other)| {
                        one.is_like(other) && !one.is_stateful() && one.outputs().is_empty()
                    });
            let fed_by_sources =
                |branch: &Branch| branch.from.iter().all(|feed| matches!(feed, Feed::Source(_)));
            let shared = one.from.iter().any(|feed| other.from.contains(feed));
            // A branch that other branches lead to keeps its own name, so it is not merged.
            let leads = !inflow(draft, first).is_empty() || !inflow(draft, second).is_empty();
            if !alike || shared || leads || !fed_by_sources(one) || !fed_by_sources(other) {
                continue;
            }
            let Some(other) = draft.branches[second].take() else { continue };
            if let Some(one) = draft.branches[first].as_mut() {
                one.from.extend(other.from);
                if other.rank > one.rank {
                    one.name = other.name;
                    one.rank = other.rank;
                }
            }
            redirect(draft, second, first);
            return true;
        }
    }
    false
}
