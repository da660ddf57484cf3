//! The output that a killed run left, with sources that send messages again and with sources that do not.

use serde_json::Value;

use super::*;

/// Writes four messages. The run is killed at `kill`: 0 before a checkpoint, 1 with the state of the first
/// moment, 2 with that of half of the messages; each before or after the files got their final names.
async fn killed(
    folder: &Folder,
    yaml: &str,
    context: &Context,
    kill: usize,
    finishes: bool,
) -> Option<Value> {
    let mut sink = folder.sink_in(yaml, context);
    sink.open(None).await.unwrap();
    let mut saved = (kill > 0).then(|| sink.state()).flatten();
    write(&mut *sink, &keyed(&[("a", "1"), ("b", "2")])).await;
    sink.flush().await.unwrap();
    if kill == 2 {
        saved = sink.state();
    }
    write(&mut *sink, &keyed(&[("a", "3"), ("c", "4")])).await;
    sink.flush().await.unwrap();
    if finishes {
        sink.finish().await.unwrap();
    }
    wait_for_compression(folder, yaml).await;
    saved
}

/// Waits until the threads of the sink have compressed their pieces, so that the kill comes after them.
async fn wait_for_compression(folder: &Folder, yaml: &str) {
    let is_done =
        |name: &str| name.ends_with(".gz") || name.ends_with(".part") && !name.ends_with(".gz.part");
    let is_packed = yaml.contains("rotate:") && yaml.contains("compression:");
    while is_packed && !folder.files().iter().all(|(name, _)| is_done(name)) {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

const SHAPES: [&str; 9] = [
    "{ path: 'DIR/{k}' }",
    "{ path: 'DIR/a' }",
    "{ path: 'DIR/{k}', compression: gzip }",
    "{ path: 'DIR/{k}', atomic: false }",
    "{ path: 'DIR/{k}', rotate: { size: 2B, timestamp: '%H-%M-%S-%3f' } }",
    "{ path: 'DIR/{k}', rotate: { size: 2B, timestamp: '%H-%M-%S-%3f', compression: gzip } }",
    "{ path: 'DIR/{k}', rotate: { size: 2B, timestamp: '%H', numbers: if_taken } }",
    "{ path: 'DIR/{k}', rotate: { size: 2B, timestamp: '%H', numbers: if_taken, compression: gzip } }",
    "{ path: 'DIR/{k}', rotate: { size: 2B, timestamp: '%H', numbers: if_taken }, atomic: false }",
];

#[tokio::test]
async fn a_run_killed_at_any_step_is_continued_without_loss_or_repetition() {
    for yaml in SHAPES {
        for (kill, finishes) in [(0, false), (0, true), (1, false), (1, true), (2, false), (2, true)] {
            let folder = Folder::new();
            let (_store, context) = with_journal();
            let saved = killed(&folder, yaml, &context, kill, finishes).await;
            std::thread::sleep(std::time::Duration::from_millis(2));
            // A run that is killed again before its first checkpoint changes nothing.
            for is_last in [false, true] {
                let mut sink = folder.sink_in(yaml, &context);
                sink.open(saved.clone()).await.unwrap();
                let mut rest = vec![("a", "1"), ("b", "2"), ("a", "3"), ("c", "4")];
                rest.drain(..if kill == 2 { 2 } else { 0 });
                write(&mut *sink, &keyed(&rest)).await;
                sink.flush().await.unwrap();
                if is_last {
                    sink.finish().await.unwrap();
                }
                wait_for_compression(&folder, yaml).await;
            }
            let at = format!("{yaml} killed at {kill}, finished: {finishes}: {:?}", folder.files());
            assert_eq!(all_messages(&folder), ["1", "2", "3", "4"], "{at}");
            assert!(folder.files().iter().all(|(name, _)| !name.ends_with(".part")), "{at}");
        }
    }
}

/// Writes this many files of one message each, and finishes them as a signal does.
async fn write_and_reopen(sink: &mut dyn Sink, count: usize) {
    let names: Vec<String> = (0..count).map(|number| format!("n{number:03}")).collect();
    let rows: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), name.as_str())).collect();
    write(sink, &keyed(&rows)).await;
    sink.reopen().await.unwrap();
}

#[tokio::test]
async fn more_files_than_are_kept_are_cut_that_were_finished_after_the_checkpoint() {
    let folder = Folder::new();
    let (_store, context) = with_journal();
    let mut sink = folder.sink_in("{ path: 'DIR/{k}' }", &context);
    sink.open(None).await.unwrap();
    let saved = sink.state();
    write_and_reopen(&mut *sink, 300).await;
    drop(sink);
    let mut sink = folder.sink_in("{ path: 'DIR/{k}' }", &context);
    sink.open(saved).await.unwrap();
    write_and_reopen(&mut *sink, 300).await;
    sink.finish().await.unwrap();
    let expected: Vec<String> = (0..300).map(|number| format!("n{number:03}")).collect();
    assert_eq!(all_messages(&folder), expected);
}

#[tokio::test]
async fn finished_files_that_a_checkpoint_covers_leave_the_state() {
    let folder = Folder::new();
    let (_store, context) = with_journal();
    let count = |sink: &dyn Sink| sink.state().unwrap().as_array().unwrap().len();
    let mut sink = folder.sink_in("{ path: 'DIR/{k}' }", &context);
    sink.open(None).await.unwrap();
    write_and_reopen(&mut *sink, 256).await;
    assert_eq!((count(&*sink), sink.uncommitted()), (256, 0));
    // The first is written to again.
    write_and_reopen(&mut *sink, 1).await;
    assert_eq!((count(&*sink), sink.uncommitted()), (256, 257));
    sink.commit(257).await.unwrap();
    assert_eq!((count(&*sink), sink.uncommitted()), (256, 0));
    write_and_reopen(&mut *sink, 600).await;
    assert_eq!((count(&*sink), sink.uncommitted()), (600, 600));
    sink.commit(200).await.unwrap();
    assert_eq!((count(&*sink), sink.uncommitted()), (400, 400));
    sink.commit(400).await.unwrap();
    assert_eq!((count(&*sink), sink.uncommitted()), (256, 0));
}

#[tokio::test]
async fn what_no_source_sends_again_stays() {
    for yaml in SHAPES {
        for (kill, finishes) in [(0, false), (0, true), (1, false), (1, true), (2, false), (2, true)] {
            let folder = Folder::new();
            let (_store, context) = with_journal();
            let context = Context { resends: false, ..context };
            let saved = killed(&folder, yaml, &context, kill, finishes).await;
            let mut sink = folder.sink_in(yaml, &context);
            sink.open(saved).await.unwrap();
            write(&mut *sink, &keyed(&[("a", "5"), ("b", "6"), ("c", "7")])).await;
            sink.finish().await.unwrap();
            let at = format!("{yaml} killed at {kill}, finished: {finishes}: {:?}", folder.files());
            assert_eq!(all_messages(&folder), ["1", "2", "3", "4", "5", "6", "7"], "{at}");
            assert!(folder.files().iter().all(|(name, _)| !name.ends_with(".part")), "{at}");
        }
    }
}

#[tokio::test]
async fn a_service_without_a_state_adds_to_what_it_wrote_before() {
    for yaml in SHAPES {
        for finishes in [false, true] {
            let folder = Folder::new();
            let context = Context { starts_over: false, ..context() };
            killed(&folder, yaml, &context, 0, finishes).await;
            let mut sink = folder.sink_in(yaml, &context);
            sink.open(None).await.unwrap();
            write(&mut *sink, &keyed(&[("a", "5"), ("b", "6"), ("c", "7")])).await;
            sink.finish().await.unwrap();
            let at = format!("{yaml} finished: {finishes}: {:?}", folder.files());
            assert_eq!(all_messages(&folder), ["1", "2", "3", "4", "5", "6", "7"], "{at}");
        }
    }
    // The setting of the user takes precedence.
    let folder = Folder::new();
    folder.put("out", "old\n");
    let context = Context { starts_over: false, ..context() };
    let mut sink = folder.sink_in("{ path: DIR/out, existing: replace }", &context);
    sink.open(None).await.unwrap();
    write(&mut *sink, &batch(["new"])).await;
    sink.finish().await.unwrap();
    assert_eq!(folder.files(), files([("out", "new\n")]));
}

#[tokio::test]
async fn pieces_that_another_run_wrote_after_a_complete_one_stay() {
    let folder = Folder::new();
    let (_store, context) = with_journal();
    let yaml = "{ path: DIR/o, rotate: { size: 2B } }";
    let mut sink = folder.sink_in(yaml, &context);
    sink.open(None).await.unwrap();
    write(&mut *sink, &batch(["1", "2"])).await;
    sink.finish().await.unwrap();
    let saved = sink.state();
    folder.put("o-00003", "of another run\n");
    let mut sink = folder.sink_in(yaml, &context);
    sink.open(saved).await.unwrap();
    write(&mut *sink, &batch(["3"])).await;
    sink.finish().await.unwrap();
    let text: String = folder.files().into_iter().map(|(_, text)| text).collect();
    assert_eq!(text, "1\n2\nof another run\n3\n");
}

#[tokio::test]
async fn a_finished_file_that_is_not_the_one_of_the_state_is_not_cut() {
    let folder = Folder::new();
    let (_store, context) = with_journal();
    let mut sink = folder.sink_in("path: DIR/out", &context);
    sink.open(None).await.unwrap();
    write(&mut *sink, &batch(["1"])).await;
    let saved = sink.state();
    drop(sink);
    fs::rename(folder.path("out.part"), folder.path("elsewhere")).unwrap();
    folder.put("out", "of another program\n");
    let mut sink = folder.sink_in("path: DIR/out", &context);
    sink.open(saved).await.unwrap();
    write(&mut *sink, &batch(["2"])).await;
    sink.finish().await.unwrap();
    assert_eq!(folder.files(), files([("elsewhere", "1\n"), ("out", "of another program\n2\n")]));
}

#[tokio::test]
async fn a_name_that_was_idle_and_came_again_is_not_written_twice() {
    let folder = Folder::new();
    let (_store, context) = with_journal();
    let yaml = "{ path: 'DIR/{k}', idle_timeout: 20ms }";
    let idle = async || {
        while folder.files().iter().any(|(name, _)| name.ends_with(".part")) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    for waits in [false, true] {
        let mut sink = folder.sink_in(yaml, &context);
        sink.open(None).await.unwrap();
        write(&mut *sink, &keyed(&[("a", "1")])).await;
        idle().await;
        let saved = sink.state();
        write(&mut *sink, &keyed(&[("a", "2")])).await;
        if waits {
            idle().await;
        }
        drop(sink);
        let mut sink = folder.sink_in(yaml, &context);
        sink.open(saved).await.unwrap();
        write(&mut *sink, &keyed(&[("a", "2")])).await;
        sink.finish().await.unwrap();
        assert_eq!(folder.files(), files([("a", "1\n2\n")]), "{waits}");
        fs::remove_file(folder.path("a")).unwrap();
        context.journal.as_ref().unwrap().forget("").unwrap();
    }
}
