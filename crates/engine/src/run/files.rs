//! One worker of a segment of files: each file goes through its transforms by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use thalweg_record::{File, Outcome, Problem};
use thalweg_runtime::{ConcurrencyLimit, Failpoint, HandOver, Sequencer, Ticket, Worker};

use super::channels::Exits;
use super::edges::Port;
use super::{Retries, RunFailure};
use crate::Error;
use crate::component::{Disposition, FileError, FileTransform};
use crate::graph::Targets;
use crate::metrics::ComponentMetrics;
use crate::parcel::{Files, bytes_of, shares};
use crate::plan::{Destination, Target};
use crate::settings::OnError;
use thalweg_record::Output;

/// An event in the life of a file, for a [`FileWatcher`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileEvent {
    /// A transform begins with the file.
    Started,
    /// The file went through.
    Passed,
    /// The file ended there.
    Ended(Outcome),
    /// The file was rejected; its problem says why.
    Rejected,
    /// The file was skipped: the transform is not for files like it.
    Skipped,
}

/// Receives what happens to each file.
pub trait FileWatcher: Send + Sync {
    /// Something happened to a file in a transform or sink of this name. Called on the thread that processes
    /// the file.
    fn saw(&self, component: &Arc<str>, file: &File, event: FileEvent);
}

/// The files that leave the segment, in order.
type Results = Vec<(Destination, Files)>;

/// The work of an operator.
pub(super) enum Work {
    /// It transforms files.
    Transform(Box<dyn FileTransform>),
    /// It sends files with a problem to `errors`.
    Marker,
}

/// A file transform that runs.
pub(super) struct FileOperator {
    pub(super) work: Work,
    pub(super) metrics: Arc<ComponentMetrics>,
    pub(super) targets: Targets,
    pub(super) on_error: OnError,
    /// True if it is a sink: what went through is delivered.
    pub(super) delivers: bool,
    pub(super) outputs: BTreeMap<Output, Arc<[Target]>>,
    /// Count and show what leaves by its outputs.
    pub(super) ports: BTreeMap<Output, Arc<Port>>,
    /// Shows what it receives, if it is a sink.
    pub(super) input: Option<Arc<Port>>,
}

/// One worker of a segment of files.
pub(super) struct FileSegmentWorker {
    pub(super) operators: Vec<FileOperator>,
    pub(super) exits: Exits<Files>,
    /// The exits to stages that take each file by itself.
    pub(super) singly: BTreeSet<Destination>,
    /// Shared by the workers. None if the order need not be kept.
    pub(super) sequencer: Option<Arc<Sequencer<Results>>>,
    /// Shared by the workers. None if the number of those at work is fixed.
    pub(super) limit: Option<ConcurrencyLimit>,
    pub(super) retries: Retries,
    pub(super) watcher: Option<Arc<dyn FileWatcher>>,
}

impl Worker for FileSegmentWorker {
    type Item = Files;
    type Error = RunFailure;

    fn has_room(&self) -> bool {
        self.exits.has_room()
    }

    async fn room(&mut self) {
        self.exits.room().await;
    }

    async fn take(&mut self, ticket: Ticket, files: Files) -> Result<(), RunFailure> {
        let mut left: BTreeMap<Destination, Files> = BTreeMap::new();
        let mut done = Ok(());
        for file in files {
            // A permit for each file: how long a group takes says nothing of how much is too much.
            let permit = match self.limit.as_ref().map(|limit| limit.acquire(file.size())) {
                Some(permit) => Some(permit.await),
                None => None,
            };
            done = self.carry(file, &mut left).await;
            if done.is_err() {
                // The ticket is submitted all the same, because the results of later tickets wait for it.
                break;
            }
            if let Some(permit) = permit {
                permit.succeeded();
            }
        }
        let results = self.results(left);
        let mut at_once = Vec::new();
        match &self.sequencer {
            Some(sequencer) => {
                sequencer.submit(ticket, results, |results| self.exits.deliver(results, &mut at_once));
            }
            None => self.exits.deliver(results, &mut at_once),
        }
        at_once.into_iter().for_each(HandOver::run);
        done
    }

    async fn finish(self) -> Result<(), RunFailure> {
        Ok(())
    }
}

impl FileSegmentWorker {
    /// Takes a file through the operators. Files that leave the segment are put into `left`.
    async fn carry(&mut self, file: File, left: &mut BTreeMap<Destination, Files>) -> Result<(), RunFailure> {
        let mut open = vec![(0, file)];
        // When one operator ends, the next begins: reading the clock is a part of what a small file costs.
        let mut since = Instant::now();
        while let Some((at, mut file)) = open.pop() {
            let operator = &mut self.operators[at];
            let output = match operator.apply(&mut file, &mut since, &self.watcher, &self.retries).await? {
                Next::Output(output) => output,
                Next::End(outcome) => {
                    file.settle(outcome);
                    Failpoint::Acknowledged.pass();
                    continue;
                }
            };
            if let Some(port) = operator.ports.get(&output) {
                port.pass(&file, 1, bytes_of(&file));
            }
            let targets = operator.outputs.get(&output).cloned().unwrap_or_default();
            for (&target, mut file) in targets.iter().zip(shares(file, targets.len())) {
                match target {
                    Target::Operator(next) => open.push((next, file)),
                    Target::Stage(stage) => {
                        // Hundreds of files may wait in channels.
                        file.take_open();
                        left.entry(stage).or_default().push(file);
                    }
                }
            }
        }
        Ok(())
    }

    fn results(&self, left: BTreeMap<Destination, Files>) -> Results {
        let mut results = Vec::new();
        for (stage, files) in left {
            if self.singly.contains(&stage) {
                results.extend(files.into_iter().map(|file| (stage, vec![file])));
            } else {
                results.push((stage, files));
            }
        }
        results
    }
}

impl FileOperator {
    /// Processes a file, with retries after temporary errors.
    async fn apply(
        &mut self,
        file: &mut File,
        since: &mut Instant,
        watcher: &Option<Arc<dyn FileWatcher>>,
        retries: &Retries,
    ) -> Result<Next, RunFailure> {
        let name = self.metrics.name.clone();
        let bytes = bytes_of(file);
        file.ack_mut().enter_with(&name, || (1, bytes));
        if let Work::Marker = self.work {
            let output = if file.problem().is_some() { Output::Errors } else { Output::Main };
            return Ok(Next::Output(output));
        }
        let watch = |file: &File, event| watcher.iter().for_each(|watcher| watcher.saw(&name, file, event));
        if !self.is_for(file) {
            watch(file, FileEvent::Skipped);
            return Ok(Next::Output(Output::Main));
        }
        self.metrics.add_in(1, bytes);
        if let Some(port) = &self.input {
            port.show(&*file);
        }
        watch(file, FileEvent::Started);
        match self.transform(file, since, retries).await {
            Ok(disposition) => {
                let outcome = self.passed(file, disposition);
                watch(file, outcome.map_or(FileEvent::Passed, FileEvent::Ended));
                Ok(outcome.map_or(Next::Output(Output::Main), Next::End))
            }
            Err(FileError::Failed(error)) => {
                Err(RunFailure::of(&self.metrics, error.context(format!("`{name}` failed at `{file}`"))))
            }
            Err(FileError::Rejected(problem)) => {
                file.set_problem(Problem { component: name.clone(), ..problem });
                self.metrics.add_errors(1);
                watch(file, FileEvent::Rejected);
                Ok(Next::Output(match self.on_error {
                    OnError::Divert => Output::Errors,
                    OnError::Carry => Output::Main,
                }))
            }
        }
    }

    fn is_for(&self, file: &File) -> bool {
        match self.targets {
            Targets::WithoutErrors => file.problem().is_none(),
            Targets::WithErrors => file.problem().is_some(),
            Targets::All => true,
        }
    }

    /// Calls the transform, again after each temporary error.
    async fn transform(
        &mut self,
        file: &mut File,
        since: &mut Instant,
        retries: &Retries,
    ) -> Result<Disposition, FileError> {
        let Work::Transform(transform) = &mut self.work else { return Ok(Disposition::Continue) };
        if !transform.only_reads() {
            file.take_open();
        }
        let mut attempt = 0;
        loop {
            let applied = match Failpoint::FileBefore.check() {
                Ok(()) => transform.apply(file).await,
                Err(error) => Err(FileError::Failed(
                    Error::temporary("the file cannot be processed now").caused_by(error),
                )),
            };
            Failpoint::FileAfter.pass();
            let now = Instant::now();
            self.metrics.add_busy_until(*since, now);
            *since = now;
            match applied {
                Err(FileError::Failed(error)) if error.kind().is_temporary() => {
                    retries.pause(&self.metrics, &error, attempt).await;
                    *since = Instant::now();
                    attempt += 1;
                }
                other => return other,
            }
        }
    }

    /// Counts a file that went through. Returns how it ended, if it ended here.
    fn passed(&self, file: &File, disposition: Disposition) -> Option<Outcome> {
        let outcome = match disposition {
            Disposition::End(outcome) => Some(outcome),
            Disposition::Continue => self.delivers.then_some(Outcome::Delivered),
        };
        if outcome != Some(Outcome::Filtered) {
            self.metrics.add_out(1, bytes_of(file));
        }
        outcome
    }
}

/// Where a file goes after an operator.
enum Next {
    Output(Output),
    End(Outcome),
}
