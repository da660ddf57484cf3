//! Processing dead letters again.
//!
//! Letters are given once more to the pipeline that rejected them, from its beginning, so that a configuration
//! that was put right applies as a whole. What fed that pipeline is replaced by a source of letters, and only what
//! it leads to is kept: other pipelines had their copy of these messages in the run that rejected them.
//!
//! A pipeline that takes from another one gets the fields that the message had when it was rejected; one that takes
//! from a source gets the payload alone, as a source would send it. What a sink rejected goes to that sink again,
//! which is not to encode it a second time: that is a run of its own, as a sink cannot both encode and not encode.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_array::{Array, UInt64Array};
use async_trait::async_trait;
use thalweg_record::{Meta, PayloadWriter};

use crate::component::{BuildSink, BuildSource, BuildTransform, Context, Mistake, Sink, Source};
use crate::graph::{Feed, Graph, Pipeline, SinkNode, SourceNode, To};
use crate::kept::{alike, restore};
use crate::store::{DeadLetter, LetterId};
use crate::{Error, Mark, Outlet, Reading, Store, Summary};

/// The kind of the sources that give letters.
pub const KIND: &str = "dead_letters";

/// The only lane of a source of letters.
const LANE: &str = "letters";

/// How dead letters can be processed again.
pub struct Replay {
    /// What to run, one after the other.
    pub runs: Vec<ReplayRun>,
    /// Letters that cannot be processed again, and why.
    pub left: Vec<(LetterId, String)>,
}

/// One run over letters.
pub struct ReplayRun {
    /// What to run: see [`Run::continuing`](crate::Run::continuing).
    pub graph: Graph,
    /// The letters of each source.
    letters: BTreeMap<Arc<str>, Vec<LetterId>>,
}

impl ReplayRun {
    /// How many letters it gives.
    pub fn len(&self) -> usize {
        self.letters.values().map(Vec::len).sum()
    }

    /// Whether it gives none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The letters that a run has brought into safety: delivered, filtered, or kept as new letters.
    pub fn safe(&self, summary: &Summary) -> Vec<LetterId> {
        let safe = self.letters.iter().flat_map(|(source, ids)| {
            let reached = summary.positions.get(&**source).and_then(|lanes| lanes.get(LANE)?.as_u64());
            ids.iter().copied().filter(move |&id| reached.is_some_and(|reached| id <= reached))
        });
        safe.collect()
    }

    /// Forgets the positions of the sources of letters, which mean something during one run only.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub fn forget(&self, store: &Store) -> Result<(), Error> {
        let positions: Vec<_> =
            self.letters.keys().map(|source| (source.clone(), Arc::from(LANE), None)).collect();
        store.save(&positions, &[])
    }
}

/// Finds out how letters, given in the order of their numbers, can be processed again.
pub fn replay(graph: &Graph, letters: Vec<(LetterId, DeadLetter)>) -> Replay {
    let mut left = Vec::new();
    let mut by_way: BTreeMap<Way, Vec<(LetterId, DeadLetter)>> = BTreeMap::new();
    for (id, letter) in letters {
        match way(graph, &letter.component) {
            Ok(way) => by_way.entry(way).or_default().push((id, letter)),
            Err(reason) => left.push((id, reason)),
        }
    }
    let (written, others) = by_way.into_iter().partition(|(way, _)| matches!(way, Way::Written(_)));
    let runs = [through_pipelines(graph, others), to_sinks(graph, written)];
    Replay { runs: runs.into_iter().filter(|run| !run.is_empty()).collect(), left }
}

/// Where a letter enters.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    /// The beginning of a pipeline.
    Pipeline(Arc<str>),
    /// The end of a pipeline, before the encoding of this sink.
    Encoding(Arc<str>),
    /// A sink, past its encoding.
    Written(Arc<str>),
}

impl Way {
    fn name(&self) -> &Arc<str> {
        match self {
            Way::Pipeline(name) | Way::Encoding(name) | Way::Written(name) => name,
        }
    }
}

fn way(graph: &Graph, component: &str) -> Result<Way, String> {
    let sink = |name: &str| graph.sinks.iter().find(|sink| &*sink.name == name);
    if let Some(sink) = sink(component) {
        // In a failover each sink encodes for itself, and what it rejects is as it was before that.
        let encoded = failover(graph, &sink.name).is_none();
        let name = sink.name.clone();
        return Ok(if encoded { Way::Written(name) } else { Way::Encoding(name) });
    }
    let (name, transform) = component.split_once('.').unwrap_or((component, ""));
    match (graph.pipeline(name), sink(name)) {
        (Some(pipeline), _) if !transform.is_empty() => Ok(Way::Pipeline(pipeline.name.clone())),
        (_, Some(sink)) => Ok(Way::Encoding(sink.name.clone())),
        _ if graph.sources.iter().any(|source| &*source.name == component) => {
            Err(format!("it is a part of what the source `{component}` could not read as a message"))
        }
        _ => Err(format!("there is no `{component}` in the configuration any more")),
    }
}

fn failover<'g>(graph: &'g Graph, sink: &str) -> Option<&'g To> {
    let mut ways = graph.pipelines.iter().map(|pipeline| &pipeline.to);
    ways.find(|to| matches!(to, To::Failover(sinks) if sinks.iter().any(|name| &**name == sink)))
}

fn through_pipelines(graph: &Graph, letters: BTreeMap<Way, Vec<(LetterId, DeadLetter)>>) -> ReplayRun {
    let mut run = ReplayRun { graph: nothing_of(graph), letters: BTreeMap::new() };
    let starts = letters.keys().filter_map(|way| match way {
        Way::Pipeline(name) => Some(name.clone()),
        Way::Encoding(_) | Way::Written(_) => None,
    });
    let encoding = letters.keys().filter_map(|way| match way {
        Way::Encoding(name) => Some(failover(graph, name).cloned().unwrap_or(To::All(vec![name.clone()]))),
        Way::Pipeline(_) | Way::Written(_) => None,
    });
    let mut sinks: BTreeSet<Arc<str>> = encoding.flat_map(|to| to.sinks().to_vec()).collect();
    let mut reached: BTreeSet<Arc<str>> = starts.collect();
    let comes = |feed: &Feed, pipelines: &BTreeSet<Arc<str>>, sinks: &BTreeSet<Arc<str>>| match feed {
        Feed::Source(_) => false,
        Feed::Pipeline(name) | Feed::Named(name, _) => pipelines.contains(name),
        Feed::Errors(name) => pipelines.contains(name) || sinks.contains(name),
    };
    loop {
        let before = (reached.len(), sinks.len());
        for pipeline in &graph.pipelines {
            if pipeline.from.iter().any(|feed| comes(feed, &reached, &sinks)) {
                reached.insert(pipeline.name.clone());
            }
            if reached.contains(&pipeline.name) {
                sinks.extend(pipeline.to.sinks().iter().cloned());
            }
        }
        if before == (reached.len(), sinks.len()) {
            break;
        }
    }
    for pipeline in graph.pipelines.iter().filter(|pipeline| reached.contains(&pipeline.name)) {
        let mut pipeline = pipeline.clone();
        pipeline.from.retain(|feed| comes(feed, &reached, &sinks));
        run.graph.pipelines.push(pipeline);
    }
    run.graph.sinks.extend(graph.sinks.iter().filter(|sink| sinks.contains(&sink.name)).cloned());
    for (way, letters) in letters {
        let from_source = |name: &str| {
            let pipeline = graph.pipeline(name);
            pipeline.is_some_and(|pipeline| pipeline.from.iter().all(|feed| matches!(feed, Feed::Source(_))))
        };
        let with_fields = !matches!(&way, Way::Pipeline(name) if from_source(name));
        let source = run.add_source(way.name(), letters, with_fields);
        match &way {
            Way::Pipeline(name) => {
                let pipelines = run.graph.pipelines.iter_mut();
                let pipeline = pipelines.into_iter().find(|pipeline| pipeline.name == *name);
                pipeline.into_iter().for_each(|pipeline| pipeline.from.push(Feed::Source(source.clone())));
            }
            Way::Encoding(name) | Way::Written(name) => {
                let to = failover(graph, name).cloned().unwrap_or(To::All(vec![name.clone()]));
                run.graph.pipelines.push(straight(source, to));
            }
        }
    }
    run
}

fn to_sinks(graph: &Graph, letters: BTreeMap<Way, Vec<(LetterId, DeadLetter)>>) -> ReplayRun {
    let mut run = ReplayRun { graph: nothing_of(graph), letters: BTreeMap::new() };
    for (way, letters) in letters {
        let name = way.name();
        let sink = graph.sinks.iter().find(|sink| sink.name == *name).cloned();
        run.graph.sinks.extend(sink.map(|sink| SinkNode { config: Arc::new(Encoded(sink.config)), ..sink }));
        // The fields may be part of the sink's paths, keys or headers.
        let source = run.add_source(name, letters, true);
        run.graph.pipelines.push(straight(source, To::All(vec![name.clone()])));
    }
    run
}

fn nothing_of(graph: &Graph) -> Graph {
    Graph {
        memory: graph.memory,
        state: graph.state.clone(),
        sources: Vec::new(),
        pipelines: Vec::new(),
        sinks: Vec::new(),
    }
}

/// A pipeline without transforms.
fn straight(source: Arc<str>, to: To) -> Pipeline {
    Pipeline {
        name: source.clone(),
        from: vec![Feed::Source(source)],
        transforms: Vec::new(),
        to,
        ordered: true,
        concurrency: None,
    }
}

impl ReplayRun {
    fn add_source(&mut self, to: &str, letters: Vec<(LetterId, DeadLetter)>, with_fields: bool) -> Arc<str> {
        // No name in a configuration has a dot.
        let name: Arc<str> = format!("letters.{to}").into();
        self.letters.insert(name.clone(), letters.iter().map(|(id, _)| *id).collect());
        let config = Arc::new(Letters { letters: letters.into(), with_fields });
        self.graph.sources.push(SourceNode { name: name.clone(), kind: KIND, config });
        name
    }
}

/// A sink that gets what is encoded already.
struct Encoded(Arc<dyn BuildSink>);

impl BuildSink for Encoded {
    fn check(&self) -> Vec<Mistake> {
        Vec::new()
    }

    fn encoder(&self) -> Option<Box<dyn BuildTransform>> {
        None
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error> {
        self.0.build(context)
    }
}

/// A source of letters.
struct Letters {
    letters: Arc<[(LetterId, DeadLetter)]>,
    with_fields: bool,
}

impl BuildSource for Letters {
    fn check(&self) -> Vec<Mistake> {
        Vec::new()
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Source>, Error> {
        let (letters, with_fields) = (self.letters.clone(), self.with_fields);
        Ok(Box::new(LettersSource { letters, with_fields, next: 0 }))
    }
}

struct LettersSource {
    letters: Arc<[(LetterId, DeadLetter)]>,
    with_fields: bool,
    next: usize,
}

impl LettersSource {
    /// As many of the next letters as can be one batch.
    fn take(&mut self, bytes: usize) -> &[(LetterId, DeadLetter)] {
        let rest = &self.letters[self.next..];
        let Some((_, first)) = rest.first() else { return rest };
        let mut size = 0;
        let alike = |letter: &DeadLetter| {
            letter.source == first.source
                && letter.path == first.path
                && letter.position.is_some() == first.position.is_some()
                && (!self.with_fields || alike(&letter.fields, &first.fields))
        };
        let more = rest.iter().take_while(|(_, letter)| {
            let fits = size < bytes && alike(letter);
            size += letter.payload_bytes().len();
            fits
        });
        let count = more.count();
        self.next += count;
        &rest[..count]
    }
}

#[async_trait]
impl Source for LettersSource {
    async fn run(&mut self, out: &mut Outlet) -> Result<(), Error> {
        let with_fields = self.with_fields;
        while !out.is_stopping() {
            let letters = self.take(out.batch_bytes());
            let (Some((_, first)), Some((last, _))) = (letters.first(), letters.last()) else { break };
            let mut payload = PayloadWriter::default();
            letters.iter().for_each(|(_, letter)| payload.push(&letter.payload_bytes()));
            let positions: Option<Vec<u64>> = letters.iter().map(|(_, letter)| letter.position).collect();
            let reading = Reading {
                payload: payload.finish(),
                path: first.path.as_deref().map(Arc::from),
                positions: positions.map(UInt64Array::from),
                mark: Some(Mark { lane: LANE.into(), position: (*last).into() }),
            };
            let meta = Meta {
                source: first.source.as_str().into(),
                path: reading.path.clone(),
                time_us: first.time_us,
            };
            let rows: Vec<_> = letters.iter().map(|(_, letter)| letter.fields.as_slice()).collect();
            let fields = if with_fields { Some(restore(&rows)?) } else { None };
            let room = out.reserve(reading.payload.get_buffer_memory_size()).await;
            drop(room);
            out.send_again(reading, meta, fields).await?;
        }
        Ok(())
    }
}
