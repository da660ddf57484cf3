//! The graph under construction: sources, branches and sinks. A branch is a future pipeline; variables call
//! its index `branch`.

use thalweg_config::{Node, Span};

use super::text::Text;

/// A source or a sink.
#[derive(Debug)]
pub(super) struct Station {
    pub(super) name: String,
    pub(super) span: Span,
    /// A component: its kind with its options.
    pub(super) node: Node,
    pub(super) notes: Vec<String>,
}

/// An input of a branch, besides the branches that lead to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Feed {
    /// A source.
    Source(usize),
    /// A named output of a branch.
    Output(usize, String),
}

/// A target of a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    /// Another branch.
    Branch(usize),
    /// A sink.
    Sink(usize),
}

/// How a branch chooses among its targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Each target gets a copy.
    All,
    /// The targets take turns.
    RoundRobin,
    /// A random target.
    Random,
    /// The next target gets the messages that the previous one rejects, or does not accept within this many
    /// ms.
    Failover(Option<i64>),
}

/// A transform.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Sets a column to a text.
    Text(Text),
    /// Any other transform.
    Transform(Transform),
}

/// A transform that is written unchanged.
#[derive(Debug, Clone)]
pub(super) struct Transform {
    pub(super) kind: &'static str,
    pub(super) options: Node,
    pub(super) span: Span,
    pub(super) notes: Vec<String>,
    /// The transform's named outputs.
    pub(super) outputs: Vec<String>,
    /// True if the result depends on earlier messages.
    pub(super) stateful: bool,
}

impl Transform {
    pub(super) fn new(kind: &'static str, options: Node, span: Span) -> Self {
        Self { kind, options, span, notes: Vec::new(), outputs: Vec::new(), stateful: false }
    }
}

impl Step {
    pub(super) fn outputs(&self) -> &[String] {
        match self {
            Self::Text(_) => &[],
            Self::Transform(transform) => &transform.outputs,
        }
    }

    pub(super) fn is_stateful(&self) -> bool {
        match self {
            Self::Text(text) => text.is_stateful(),
            Self::Transform(transform) => transform.stateful,
        }
    }

    /// True if messages leave as files.
    pub(super) fn makes_files(&self) -> bool {
        matches!(self, Self::Transform(transform) if transform.kind == "pack")
    }

    /// True if both steps do the same, regardless of their positions in the file.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Text(left), Self::Text(right)) => {
                left.parts == right.parts
                    && left.into == right.into
                    && left.unless_empty == right.unless_empty
            }
            (Self::Transform(left), Self::Transform(right)) => {
                left.kind == right.kind && left.options == right.options && left.notes == right.notes
            }
            _ => false,
        }
    }
}

/// Appends a step. Neighbouring texts are merged, and so are neighbouring renames and drops.
pub(super) fn push(steps: &mut Vec<Step>, step: Step) {
    let joined = match (steps.last(), &step) {
        (Some(Step::Text(last)), Step::Text(next)) => last.followed_by(next).map(Step::Text),
        (Some(Step::Transform(last)), Step::Transform(next)) => joined(last, next).map(Step::Transform),
        _ => None,
    };
    match joined {
        Some(joined) => {
            steps.pop();
            steps.push(joined);
        }
        None => steps.push(step),
    }
}

fn joined(last: &Transform, next: &Transform) -> Option<Transform> {
    if last.kind != next.kind || !next.notes.is_empty() {
        return None;
    }
    let mut options = last.options.clone();
    match (&mut options.value, &next.options.value) {
        (thalweg_config::Value::Sequence(names), thalweg_config::Value::Sequence(more))
            if last.kind == "drop" =>
        {
            names.extend(more.iter().filter(|name| !last.options.items().contains(name)).cloned());
        }
        (thalweg_config::Value::Mapping(pairs), thalweg_config::Value::Mapping(more))
            if last.kind == "rename" =>
        {
            // All renames of one transform happen at once, so no rename may touch a name of another.
            let touched: Vec<&str> = last
                .options
                .entries()
                .iter()
                .flat_map(|(old, new)| [old.name.as_str(), new.as_str().unwrap_or("")])
                .map(|name| name.trim_end_matches(".*"))
                .collect();
            let touches = |name: &str| {
                let name = name.trim_end_matches(".*");
                let below = |outer: &str, inner: &str| inner.starts_with(&format!("{outer}."));
                name == "payload"
                    || touched.iter().any(|other| *other == name || below(other, name) || below(name, other))
            };
            if more.iter().any(|(old, new)| touches(&old.name) || touches(new.as_str().unwrap_or("payload")))
            {
                return None;
            }
            pairs.extend(more.iter().cloned());
        }
        _ => return None,
    }
    Some(Transform { options, ..last.clone() })
}

/// A future pipeline.
#[derive(Debug)]
pub(super) struct Branch {
    pub(super) name: String,
    /// When two branches merge, the one with the greater rank keeps its name.
    pub(super) rank: u8,
    pub(super) span: Span,
    pub(super) from: Vec<Feed>,
    pub(super) steps: Vec<Step>,
    pub(super) way: Way,
    pub(super) to: Vec<End>,
    pub(super) concurrency: Option<(i64, Span)>,
    pub(super) notes: Vec<String>,
}

/// The graph. A branch that was merged into another is `None`.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) sources: Vec<Station>,
    pub(super) branches: Vec<Option<Branch>>,
    pub(super) sinks: Vec<Station>,
    /// The folder for positions, if the file names one.
    pub(super) state: Option<(String, Span)>,
    /// The branch for messages that could not be processed, if a producer listens to them.
    pub(super) traces: Option<usize>,
    /// The sink for messages without a producer, once it is needed.
    nobody: Option<usize>,
}

impl Draft {
    pub(super) fn branch(&mut self, name: impl Into<String>, rank: u8, span: Span) -> usize {
        self.branches.push(Some(Branch {
            name: name.into(),
            rank,
            span,
            from: Vec::new(),
            steps: Vec::new(),
            way: Way::All,
            to: Vec::new(),
            concurrency: None,
            notes: Vec::new(),
        }));
        self.branches.len() - 1
    }

    /// Returns a branch by its index from [`branch`](Self::branch). Only the simplification removes branches.
    pub(super) fn at(&mut self, branch: usize) -> Option<&mut Branch> {
        self.branches.get_mut(branch)?.as_mut()
    }

    pub(super) fn sink(&mut self, name: impl Into<String>, span: Span, node: Node) -> usize {
        self.sinks.push(Station { name: name.into(), span, node, notes: Vec::new() });
        self.sinks.len() - 1
    }

    pub(super) fn source(&mut self, name: impl Into<String>, span: Span, node: Node) -> usize {
        self.sources.push(Station { name: name.into(), span, node, notes: Vec::new() });
        self.sources.len() - 1
    }

    /// Feeds the branch for messages that could not be processed by the `errors` of all branches that do not
    /// follow it, and that make no files, which are not messages. Until then it has a feed that is none, so
    /// that it is merged with no other.
    pub(super) fn feed_traces(&mut self) {
        let Some(traces) = self.traces else { return };
        let mut after = vec![traces];
        let mut at = 0;
        while let Some(&branch) = after.get(at) {
            at += 1;
            let ends = self.branches[branch].iter().flat_map(|branch| branch.to.clone());
            let next = ends.filter_map(|end| match end {
                End::Branch(next) => Some(next),
                End::Sink(_) => None,
            });
            after.extend(next.filter(|next| !after.contains(next)).collect::<Vec<_>>());
        }
        let is_of_messages = |branch: &Branch| !branch.steps.iter().any(Step::makes_files);
        let living = (0..self.branches.len())
            .filter(|&branch| self.branches[branch].as_ref().is_some_and(is_of_messages));
        let feeds = living.filter(|branch| !after.contains(branch));
        let feeds = feeds.map(|branch| Feed::Output(branch, "errors".to_owned())).collect();
        if let Some(traces) = self.at(traces) {
            traces.from = feeds;
        }
    }

    /// The feed of a branch that gets its feeds later.
    pub(super) fn feed_of_later() -> Feed {
        Feed::Output(usize::MAX, String::new())
    }

    /// Returns the sink for messages that no producer reads or that may be dropped.
    pub(super) fn nobody(&mut self, span: Span) -> End {
        if let Some(sink) = self.nobody {
            return End::Sink(sink);
        }
        let node = super::made::component("discard", span, super::made::Made::new(span).done());
        let sink = self.sink("nobody", span, node);
        self.nobody = Some(sink);
        End::Sink(sink)
    }
}
