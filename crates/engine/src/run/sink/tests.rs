use parking_lot::Mutex;

use super::*;
use crate::run::flushes::Flushes;
use crate::run::saves::{Haste, Saver};
use async_trait::async_trait;
use thalweg_runtime::{Stop, channel};

use crate::{Role, testing};

/// Counts what it wrote.
#[derive(Default)]
struct Counting {
    /// How often it cannot be opened.
    refusals: u32,
    written: u64,
}

#[async_trait]
impl Sink for Counting {
    async fn open(&mut self, _: Option<Value>) -> Result<(), Error> {
        match self.refusals.checked_sub(1) {
            Some(left) => {
                self.refusals = left;
                Err(Error::temporary("not yet"))
            }
            None => Ok(()),
        }
    }

    async fn write(&mut self, batch: &Batch, _: &mut Rejects) -> Result<WriteOutcome, Error> {
        self.written += batch.rows() as u64;
        Ok(WriteOutcome::Durable)
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn state(&self) -> Option<Value> {
        Some(self.written.into())
    }
}

fn writer(sink: impl Sink + 'static) -> Writer {
    Writer {
        sink: Box::new(sink),
        errors: Vec::new(),
        ports: SinkPorts::default(),
        metrics: ComponentMetrics::new("out".into(), Role::Sink, "test"),
        fields: FieldWatch::default(),
        budget: Budget::new(1 << 20),
        retries: Retries { stop: Stop::default(), log: Arc::default() },
        state: None,
        barrier: CheckpointBarrier::default(),
        limit: None,
        is_dispensable: false,
        pending: Pending::default(),
        condition: Condition::default(),
        stop: Stop::default(),
        removed: Arc::default(),
        reopens: Reopens::default(),
        commits: Commits::new(Saver::new().saves()),
        uncommitted: Uncommitted::default(),
        leaving: None,
        member: Arc::new(Flushes::new(Arc::default())).join(),
    }
}

/// Runs a sink over batches of two messages. Returns the noted state at each acknowledgement.
async fn states_seen(sink: Counting, batches: usize) -> Vec<Option<Value>> {
    let (sender, input) = channel(1 << 20);
    let state: Arc<Mutex<Option<Value>>> = Arc::default();
    let seen: Arc<Mutex<Vec<Option<Value>>>> = Arc::default();
    for _ in 0..batches {
        let (state, seen) = (state.clone(), seen.clone());
        let mut batch = testing::batch(["one", "two"]);
        *batch.ack_mut() = Ack::new("test".into(), move |_| seen.lock().push(state.lock().clone()));
        sender.push(batch, 6).unwrap();
    }
    drop(sender);
    let writer = Writer { state: Some(state), ..writer(sink) };
    let (metrics, shortage) = (writer.metrics.clone(), writer.budget.shortage());
    run(vec![writer], input, None, metrics, shortage).await.unwrap();
    std::mem::take(&mut seen.lock())
}

#[tokio::test]
async fn the_state_has_what_is_acknowledged() {
    let seen = states_seen(Counting::default(), 2).await;
    assert_eq!(seen, [Some(Value::from(2)), Some(Value::from(4))]);
}

#[tokio::test]
async fn a_sink_that_cannot_be_opened_yet_is_opened_later() {
    let sink = Counting { refusals: 1, written: 0 };
    assert_eq!(states_seen(sink, 1).await, [Some(Value::from(2))]);
}

/// Fails for good with these batches, counted from 1.
struct Failing {
    with: std::ops::RangeInclusive<u32>,
    given: u32,
    flushes: WriteOutcome,
}

#[async_trait]
impl Sink for Failing {
    async fn write(&mut self, _: &Batch, _: &mut Rejects) -> Result<WriteOutcome, Error> {
        self.given += 1;
        if self.with.contains(&self.given) { Err(Error::permanent("no")) } else { Ok(self.flushes) }
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// The outcomes of batches that could go another way, a second and a half between them.
async fn outcomes(sink: Failing, batches: usize) -> Vec<Outcome> {
    let (sender, input) = channel(1 << 20);
    let writer = writer(sink);
    let (metrics, shortage) = (writer.metrics.clone(), writer.budget.shortage());
    let running = tokio::spawn(run(vec![writer], input, None, metrics, shortage));
    let outcomes: Arc<Mutex<Vec<Outcome>>> = Arc::default();
    for _ in 0..batches {
        let outcomes = outcomes.clone();
        let mut batch = testing::batch(["one"]);
        *batch.ack_mut() = Ack::with_failover("test".into(), move |s| outcomes.lock().push(s.outcome));
        sender.push(batch, 3).unwrap();
        tokio::time::sleep(Duration::from_millis(1500)).await;
    }
    drop(sender);
    running.await.unwrap().unwrap();
    std::mem::take(&mut outcomes.lock())
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_failed_is_left_alone_for_a_while_and_then_tried_again() {
    use Outcome::{Delivered, Failed};
    // Its clock is the real one, which stands still here, so nothing but the first is tried.
    let sink = Failing { with: 2..=2, given: 0, flushes: WriteOutcome::Durable };
    assert_eq!(outcomes(sink, 4).await, [Delivered, Failed, Failed, Failed]);
    let mut writer = writer(Failing { with: 1..=1, given: 0, flushes: WriteOutcome::Durable });
    let long_ago = Instant::now().checked_sub(LEFT_ALONE).unwrap();
    writer.condition = Condition::Failed { at: long_ago, reason: String::new(), unopened: None };
    for expected in [Failed, Delivered] {
        let outcome: Arc<Mutex<Option<Outcome>>> = Arc::default();
        let seen = outcome.clone();
        let mut batch = testing::batch(["one"]);
        *batch.ack_mut() = Ack::with_failover("test".into(), move |s| *seen.lock() = Some(s.outcome));
        writer.take(0, batch).await.unwrap();
        assert_eq!(*outcome.lock(), Some(expected));
        if let Condition::Failed { at, .. } = &mut writer.condition {
            *at = long_ago;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn earlier_batches_are_flushed_before_a_failed_batch_takes_the_other_route() {
    let sink = Failing { with: 2..=2, given: 0, flushes: WriteOutcome::Buffered };
    assert_eq!(outcomes(sink, 2).await, [Outcome::Delivered, Outcome::Failed]);
}

/// Asks for a flush all the time, rejects everything, and cannot flush.
struct Unflushable;

#[async_trait]
impl Sink for Unflushable {
    async fn write(&mut self, batch: &Batch, rejects: &mut Rejects) -> Result<WriteOutcome, Error> {
        (0..batch.rows()).for_each(|row| rejects.reject(row as u32, "too long"));
        Ok(WriteOutcome::Staged)
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Err(Error::permanent("no space"))
    }

    fn is_due(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn a_broken_sink_is_not_flushed_again_and_again() {
    let mut writer = writer(Unflushable);
    // A batch without valid messages owes nothing. It does not keep the others from another route.
    let (errors, _rejected) = channel(1 << 20);
    writer.errors = vec![errors];
    writer.take(0, testing::batch(["one"])).await.unwrap();
    let outcome: Arc<Mutex<Option<Outcome>>> = Arc::default();
    let seen = outcome.clone();
    let ack = Ack::with_failover("test".into(), move |settlement| *seen.lock() = Some(settlement.outcome));
    writer.pending.kept.push_back(ack);
    assert!(writer.is_restless());
    writer.rest().await.unwrap();
    assert_eq!(*outcome.lock(), Some(Outcome::Failed));
    writer.reopens.asked.fetch_add(1, Ordering::Relaxed);
    assert!(!writer.is_restless());
}

/// Has room for one batch, and cannot flush. Counts how often a batch is given.
struct Shut(Arc<AtomicU64>);

#[async_trait]
impl Sink for Shut {
    async fn write(&mut self, _: &Batch, _: &mut Rejects) -> Result<WriteOutcome, Error> {
        match self.0.fetch_add(1, Ordering::Relaxed) {
            0 => Ok(WriteOutcome::Buffered),
            1 => Err(Error::temporary("no room")),
            _ => Ok(WriteOutcome::Durable),
        }
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Err(Error::permanent("no space"))
    }

    fn writes_whole(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn nothing_is_written_to_a_sink_whose_flush_failed_while_a_batch_waited_for_room() {
    let (given, outcomes) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Vec::new())));
    let mut writer = writer(Shut(given.clone()));
    for _ in 0..3 {
        let seen = outcomes.clone();
        let mut batch = testing::batch(["one"]);
        *batch.ack_mut() = Ack::with_failover("test".into(), move |s| seen.lock().push(s.outcome));
        writer.take(0, batch).await.unwrap();
    }
    assert_eq!(*outcomes.lock(), [Outcome::Failed; 3]);
    assert_eq!(given.load(Ordering::Relaxed), 2);
    assert!(matches!(writer.condition, Condition::Broken { .. }));
}

/// Sends requests that take a while; refuses every seventh.
struct Requests(Arc<Mutex<UnderWay>>);

#[derive(Default)]
struct UnderWay {
    now: usize,
    most: usize,
    sent: usize,
}

#[async_trait]
impl Sink for Requests {
    async fn write(&mut self, _: &Batch, _: &mut Rejects) -> Result<WriteOutcome, Error> {
        let number = {
            let mut under_way = self.0.lock();
            under_way.now += 1;
            under_way.most = under_way.most.max(under_way.now);
            under_way.sent += 1;
            under_way.sent
        };
        tokio::time::sleep(Duration::from_millis(10)).await;
        self.0.lock().now -= 1;
        if number.is_multiple_of(7) { Err(Error::overloaded("too much")) } else { Ok(WriteOutcome::Durable) }
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn requests_are_under_way_up_to_the_limit_and_what_was_refused_is_sent_again() {
    let (sender, input) = channel(1 << 20);
    let delivered: Arc<Mutex<usize>> = Arc::default();
    for _ in 0..30 {
        let delivered = delivered.clone();
        let mut batch = testing::batch(["one"]);
        *batch.ack_mut() = Ack::new("test".into(), move |_| *delivered.lock() += 1);
        sender.push(batch, 3).unwrap();
    }
    drop(sender);
    let under_way: Arc<Mutex<UnderWay>> = Arc::default();
    let limit = ConcurrencyLimit::fixed(3);
    let worker = |_| Writer { limit: Some(limit.clone()), ..writer(Requests(under_way.clone())) };
    let writers: Vec<Writer> = (0..8).map(worker).collect();
    let (metrics, shortage) = (writers[0].metrics.clone(), writers[0].budget.shortage());
    run(writers, input, None, metrics, shortage).await.unwrap();
    let under_way = under_way.lock();
    assert_eq!((*delivered.lock(), under_way.now, under_way.most), (30, 0, 3));
    assert_eq!(under_way.sent, 30 + under_way.sent / 7);
}

/// Keeps what it is given, two batches at a time.
#[derive(Default)]
struct Hoarding {
    kept: usize,
    take_committed: usize,
}

#[async_trait]
impl Sink for Hoarding {
    async fn write(&mut self, _: &Batch, _: &mut Rejects) -> Result<WriteOutcome, Error> {
        self.kept += 1;
        if self.kept == 2 {
            self.take_committed += std::mem::take(&mut self.kept);
        }
        Ok(WriteOutcome::Staged)
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn take_committed(&mut self) -> usize {
        std::mem::take(&mut self.take_committed)
    }
}

#[tokio::test]
async fn staged_batches_are_settled_when_the_sink_commits_them_and_at_the_end() {
    let mut writer = writer(Hoarding::default());
    let acknowledged: Arc<Mutex<Vec<usize>>> = Arc::default();
    for number in 1..=3 {
        let seen = acknowledged.clone();
        let mut batch = testing::batch(["one"]);
        *batch.ack_mut() = Ack::new("test".into(), move |_| seen.lock().push(number));
        writer.take(0, batch).await.unwrap();
        writer.flush(Flush::Regular).await.unwrap();
        let expected: &[usize] = if number < 2 { &[] } else { &[1, 2] };
        assert_eq!(*acknowledged.lock(), expected);
    }
    writer.finish().await.unwrap();
    assert_eq!(*acknowledged.lock(), [1, 2, 3]);
}

/// Keeps the last batch: an earlier one is durable when the next one comes.
#[derive(Default)]
struct Overlapping {
    kept: usize,
    durable: usize,
}

#[async_trait]
impl Sink for Overlapping {
    async fn write(&mut self, _: &Batch, _: &mut Rejects) -> Result<WriteOutcome, Error> {
        self.durable += std::mem::replace(&mut self.kept, 1);
        Ok(WriteOutcome::Staged)
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn make_durable(&mut self) -> Result<(), Error> {
        self.durable += std::mem::take(&mut self.kept);
        Ok(())
    }

    fn take_committed(&mut self) -> usize {
        std::mem::take(&mut self.durable)
    }
}

#[tokio::test]
async fn the_rest_of_a_divided_batch_is_made_durable_before_a_checkpoint() {
    for (divides, left) in [(true, 0), (false, 1)] {
        let mut writer = writer(Overlapping::default());
        let origin = || Ack::new("test".into(), |_| {});
        let first = origin();
        let second = if divides { first.split() } else { origin() };
        for ack in [first, second] {
            let mut batch = testing::batch(["one"]);
            *batch.ack_mut() = ack;
            writer.take(0, batch).await.unwrap();
        }
        assert_eq!(writer.pending.kept.len(), 1);
        writer.flush(Flush::Regular).await.unwrap();
        assert_eq!(writer.pending.kept.len(), 1);
        writer.flush(Flush::Checkpoint).await.unwrap();
        assert_eq!(writer.pending.kept.len(), left);
        writer.finish().await.unwrap();
    }
}

/// The calls that a sink got.
#[derive(Default)]
struct Asked {
    flushes: usize,
    steps: usize,
}

/// Has a step for each batch, which waits for a checkpoint, and always wants to flush.
struct Stepping {
    uncommitted: usize,
    asked: Arc<Mutex<Asked>>,
}

#[async_trait]
impl Sink for Stepping {
    async fn write(&mut self, _: &Batch, _: &mut Rejects) -> Result<WriteOutcome, Error> {
        self.uncommitted += 1;
        Ok(WriteOutcome::Staged)
    }

    async fn flush(&mut self) -> Result<(), Error> {
        self.asked.lock().flushes += 1;
        Ok(())
    }

    fn uncommitted(&self) -> usize {
        self.uncommitted
    }

    async fn commit(&mut self, count: usize) -> Result<(), Error> {
        self.uncommitted -= count;
        self.asked.lock().steps += count;
        Ok(())
    }

    fn is_due(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn a_sink_whose_input_never_pauses_flushes_and_takes_the_steps_of_checkpoints() {
    let (saver, asked) = (Saver::new(), Arc::<Mutex<Asked>>::default());
    let sink = Stepping { uncommitted: 0, asked: asked.clone() };
    let seen = || {
        let asked = asked.lock();
        (asked.flushes, asked.steps)
    };
    let mut writer =
        Writer { state: Some(Arc::default()), commits: Commits::new(saver.saves()), ..writer(sink) };
    writer.take(0, testing::batch(["one"])).await.unwrap();
    assert_eq!(seen(), (0, 0));
    saver.complete(saver.begin());
    writer.pending.flushed = Instant::now().checked_sub(FLUSH_EVERY).unwrap();
    writer.take(1, testing::batch(["two"])).await.unwrap();
    assert_eq!(seen(), (1, 1));
}

#[tokio::test]
async fn a_sink_with_thousands_of_steps_asks_for_a_checkpoint_at_once_and_only_once() {
    let saver = Saver::new();
    let mut commits = Commits::new(saver.saves());
    let is_asked = async || tokio::time::timeout(Duration::ZERO, saver.asked()).await.ok();
    for (steps, expected) in [(4095, None), (4096, Some(Haste::AtOnce)), (9000, None)] {
        commits.note(steps);
        assert_eq!(is_asked().await, expected, "{steps}");
    }
    // This save has all of them. More come before the sink takes them.
    saver.complete(saver.begin());
    for (steps, expected) in [(9001, None), (14_000, Some(Haste::AtOnce))] {
        commits.note(steps);
        assert_eq!(is_asked().await, expected, "{steps}");
    }
}

/// Notes whether it was finished or suspended.
struct Ending(Arc<Mutex<Vec<&'static str>>>);

#[async_trait]
impl Sink for Ending {
    async fn write(&mut self, _: &Batch, _: &mut Rejects) -> Result<WriteOutcome, Error> {
        Ok(WriteOutcome::Staged)
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), Error> {
        self.0.lock().push("finished");
        Ok(())
    }

    async fn suspend(&mut self) -> Result<(), Error> {
        self.0.lock().push("suspended");
        Ok(())
    }
}

#[tokio::test]
async fn a_sink_is_suspended_if_the_run_was_asked_to_stop_and_a_later_one_continues() {
    for (stops, keeps, expected) in
        [(false, true, "finished"), (true, false, "finished"), (true, true, "suspended")]
    {
        let ended = Arc::default();
        let mut writer = writer(Ending(Arc::clone(&ended)));
        writer.state = keeps.then(Arc::default);
        if stops {
            writer.stop.request();
            writer.stop.heed();
        }
        let outcome: Arc<Mutex<Option<Outcome>>> = Arc::default();
        let seen = outcome.clone();
        let mut batch = testing::batch(["one"]);
        *batch.ack_mut() = Ack::new("test".into(), move |settled| *seen.lock() = Some(settled.outcome));
        writer.take(0, batch).await.unwrap();
        writer.finish().await.unwrap();
        assert_eq!((ended.lock().as_slice(), *outcome.lock()), (&[expected][..], Some(Outcome::Delivered)));
    }
}

/// Has room for one batch until it is flushed, and then for none.
#[derive(Default)]
struct Short {
    has_written: bool,
    is_flushed: bool,
}

#[async_trait]
impl Sink for Short {
    async fn write(&mut self, _: &Batch, _: &mut Rejects) -> Result<WriteOutcome, Error> {
        if !std::mem::replace(&mut self.has_written, true) {
            return Ok(WriteOutcome::Buffered);
        }
        if !self.is_flushed {
            return Err(Error::temporary("no room"));
        }
        std::future::pending().await
    }

    async fn flush(&mut self) -> Result<(), Error> {
        self.is_flushed = true;
        Ok(())
    }

    fn writes_whole(&self) -> bool {
        true
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_written_is_settled_while_the_next_batch_waits_for_room() {
    let (sender, input) = channel(1 << 20);
    let (tell, settled) = tokio::sync::oneshot::channel();
    let mut first = testing::batch(["one"]);
    *first.ack_mut() = Ack::new("test".into(), move |settlement| {
        let _ = tell.send(settlement.outcome);
    });
    sender.push(first, 3).unwrap();
    sender.push(testing::batch(["two"]), 3).unwrap();
    let writer = writer(Short::default());
    let (metrics, shortage) = (writer.metrics.clone(), writer.budget.shortage());
    let running = tokio::spawn(run(vec![writer], input, None, metrics, shortage));
    let settled = tokio::time::timeout(Duration::from_secs(3600), settled).await.expect("it is not kept");
    assert_eq!(settled.unwrap(), Outcome::Delivered);
    running.abort();
}
