//! The names of sequences before a sink that knows messages by them. A run that is killed saves nothing: the
//! next one has the state of the last checkpoint, and the journal.

use thalweg_engine::Store;
use thalweg_engine::testing::{context, options, start_source};

use super::*;

/// Starts a run whose sequences are noted.
fn noted(yaml: &str, journal: &Journal, state: &State) -> RunningSource {
    started(yaml, journal, true, state)
}

fn started(yaml: &str, journal: &Journal, keeps_sequences: bool, state: &State) -> RunningSource {
    let journal = Some(journal.clone());
    let context = Context { journal, keeps_sequences, batch_bytes: 4096, ..context() };
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

/// The note of a killed run counted as later than the checkpoint of a run after it, which noted nothing: all
/// was read again.
#[tokio::test]
async fn a_run_without_a_sink_that_needs_sequences_deletes_the_notes_of_earlier_runs() {
    let (folder, state) = (Folder::new(), tempfile::tempdir().unwrap());
    folder.write("a", "1\n");
    let journal = journal(&state);
    let yaml = folder.yaml("a", "");
    killed(&yaml, &journal).await;
    let mut saved = State::new();
    let running = started(&yaml, &journal, false, &saved);
    let positions = running.positions.clone();
    let sent = tokio::time::timeout(PATIENCE, running.finish()).await.expect("it ends");
    assert_eq!(sent.payloads(), ["1"]);
    save(&positions, &mut saved);
    assert_eq!((saved.len(), journal.names("sequence/").unwrap().len()), (1, 0));
    folder.append("a", "2\n");
    let running = noted(&yaml, &journal, &saved);
    let sent = tokio::time::timeout(PATIENCE, running.finish()).await.expect("it ends");
    assert_eq!(sent.payloads(), ["2"]);
}

/// A young file was noted again as one that begins where the run was.
#[tokio::test]
async fn a_young_file_whose_device_has_another_number_is_still_read_from_its_beginning_after_a_kill() {
    let (folder, state) = (Folder::new(), tempfile::tempdir().unwrap());
    folder.write("a", "1\n");
    let journal = journal(&state);
    let sequence = killed(&folder.yaml("a", ""), &journal).await.remove("a").unwrap();
    // The machine restarts.
    let (name, note) = journal.entries("sequence/").unwrap().remove(0);
    let (_, inode) = name.split_once(':').unwrap();
    let before = (format!("sequence/fffff:{inode}"), Some(note));
    journal.note_durably(&[(name.clone(), None), before]).unwrap();
    let yaml = folder.yaml("a", FOLLOW);
    let running = noted(&yaml, &journal, &State::new());
    let first = running.take_batch(PATIENCE).await.expect("a batch comes");
    folder.append("a", "2\n");
    let second = running.take_batch(PATIENCE).await.expect("a batch comes");
    running.task.abort();
    for (batch, expected) in [(first, "1"), (second, "2")] {
        assert_eq!(payloads(&batch), [expected]);
        assert_eq!(batch.meta().sequence.as_ref(), Some(&sequence));
        batch.settle(Outcome::Delivered);
    }
    assert_eq!(journal.names("sequence/").unwrap(), [name]);
    let mut found = Vec::new();
    let running = noted(&yaml, &journal, &State::new());
    while found.len() < 2 {
        let batch = running.take_batch(PATIENCE).await.expect("a batch comes");
        found.extend(payloads(&batch));
        batch.settle(Outcome::Delivered);
    }
    running.task.abort();
    assert_eq!(found, ["1", "2"]);
}

#[tokio::test]
async fn the_note_of_a_file_that_was_deleted_before_it_had_a_message_is_deleted() {
    let (folder, state) = (Folder::new(), tempfile::tempdir().unwrap());
    let journal = journal(&state);
    let path = folder.path("a");
    let is_noted = || {
        let notes = journal.entries("sequence/").unwrap();
        notes.iter().any(|(_, note)| note["start"]["path"] == *path)
    };
    let packed = gzip(b"no end");
    folder.write("a", &packed[..packed.len() - 9]);
    let running = noted(&folder.yaml("*", FOLLOW), &journal, &State::new());
    let waiting = async {
        while !is_noted() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("it is noted");
    fs::remove_file(&path).unwrap();
    // Notes are deleted with the next ones that are written.
    let waiting = async {
        let mut number = 0;
        while is_noted() {
            folder.write(&number.to_string(), format!("{number}\n"));
            sequence_of(&running, &number.to_string()).await;
            number += 1;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("it is deleted");
    running.task.abort();
}
