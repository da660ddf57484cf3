use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use thalweg_engine::testing::{self, Arrived};
use thalweg_engine::{Error, Reading, Rejects, Sink, Source, SourceOutput};
use thalweg_record::Outcome;

use super::Ledger;
use crate::client::{Incoming, Partition};
use crate::session::Session;
use crate::session::tests::{Broker, Commit, Fake, session};
use crate::sink::KafkaSink;
use crate::sink::testing::transactional;

const COUNT: i64 = 400;

/// Reads numbers from a partition without end, and commits their offsets by a ledger.
struct Numbers {
    broker: Arc<Broker>,
    session: Arc<Session<Fake>>,
    /// The number of records in a batch.
    size: i64,
}

fn partition() -> Partition {
    Partition { topic: "in".into(), number: 0 }
}

fn record(number: i64) -> Incoming {
    Incoming {
        partition: partition(),
        offset: number,
        timestamp: 0,
        key: None,
        value: Some(number.to_string().into()),
        headers: Vec::new(),
    }
}

#[async_trait]
impl Source for Numbers {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let ledger = Arc::new(Ledger::new(self.session.clone(), out));
        ledger.break_off("it begins");
        let mut next = 0;
        loop {
            if ledger.is_broken() {
                ledger.clone().renew().await?;
                next = self.broker.offset(&partition());
                ledger.forget(&[partition()]);
                ledger.mend();
            }
            if next >= COUNT {
                ledger.end_now().await;
                match ledger.is_broken() {
                    true => continue,
                    false => return Ok(()),
                }
            }
            ledger.set_generation(Some(self.broker.generation()));
            let records: Vec<Incoming> = (next..COUNT.min(next + self.size)).map(record).collect();
            let values: Vec<String> = (next..COUNT.min(next + self.size)).map(|n| n.to_string()).collect();
            let payload = testing::batch(values.iter().map(String::as_str)).payload().clone();
            let count = ledger.count();
            let Some(mut owed) = ledger.admit(&partition(), count).await else { continue };
            owed.note(&records);
            out.send(Reading { payload, path: None, positions: None, checkpoint: None }).await?;
            ledger.end_if_due(&mut owed).await;
            next += self.size;
        }
    }
}

/// Runs once, with a sink. Returns true if the run came to its end.
async fn run(broker: &Arc<Broker>, size: i64, killed_after: Option<Duration>) -> bool {
    let session = session(broker, Duration::from_secs(10));
    let numbers = Numbers { broker: broker.clone(), session: session.clone(), size };
    let source = testing::start_source(Box::new(numbers), 1 << 10, Default::default());
    let yaml = "{ brokers: 'a:1', topic: t, transactional_id: x }";
    let mut sink = transactional(&testing::options::<KafkaSink>(yaml), session);
    let write = async {
        while let Some((_, Arrived::Messages(batch))) = source.main.take().await {
            let mut rejects = Rejects::default();
            while let Err(error) = sink.write(&batch, &mut rejects).await {
                assert!(error.kind().is_temporary(), "{}", error.full());
            }
            batch.settle(Outcome::Delivered);
        }
    };
    let has_ended = match killed_after {
        Some(after) => tokio::time::timeout(after, write).await.is_ok(),
        None => {
            write.await;
            true
        }
    };
    source.task.abort();
    has_ended
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_record_is_stored_once_whatever_becomes_of_commits_and_runs() {
    let outcomes = [Commit::Done, Commit::Failed, Commit::Unanswered, Commit::Lost, Commit::Fenced];
    for seed in 0..40_u64 {
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = move |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let broker = Arc::new(Broker::default());
        broker.plan((0..next(30)).map(|_| outcomes[next(5) as usize]).collect::<Vec<_>>());
        let size = 1 + next(60) as i64;
        for _ in 0..next(4) {
            run(&broker, size, Some(Duration::from_millis(next(20)))).await;
        }
        assert!(run(&broker, size, None).await);
        let expected: Vec<String> = (0..COUNT).map(|number| number.to_string()).collect();
        assert_eq!(broker.stored(), expected, "seed {seed}");
        assert_eq!(broker.offset(&partition()), COUNT);
    }
}
