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
async fn what_is_there_is_replaced_or_left_alone_as_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let text = || fs::read_to_string(folder.path().join("x")).unwrap();
    let write = async |rest: &str, content: &str| {
        let sink = sink(folder.path(), &format!("/', on_exists: {rest}"));
        apply(&sink, &mut file_of("x", content.as_bytes())).await
    };
    write("error", "1").await.unwrap();
    let refused = write("error", "2").await.unwrap_err();
    let thalweg_engine::FileError::Rejected(problem) = &refused else { panic!("{refused:?}") };
    assert_eq!(
        problem.reason.replace(&folder.path().display().to_string(), "FOLDER"),
        "`FOLDER/x` exists already"
    );
    for (on_exists, content, expected) in
        [("skip", "3", "1"), ("update", "4", "1"), ("update", "55", "55"), ("replace", "66", "66")]
    {
        write(on_exists, content).await.unwrap();
        assert_eq!(text(), expected, "{on_exists} {content}");
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

/// Writes batches with a sink that resumes from `saved`, as the engine does. The run is interrupted after
/// `cut_after` batches.
async fn write(
    config: &ObjectsSink,
    batches: &[String],
    saved: Option<serde_json::Value>,
    cut_after: usize,
) -> (usize, Option<serde_json::Value>) {
    let context = Context { resumes: true, ..context() };
    let mut sink = SinkConfig::build(config, &context).unwrap();
    sink.open(saved).await.unwrap();
    let mut take_committed = 0;
    let mut state = sink.state();
    for text in batches.iter().take(cut_after) {
        sink.write(&batch([text]), &mut Rejects::default()).await.unwrap();
        state = sink.state();
        take_committed += sink.take_committed();
    }
    if cut_after >= batches.len() {
        sink.finish().await.unwrap();
        return (batches.len(), sink.state());
    }
    (take_committed, state)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn messages_are_whole_and_in_their_order_however_often_a_run_is_cut_off(
        kibibytes in prop::collection::vec(0..900usize, 1..14),
        cuts in prop::collection::vec(0..8usize, 0..4),
        (rotates, encodes) in any::<(bool, bool)>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let rotate = if rotates { ", rotate: { size: 2MiB }" } else { "" };
        // With an encoding, long batches are sent without a copy.
        let encode = if encodes { ", encode: json" } else { "" };
        let config = sink(folder.path(), &format!("/out.log', part_size: 1MiB, writers: 2{rotate}{encode}"));
        let text = |(n, kibibytes): (usize, &usize)| format!("{n}{}", "x".repeat(kibibytes << 10));
        let batches: Vec<String> = kibibytes.iter().enumerate().map(text).collect();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (mut done, mut saved) = (0, None);
        for cut in cuts.into_iter().chain([usize::MAX]) {
            let (take_committed, state) = runtime.block_on(write(&config, &batches[done..], saved, cut));
            saved = state;
            let is_done = cut >= batches.len() - done;
            done += take_committed;
            if is_done {
                break;
            }
        }
        prop_assert_eq!(done, batches.len());
        let (found, hidden) = below(folder.path());
        let text: String = found.iter().map(|(_, text)| text.as_str()).collect();
        let expected: String = batches.iter().map(|text| format!("{text}\n")).collect();
        prop_assert!(text == expected);
        prop_assert_eq!(hidden, 0);
        prop_assert!(rotates || found.len() == 1);
        let numbered = |n: usize| format!("out-{:05}.log", n + 1);
        prop_assert!(!rotates || found.iter().enumerate().all(|(n, (name, _))| *name == numbered(n)));
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
