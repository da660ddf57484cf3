//! Tests with real segments in temporary folders.

use super::*;
use std::collections::BTreeMap;

use serde_json::json;
use thalweg_engine::testing::{Arrived, batch, options, payloads, refused, rows, start, write_all};
use thalweg_record::{Batch, Outcome};

use crate::sinks::spool::SpoolSink;

async fn fill(folder: &Path, more: &str, batches: impl IntoIterator<Item = Batch>) {
    let yaml = format!("{{ path: '{}', {more} }}", folder.display());
    assert!(write_all::<SpoolSink>(&yaml, batches).await.unwrap().is_empty());
}

fn files(folder: &Path) -> Vec<String> {
    let listed = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        listed.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn yaml(folder: &Path, more: &str) -> String {
    format!("{{ path: '{}', {more} }}", folder.display())
}

fn parsed(lines: &[&str]) -> Batch {
    let yaml = "types: { n: int }";
    let given =
        thalweg_engine::testing::apply::<thalweg_transforms::parse_logfmt::ParseLogfmt>(yaml, [batch(lines)]);
    given.outputs.into_values().flatten().next().unwrap()
}

#[tokio::test]
async fn messages_come_back_with_all_that_was_known_of_them_and_files_go() {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("spool");
    let one = parsed(&["n=1 a=some-longer-text-that-is-not-inline", "n=2", "a=x"]);
    let (expected, meta) = (rows(one.fields()), one.meta().clone());
    fill(&spool, "max_file_bytes: 1", [one, batch(["plain", ""])]).await;
    assert_eq!(files(&spool), ["00000001.spool", "00000002.spool"]);
    let running = start::<SpoolSource>(&yaml(&spool, "follow: false"), 1 << 20, BTreeMap::new());
    let sent = running.finish().await;
    assert!(sent.result.is_none(), "{:?}", sent.result);
    assert_eq!(sent.payloads(), ["n=1 a=some-longer-text-that-is-not-inline", "n=2", "a=x", "plain", ""]);
    assert_eq!(rows(sent.main[0].fields()), expected);
    assert_eq!(sent.main[0].meta(), &meta);
    assert_eq!(files(&spool), [""; 0]);
}

#[tokio::test]
async fn a_file_stays_until_all_of_it_is_settled_and_a_later_run_goes_on_in_its_middle() {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("spool");
    fill(&spool, "", [batch(["a", "b"]), batch(["c"])]).await;
    let running = start::<SpoolSource>(&yaml(&spool, ""), 1 << 20, BTreeMap::new());
    let next = async || {
        let Some((_, Arrived::Messages(batch))) = running.main.take().await else { panic!("it ended") };
        batch
    };
    let (first, second) = (next().await, next().await);
    assert_eq!((payloads(&first), payloads(&second)), (vec!["a".into(), "b".into()], vec!["c".into()]));
    first.settle(Outcome::Delivered);
    let partitions = running.positions.partitions();
    let saved: BTreeMap<String, Value> = partitions
        .iter()
        .map(|partition| (partition.to_string(), running.positions.saved(partition).unwrap()))
        .collect();
    running.stop.request();
    // Stopped while a batch is in flight, the source waits for it in vain.
    running.task.await.unwrap().unwrap();
    drop(second);
    assert_eq!(files(&spool), ["00000001.spool"]);

    let again = start::<SpoolSource>(&yaml(&spool, "follow: false"), 1 << 20, saved).finish().await;
    assert_eq!(again.payloads(), ["c"]);
    assert_eq!(files(&spool), [""; 0]);
}

#[tokio::test]
async fn a_rate_divides_a_block_and_places_within_it_are_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("spool");
    fill(&spool, "", [batch((0..30).map(|n| n.to_string()))]).await;
    let running = start::<SpoolSource>(&yaml(&spool, "rate: 100"), 1 << 20, BTreeMap::new());
    let Some((_, Arrived::Messages(batch))) = running.main.take().await else { panic!("it ended") };
    assert_eq!(batch.rows(), 10);
    batch.settle(Outcome::Delivered);
    let partition = running.positions.partitions().remove(0);
    let position = running.positions.saved(&partition).unwrap();
    assert_eq!(position, json!({ "offset": 24, "row": 10 }));
    running.stop.request();
    drop(running.finish().await);
    let saved = BTreeMap::from([(partition.to_string(), position)]);
    let again = start::<SpoolSource>(&yaml(&spool, "follow: false"), 1 << 20, saved).finish().await;
    let expected: Vec<String> = (10..30).map(|n| n.to_string()).collect();
    assert_eq!(again.payloads(), expected);
}

#[tokio::test]
async fn messages_that_are_settled_when_the_input_has_ended_leave_no_segment() {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("spool");
    fill(&spool, "", [batch(["a", "b"]), batch(["c"])]).await;
    let running = start::<SpoolSource>(&yaml(&spool, "follow: false"), 1 << 20, BTreeMap::new());
    let mut kept = Vec::new();
    while let Some((_, Arrived::Messages(batch))) = running.main.take().await {
        kept.push(batch);
    }
    assert_eq!(files(&spool), ["00000001.spool"]);
    kept.into_iter().for_each(|batch| batch.settle(Outcome::Delivered));
    running.task.await.unwrap().unwrap();
    assert_eq!(files(&spool), [""; 0]);
}

#[tokio::test]
async fn what_is_damaged_is_told_of_and_kept_and_the_rest_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("spool");
    fill(&spool, "", [batch(["first"]), batch(["second"]), batch(["third"])]).await;
    std::fs::write(spool.join("00000002.spool"), "this is no segment of a spool at all").unwrap();
    std::fs::write(spool.join("note.txt"), "left alone").unwrap();
    let path = spool.join("00000001.spool");
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(6).position(|bytes| bytes == b"second").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let sent = start::<SpoolSource>(&yaml(&spool, "follow: false"), 1 << 20, BTreeMap::new()).finish().await;
    assert_eq!(sent.payloads(), ["first", "third"]);
    let reasons: Vec<String> = sent
        .errors
        .iter()
        .flat_map(|batch| rows(batch.fields()))
        .map(|row| row["error_reason"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(reasons.len(), 2);
    assert!(reasons[0].starts_with("1 messages at byte") && reasons[0].ends_with("its checksum is wrong"));
    assert!(reasons[1].starts_with("the last 36 bytes of"), "{reasons:?}");
    assert_eq!(files(&spool), ["00000001.damaged", "00000002.damaged", "note.txt"]);
}

#[test]
fn what_cannot_be_is_a_mistake() {
    let check = |yaml: &str| -> Vec<_> {
        options::<SpoolSource>(yaml).check().into_iter().map(|mistake| mistake.option).collect()
    };
    assert_eq!(
        check("{path: '', rate: 0, follow: false, ends_with_others: true, poll_interval: '0'}"),
        ["path", "rate", "ends_with_others", "poll_interval"]
    );
    assert_eq!(refused::<SpoolSource>("{}"), "The option `path` is missing. The folder.");
}
