//! The components of a configuration, and the edges between them.
//!
//! See docs/decisions/014-a-rejected-file-may-continue.md.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{ByteSize, TimeSpan};

use crate::component::{Flow, SinkConfig, SourceConfig, Step};
use crate::schedule::Schedule;
use crate::settings::{BufferLimits, BufferSettings, DeadLetterLimits, OnError, UnknownFields};

/// A checked configuration. Its `Display` shows the edges.
#[derive(Clone)]
pub struct Graph {
    /// The memory budget of the whole process.
    pub memory: ByteSize,
    /// The state directory, if there is one.
    pub state: Option<PathBuf>,
    /// The limits of the dead letters.
    pub dead_letters: DeadLetterLimits,
    /// The limit of all disk buffers together.
    pub buffers: BufferLimits,
    /// The directory of the run's temporary files. Without it, the system's temporary directory.
    pub temporary: Option<PathBuf>,
    /// The treatment of fields that no message can have.
    pub unknown_fields: UnknownFields,
    /// When `run` runs it. Without one, once.
    pub schedule: Option<Schedule>,
    /// Sources by name, in the order of the configuration.
    pub sources: Vec<SourceNode>,
    /// Pipelines by name, in the order of the configuration.
    pub pipelines: Vec<Pipeline>,
    /// Sinks by name, in the order of the configuration.
    pub sinks: Vec<SinkNode>,
}

/// A source of the graph.
#[derive(Clone)]
pub struct SourceNode {
    /// Its name.
    pub name: Arc<str>,
    /// Its key in configurations.
    pub kind: &'static str,
    /// Its options.
    pub config: Arc<dyn SourceConfig>,
}

/// A transform of a pipeline.
#[derive(Clone)]
pub struct TransformNode {
    /// `pipeline.kind`, with a number if the kind is repeated: `main.filter`, `main.filter-2`.
    pub name: Arc<str>,
    /// Its key in configurations.
    pub kind: &'static str,
    /// Its options.
    pub config: Step,
    /// The files that it applies to.
    pub targets: Targets,
    /// The transforms before it in its pipeline. A message that it rejects has passed these.
    pub before: Passed,
}

/// The names of the transforms before one in its pipeline. All transforms of a pipeline share one list.
#[derive(Debug, Clone, Default)]
pub struct Passed {
    all: Arc<[Arc<str>]>,
    count: usize,
}

impl Passed {
    /// Returns the names, in order.
    pub fn names(&self) -> &[Arc<str>] {
        self.all.get(..self.count).unwrap_or_default()
    }

    /// All transforms of a pipeline.
    pub(crate) fn of(transforms: &[TransformNode]) -> Self {
        Self {
            all: transforms.iter().map(|transform| transform.name.clone()).collect(),
            count: transforms.len(),
        }
    }

    /// Notes for each transform of a pipeline those before it.
    pub(crate) fn note(transforms: &mut [TransformNode]) {
        let Passed { all, .. } = Self::of(transforms);
        for (count, transform) in transforms.iter_mut().enumerate() {
            transform.before = Passed { all: all.clone(), count };
        }
    }
}

/// The files that a transform applies to. Other files skip it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Targets {
    /// Files without a problem.
    #[default]
    WithoutErrors,
    /// Files that were rejected earlier, in a pipeline with `on_error: carry`.
    WithErrors,
    /// All files.
    All,
}

/// A sink of the graph.
#[derive(Clone)]
pub struct SinkNode {
    /// Its name.
    pub name: Arc<str>,
    /// Its key in configurations.
    pub kind: &'static str,
    /// Its options.
    pub config: Arc<dyn SinkConfig>,
    /// The buffer before it, if it has one.
    pub buffer: Option<BufferSettings>,
}

/// An output that feeds a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Feed {
    /// The main output of a source.
    Source(Arc<str>),
    /// The main output of a pipeline.
    Pipeline(Arc<str>),
    /// The output of a pipeline whose `to` names the fed pipeline.
    Chosen(Arc<str>),
    /// A named output of a pipeline, such as a label of `route`.
    Named(Arc<str>, String),
    /// The `errors` output of a source, a pipeline or a sink.
    Errors(Arc<str>),
}

impl Feed {
    /// Returns the name of the pipeline that the output belongs to. For `errors`, it may be the name of a
    /// source or sink instead.
    pub fn pipeline(&self) -> Option<&Arc<str>> {
        match self {
            Feed::Source(_) => None,
            Feed::Pipeline(name) | Feed::Chosen(name) | Feed::Named(name, _) | Feed::Errors(name) => {
                Some(name)
            }
        }
    }
}

impl fmt::Display for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Feed::Source(name) | Feed::Pipeline(name) | Feed::Chosen(name) => f.write_str(name),
            Feed::Named(name, output) => write!(f, "{name}.{output}"),
            Feed::Errors(name) => write!(f, "{name}.errors"),
        }
    }
}

/// The targets of a pipeline: names of sinks and of other pipelines.
#[derive(Debug, Clone, PartialEq)]
pub enum To {
    /// Each target gets a copy. Empty if only the `from` of other pipelines names this one.
    All(Vec<Arc<str>>),
    /// Each message goes to the next target in turn.
    RoundRobin(Vec<Arc<str>>),
    /// Each message goes to one target at random.
    Random(Vec<Arc<str>>),
    /// Messages with equal values of this column go to the same target.
    ByKey(String, Vec<Arc<str>>),
    /// Batches go to the first target. A batch that it fails to deliver, or has no capacity for within the
    /// timeout, goes to the next target.
    Failover(Vec<Arc<str>>, Option<Duration>),
}

impl To {
    /// Returns the names of the sinks and pipelines, in order.
    pub fn names(&self) -> &[Arc<str>] {
        match self {
            To::All(names)
            | To::RoundRobin(names)
            | To::Random(names)
            | To::ByKey(_, names)
            | To::Failover(names, _) => names,
        }
    }

    /// Returns the names of the sinks and pipelines, to change them.
    pub(crate) fn names_mut(&mut self) -> &mut [Arc<str>] {
        match self {
            To::All(names)
            | To::RoundRobin(names)
            | To::Random(names)
            | To::ByKey(_, names)
            | To::Failover(names, _) => names,
        }
    }
}

impl fmt::Display for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.names().join(", ");
        match self {
            To::All(_) => f.write_str(&names),
            To::RoundRobin(_) => write!(f, "round_robin({names})"),
            To::Random(_) => write!(f, "random({names})"),
            To::ByKey(key, _) => write!(f, "by_key({key}: {names})"),
            To::Failover(_, None) => write!(f, "failover({names})"),
            To::Failover(_, Some(timeout)) => write!(f, "failover({names} after {})", TimeSpan(*timeout)),
        }
    }
}

/// A pipeline: its feeds, transforms and targets.
#[derive(Clone)]
pub struct Pipeline {
    /// Its name.
    pub name: Arc<str>,
    /// The outputs that feed it.
    pub from: Vec<Feed>,
    /// Its transforms, in order.
    pub transforms: Vec<TransformNode>,
    /// Its targets.
    pub to: To,
    /// True if the order within a source is kept. None if the user does not say: see
    /// [`is_ordered`](Self::is_ordered).
    pub ordered: Option<bool>,
    /// The treatment of files that its transforms reject.
    pub on_error: OnError,
    /// The number of workers, if the user sets it.
    pub concurrency: Option<usize>,
    /// The buffer before it, if it has one.
    pub buffer: Option<BufferSettings>,
}

impl Pipeline {
    /// A pipeline without transforms, of the name of its source.
    pub(crate) fn straight(source: Arc<str>, to: To) -> Self {
        Self {
            name: source.clone(),
            from: vec![Feed::Source(source)],
            transforms: Vec::new(),
            to,
            ordered: None,
            on_error: OnError::default(),
            concurrency: None,
            buffer: None,
        }
    }

    /// True if the results of parallel workers are put back into order. By default messages are and files are
    /// not, since one slow file would hold the others back.
    pub fn is_ordered(&self, flow: Flow) -> bool {
        self.ordered.unwrap_or(flow == Flow::Messages)
    }

    /// Returns the named outputs of its transforms: the number of the transform, the number of the output
    /// there, and its label.
    pub fn outputs(&self) -> impl Iterator<Item = (usize, usize, String)> + '_ {
        self.transforms.iter().enumerate().flat_map(|(at, transform)| {
            let outputs = transform.config.outputs().into_iter().enumerate();
            outputs.map(move |(number, label)| (at, number, label))
        })
    }
}

impl Graph {
    /// The pipeline of this name.
    pub fn pipeline(&self, name: &str) -> Option<&Pipeline> {
        self.pipelines.iter().find(|pipeline| &*pipeline.name == name)
    }

    /// Returns the numbers of the pipelines that a feed leads to.
    pub fn fed_by(&self, feed: &Feed) -> Vec<usize> {
        let pipelines = self.pipelines.iter().enumerate();
        pipelines.filter(|(_, pipeline)| pipeline.from.contains(feed)).map(|(at, _)| at).collect()
    }

    /// Removes the buffers: messages go straight to the sinks and pipelines behind them. For runs that have
    /// no effects, or that must not wait behind what is in a buffer.
    pub fn remove_buffers(&mut self) {
        self.sinks.iter_mut().for_each(|sink| sink.buffer = None);
        self.pipelines.iter_mut().for_each(|pipeline| pipeline.buffer = None);
    }

    /// Keeps only these pipelines, the pipelines that feed them, and the targets of all of those.
    pub fn restrict(&mut self, names: &[String]) {
        let mut wanted: Vec<Arc<str>> = Vec::new();
        let mut open: Vec<Arc<str>> = names.iter().map(|name| Arc::from(name.as_str())).collect();
        while let Some(name) = open.pop() {
            let Some(pipeline) = self.pipeline(&name).filter(|_| !wanted.contains(&name)) else { continue };
            open.extend(pipeline.from.iter().filter_map(Feed::pipeline).cloned());
            wanted.push(name);
        }
        // Other feeds of the target pipelines are not kept.
        let mut at = 0;
        while let Some(pipeline) = wanted.get(at).and_then(|name| self.pipeline(name)) {
            let led = pipeline.to.names().iter().filter(|name| self.pipeline(name).is_some());
            let led: Vec<_> = led.filter(|name| !wanted.contains(name)).cloned().collect();
            wanted.extend(led);
            at += 1;
        }
        let (kept, gone): (Vec<_>, Vec<_>) = std::mem::take(&mut self.pipelines)
            .into_iter()
            .partition(|pipeline| wanted.contains(&pipeline.name));
        self.pipelines = kept;
        let is_gone = |name: &Arc<str>| gone.iter().any(|pipeline| pipeline.name == *name);
        for pipeline in &mut self.pipelines {
            pipeline.from.retain(|feed| !feed.pipeline().is_some_and(is_gone));
        }
        let feeds: Vec<Arc<str>> = self
            .pipelines
            .iter()
            .flat_map(|pipeline| &pipeline.from)
            .filter_map(|feed| match feed {
                Feed::Source(name) | Feed::Errors(name) => Some(name.clone()),
                _ => None,
            })
            .collect();
        self.sources.retain(|source| feeds.contains(&source.name));
        let led: Vec<Arc<str>> =
            self.pipelines.iter().flat_map(|pipeline| pipeline.to.names().to_vec()).collect();
        self.sinks.retain(|sink| led.contains(&sink.name));
    }
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines: Vec<(String, String)> = Vec::new();
        let fed = |feed: &Feed| {
            let names: Vec<&str> = self.fed_by(feed).iter().map(|&at| &*self.pipelines[at].name).collect();
            if names.is_empty() { "dead letters".to_owned() } else { names.join(", ") }
        };
        for source in &self.sources {
            let to = fed(&Feed::Source(source.name.clone()));
            lines.push((source.name.to_string(), format!("{} → {to}", source.kind)));
        }
        for pipeline in &self.pipelines {
            let mut steps: Vec<String> =
                pipeline.transforms.iter().map(|transform| transform.kind.to_owned()).collect();
            let mut to = Vec::new();
            if !pipeline.to.names().is_empty() {
                to.push(pipeline.to.to_string());
            }
            let onward = Feed::Pipeline(pipeline.name.clone());
            if !self.fed_by(&onward).is_empty() {
                to.push(fed(&onward));
            }
            let arrow = if steps.is_empty() { "→ " } else { "" };
            steps.push(to.join(" and "));
            let steps = format!("{arrow}{}{}", steps.join(" → "), behind(pipeline.buffer));
            lines.push((pipeline.name.to_string(), steps));
            for (_, _, label) in pipeline.outputs() {
                let to = fed(&Feed::Named(pipeline.name.clone(), label.clone()));
                lines.push((format!("{}.{label}", pipeline.name), format!("→ {to}")));
            }
            if !pipeline.transforms.is_empty() {
                let errors = Feed::Errors(pipeline.name.clone());
                lines.push((errors.to_string(), format!("→ {}", fed(&errors))));
            }
        }
        for sink in &self.sinks {
            lines.push((sink.name.to_string(), format!("{}{}", sink.kind, behind(sink.buffer))));
        }
        let width = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        lines.iter().try_for_each(|(name, what)| writeln!(f, "  {name:width$}  {what}"))
    }
}

/// Says that there is a buffer, if there is one.
fn behind(buffer: Option<BufferSettings>) -> String {
    match buffer {
        Some(BufferSettings { disk: Some(disk), .. }) => format!(", behind a buffer of {disk} on disk"),
        Some(BufferSettings { memory: Some(memory), .. }) => {
            format!(", behind a buffer of {memory} in memory")
        }
        Some(_) | None => String::new(),
    }
}

/// Numbers repeated names: `filter`, `filter-2`.
pub(crate) fn numbered(kind: &str, seen: &mut BTreeMap<String, usize>) -> String {
    let count = seen.entry(kind.to_owned()).or_default();
    *count += 1;
    if *count == 1 { kind.to_owned() } else { format!("{kind}-{count}") }
}
