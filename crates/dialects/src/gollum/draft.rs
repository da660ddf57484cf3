//! The graph while it is being made: sources, lanes that will be pipelines, and sinks.

use thalweg_config::{Node, Span};

use super::text::Text;

/// A source or a sink.
#[derive(Debug)]
pub(super) struct Station {
    pub(super) name: String,
    pub(super) span: Span,
    /// Its kind with its options.
    pub(super) node: Node,
    pub(super) notes: Vec<String>,
}

/// What feeds a lane, beside the lanes that lead to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Feed {
    /// A source.
    Source(usize),
    /// A named output of a lane.
    Output(usize, String),
}

/// Where a lane leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    /// To another lane.
    Branch(usize),
    /// To a sink.
    Sink(usize),
}

/// How a lane chooses among its ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Each gets a copy.
    All,
    /// One after the other.
    RoundRobin,
    /// One at random.
    Random,
    /// The next gets what the one before cannot take, or has not taken after so many milliseconds.
    Failover(Option<i64>),
}

/// A transform.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// A text that a column is set to.
    Text(Text),
    /// Anything else.
    Transform(Transform),
}

/// A transform that is written as it stands.
#[derive(Debug, Clone)]
pub(super) struct Transform {
    pub(super) kind: &'static str,
    pub(super) options: Node,
    pub(super) span: Span,
    pub(super) notes: Vec<String>,
    /// The named outputs that it has.
    pub(super) outputs: Vec<String>,
    /// Whether what it does depends on the messages before.
    pub(super) stateful: bool,
    /// Whether it writes JSON that was parsed before and whose fields are still there.
    pub(super) writes_parsed: Option<Parsed>,
}

/// JSON that was parsed, changed and written again.
#[derive(Debug, Clone)]
pub(super) struct Parsed {
    pub(super) trims: bool,
    pub(super) column: String,
}

impl Transform {
    pub(super) fn new(kind: &'static str, options: Node, span: Span) -> Self {
        Self {
            kind,
            options,
            span,
            notes: Vec::new(),
            outputs: Vec::new(),
            stateful: false,
            writes_parsed: None,
        }
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

    /// Whether both do the same, wherever they were written.
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

/// Puts a step after others: texts become one, and so do neighbouring renames and drops.
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
            // All are renamed at once, so that none may touch what another does.
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

/// What will be a pipeline.
#[derive(Debug)]
pub(super) struct Branch {
    pub(super) name: String,
    /// Which of two lanes that become one gives its name: the greater.
    pub(super) rank: u8,
    pub(super) span: Span,
    pub(super) from: Vec<Feed>,
    pub(super) steps: Vec<Step>,
    pub(super) way: Way,
    pub(super) to: Vec<End>,
    pub(super) concurrency: Option<(i64, Span)>,
    pub(super) notes: Vec<String>,
}

/// The graph. Lanes that have become part of others are none.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) sources: Vec<Station>,
    pub(super) lanes: Vec<Option<Branch>>,
    pub(super) sinks: Vec<Station>,
    /// The folder for positions, where the file says one.
    pub(super) state: Option<(String, Span)>,
    /// The sink for what nobody takes, once there is one.
    nobody: Option<usize>,
}

impl Draft {
    pub(super) fn lane(&mut self, name: impl Into<String>, rank: u8, span: Span) -> usize {
        self.lanes.push(Some(Branch {
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
        self.lanes.len() - 1
    }

    /// The lane of a number. Numbers come from [`lane`](Self::lane), and lanes end only in the simplification.
    pub(super) fn at(&mut self, lane: usize) -> Option<&mut Branch> {
        self.lanes.get_mut(lane)?.as_mut()
    }

    pub(super) fn sink(&mut self, name: impl Into<String>, span: Span, node: Node) -> usize {
        self.sinks.push(Station { name: name.into(), span, node, notes: Vec::new() });
        self.sinks.len() - 1
    }

    pub(super) fn source(&mut self, name: impl Into<String>, span: Span, node: Node) -> usize {
        self.sources.push(Station { name: name.into(), span, node, notes: Vec::new() });
        self.sources.len() - 1
    }

    /// The sink for what nobody takes, and for what may be thrown away.
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
