//! Helpers for tests of transforms.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use proptest::test_runner::TestCaseError;
use serde_json::Value;
pub use thalweg_codec::testing::with_text;
use thalweg_engine::{Component, Context, Journal, Output, Outputs, Store, TransformConfig, testing};
use thalweg_record::{Ack, Batch, Outcome, Settlement};
use thalweg_stream::encode::EncodeConfig;

/// Passes these lines to a transform, and checks that each leaves unchanged, by the main output or by
/// `errors`.
pub fn no_line_is_lost<C: Component + TransformConfig>(
    yaml: &str,
    lines: &[String],
) -> Result<(), TestCaseError> {
    let given = testing::apply::<C>(yaml, [testing::batch(lines)]);
    let (mut found, mut expected) = (given.payloads(Output::Main), lines.to_vec());
    found.extend(given.payloads(Output::Errors));
    found.sort();
    expected.sort();
    proptest::prop_assert_eq!(found, expected);
    Ok(())
}

/// Returns the messages of the main output as JSON, as a sink writes them.
pub fn written(given: testing::Given) -> Vec<Value> {
    let main = given.outputs.into_iter().filter(|(output, _)| *output == Output::Main);
    let encoded = testing::apply::<EncodeConfig>("json", main.flat_map(|(_, batches)| batches));
    let lines = encoded.payloads(Output::Main);
    lines.iter().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Returns the context of a run that continues, with a state in a folder.
pub fn with_state(folder: &tempfile::TempDir) -> Context {
    let store = Arc::new(Store::open(folder.path()).unwrap());
    Context { resumes: true, journal: Some(Journal::new(store, "test")), ..testing::context() }
}

/// Makes a batch count when it is settled as safe.
pub fn counted(mut batch: Batch, count: &Arc<AtomicUsize>) -> Batch {
    let count = count.clone();
    batch.ack_mut().merge(Ack::new("test".into(), move |settlement: Settlement| {
        count.fetch_add(usize::from(settlement.outcome.is_safe()), Relaxed);
    }));
    batch
}

/// A run that is killed: the number of batches between checkpoints, and the number of all batches.
pub type Killed = (usize, usize);

/// Passes messages to runs of a transform with one state, of which the last one ends. Returns what is found
/// in its main output. The results of a killed run after its last checkpoint are removed, as by a sink that
/// resumes.
///
/// `parts` are the messages of each batch, and `batch` makes one of them.
pub fn killed<C: Component + TransformConfig, M, F>(
    yaml: &str,
    parts: &[&[M]],
    kills: &[Killed],
    batch: impl Fn(&[M]) -> Batch,
    found: impl Fn(&Batch) -> Vec<F>,
) -> Vec<F> {
    let folder = tempfile::tempdir().unwrap();
    let context = with_state(&folder);
    let (mut all, mut saved, mut covered, mut left) = (Vec::new(), None, 0, 0);
    for &(between, length) in kills.iter().chain([&(2, usize::MAX)]) {
        let (settled, begun) = (Arc::new(AtomicUsize::new(0)), covered);
        all.truncate(left);
        let mut transform = testing::options::<C>(yaml).build(&context).unwrap();
        saved.iter().for_each(|saved: &Value| transform.restore(saved.clone()).unwrap());
        let mut out = Outputs::new("test".into());
        let deliver = |out: &mut Outputs, all: &mut Vec<F>| {
            for (output, batch) in out.take() {
                if output == Output::Main {
                    all.extend(found(&batch));
                }
                batch.settle(Outcome::Delivered);
            }
        };
        for (number, messages) in parts.iter().enumerate().skip(begun).take(length) {
            transform.apply(counted(batch(messages), &settled), &mut out).unwrap();
            deliver(&mut out, &mut all);
            if number % (between + 1) == 0 {
                transform.pre_commit().unwrap();
                saved = transform.state().or(saved);
                assert_eq!(transform.state(), None, "nothing has changed since");
                (covered, left) = (number + 1, all.len());
                assert_eq!(settled.load(Relaxed), covered - begun);
            }
        }
        if length == usize::MAX {
            transform.finish(&mut out).unwrap();
            deliver(&mut out, &mut all);
            transform.pre_commit().unwrap();
            transform.pre_commit().unwrap();
            let entries = context.journal.as_ref().unwrap().names("").unwrap();
            assert_eq!(entries, Vec::<String>::new(), "notes that no state needs");
        }
    }
    all
}
