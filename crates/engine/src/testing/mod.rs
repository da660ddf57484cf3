//! Tests of single components, and the conformance tests that every component of a role must pass.
//!
//! A test writes a component's options as a user does, and checks its output. The `conforms` functions test
//! the duties of every component: no message is lost, and each ack is settled with the right outcome.

mod disturbed;
mod sinks;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::Value;
use thalweg_record::{
    Ack, Batch, Budget, Content, ERROR_REASON, File, FileState, Origin, Problem, Settlement, Share, Times,
};
use thalweg_runtime::{Receiver, Stop, Ticket, channel};

pub use sinks::{open_sink, reasons, sink_conforms, write_all, write_until_durable};
pub use thalweg_config::testing::{messages, options, refused, try_options};
pub use thalweg_record::testing::{batch, batch_with, payloads, rows};

use crate::component::{SourceConfig, TransformConfig};
use crate::metrics::ComponentMetrics;
use crate::parcel::Files;
use crate::source_output::{Limit, OpenFile, Route, Rows, Upstream};
use crate::{
    Component, Context, Details, Disposition, Error, FileError, FileReaderConfig, FileTransformConfig,
    Output, Outputs, Positions, Role, Source, SourceOutput, Temporaries, Transform,
};

thread_local! {
    /// One for each test, since each test has a thread of its own. The files of a component outlive it, as in
    /// a run.
    static TEMPORARY: Temporaries = Temporaries::new(None);
}

/// Returns the context for components under test. Temporary files are removed when the test's thread ends.
pub fn context() -> Context {
    Context {
        name: "test".to_owned(),
        resumes: false,
        is_replay: false,
        resends: true,
        starts_over: true,
        rereads: true,
        batch_bytes: 1 << 20,
        memory: Budget::new(256 << 20).share(),
        temporary: TEMPORARY.with(Clone::clone),
        details: Details::default(),
        journal: None,
        keeps_sequences: false,
        link: None,
    }
}

/// The output of a transform.
#[derive(Debug, Default)]
pub struct Given {
    /// The batches of each output, in order.
    pub outputs: BTreeMap<Output, Vec<Batch>>,
}

impl Given {
    fn note(&mut self, out: &mut Outputs) {
        for (output, batch) in out.take() {
            self.outputs.entry(output).or_default().push(batch);
        }
    }

    /// Resumes a transform until it holds nothing back.
    fn resume(&mut self, transform: &mut dyn Transform, out: &mut Outputs) {
        while let Some(pause) = out.take_held() {
            std::thread::sleep(pause);
            transform.resume(out).expect("it does not fail as a whole");
            self.note(out);
        }
    }

    fn batches(&self, output: Output) -> &[Batch] {
        self.outputs.get(&output).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the payloads of an output, as text.
    pub fn payloads(&self, output: Output) -> Vec<String> {
        self.batches(output).iter().flat_map(payloads).collect()
    }

    /// Returns the fields of an output's messages, as JSON objects without NULLs.
    pub fn rows(&self, output: Output) -> Vec<Value> {
        self.batches(output).iter().flat_map(|batch| rows(batch.fields())).collect()
    }

    /// Returns the fields of the messages of the main output.
    pub fn main(&self) -> Vec<Value> {
        self.rows(Output::Main)
    }

    /// Returns the reasons of the rejected messages.
    pub fn reasons(&self) -> Vec<String> {
        self.errors().into_iter().map(|(_, reason)| reason).collect()
    }

    /// Returns the rejected messages: payload and reason.
    pub fn errors(&self) -> Vec<(String, String)> {
        let reasons = self.rows(Output::Errors).into_iter().map(|row| match row.get(ERROR_REASON) {
            Some(Value::String(reason)) => reason.clone(),
            _ => String::new(),
        });
        self.payloads(Output::Errors).into_iter().zip(reasons).collect()
    }
}

/// Builds one instance of a transform, applies it to the batches in order, then finishes it.
pub fn apply<C: Component + TransformConfig>(yaml: &str, batches: impl IntoIterator<Item = Batch>) -> Given {
    applied::<C>(yaml, &context(), Resumed::BeforeTheNext, batches)
}

/// When a transform is resumed that holds messages back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Resumed {
    /// Before the next batch.
    BeforeTheNext,
    /// After the last batch, as if a transform before it had sent all of them at once.
    AfterTheLast,
}

fn applied<C: Component + TransformConfig>(
    yaml: &str,
    context: &Context,
    resumed: Resumed,
    batches: impl IntoIterator<Item = Batch>,
) -> Given {
    let config = options::<C>(yaml);
    let mut transform = config.build(context).expect("it can be built");
    let mut out = Outputs::new("test".into());
    let mut given = Given::default();
    for batch in batches {
        transform.apply(batch, &mut out).expect("it does not fail as a whole");
        given.note(&mut out);
        if resumed == Resumed::BeforeTheNext {
            given.resume(&mut *transform, &mut out);
        }
    }
    given.resume(&mut *transform, &mut out);
    transform.finish(&mut out).expect("it does not fail as a whole");
    given.note(&mut out);
    given.resume(&mut *transform, &mut out);
    given
}

/// Returns the file at a path, as a source would find it. Its ack has no receiver.
///
/// # Panics
/// If there is none.
pub fn file_at(path: &std::path::Path) -> File {
    let found = std::fs::metadata(path).expect("there is a file");
    let folder: Arc<std::path::Path> = path.parent().unwrap_or(path).into();
    let times =
        Times { modified: found.modified().ok(), accessed: found.accessed().ok(), ..Times::default() };
    let origin = Origin::found("test".into(), path.to_owned(), folder, found.len(), times);
    let origin = origin.in_state(FileState::of(&found));
    File::new(origin, Content::Path(path.to_owned()))
}

/// Returns a file in memory.
pub fn file_of(name: &str, content: &[u8]) -> File {
    let origin = Origin::new("test".into(), name.into(), content.len() as u64);
    File::new(origin, content.to_vec().into())
}

/// Builds a file transform and applies it to a file.
///
/// # Errors
/// The reason why the file was rejected.
///
/// # Panics
/// If it cannot be built, or failed for a reason other than the file.
pub async fn apply_to_file<C: Component + FileTransformConfig>(
    yaml: &str,
    file: &mut File,
) -> Result<Disposition, Problem> {
    let config = options::<C>(yaml);
    let mut transform = config.build(&context()).expect("it can be built");
    match transform.apply(file).await {
        Ok(disposition) => Ok(disposition),
        Err(FileError::Rejected(problem)) => Err(problem),
        Err(FileError::Failed(error)) => panic!("{}", error.full()),
    }
}

/// The messages read out of a file.
#[derive(Debug, Default)]
pub struct Unpacked {
    /// Its messages.
    pub main: Vec<Batch>,
    /// Its rejected messages.
    pub errors: Vec<Batch>,
    /// The reason why the file was rejected, if it was.
    pub problem: Option<Problem>,
}

impl Unpacked {
    /// Returns the payloads of its messages, as text.
    pub fn payloads(&self) -> Vec<String> {
        self.main.iter().flat_map(payloads).collect()
    }

    /// Returns the offset in the file, in bytes, at which each message begins.
    pub fn positions(&self) -> Vec<u64> {
        self.main.iter().filter_map(Batch::positions).flat_map(|at| at.values().to_vec()).collect()
    }

    /// Returns the fields of its messages, as JSON objects without NULLs.
    pub fn rows(&self) -> Vec<Value> {
        self.main.iter().flat_map(|batch| rows(batch.fields())).collect()
    }

    /// Returns the rejected messages: payload and reason.
    pub fn errors(&self) -> Vec<(String, String)> {
        let rows = self.errors.iter().flat_map(|batch| rows(batch.fields()));
        let reasons = rows.map(|row| row.get(ERROR_REASON).and_then(Value::as_str).unwrap_or("").to_owned());
        self.errors.iter().flat_map(payloads).zip(reasons).collect()
    }
}

/// Messages or files that a source under test sent together.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "only tests hold it, and a few at a time")]
pub enum Arrived {
    /// A batch of messages.
    Messages(Batch),
    /// Files: several small ones, or a single one that takes long.
    Files(Vec<File>),
}

/// Receives one output of a source under test: messages or files.
pub struct OutputReceiver {
    messages: Receiver<Batch>,
    files: Receiver<Files>,
}

impl OutputReceiver {
    fn new() -> (Route, Self) {
        let (messages, messages_out) = channel(usize::MAX);
        let (files, files_out) = channel(usize::MAX);
        let route = Route { files: Some(vec![files]), ..Route::messages(vec![messages]) };
        (route, Self { messages: messages_out, files: files_out })
    }

    /// Waits for the next batch or files. Returns None when the source has ended and everything was taken.
    pub async fn take(&self) -> Option<(Ticket, Arrived)> {
        tokio::select! {
            Some(taken) = self.messages.take() => Some((taken.ticket, Arrived::Messages(taken.item))),
            Some(taken) = self.files.take() => Some((taken.ticket, Arrived::Files(taken.item))),
            else => None,
        }
    }

    #[cfg(test)]
    pub(crate) fn into_messages(self) -> Receiver<Batch> {
        self.messages
    }
}

/// Returns an output for testing a source, and the receivers of its main output and of its `errors` output.
pub(crate) fn source_output(
    stop: Stop,
    budget: &Budget,
    batch_bytes: usize,
    saved: BTreeMap<String, Value>,
) -> (SourceOutput, OutputReceiver, OutputReceiver) {
    let (failures, _) = tokio::sync::mpsc::unbounded_channel();
    let name: Arc<str> = "source".into();
    let positions = Positions::new(name.clone(), Role::Source, saved, failures);
    let upstream = Upstream::Source(positions, None);
    output(name, Role::Source, stop, budget.share(), batch_bytes, upstream)
}

/// Returns an output for testing a file reader on `file`, and the receivers of its main output and of its
/// `errors` output.
pub fn file_output(
    budget: &Budget,
    batch_bytes: usize,
    file: &File,
) -> (SourceOutput, OutputReceiver, OutputReceiver) {
    let name: Arc<str> = "test".into();
    let open = Upstream::File(Arc::new(Mutex::new(OpenFile::of_test(&name, file))));
    output(name, Role::Transform, Stop::default(), budget.share(), batch_bytes, open)
}

fn output(
    name: Arc<str>,
    role: Role,
    stop: Stop,
    share: Share,
    batch_bytes: usize,
    upstream: Upstream,
) -> (SourceOutput, OutputReceiver, OutputReceiver) {
    let (main, main_out) = OutputReceiver::new();
    let (errors, errors_out) = OutputReceiver::new();
    let metrics = ComponentMetrics::new(name, role, "test");
    let (traffic, singly) = (Arc::default(), false);
    let output = SourceOutput {
        share,
        batch_bytes,
        stop,
        limit: None,
        metrics,
        traffic,
        main,
        errors,
        singly,
        rows: None,
        leaves_rest: false,
        sequence: None,
        upstream,
    };
    (output, main_out, errors_out)
}

/// Reads the messages out of a file. All are held in memory, so the file must not be large.
///
/// # Panics
/// If it cannot be built, or failed for a reason other than the file.
pub async fn unpack<C: Component + FileReaderConfig>(
    yaml: &str,
    file: &mut File,
    batch_bytes: usize,
) -> Unpacked {
    let mut context = context();
    context.batch_bytes = batch_bytes;
    let mut reader = options::<C>(yaml).build(&context).expect("it can be built");
    let (mut out, main, errors) = file_output(&Budget::new(256 << 20), batch_bytes, file);
    let problem = match reader.unpack(file, &mut out).await {
        Ok(()) => None,
        Err(FileError::Rejected(problem)) => Some(problem),
        Err(FileError::Failed(error)) => panic!("{}", error.full()),
    };
    drop(out);
    let mut unpacked = Unpacked { problem, ..Unpacked::default() };
    for (from, to) in [(main, &mut unpacked.main), (errors, &mut unpacked.errors)] {
        while let Some((_, Arrived::Messages(mut batch))) = from.take().await {
            batch.take_ack().settle(thalweg_record::Outcome::Delivered);
            to.push(batch);
        }
    }
    unpacked
}

/// The output of a source.
#[derive(Debug, Default)]
pub struct Sent {
    /// The batches that it sent.
    pub main: Vec<Batch>,
    /// The batches that it rejected.
    pub errors: Vec<Batch>,
    /// The error that it ended with, if any.
    pub result: Option<Error>,
}

impl Sent {
    /// Returns the payloads that were sent, as text.
    pub fn payloads(&self) -> Vec<String> {
        self.main.iter().flat_map(payloads).collect()
    }
}

/// A source that runs in the background of a test, with a budget and positions as in a run.
pub struct RunningSource {
    /// Receives its main output.
    pub main: OutputReceiver,
    /// Receives its `errors` output.
    pub errors: OutputReceiver,
    /// Requests the source to stop.
    pub stop: Stop,
    /// The source's task.
    pub task: tokio::task::JoinHandle<Result<(), Error>>,
    /// The source's positions: they move with batches that are settled.
    pub positions: Arc<crate::Positions>,
}

/// Starts a source as a run would, beginning with `saved` positions. Must be called within a tokio runtime.
///
/// # Panics
/// If it cannot be built.
pub fn start<C: Component + SourceConfig>(
    yaml: &str,
    batch_bytes: usize,
    saved: BTreeMap<String, Value>,
) -> RunningSource {
    let mut context = context();
    context.resumes = !saved.is_empty();
    context.batch_bytes = batch_bytes;
    let source = options::<C>(yaml).build(&context).expect("it can be built");
    start_source(source, batch_bytes, saved)
}

/// As [`start`] without positions, for a source that may fail: it is run again after temporary errors, as in
/// a run.
///
/// # Panics
/// If it cannot be built.
pub fn start_retried<C: Component + SourceConfig>(yaml: &str, batch_bytes: usize) -> RunningSource {
    let context = Context { batch_bytes, ..context() };
    let source = options::<C>(yaml).build(&context).expect("it can be built");
    start_source(Box::new(Retried(source)), batch_bytes, BTreeMap::new())
}

struct Retried(Box<dyn Source>);

#[async_trait]
impl Source for Retried {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        loop {
            match self.0.run(out).await {
                Err(error) if !error.kind().is_temporary() => return Err(error),
                Err(_) if !out.is_stopping() => tokio::time::sleep(Duration::from_millis(50)).await,
                _ => return Ok(()),
            }
        }
    }
}

/// Starts a source that is built already: see [`start`].
///
/// # Panics
/// Never.
pub fn start_source(
    source: Box<dyn Source>,
    batch_bytes: usize,
    saved: BTreeMap<String, Value>,
) -> RunningSource {
    start_source_within(&Budget::new(64 << 20), source, batch_bytes, saved)
}

/// As [`start_source`], with a memory budget.
///
/// # Panics
/// Never.
pub fn start_source_within(
    budget: &Budget,
    source: Box<dyn Source>,
    batch_bytes: usize,
    saved: BTreeMap<String, Value>,
) -> RunningSource {
    started(budget, source, batch_bytes, saved, Bounds::default())
}

/// The bounds of the output of a source, beside memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bounds {
    /// The most messages that it may send.
    pub limit: Option<u64>,
    /// The most messages of a batch, as before a slow transform: a source that is stopped leaves what it has
    /// not sent to the next run.
    pub rows: Option<usize>,
}

/// As [`start_source`], with bounds.
///
/// # Panics
/// Never.
pub fn start_bounded(source: Box<dyn Source>, batch_bytes: usize, bounds: Bounds) -> RunningSource {
    started(&Budget::new(64 << 20), source, batch_bytes, BTreeMap::new(), bounds)
}

fn started(
    budget: &Budget,
    mut source: Box<dyn Source>,
    batch_bytes: usize,
    saved: BTreeMap<String, Value>,
    bounds: Bounds,
) -> RunningSource {
    let stop = Stop::default();
    let (output, main, errors) = source_output(stop.clone(), budget, batch_bytes, saved);
    let Bounds { limit, rows } = bounds;
    let (limit, leaves_rest) = (limit.map(Limit::new), rows.is_some());
    let mut output = SourceOutput { limit, rows: rows.map(Rows::new), leaves_rest, ..output };
    let positions = output.positions().cloned().expect("a source has positions");
    let task = tokio::spawn(async move { source.run(&mut output).await });
    RunningSource { main, errors, stop, task, positions }
}

impl RunningSource {
    /// Waits for the next batch. Returns None after this time, and if the source has ended.
    ///
    /// # Panics
    /// If files arrive.
    pub async fn take_batch(&self, wait: Duration) -> Option<Batch> {
        match tokio::time::timeout(wait, self.main.take()).await.ok()?? {
            (_, Arrived::Messages(batch)) => Some(batch),
            (_, Arrived::Files(_)) => panic!("files arrived"),
        }
    }

    /// As [`take_batch`](Self::take_batch), for messages that are numbers. Settles them, and returns the
    /// numbers.
    ///
    /// # Panics
    /// If one is no number.
    pub async fn take_numbers(&self, wait: Duration) -> Option<Vec<u32>> {
        let batch = self.take_batch(wait).await?;
        let numbers = numbers(&batch);
        batch.settle(thalweg_record::Outcome::Delivered);
        Some(numbers)
    }

    /// Waits until the source ends and returns what it sent, all of it settled.
    pub async fn finish(self) -> Sent {
        let main = async {
            let mut all = Vec::new();
            while let Some((_, Arrived::Messages(mut batch))) = self.main.take().await {
                batch.take_ack().settle(thalweg_record::Outcome::Delivered);
                all.push(batch);
            }
            all
        };
        let errors = async {
            let mut all = Vec::new();
            while let Some((_, Arrived::Messages(mut batch))) = self.errors.take().await {
                batch.take_ack().settle(thalweg_record::Outcome::Rejected);
                all.push(batch);
            }
            all
        };
        let (main, errors) = tokio::join!(main, errors);
        let result = match self.task.await {
            Ok(result) => result.err(),
            Err(error) => Some(Error::permanent(error.to_string())),
        };
        Sent { main, errors, result }
    }
}

/// Returns the payloads of a batch, which are numbers.
///
/// # Panics
/// If one is no number.
pub fn numbers(batch: &Batch) -> Vec<u32> {
    payloads(batch).iter().map(|text| text.parse().expect("a number")).collect()
}

/// Runs a source to its end and returns what it sent, all of it settled.
pub async fn read_all<C: Component + SourceConfig>(yaml: &str, batch_bytes: usize) -> Sent {
    start::<C>(yaml, batch_bytes, BTreeMap::new()).finish().await
}

/// Tests the duty of every transform: each message of `payloads` goes to an output, goes to `errors`, or is
/// settled as filtered. None is dropped. The test uses one batch, and then a batch for each message. Then it
/// applies all batches before it resumes the transform. A transform that works in pieces gets a batch size of
/// one byte for this, so that it holds messages back.
///
/// # Panics
/// If the component does not conform.
pub fn transform_conforms<C: Component + TransformConfig>(yaml: &str, payloads: &[&str]) {
    use Resumed::{AfterTheLast, BeforeTheNext};
    let (whole, half) = (payloads.len().max(1), payloads.len().div_ceil(2).max(1));
    let small = || Context { batch_bytes: 1, ..context() };
    for (chunk, resumed, context) in [
        (whole, BeforeTheNext, context()),
        (1, BeforeTheNext, context()),
        (half, AfterTheLast, small()),
        (1, AfterTheLast, small()),
    ] {
        let settlements: Arc<Mutex<Vec<Settlement>>> = Arc::default();
        let batches: Vec<Batch> = payloads
            .chunks(chunk)
            .map(|chunk| {
                let settlements = settlements.clone();
                let ack = Ack::new("test".into(), move |settlement| settlements.lock().push(settlement));
                batch_with(chunk, ack)
            })
            .collect();
        let count = batches.len();
        let given = applied::<C>(yaml, &context, resumed, batches);
        for batch in given.outputs.into_values().flatten() {
            assert!(batch.rows() > 0, "an empty batch was given");
            assert_eq!(batch.fields().num_rows(), batch.rows());
            batch.settle(thalweg_record::Outcome::Delivered);
        }
        let settlements = settlements.lock();
        assert_eq!(settlements.len(), count, "an acknowledgement was kept back");
        for settlement in settlements.iter() {
            assert!(settlement.outcome.is_safe(), "a message was dropped: {settlement:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize, JsonSchema)]
    struct Forgetful {}

    impl Component for Forgetful {
        const NAME: &'static str = "forgetful";
        const EXAMPLE: &'static str = "";
    }

    impl TransformConfig for Forgetful {
        fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
            Ok(Box::new(Held(None)))
        }
    }

    /// Holds each batch back, and has room for one only.
    struct Held(Option<Batch>);

    impl Transform for Held {
        fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
            self.0 = Some(batch);
            out.hold(Duration::ZERO);
            Ok(())
        }

        fn resume(&mut self, out: &mut Outputs) -> Result<(), Error> {
            out.send(self.0.take());
            Ok(())
        }
    }

    #[test]
    #[should_panic(expected = "a message was dropped")]
    fn a_transform_that_forgets_what_it_holds_back_does_not_conform() {
        transform_conforms::<Forgetful>("{}", &["a", "b"]);
    }
}
