use std::collections::BTreeMap;

use arrow_array::UInt64Array;
use parking_lot::MutexGuard;
use serde_json::Value;
use thalweg_record::{AckObserver, Content, Origin};
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
    from.take().await.unwrap().item
}

/// A source that waits for what it sent ends its output first. Transforms took that for the end of the input,
/// and sent what they would have left to the next run.
#[tokio::test]
async fn the_stages_behind_a_source_see_a_stop_before_they_see_the_end() {
    let (mut output, _main) = of_source();
    let mut positions = output.clone();
    positions.end();
    assert!(!output.stop.was_heeded());
    output.stop.request();
    output.end();
    assert!(output.stop.was_heeded());
}

/// A source that was between its look at the request and its next batch sent an empty batch.
#[tokio::test]
async fn the_next_batch_has_messages_also_when_the_rest_is_left_to_the_next_run() {
    let (output, _main) = of_source();
    let output = SourceOutput { rows: Some(Rows::new(16)), leaves_rest: true, ..output };
    assert_eq!((output.left(), output.next_rows()), (usize::MAX, 16));
    output.stop.request();
    assert_eq!((output.left(), output.next_rows()), (0, 16));
}

/// A source whose messages a filter dropped read 16 of them at a time, because of a limit behind it.
#[tokio::test(start_paused = true)]
async fn batches_grow_while_a_source_does_not_wait_and_are_small_again_after_it_did() {
    let (output, _main) = of_source();
    let (sender, filter) = thalweg_runtime::channel(1);
    let main = Route::messages(vec![sender]);
    let mut output = SourceOutput { rows: Some(Rows::new(16)), main, ..output };
    let mut most = 0;
    for _ in 0..200 {
        most = output.next_rows();
        output.send(payloads(&vec!["x"; most], None)).await.unwrap();
        taken(&filter).await.settle(Outcome::Filtered);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(most > 1000, "{most}");
    output.send(payloads(&["x"], None)).await.unwrap();
    let slow = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        taken(&filter).await.settle(Outcome::Delivered);
    };
    let (sent, ()) = tokio::join!(output.send(payloads(&["x"], None)), slow);
    sent.unwrap();
    assert_eq!(output.next_rows(), 16);
    taken(&filter).await.settle(Outcome::Delivered);
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

/// An output of a file reader that has the second file of a source open.
struct Reader {
    output: SourceOutput,
    main: Receiver<Batch>,
    errors: Receiver<Batch>,
    positions: Arc<Positions>,
    source: Arc<Positions>,
    /// The ack of the first file.
    earlier: Ack,
    file: File,
}

impl Reader {
    fn open() -> Self {
        let (failures, _) = mpsc::unbounded_channel();
        let positions =
            Positions::new("main.lines".into(), Role::Transform, BTreeMap::new(), failures.clone());
        let source = Positions::new("in".into(), Role::Source, BTreeMap::new(), failures);
        let (earlier, _) = source.expect_in("l".into(), Some(1.into()), 1);
        let origin = Origin::new("in".into(), "a".into(), 3).at("s3://b/a");
        let mut file = File::new(origin, Content::from(vec![1, 2, 3]));
        let (ack, passage) = source.expect_in("l".into(), Some(2.into()), 1);
        file.ack_mut().merge(ack);
        file.set_passage(Some(passage));
        let (output, main, errors) = testing::file_output(&Budget::new(1 << 20), 1 << 10, &file);
        let Upstream::File(open) = &output.upstream else { panic!("it is a file reader's") };
        let mut none =
            std::mem::replace(&mut *open.lock(), OpenFile::none(output.name(), Some(positions.clone())));
        none.close(Outcome::Filtered);
        let (main, errors) = (main.into_messages(), errors.into_messages());
        let reader = Self { output, main, errors, positions, source, earlier, file };
        reader.opened().open(
            &reader.file,
            Meta { source: "in".into(), path: None, time_us: 0, sequence: None, number: 0 },
        );
        reader
    }

    fn opened(&self) -> MutexGuard<'_, OpenFile> {
        let Upstream::File(file) = &self.output.upstream else { panic!("it is a file reader's") };
        file.lock()
    }

    async fn send(&mut self, offset: u64) {
        let checkpoint = Checkpoint::in_file(offset.into());
        self.output.send(payloads(&["x"], Some(checkpoint))).await.unwrap();
    }

    /// The offset in the file at which a later run resumes.
    fn saved(&self) -> Option<Value> {
        let [partition] = &self.positions.partitions()[..] else { panic!("one file") };
        self.positions.saved(partition)
    }
}

#[tokio::test]
async fn what_is_sent_without_a_checkpoint_belongs_to_the_next_one() {
    let mut reader = Reader::open();
    assert!(reader.output.keeps_checkpoints() && reader.output.saved_in_file().is_none());
    reader.send(10).await;
    reader.output.reject_each(payloads(&["x"], None), vec!["why".to_owned()]).await.unwrap();
    reader.send(20).await;
    let (first, second) = (taken(&reader.main).await, taken(&reader.main).await);
    second.settle(Outcome::Delivered);
    assert_eq!(reader.saved(), None);
    // Nothing more has to be sent for the offset to be saved.
    first.settle(Outcome::Delivered);
    assert_eq!(reader.saved(), Some(10.into()));
    taken(&reader.errors).await.settle(Outcome::Rejected);
    assert_eq!(reader.saved(), Some(20.into()));
}

/// Sees nothing.
struct Blind;

impl AckObserver for Blind {
    fn entered(&self, _: Option<&Arc<str>>, _: &Arc<str>, _: usize, _: usize) {}

    fn settled(&self, _: Option<&Arc<str>>) {}
}

/// The trace of a file continues with its messages.
#[tokio::test]
async fn the_observer_of_a_file_sees_its_messages() {
    let mut file = testing::file_of("a", b"x");
    file.ack_mut().merge(Ack::new("in".into(), |_| {}).observed(Arc::new(Blind)));
    let (mut output, main, _errors) = testing::file_output(&Budget::new(1 << 20), 1 << 10, &file);
    let main = main.into_messages();
    output.send(payloads(&["x"], None)).await.unwrap();
    let mut message = taken(&main).await;
    assert!(message.ack().observer().is_some());
    message.take_ack().settle(Outcome::Delivered);
}

#[tokio::test]
async fn a_file_that_was_read_is_known_until_the_position_of_its_source_has_passed_it() {
    let mut reader = Reader::open();
    reader.send(10).await;
    reader.opened().end();
    let last = taken(&reader.main).await;
    assert!(!reader.opened().is_read());
    last.settle(Outcome::Delivered);
    let Reader { file, earlier, source, positions, .. } = reader;
    file.settle(Outcome::Filtered);
    // An earlier file is not read yet: a later run would get this one again.
    assert_eq!(source.saved("l"), None);
    let [partition] = &positions.partitions()[..] else { panic!("one file") };
    assert_eq!(positions.saved(partition), Some("end".into()));
    earlier.settle(Outcome::Filtered);
    assert_eq!(source.saved("l"), Some(2.into()));
    assert_eq!(positions.take_changes(), [(partition.clone(), None)]);
}

#[tokio::test]
async fn a_run_that_is_asked_to_stop_leaves_the_rest_of_a_file_to_a_later_run() {
    let mut reader = Reader::open();
    reader.send(10).await;
    taken(&reader.main).await.settle(Outcome::Delivered);
    reader.output.stop.request();
    let checkpoint = Checkpoint::in_file(20.into());
    let error = reader.output.send(payloads(&["x"], Some(checkpoint))).await.unwrap_err();
    assert_eq!(error.to_string(), "the run is stopping");
    assert!(reader.main.try_take().is_none());
    assert_eq!(reader.saved(), Some(10.into()));
    assert!(!reader.positions.has_failed() && !reader.source.has_failed());
    reader.opened().close(Outcome::Unfinished);
    let Reader { file, earlier, source, .. } = reader;
    file.settle(Outcome::Unfinished);
    earlier.settle(Outcome::Filtered);
    assert_eq!(source.saved("l"), Some(1.into()));
    assert!(!source.has_failed());
}

#[tokio::test]
async fn a_file_whose_messages_have_no_offsets_is_read_to_its_end_by_a_run_that_is_asked_to_stop() {
    let mut reader = Reader::open();
    reader.output.send(payloads(&["x"], None)).await.unwrap();
    reader.output.stop.request();
    // A later run would send the first message again.
    reader.output.send(payloads(&["y"], None)).await.unwrap();
    // After this message it can resume.
    reader.send(10).await;
    assert!(reader.output.send(payloads(&["z"], None)).await.is_err());
    for _ in 0..3 {
        taken(&reader.main).await.settle(Outcome::Delivered);
    }
    assert_eq!(reader.saved(), Some(10.into()));
    reader.opened().close(Outcome::Unfinished);
}
