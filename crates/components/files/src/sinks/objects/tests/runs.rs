//! Several runs with one state.

use super::*;

/// The runs of a sink with one state, as an engine makes them.
pub(super) struct Runs {
    pub(super) folder: tempfile::TempDir,
    pub(super) journal: Journal,
    pub(super) saved: Option<serde_json::Value>,
    rest: &'static str,
    /// The smallest part that the store accepts before the last one, as on S3.
    smallest_part: u64,
    _state: tempfile::TempDir,
}

/// How a run ends.
pub(super) enum Ending {
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
    pub(super) fn new(rest: &'static str, smallest_part: u64) -> Self {
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

    pub(super) fn sink(&self, context: &Context) -> Box<dyn Sink> {
        let config = sink(self.folder.path(), &format!("/all.log'{}", self.rest));
        let mut target = config.new_target(context.memory.budget()).unwrap();
        target.limits.smallest_part = self.smallest_part;
        config.common.set(target).unwrap();
        SinkConfig::build(&config, context).unwrap()
    }

    pub(super) async fn run(&mut self, texts: &[&str], ending: Ending) {
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

    pub(super) fn objects(&self) -> Vec<(String, String)> {
        below(self.folder.path()).0
    }
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

/// The upload was noted before the folder was found to be none. Each later run then failed to discard it,
/// also one with the right folder.
#[tokio::test]
async fn a_wrong_folder_is_no_obstacle_to_the_right_one() {
    let mut runs = Runs::new(", part_size: 1B, existing: replace", 1);
    let file = runs.folder.path().join("file");
    fs::write(&file, "").unwrap();
    let context = Context { resumes: true, journal: Some(runs.journal.clone()), ..context() };
    let config = sink(&file, &format!("/all.log'{}", runs.rest));
    let mut target = config.new_target(context.memory.budget()).unwrap();
    target.limits.smallest_part = 1;
    config.common.set(target).unwrap();
    let mut wrong = SinkConfig::build(&config, &context).unwrap();
    wrong.open(None).await.unwrap();
    wrong.write(&batch(["one"]), &mut Rejects::default()).await.unwrap();
    // Now the part with the first message is sent.
    assert!(wrong.write(&batch(["two"]), &mut Rejects::default()).await.is_err());
    drop(wrong);
    runs.run(&["one"], Ending::Whole).await;
    assert_eq!(runs.objects(), named(&[("all.log", "one\n"), ("file", "")]));
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
async fn a_sink_without_a_saved_state_writes_over_no_object_of_a_former_one_unless_it_is_told_to() {
    for (rest, first, second) in [
        ("", "all.log", "all-00002.log"),
        (", rotate: { size: 1GiB }", "all-00001.log", "all-00002.log"),
        (", existing: replace", "all.log", "all.log"),
    ] {
        let mut runs = Runs::new(rest, 1);
        runs.run(&["one"], Ending::Whole).await;
        // The same folder, and a state that does not have this sink: it was renamed, or the state is new.
        runs.saved = None;
        runs.run(&["two"], Ending::Killed).await;
        runs.run(&["two"], Ending::Whole).await;
        let mut expected = named(&[(first, "one\n"), (second, "two\n")]);
        if first == second {
            expected.remove(0);
        }
        expected.sort();
        assert_eq!(runs.objects(), expected, "{rest}");
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
