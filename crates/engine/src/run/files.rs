//! One copy of a segment of files: each file goes through its transforms by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use thalweg_record::{File, Outcome, Parcel, Problem};
use thalweg_runtime::{ConcurrencyLimit, HandOver, Sender, Sequencer, Ticket, Worker};

use crate::Error;
use crate::component::{Disposition, FileError, FileTransform};
use crate::graph::{OnError, Targets};
use crate::metrics::ComponentMetrics;
use crate::outlets::Output;
use crate::plan::{Destination, Target};

use super::segment::Results;
use super::{Retries, RunFailure};

/// What happens to a file, for those who watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileEvent {
    /// A transform begins with it.
    Started,
    /// It went through.
    WentOn,
    /// It ended there.
    Ended(Outcome),
    /// It was rejected; its problem says why.
    Rejected,
    /// It went past, since the transform is not for files like it.
    WentPast,
}

/// Watches what happens to each file.
pub trait FileWatcher: Send + Sync {
    /// Something happened to a file in a transform or sink of this name. Called on the thread that works at it.
    fn saw(&self, component: &Arc<str>, file: &File, event: FileEvent);
}

/// What an operator does.
pub(super) enum Work {
    /// A transform of files.
    Transform(Box<dyn FileTransform>),
    /// It sends those that have a problem to `errors`.
    Part,
}

/// A transform of files that runs.
pub(super) struct FileOperator {
    pub(super) work: Work,
    pub(super) metrics: Arc<ComponentMetrics>,
    pub(super) targets: Targets,
    pub(super) on_error: OnError,
    /// Whether it is a sink: what went through is delivered.
    pub(super) delivers: bool,
    pub(super) outputs: BTreeMap<Output, Arc<[Target]>>,
}

/// One copy of a segment of files.
pub(super) struct FileSegmentWorker {
    pub(super) operators: Vec<FileOperator>,
    pub(super) exits: BTreeMap<Destination, Sender<Parcel>>,
    /// The exits to what takes each file by itself.
    pub(super) singly: BTreeSet<Destination>,
    /// Shared by the copies; none if the order need not be kept.
    pub(super) sequencer: Option<Arc<Sequencer<Results>>>,
    /// Shared by the copies; none if it is fixed how many work at once.
    pub(super) limit: Option<ConcurrencyLimit>,
    pub(super) retries: Retries,
    pub(super) watcher: Option<Arc<dyn FileWatcher>>,
}

impl Worker for FileSegmentWorker {
    type Item = Parcel;
    type Error = RunFailure;

    fn has_room(&self) -> bool {
        self.exits.values().all(Sender::has_room)
    }

    async fn room(&mut self) {
        for exit in self.exits.values() {
            exit.room().await;
        }
    }

    async fn take(&mut self, ticket: Ticket, parcel: Parcel) -> Result<(), RunFailure> {
        let Parcel::Files(files) = parcel else {
            return Err(
                Error::permanent("messages came where files are taken; this is a bug of thalweg").into()
            );
        };
        let mut left: BTreeMap<Destination, Vec<File>> = BTreeMap::new();
        for file in files {
            // For each file anew: how long a group takes says nothing of how much is too much.
            let permit = match self.limit.as_ref().map(|limit| limit.acquire(file.size())) {
                Some(permit) => Some(permit.await),
                None => None,
            };
            self.carry(file, &mut left).await?;
            if let Some(permit) = permit {
                permit.succeeded();
            }
        }
        let results = self.parcels(left);
        let mut at_once = Vec::new();
        match &self.sequencer {
            Some(sequencer) => {
                sequencer.submit(ticket, results, |results| self.deliver(results, &mut at_once));
            }
            None => self.deliver(results, &mut at_once),
        }
        at_once.into_iter().for_each(HandOver::run);
        Ok(())
    }

    async fn finish(self) -> Result<(), RunFailure> {
        Ok(())
    }
}

impl FileSegmentWorker {
    /// Takes a file through the operators; what leaves the segment is put into `left`.
    async fn carry(
        &mut self,
        file: File,
        left: &mut BTreeMap<Destination, Vec<File>>,
    ) -> Result<(), RunFailure> {
        let mut open = vec![(0, file)];
        // When one operator ends the next begins: looking at the clock is a part of what a small file costs.
        let mut since = Instant::now();
        while let Some((at, mut file)) = open.pop() {
            let output = match self.apply(at, &mut file, &mut since).await? {
                Next::Output(output) => output,
                Next::End(outcome) => {
                    file.settle(outcome);
                    continue;
                }
            };
            let targets = self.operators[at].outputs.get(&output).cloned().unwrap_or_default();
            let Some((&last, others)) = targets.split_last() else {
                file.settle(Outcome::Filtered);
                continue;
            };
            let mut give = |target, file| match target {
                Target::Operator(next) => open.push((next, file)),
                Target::Stage(stage) => left.entry(stage).or_default().push(file),
            };
            others.iter().for_each(|&target| give(target, file.share()));
            give(last, file);
        }
        Ok(())
    }

    /// Has an operator do its work on a file, again and again after temporary errors.
    async fn apply(&mut self, at: usize, file: &mut File, since: &mut Instant) -> Result<Next, RunFailure> {
        let operator = &mut self.operators[at];
        let name = &operator.metrics.name;
        file.ack_mut().enter(name);
        let transform = match &mut operator.work {
            Work::Transform(transform) => transform,
            Work::Part if file.problem().is_some() => return Ok(Next::Output(Output::Errors)),
            Work::Part => return Ok(Next::Output(Output::Main)),
        };
        let watch =
            |file: &File, event| self.watcher.iter().for_each(|watcher| watcher.saw(name, file, event));
        let is_meant = match operator.targets {
            Targets::WithoutErrors => file.problem().is_none(),
            Targets::WithErrors => file.problem().is_some(),
            Targets::All => true,
        };
        if !is_meant {
            watch(file, FileEvent::WentPast);
            return Ok(Next::Output(Output::Main));
        }
        let metrics = &operator.metrics;
        metrics.add_in(1, usize::try_from(file.size()).unwrap_or(usize::MAX));
        watch(file, FileEvent::Started);
        let mut attempt = 0;
        let trouble = loop {
            let applied = transform.apply(file).await;
            let now = Instant::now();
            metrics.add_busy_until(*since, now);
            *since = now;
            match applied {
                Ok(fate) => {
                    let outcome = match fate {
                        Disposition::End(outcome) => Some(outcome),
                        Disposition::Continue => operator.delivers.then_some(Outcome::Delivered),
                    };
                    if outcome != Some(Outcome::Filtered) {
                        metrics.add_out(1, usize::try_from(file.size()).unwrap_or(usize::MAX));
                    }
                    watch(file, outcome.map_or(FileEvent::WentOn, FileEvent::Ended));
                    return Ok(outcome.map_or(Next::Output(Output::Main), Next::End));
                }
                Err(FileError::Failed(error)) if error.kind().is_temporary() => {
                    if let Err(error) = self.retries.pause(metrics, error, attempt).await {
                        break FileError::Failed(error);
                    }
                    *since = Instant::now();
                    attempt += 1;
                }
                Err(trouble) => break trouble,
            }
        };
        match trouble {
            FileError::Failed(error) => {
                Err(RunFailure::of(metrics, error.context(format!("`{name}` failed at `{file}`"))))
            }
            FileError::Rejected(problem) => {
                file.set_problem(Problem { component: name.clone(), ..problem });
                metrics.add_errors(1);
                watch(file, FileEvent::Rejected);
                Ok(Next::Output(match operator.on_error {
                    OnError::Divert => Output::Errors,
                    OnError::Carry => Output::Main,
                }))
            }
        }
    }

    fn parcels(&self, left: BTreeMap<Destination, Vec<File>>) -> Results {
        let mut results = Vec::new();
        for (stage, files) in left {
            if self.singly.contains(&stage) {
                results.extend(files.into_iter().map(|file| (stage, Parcel::Files(vec![file]))));
            } else {
                results.push((stage, Parcel::Files(files)));
            }
        }
        results
    }

    fn deliver(&self, results: Results, at_once: &mut Vec<HandOver>) {
        super::segment::deliver(&self.exits, results, at_once);
    }
}

/// Where a file goes after an operator.
enum Next {
    Output(Output),
    End(Outcome),
}
