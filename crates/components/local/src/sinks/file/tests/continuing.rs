//! Runs that resume where another run ended.

use super::*;

#[tokio::test]
async fn a_file_of_a_run_that_broke_off_is_replaced_or_added_to_at_its_last_whole_message() {
    for (existing, expected) in [("replace", "new\n"), ("append", "whole\nnew\n")] {
        let folder = Folder::new();
        folder.put("out.part", "whole\nto");
        let yaml = folder.yaml(&format!("{{ path: DIR/out, existing: {existing} }}"));
        write_all::<FileConfig>(&yaml, [batch(["new"])]).await.unwrap();
        assert_eq!(folder.files(), files([("out", expected)]));
    }
}

#[tokio::test]
async fn a_finished_file_is_taken_back_by_the_run_that_continues() {
    let folder = Folder::new();
    let yaml = "path: DIR/out";
    let mut sink = folder.sink(yaml, true);
    sink.open(None).await.unwrap();
    write(&mut *sink, &batch(["1"])).await;
    let saved = sink.state();
    write(&mut *sink, &batch(["2"])).await;
    sink.finish().await.unwrap();
    let finished = sink.state();
    assert_eq!(folder.files(), files([("out", "1\n2\n")]));

    let mut sink = folder.sink(yaml, true);
    sink.open(saved).await.unwrap();
    assert_eq!(folder.files(), files([("out.continued.part", "1\n")]));
    write(&mut *sink, &batch(["2"])).await;
    sink.finish().await.unwrap();

    // After a complete run nothing is cut; only an interrupted run since then would leave something to cut.
    let mut sink = folder.sink(yaml, true);
    sink.open(finished.clone()).await.unwrap();
    write(&mut *sink, &batch(["3"])).await;
    assert_eq!(folder.files(), files([("out.continued.part", "1\n2\n3\n")]));
    let mut sink = folder.sink(yaml, true);
    sink.open(finished).await.unwrap();
    assert_eq!(folder.files(), files([("out.continued.part", "1\n2\n")]));
}

#[tokio::test]
async fn the_state_of_another_kind_of_sink_is_refused_with_the_way_out() {
    let folder = Folder::new();
    let mut sink = folder.sink("path: DIR/out", true);
    let error = sink.open(Some(serde_json::json!({ "number": 1, "parts": [] }))).await.unwrap_err().full();
    assert_eq!(
        error,
        "the saved state of the sink is not one of `file`. Undo the change of the configuration, or give the sink another \
         name or use another state folder: what the state has is then not written"
    );
    assert!(folder.files().is_empty());
}

/// A step of the property test below.
#[derive(Debug, Clone)]
enum Step {
    Write(u8),
    Flush,
    /// The state and the positions are saved.
    Save,
    /// The process is killed during a write, which leaves this number of garbage bytes at the end of a file.
    Crash(u8),
    Finish,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..12u8).prop_map(Step::Write),
        2 => Just(Step::Flush),
        2 => Just(Step::Save),
        2 => any::<u8>().prop_map(Step::Crash),
        1 => Just(Step::Finish),
    ]
}

/// Options that decide under which names messages are found.
const RESTS: [&str; 5] = [
    "",
    ", rotate: { size: 20B }",
    ", rotate: { size: 20B, timestamp: '%Y', numbers: if_taken, digits: 5 }",
    ", max_open_files: 1",
    ", atomic: false",
];

/// Returns the text of each name, with its pieces joined.
fn by_name(folder: &Folder, compression: &str) -> Vec<(String, String)> {
    let mut joined: Vec<(String, String)> = Vec::new();
    for (name, text) in folder.files() {
        let text = if compression == "none" { text } else { decompressed(&folder.path(&name), compression) };
        let name = name.split('-').next().unwrap().to_owned();
        match joined.last_mut() {
            Some(last) if last.0 == name => last.1 += &text,
            _ => joined.push((name, text)),
        }
    }
    joined.retain(|(_, text)| !text.is_empty());
    joined
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    /// The source is a list of numbered messages. Its position is saved with the sink's state, and counts
    /// durable messages only.
    #[test]
    fn a_run_continued_after_crashes_writes_every_message_once(
        steps in prop::collection::vec(step(), 1..30),
        compression in prop::sample::select(vec!["none", "gzip", "zstd"]),
        rest in prop::sample::select(RESTS.to_vec()),
        path in prop::sample::select(vec!["DIR/a", "DIR/{k}"]),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let folder = Folder::new();
            let yaml = format!("{{ path: '{path}', compression: {compression}, fsync: never{rest} }}");
            let key = |number: usize| if path.contains('{') { ["a", "b", "c"][number * 7 / 5 % 3] } else { "a" };
            let (_store, context) = with_journal();
            let mut sink = folder.sink_in(&yaml, &context);
            sink.open(None).await.unwrap();
            let (mut sent, mut safe) = (0, 0);
            let mut saved = (None, 0);
            let mut top = 0;
            for step in steps {
                let mut reopen = false;
                match step {
                    Step::Write(count) => {
                        let texts: Vec<String> = (sent..sent + usize::from(count)).map(|n| format!("m{n}")).collect();
                        let rows: Vec<(&str, &str)> =
                            texts.iter().enumerate().map(|(n, t)| (key(sent + n), t.as_str())).collect();
                        let mut rejects = Rejects::default();
                        let written = sink.write(&keyed(&rows), &mut rejects).await.unwrap();
                        sent += usize::from(count);
                        if written == WriteOutcome::Durable {
                            safe = sent;
                        }
                    }
                    Step::Flush => {
                        sink.flush().await.unwrap();
                        safe = sent;
                    }
                    // The state may cover more messages than the saved position, but only messages that are
                    // not committed.
                    Step::Save => saved = (sink.state(), safe),
                    Step::Finish => {
                        sink.finish().await.unwrap();
                        saved = (sink.state(), sent);
                        safe = sent;
                        reopen = true;
                    }
                    Step::Crash(rubbish) => {
                        // A torn write is at the end of a file that is being written.
                        let torn = folder.files().into_iter().find(|(name, _)| name.ends_with(".part"));
                        if let Some((name, _)) = torn {
                            let mut bytes = fs::read(folder.path(&name)).unwrap();
                            bytes.extend(std::iter::repeat_n(b'?', usize::from(rubbish)));
                            fs::write(folder.path(&name), bytes).unwrap();
                        }
                        reopen = true;
                    }
                }
                top = top.max(sent);
                if reopen {
                    drop(sink);
                    sink = folder.sink_in(&yaml, &context);
                    sink.open(saved.0.clone()).await.unwrap();
                    (sent, safe) = (saved.1, saved.1);
                }
            }
            // The source sends again the messages that were not durable.
            let texts: Vec<String> = (sent..top).map(|n| format!("m{n}")).collect();
            let rows: Vec<(&str, &str)> =
                texts.iter().enumerate().map(|(n, t)| (key(sent + n), t.as_str())).collect();
            assert!(write(&mut *sink, &keyed(&rows)).await.is_empty());
            let sent = top;
            sink.finish().await.unwrap();
            let mut expected: std::collections::BTreeMap<String, String> = Default::default();
            for number in 0..sent {
                *expected.entry(key(number).to_owned()).or_default() += &format!("m{number}\n");
            }
            let expected: Vec<(String, String)> = expected.into_iter().collect();
            let found = by_name(&folder, compression);
            prop_assert_eq!(found, expected);
            Ok(())
        })?;
    }

    /// As above, but the source sends nothing a second time.
    #[test]
    fn a_run_continued_after_crashes_keeps_what_comes_only_once(
        steps in prop::collection::vec(step(), 1..30),
        rest in prop::sample::select(RESTS.to_vec()),
        path in prop::sample::select(vec!["DIR/a", "DIR/{k}"]),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let folder = Folder::new();
            let yaml = format!("{{ path: '{path}', fsync: never{rest} }}");
            let key = |number: usize| if path.contains('{') { ["a", "b", "c"][number * 7 / 5 % 3] } else { "a" };
            let (_store, context) = with_journal();
            let context = Context { resends: false, ..context };
            let mut sink = folder.sink_in(&yaml, &context);
            sink.open(None).await.unwrap();
            let (mut sent, mut saved) = (0, None);
            for step in steps {
                match step {
                    Step::Write(count) => {
                        let texts: Vec<String> = (sent..sent + usize::from(count)).map(|n| format!("m{n}")).collect();
                        let rows: Vec<(&str, &str)> =
                            texts.iter().enumerate().map(|(n, t)| (key(sent + n), t.as_str())).collect();
                        write(&mut *sink, &keyed(&rows)).await;
                        sent += usize::from(count);
                        continue;
                    }
                    Step::Flush => {
                        sink.flush().await.unwrap();
                        continue;
                    }
                    Step::Save => {
                        saved = sink.state();
                        continue;
                    }
                    Step::Finish => {
                        sink.finish().await.unwrap();
                        saved = sink.state();
                    }
                    Step::Crash(rubbish) => {
                        let torn = folder.files().into_iter().find(|(name, _)| name.ends_with(".part"));
                        if let Some((name, text)) = torn {
                            fs::write(folder.path(&name), text + &"?".repeat(rubbish.into())).unwrap();
                        }
                    }
                }
                drop(sink);
                sink = folder.sink_in(&yaml, &context);
                sink.open(saved.clone()).await.unwrap();
            }
            sink.finish().await.unwrap();
            let mut expected: std::collections::BTreeMap<String, String> = Default::default();
            for number in 0..sent {
                *expected.entry(key(number).to_owned()).or_default() += &format!("m{number}\n");
            }
            prop_assert_eq!(by_name(&folder, "none"), expected.into_iter().collect::<Vec<_>>());
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn a_file_from_before_the_sink_had_rotate_stays_beside_its_pieces() {
    for is_finished in [false, true] {
        let folder = Folder::new();
        let mut sink = folder.sink("path: DIR/out", true);
        sink.open(None).await.unwrap();
        write(&mut *sink, &batch(["1", "2"])).await;
        if is_finished {
            sink.finish().await.unwrap();
        }
        let mut saved = sink.state();
        drop(sink);
        for texts in [["3", "4"], ["5", "6"]] {
            let mut sink = folder.sink("{ path: DIR/out, rotate: { size: 4B } }", true);
            sink.open(saved).await.unwrap();
            for text in texts {
                write(&mut *sink, &batch([text])).await;
            }
            sink.finish().await.unwrap();
            saved = sink.state();
        }
        let all: String = by_name(&folder, "none").into_iter().map(|(_, text)| text).collect();
        assert_eq!(all, "1\n2\n3\n4\n5\n6\n", "{:?}", folder.files());
        assert!(folder.files().iter().any(|(name, text)| name == "out" && text.starts_with("1\n2\n")));
    }
}

/// Each configuration of a sink is followed by each other, after the run with the first was killed.
const FORMS: [&str; 9] = [
    "path: DIR/out",
    "path: DIR/out, atomic: false",
    "path: DIR/out, rotate: { size: 9B }",
    "path: DIR/out, rotate: { size: 9B }, atomic: false",
    "path: DIR/out, rotate: { size: 9B, digits: 3 }",
    "path: DIR/out, rotate: { size: 9B, timestamp: '%Y' }",
    "path: DIR/out, rotate: { size: 9B, compression: gzip }",
    "path: DIR/out, rotate: { size: 9B }, compression: gzip",
    "path: DIR/out, rotate: { size: 9B }, compression: zstd",
];

/// Returns all lines of a folder's files, whichever way they are compressed.
fn all_lines(folder: &Folder) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, _) in folder.files() {
        assert!(!name.ends_with(".part"), "{name} is not finished");
        let compression = match fs::read(folder.path(&name)).unwrap().get(..2) {
            Some([0x1f, 0x8b]) => "gzip",
            Some([0x28, 0xb5]) => "zstd",
            _ => "none",
        };
        lines.extend(decompressed(&folder.path(&name), compression).lines().map(str::to_owned));
    }
    lines.sort();
    lines
}

#[tokio::test]
async fn after_a_kill_and_a_change_of_options_every_message_is_there_once() {
    let state = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(state.path()).unwrap());
    for (one, other) in FORMS.iter().flat_map(|one| FORMS.iter().map(move |other| (one, other))) {
        for resends in [true, false] {
            let folder = Folder::new();
            let journal = Some(Journal::new(store.clone(), &format!("{one}{other}{resends}")));
            let context = Context { resumes: true, resends, journal, ..context() };
            let sink = |yaml: &str| folder.sink_in(&format!("{{ {yaml}, fsync: never }}"), &context);
            let mut first = sink(one);
            first.open(None).await.unwrap();
            for texts in [["m1", "m2"], ["m3", "m4"]] {
                write(&mut *first, &batch(texts)).await;
            }
            first.flush().await.unwrap();
            let mut saved = first.state();
            // These messages are written after the checkpoint.
            write(&mut *first, &batch(["m5"])).await;
            write(&mut *first, &batch(["m6"])).await;
            first.flush().await.unwrap();
            drop(first);
            let texts = if resends { ["m5", "m6"] } else { ["m7", "m8"] };
            for is_killed in [true, false] {
                let mut second = sink(other);
                second.open(saved.clone()).await.unwrap();
                if resends || is_killed {
                    write(&mut *second, &batch([texts[0]])).await;
                    write(&mut *second, &batch([texts[1]])).await;
                    second.flush().await.unwrap();
                }
                if !is_killed {
                    second.finish().await.unwrap();
                    saved = second.state();
                }
                drop(second);
            }
            let mut third = sink(other);
            third.open(saved).await.unwrap();
            write(&mut *third, &batch(["m9"])).await;
            third.finish().await.unwrap();
            drop(third);
            let mut expected = vec!["m1", "m2", "m3", "m4", "m5", "m6", "m9"];
            if !resends {
                expected.splice(6..6, texts);
            }
            assert_eq!(all_lines(&folder), expected, "{one}, then {other}: {:?}", folder.files());
        }
    }
}

#[tokio::test]
async fn nothing_is_appended_to_a_file_with_another_compression() {
    let folder = Folder::new();
    let mut sink = folder.sink("{ path: DIR/out, compression: gzip }", true);
    sink.open(None).await.unwrap();
    write(&mut *sink, &batch(["1"])).await;
    sink.flush().await.unwrap();
    let saved = sink.state();
    drop(sink);
    let mut sink = folder.sink("path: DIR/out", true);
    let error = sink.open(saved.clone()).await.unwrap_err().full();
    assert!(
        error.ends_with(
            "/out` was written with `compression: gzip`, and nothing can be appended to it with `compression: \
             none`. It is complete: give `path` another name, or set `compression` back."
        ),
        "{error}"
    );
    assert_eq!(all_lines(&folder), ["1"]);
    // Both ways out.
    let mut sink = folder.sink("{ path: DIR/out, compression: gzip }", true);
    sink.open(saved.clone()).await.unwrap();
    write(&mut *sink, &batch(["2"])).await;
    sink.flush().await.unwrap();
    let saved = sink.state();
    drop(sink);
    let mut sink = folder.sink("path: DIR/other", true);
    sink.open(saved).await.unwrap();
    write(&mut *sink, &batch(["3"])).await;
    sink.finish().await.unwrap();
    assert_eq!(all_lines(&folder), ["1", "2", "3"]);
}

#[tokio::test]
async fn a_piece_whose_compression_was_interrupted_is_compressed_again() {
    for resumes in [false, true] {
        let folder = Folder::new();
        folder.put("out-00001", "1\n");
        folder.put("out-00001.gz.part", "torn");
        folder.put("out-00002.gz.part", "nothing else is left of it");
        let mut sink = folder
            .sink("{ path: DIR/out, rotate: { size: 2B, compression: gzip }, existing: append }", resumes);
        sink.open(None).await.unwrap();
        write(&mut *sink, &batch(["2"])).await;
        sink.finish().await.unwrap();
        drop(sink);
        let names: Vec<_> = folder.files().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["out-00001.gz", "out-00003.gz"]);
        assert_eq!(all_lines(&folder), ["1", "2"]);
    }
}

/// Runs of a file that was begun, finished and continued after the last checkpoint, which is that of a
/// complete run or none.
async fn finished_and_continued(rest: &str, has_state: bool, finishes: bool) -> Vec<String> {
    let folder = Folder::new();
    let (_store, context) = with_journal();
    let yaml = format!("{{ path: 'DIR/{{k}}'{rest} }}");
    let rows = [("a", "1"), ("a", "2"), ("a", "3"), ("a", "4")];
    let (covered, later) = rows.split_at(usize::from(has_state));
    let mut saved = None;
    if has_state {
        let mut sink = folder.sink_in(&yaml, &context);
        sink.open(None).await.unwrap();
        write(&mut *sink, &keyed(covered)).await;
        sink.finish().await.unwrap();
        saved = sink.state();
    }
    let mut sink = folder.sink_in(&yaml, &context);
    sink.open(saved.clone()).await.unwrap();
    for row in later {
        write(&mut *sink, &keyed(&[*row])).await;
        // As SIGHUP: the file is finished, and the next message continues it.
        sink.reopen().await.unwrap();
    }
    drop(sink);
    // A run that is killed again before its first checkpoint changes nothing.
    for is_last in [false, true] {
        let mut sink = folder.sink_in(&yaml, &context);
        sink.open(saved.clone()).await.unwrap();
        write(&mut *sink, &keyed(later)).await;
        sink.flush().await.unwrap();
        if finishes || is_last {
            sink.finish().await.unwrap();
        }
    }
    all_messages(&folder)
}

#[tokio::test]
async fn a_file_that_was_continued_twice_since_the_checkpoint_is_cut_to_the_checkpoint() {
    for rest in ["", ", compression: gzip", ", atomic: false"] {
        for (has_state, finishes) in [(false, false), (false, true), (true, false), (true, true)] {
            let found = finished_and_continued(rest, has_state, finishes).await;
            assert_eq!(found, ["1", "2", "3", "4"], "{rest} {has_state} {finishes}");
        }
    }
}
