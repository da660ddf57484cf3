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

/// The runs of a sink with one state, as an engine makes them.
struct Runs {
    folder: tempfile::TempDir,
    journal: Journal,
    saved: Option<serde_json::Value>,
    rest: &'static str,
    /// The smallest part that the store accepts before the last one, as on S3.
    smallest_part: u64,
    _state: tempfile::TempDir,
}

/// How a run ends.
enum Ending {
    /// Its input ended.
    Whole,
    /// It was asked to stop.
    Stopped,
    /// It was killed: only the state of before its last message was saved.
    Killed,
    /// Its input ended. It was killed before its last checkpoint.
    Unsaved,
    /// Its input ended. It was killed after its last checkpoint.
    Uncommitted,
}

impl Runs {
    fn new(rest: &'static str, smallest_part: u64) -> Self {
        let state = tempfile::tempdir().unwrap();
        let store = Arc::new(thalweg_engine::Store::open(state.path()).unwrap());
        let journal = Journal::new(store, "out");
        Self {
            folder: tempfile::tempdir().unwrap(),
            journal,
            saved: None,
            rest,
            smallest_part,
            _state: state,
        }
    }

    fn sink(&self, context: &Context) -> Box<dyn Sink> {
        let config = sink(self.folder.path(), &format!("/all.log'{}", self.rest));
        let mut target = config.new_target(context.memory.budget()).unwrap();
        target.limits.smallest_part = self.smallest_part;
        config.common.set(target).unwrap();
        SinkConfig::build(&config, context).unwrap()
    }

    async fn run(&mut self, texts: &[&str], ending: Ending) {
        let context = Context { resumes: true, journal: Some(self.journal.clone()), ..context() };
        let mut sink = self.sink(&context);
        sink.open(self.saved.clone()).await.unwrap();
        for text in texts {
            self.saved = sink.state();
            sink.write(&batch([*text]), &mut Rejects::default()).await.unwrap();
        }
        match ending {
            Ending::Whole | Ending::Unsaved | Ending::Uncommitted => sink.finish().await.unwrap(),
            Ending::Stopped => sink.suspend().await.unwrap(),
            Ending::Killed => {}
        }
        if matches!(ending, Ending::Whole | Ending::Stopped | Ending::Uncommitted) {
            self.saved = sink.state();
        }
        if matches!(ending, Ending::Whole | Ending::Stopped) {
            sink.commit(sink.uncommitted()).await.unwrap();
        }
    }

    fn objects(&self) -> Vec<(String, String)> {
        below(self.folder.path()).0
    }
}

fn named(objects: &[(&str, &str)]) -> Vec<(String, String)> {
    objects.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

#[tokio::test]
async fn an_object_is_continued_by_the_run_after_one_that_was_asked_to_stop() {
    // Parts of any size; parts of at least 20 bytes, so that some messages are in no part; only tails.
    for smallest in [1, 20, 1 << 20] {
        let mut runs = Runs::new(", part_size: 8B", smallest);
        runs.run(&["one", "two"], Ending::Stopped).await;
        runs.run(&[], Ending::Stopped).await;
        runs.run(&["three, which is longer"], Ending::Stopped).await;
        assert_eq!(runs.objects(), [], "{smallest}");
        runs.run(&["four"], Ending::Killed).await;
        runs.run(&["four", "five"], Ending::Stopped).await;
        runs.run(&["six"], Ending::Whole).await;
        let all = "one\ntwo\nthree, which is longer\nfour\nfive\nsix\n";
        assert_eq!(runs.objects(), named(&[("all.log", all)]), "{smallest}");
        assert_eq!(below(runs.folder.path()).1, 0);
    }
}

#[tokio::test]
async fn a_tail_whose_length_begins_like_that_of_an_earlier_one_stays() {
    let mut runs = Runs::new("", 1 << 20);
    runs.run(&["a"], Ending::Stopped).await;
    // The tail had 2 bytes, and has 20 now.
    runs.run(&["17 more letters.."], Ending::Stopped).await;
    runs.run(&["b"], Ending::Whole).await;
    assert_eq!(runs.objects(), named(&[("all.log", "a\n17 more letters..\nb\n")]));
}

#[tokio::test]
async fn csv_that_is_continued_has_one_header() {
    let mut runs = Runs::new(", encode: { format: csv, fields: [payload] }", 1 << 20);
    runs.run(&["a"], Ending::Stopped).await;
    runs.run(&["b"], Ending::Whole).await;
    // The encoder is a transform of the engine, which does not run here.
    assert_eq!(runs.objects(), named(&[("all.log", "payload\na\nb\n")]));
}

#[tokio::test]
async fn a_complete_object_is_never_written_again() {
    for rest in ["", ", part_size: 1B", ", existing: error"] {
        let mut runs = Runs::new(rest, 1);
        runs.run(&["one", "two"], Ending::Whole).await;
        runs.run(&[], Ending::Whole).await;
        fs::write(runs.folder.path().join("all-00002.log"), "of another program").unwrap();
        runs.run(&["three"], Ending::Killed).await;
        runs.run(&["three"], Ending::Stopped).await;
        runs.run(&["four"], Ending::Whole).await;
        runs.run(&["five"], Ending::Whole).await;
        let expected = [
            ("all-00002.log", "of another program"),
            ("all-00003.log", "three\nfour\n"),
            ("all-00004.log", "five\n"),
            ("all.log", "one\ntwo\n"),
        ];
        assert_eq!(runs.objects(), named(&expected), "{rest}");
    }
}

#[tokio::test]
async fn an_object_that_is_full_is_invisible_until_a_checkpoint_covers_it() {
    for rest in ["", ", part_size: 1B", ", rotate: { size: 1GiB }"] {
        let mut runs = Runs::new(rest, 1);
        let name = if rest.contains("rotate") { "all-00001.log" } else { "all.log" };
        runs.run(&["one", "two"], Ending::Unsaved).await;
        assert_eq!(runs.objects(), [], "{rest}");
        // No part was saved, so its messages come again.
        runs.run(&["one", "two"], Ending::Uncommitted).await;
        assert_eq!(runs.objects(), [], "{rest}");
        runs.run(&[], Ending::Killed).await;
        assert_eq!(runs.objects(), named(&[(name, "one\ntwo\n")]), "{rest}");
        assert_eq!(below(runs.folder.path()).1, 0);
    }
}

#[tokio::test]
async fn an_empty_object_is_there_once_a_checkpoint_covers_it() {
    let mut runs = Runs::new(", existing: error", 1);
    runs.run(&[], Ending::Uncommitted).await;
    assert_eq!(runs.objects(), []);
    runs.run(&[], Ending::Whole).await;
    assert_eq!(runs.objects(), named(&[("all.log", "")]));
}

#[tokio::test]
async fn a_further_object_that_was_not_saved_is_written_again_under_its_name() {
    for rest in ["", ", part_size: 1B"] {
        let mut runs = Runs::new(rest, 1);
        runs.run(&["one"], Ending::Whole).await;
        let saved = runs.saved.clone();
        runs.run(&["two"], Ending::Unsaved).await;
        runs.saved = saved;
        runs.run(&["two"], Ending::Whole).await;
        let expected = [("all-00002.log", "two\n"), ("all.log", "one\n")];
        assert_eq!(runs.objects(), named(&expected), "{rest}");
    }
}

#[tokio::test]
async fn messages_that_do_not_come_again_stay_in_an_object_that_was_not_saved() {
    for (resends, expected) in [
        (false, vec![("all-00001.log", "one\n"), ("all-00002.log", "two\n"), ("all-00003.log", "three\n")]),
        // All messages come again, so those of the next run stand for them.
        (true, vec![("all-00001.log", "two\n"), ("all-00002.log", "three\n")]),
    ] {
        let runs = Runs::new(", rotate: { size: 1GiB }", 1);
        let mut saved = None;
        for text in ["one", "two", "three"] {
            let journal = Some(runs.journal.clone());
            let context = Context { resumes: true, resends, journal, ..context() };
            let mut sink = runs.sink(&context);
            sink.open(saved.clone()).await.unwrap();
            let before = sink.state();
            sink.write(&batch([text]), &mut Rejects::default()).await.unwrap();
            sink.finish().await.unwrap();
            // The first run was killed when its object was full, and before that was saved.
            if text == "one" {
                saved = before;
            } else {
                saved = sink.state();
                sink.commit(sink.uncommitted()).await.unwrap();
            }
        }
        assert_eq!(runs.objects(), named(&expected), "{resends}");
    }
}

#[tokio::test]
async fn messages_of_a_replay_are_never_written_over_others() {
    for (rest, first, second) in
        [("", "all.log", "all-00002.log"), (", rotate: { size: 1GiB }", "all-00001.log", "all-00002.log")]
    {
        let mut runs = Runs::new(rest, 1);
        runs.run(&["one"], Ending::Whole).await;
        // A replay has no state.
        let mut sink = runs.sink(&Context { resumes: true, ..context() });
        sink.open(None).await.unwrap();
        sink.write(&batch(["two"]), &mut Rejects::default()).await.unwrap();
        sink.finish().await.unwrap();
        let mut expected = named(&[(first, "one\n"), (second, "two\n")]);
        expected.sort();
        assert_eq!(runs.objects(), expected);
    }
}

#[tokio::test]
async fn messages_of_a_service_are_never_written_over_others_even_without_a_state() {
    for (rest, first) in [("", "all.log"), (", rotate: { size: 1GiB }", "all-00001.log")] {
        let runs = Runs::new(rest, 1);
        let texts: Vec<String> = (1..=6).map(|number| number.to_string()).collect();
        for text in &texts {
            let mut sink = runs.sink(&Context { starts_over: false, ..context() });
            sink.open(None).await.unwrap();
            sink.write(&batch([text]), &mut Rejects::default()).await.unwrap();
            sink.finish().await.unwrap();
        }
        // Without messages, nothing is written.
        runs.sink(&Context { starts_over: false, ..context() }).finish().await.unwrap();
        let name =
            |number: usize| if number == 1 { first.to_owned() } else { format!("all-{number:05}.log") };
        let mut expected: Vec<_> = (1..=6).map(|number| (name(number), format!("{number}\n"))).collect();
        expected.sort();
        assert_eq!(runs.objects(), expected, "{rest}");
    }
}

#[tokio::test]
async fn an_object_that_somebody_took_away_is_not_missed() {
    let mut runs = Runs::new(", part_size: 1B", 1);
    runs.run(&["one"], Ending::Uncommitted).await;
    let context = Context { resumes: true, journal: Some(runs.journal.clone()), ..context() };
    let (entries, saved) = (runs.journal.entries("").unwrap(), runs.saved.clone());
    runs.run(&[], Ending::Killed).await;
    // Killed before the entries were forgotten. The object has gone to another place since.
    entries.iter().for_each(|(name, value)| runs.journal.note(name, value).unwrap());
    fs::remove_file(runs.folder.path().join("all.log")).unwrap();
    runs.sink(&context).open(saved).await.unwrap();
    assert_eq!(runs.objects(), []);
}

#[tokio::test]
async fn an_upload_that_is_gone_is_an_error_unless_it_was_completed() {
    let mut runs = Runs::new(", part_size: 1B", 1);
    runs.run(&["one", "two"], Ending::Stopped).await;
    fs::read_dir(runs.folder.path())
        .unwrap()
        .for_each(|draft| fs::remove_file(draft.unwrap().path()).unwrap());
    // An object of others, which is long enough.
    fs::write(runs.folder.path().join("all.log"), "of another program").unwrap();
    let context = Context { resumes: true, journal: Some(runs.journal.clone()), ..context() };
    let error = runs.sink(&context).open(runs.saved.clone()).await.unwrap_err().to_string();
    assert!(error.contains("all.log` that an earlier run began is gone, and with it 8 bytes"), "{error}");
}

/// The run that failed to complete the object had noted that it is about to.
#[tokio::test]
async fn an_object_whose_folder_was_moved_away_is_not_taken_for_complete() {
    let runs = Runs::new(", rotate: { size: 1GiB }", 1);
    let (folder, away) = (runs.folder.path().to_owned(), runs.folder.path().with_extension("away"));
    let context = Context { resumes: true, journal: Some(runs.journal.clone()), ..context() };
    let mut first = runs.sink(&context);
    first.open(None).await.unwrap();
    first.write(&batch(["one"]), &mut Rejects::default()).await.unwrap();
    first.finish().await.unwrap();
    let saved = first.state();
    fs::rename(&folder, &away).unwrap();
    let error = first.commit(1).await.unwrap_err().to_string();
    assert!(error.contains("was moved away or removed while the run was writing to it"), "{error}");
    fs::create_dir(&folder).unwrap();
    let error = runs.sink(&context).open(saved.clone()).await.unwrap_err().to_string();
    let expected = "began is gone, and with it 4 bytes that are not read again: if the folder was moved away, put it back";
    assert!(error.contains(expected), "{error}");
    fs::remove_dir(&folder).unwrap();
    fs::rename(&away, &folder).unwrap();
    runs.sink(&context).open(saved).await.unwrap();
    assert_eq!(runs.objects(), named(&[("all-00001.log", "one\n")]));
}

#[tokio::test]
async fn a_state_that_other_options_cannot_continue_is_refused() {
    let mut runs = Runs::new("", 1 << 20);
    runs.run(&["one"], Ending::Stopped).await;
    let context = Context { resumes: true, journal: Some(runs.journal.clone()), ..context() };
    let error = async |rest: &'static str, saved| {
        let config = sink(runs.folder.path(), &format!("/all.log'{rest}"));
        let mut sink = SinkConfig::build(&config, &context).unwrap();
        sink.open(saved).await.unwrap_err().to_string()
    };
    let text = error(", encode: parquet", runs.saved.clone()).await;
    assert!(text.starts_with("an earlier run left an unfinished object"), "{text}");
    let text = error("", Some(serde_json::json!([{ "name": "all.log" }]))).await;
    assert!(text.starts_with("the saved state of the sink is not one of `objects`."), "{text}");
}

#[tokio::test]
async fn a_part_takes_no_more_memory_than_it_has_bytes() {
    let runs = Runs::new("", 5 << 20);
    let context = context();
    let mut sink = runs.sink(&context);
    sink.write(&batch(["a few bytes"]), &mut Rejects::default()).await.unwrap();
    assert!(context.memory.budget().used() <= 256 << 10, "{:?}", context.memory.budget());
}

#[tokio::test]
async fn files_of_one_name_do_not_replace_each_other() {
    let runs = Runs::new("", 1);
    let files: Vec<_> = ["a", "b", "c"]
        .into_iter()
        .map(|folder| {
            let path = runs.folder.path().join("in").join(folder).join("x.txt");
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, folder).unwrap();
            path
        })
        .collect();
    let run = async |numbers: &[usize], rest: &str| {
        let config = sink(runs.folder.path(), rest);
        let context = Context { resumes: true, journal: Some(runs.journal.clone()), ..context() };
        let mut results = Vec::new();
        for &number in numbers {
            // Each worker has a transform of its own.
            let mut transform = config.files().unwrap().0.build(&context).unwrap();
            let mut file = thalweg_engine::testing::file_at(&files[number]);
            results.push(transform.apply(&mut file).await.map(drop).map_err(|error| format!("{error:?}")));
        }
        results
    };
    let several = "/out/', name: '{name}'";
    run(&[0, 1], several).await;
    // Another run, in which files come again whose delivery was not saved.
    run(&[2, 1, 0], several).await;
    let out: Vec<_> = runs.objects().into_iter().filter(|(name, _)| name.starts_with("out/")).collect();
    assert_eq!(out, named(&[("out/x-2.txt", "b"), ("out/x-3.txt", "c"), ("out/x.txt", "a")]));
    // A changed file replaces its own object.
    fs::write(&files[1], "changed").unwrap();
    run(&[1], several).await;
    assert_eq!(fs::read_to_string(runs.folder.path().join("out/x-2.txt")).unwrap(), "changed");
    let results = run(&[0, 1], "/single'").await;
    assert!(results[0].is_ok());
    assert!(results[1].as_ref().unwrap_err().contains("`url` is for several files"), "{results:?}");
    assert_eq!(fs::read_to_string(runs.folder.path().join("single")).unwrap(), "a");
}

#[tokio::test]
async fn files_that_come_only_once_do_not_replace_those_of_an_earlier_run() {
    type OfRuns = fn(&Runs) -> Option<Journal>;
    let (with_journal, none): (OfRuns, OfRuns) = (|runs| Some(runs.journal.clone()), |_| None);
    for (starts_over, journal, expected) in [
        (true, none, vec![("out/a", "new")]),
        (false, none, vec![("out/a", "old"), ("out/a-2", "new")]),
        (false, with_journal, vec![("out/a", "old"), ("out/a-2", "new")]),
    ] {
        let runs = Runs::new("", 1);
        for text in ["old", "new"] {
            let journal = journal(&runs);
            let context = Context { resumes: journal.is_some(), starts_over, journal, ..context() };
            let config = sink(runs.folder.path(), "/out/'");
            let mut transform = config.files().unwrap().0.build(&context).unwrap();
            let mut file = thalweg_engine::testing::file_of("a", text.as_bytes());
            transform.apply(&mut file).await.unwrap();
        }
        assert_eq!(runs.objects(), named(&expected));
    }
}

#[tokio::test]
async fn two_outputs_of_a_file_do_not_replace_each_other_and_a_file_that_is_read_again_replaces_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in");
    let sink = sink(folder.path(), "/out/', name: x");
    let mut files = sink.files().unwrap().0.build(&context()).unwrap();
    let read = |content: &str| {
        fs::write(&path, content).unwrap();
        thalweg_engine::testing::file_at(&path)
    };
    // As from two pipelines.
    let first = read("one");
    for mut file in [first.share(), first] {
        files.apply(&mut file).await.unwrap();
    }
    files.apply(&mut read("two")).await.unwrap();
    assert_eq!(below(folder.path()).0, named(&[("in", "two"), ("out/x", "two"), ("out/x-2", "one")]));
}

#[tokio::test]
async fn a_file_that_is_built_again_replaces_the_object_that_it_was_before() {
    for existing in ["replace", "update", "skip", "error"] {
        let (folder, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store = Arc::new(thalweg_engine::Store::open(state.path()).unwrap());
        let journal = Some(thalweg_engine::Journal::new(store, "out"));
        let context = Context { resumes: true, journal, ..context() };
        for (name, key, content) in [("x-1", "1", "old"), ("x-2", "1", "new"), ("x-3", "2", "next")] {
            let mut origin = Origin::new("main.pack".into(), name.into(), 3);
            origin.key = Some(key.into());
            let mut file = File::new(origin, Content::from(content.as_bytes().to_vec()));
            let sink = sink(folder.path(), &format!("/', existing: {existing}"));
            sink.files().unwrap().0.build(&context).unwrap().apply(&mut file).await.unwrap();
        }
        let expected = [("x-1", "new"), ("x-3", "next")];
        let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(below(folder.path()).0, expected, "{existing}");
    }
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

/// Returns a batch with a field `host` of these values, and the payloads `number host`.
fn of_hosts(first: usize, hosts: &[&str]) -> thalweg_record::Batch {
    use arrow_array::{Array, ArrayRef, Int64Array, StringViewArray};
    use arrow_schema::Field;
    let numbers = first as i64..;
    let payloads: Vec<String> =
        hosts.iter().zip(numbers.clone()).map(|(host, n)| format!("{n} {host}")).collect();
    let names: ArrayRef = Arc::new(StringViewArray::from(hosts.to_vec()));
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers.take(hosts.len())));
    let fields = [("host", names), ("n", numbers)];
    let fields = fields.map(|(name, column)| (Field::new(name, column.data_type().clone(), true), column));
    batch(&payloads).set_fields(fields).unwrap()
}

#[tokio::test]
async fn each_name_that_messages_decide_has_objects_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let config = sink(folder.path(), "/day={n}/', name: '{host}-{number:2}.log', max_open_files: 2");
    let mut sink = SinkConfig::build(&config, &context()).unwrap();
    sink.open(None).await.unwrap();
    let mut rejects = Rejects::default();
    for at in 0..3 {
        sink.write(&of_hosts(1, &["a"]), &mut rejects).await.unwrap();
        sink.write(&of_hosts(2 + at, &["b"]), &mut rejects).await.unwrap();
    }
    // The first batch is in an object that is not complete.
    assert_eq!(sink.take_committed(), 0);
    sink.write(&of_hosts(9, &["..", ""]), &mut rejects).await.unwrap();
    sink.finish().await.unwrap();
    assert_eq!(sink.take_committed(), 7);
    let expected = [
        ("day=1/a-01.log", "1 a\n1 a\n1 a\n"),
        ("day=2/b-01.log", "2 b\n"),
        ("day=3/b-01.log", "3 b\n"),
        ("day=4/b-01.log", "4 b\n"),
        ("day=10/-01.log", "10 \n"),
    ];
    let mut expected = named(&expected);
    expected.sort();
    assert_eq!(below(folder.path()), (expected, 0));
    let rejected: Vec<u32> = rejects.take().into_iter().map(|(row, _)| row).collect();
    assert_eq!(rejected, [0]);
}

#[tokio::test]
async fn a_client_that_waits_is_answered_when_an_object_is_full_although_others_are_not() {
    let (folder, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = sink(folder.path(), "/', name: '{host}.log', rotate: { size: 20B }");
    let journal = Journal::new(Arc::new(thalweg_engine::Store::open(state.path()).unwrap()), "out");
    let context = Context { resumes: true, resends: false, journal: Some(journal), ..context() };
    let mut sink = SinkConfig::build(&config, &context).unwrap();
    sink.open(None).await.unwrap();
    for hosts in [&["a", "b", "a", "a", "a", "a"], &["a", "b", "a", "a", "a", "a"]] {
        sink.write(&of_hosts(1, hosts), &mut Rejects::default()).await.unwrap();
    }
    sink.flush().await.unwrap();
    assert_eq!(sink.take_committed(), 2);
    sink.commit(sink.uncommitted()).await.unwrap();
    assert_eq!(below(folder.path()).0, named(&[("a-00001.log", "1 a\n3 a\n4 a\n5 a\n6 a\n")]));
}

#[tokio::test]
async fn many_open_objects_need_little_memory_and_the_oldest_is_finished_first() {
    let hosts: Vec<String> = (0..200).map(|n| format!("{n:03}{}", "x".repeat(100))).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    // A folder takes parts of any size. Of a store, an object with a few bytes can only be finished.
    for (smallest_part, finishes) in [(1, false), (5 << 20, true)] {
        let folder = tempfile::tempdir().unwrap();
        let config = sink(folder.path(), "/', name: '{host}.log', max_open_files: 1000");
        let budget = thalweg_record::Budget::new(256 << 10);
        let context = Context { memory: budget.share(), ..context() };
        let mut target = config.new_target(&budget).unwrap();
        target.limits.smallest_part = smallest_part;
        config.common.set(target).unwrap();
        let mut sink = SinkConfig::build(&config, &context).unwrap();
        sink.open(None).await.unwrap();
        for round in 0..3 {
            for some in hosts.chunks(10) {
                sink.write(&of_hosts(round, some), &mut Rejects::default()).await.unwrap();
                assert!(budget.used() <= 80 << 10, "{budget:?}");
            }
        }
        sink.finish().await.unwrap();
        let (found, hidden) = below(folder.path());
        let lines = found.iter().map(|(_, text)| text.lines().count()).sum::<usize>();
        assert_eq!((lines, hidden), (600, 0));
        assert_eq!(found.iter().any(|(name, _)| name.ends_with("-00002.log")), finishes);
    }
}

#[cfg(feature = "parquet")]
proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn each_message_is_there_once_whatever_the_names_and_however_often_a_run_is_cut_off(
        hosts in prop::collection::vec(prop::collection::vec("[abc]", 1..6), 1..16),
        runs in prop::collection::vec((prop::collection::vec(after(), 0..8), prop::option::of(after())), 0..4),
        (rotates, tables) in any::<(bool, bool)>(),
        most in 1..4usize,
    ) {
        let (folder, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let rotate = if rotates { ", rotate: { size: 60B }" } else { "" };
        let encode = if tables { ", encode: parquet" } else { "" };
        let rest = format!("/out', name: '{{host}}/part', max_open_files: {most}{rotate}{encode}");
        let config = sink(folder.path(), &rest);
        let journal = Journal::new(Arc::new(thalweg_engine::Store::open(state.path()).unwrap()), "out");
        let mut batches = Vec::new();
        for hosts in &hosts {
            let first = batches.iter().map(thalweg_record::Batch::rows).sum();
            let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
            batches.push(of_hosts(first, &hosts));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let mut left = Left::default();
        let last: Run = (Vec::new(), Some(After::Commits));
        for (steps, end) in runs.into_iter().chain([last]) {
            let until = if end.is_some() { batches.len() } else { (left.covered + steps.len()).min(batches.len()) };
            runtime.block_on(write_batches(&config, &journal, &batches[..until], &mut left, &steps, end));
        }
        let mut numbers = Vec::new();
        for entry in fs::read_dir(folder.path().join("out")).unwrap().flatten() {
            let host = entry.file_name().into_string().unwrap();
            let mut names: Vec<_> = fs::read_dir(entry.path()).unwrap().map(|file| file.unwrap().path()).collect();
            names.sort();
            let first = numbers.len();
            for (at, path) in names.iter().enumerate() {
                let number = if rotates || at > 0 { format!("part-{:05}", at + 1) } else { "part".to_owned() };
                prop_assert_eq!(path.file_name().unwrap().to_str().unwrap(), number);
                let bytes = fs::read(path).unwrap();
                let rows: Vec<(i64, String)> = match tables {
                    true => table_rows(bytes).into_iter().map(|row| {
                        (row["n"].as_i64().unwrap(), row["host"].as_str().unwrap().to_owned())
                    }).collect(),
                    false => String::from_utf8(bytes).unwrap().lines().map(|line| {
                        let (n, host) = line.split_once(' ').unwrap();
                        (n.parse().unwrap(), host.to_owned())
                    }).collect(),
                };
                prop_assert!(rows.iter().all(|(_, of)| *of == host));
                numbers.extend(rows.into_iter().map(|(n, _)| n));
            }
            prop_assert!(numbers[first..].is_sorted());
        }
        numbers.sort_unstable();
        let rows = batches.iter().map(thalweg_record::Batch::rows).sum::<usize>() as i64;
        prop_assert_eq!(numbers, (0..rows).collect::<Vec<_>>());
        let left = journal.entries("").unwrap().into_iter();
        let left = left.filter(|(name, _)| name != "completing" && !name.starts_with("next/")).count();
        prop_assert_eq!(left, 0);
    }
}
