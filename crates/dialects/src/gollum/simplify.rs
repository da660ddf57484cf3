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
        for lane in draft.lanes.iter().flatten() {
            let fits = lane.steps.last().is_some_and(ends_line)
                && lane.to.iter().all(|end| matches!(end, End::Sink(sink) if able.contains(sink)));
            if !fits {
                able.retain(|sink| !lane.to.contains(&End::Sink(*sink)));
            }
        }
        if able.len() == before {
            break;
        }
    }
    for lane in draft.lanes.iter_mut().flatten() {
        let Some(End::Sink(sink)) = lane.to.first() else { continue };
        let Some(Step::Text(text)) = lane.steps.last_mut().filter(|_| able.contains(sink)) else { continue };
        if let Some(TextPart::Literal(literal)) = text.parts.last_mut() {
            literal.pop();
            if literal.is_empty() {
                text.parts.pop();
            }
        }
        if text.parts == [TextPart::Column("payload".to_owned())] {
            lane.steps.pop();
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
fn inflow(draft: &Draft, lane: usize) -> Vec<usize> {
    let lanes = draft.lanes.iter().enumerate();
    lanes
        .filter(|(_, other)| other.as_ref().is_some_and(|other| other.to.contains(&End::Branch(lane))))
        .map(|(index, _)| index)
        .collect()
}

fn living(draft: &Draft) -> Vec<usize> {
    (0..draft.lanes.len()).filter(|&index| draft.lanes[index].is_some()).collect()
}

/// Replaces every reference to the branch `from` with `to`.
fn redirect(draft: &mut Draft, from: usize, to: usize) {
    for lane in draft.lanes.iter_mut().flatten() {
        for end in &mut lane.to {
            if *end == End::Branch(from) {
                *end = End::Branch(to);
            }
        }
        for feed in &mut lane.from {
            if let Feed::Output(lane, _) = feed
                && *lane == from
            {
                *lane = to;
            }
        }
    }
}

fn outputs(lane: &Branch) -> Vec<&str> {
    lane.steps.iter().flat_map(|step| step.outputs()).map(String::as_str).collect()
}

/// Merges a branch into its only target, if nothing else feeds that target.
fn absorb(draft: &mut Draft) -> bool {
    for first in living(draft) {
        let Some(lane) = &draft.lanes[first] else { continue };
        let (Way::All, [End::Branch(second)]) = (lane.way, lane.to.as_slice()) else { continue };
        let second = *second;
        let Some(next) = draft.lanes[second].as_ref().filter(|_| second != first) else { continue };
        let taken = outputs(lane);
        let clashes = outputs(next).iter().any(|output| taken.contains(output));
        let disagree = next.concurrency.is_some() && lane.concurrency.is_some();
        let is_circle = next.from.iter().any(|feed| matches!(feed, Feed::Output(lane, _) if *lane == first));
        let alone = inflow(draft, second) == [first] && next.from.is_empty();
        // A branch without transforms can also join other inputs of the same target.
        let joins = lane.steps.is_empty()
            && lane.concurrency.is_none()
            && lane.notes.is_empty()
            && inflow(draft, first).is_empty();
        if clashes || disagree || is_circle || !(alone || joins) {
            continue;
        }
        let Some(mut first_lane) = draft.lanes[first].take() else { continue };
        let Some(next) = draft.lanes[second].as_mut() else { continue };
        if first_lane.rank > next.rank {
            next.name = first_lane.name;
            next.rank = first_lane.rank;
        }
        let mut steps = std::mem::take(&mut first_lane.steps);
        for step in std::mem::take(&mut next.steps) {
            push(&mut steps, step);
        }
        next.steps = steps;
        next.concurrency = next.concurrency.or(first_lane.concurrency);
        first_lane.notes.append(&mut next.notes);
        next.notes = first_lane.notes;
        for feed in first_lane.from {
            if !next.from.contains(&feed) {
                next.from.push(feed);
            }
        }
        next.from.sort_by_key(|feed| match feed {
            Feed::Source(source) => (0, *source),
            Feed::Output(lane, _) => (1, *lane),
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
        let Some(lane) = &draft.lanes[index] else { continue };
        let before = inflow(draft, index);
        let to = lane.to.clone();
        let is_plain = lane.steps.is_empty()
            && lane.from.is_empty()
            && lane.way == Way::All
            && lane.notes.is_empty()
            && lane.concurrency.is_none();
        let fits = |other: &usize| {
            draft.lanes[*other].as_ref().is_some_and(|other| {
                (other.way == Way::All || to.len() == 1) && !other.to.iter().any(|end| to.contains(end))
            })
        };
        if !is_plain || before.is_empty() || before.len() > 1 && to.len() > 1 || !before.iter().all(fits) {
            continue;
        }
        for other in before {
            if let Some(other) = draft.lanes[other].as_mut() {
                let at = other.to.iter().position(|end| *end == End::Branch(index)).unwrap_or(0);
                other.to.splice(at..=at, to.iter().copied());
            }
        }
        draft.lanes[index] = None;
        return true;
    }
    false
}

/// Merges branches that do the same with their messages.
fn unite(draft: &mut Draft) -> bool {
    let lanes = living(draft);
    for (at, &first) in lanes.iter().enumerate() {
        for &second in &lanes[at + 1..] {
            let (Some(one), Some(other)) = (&draft.lanes[first], &draft.lanes[second]) else { continue };
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
            let fed_by_sources = |lane: &Branch| lane.from.iter().all(|feed| matches!(feed, Feed::Source(_)));
            let shared = one.from.iter().any(|feed| other.from.contains(feed));
            // A branch that other branches lead to keeps its own name, so it is not merged.
            let leads = !inflow(draft, first).is_empty() || !inflow(draft, second).is_empty();
            if !alike || shared || leads || !fed_by_sources(one) || !fed_by_sources(other) {
                continue;
            }
            let Some(other) = draft.lanes[second].take() else { continue };
            if let Some(one) = draft.lanes[first].as_mut() {
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
