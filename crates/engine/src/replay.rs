//! Processing dead letters again.
//!
//! A letter enters its pipeline where it was rejected, with the payload and fields that reached the component
//! that rejected it. Transforms that it has passed are not applied again, since their results are in the
//! letter. The configuration may have changed since: new transforms before the one that rejected it are
//! applied. If that one was removed, the letter enters at the transform in its position. The feeds of the
//! pipeline are replaced by a source of letters, and only pipelines behind it are kept: the other pipelines
//! got their copy of these messages in the first run.
//!
//! To restart with the original payload was rejected. Every message would have to keep that payload in memory
//! until the end of the pipeline. A part made by `split` would also bring all the other parts with it again.
//!
//! A letter that a sink rejected goes to that sink again, already encoded. These letters have a run of their
//! own, since a sink cannot both encode and not encode.
//!
//! See docs/decisions/021-dead-letters-keep-payload-and-fields.md.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use arrow_array::{Array, UInt64Array};
use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::Value;
use thalweg_record::{Content, File, FileState, Meta, Origin, PayloadWriter, Times};

use crate::component::{Context, FileSink, Flow, InFlight, Sink, SinkConfig, Source, SourceConfig};
use crate::graph::{Feed, Graph, Pipeline, SinkNode, SourceNode, To};
use crate::kept::{alike, restore};
use crate::store::{DeadLetter, DeadLetterId, KeptFile};
use crate::{Checkpoint, DeadLetterLimits, Error, Reading, SourceOutput, Store, Summary};

/// The kind of the sources that send letters.
pub const KIND: &str = "dead_letters";

/// The number of nanoseconds between the time when a message was read, and the time that a sink gives to the
/// first of all letters with that time, if each message needs a time of its own. The messages that were
/// delivered with the same time have times within it. A letter has the same time in each replay: its own
/// number decides. (Rejected: its place among the letters of a replay. Two replays would give two letters one
/// time.)
const AFTER_OTHERS: u64 = 1_000_000;

/// The only partition of a source of letters.
const PARTITION: &str = "letters";

/// The runs that process dead letters again.
pub struct Replay {
    /// The runs, to be executed one after the other.
    pub runs: Vec<ReplayRun>,
    /// Letters that cannot be processed again, with the reason.
    pub left: Vec<(DeadLetterId, String)>,
}

/// One run over letters.
pub struct ReplayRun {
    /// The graph to run: see [`Run::replaying`](crate::Run::replaying).
    pub graph: Graph,
    /// Its letters.
    pub replayed: Arc<Replayed>,
}

/// The letters that a run processes again. The run removes each from its store with the first checkpoint that
/// covers it, or soon after it is settled in a run without checkpoints. So a replay that is killed does not
/// deliver again what it had delivered.
#[derive(Debug, Default)]
pub struct Replayed {
    /// The letters of each source, in the order of their numbers.
    letters: BTreeMap<Arc<str>, Vec<DeadLetterId>>,
    skipped: Skipped,
    /// For each source, how many of its letters have been removed or skipped.
    removed: Mutex<BTreeMap<Arc<str>, usize>>,
}

impl Replayed {
    /// Returns the letters that are settled when the position of a source is `offset`.
    fn settled(&self, source: &str, offset: &Value) -> &[DeadLetterId] {
        let letters = self.letters.get(source).map(Vec::as_slice).unwrap_or_default();
        let reached = offset.as_u64().map_or(0, |reached| letters.partition_point(|id| *id <= reached));
        letters.get(..reached).unwrap_or_default()
    }

    /// Removes the letters of a source up to a position.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub(crate) fn remove(&self, store: &Store, source: &Arc<str>, offset: &Value) -> Result<(), Error> {
        let settled = self.settled(source, offset);
        let mut removed = self.removed.lock();
        let removed = removed.entry(source.clone()).or_default();
        let skipped = self.skipped.lock().clone();
        let new = settled.get(*removed..).unwrap_or_default().iter();
        let new: Vec<DeadLetterId> = new.filter(|id| !skipped.contains(id)).copied().collect();
        if !new.is_empty() {
            store.remove_letters(&new)?;
        }
        *removed = settled.len().max(*removed);
        Ok(())
    }
}

/// The letters that a run left out, because their files have vanished since they were checked.
type Skipped = Arc<Mutex<BTreeSet<DeadLetterId>>>;

impl ReplayRun {
    /// Returns the number of its letters.
    pub fn len(&self) -> usize {
        self.replayed.letters.values().map(Vec::len).sum()
    }

    /// True if it has no letters.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the letters that the run has settled: delivered, filtered, or kept as new letters.
    pub fn safe(&self, summary: &Summary) -> Vec<DeadLetterId> {
        let skipped = self.replayed.skipped.lock();
        let safe = self.replayed.letters.keys().flat_map(|source| {
            let offset = summary.positions.get(&**source).and_then(|partitions| partitions.get(PARTITION));
            offset.map(|offset| self.replayed.settled(source, offset)).unwrap_or_default()
        });
        safe.filter(|id| !skipped.contains(id)).copied().collect()
    }

    /// Deletes the positions of the sources of letters, which are valid during one run only.
    pub fn forget(&self, store: &Store) -> Result<(), Error> {
        let positions: Vec<_> =
            self.replayed.letters.keys().map(|source| (source.clone(), Arc::from(PARTITION), None)).collect();
        store.save(&positions, &[], &[])
    }
}

/// Plans how letters, given in the order of their numbers, can be processed again.
pub fn replay(graph: &Graph, letters: Vec<(DeadLetterId, DeadLetter)>) -> Replay {
    let mut left = Vec::new();
    let mut by_way: BTreeMap<Way, Vec<(DeadLetterId, DeadLetter)>> = BTreeMap::new();
    for (id, letter) in letters {
        match way(graph, &letter).and_then(|way| restorable(graph, &way, &letter).map(|()| way)) {
            Ok(way) => by_way.entry(way).or_default().push((id, letter)),
            Err(reason) => left.push((id, reason)),
        }
    }
    let (written, others) = by_way.into_iter().partition(|(way, _)| matches!(way, Way::Written(_)));
    let runs = [through_pipelines(graph, others), to_sinks(graph, written)];
    Replay { runs: runs.into_iter().filter(|run| !run.is_empty()).collect(), left }
}

/// The point at which a letter enters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    /// A pipeline, before the transform with this number.
    Pipeline(Arc<str>, usize),
    /// The end of a pipeline, before the encoding for this sink.
    Encoding(Arc<str>),
    /// A sink, after its encoding.
    Written(Arc<str>),
}

impl Way {
    /// Returns the name of the source of these letters. No name in a configuration has a dot.
    fn source(&self) -> Arc<str> {
        match self {
            Way::Pipeline(name, 0) | Way::Encoding(name) | Way::Written(name) => {
                format!("letters.{name}")
            }
            Way::Pipeline(name, at) => format!("letters.{name}.{at}"),
        }
        .into()
    }

    /// True if the letters have fields. A message straight from a source has none.
    fn has_fields(&self, graph: &Graph) -> bool {
        let Way::Pipeline(name, 0) = self else { return true };
        let from = graph.pipeline(name).map(|pipeline| pipeline.from.as_slice()).unwrap_or_default();
        !from.iter().all(|feed| matches!(feed, Feed::Source(_)))
    }
}

fn way(graph: &Graph, letter: &DeadLetter) -> Result<Way, String> {
    let component = letter.component.as_str();
    let sink = |name: &str| graph.sinks.iter().find(|sink| &*sink.name == name);
    if let Some(sink) = sink(component) {
        return Ok(Way::Written(sink.name.clone()));
    }
    let (name, transform) = component.split_once('.').unwrap_or((component, ""));
    match (graph.pipeline(name), sink(name)) {
        (Some(pipeline), _) if !transform.is_empty() => {
            let at = entrance(pipeline, letter);
            if pipeline.transforms.get(at).is_some_and(|node| node.config.takes() != letter.flow()) {
                return Err(format!(
                    "it is a part of a file that `{component}` could not read: correct the file and process it again"
                ));
            }
            Ok(Way::Pipeline(pipeline.name.clone(), at))
        }
        (_, Some(sink)) => Ok(Way::Encoding(sink.name.clone())),
        _ if graph.sources.iter().any(|source| &*source.name == component) => Err(format!(
            "it is a part of the input that the source `{component}` could not read as a message"
        )),
        _ => Err(format!("the configuration no longer has `{component}`")),
    }
}

/// Returns the number of the transform before which a letter enters: after the last one that it has passed.
fn entrance(pipeline: &Pipeline, letter: &DeadLetter) -> usize {
    let before = pipeline.transforms.iter().take_while(|transform| *transform.name != *letter.component);
    let passed = before.map(|transform| letter.passed.iter().any(|passed| **passed == *transform.name));
    let passed: Vec<bool> = passed.collect();
    passed.iter().rposition(|passed| *passed).map_or(0, |last| last + 1)
}

/// Checks a letter before the run, so that a letter that cannot be restored does not stop the others.
fn restorable(graph: &Graph, way: &Way, letter: &DeadLetter) -> Result<(), String> {
    if let Some(file) = &letter.file {
        return match content_of(letter, file) {
            Some(_) => Ok(()),
            None => Err("the file no longer exists, and its content was not kept".to_owned()),
        };
    }
    if !way.has_fields(graph) {
        return Ok(());
    }
    match restore(&[&letter.fields]) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("its fields cannot be read back: {}", error.full())),
    }
}

/// Returns the content of a letter's file: its path if the file is there, else the kept bytes if they are
/// complete.
fn content_of(letter: &DeadLetter, file: &KeptFile) -> Option<Content> {
    if let Some(path) = letter.path.as_deref().map(Path::new)
        && file.opening().metadata(path).is_ok_and(|found| found.is_file())
    {
        return Some(Content::Path(path.to_owned()));
    }
    let kept = letter.payload_bytes();
    (kept.len() as u64 == file.size).then(|| kept.into())
}

/// Returns the file of a letter, as its source would find it now.
fn file_of(letter: &DeadLetter) -> Option<File> {
    let kept = letter.file.as_ref()?;
    let content = content_of(letter, kept)?;
    let origin = match &content {
        Content::Path(path) => {
            let found = kept.opening().metadata(path).ok()?;
            let folder = path.parent().unwrap_or(path).into();
            let times = Times {
                modified: found.modified().ok(),
                accessed: found.accessed().ok(),
                ..Times::default()
            };
            Origin::found(letter.source.as_str().into(), path.clone(), folder, found.len(), times)
                .beneath(kept.opening())
                .in_state(FileState::of(&found))
        }
        Content::Memory(_) | Content::Temporary(_) | Content::Ranges(_) => {
            Origin::new(letter.source.as_str().into(), kept.name.clone().into(), kept.size)
        }
    };
    let mut file = File::new(origin, content);
    file.set_name(&kept.name);
    Some(file)
}

fn through_pipelines(graph: &Graph, letters: BTreeMap<Way, Vec<(DeadLetterId, DeadLetter)>>) -> ReplayRun {
    let mut run = Draft { graph: nothing_of(graph), replayed: Replayed::default() };
    let mut pipelines = graph.pipelines.clone();
    pipelines.iter_mut().for_each(|pipeline| pipeline.from.retain(|feed| !matches!(feed, Feed::Source(_))));
    let mut entrances: BTreeMap<Arc<str>, BTreeMap<usize, Feed>> = BTreeMap::new();
    for (way, letters) in letters {
        let source = run.add_source(&way, letters, way.has_fields(graph));
        match way {
            Way::Pipeline(name, at) => {
                entrances.entry(name).or_default().insert(at, Feed::Source(source));
            }
            Way::Encoding(name) | Way::Written(name) => {
                pipelines.push(Pipeline::straight(source, To::All(vec![name])));
            }
        }
    }
    for (name, entrances) in entrances {
        cut(&mut pipelines, &name, &entrances);
    }
    prune(&mut pipelines);
    let is_fed = |sink: &SinkNode| pipelines.iter().any(|pipeline| pipeline.to.names().contains(&sink.name));
    run.graph.sinks.extend(graph.sinks.iter().filter(|sink| is_fed(sink)).cloned());
    run.graph.pipelines = pipelines;
    run.done()
}

/// Cuts a pipeline into parts that feed each other, so that letters can enter at the start of each part.
fn cut(pipelines: &mut Vec<Pipeline>, name: &str, entrances: &BTreeMap<usize, Feed>) {
    let Some(at) = pipelines.iter().position(|pipeline| &*pipeline.name == name) else { return };
    let whole = pipelines.remove(at);
    let mut starts: Vec<usize> = entrances.keys().copied().filter(|&start| start > 0).collect();
    starts.insert(0, 0);
    let mut parts: Vec<Pipeline> = Vec::new();
    for (number, &start) in starts.iter().enumerate() {
        let next = starts.get(number + 1).copied();
        let transforms = whole.transforms.get(start..next.unwrap_or(whole.transforms.len()));
        let mut part = Pipeline { transforms: transforms.unwrap_or_default().to_vec(), ..whole.clone() };
        if let Some(former) = parts.last() {
            part.from = vec![Feed::Pipeline(former.name.clone())];
        }
        part.from.extend(entrances.get(&start).cloned());
        // The last part keeps the name, since its output is the output of the whole.
        if next.is_some() {
            part.name = format!("{name}.{number}").into();
            part.to = To::All(Vec::new());
        }
        parts.push(part);
    }
    for pipeline in pipelines.iter_mut() {
        let feeds = std::mem::take(&mut pipeline.from).into_iter();
        let feeds = feeds.flat_map(|feed| match &feed {
            Feed::Errors(from) if **from == *name => {
                parts.iter().map(|part| Feed::Errors(part.name.clone())).collect()
            }
            Feed::Named(from, label) if **from == *name => {
                let has_it = |part: &&Pipeline| part.outputs().any(|(_, _, output)| output == *label);
                let part = parts.iter().find(has_it);
                part.map(|part| Feed::Named(part.name.clone(), label.clone())).into_iter().collect()
            }
            _ => vec![feed],
        });
        pipeline.from = feeds.collect();
    }
    pipelines.splice(at..at, parts);
}

/// Removes pipelines that nothing feeds.
fn prune(pipelines: &mut Vec<Pipeline>) {
    loop {
        let names: BTreeSet<Arc<str>> = pipelines.iter().map(|pipeline| pipeline.name.clone()).collect();
        let sinks: BTreeSet<Arc<str>> =
            pipelines.iter().flat_map(|pipeline| pipeline.to.names().to_vec()).collect();
        for pipeline in pipelines.iter_mut() {
            pipeline.from.retain(|feed| match feed {
                Feed::Source(_) => true,
                Feed::Pipeline(name) | Feed::Chosen(name) | Feed::Named(name, _) => names.contains(name),
                Feed::Errors(name) => names.contains(name) || sinks.contains(name),
            });
        }
        pipelines.retain(|pipeline| !pipeline.from.is_empty());
        if pipelines.len() == names.len() {
            return;
        }
    }
}

fn to_sinks(graph: &Graph, letters: BTreeMap<Way, Vec<(DeadLetterId, DeadLetter)>>) -> ReplayRun {
    let mut run = Draft { graph: nothing_of(graph), replayed: Replayed::default() };
    for (way, letters) in letters {
        let Way::Written(name) = &way else { continue };
        let sink = graph.sinks.iter().find(|sink| sink.name == *name).cloned();
        run.graph.sinks.extend(sink.map(|sink| SinkNode { config: Arc::new(Encoded(sink.config)), ..sink }));
        // The fields may be used in the sink's paths, keys or headers.
        let source = run.add_source(&way, letters, true);
        run.graph.pipelines.push(Pipeline::straight(source, To::All(vec![name.clone()])));
    }
    run.done()
}

fn nothing_of(graph: &Graph) -> Graph {
    Graph {
        memory: graph.memory,
        state: graph.state.clone(),
        dead_letters: with_room(graph.dead_letters),
        buffers: graph.buffers,
        temporary: graph.temporary.clone(),
        unknown_fields: graph.unknown_fields,
        schedule: None,
        sources: Vec::new(),
        pipelines: Vec::new(),
        sinks: Vec::new(),
    }
}

/// The limits of dead letters during a replay. A letter that is rejected again is beside the old one until
/// that one is removed, with all before it. At the limit, a replay would wait for itself, or drop the letters
/// that it processes.
fn with_room(limits: DeadLetterLimits) -> DeadLetterLimits {
    DeadLetterLimits {
        max_bytes: limits.max_bytes.bytes().saturating_mul(2).into(),
        max_count: limits.max_count.saturating_mul(2),
        ..limits
    }
}

/// A run that is being planned.
struct Draft {
    graph: Graph,
    replayed: Replayed,
}

impl Draft {
    fn done(mut self) -> ReplayRun {
        // A letter is removed when it is delivered, not when it waits again.
        self.graph.remove_buffers();
        ReplayRun { graph: self.graph, replayed: Arc::new(self.replayed) }
    }

    fn add_source(
        &mut self,
        way: &Way,
        letters: Vec<(DeadLetterId, DeadLetter)>,
        with_fields: bool,
    ) -> Arc<str> {
        let name = way.source();
        self.replayed.letters.insert(name.clone(), letters.iter().map(|(id, _)| *id).collect());
        let skipped = self.replayed.skipped.clone();
        let config = Arc::new(Letters { letters: letters.into(), with_fields, skipped });
        self.graph.sources.push(SourceNode { name: name.clone(), kind: KIND, config });
        name
    }
}

/// A sink whose input is encoded already.
struct Encoded(Arc<dyn SinkConfig>);

impl SinkConfig for Encoded {
    fn files(&self) -> Option<FileSink> {
        self.0.files()
    }

    fn takes_messages(&self) -> bool {
        self.0.takes_messages()
    }

    fn in_flight(&self) -> InFlight {
        self.0.in_flight()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error> {
        self.0.build(context)
    }
}

/// A source of letters.
struct Letters {
    letters: Arc<[(DeadLetterId, DeadLetter)]>,
    with_fields: bool,
    skipped: Skipped,
}

impl SourceConfig for Letters {
    fn blocks(&self) -> bool {
        false
    }

    fn gives(&self) -> Flow {
        self.letters.first().map_or(Flow::Messages, |(_, letter)| letter.flow())
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Source>, Error> {
        let (letters, skipped) = (self.letters.clone(), self.skipped.clone());
        Ok(Box::new(LettersSource { letters, with_fields: self.with_fields, skipped, next: 0 }))
    }
}

struct LettersSource {
    letters: Arc<[(DeadLetterId, DeadLetter)]>,
    with_fields: bool,
    skipped: Skipped,
    next: usize,
}

impl LettersSource {
    /// Returns as many of the next letters as fit into one batch. Their numbers follow each other: see
    /// [`AFTER_OTHERS`].
    fn take(&mut self, bytes: usize) -> &[(DeadLetterId, DeadLetter)] {
        let rest = &self.letters[self.next..];
        let Some((id, first)) = rest.first() else { return rest };
        let mut size = 0;
        let alike = |letter: &DeadLetter| {
            (letter.file.is_none() || std::ptr::eq(letter, first))
                && letter.source == first.source
                && letter.file.is_some() == first.file.is_some()
                && letter.path == first.path
                && letter.time_us == first.time_us
                && letter.position.is_some() == first.position.is_some()
                && (!self.with_fields || alike(&letter.fields, &first.fields))
        };
        let more = rest.iter().zip(*id..).take_while(|((next, letter), expected)| {
            let fits = size < bytes && next == expected && alike(letter);
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
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let (with_fields, skipped) = (self.with_fields, self.skipped.clone());
        while !out.is_stopping() {
            let letters = self.take(out.batch_bytes());
            let (Some((id, first)), Some((last, _))) = (letters.first(), letters.last()) else { break };
            if first.file.is_some() {
                // The file was removed since it was checked. Its letter stays.
                let Some(file) = file_of(first) else {
                    skipped.lock().insert(*last);
                    continue;
                };
                let checkpoint = Checkpoint { partition: PARTITION.into(), offset: (*last).into() };
                out.send_files(vec![file], Some(checkpoint)).await?;
                continue;
            }
            let mut payload = PayloadWriter::default();
            letters.iter().for_each(|(_, letter)| payload.push(&letter.payload_bytes()));
            let positions: Option<Vec<u64>> = letters.iter().map(|(_, letter)| letter.position).collect();
            let reading = Reading {
                payload: payload.finish(),
                path: first.path.as_deref().map(Arc::from),
                positions: positions.map(UInt64Array::from),
                checkpoint: Some(Checkpoint { partition: PARTITION.into(), offset: (*last).into() }),
            };
            let meta = Meta {
                source: first.source.as_str().into(),
                path: reading.path.clone(),
                sequence: None,
                time_us: first.time_us,
                number: AFTER_OTHERS.saturating_add(*id),
            };
            let rows: Vec<_> = letters.iter().map(|(_, letter)| letter.fields.as_slice()).collect();
            let fields = if with_fields { Some(restore(&rows)?) } else { None };
            let lease = out.reserve(reading.payload.get_buffer_memory_size()).await;
            drop(lease);
            out.send_again(reading, meta, fields).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::start_source;

    fn letter(id: DeadLetterId, time_us: i64) -> (DeadLetterId, DeadLetter) {
        let mut letter = DeadLetter {
            time_us,
            component: "out".to_owned(),
            passed: Vec::new(),
            reason: "no".to_owned(),
            source: "in".to_owned(),
            path: None,
            position: None,
            file: None,
            payload: None,
            payload_hex: None,
            fields: Vec::new(),
        };
        letter.set_payload(format!("letter {id}").as_bytes());
        (id, letter)
    }

    /// Returns the times that a sink gives to letters.
    async fn times(letters: Vec<(DeadLetterId, DeadLetter)>) -> BTreeMap<String, i64> {
        let source = LettersSource {
            letters: letters.into(),
            with_fields: false,
            skipped: Skipped::default(),
            next: 0,
        };
        let sent = start_source(Box::new(source), 1 << 20, BTreeMap::new()).finish().await;
        let batches = sent.main.iter().flat_map(|batch| {
            let first = batch.meta().time_us * 1000 + i64::try_from(batch.meta().number).unwrap();
            thalweg_record::testing::payloads(batch).into_iter().zip(first..)
        });
        batches.collect()
    }

    #[tokio::test]
    async fn each_letter_has_a_time_of_its_own_in_every_replay() {
        let letters = || vec![letter(3, 5), letter(4, 5), letter(6, 5), letter(7, 9)];
        let all = times(letters()).await;
        let expected = [
            ("letter 3", 1_005_003),
            ("letter 4", 1_005_004),
            ("letter 6", 1_005_006),
            ("letter 7", 1_009_007),
        ];
        assert_eq!(all, BTreeMap::from(expected.map(|(text, time)| (text.to_owned(), time))));
        for at in 0..4 {
            let mut one = times(letters().split_off(at).into_iter().take(1).collect()).await;
            let (text, time) = one.pop_first().unwrap();
            assert_eq!(all[&text], time);
        }
    }
}
