//! The names of sequences before a sink that knows messages by them. A run that is killed saves nothing: the
//! next one has the state of the last checkpoint, and the journal.

use thalweg_engine::Store;
use thalweg_engine::testing::{context, options, start_source};

use super::*;

/// Starts a run whose sequences are noted.
fn noted(yaml: &str, journal: &Journal, state: &State) -> RunningSource {
    let journal = Some(journal.clone());
    let context = Context { journal, keeps_sequences: true, batch_bytes: 4096, ..context() };
    let source = options::<FileSource>(yaml).build(&context).unwrap();
    start_source(source, 4096, state.clone())
}

/// Reads all files in a run that is killed before its first checkpoint. Returns the sequence of each file.
async fn killed(yaml: &str, journal: &Journal) -> BTreeMap<String, Arc<str>> {
    let running = noted(yaml, journal, &State::new());
    let sent = tokio::time::timeout(PATIENCE, running.finish()).await.expect("it ends");
    let names = sent.main.iter().filter_map(|batch| {
        let meta = batch.meta();
        let name = Path::new(meta.path.as_deref()?).file_name()?.to_string_lossy().into_owned();
        Some((name, meta.sequence.clone()?))
    });
    names.collect()
}

/// Waits for a message, and returns its sequence.
async fn sequence_of(running: &RunningSource, expected: &str) -> Arc<str> {
    let batch = running.take_batch(PATIENCE).await.expect("a batch comes");
    assert_eq!(payloads(&batch), [expected]);
    let sequence = batch.meta().sequence.clone().expect("a sequence");
    batch.settle(Outcome::Delivered);
    sequence
}

fn journal(folder: &tempfile::TempDir) -> Journal {
    Journal::new(Arc::new(Store::open(folder.path()).unwrap()), "source")
}

#[tokio::test]
async fn a_file_rewritten_after_a_kill_before_its_first_checkpoint_begins_a_sequence() {
    let (folder, state) = (Folder::new(), tempfile::tempdir().unwrap());
    let yaml = folder.yaml("a", "");
    let mut former = BTreeMap::new();
    // Each in the place of the one before. The last two begin with the same bytes.
    for text in ["1\n2\n".to_owned(), "another\n".repeat(3), headed(0..50), headed(50..200)] {
        folder.write("a", &text);
        let sequence = killed(&yaml, &journal(&state)).await;
        assert_ne!(sequence, former);
        // The run that was killed, again, also with more in the file.
        assert_eq!(killed(&yaml, &journal(&state)).await, sequence);
        folder.append("a", "more\n");
        assert_eq!(killed(&yaml, &journal(&state)).await, sequence);
        former = sequence;
    }
}

#[tokio::test]
async fn a_file_has_its_sequence_although_others_are_rewritten() {
    let (folder, state) = (Folder::new(), tempfile::tempdir().unwrap());
    let yaml = folder.yaml("*", "");
    for number in 0..20 {
        folder.write(&format!("{number:02}"), format!("{number}\n"));
    }
    let first = killed(&yaml, &journal(&state)).await;
    assert_eq!(first.len(), 20);
    folder.write("07", "another\n");
    let mut second = killed(&yaml, &journal(&state)).await;
    assert_ne!(second.remove("07"), first.get("07").cloned());
    assert!(second.iter().all(|(name, sequence)| first.get(name) == Some(sequence)));
    let distinct: HashSet<_> = first.values().chain(second.values()).collect();
    assert_eq!(distinct.len(), 20);
}

#[tokio::test]
async fn a_followed_file_that_is_rewritten_twice_between_two_checkpoints_begins_two_sequences() {
    let (folder, state) = (Folder::new(), tempfile::tempdir().unwrap());
    let yaml = folder.yaml("a", FOLLOW);
    folder.write("a", "1\n");
    let journal = journal(&state);
    let running = noted(&yaml, &journal, &State::new());
    let first = sequence_of(&running, "1").await;
    // The last checkpoint.
    let mut saved = State::new();
    save(&running.positions, &mut saved);
    assert_eq!(saved.len(), 1);
    folder.write("a", "two\n");
    let second = sequence_of(&running, "two").await;
    assert_ne!(second, first);
    running.task.abort();
    // The run that was killed, again.
    let running = noted(&yaml, &journal, &saved);
    assert_eq!(sequence_of(&running, "two").await, second);
    running.task.abort();
    folder.write("a", "three\n");
    let running = noted(&yaml, &journal, &saved);
    let third = sequence_of(&running, "three").await;
    assert!(third != second && third != first);
    running.task.abort();
}

#[tokio::test]
async fn a_note_is_deleted_when_a_checkpoint_has_its_sequence() {
    let (folder, state) = (Folder::new(), tempfile::tempdir().unwrap());
    folder.write("a", "1\n");
    let journal = journal(&state);
    let notes = || journal.names("sequence/").unwrap().len();
    let yaml = folder.yaml("*", "");
    let mut saved = State::new();
    let running = noted(&yaml, &journal, &saved);
    let positions = running.positions.clone();
    let first = tokio::time::timeout(PATIENCE, running.finish()).await.expect("it ends");
    save(&positions, &mut saved);
    assert_eq!(notes(), 1);
    // Another file, so that something is noted.
    folder.append("a", "2\n");
    folder.write("b", "3\n");
    let running = noted(&yaml, &journal, &saved);
    let second = tokio::time::timeout(PATIENCE, running.finish()).await.expect("it ends");
    assert_eq!(second.payloads(), ["2", "3"]);
    let sequence = |sent: &Sent| sent.main.first().and_then(|batch| batch.meta().sequence.clone());
    assert_eq!(sequence(&second), sequence(&first));
    assert_eq!(notes(), 1);
}
