//! One worker of a segment of messages: its transforms, called one after the other on each batch.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thalweg_record::{Batch, Budget};
use thalweg_runtime::{ConcurrencyLimit, HandOver, Sequencer, Stop, Ticket, Traffic, Worker};

use super::RunFailure;
use super::channels::Exits;
use super::checkpoints::SharedTransform;
use super::edges::Port;
use super::tap::Tappable;
use crate::Error;
use crate::component::{Step, Transform, WaitingTransform};
use crate::metrics::ComponentMetrics;
use crate::missing::FieldWatch;
use crate::parcel::{Files, bytes_of, shares};
use crate::plan::{Destination, Target};
use thalweg_record::{Output, Outputs};

/// The results of a batch that leave the segment, in order.
#[derive(Default)]
pub(super) struct Results {
    batches: Vec<(Destination, Batch)>,
    files: Vec<(Destination, Files)>,
}

/// The work of an operator.
pub(super) enum Work {
    /// It is called.
    Calls(Box<dyn Transform>),
    /// It is called, and its state is saved.
    Kept(SharedTransform),
    /// It may wait, and is the first of its segment.
    Waits(Box<dyn WaitingTransform>),
}

/// A transform that runs.
pub(super) struct Operator {
    work: Work,
    metrics: Arc<ComponentMetrics>,
    fields: FieldWatch,
    names_intrinsic: bool,
    /// True if it sends messages at times of its own.
    ticks: bool,
    /// The next of these times.
    due: Option<Instant>,
    out: Outputs,
    outputs: BTreeMap<Output, Arc<[Target]>>,
    ports: BTreeMap<Output, Arc<Port>>,
}

impl Operator {
    pub(super) fn new(
        work: Work,
        metrics: Arc<ComponentMetrics>,
        outputs: BTreeMap<Output, Arc<[Target]>>,
    ) -> Self {
        let out = Outputs::new(metrics.name.clone());
        Self {
            work,
            metrics,
            fields: FieldWatch::default(),
            names_intrinsic: false,
            ticks: false,
            due: None,
            out,
            outputs,
            ports: BTreeMap::new(),
        }
    }

    /// Counts and shows what leaves by these outputs.
    pub(super) fn through(mut self, ports: BTreeMap<Output, Arc<Port>>) -> Self {
        self.ports = ports;
        self
    }

    /// Watches for the fields that the transform reads.
    pub(super) fn reading(mut self, config: &Step) -> Self {
        self.fields = FieldWatch::new(config.fields(), config.field_use());
        self.names_intrinsic = config.names_intrinsic();
        self.ticks = config.ticks();
        // A restored state may be due.
        self.note_due();
        self
    }

    /// Notes when the transform is due. Cached, because a checkpoint may lock the transform.
    fn note_due(&mut self) {
        if self.ticks {
            self.due = match &self.work {
                Work::Calls(transform) => transform.due(),
                Work::Kept(transform) => transform.lock().due(),
                Work::Waits(_) => None,
            };
        }
    }

    /// True if the transform is due.
    fn is_due(&self) -> bool {
        self.due.is_some_and(|due| due <= Instant::now())
    }

    /// Calls the transform.
    fn call(&mut self, batch: Batch) -> Result<(), Error> {
        match &mut self.work {
            Work::Calls(transform) => transform.apply(batch, &mut self.out),
            Work::Kept(transform) => transform.lock().apply(batch, &mut self.out),
            Work::Waits(_) => Err(Error::permanent("it waits within a segment; this is a bug of thalweg")),
        }
    }

    /// Notes content that leaves by an output.
    fn pass(&self, output: Output, content: &impl Tappable, items: usize, bytes: usize) {
        if let Some(port) = self.ports.get(&output) {
            port.pass(content, items, bytes);
        }
    }

    fn targets(&self, output: Output) -> Arc<[Target]> {
        self.outputs.get(&output).cloned().unwrap_or_default()
    }
}

/// One worker of a segment.
pub(super) struct SegmentWorker {
    pub(super) operators: Vec<Operator>,
    pub(super) exits: Exits<Batch>,
    /// The exits of files that were made of messages.
    pub(super) file_exits: Exits<Files>,
    /// Shared by the workers. None if there is one worker, or the order need not be kept.
    pub(super) sequencer: Option<Arc<Sequencer<Results>>>,
    /// Shared by the workers. None if the number of those at work is fixed.
    pub(super) limit: Option<ConcurrencyLimit>,
    pub(super) budget: Budget,
    /// The items that move in the group of the segment.
    pub(super) traffic: Arc<Traffic>,
    /// The request to stop the run.
    pub(super) stop: Stop,
}

impl Worker for SegmentWorker {
    type Item = Batch;
    type Error = RunFailure;

    fn has_room(&self) -> bool {
        self.exits.has_room() && self.file_exits.has_room()
    }

    async fn room(&mut self) {
        self.exits.room().await;
        self.file_exits.room().await;
    }

    async fn take(&mut self, ticket: Ticket, batch: Batch) -> Result<(), RunFailure> {
        let permit = match self.limit.as_ref().map(|limit| limit.acquire(batch.payload_bytes() as u64)) {
            Some(permit) => Some(permit.await),
            None => None,
        };
        let mut results = Results::default();
        let begun = self.begin(batch, &mut results).await;
        // Not kept while the ticket waits for its turn: an earlier ticket may be waiting for the permit.
        if let Some(permit) = permit.filter(|_| begun.is_ok()) {
            permit.succeeded();
        }
        let mut done = match begun {
            Ok(()) => self.resume(Some(ticket), &mut results).await,
            failed => failed,
        };
        // Of batches that come one after the other, none may get as far as the transform that is due.
        if done.is_ok() {
            done = self.tick(Some(ticket), &mut results).await;
        }
        if done.is_err() {
            // The ticket is submitted without results, because those of later tickets wait for it.
            results = Results::default();
        }
        let mut at_once = Vec::new();
        match &self.sequencer {
            Some(sequencer) => {
                sequencer.submit(ticket, results, |results| self.deliver(results, &mut at_once));
            }
            None => self.deliver(results, &mut at_once),
        }
        at_once.into_iter().for_each(HandOver::run);
        done
    }

    /// While a checkpoint holds the sources back, nothing new may move.
    fn is_restless(&self) -> bool {
        self.operators.iter().any(Operator::is_due) && !self.traffic.is_held()
    }

    async fn rest(&mut self) -> Result<(), RunFailure> {
        self.room().await;
        let Some(_pass) = self.traffic.try_enter() else { return Ok(()) };
        let mut results = Results::default();
        self.tick(None, &mut results).await?;
        self.deliver_all(&mut results);
        Ok(())
    }

    async fn finish(mut self) -> Result<(), RunFailure> {
        let is_stopped = self.stop.was_heeded();
        // A checkpoint has either the messages that the transforms hold back, or those that they send now.
        let _pass = self.traffic.enter().await;
        let mut results = Results::default();
        for at in 0..self.operators.len() {
            let operator = &mut self.operators[at];
            let start = Instant::now();
            let finished = match &mut operator.work {
                Work::Calls(transform) if is_stopped => transform.stop(&mut operator.out),
                Work::Kept(transform) if is_stopped => transform.lock().stop(&mut operator.out),
                Work::Calls(transform) => transform.finish(&mut operator.out),
                Work::Kept(transform) => transform.lock().finish(&mut operator.out),
                Work::Waits(transform) => transform.finish(&mut operator.out).await,
            };
            operator.metrics.add_busy(start);
            finished.map_err(|error| failed(&operator.metrics, error))?;
            operator.metrics.missing.add(std::mem::take(&mut operator.fields));
            self.pass_on(at, &mut results)?;
            self.resume(None, &mut results).await?;
        }
        self.deliver_all(&mut results);
        Ok(())
    }
}

impl SegmentWorker {
    /// Calls the first operator, and all that follow. Waits for the first, if it is one that does.
    async fn begin(&mut self, mut batch: Batch, results: &mut Results) -> Result<(), RunFailure> {
        let Some(Operator { work: Work::Waits(transform), metrics, out, .. }) = self.operators.first_mut()
        else {
            return self.apply(0, batch, results);
        };
        enters(&mut batch, metrics);
        let start = Instant::now();
        let applied = transform.apply(batch, out).await;
        metrics.add_busy(start);
        applied.map_err(|error| failed(metrics, error))?;
        self.pass_on(0, results)
    }

    /// Calls the operators that hold messages back, until none does. The last one of the segment comes first,
    /// so that it has nothing left when those before it send more. The results so far leave as soon as those
    /// of earlier tickets have left: together they may be much larger than the batch. At the end of the
    /// segment there is no ticket: all have been submitted.
    async fn resume(&mut self, ticket: Option<Ticket>, results: &mut Results) -> Result<(), RunFailure> {
        while let Some((at, pause)) = self.holding() {
            if let (Some(sequencer), Some(ticket)) = (&self.sequencer, ticket) {
                sequencer.turn(ticket).await;
            }
            self.deliver_all(results);
            self.room().await;
            if pause > Duration::ZERO {
                tokio::time::sleep(pause).await;
            }
            let Operator { work, metrics, out, .. } = &mut self.operators[at];
            let start = Instant::now();
            let resumed = match work {
                Work::Calls(transform) => transform.resume(out),
                Work::Kept(transform) => transform.lock().resume(out),
                Work::Waits(_) => Ok(()),
            };
            metrics.add_busy(start);
            resumed.map_err(|error| failed(metrics, error))?;
            self.operators[at].note_due();
            self.pass_on(at, results)?;
        }
        Ok(())
    }

    /// Calls the operators that are due. There is a ticket after a batch, as of [`resume`](Self::resume).
    async fn tick(&mut self, ticket: Option<Ticket>, results: &mut Results) -> Result<(), RunFailure> {
        for at in 0..self.operators.len() {
            let operator = &mut self.operators[at];
            if !operator.is_due() {
                continue;
            }
            let start = Instant::now();
            let ticked = match &mut operator.work {
                Work::Calls(transform) => transform.tick(&mut operator.out),
                Work::Kept(transform) => transform.lock().tick(&mut operator.out),
                Work::Waits(_) => Ok(()),
            };
            operator.metrics.add_busy(start);
            ticked.map_err(|error| failed(&operator.metrics, error))?;
            operator.note_due();
            self.pass_on(at, results)?;
            self.resume(ticket, results).await?;
        }
        Ok(())
    }

    /// Returns the last operator that holds messages back, and the pause before it is resumed.
    fn holding(&mut self) -> Option<(usize, Duration)> {
        let operators = self.operators.iter_mut().enumerate().rev();
        operators.filter_map(|(at, operator)| Some((at, operator.out.take_held()?))).next()
    }

    fn apply(&mut self, at: usize, mut batch: Batch, results: &mut Results) -> Result<(), RunFailure> {
        let operator = &mut self.operators[at];
        enters(&mut batch, &operator.metrics);
        operator.fields.note(&batch);
        let start = Instant::now();
        let applied = match operator.names_intrinsic && batch.mixes_intrinsic() {
            true => batch.by_intrinsic_fields().into_iter().try_for_each(|part| operator.call(part)),
            false => operator.call(batch),
        };
        operator.metrics.add_busy(start);
        applied.map_err(|error| failed(&operator.metrics, error))?;
        operator.note_due();
        self.pass_on(at, results)
    }

    /// Passes an operator's output to its targets.
    fn pass_on(&mut self, at: usize, results: &mut Results) -> Result<(), RunFailure> {
        for (output, batch) in self.operators[at].out.take() {
            let operator = &self.operators[at];
            let (rows, bytes) = (batch.rows(), batch.payload_bytes());
            if output == Output::Errors {
                operator.metrics.add_errors(rows);
            } else {
                operator.metrics.add_out(rows, bytes);
            }
            operator.pass(output, &batch, rows, bytes);
            let targets = operator.targets(output);
            for (&target, batch) in targets.iter().zip(shares(batch, targets.len())) {
                self.give(target, batch, results)?;
            }
        }
        let files = self.operators[at].out.take_files();
        if !files.is_empty() {
            self.pass_on_files(at, files, results);
        }
        Ok(())
    }

    /// Files that were made of messages leave the segment: nothing in it takes files.
    fn pass_on_files(&mut self, at: usize, files: Files, results: &mut Results) {
        let operator = &self.operators[at];
        let targets = operator.targets(Output::Main);
        let stages: Vec<Destination> = targets.iter().filter_map(|target| target.stage()).collect();
        for file in files {
            operator.metrics.add_out(1, bytes_of(&file));
            operator.pass(Output::Main, &file, 1, bytes_of(&file));
            let shares = stages.iter().zip(shares(file, stages.len()));
            results.files.extend(shares.map(|(&stage, file)| (stage, vec![file])));
        }
    }

    fn give(&mut self, target: Target, batch: Batch, results: &mut Results) -> Result<(), RunFailure> {
        match target {
            Target::Operator(next) => self.apply(next, batch, results),
            Target::Stage(stage) => {
                batch.claim(&self.budget);
                results.batches.push((stage, batch));
                Ok(())
            }
        }
    }

    /// Hands over the results so far, and does the work that the next stages take at once.
    fn deliver_all(&self, results: &mut Results) {
        let mut at_once = Vec::new();
        self.deliver(std::mem::take(results), &mut at_once);
        at_once.into_iter().for_each(HandOver::run);
    }

    fn deliver(&self, results: Results, at_once: &mut Vec<HandOver>) {
        self.exits.deliver(results.batches, at_once);
        self.file_exits.deliver(results.files, at_once);
    }
}

/// Notes that a batch comes to an operator.
fn enters(batch: &mut Batch, metrics: &ComponentMetrics) {
    batch.enter(&metrics.name);
    metrics.add_in(batch.rows(), batch.payload_bytes());
}

fn failed(metrics: &ComponentMetrics, error: Error) -> RunFailure {
    RunFailure::of(metrics, error.context(format!("the transform `{}` failed", metrics.name)))
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use thalweg_record::Outcome;
    use thalweg_runtime::{Taken, channel};

    use super::*;
    use crate::{Role, testing};

    /// Waits, then sends a batch on; at the end, another one.
    struct Late;

    #[async_trait]
    impl WaitingTransform for Late {
        async fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
            tokio::task::yield_now().await;
            out.send(batch);
            Ok(())
        }

        async fn finish(&mut self, out: &mut Outputs) -> Result<(), Error> {
            tokio::task::yield_now().await;
            out.send(testing::batch(["held back"]));
            Ok(())
        }
    }

    /// Doubles its batches.
    struct Twice;

    impl Transform for Twice {
        fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
            out.send(batch.share());
            out.send(batch);
            Ok(())
        }
    }

    /// Fails with batches that begin with "bad".
    struct Picky;

    impl Transform for Picky {
        fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
            if testing::payloads(&batch)[0] == "bad" {
                return Err(Error::permanent("no"));
            }
            out.send(batch);
            Ok(())
        }

        fn finish(&mut self, _: &mut Outputs) -> Result<(), Error> {
            Err(Error::permanent("never"))
        }
    }

    #[tokio::test]
    async fn a_failed_batch_does_not_hold_back_later_ones() {
        let exit = Destination::Sink(0);
        let (out, sink) = channel(usize::MAX);
        let sequencer = Arc::new(Sequencer::default());
        let worker = || {
            let metrics = ComponentMetrics::new("picky".into(), Role::Transform, "test");
            let outputs = BTreeMap::from([(Output::Main, Arc::from([Target::Stage(exit)]))]);
            SegmentWorker {
                operators: vec![Operator::new(Work::Calls(Box::new(Picky)), metrics, outputs)],
                exits: Exits(BTreeMap::from([(exit, out.clone())])),
                file_exits: Exits(BTreeMap::new()),
                sequencer: Some(sequencer.clone()),
                limit: None,
                budget: Budget::new(1 << 20),
                traffic: Arc::default(),
                stop: Stop::default(),
            }
        };
        let (mut first, mut second) = (worker(), worker());
        second.take(1, testing::batch(["good"])).await.unwrap();
        let failure = first.take(0, testing::batch(["bad"])).await.unwrap_err();
        assert_eq!(failure.to_string(), "the transform `picky` failed: no");
        let arrived = sink.take().await.unwrap().item;
        assert_eq!(testing::payloads(&arrived), ["good"]);
        arrived.settle(Outcome::Delivered);
        let failure = second.finish().await.unwrap_err();
        assert_eq!(failure.to_string(), "the transform `picky` failed: never");
    }

    #[tokio::test]
    async fn a_transform_that_waits_begins_a_segment_and_the_next_is_called_when_it_is_done() {
        let exit = Destination::Sink(0);
        let (out, sink) = channel(usize::MAX);
        let operator = |name: &str, work, target| {
            let metrics = ComponentMetrics::new(name.into(), Role::Transform, "test");
            Operator::new(work, metrics, BTreeMap::from([(Output::Main, Arc::from([target]))]))
        };
        let mut worker = SegmentWorker {
            operators: vec![
                operator("late", Work::Waits(Box::new(Late)), Target::Operator(1)),
                operator("twice", Work::Calls(Box::new(Twice)), Target::Stage(exit)),
            ],
            exits: Exits(BTreeMap::from([(exit, out)])),
            file_exits: Exits(BTreeMap::new()),
            sequencer: None,
            limit: None,
            budget: Budget::new(1 << 20),
            traffic: Arc::default(),
            stop: Stop::default(),
        };
        let (input, taken) = channel(usize::MAX);
        input.hand_over(testing::batch(["one"]), 1).map(HandOver::run).ok();
        let taken = taken.take().await.unwrap();
        worker.take(taken.ticket, taken.item).await.unwrap();
        assert_eq!(
            worker.operators.iter().map(|of| of.metrics.counts().rows_out).collect::<Vec<_>>(),
            [1, 2]
        );
        worker.finish().await.unwrap();
        let mut came = Vec::new();
        while let Some(Taken { item: batch, .. }) = sink.take().await {
            came.extend(testing::payloads(&batch));
            batch.settle(Outcome::Delivered);
        }
        assert_eq!(came, ["one", "one", "held back", "held back"]);
    }

    /// Sends the messages of a batch one by one.
    #[derive(Default)]
    struct Slow(Vec<Batch>);

    impl Transform for Slow {
        fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
            for row in (0..batch.rows() as u32).rev() {
                self.0.extend(batch.share().select(&[row])?);
            }
            batch.settle(Outcome::Filtered);
            self.resume(out)
        }

        fn resume(&mut self, out: &mut Outputs) -> Result<(), Error> {
            out.send(self.0.pop());
            if !self.0.is_empty() {
                out.hold(Duration::from_secs(3600));
            }
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_held_back_follows_after_its_pause_and_before_the_next_batch() {
        let exit = Destination::Sink(0);
        let (out, sink) = channel(usize::MAX);
        let operator = |name: &str, work, target| {
            let metrics = ComponentMetrics::new(name.into(), Role::Transform, "test");
            Operator::new(Work::Calls(work), metrics, BTreeMap::from([(Output::Main, Arc::from([target]))]))
        };
        let mut worker = SegmentWorker {
            operators: vec![
                operator("slow", Box::<Slow>::default(), Target::Operator(1)),
                operator("twice", Box::new(Twice), Target::Stage(exit)),
            ],
            exits: Exits(BTreeMap::from([(exit, out)])),
            file_exits: Exits(BTreeMap::new()),
            sequencer: None,
            limit: None,
            budget: Budget::new(1 << 20),
            traffic: Arc::default(),
            stop: Stop::default(),
        };
        let start = tokio::time::Instant::now();
        let received = tokio::spawn(async move {
            let mut came = Vec::new();
            while let Some(Taken { item: batch, .. }) = sink.take().await {
                came.push((testing::payloads(&batch).concat(), start.elapsed().as_secs() / 3600));
                batch.settle(Outcome::Delivered);
            }
            came
        });
        worker.take(0, testing::batch(["a", "b", "c"])).await.unwrap();
        worker.take(1, testing::batch(["d"])).await.unwrap();
        worker.finish().await.unwrap();
        let expected = [("a", 0), ("b", 1), ("c", 2), ("d", 2)];
        let expected =
            expected.into_iter().flat_map(|one| [one, one]).map(|(text, hour)| (text.to_owned(), hour));
        assert_eq!(received.await.unwrap(), expected.collect::<Vec<_>>());
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_that_waits_for_its_turn_does_not_keep_an_earlier_one_from_being_processed() {
        let exit = Destination::Sink(0);
        let (out, sink) = channel(usize::MAX);
        let (sequencer, limit) = (Arc::new(Sequencer::default()), ConcurrencyLimit::fixed(1));
        let worker = || {
            let metrics = ComponentMetrics::new("slow".into(), Role::Transform, "test");
            let outputs = BTreeMap::from([(Output::Main, Arc::from([Target::Stage(exit)]))]);
            SegmentWorker {
                operators: vec![Operator::new(Work::Calls(Box::<Slow>::default()), metrics, outputs)],
                exits: Exits(BTreeMap::from([(exit, out.clone())])),
                file_exits: Exits(BTreeMap::new()),
                sequencer: Some(sequencer.clone()),
                limit: Some(limit.clone()),
                budget: Budget::new(1 << 20),
                traffic: Arc::default(),
                stop: Stop::default(),
            }
        };
        let (mut first, mut second) = (worker(), worker());
        let second = tokio::spawn(async move { second.take(1, testing::batch(["c", "d"])).await });
        tokio::task::yield_now().await;
        first.take(0, testing::batch(["a", "b"])).await.unwrap();
        second.await.unwrap().unwrap();
        drop((first, out));
        let mut came = Vec::new();
        while let Some(Taken { item: batch, .. }) = sink.take().await {
            came.extend(testing::payloads(&batch));
            batch.settle(Outcome::Delivered);
        }
        assert_eq!(came, ["a", "b", "c", "d"]);
    }

    /// Sends a message when it is due, until it has sent two, and another one at the end of the input.
    struct Ticking(Instant, u32);

    impl Transform for Ticking {
        fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
            out.send(batch);
            Ok(())
        }

        fn due(&self) -> Option<Instant> {
            (self.1 < 2).then_some(self.0)
        }

        fn tick(&mut self, out: &mut Outputs) -> Result<(), Error> {
            self.1 += 1;
            out.send(testing::batch([format!("tick {}", self.1)]));
            Ok(())
        }

        fn finish(&mut self, out: &mut Outputs) -> Result<(), Error> {
            out.send(testing::batch(["end"]));
            Ok(())
        }

        fn stop(&mut self, _: &mut Outputs) -> Result<(), Error> {
            Ok(())
        }
    }

    fn ticking(stop: Stop) -> (SegmentWorker, thalweg_runtime::Receiver<Batch>) {
        let exit = Destination::Sink(0);
        let (out, sink) = channel(usize::MAX);
        let metrics = ComponentMetrics::new("ticking".into(), Role::Transform, "test");
        let outputs = BTreeMap::from([(Output::Main, Arc::from([Target::Stage(exit)]))]);
        let work = Work::Calls(Box::new(Ticking(Instant::now(), 0)));
        let mut operator = Operator::new(work, metrics, outputs);
        operator.ticks = true;
        operator.note_due();
        let worker = SegmentWorker {
            operators: vec![operator],
            exits: Exits(BTreeMap::from([(exit, out)])),
            file_exits: Exits(BTreeMap::new()),
            sequencer: None,
            limit: None,
            budget: Budget::new(1 << 20),
            traffic: Arc::default(),
            stop,
        };
        (worker, sink)
    }

    #[tokio::test]
    async fn a_transform_that_is_due_sends_messages_although_none_comes_but_not_during_a_checkpoint() {
        let (mut worker, sink) = ticking(Stop::default());
        let traffic = worker.traffic.clone();
        {
            let _hold = traffic.hold().await;
            assert!(!worker.is_restless());
            worker.rest().await.unwrap();
            assert!(traffic.is_still());
        }
        while worker.is_restless() {
            worker.rest().await.unwrap();
        }
        worker.take(0, testing::batch(["a"])).await.unwrap();
        assert!(!worker.is_restless());
        worker.finish().await.unwrap();
        assert_eq!(received(sink).await, ["tick 1", "tick 2", "a", "end"]);
    }

    /// While batches came one after the other, of which a filter let none pass, nothing left.
    #[tokio::test]
    async fn a_transform_that_is_due_sends_messages_also_between_batches() {
        let (mut worker, sink) = ticking(Stop::default());
        worker.take(0, testing::batch(["a"])).await.unwrap();
        worker.take(1, testing::batch(["b"])).await.unwrap();
        worker.take(2, testing::batch(["c"])).await.unwrap();
        worker.finish().await.unwrap();
        assert_eq!(received(sink).await, ["a", "tick 1", "b", "tick 2", "c", "end"]);
    }

    #[tokio::test]
    async fn a_run_that_was_asked_to_stop_is_no_end_of_the_input() {
        let stop = Stop::default();
        stop.request();
        let (worker, sink) = ticking(stop.clone());
        worker.finish().await.unwrap();
        assert_eq!(received(sink).await, ["end"]);
        stop.heed();
        let (worker, sink) = ticking(stop);
        worker.finish().await.unwrap();
        assert_eq!(received(sink).await, [""; 0]);
    }

    async fn received(sink: thalweg_runtime::Receiver<Batch>) -> Vec<String> {
        let mut came = Vec::new();
        while let Some(Taken { item: batch, .. }) = sink.take().await {
            came.extend(testing::payloads(&batch));
            batch.settle(Outcome::Delivered);
        }
        came
    }
}
