//! The difference between two versions of a configuration, and whether a run can follow it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thalweg_config::counted;

use super::division::{Components, Part, Version};

/// The components of a changed configuration: sources, pipelines and sinks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Those that run on untouched.
    pub kept: Vec<String>,
    /// Those that only the new configuration has.
    pub added: Vec<String>,
    /// Those that only the old configuration has.
    pub removed: Vec<String>,
    /// Those with other options.
    pub changed: Vec<String>,
    /// Those that are the same, and are connected with a component that is not: they end and begin again.
    pub restarted: Vec<String>,
}

impl Difference {
    /// True if everything is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        [&self.added, &self.removed, &self.changed, &self.restarted].iter().all(|names| names.is_empty())
    }
}

impl Difference {
    /// Notes the components of a part that is not kept. Returns how it begins.
    fn note(&mut self, part: &Part, before: &Components<'_>) -> Begin {
        let mut begin = Begin::New;
        for (key, node) in part.components() {
            let names = match before.get(key) {
                None => &mut self.added,
                Some((former, _)) if former.reads_as(node) => &mut self.restarted,
                Some(_) => &mut self.changed,
            };
            names.push(key.1.to_string());
            if before.contains_key(key) {
                begin = Begin::Continues;
            }
        }
        begin
    }
}

/// As many names are shown of each kind.
const NAMED: usize = 8;

/// One line: `1 added (b); 1 changed (main); 2 restarted (a, out); 3 kept`.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing has changed");
        }
        let kinds = [
            ("added", &self.added),
            ("removed", &self.removed),
            ("changed", &self.changed),
            ("restarted", &self.restarted),
        ];
        for (kind, names) in kinds.iter().filter(|(_, names)| !names.is_empty()) {
            let shown = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = if names.len() > NAMED { ", …" } else { "" };
            write!(f, "{} {kind} ({shown}{more}); ", names.len())?;
        }
        write!(f, "{} kept", self.kept.len())
    }
}

/// Why a running configuration is not replaced. It runs on as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// These settings belong to the whole process.
    #[error("{} changed: restart thalweg for {}", quoted(.0), these(.0))]
    Settings(Vec<String>),
    /// This source would read its input from the beginning.
    #[error(
        "`{0}` would read its input again from the beginning, because the run keeps no positions: add `state: FOLDER` \
         to the configuration, or run with `--state FOLDER`, and restart"
    )]
    WithoutState(String),
    /// This source reads the standard input of the process.
    #[error(
        "`{0}` reads the standard input, of which a message or compressed data may be half read: restart thalweg for \
         this change"
    )]
    StandardInput(String),
    /// The run stops, or has ended.
    #[error("the run is ending")]
    Ending,
    /// The new configuration cannot run.
    #[error("{0}")]
    Unusable(String),
    /// A part of the new configuration could not start.
    #[error("the new configuration could not start, and the old one runs again: {0}")]
    NotStarted(String),
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn these(names: &[String]) -> String {
    match names.len() {
        1 => "this setting".to_owned(),
        count => counted(count as u64, "such setting"),
    }
}

/// How a part begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begin {
    /// As in a new run: without state, sinks replace what earlier runs wrote.
    New,
    /// Its sinks append to what a part before it wrote.
    Continues,
}

/// The way from one version to the next.
pub(super) struct Change {
    pub(super) difference: Difference,
    /// The parts that end.
    pub(super) leaving: Vec<Arc<Part>>,
    /// The parts that begin.
    pub(super) joining: Vec<(Arc<Part>, Begin)>,
    /// The names of the components that are not in the next version.
    pub(super) removed: BTreeSet<Arc<str>>,
    /// The next version. Its kept parts are those of the last one.
    pub(super) next: Version,
}

impl Change {
    /// Compares two versions.
    ///
    /// # Errors
    /// If the run cannot follow.
    pub(super) fn between(last: &Version, mut next: Version, keeps_positions: bool) -> Result<Self, Refused> {
        let settings = last.other_settings(&next);
        if !settings.is_empty() {
            return Err(Refused::Settings(settings));
        }
        let before = last.components();
        let mut difference = Difference::default();
        let mut joining = Vec::new();
        let mut kept: Vec<Arc<Part>> = Vec::new();
        for part in &mut next.parts {
            let same = part.components().next().and_then(|(key, _)| before.get(key));
            if let Some((_, same)) = same.filter(|(_, same)| same.has_same_content(part)) {
                difference.kept.extend(part.components().map(|(key, _)| key.1.to_string()));
                *part = (*same).clone();
                kept.push(part.clone());
                continue;
            }
            let begin = difference.note(part, &before);
            joining.push((part.clone(), begin));
        }
        let leaving: Vec<Arc<Part>> = last
            .parts
            .iter()
            .filter(|part| !kept.iter().any(|kept| Arc::ptr_eq(kept, part)))
            .cloned()
            .collect();
        check_standard_input(&leaving, &joining)?;
        let after = next.components();
        let gone = before.keys().filter(|key| !after.contains_key(*key));
        let removed: BTreeSet<Arc<str>> = gone.map(|key| key.1.clone()).collect();
        drop(after);
        difference.removed = removed.iter().map(ToString::to_string).collect();
        if !keeps_positions {
            check_sources(&before.keys().map(|key| &*key.1).collect(), &joining)?;
        }
        Ok(Self { difference, leaving, joining, removed, next })
    }
}

/// Refuses to end a source of the standard input and to begin another one: only the former knows what it has
/// read of a message.
fn check_standard_input(leaving: &[Arc<Part>], joining: &[(Arc<Part>, Begin)]) -> Result<(), Refused> {
    let mut ending = leaving.iter().flat_map(|part| part.sources_of_standard_input());
    let mut beginning = joining.iter().flat_map(|(part, _)| part.sources_of_standard_input());
    match (ending.next(), beginning.next()) {
        (Some(_), Some(source)) => Err(Refused::StandardInput(source.to_string())),
        _ => Ok(()),
    }
}

/// Refuses to end and begin again a source that would then read from the beginning.
fn check_sources(before: &BTreeSet<&str>, joining: &[(Arc<Part>, Begin)]) -> Result<(), Refused> {
    let sources = joining.iter().flat_map(|(part, _)| &part.graph.sources);
    let mut again = sources.filter(|source| before.contains(&*source.name) && source.config.starts_over());
    match again.next() {
        Some(source) => Err(Refused::WithoutState(source.name.to_string())),
        None => Ok(()),
    }
}
