//! The flow of each edge of a graph: messages or files.
//!
//! A source and the last transform of a pipeline declare the flow of their output. A pipeline without
//! transforms passes on the flow of its input. So the flow of each edge follows from the graph, and the user
//! does not have to write it down.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::component::{Flow, Step};
use crate::graph::{Feed, Graph, Pipeline, SinkNode, Targets, To, TransformNode};
use crate::index::Index;
use crate::settings::OnError;

/// The flow into each pipeline, by the pipeline's name.
pub(crate) struct Flows(BTreeMap<Arc<str>, Flow>);

/// Returns the flow that leaves a transform by `errors`. A file reader rejects messages. A file that it
/// cannot read goes to the dead letters, whatever its `errors` lead to, since one edge carries one flow.
fn rejected(step: &Step) -> Flow {
    match step {
        Step::FileReader(_) => Flow::Messages,
        Step::Messages(_) | Step::Waits(_) | Step::Files(_) | Step::Marker => step.takes(),
    }
}

/// An edge that leads to a component of the other flow.
pub(crate) struct Mismatch {
    /// The number of the pipeline.
    pub(crate) pipeline: usize,
    /// The part of the pipeline.
    pub(crate) part: MismatchPart,
    pub(crate) message: String,
    pub(crate) help: String,
}

/// The part of a pipeline at which a flow does not fit.
pub(crate) enum MismatchPart {
    From,
    Transform(usize),
    To,
}

impl Flows {
    /// Finds the flow of each pipeline. If its feeds disagree, the first one decides;
    /// [`mismatches`](Self::mismatches) reports the others.
    pub(crate) fn of(index: &Index<'_>) -> Self {
        let mut flows = Flows(BTreeMap::new());
        index.settle(|pipeline| {
            let found = pipeline.from.iter().find_map(|feed| flows.fed(index, feed).first().copied());
            flows.0.extend(found.map(|flow| (pipeline.name.clone(), flow)));
            found.is_some()
        });
        flows
    }

    /// Returns the flow into a pipeline.
    pub(crate) fn entering(&self, pipeline: &Pipeline) -> Flow {
        self.0.get(&pipeline.name).copied().unwrap_or(Flow::Messages)
    }

    /// Returns the flow at the end of a pipeline.
    pub(crate) fn at_end(&self, pipeline: &Pipeline) -> Flow {
        pipeline.transforms.last().map_or_else(|| self.entering(pipeline), |last| last.config.gives())
    }

    /// True if messages reach the sink.
    pub(crate) fn reach(&self, graph: &Graph, sink: &SinkNode) -> bool {
        let mut feeding = graph.pipelines.iter().filter(|pipeline| pipeline.to.names().contains(&sink.name));
        feeding.any(|pipeline| self.at_end(pipeline) == Flow::Messages)
    }

    /// Returns the flows that a feed may carry, as far as they are known.
    pub(crate) fn fed(&self, index: &Index<'_>, feed: &Feed) -> Vec<Flow> {
        let end = |pipeline: &Pipeline| match pipeline.transforms.last() {
            Some(last) => Some(last.config.gives()),
            None => self.0.get(&pipeline.name).copied(),
        };
        let mut flows: Vec<Flow> = match feed {
            Feed::Source(name) => {
                index.source(name).map(|source| source.config.gives()).into_iter().collect()
            }
            Feed::Pipeline(name) | Feed::Chosen(name) => {
                index.pipeline(name).and_then(end).into_iter().collect()
            }
            // Only transforms of messages have named outputs.
            Feed::Named(..) => vec![Flow::Messages],
            Feed::Errors(name) => match (index.pipeline(name), index.source(name)) {
                (Some(pipeline), _) => {
                    pipeline.transforms.iter().map(|node| rejected(&node.config)).collect()
                }
                (None, Some(source)) => vec![source.config.gives()],
                (None, None) => {
                    let leading = index.leading_to(name).iter();
                    leading.filter_map(|&at| end(&index.graph.pipelines[at])).collect()
                }
            },
        };
        flows.sort();
        flows.dedup();
        flows
    }

    /// Returns the first mismatch of each pipeline.
    pub(crate) fn mismatches(&self, index: &Index<'_>) -> Vec<Mismatch> {
        let all = index.graph.pipelines.iter().enumerate();
        all.filter_map(|(number, pipeline)| {
            let (part, message, help) = self.mismatch(index, pipeline)?;
            Some(Mismatch { pipeline: number, part, message, help })
        })
        .collect()
    }

    fn mismatch(&self, index: &Index<'_>, pipeline: &Pipeline) -> Option<Wrong> {
        let mut flow = self.entering(pipeline);
        if let Some(wrong) = self.input_mismatch(index, pipeline, flow) {
            return Some(wrong);
        }
        for (at, node) in pipeline.transforms.iter().enumerate() {
            if let Some((message, help)) = transform_mismatch(pipeline.on_error, node, flow) {
                return Some((MismatchPart::Transform(at), message, help));
            }
            flow = node.config.gives();
        }
        target_mismatch(index, pipeline, flow)
    }

    /// Finds a feed that carries another flow.
    fn input_mismatch(&self, index: &Index<'_>, pipeline: &Pipeline, flow: Flow) -> Option<Wrong> {
        let other = |feed: &Feed| self.fed(index, feed).into_iter().find(|&other| other != flow);
        let (feed, other) = pipeline.from.iter().find_map(|feed| Some((feed, other(feed)?)))?;
        let message = format!(
            "The pipeline `{}` receives {}, but {} from `{feed}`.",
            pipeline.name,
            flow.name(),
            other.name()
        );
        let help = match feed {
            Feed::Errors(name) if index.pipeline(name).is_some() => {
                "A pipeline rejects files before the transform that reads messages out of them, and \
                 messages after it: split the pipeline there into two."
            }
            _ => "Split it into two pipelines, one for each.",
        };
        Some((MismatchPart::From, message, help.to_owned()))
    }
}

/// The part with a mismatch, the message and the help.
type Wrong = (MismatchPart, String, String);

/// Returns the message and the help if a transform does not take this flow, or not with its options.
fn transform_mismatch(on_error: OnError, node: &TransformNode, flow: Flow) -> Option<(String, String)> {
    let takes = node.config.takes();
    if takes != flow {
        let message = format!("`{}` takes {}, but here are {}.", node.kind, takes.name(), flow.name());
        let help = match node.config.gives() {
            Flow::Messages if flow == Flow::Messages => {
                "It reads messages out of whole files, which the source `files` gives. Messages are parsed by \
                 transforms such as `parse_csv`."
                    .to_owned()
            }
            _ => turning(flow),
        };
        return Some((message, help));
    }
    if takes == Flow::Messages && node.targets != Targets::default() {
        let message =
            format!("`{}` takes messages, but `for` applies to transforms of files only.", node.kind);
        return Some((message, "Remove it.".to_owned()));
    }
    if on_error == OnError::Divert && node.targets != Targets::default() {
        let message = "Rejected files do not reach this transform: they leave by `errors` at once.";
        let help = "Add `on_error: carry` to the pipeline, or remove `for`.";
        return Some((message.to_owned(), help.to_owned()));
    }
    None
}

/// Finds a target that does not take the flow at the end of a pipeline.
fn target_mismatch(index: &Index<'_>, pipeline: &Pipeline, flow: Flow) -> Option<Wrong> {
    let is_choice = pipeline.to.names().len() > 1 && !matches!(pipeline.to, To::All(_));
    if flow == Flow::Files && is_choice {
        let message = format!("`{}` distributes messages, but here are files.", pipeline.to);
        let help = "Files can go to one sink or pipeline, or to a list, each of which gets them.";
        return Some((MismatchPart::To, message, help.to_owned()));
    }
    let takes_it = |sink: &&SinkNode| match flow {
        Flow::Messages => sink.config.takes_messages(),
        Flow::Files => sink.config.files().is_some(),
    };
    let mut sinks = pipeline.to.names().iter().filter_map(|name| index.sink(name));
    let sink = sinks.find(|sink| !takes_it(sink))?;
    let takes = if flow == Flow::Messages { Flow::Files } else { Flow::Messages };
    let message = format!("The sink `{}` takes {}, but here are {}.", sink.name, takes.name(), flow.name());
    Some((MismatchPart::To, message, turning(flow)))
}

/// Returns the components that turn this flow into the other one.
fn turning(flow: Flow) -> String {
    let help = match flow {
        Flow::Messages => "`pack` makes files of messages.",
        Flow::Files => "`lines`, `csv` and `avro` read messages out of files.",
    };
    help.to_owned()
}
