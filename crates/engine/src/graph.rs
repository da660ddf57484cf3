//! Which components there are, and which feeds which.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{ByteSize, TimeSpan};

use crate::component::{Flow, SinkConfig, SourceConfig, Step};
use crate::read::DeadLetterLimits;

/// A checked configuration. Printed, it shows what leads where.
#[derive(Clone)]
pub struct Graph {
    /// Bytes for data in flight, for the whole process.
    pub memory: ByteSize,
    /// Where positions are kept, if they are.
    pub state: Option<PathBuf>,
    /// How many dead letters are kept.
    pub dead_letters: DeadLetterLimits,
    /// Where the run makes its temporary files: the system's folder for these, if none is named.
    pub temporary: Option<PathBuf>,
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
    /// `pipeline.kind`, with a number where a kind comes again: `main.filter`, `main.filter-2`.
    pub name: Arc<str>,
    /// Its key in configurations.
    pub kind: &'static str,
    /// Its options.
    pub config: Step,
    /// Which files it is for.
    pub targets: Targets,
    /// The names of those before it in its pipeline: what a message that it rejects has been through there.
    pub before: Arc<[Arc<str>]>,
}

/// Which files a transform is for. The others go past it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Targets {
    /// Those that nothing has gone wrong with.
    #[default]
    WithoutErrors,
    /// Those that were rejected before, in a pipeline with `on_error: carry`.
    WithErrors,
    /// All.
    All,
}

/// What becomes of a file that a transform rejects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// It leaves by `errors` there and then.
    #[default]
    Divert,
    /// It goes on, past the transforms that are not `for` such files, and leaves by `errors` at the end of the pipeline.
    Carry,
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
}

/// What feeds a pipeline: an output of something.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feed {
    /// What a source reads.
    Source(Arc<str>),
    /// What comes out at the end of a pipeline.
    Pipeline(Arc<str>),
    /// What a pipeline's `to` gives to the pipeline that it is the feed of.
    Chosen(Arc<str>),
    /// A named output of a pipeline, such as a label of `route`.
    Named(Arc<str>, String),
    /// What a source, a pipeline's transforms or a sink could not process.
    Errors(Arc<str>),
}

impl Feed {
    /// The pipeline that it comes from; of errors, it may be a source or a sink instead.
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

/// Where a pipeline leads: names of sinks and of other pipelines.
#[derive(Debug, Clone, PartialEq)]
pub enum To {
    /// To each of these, a copy each; to none if other pipelines take it.
    All(Vec<Arc<str>>),
    /// Each message to the next of them in turn.
    RoundRobin(Vec<Arc<str>>),
    /// Each message to one of them at random.
    Random(Vec<Arc<str>>),
    /// Messages of equal key to the same of them.
    ByKey(String, Vec<Arc<str>>),
    /// To the first; what that fails to deliver, or has no room for within a time, to the next.
    Failover(Vec<Arc<str>>, Option<Duration>),
}

impl To {
    /// The sinks and pipelines, in order.
    pub fn names(&self) -> &[Arc<str>] {
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

/// A pipeline: what feeds it, what it does, where it leads.
#[derive(Clone)]
pub struct Pipeline {
    /// Its name.
    pub name: Arc<str>,
    /// What feeds it.
    pub from: Vec<Feed>,
    /// What it does, in order.
    pub transforms: Vec<TransformNode>,
    /// Where it leads.
    pub to: To,
    /// Whether the order within a source is kept, where the user says so: see [`is_ordered`](Self::is_ordered).
    pub ordered: Option<bool>,
    /// What becomes of files that its transforms reject.
    pub on_error: OnError,
    /// How many copies to run, where the user says so.
    pub concurrency: Option<usize>,
}

impl Pipeline {
    /// Whether what comes as this is put back into its order: messages are, unless the user says otherwise. Files are
    /// not, since one that takes long would hold the others back.
    pub fn is_ordered(&self, flow: Flow) -> bool {
        self.ordered.unwrap_or(flow == Flow::Messages)
    }

    /// The named outputs of its transforms, with the transform and its number there.
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

    /// The pipelines that a feed leads to.
    pub fn fed_by(&self, feed: &Feed) -> Vec<usize> {
        let pipelines = self.pipelines.iter().enumerate();
        pipelines.filter(|(_, pipeline)| pipeline.from.contains(feed)).map(|(at, _)| at).collect()
    }

    /// Keeps only these pipelines, what feeds them, and where all of those lead.
    pub fn restrict(&mut self, names: &[String]) {
        let mut wanted: Vec<Arc<str>> = Vec::new();
        let mut open: Vec<Arc<str>> = names.iter().map(|name| Arc::from(name.as_str())).collect();
        while let Some(name) = open.pop() {
            let Some(pipeline) = self.pipeline(&name).filter(|_| !wanted.contains(&name)) else { continue };
            open.extend(pipeline.from.iter().filter_map(Feed::pipeline).cloned());
            wanted.push(name);
        }
        // What else feeds the pipelines that they lead to is not wanted.
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
            lines.push((pipeline.name.to_string(), format!("{arrow}{}", steps.join(" → "))));
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
            lines.push((sink.name.to_string(), sink.kind.to_owned()));
        }
        let width = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        lines.iter().try_for_each(|(name, what)| writeln!(f, "  {name:width$}  {what}"))
    }
}

/// Numbers names that come again: `filter`, `filter-2`.
pub(crate) fn numbered(kind: &str, seen: &mut BTreeMap<String, usize>) -> String {
    let count = seen.entry(kind.to_owned()).or_default();
    *count += 1;
    if *count == 1 { kind.to_owned() } else { format!("{kind}-{count}") }
}
