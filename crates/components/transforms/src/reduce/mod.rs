//! Merges messages that belong together into one.
//!
//! A group is open from its first message until a condition, a number, a size or a time ends it (`running`).
//! It has the merged values so far (`group`, `merge`), not its messages, so that its memory is that of the
//! result. `crate::open` has the open groups in checkpoints, one entry for each: a group ends by itself, not
//! with others as in a window of `aggregate`.
//!
//! See docs/decisions/117-merged-messages-are-open-groups.md.

mod group;
mod merge;
mod running;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{ByteSize, List, TimeSpan};
use thalweg_engine::{
    Component, Context, Error, FieldMistake, FieldUse, KnownFields, Mistake, Transform, TransformConfig,
};
use thalweg_expression::{Evaluator, Expression};
use thalweg_record::{INTRINSIC, PAYLOAD, is_metadata};

use crate::clock::steady;
use crate::conditions;
use crate::kept::Kept;
use crate::open::{Acks, KeptOpen};
use merge::Strategy;
use running::{NEVER, Reducer};

/// Merges messages that belong together into one: the lines of a stack trace, or the events of a request.
///
/// Messages with the same values of `by` are a group, in the order in which they come. A group ends
///
/// - before a message for which `starts_when` is true: it is the first one of the next group;
/// - with a message for which `ends_when` is true;
/// - with `max_count` messages, or before a message with which it has more than `max_bytes` or 1024 fields;
/// - after `idle_timeout` without a message of it, or at the age of `max_age`;
/// - at the end of the input.
///
/// Then the merged message leaves. Of each field it has one value. By default, numbers are added up, and of
/// other values the first one stays; the payloads are joined with line feeds. `merge` chooses another
/// strategy. A field of `by` has the value of the key. The file and the source (`meta.path`, `meta.source`)
/// are those of the first message, and `meta.time` is when the merged message left. It has no
/// `meta.position`.
///
/// With `--state`, and sources that read their input again, a checkpoint has the open groups: each message is
/// merged once, also after `kill -9`, and a run that is stopped leaves open groups to the next one. With
/// other sources, messages are acknowledged when their merged message is delivered, and a client that waits
/// for its answer waits that long. If the acks that wait use an eighth of `memory`, the oldest groups leave
/// early. A run that is stopped and has no `--state` sends its open groups.
///
/// `errors replay` merges dead letters into groups of their own, and the groups that the state has stay open.
/// Letters are replayed in parts of about a quarter of `memory`, and all groups end with each part, none by
/// `idle_timeout` or `max_age`.
///
/// Messages that cannot be merged leave by `errors`: a value that is not a number where `merge` says `sum`, a
/// condition that cannot be evaluated, a new group if there are `max_groups` or the groups use an eighth of
/// `memory`, and any message if they use a quarter.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reduce {
    /// The fields that together are the key of a group, for example `request_id`, or `meta.path` for the
    /// lines of several files. By default all messages have the same key. NULL is a key like others. Values
    /// are compared as they are written: `1` and `"1"` are the same, `1` and `1.0` are not.
    #[serde(default)]
    by: List<String>,
    /// The condition for the first message of a group, in SQL: `"regexp_like(payload, '^\\d{4}-')"`.
    starts_when: Option<Expression>,
    /// The condition for the last message of a group, in SQL: `"status = 'done'"`.
    ends_when: Option<Expression>,
    /// The time without a message of a group after which it ends. The default is 30 seconds.
    #[serde(default = "half_a_minute")]
    idle_timeout: TimeSpan,
    /// The time after its first message at which a group ends. By default there is none.
    max_age: Option<TimeSpan>,
    /// The number of messages with which a group ends. By default there is none.
    max_count: Option<NonZeroU64>,
    /// The size of a merged message that is not exceeded: the group ends before the message that would, and
    /// at once if there is no room for another one. A single message that is larger is a group of its own.
    /// The default is 1 MiB, and at most 1/32 of `memory`.
    #[serde(default = "a_mebibyte")]
    max_bytes: ByteSize,
    /// How the values of a field become one: `{ message: concat_newline, status: last }`. `payload` is the
    /// payload, for which there are `concat_newline` (the default), `concat`, `first`, `last`, `longest`,
    /// `shortest` and `drop`.
    #[serde(default)]
    merge: BTreeMap<String, Strategy>,
    /// The text between two values of the strategy `concat`. The default is a space.
    separator: Option<String>,
    /// The maximum number of open groups. Messages of further groups leave by `errors`. The default is
    /// 100000.
    #[serde(default = "most_groups")]
    #[schemars(range(min = 1))]
    max_groups: usize,
}

fn half_a_minute() -> TimeSpan {
    TimeSpan::seconds(30)
}

fn a_mebibyte() -> ByteSize {
    ByteSize::mib(1)
}

fn most_groups() -> usize {
    100_000
}

/// The options that determine what a group has.
struct Options {
    by: Vec<String>,
    merge: BTreeMap<String, Strategy>,
    separator: String,
}

impl Options {
    /// Returns the strategy of a field, if it has one.
    fn strategy(&self, name: &str) -> Option<Strategy> {
        match self.by.iter().any(|key| key == name) {
            true => Some(Strategy::First),
            false => self.merge.get(name).copied(),
        }
    }

    /// Returns the strategy of the payload.
    fn payload(&self) -> Strategy {
        self.strategy(PAYLOAD).unwrap_or(Strategy::ConcatNewline)
    }

    fn description(&self) -> String {
        let merge = self.merge.iter().map(|(name, strategy)| format!("{name}: {strategy:?}"));
        let merge = merge.collect::<Vec<_>>().join(", ");
        format!("by: [{}], merge: {{ {merge} }}, separator: {:?}", self.by.join(", "), self.separator)
    }
}

impl Component for Reduce {
    const NAME: &'static str = "reduce";
    const EXAMPLE: &'static str = r#"
sources:
  log: { generate: { lines: ["2026-11-25 08:14:02 ERROR failed", "  at a.Main", "  at b.Main", "2026-11-25 08:14:05 INFO up"] } }
pipelines:
  main:
    from: log
    transforms:
      - reduce: { starts_when: "regexp_like(payload, '^\\d{4}-')", idle_timeout: 1s }
    to: screen
sinks:
  screen: { stdout: { delimiter: "\n---\n" } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        for (option, condition) in [("starts_when", &self.starts_when), ("ends_when", &self.ends_when)] {
            let constant = condition.as_ref().and_then(conditions::constant);
            mistakes.extend(constant.map(|mistake| Mistake { option, ..mistake }));
        }
        let is_zero = |span: TimeSpan| span.duration().is_zero();
        let zeros = [
            ("idle_timeout", is_zero(self.idle_timeout)),
            ("max_age", self.max_age.is_some_and(is_zero)),
            ("max_bytes", self.max_bytes.bytes() == 0),
        ];
        for (option, is_zero) in zeros {
            if is_zero {
                mistakes.push(Mistake::new(option, format!("`{option}` cannot be 0.")));
            }
        }
        for (name, strategy) in &self.merge {
            if is_metadata(name) {
                let mistake = Mistake::new("merge", format!("`{name}` is metadata, and no field to merge."));
                mistakes.push(mistake.help("A merged message has the metadata of its first message."));
            } else if self.by.contains(name) {
                let mistake = Mistake::new(
                    "merge",
                    format!("`{name}` is in `by`: it has the same value in all messages of a group."),
                );
                mistakes.push(mistake.help("Remove it from `merge`, or from `by`."));
            } else if name == PAYLOAD && !strategy.is_of_bytes() {
                let mistake = Mistake::new("merge", "Payloads are bytes, and have no such strategy.");
                let help = "Use `concat_newline`, `concat`, `first`, `last`, `longest`, `shortest` or `drop`, or copy the \
                            payload to a field first: `copy: { from: payload, into: text }`.";
                mistakes.push(mistake.help(help));
            }
        }
        if self.separator.is_some() && !self.merge.values().any(|strategy| *strategy == Strategy::Concat) {
            let message = "`separator` has no effect without the strategy `concat`.";
            mistakes.push(Mistake::new("separator", message));
        }
        mistakes
    }
}

impl Reduce {
    /// The conditions that there are.
    fn conditions(&self) -> impl Iterator<Item = &Expression> {
        self.starts_when.iter().chain(&self.ends_when)
    }

    fn reducer(&self, context: &Context, now: fn() -> i64) -> Result<Reducer, Error> {
        let budget = context.memory.budget();
        let evaluator = |condition: &Option<Expression>| {
            condition.clone().map(|condition| Evaluator::new(condition).within(budget))
        };
        let options = Options {
            by: self.by.to_vec(),
            merge: self.merge.clone(),
            separator: self.separator.clone().unwrap_or_else(|| " ".to_owned()),
        };
        let shown = Arc::new(AtomicU64::new(0));
        let count = shown.clone();
        context.details.show_gauge("groups", "The open groups.", move || count.load(Relaxed));
        // When letters come says nothing of when their messages came.
        let micros = |span: TimeSpan| match context.is_replay {
            true => NEVER,
            false => i64::try_from(span.duration().as_micros()).unwrap_or(NEVER),
        };
        let secret = crate::new_secret()?;
        Ok(Reducer {
            component: context.name.as_str().into(),
            starts_when: evaluator(&self.starts_when),
            ends_when: evaluator(&self.ends_when),
            idle_timeout: micros(self.idle_timeout),
            max_age: self.max_age.map_or(NEVER, micros),
            max_count: self.max_count.map_or(u64::MAX, NonZeroU64::get),
            max_bytes: self.max_bytes.as_usize().min(budget.limit() / 32),
            max_groups: self.max_groups,
            most: budget.limit() / 8,
            groups: BTreeMap::new(),
            places: hashbrown::HashMap::new(),
            due: BTreeSet::new(),
            next: 0,
            shown,
            bytes: 0,
            memory: Kept::new(&context.memory),
            held: 0,
            acks: Acks::new(context, |journal| {
                KeptOpen::new(journal, options.description(), secret, 0, &context.name)
            }),
            secret,
            hashes: Vec::new(),
            options,
            now,
        })
    }
}

impl TransformConfig for Reduce {
    fn names_intrinsic(&self) -> bool {
        let mut names = self.by.iter().chain(self.merge.keys());
        names.any(|name| INTRINSIC.contains(&name.as_str()))
            || self.conditions().any(Expression::names_intrinsic)
    }

    fn fields(&self) -> Vec<String> {
        let needed = self.conditions().flat_map(|condition| condition.needed_columns());
        self.by.iter().chain(self.merge.keys()).chain(needed).cloned().collect()
    }

    fn field_use(&self) -> FieldUse {
        FieldUse::InExpressions
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        let names: Vec<String> = before.names().map(str::to_owned).collect();
        names.iter().fold(before, |known, name| match self.merge.get(name) {
            Some(Strategy::Drop) => known.without(name),
            _ => known.with(name, None),
        })
    }

    fn check_fields(&self, before: &KnownFields) -> Vec<FieldMistake> {
        self.conditions().filter_map(|condition| conditions::unfit(condition, before)).collect()
    }

    fn remarks(&self, before: &KnownFields) -> Vec<FieldMistake> {
        self.conditions().flat_map(|condition| conditions::remarks(condition, before)).collect()
    }

    fn is_sequential(&self) -> bool {
        true
    }

    fn replays_apart(&self) -> bool {
        true
    }

    fn ticks(&self) -> bool {
        true
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Transform>, Error> {
        Ok(Box::new(self.reducer(context, steady)?))
    }
}
