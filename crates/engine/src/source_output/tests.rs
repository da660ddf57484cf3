use std::collections::BTreeMap;

use arrow_array::UInt64Array;
use thalweg_record::{Content, Origin};
use thalweg_runtime::Receiver;
use tokio::sync::mpsc;

use super::*;
use crate::{Role, testing};

fn payloads(payloads: &[&str], checkpoint: Option<Checkpoint>) -> Reading {
    Reading { payload: testing::batch(payloads).payload().clone(), path: None, positions: None, checkpoint }
}

fn reading(checkpoint: Option<Checkpoint>) -> Reading {
    payloads(&["one", "two"], checkpoint)
}

/// An output of a source, and where its messages come out.
fn of_source() -> (SourceOutput, Receiver<Batch>) {
    let (output, main, _) =
        testing::source_output(Stop::default(), &Budget::new(1 << 20), 1 << 10, BTreeMap::new());
    (output, main.into_messages())
}

async fn taken(from: &Receiver<Batch>) -> Batch {
    from.take().await.unwrap().1
}

#[tokio::test]
async fn a_reading_is_answered_when_its_last_part_is_settled_and_moves_its_partition_too() {
    let (mut output, main) = of_source();
    let checkpoint = Checkpoint { partition: "l".into(), offset: 7.into() };
    let mut settled = output.send_acked(reading(Some(checkpoint))).await.unwrap();
    let batch = taken(&main).await;
    let half = batch.share();
    batch.settle(Outcome::Delivered);
    tokio::select! {
        biased;
        settlement = &mut settled => panic!("{settlement:?} although a part is left"),
        () = std::future::ready(()) => {}
    }
    assert_eq!(output.saved("l"), None);
    assert_eq!(output.positions().unwrap().unsettled(), 2);
    half.settle(Outcome::Rejected);
    assert_eq!(settled.await.outcome, Outcome::Rejected);
    assert_eq!(output.saved("l"), Some(7.into()));
    assert_eq!(output.positions().unwrap().unsettled(), 0);
}

#[tokio::test]
async fn a_reading_that_is_dropped_on_its_way_is_answered_as_failed_with_the_place() {
    let (mut output, main) = of_source();
    let settled = output.send_acked(reading(None)).await.unwrap();
    drop(main.take().await);
    let settlement = settled.await;
    assert_eq!(settlement.outcome, Outcome::Failed);
    assert_eq!(settlement.reason.unwrap(), "dropped unsettled in `source`");
}

#[tokio::test]
async fn what_a_protocol_says_of_messages_comes_as_their_fields() {
    let (mut output, main) = of_source();
    let column: arrow_array::ArrayRef = Arc::new(UInt64Array::from(vec![1, 2]));
    let fields = RecordBatch::try_from_iter([("n", column.clone())]).unwrap();
    output.clone().send(Received { reading: reading(None), fields: Some(fields) }).await.unwrap();
    let batch = taken(&main).await;
    assert_eq!(batch.fields().column_by_name("n"), Some(&column));
    let too_few = RecordBatch::try_from_iter([("n", column.slice(0, 1))]).unwrap();
    let error = output.send(Received { reading: reading(None), fields: Some(too_few) }).await.unwrap_err();
    assert_eq!(error.to_string(), "the columns of a batch do not fit together");
    batch.settle(Outcome::Delivered);
}

#[tokio::test]
async fn a_source_that_sends_what_it_does_not_give_has_failed() {
    let (mut output, main) = of_source();
    output.main = Route::files(Vec::new());
    let error = output.send(reading(None)).await.unwrap_err();
    assert_eq!(error.to_string(), "the source `source` sends messages, but gives others");
    assert!(main.try_take().is_none());
}

/// An output of a file reader that has a file open, whose source has its own positions.
struct Reader {
    output: SourceOutput,
    main: Receiver<Batch>,
    errors: Receiver<Batch>,
    positions: Arc<Positions>,
    source: Arc<Positions>,
    file: File,
}

impl Reader {
    fn open() -> Self {
        let (failures, _) = mpsc::unbounded_channel();
        let positions =
            Positions::new("main.lines".into(), Role::Transform, BTreeMap::new(), failures.clone());
        let source = Positions::new("in".into(), Role::Source, BTreeMap::new(), failures);
        let origin = Origin::new("in".into(), "a".into(), 3).at("s3://b/a");
        let mut file = File::new(origin, Content::from(vec![1, 2, 3]));
        let checkpoint = Checkpoint { partition: "l".into(), offset: 1.into() };
        file.ack_mut().merge(source.expect(Some(checkpoint), 1));
        let (output, main, errors) = testing::file_output(&Budget::new(1 << 20), 1 << 10, &file);
        let mut open = OpenFile::none(output.name(), Some(positions.clone()));
        open.open(output.name(), &mut file, Meta { source: "in".into(), path: None, time_us: 0 });
        let Upstream::File(of_output) = &output.upstream else { panic!("it is a file reader's") };
        let mut none = std::mem::replace(&mut *of_output.lock(), open);
        none.close();
        let (main, errors) = (main.into_messages(), errors.into_messages());
        Self { output, main, errors, positions, source, file }
    }

    async fn send(&mut self, offset: u64) {
        let checkpoint = Checkpoint::in_file(offset.into());
        self.output.send(payloads(&["x"], Some(checkpoint))).await.unwrap();
    }

    fn close(&self) {
        let Upstream::File(file) = &self.output.upstream else { panic!("it is a file reader's") };
        file.lock().close();
    }
}

#[tokio::test]
async fn a_file_is_resumed_where_all_before_is_settled_and_forgotten_when_its_source_knows_that_it_is_done() {
    let mut reader = Reader::open();
    assert!(reader.output.keeps_checkpoints() && reader.output.saved_in_file().is_none());
    reader.send(10).await;
    reader.output.reject_each(payloads(&["x"], None), vec!["why".to_owned()]).await.unwrap();
    reader.send(20).await;
    reader.close();
    let [partition] = &reader.positions.partitions()[..] else { panic!() };
    let (first, second) = (taken(&reader.main).await, taken(&reader.main).await);
    let rejected = taken(&reader.errors).await;
    second.settle(Outcome::Delivered);
    first.settle(Outcome::Delivered);
    assert_eq!(reader.positions.saved(partition), None);
    assert_eq!(reader.source.saved("l"), None);
    // The file is settled before its last messages are.
    reader.file.settle(Outcome::Filtered);
    rejected.settle(Outcome::Rejected);
    assert_eq!(reader.source.saved("l"), Some(1.into()));
    assert_eq!(reader.positions.saved(partition), None);
    assert_eq!(reader.positions.take_changes(), [(partition.clone(), None)]);
}

#[tokio::test]
async fn a_file_that_was_read_is_resumed_while_its_last_messages_are_in_flight() {
    let mut reader = Reader::open();
    reader.send(10).await;
    reader.send(20).await;
    reader.close();
    let (first, second) = (taken(&reader.main).await, taken(&reader.main).await);
    first.settle(Outcome::Delivered);
    reader.file.settle(Outcome::Filtered);
    let [partition] = &reader.positions.partitions()[..] else { panic!() };
    assert_eq!(reader.positions.saved(partition), Some(10.into()));
    second.settle(Outcome::Delivered);
    assert_eq!(reader.positions.saved(partition), None);
}
