//! Components for tests of runs, and plans of them.

mod buffers;
mod control;
mod parts;
mod runs;
mod supervision;
mod wired;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use thalweg_config::Document;
use thalweg_record::{Batch, File};

use super::StateDir;
use crate::component::{
    Cost, Disposition, FileError, FileReader, FileReaderConfig, FileTransform, FileTransformConfig, Step,
    Transform, TransformConfig,
};
use crate::plan::Plan;
use crate::{
    Built, Checkpoint, Context, Error, Flow, Outputs, Reading, Registry, Rejects, Role, Sink, SinkConfig,
    Source, SourceConfig, SourceOutput, WriteOutcome, testing,
};

/// Sends batches with a checkpoint each; if it is endless, until it is stopped.
#[derive(Clone)]
pub(super) struct Numbers {
    batches: u64,
    rows: usize,
    payload: usize,
    waits_for_stop: bool,
    /// The offset of the last checkpoint that was seen to be saved.
    saved: Arc<AtomicU64>,
}

#[async_trait]
impl Source for Numbers {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let payload = testing::batch(vec![vec![b'x'; self.payload]; self.rows]).payload().clone();
        for number in 1..=self.batches {
            if out.is_stopping() {
                return Ok(());
            }
            if let Some(saved) = out.committed("l").and_then(|saved| saved.as_u64()) {
                self.saved.store(saved, Relaxed);
            }
            let checkpoint = Some(Checkpoint { partition: "l".into(), offset: number.into() });
            let payload = payload.clone();
            out.send(Reading { payload, path: None, positions: None, checkpoint }).await?;
        }
        if self.waits_for_stop {
            out.stopping().await;
        }
        Ok(())
    }
}

impl SourceConfig for Numbers {
    fn blocks(&self) -> bool {
        false
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Source>, Error> {
        Ok(Box::new(self.clone()))
    }
}

/// The behaviour of a sink: its act for each batch, by the batch's number from 1.
#[derive(Clone)]
pub(super) struct Probe(Arc<dyn Fn(u64) -> Act + Send + Sync>);

pub(super) enum Act {
    Write,
    Wait,
    Block,
    /// Writes after a pause.
    Late(Duration),
    Panic,
    Fail(Error),
}

struct Probing {
    act: Probe,
    written: u64,
}

#[async_trait]
impl Sink for Probing {
    async fn write(&mut self, _: &Batch, _: &mut Rejects) -> Result<WriteOutcome, Error> {
        match self.act.0(self.written + 1) {
            Act::Write => self.written += 1,
            Act::Late(pause) => {
                tokio::time::sleep(pause).await;
                self.written += 1;
            }
            Act::Wait => std::future::pending().await,
            Act::Block => loop {
                std::thread::park();
            },
            Act::Panic => panic!("on purpose"),
            Act::Fail(error) => return Err(error),
        }
        Ok(WriteOutcome::Durable)
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn state(&self) -> Option<Value> {
        Some(self.written.into())
    }
}

impl SinkConfig for Probe {
    fn build(&self, _: &Context) -> Result<Box<dyn Sink>, Error> {
        Ok(Box::new(Probing { act: self.clone(), written: 0 }))
    }
}

pub(super) fn probe(act: impl Fn(u64) -> Act + Send + Sync + 'static) -> Probe {
    Probe(Arc::new(act))
}

/// A transform or file reader whose instances are built but receive nothing.
struct Unused;

impl TransformConfig for Unused {
    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        Ok(Box::new(Unused))
    }
}

impl Transform for Unused {
    fn apply(&mut self, _: Batch, _: &mut Outputs) -> Result<(), Error> {
        unreachable!("the plan is only wired")
    }
}

impl FileReaderConfig for Unused {
    fn build(&self, _: &Context) -> Result<Box<dyn FileReader>, Error> {
        Ok(Box::new(Unused))
    }
}

#[async_trait]
impl FileReader for Unused {
    async fn unpack(&mut self, _: &mut File, _: &mut SourceOutput) -> Result<(), FileError> {
        unreachable!("the plan is only wired")
    }
}

/// A transform with a state. Its instances receive nothing, and refuse the state that they are given.
struct Stateful {
    replays_apart: bool,
}

impl TransformConfig for Stateful {
    fn is_sequential(&self) -> bool {
        true
    }

    fn replays_apart(&self) -> bool {
        self.replays_apart
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Transform>, Error> {
        match context.is_replay == context.journal.is_none() {
            true => Ok(Box::new(Refusing)),
            false => Err(Error::permanent("only a component that is saved has a journal")),
        }
    }
}

struct Refusing;

impl Transform for Refusing {
    fn apply(&mut self, _: Batch, _: &mut Outputs) -> Result<(), Error> {
        unreachable!("the plan is only wired")
    }

    fn restore(&mut self, saved: Value) -> Result<(), Error> {
        Err(Error::permanent(format!("the state is {saved}")))
    }
}

/// As [`Unused`], for files.
struct UnusedFile(Cost);

impl FileTransformConfig for UnusedFile {
    fn cost(&self) -> Cost {
        self.0
    }

    fn build(&self, _: &Context) -> Result<Box<dyn FileTransform>, Error> {
        Ok(Box::new(Unused))
    }
}

#[async_trait]
impl FileTransform for Unused {
    async fn apply(&mut self, _: &mut File) -> Result<Disposition, FileError> {
        unreachable!("the plan is only wired")
    }
}

/// A source of files that has none.
struct FileNumbers;

impl SourceConfig for FileNumbers {
    fn gives(&self) -> Flow {
        Flow::Files
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Source>, Error> {
        Ok(Box::new(few(false)))
    }
}

/// A source that cannot be built.
struct Unbuildable;

impl SourceConfig for Unbuildable {
    fn build(&self, _: &Context) -> Result<Box<dyn Source>, Error> {
        Err(Error::permanent("the port is in use"))
    }
}

/// A registry with the source `numbers`, the transforms `pass`, `shared` and `apart` (messages), `small` and
/// `waiting` (files) and `reader` (files to messages), the sources `files` and `unbuildable`, and the sink
/// `probe`, whose options are an index into `probes`.
pub(super) fn registry(source: Numbers, probes: Vec<Probe>) -> Registry {
    let transform = |step: Step| move |_| Ok(Built::Transform(step.clone()));
    let stateful = |replays_apart| transform(Step::Messages(Arc::new(Stateful { replays_apart })));
    let files = Some(Flow::Files);
    Registry::new()
        .with(Role::Source, None, "numbers", move |_| Ok(Built::Source(Arc::new(source.clone()))))
        .with(Role::Source, None, "files", |_| Ok(Built::Source(Arc::new(FileNumbers))))
        .with(Role::Source, None, "unbuildable", |_| Ok(Built::Source(Arc::new(Unbuildable))))
        .with(Role::Transform, Some(Flow::Messages), "pass", transform(Step::Messages(Arc::new(Unused))))
        .with(Role::Transform, Some(Flow::Messages), "shared", stateful(false))
        .with(Role::Transform, Some(Flow::Messages), "apart", stateful(true))
        .with(Role::Transform, files, "small", transform(Step::Files(Arc::new(UnusedFile(Cost::Small)))))
        .with(Role::Transform, files, "waiting", transform(Step::Files(Arc::new(UnusedFile(Cost::Waits)))))
        .with(Role::Transform, files, "reader", transform(Step::FileReader(Arc::new(Unused))))
        .with(Role::Sink, Some(Flow::Messages), "probe", move |number| {
            let probe = number.as_u64().and_then(|number| probes.get(number as usize)).cloned();
            probe.map(|probe| Built::Sink(Arc::new(probe))).ok_or_else(|| "no such probe".to_owned())
        })
}

pub(super) fn plan(text: &str, registry: &Registry, cores: usize) -> Plan {
    let document = Document::parse("test.yaml", text).unwrap();
    let graph = crate::read(&document, registry).map_err(|wrong| wrong.render(false)).unwrap();
    Plan::new(&graph, cores)
}

/// The plan of one source that leads to each of these sinks, which are called by their names.
fn broadcast(source: Numbers, sinks: &[(String, Probe)]) -> Plan {
    let names: Vec<&str> = sinks.iter().map(|(name, _)| &**name).collect();
    let options: Vec<String> =
        names.iter().enumerate().map(|(number, name)| format!("  {name}: {{ probe: {number} }}")).collect();
    let text = format!(
        "memory: 8MiB\nsources: {{ in: {{ numbers: 0 }} }}\npipelines: {{ main: {{ from: in, to: [{}] }} }}\nsinks:\n{}\n",
        names.join(", "),
        options.join("\n")
    );
    plan(&text, &registry(source, sinks.iter().map(|(_, probe)| probe.clone()).collect()), 2)
}

fn nowhere() -> StateDir {
    StateDir { folder: std::env::temp_dir().join("thalweg-nowhere"), positions: false, owner: None }
}

pub(super) fn few(waits_for_stop: bool) -> Numbers {
    Numbers { batches: 5, rows: 3, payload: 10, waits_for_stop, saved: Arc::default() }
}
