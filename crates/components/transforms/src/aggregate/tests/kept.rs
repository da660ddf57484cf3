//! Windows, acks and checkpoints.

use super::*;

/// Passes batches to runs with one state, some of which are killed.
pub(super) fn killed(yaml: &str, batches: &[&[Message]], kills: &[Killed]) -> Vec<Found> {
    crate::testing::killed::<Aggregate, _, _>(yaml, batches, kills, batch, results)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn runs_that_are_killed_count_each_message_once(
        messages in messages(),
        size in 1..8_usize,
        kills in prop::collection::vec((0..4_usize, 0..8_usize), 0..4),
        windows in prop::option::of((1..20_i64, 0..10_i64)),
    ) {
        let batches: Vec<&[Message]> = messages.chunks(size).collect();
        let (yaml, windows) = match windows {
            Some((every, delay)) => (
                format!("{{ {VALUES}, every: {every}s, time: t, max_delay: {delay}s, on_late: drop }}"),
                Some((every, every, delay)),
            ),
            None => (format!("{{ {VALUES} }}"), None),
        };
        prop_assert_eq!(killed(&yaml, &batches, &kills), model(&messages, windows).0);
    }

    /// A state is trusted, but one that is damaged must not end the program.
    #[test]
    fn a_damaged_state_is_refused(
        at in any::<prop::sample::Index>(),
        with in "[0-9a-z\"{}\\[\\],]{0,3}",
        length in 0..9_usize,
        is_session in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::new(Arc::new(Store::open(folder.path()).unwrap()), "test");
        let context = Context { resumes: true, journal: Some(journal.clone()), ..testing::context() };
        let values = "by: k, values: { a: distinct(n), b: \"quantile(n, 0.5)\", c: max(k), d: sum(n), \
                      e: \"list(n, 3)\", f: \"top_k(k, 2)\", g: stddev(n), h: last(n) }";
        let windows = if is_session { ", session_timeout: 9s, time: t" } else { "" };
        let yaml = format!("{{ {values}{windows} }}");
        let build = || testing::options::<Aggregate>(&yaml).build(&context).unwrap();
        let (mut first, mut out) = (build(), Outputs::new("test".into()));
        first.apply(batch(&[(1, Some("a"), Some(5)), (2, None, None)]), &mut out).unwrap();
        first.pre_commit().unwrap();
        let saved = first.state().unwrap();
        let damaged = |text: String| {
            let at = at.index(text.len());
            let end = text.ceil_char_boundary((at + length).min(text.len()));
            let text = format!("{}{with}{}", &text[..text.floor_char_boundary(at)], &text[end..]);
            serde_json::from_str::<Value>(&text).ok()
        };
        let notes = journal.entries("").unwrap();
        if let Some(saved) = damaged(saved.to_string()) {
            let mut second = build();
            if second.restore(saved).is_ok() {
                second.finish(&mut out).unwrap();
            }
        }
        for (name, note) in notes {
            if let Some(note) = damaged(note.to_string()) {
                journal.note(&name, &note).unwrap();
                let mut second = build();
                if second.restore(saved.clone()).is_ok() {
                    second.finish(&mut out).unwrap();
                }
            }
        }
        out.take().into_iter().for_each(|(_, batch)| batch.settle(Outcome::Delivered));
        first.finish(&mut out).unwrap();
        out.take().into_iter().for_each(|(_, batch)| batch.settle(Outcome::Delivered));
    }
}

/// A source that no run reads again, without or with a state: acks wait for the results.
#[test]
fn acks_wait_for_the_results_unless_a_run_starts_over() {
    let folder = tempfile::tempdir().unwrap();
    for (context, is_settled) in [
        (testing::context(), true),
        (Context { starts_over: false, ..testing::context() }, false),
        (Context { rereads: false, ..with_state(&folder) }, false),
    ] {
        let settled = Arc::new(AtomicUsize::new(0));
        let mut transform =
            testing::options::<Aggregate>(&format!("{{ {VALUES} }}")).build(&context).unwrap();
        let mut out = Outputs::new("test".into());
        for _ in 0..3 {
            let (mut batch, count) = (batch(&[(1, Some("a"), None)]), settled.clone());
            batch.ack_mut().merge(Ack::new("test".into(), move |settlement: Settlement| {
                count.fetch_add(usize::from(settlement.outcome == Outcome::Delivered), Ordering::Relaxed);
            }));
            transform.apply(batch, &mut out).unwrap();
        }
        let settled_so_far = || settled.load(Ordering::Relaxed);
        assert_eq!(settled_so_far(), if is_settled { 3 } else { 0 });
        assert_eq!(transform.state(), None);
        transform.stop(&mut out).unwrap();
        assert_eq!(settled_so_far(), if is_settled { 3 } else { 0 });
        out.take().into_iter().for_each(|(_, batch)| batch.settle(Outcome::Delivered));
        assert_eq!(settled_so_far(), 3);
    }
}

#[test]
fn a_run_that_is_stopped_leaves_windows_of_its_state_to_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let context = with_state(&folder);
    let build = |yaml: &str| testing::options::<Aggregate>(yaml).build(&context).unwrap();
    let yaml = format!("{{ {VALUES} }}");
    let (mut first, mut out) = (build(&yaml), Outputs::new("test".into()));
    first.apply(batch(&[(1, Some("a"), Some(2))]), &mut out).unwrap();
    first.stop(&mut out).unwrap();
    assert!(out.take().is_empty());
    first.pre_commit().unwrap();
    let saved = first.state().unwrap();
    let refused = build("{ values: { n: count(*) } }").restore(saved.clone()).unwrap_err().to_string();
    assert!(
        refused.starts_with("an earlier run left open windows of other options: `by: [k], "),
        "{refused}"
    );
    let without = Context { rereads: false, ..context.clone() };
    let refused = testing::options::<Aggregate>(&yaml).build(&without).unwrap().restore(saved.clone());
    assert!(refused.unwrap_err().to_string().starts_with("an earlier run left open windows, but a source"));
    let mut second = build(&yaml);
    second.restore(saved).unwrap();
    second.apply(batch(&[(1, Some("a"), Some(3))]), &mut out).unwrap();
    second.finish(&mut out).unwrap();
    let (_, batch) = out.take().remove(0);
    assert_eq!(results(&batch), [(0, Some("a".to_owned()), 2, Some(5))]);
    batch.settle(Outcome::Delivered);
    second.pre_commit().unwrap();
    let saved = second.state().unwrap();
    // No window is open, so the options may change.
    build("{ values: { n: count(*) } }").restore(saved).unwrap();
}

/// Between two checkpoints, results leave whose messages the former one has.
#[test]
fn results_that_are_not_delivered_stay_in_the_state() {
    let folder = tempfile::tempdir().unwrap();
    let context = with_state(&folder);
    let yaml = format!("{{ {VALUES}, every: 10s, time: t }}");
    let build = || testing::options::<Aggregate>(&yaml).build(&context).unwrap();
    let again = |saved: Option<Value>| {
        let (mut transform, mut out) = (build(), Outputs::new("test".into()));
        transform.restore(saved.unwrap()).unwrap();
        transform.finish(&mut out).unwrap();
        out.take()
            .into_iter()
            .flat_map(|(_, batch)| results(&batch))
            .map(|(start, ..)| start)
            .collect::<Vec<_>>()
    };
    for outcome in [Outcome::Delivered, Outcome::Failed] {
        let (mut transform, mut out) = (build(), Outputs::new("test".into()));
        transform.apply(batch(&[(1, Some("a"), None)]), &mut out).unwrap();
        transform.pre_commit().unwrap();
        let saved = transform.state();
        transform.apply(batch(&[(11, Some("a"), None)]), &mut out).unwrap();
        assert_eq!(transform.state(), None, "they are on their way");
        let (_, sent) = out.take().remove(0);
        assert!(!transform.has_failed());
        sent.settle(outcome);
        assert_eq!(transform.has_failed(), outcome == Outcome::Failed);
        transform.pre_commit().unwrap();
        transform.pre_commit().unwrap();
        let saved = transform.state().or(saved);
        let expected = if outcome == Outcome::Delivered { vec![10] } else { vec![0, 10] };
        assert_eq!(again(saved), expected);
    }
}

/// A source that waits for memory sends no batch whose end gives the memory of acks back.
#[test]
fn a_checkpoint_gives_the_memory_of_acks_back() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Some(Journal::new(Arc::new(Store::open(folder.path()).unwrap()), "test"));
    let memory = Budget::new(1 << 20).share();
    let context = Context { resumes: true, journal, memory, ..testing::context() };
    let budget = context.memory.budget().clone();
    let mut transform =
        testing::options::<Aggregate>(&format!("{{ {VALUES} }}")).aggregator(&context, now).unwrap();
    let mut out = Outputs::new("test".into());
    for _ in 0..100 {
        transform.apply(batch(&[(1, Some("a"), None)]), &mut out).unwrap();
    }
    let waiting = budget.used();
    transform.pre_commit().unwrap();
    assert!(budget.used() + 100 * 64 < waiting, "{} {waiting}", budget.used());
    transform.finish(&mut out).unwrap();
    out.take().into_iter().for_each(|(_, batch)| batch.settle(Outcome::Delivered));
}

/// With a mebibyte for the whole run, the acks of a window that waits for more messages left sources nothing.
#[test]
fn acks_that_wait_leave_memory_to_sources() {
    let overlapping = "every: 1s, window_interval: 90s, time: t, max_delay: 1h";
    let sessions = "session_timeout: 90s, time: t, max_delay: 1h";
    for (windows, batches) in [("max_count: 1000000", 3000), (overlapping, 200), (sessions, 3000)] {
        let memory = Budget::new(1 << 20).share();
        let context = Context { starts_over: false, memory, ..testing::context() };
        let budget = context.memory.budget().clone();
        let yaml = format!("{{ {VALUES}, {windows} }}");
        let mut transform = testing::options::<Aggregate>(&yaml).build(&context).unwrap();
        let (settled, mut out) = (Arc::new(AtomicUsize::new(0)), Outputs::new("test".into()));
        for number in 0..batches {
            let (mut batch, count) = (batch(&[(number % 7, Some("a"), None)]), settled.clone());
            batch.ack_mut().merge(Ack::new("test".into(), move |settlement: Settlement| {
                count.fetch_add(usize::from(settlement.outcome == Outcome::Delivered), Ordering::Relaxed);
            }));
            transform.apply(batch, &mut out).unwrap();
            out.take().into_iter().for_each(|(_, batch)| batch.settle(Outcome::Delivered));
            assert!(budget.used() < 1 << 18, "{windows}: {}", budget.used());
        }
        transform.finish(&mut out).unwrap();
        out.take().into_iter().for_each(|(_, batch)| batch.settle(Outcome::Delivered));
        assert_eq!(settled.load(Ordering::Relaxed) as i64, batches);
    }
}

/// The window of such a time begins before the times that are allowed, and its state was refused.
#[test]
fn a_window_of_the_earliest_time_is_continued() {
    let folder = tempfile::tempdir().unwrap();
    let context = with_state(&folder);
    let yaml = format!("{{ {VALUES}, every: 1000s, time: t, max_delay: 1h }}");
    let build = || testing::options::<Aggregate>(&yaml).build(&context).unwrap();
    let (mut first, mut out) = (build(), Outputs::new("test".into()));
    let earliest = -(i64::MAX / 4) / 1_000_000;
    first.apply(batch(&[(earliest, Some("a"), None)]), &mut out).unwrap();
    assert!(out.take().is_empty());
    first.pre_commit().unwrap();
    let mut second = build();
    second.restore(first.state().unwrap()).unwrap();
    second.finish(&mut out).unwrap();
    assert_eq!(out.take().into_iter().map(|(_, batch)| batch.rows()).sum::<usize>(), 1);
}

fn at_five() -> i64 {
    5_000_000
}

/// A run at the end of which a window is open, and another one with more messages of it: they were late, or
/// counted in a window of the future.
#[test]
fn windows_that_left_at_the_end_of_the_input_continue_in_the_next_run() {
    for windows in ["every: 10s, time: t, max_delay: 5s", "every: 10s"] {
        let folder = tempfile::tempdir().unwrap();
        let context = with_state(&folder);
        let yaml = format!("{{ {VALUES}, {windows} }}");
        let mut saved: Option<Value> = None;
        for second in [1, 2] {
            let mut transform = testing::options::<Aggregate>(&yaml).aggregator(&context, at_five).unwrap();
            saved.iter().for_each(|saved| transform.restore(saved.clone()).unwrap());
            let mut out = Outputs::new("test".into());
            transform.apply(batch(&[(second, Some("a"), Some(second))]), &mut out).unwrap();
            transform.finish(&mut out).unwrap();
            let (output, batch) = out.take().remove(0);
            assert_eq!(output, Output::Main, "{windows}");
            assert_eq!(results(&batch), [(0, Some("a".to_owned()), 1, Some(second))], "{windows}");
            batch.settle(Outcome::Delivered);
            transform.pre_commit().unwrap();
            saved = transform.state().or(saved);
        }
    }
}

/// Another `aggregate` holds results until its own part of the checkpoint, or until later.
#[test]
fn results_that_a_transform_behind_it_holds_are_in_one_of_the_two_states() {
    for is_later in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::new(Arc::new(Store::open(folder.path()).unwrap()), "test");
        let context = Context { resumes: true, journal: Some(journal.clone()), ..testing::context() };
        let yaml = format!("{{ {VALUES}, every: 10s, time: t }}");
        let build = || testing::options::<Aggregate>(&yaml).build(&context).unwrap();
        let (mut transform, mut out) = (build(), Outputs::new("test".into()));
        transform.apply(batch(&[(1, Some("a"), None)]), &mut out).unwrap();
        transform.pre_commit().unwrap();
        assert!(transform.state().is_some());
        // The block of the state before is out of date, and then the window leaves.
        transform.apply(batch(&[(2, Some("a"), None)]), &mut out).unwrap();
        transform.apply(batch(&[(11, Some("a"), None)]), &mut out).unwrap();
        let (_, held) = out.take().remove(0);
        transform.pre_commit().unwrap();
        let saved = if is_later {
            let saved = transform.state().unwrap();
            held.settle(Outcome::Delivered);
            // The run is killed before the state that belongs to this call is saved.
            transform.pre_commit().unwrap();
            saved
        } else {
            held.settle(Outcome::Delivered);
            let saved = transform.state().unwrap();
            transform.pre_commit().unwrap();
            transform.pre_commit().unwrap();
            assert_eq!(journal.names("").unwrap().len(), 1);
            saved
        };
        let mut next = build();
        next.restore(saved).unwrap();
        next.finish(&mut out).unwrap();
        let found = out.take().into_iter().flat_map(|(_, batch)| results(&batch));
        let starts: Vec<i64> = found.map(|(start, ..)| start).collect();
        assert_eq!(starts, if is_later { vec![0, 10] } else { vec![10] });
    }
}

/// The window that left, and the next one, had the same number.
#[test]
fn a_window_that_left_early_is_not_taken_for_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let context = with_state(&folder);
    let yaml = format!("{{ {VALUES}, idle_timeout: 1ms }}");
    let build = || testing::options::<Aggregate>(&yaml).build(&context).unwrap();
    let (mut transform, mut out) = (build(), Outputs::new("test".into()));
    // Without a state, the first checkpoint would not wait until nothing moves.
    assert!(transform.state().is_some() && transform.state().is_none());
    transform.apply(batch(&[(1, Some("a"), None)]), &mut out).unwrap();
    transform.pre_commit().unwrap();
    assert!(!transform.has_news());
    transform.tick(&mut out).unwrap();
    assert!(transform.has_news());
    let (_, held) = out.take().remove(0);
    transform.apply(batch(&[(2, Some("b"), None)]), &mut out).unwrap();
    transform.pre_commit().unwrap();
    let saved = transform.state().unwrap();
    held.settle(Outcome::Delivered);
    transform.pre_commit().unwrap();
    assert!(!transform.has_news());
    let mut next = build();
    next.restore(saved).unwrap();
    next.finish(&mut out).unwrap();
    let found = out.take().into_iter().flat_map(|(_, batch)| results(&batch));
    let keys: Vec<_> = found.filter_map(|(_, key, ..)| key).collect();
    assert_eq!(keys, ["a", "b"]);
}

/// Under another secret, the groups of a state would get no more messages.
#[test]
fn each_new_state_has_a_secret_of_its_own_and_a_later_run_has_that_of_the_state() {
    let folder = tempfile::tempdir().unwrap();
    let context = with_state(&folder);
    for windows in ["", ", session_timeout: 5s, time: t"] {
        each_new_state_has_a_secret(&format!("{{ {VALUES}{windows} }}"), &context);
    }
}

fn each_new_state_has_a_secret(yaml: &str, context: &Context) {
    let build = || testing::options::<Aggregate>(yaml).build(context).unwrap();
    let (mut first, mut second, mut later) = (build(), build(), build());
    let (first, second) = (first.state().unwrap(), second.state().unwrap());
    assert_ne!(first["secret"], second["secret"]);
    later.restore(first.clone()).unwrap();
    let mut out = Outputs::new("test".into());
    later.apply(batch(&[(1, Some("a"), None)]), &mut out).unwrap();
    later.pre_commit().unwrap();
    assert_eq!(later.state().unwrap()["secret"], first["secret"]);
    let mut without = first;
    without.as_object_mut().unwrap().remove("secret");
    let refused = build().restore(without).unwrap_err().to_string();
    assert!(refused.starts_with("its saved state cannot be read: missing field `secret`; "), "{refused}");
    later.finish(&mut out).unwrap();
    out.take().into_iter().for_each(|(_, batch)| batch.settle(Outcome::Delivered));
}

/// A letter was late among others, and all of them with the time of the service.
#[test]
fn no_letter_of_a_replay_is_late_and_acks_wait_for_the_end() {
    let context = Context { resumes: true, is_replay: true, ..testing::context() };
    let farthest = i64::MAX / 4 / 1_000_000;
    for (windows, first) in [("every: 10s", 0), ("session_timeout: 10s", 5)] {
        let yaml = format!("{{ {VALUES}, {windows}, time: t, idle_timeout: 1ms }}");
        let mut transform = testing::options::<Aggregate>(&yaml).build(&context).unwrap();
        let (settled, mut out) = (Arc::new(AtomicUsize::new(0)), Outputs::new("test".into()));
        for time in [1000, 5, farthest, 7, -farthest, 1001] {
            let (mut batch, count) = (batch(&[(time, Some("a"), None)]), settled.clone());
            batch.ack_mut().merge(Ack::new("test".into(), move |settlement: Settlement| {
                count.fetch_add(usize::from(settlement.outcome == Outcome::Delivered), Ordering::Relaxed);
            }));
            transform.apply(batch, &mut out).unwrap();
            assert!(out.take().is_empty() && transform.due().is_none(), "{time}");
        }
        assert_eq!((transform.state(), settled.load(Ordering::Relaxed)), (None, 0));
        transform.finish(&mut out).unwrap();
        let mut counts = Vec::new();
        for (output, batch) in out.take() {
            assert_eq!(output, Output::Main);
            counts.extend(results(&batch).into_iter().map(|(start, _, count, _)| (start, count)));
            batch.settle(Outcome::Delivered);
        }
        assert_eq!(counts[1..3], [(first, 2), (1000, 2)]);
        assert_eq!((counts.len(), settled.load(Ordering::Relaxed)), (4, 6));
    }
}
