//! A restart with `--state` changes nothing: a transform that is built again and restored continues as if it
//! had never been interrupted.

use std::sync::Arc;

use arrow_array::UInt64Array;
use proptest::prelude::*;
use serde_json::Value;
use thalweg_engine::{Component, Context, Journal, Output, Outputs, Store, TransformConfig, testing};
use thalweg_record::{Ack, Batch, Meta, Outcome};

use crate::add_id::AddId;
use crate::add_sequence::AddSequence;
use crate::dedupe::Dedupe;
use crate::limit::Limit;
use crate::parse_csv::ParseCsv;
use crate::sample::Sample;

/// A message that left: the output, the payload, the fields.
type Left = (Output, String, Value);

/// Passes batches to a transform. Before each batch whose number is in `cuts`, the transform is built again
/// and restored, as after a kill.
fn passed<C: Component + TransformConfig>(yaml: &str, batches: Vec<Batch>, cuts: &[usize]) -> Vec<Left> {
    let folder = tempfile::tempdir().unwrap();
    let config = testing::options::<C>(yaml);
    let build = || {
        // Only this one keeps a journal, and to open a store takes its time.
        let keeps = C::NAME == Dedupe::NAME && !cuts.is_empty();
        let store = keeps.then(|| Arc::new(Store::open(folder.path()).unwrap()));
        let journal = store.map(|store| Journal::new(store, "test"));
        config.build(&Context { journal, ..testing::context() }).unwrap()
    };
    let mut saved = None;
    let mut transform = build();
    let mut out = Outputs::new("test".into());
    let mut left = Vec::new();
    for (number, batch) in batches.into_iter().enumerate() {
        if cuts.contains(&number) {
            saved = transform.state().or(saved);
            assert_eq!(transform.state(), None, "nothing has changed since");
            drop(transform);
            transform = build();
            saved.clone().map(|saved| transform.restore(saved)).transpose().unwrap();
        }
        transform.apply(batch, &mut out).unwrap();
        loop {
            for (output, batch) in out.take() {
                let rows = testing::payloads(&batch).into_iter().zip(testing::rows(batch.fields()));
                left.extend(rows.map(|(payload, fields)| (output, payload, fields)));
                batch.settle(Outcome::Delivered);
            }
            if out.take_held().is_none() {
                break;
            }
            transform.resume(&mut out).unwrap();
        }
    }
    left
}

/// Returns batches of lines. Those of a file have its path, and the offset of each line.
fn batches(lines: &[(u8, String)], size: usize) -> Vec<Batch> {
    let mut files: Vec<(u8, Vec<String>)> = Vec::new();
    for (file, line) in lines {
        match files.last_mut() {
            Some((last, lines)) if last == file && lines.len() < size => lines.push(line.clone()),
            _ => files.push((*file, vec![line.clone()])),
        }
    }
    let mut offsets = [0_u64; 256];
    let batch = |(file, lines): (u8, Vec<String>)| {
        let offset = &mut offsets[usize::from(file)];
        let positions = lines.iter().map(|line| {
            let position = *offset;
            *offset += line.len() as u64 + 1;
            position
        });
        let positions = UInt64Array::from_iter_values(positions);
        let batch = testing::batch(&lines);
        let meta = Meta { path: Some(format!("file-{file}").into()), ..(**batch.meta()).clone() };
        let batch = Batch::new(batch.payload().clone(), Arc::new(meta), Ack::noop());
        batch.with_positions(positions).unwrap()
    };
    files.into_iter().map(batch).collect()
}

fn same_after_cuts<C: Component + TransformConfig>(
    yaml: &str,
    lines: &[(u8, String)],
    size: usize,
    cuts: &[usize],
) -> Result<(), TestCaseError> {
    let expected = passed::<C>(yaml, batches(lines, size), &[]);
    prop_assert_eq!(passed::<C>(yaml, batches(lines, size), cuts), expected, "{}", yaml);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn a_restart_changes_nothing(
        lines in prop::collection::vec((0..3_u8, "[ab],[0-9]?|[ab]{1,3}"), 1..40),
        size in 1..6_usize,
        cuts in prop::collection::vec(0..20_usize, 0..4),
    ) {
        same_after_cuts::<AddSequence>("{start: 7}", &lines, size, &cuts)?;
        for yaml in ["kind: sequence", "kind: sequence_hex"] {
            same_after_cuts::<AddId>(yaml, &lines, size, &cuts)?;
        }
        for yaml in ["one_in: 3", "{one_in: 5, take: 2, rest: true}", "{rate: 0.5, seed: 3}"] {
            same_after_cuts::<Sample>(yaml, &lines, size, &cuts)?;
        }
        for yaml in ["drop", "error", "route"] {
            let yaml = format!("{{rate: 1, per: 365d, burst: 9, on_excess: {yaml}}}");
            same_after_cuts::<Limit>(&yaml, &lines, size, &cuts)?;
        }
        for yaml in ["{}", "max_keys: 3", "{max_keys: 2, max_age: 1h}"] {
            same_after_cuts::<Dedupe>(yaml, &lines, size, &cuts)?;
        }
        for yaml in ["header: true", "{header: true, flexible: true, max_columns: 1}"] {
            same_after_cuts::<ParseCsv>(yaml, &lines, size, &cuts)?;
        }
    }
}
