mod by_name;
mod files;
mod runs;

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use thalweg_engine::testing::{batch, context, file_of, options, sink_conforms};
use thalweg_engine::{Context, Rejects, SinkConfig};
use thalweg_record::{Content, File, Origin};

use super::*;
use crate::ahead::testing::sliced;

/// Returns all files below a folder without a hidden name, with their texts, and the number of hidden ones.
fn below(root: &Path) -> (Vec<(String, String)>, usize) {
    let (mut found, mut hidden, mut folders) = (Vec::new(), 0, vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().unwrap().to_str().unwrap().starts_with('.') {
                hidden += 1;
            } else {
                found.push((name, String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned()));
            }
        }
    }
    found.sort();
    (found, hidden)
}

fn sink(folder: &Path, rest: &str) -> ObjectsSink {
    options(&format!("{{ url: '{}{rest} }}", folder.display()))
}

#[tokio::test]
async fn it_conforms() {
    for rest in ["", ", part_size: 8B", ", rotate: { size: 10B }", ", writers: 1, delimiter: ''"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display();
        sink_conforms::<ObjectsSink>(&format!("{{ url: '{path}/a/b.log'{rest} }}")).await;
    }
}

#[tokio::test]
async fn the_number_of_an_object_stands_before_the_extension() {
    for (name, first, second) in [
        ("日誌.jsonl", "日誌-00001.jsonl", "日誌-00002.jsonl"),
        ("app.2026.jsonl", "app.2026-00001.jsonl", "app.2026-00002.jsonl"),
        ("a.b/日誌", "a.b/日誌-00001", "a.b/日誌-00002"),
        ("all.jsonl.gz", "all-00001.jsonl.gz", "all-00002.jsonl.gz"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let config = sink(folder.path(), &format!("/{name}', rotate: {{ size: 1B }}"));
        let mut sink = SinkConfig::build(&config, &context()).unwrap();
        for text in ["a", "b"] {
            sink.write(&batch([text]), &mut Rejects::default()).await.unwrap();
        }
        sink.finish().await.unwrap();
        let expected =
            [(first, "a\n"), (second, "b\n")].map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(below(folder.path()), (expected.to_vec(), 0));
    }
}

#[test]
fn options_that_make_no_sense_are_mistakes() {
    let check = |yaml: &str| Component::check(&options::<ObjectsSink>(yaml));
    assert!(check("url: s3://bucket/x/").is_empty());
    assert_eq!(check("url: gopher://x")[0].option, "url");
    assert_eq!(check("url: https://example.org/x")[0].option, "url");
    assert_eq!(check("{ url: x, rotate: {} }")[0].option, "rotate");
    assert_eq!(check("{ url: x, part_size: 0B }")[0].option, "part_size");
    assert!(
        check("{ url: 's3://b/day={day}', name: '{host}-{number}.parquet', encode: parquet }").is_empty()
    );
    let former =
        thalweg_engine::testing::refused::<ObjectsSink>("{ url: x, parquet: { columns: { a: int } } }");
    assert!(former.contains("Write `encode: parquet`"), "{former}");
    let refused = |yaml: &str| {
        let built = SinkConfig::build(&options::<ObjectsSink>(yaml), &context());
        built.err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(refused("url: x/").starts_with("messages are written to objects, so their `url` must not end"));
    assert_eq!(
        refused("url: 'x/{a'"),
        "the name of the objects is not a template: A `{` without its `}`. For the character itself write `{{`."
    );
}

async fn apply(
    sink: &ObjectsSink,
    file: &mut File,
) -> Result<thalweg_engine::Disposition, thalweg_engine::FileError> {
    let mut files = sink.files().unwrap().0.build(&context()).unwrap();
    files.apply(file).await
}

#[tokio::test(flavor = "multi_thread")]
async fn files_keep_their_place_whatever_size_their_parts_have() {
    let folder = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..3_500_000u32).map(|at| b'a' + (at % 23) as u8).collect();
    for rest in ["/to/'", "/to/', part_size: 1MiB", "/to/', part_size: 1MiB, writers: 1"] {
        let sink = sink(folder.path(), rest);
        apply(&sink, &mut file_of("small.txt", b"small")).await.unwrap();
        apply(&sink, &mut file_of("empty", b"")).await.unwrap();
        apply(&sink, &mut sliced("large", &content, 1000, 3)).await.unwrap();
        let mut origin = Origin::new("in".into(), "deep".into(), 2);
        origin.below = Some("a/b/deep".into());
        apply(&sink, &mut File::new(origin, Content::from(b"ok".to_vec()))).await.unwrap();
        let (found, hidden) = below(folder.path());
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((names, hidden), (vec!["to/a/b/deep", "to/empty", "to/large", "to/small.txt"], 0));
        assert!(found[2].1.as_bytes() == content);
    }
}

#[tokio::test]
async fn a_folder_that_is_removed_ends_the_run_before_more_is_acknowledged() {
    let expected = "out` was removed while the run was writing to it";
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let files = sink(folder.path(), "/out/'");
    apply(&files, &mut file_of("a", b"1")).await.unwrap();
    fs::remove_dir_all(&out).unwrap();
    let ended = apply(&files, &mut file_of("b", b"2")).await;
    let Err(thalweg_engine::FileError::Failed(error)) = ended else { panic!("it went on") };
    assert!(error.to_string().contains(expected), "{error}");

    let messages = sink(folder.path(), "/out/all', rotate: { size: 1B }");
    let mut messages = SinkConfig::build(&messages, &context()).unwrap();
    for text in ["a", "b"] {
        messages.write(&batch([text]), &mut Rejects::default()).await.unwrap();
        messages.flush().await.unwrap();
    }
    fs::remove_dir_all(&out).unwrap();
    let error = messages.write(&batch(["c"]), &mut Rejects::default()).await.unwrap_err();
    assert!(error.to_string().contains(expected), "{error}");
}

#[tokio::test]
async fn what_is_there_is_replaced_or_left_alone_as_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let text = || fs::read_to_string(folder.path().join("x")).unwrap();
    let write = async |rest: &str, content: &str| {
        let sink = sink(folder.path(), &format!("/', existing: {rest}"));
        apply(&sink, &mut file_of("x", content.as_bytes())).await
    };
    write("error", "1").await.unwrap();
    let refused = write("error", "2").await.unwrap_err();
    let thalweg_engine::FileError::Rejected(problem) = &refused else { panic!("{refused:?}") };
    assert_eq!(
        problem.reason.replace(&folder.path().display().to_string(), "FOLDER"),
        "`FOLDER/x` exists already"
    );
    for (existing, content, expected) in
        [("skip", "3", "1"), ("update", "4", "1"), ("update", "55", "55"), ("replace", "66", "66")]
    {
        write(existing, content).await.unwrap();
        assert_eq!(text(), expected, "{existing} {content}");
    }
    assert_eq!(below(folder.path()).1, 0);
}

#[tokio::test]
async fn no_name_leads_out_of_the_place() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["../x", "/x", "a/../../x", "x/"] {
        let mut origin = Origin::new("in".into(), "x".into(), 1);
        origin.below = Some(name.into());
        let mut file = File::new(origin, Content::from(vec![1]));
        let sink = sink(folder.path(), "/in/', name: '{folder}{name}'");
        let _ = apply(&sink, &mut file).await;
        let escaped = below(folder.path()).0.iter().any(|(name, _)| !name.starts_with("in/"));
        assert!(!escaped, "{name}");
    }
}

/// The engine's next step after a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    Nothing,
    /// A checkpoint while messages move.
    Saves,
    /// A checkpoint while nothing moves.
    PreCommits,
    /// Such a checkpoint, after which the sink commits.
    Commits,
}

fn after() -> impl Strategy<Value = After> {
    prop::sample::select(vec![After::Nothing, After::Saves, After::PreCommits, After::Commits])
}

/// The checkpoint that a run leaves to the next one.
#[derive(Debug, Default, Clone)]
struct Left {
    state: Option<serde_json::Value>,
    /// The number of batches that the checkpoint covers.
    covered: usize,
}

/// As [`write_batches`], of one message each.
async fn write(
    config: &ObjectsSink,
    journal: &Journal,
    texts: &[String],
    left: &mut Left,
    steps: &[After],
    end: Option<After>,
) {
    let batches: Vec<_> = texts.iter().map(|text| batch([text])).collect();
    write_batches(config, journal, &batches, left, steps, end).await;
}

/// Writes the batches that no checkpoint covers, as the engine does. The run is killed after the batch with
/// the last of the steps, or ends: then `end` says whether it is killed before its last checkpoint, before it
/// commits, or not at all.
async fn write_batches(
    config: &ObjectsSink,
    journal: &Journal,
    batches: &[thalweg_record::Batch],
    left: &mut Left,
    steps: &[After],
    end: Option<After>,
) {
    let context = Context { resumes: true, resends: true, journal: Some(journal.clone()), ..context() };
    let mut sink = SinkConfig::build(config, &context).unwrap();
    sink.open(left.state.clone()).await.unwrap();
    let mut settled = left.covered;
    let save = |sink: &dyn Sink, settled: usize, left: &mut Left| {
        *left = Left { state: sink.state(), covered: settled };
    };
    let steps = steps.iter().copied().chain(std::iter::repeat_n(After::Nothing, 99));
    for (place, step) in (left.covered..batches.len()).zip(steps) {
        sink.write(&batches[place], &mut Rejects::default()).await.unwrap();
        if matches!(step, After::PreCommits | After::Commits) {
            sink.pre_commit().await.unwrap();
        }
        settled += sink.take_committed();
        if step != After::Nothing {
            save(&*sink, settled, left);
        }
        if step == After::Commits {
            assert!(config.encode.table().is_some() || settled == place + 1);
            sink.commit(sink.uncommitted()).await.unwrap();
        }
    }
    let Some(end) = end else { return };
    sink.finish().await.unwrap();
    if end != After::Nothing {
        save(&*sink, batches.len(), left);
    }
    if end == After::Commits {
        sink.commit(sink.uncommitted()).await.unwrap();
    }
}

/// A run: the steps after each batch, and how it ends unless it is killed.
type Run = (Vec<After>, Option<After>);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn messages_are_whole_and_in_their_order_however_often_a_run_is_cut_off(
        kibibytes in prop::collection::vec(0..900usize, 1..14),
        runs in prop::collection::vec((prop::collection::vec(after(), 0..8), prop::option::of(after())), 0..4),
        (rotates, encodes) in any::<(bool, bool)>(),
    ) {
        let (folder, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let rotate = if rotates { ", rotate: { size: 2MiB }" } else { "" };
        // With an encoding, long batches are sent without a copy.
        let encode = if encodes { ", encode: json" } else { "" };
        let config = sink(folder.path(), &format!("/out.log', part_size: 1MiB, writers: 2{rotate}{encode}"));
        let journal = Journal::new(Arc::new(thalweg_engine::Store::open(state.path()).unwrap()), "out");
        let text = |(n, kibibytes): (usize, &usize)| format!("{n}{}", "x".repeat(kibibytes << 10));
        let batches: Vec<String> = kibibytes.iter().enumerate().map(text).collect();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let mut left = Left::default();
        let last: Run = (Vec::new(), Some(After::Commits));
        for (steps, end) in runs.into_iter().chain([last]) {
            // A run that is killed has written a part of the rest.
            let until = if end.is_some() { batches.len() } else { (left.covered + steps.len()).min(batches.len()) };
            runtime.block_on(write(&config, &journal, &batches[..until], &mut left, &steps, end));
        }
        let (found, hidden) = below(folder.path());
        let text: String = found.iter().map(|(_, text)| text.as_str()).collect();
        let expected: String = batches.iter().map(|text| format!("{text}\n")).collect();
        prop_assert!(text == expected);
        prop_assert_eq!(hidden, 0);
        prop_assert!(rotates || found.len() == 1);
        let numbered = |n: usize| format!("out-{:05}.log", n + 1);
        prop_assert!(!rotates || found.iter().enumerate().all(|(n, (name, _))| *name == numbered(n)));
        let left = journal.entries("").unwrap().into_iter().filter(|(name, _)| name != "completing").count();
        prop_assert_eq!(left, 0);
    }
}

#[tokio::test]
async fn where_all_parts_must_have_one_size_they_have_it() {
    let folder = tempfile::tempdir().unwrap();
    let texts = [10, 40_000, 1023, 0, 3000, 20_000].map(|length| "x".repeat(length));
    for encode in ["", ", encode: json"] {
        let config = sink(folder.path(), &format!("/out.log', part_size: 1KiB, writers: 1{encode}"));
        let context = Context { resumes: true, ..context() };
        let mut target = config.new_target(context.memory.budget()).unwrap();
        target.limits.equal_parts = true;
        config.common.set(target).unwrap();
        let mut sink = SinkConfig::build(&config, &context).unwrap();
        sink.open(None).await.unwrap();
        for text in &texts {
            sink.write(&batch([text]), &mut Rejects::default()).await.unwrap();
            assert_eq!(sink.take_committed(), 0);
        }
        let state = sink.state().unwrap();
        let parts = state["parts"].as_array().unwrap();
        assert!(parts.len() > 30 && parts.iter().all(|part| part["size"] == 1024), "{state}");
        sink.finish().await.unwrap();
        let (found, _) = below(folder.path());
        assert!(found[0].1 == texts.join("\n") + "\n");
    }
}

#[tokio::test]
async fn what_was_begun_and_not_saved_is_thrown_away_by_the_next_run_or_without_one() {
    let folder = tempfile::tempdir().unwrap();
    let state = tempfile::tempdir().unwrap();
    let store = Arc::new(thalweg_engine::Store::open(state.path()).unwrap());
    let journal = Journal::new(store, "out");
    let begin = async || {
        let config = sink(folder.path(), "/all.log', part_size: 8B");
        let context = Context { resumes: true, journal: Some(journal.clone()), ..context() };
        let mut sink = SinkConfig::build(&config, &context).unwrap();
        sink.open(None).await.unwrap();
        for _ in 0..4 {
            sink.write(&batch(["of one part"]), &mut Rejects::default()).await.unwrap();
        }
        config.url
    };
    begin().await;
    assert_eq!(below(folder.path()), (vec![], 1));
    let url = begin().await;
    assert_eq!(below(folder.path()), (vec![], 1));
    discard_unfinished(&url, &journal, None).await.unwrap();
    assert_eq!(below(folder.path()), (vec![], 0));
    assert!(journal.entries("").unwrap().is_empty());
}

fn named(objects: &[(&str, &str)]) -> Vec<(String, String)> {
    objects.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

#[cfg(feature = "parquet")]
#[tokio::test]
async fn a_table_without_messages_is_empty_if_its_columns_are_listed_and_otherwise_not_written() {
    for (encode, expected) in [("parquet", None), ("{ format: parquet, columns: { name: text } }", Some(0))] {
        let folder = tempfile::tempdir().unwrap();
        let config = sink(folder.path(), &format!("/x.parquet', encode: {encode}"));
        let mut sink = SinkConfig::build(&config, &context()).unwrap();
        sink.finish().await.unwrap();
        let rows = fs::read(folder.path().join("x.parquet")).ok().map(|bytes| table_rows(bytes).len());
        assert_eq!(rows, expected);
    }
}

/// Returns the rows of a table.
#[cfg(feature = "parquet")]
fn table_rows(bytes: Vec<u8>) -> Vec<serde_json::Value> {
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    let read = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(bytes)).unwrap().build().unwrap();
    read.flat_map(|batch| thalweg_engine::testing::rows(&batch.unwrap())).collect()
}
