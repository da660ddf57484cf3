//! Sessions against two models: one that sorts, and one that takes a message after the other.

use super::*;

const FUNCTIONS: &str = "by: k, on_late: route, values: { count: count(*), sum: sum(n), first: first(n), last: last(n), \
                         list: \"list(n, 3)\", most: max(n), kinds: distinct(n) }";

/// The messages of a session, by time, and its span in seconds.
#[derive(Debug, Clone)]
struct Session {
    key: Option<&'static str>,
    span: (i64, i64),
    messages: Vec<(i64, Option<i64>)>,
}

impl Session {
    fn row(&self) -> Value {
        let numbers: Vec<i64> = self.messages.iter().filter_map(|(_, number)| *number).collect();
        let mut kinds = numbers.clone();
        kinds.sort_unstable();
        kinds.dedup();
        let mut row = json!({
            "window_start": self.span.0 * 1_000_000, "window_end": self.span.1 * 1_000_000,
            "count": self.messages.len(), "kinds": kinds.len(),
        });
        let mut set = |name: &str, value: Value| {
            row.as_object_mut().unwrap().insert(name.to_owned(), value);
        };
        if let Some(key) = self.key {
            set("k", json!(key));
        }
        if let (Some(first), Some(last)) = (numbers.first(), numbers.last()) {
            set("sum", json!(numbers.iter().sum::<i64>()));
            set("first", json!(first));
            set("last", json!(last));
            set("most", json!(numbers.iter().max()));
            let list: Vec<i64> = numbers.iter().take(3).copied().collect();
            set("list", json!(serde_json::to_string(&list).unwrap()));
        }
        row
    }

    fn found(&self) -> Found {
        let numbers: Vec<i64> = self.messages.iter().filter_map(|(_, number)| *number).collect();
        let sum = (!numbers.is_empty()).then(|| numbers.iter().sum());
        (self.span.0, self.key.map(str::to_owned), self.messages.len() as i64, sum)
    }
}

fn end(time: i64, timeout: i64, every: Option<i64>) -> i64 {
    let end = time + timeout;
    every.map_or(end, |every| end.min((time.div_euclid(every) + 1) * every))
}

/// Sorts the messages of each key by time, and divides them at gaps.
fn sorted(messages: &[Message], timeout: i64, every: Option<i64>) -> Vec<Session> {
    let mut sorted = messages.to_vec();
    sorted.sort_by_key(|(time, key, _)| (*key, *time));
    let mut sessions: Vec<Session> = Vec::new();
    for (time, key, number) in sorted {
        let end = end(time, timeout, every);
        match sessions.last_mut().filter(|last| last.key == key && time < last.span.1) {
            Some(last) => {
                last.span.1 = end;
                last.messages.push((time, number));
            }
            None => sessions.push(Session { key, span: (time, end), messages: vec![(time, number)] }),
        }
    }
    sessions
}

/// Counts as the documentation says, one message after the other. Returns the sessions and the late messages.
fn one_by_one(
    messages: &[Message],
    timeout: i64,
    every: Option<i64>,
    delay: i64,
) -> (Vec<Session>, Vec<String>) {
    let (mut open, mut over): (Vec<Session>, Vec<Session>) = (Vec::new(), Vec::new());
    let (mut watermark, mut late) = (i64::MIN, Vec::new());
    for &(time, key, number) in messages {
        watermark = watermark.max(time - delay);
        let (ended, rest): (Vec<Session>, Vec<Session>) =
            open.into_iter().partition(|session| session.span.1 <= watermark);
        over.extend(ended);
        let end = end(time, timeout, every);
        let is_joined = |other: &Session| other.key == key && other.span.0 < end && time < other.span.1;
        let (joined, rest): (Vec<Session>, Vec<Session>) = rest.into_iter().partition(is_joined);
        open = rest;
        if joined.is_empty() && end <= watermark {
            late.push(time.to_string());
            continue;
        }
        let mut session = Session { key, span: (time, end), messages: Vec::new() };
        for other in joined {
            session.span = (session.span.0.min(other.span.0), session.span.1.max(other.span.1));
            session.messages.extend(other.messages);
        }
        session.messages.push((time, number));
        session.messages.sort_by_key(|(time, _)| *time);
        open.push(session);
    }
    over.extend(open);
    (over, late)
}

fn order(row: &Value) -> (i64, i64, Option<String>) {
    let time = |name: &str| row[name].as_i64().unwrap();
    (time(END), time(START), row.get("k").map(Value::to_string))
}

fn rows(sessions: &[Session]) -> Vec<Value> {
    let mut rows: Vec<Value> = sessions.iter().map(Session::row).collect();
    rows.sort_by_key(order);
    rows
}

fn windows(timeout: i64, every: Option<i64>, delay: i64) -> String {
    let every = every.map(|every| format!("every: {every}s, ")).unwrap_or_default();
    format!("{every}session_timeout: {timeout}s, time: t, max_delay: {delay}s")
}

proptest! {
    #[test]
    fn sessions_are_those_of_sorted_messages_in_any_order_within_the_delay(
        messages in prop::collection::vec((message(), 0..=12_i64), 0..60),
        (timeout, every) in (1..12_i64, prop::option::of(5..40_i64)),
        delay in 0..=12_i64,
        size in 1..20_usize,
    ) {
        let mut messages = messages;
        // Each message arrives when all that are later than it by more than the delay are still to come.
        messages.sort_by_key(|((time, ..), by)| *time + by % (delay + 1));
        let messages: Vec<Message> = messages.into_iter().map(|(message, _)| message).collect();
        let yaml = format!("{{ {FUNCTIONS}, {} }}", windows(timeout, every, delay));
        let given = testing::apply::<Aggregate>(&yaml, messages.chunks(size).map(batch));
        let mut found = given.main();
        prop_assert!(found.is_sorted_by_key(|row| row[END].as_i64()));
        found.sort_by_key(order);
        prop_assert_eq!(found, rows(&sorted(&messages, timeout, every)));
        prop_assert_eq!(given.payloads(Output::Named(0)), Vec::<String>::new());
    }

    #[test]
    fn sessions_with_late_messages_do_not_depend_on_batches(
        messages in messages(),
        (timeout, every) in (1..12_i64, prop::option::of(5..40_i64)),
        delay in 0..12_i64,
        size in 1..20_usize,
    ) {
        let yaml = format!("{{ {FUNCTIONS}, {} }}", windows(timeout, every, delay));
        let given = testing::apply::<Aggregate>(&yaml, messages.chunks(size).map(batch));
        let mut found = given.main();
        found.sort_by_key(order);
        let (expected, late) = one_by_one(&messages, timeout, every, delay);
        prop_assert_eq!(found, rows(&expected));
        prop_assert_eq!(given.payloads(Output::Named(0)), late);
    }

    #[test]
    fn the_memory_of_sessions_is_that_of_their_present_values(
        messages in messages(),
        size in 1..20_usize,
    ) {
        let context = testing::context();
        let yaml = "{ by: k, values: { l: \"list(n, 4)\", t: \"top_k(k, 3)\", d: distinct(n), m: max(k) }, \
                    session_timeout: 3s, time: t, max_delay: 9s, on_late: drop }";
        let mut transform = testing::options::<Aggregate>(yaml).aggregator(&context, now).unwrap();
        let mut out = Outputs::new("test".into());
        for messages in messages.chunks(size) {
            transform.apply(batch(messages), &mut out).unwrap();
            prop_assert_eq!(transform.bytes, transform.sessions.bytes());
            prop_assert_eq!(transform.groups, transform.sessions.len());
        }
        transform.finish(&mut out).unwrap();
        prop_assert_eq!((transform.bytes, transform.groups, transform.held), (0, 0, 0));
        out.take().into_iter().for_each(|(_, batch)| batch.settle(Outcome::Delivered));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn sessions_of_runs_that_are_killed_have_each_message_once(
        messages in messages(),
        size in 1..8_usize,
        kills in prop::collection::vec((0..4_usize, 0..8_usize), 0..4),
        (timeout, every) in (1..12_i64, prop::option::of(5..40_i64)),
        delay in 0..12_i64,
    ) {
        let batches: Vec<&[Message]> = messages.chunks(size).collect();
        let yaml = format!("{{ {VALUES}, on_late: drop, {} }}", windows(timeout, every, delay));
        let mut found = kept::killed(&yaml, &batches, &kills);
        let (expected, _) = one_by_one(&messages, timeout, every, delay);
        let mut expected: Vec<Found> = expected.iter().map(Session::found).collect();
        found.sort();
        expected.sort();
        prop_assert_eq!(found, expected);
    }
}

/// The starts of sessions whose results are delivered.
fn delivered(out: &mut Outputs) -> Vec<i64> {
    let mut starts = Vec::new();
    for (_, batch) in out.take() {
        starts.extend(results(&batch).into_iter().map(|(start, ..)| start));
        batch.settle(Outcome::Delivered);
    }
    starts
}

/// Of the sessions of a block, two leave, and one stays.
#[test]
fn sessions_whose_results_are_not_delivered_stay_in_the_state() {
    for (outcome, is_later) in
        [(Outcome::Delivered, true), (Outcome::Delivered, false), (Outcome::Failed, false)]
    {
        let folder = tempfile::tempdir().unwrap();
        let context = with_state(&folder);
        let yaml = format!("{{ {VALUES}, session_timeout: 10s, time: t }}");
        let build = || testing::options::<Aggregate>(&yaml).build(&context).unwrap();
        let again = |saved: Value| {
            let (mut transform, mut out) = (build(), Outputs::new("test".into()));
            transform.restore(saved).unwrap();
            transform.finish(&mut out).unwrap();
            delivered(&mut out)
        };
        let (mut transform, mut out) = (build(), Outputs::new("test".into()));
        let messages =
            [(1, Some("a"), None), (2, Some("b"), None), (3, Some("c"), None), (8, Some("c"), None)];
        transform.apply(batch(&messages), &mut out).unwrap();
        transform.pre_commit().unwrap();
        assert!(transform.state().is_some() && !transform.has_news());
        transform.apply(batch(&[(13, Some("d"), None)]), &mut out).unwrap();
        assert!(transform.has_news() && transform.state().is_none(), "they are on their way");
        let (_, held) = out.take().remove(0);
        assert_eq!(results(&held).len(), 2);
        if is_later {
            // A transform behind this one holds the results.
            transform.pre_commit().unwrap();
            let before = transform.state().unwrap();
            held.settle(outcome);
            let after = transform.state().unwrap();
            assert_eq!((again(before), again(after)), (vec![1, 2, 3, 13], vec![3, 13]));
            continue;
        }
        held.settle(outcome);
        assert_eq!(transform.has_failed(), outcome == Outcome::Failed);
        match (outcome, transform.state()) {
            (Outcome::Delivered, Some(saved)) => assert_eq!(again(saved), [3]),
            (_, saved) => assert_eq!(saved, None),
        }
        transform.pre_commit().unwrap();
        let expected = if outcome == Outcome::Delivered { vec![3, 13] } else { vec![1, 2, 3, 13] };
        assert_eq!(again(transform.state().unwrap()), expected);
    }
}

/// Two sessions that a checkpoint has become one, which leaves as one.
#[test]
fn sessions_of_a_checkpoint_that_merge_leave_it_together() {
    let folder = tempfile::tempdir().unwrap();
    let context = with_state(&folder);
    let yaml = format!("{{ {VALUES}, session_timeout: 10s, time: t, max_delay: 20s }}");
    let build = || testing::options::<Aggregate>(&yaml).build(&context).unwrap();
    let (mut transform, mut out) = (build(), Outputs::new("test".into()));
    transform.apply(batch(&[(1, Some("a"), Some(1)), (15, Some("a"), Some(2))]), &mut out).unwrap();
    transform.pre_commit().unwrap();
    let both = transform.state().unwrap();
    transform.apply(batch(&[(8, Some("a"), Some(4)), (60, Some("b"), None)]), &mut out).unwrap();
    let (_, sent) = out.take().remove(0);
    assert_eq!(results(&sent), [(1, Some("a".to_owned()), 3, Some(7))]);
    sent.settle(Outcome::Delivered);
    let without = transform.state().unwrap();
    for (saved, expected) in [(both, vec![1, 15]), (without, vec![])] {
        let mut next = build();
        next.restore(saved).unwrap();
        next.finish(&mut out).unwrap();
        assert_eq!(delivered(&mut out), expected);
    }
}

/// More sessions than a block has, most of which leave.
#[test]
fn blocks_of_sessions_are_filled_again() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::new(Arc::new(Store::open(folder.path()).unwrap()), "test");
    let context = Context { resumes: true, journal: Some(journal.clone()), ..testing::context() };
    let yaml = "{ by: payload, values: { count: count(*), sum: sum(n), k: first(k) }, session_timeout: 1s, time: t, max_delay: 500s }";
    let mut transform = testing::options::<Aggregate>(yaml).aggregator(&context, now).unwrap();
    let mut out = Outputs::new("test".into());
    let many: Vec<Message> = (0..500).map(|time| (time, Some("a"), None)).collect();
    let entries = || journal.names("").unwrap().len();
    transform.apply(batch(&many), &mut out).unwrap();
    transform.pre_commit().unwrap();
    assert_eq!(entries(), 4);
    // The first 400 leave.
    transform.apply(batch(&[(901, Some("a"), None)]), &mut out).unwrap();
    assert_eq!(delivered(&mut out), (0..401).collect::<Vec<_>>());
    transform.pre_commit().unwrap();
    transform.pre_commit().unwrap();
    // The block of 384 to 499, with the new one.
    assert_eq!((entries(), transform.sessions.len()), (1, 100));
    let saved = transform.state().unwrap();
    let mut next = testing::options::<Aggregate>(yaml).aggregator(&context, now).unwrap();
    next.restore(saved).unwrap();
    assert_eq!((next.groups, next.bytes), (transform.groups, transform.bytes));
    next.finish(&mut out).unwrap();
    assert_eq!(delivered(&mut out), (401..500).chain([901]).collect::<Vec<_>>());
}

#[test]
fn sessions_by_arrival_end_although_no_message_comes() {
    let config =
        testing::options::<Aggregate>("{ values: { n: count(*) }, session_timeout: 10s, every: 1m }");
    assert!(config.ticks() && config.check().is_empty());
    let mut transform = config.aggregator(&testing::context(), set_now).unwrap();
    assert!(transform.due().is_none());
    assert_eq!(counts_at(&mut transform, 1, 2), [0; 0]);
    assert_eq!(counts_at(&mut transform, 9, 3), [0; 0]);
    assert!(transform.due().is_some());
    // The first end of the session has passed, and the last one has not.
    assert_eq!(counts_at(&mut transform, 12, 0), [0; 0]);
    assert_eq!(counts_at(&mut transform, 19, 0), [5]);
    assert!(transform.due().is_none());
    assert_eq!(counts_at(&mut transform, 55, 1), [0; 0]);
    assert_eq!(counts_at(&mut transform, 61, 1), [1]);
    // The clock is set back: the session is not the one that has left.
    assert_eq!(counts_at(&mut transform, 40, 1), [0; 0]);
    assert_eq!(counts_at(&mut transform, 71, 0), [2]);
}

#[test]
fn sessions_leave_after_a_time_without_messages_and_their_late_messages_are_rejected() {
    let yaml = "{ values: { n: count(*) }, session_timeout: 10s, time: t, idle_timeout: 1ms }";
    let config = testing::options::<Aggregate>(yaml);
    assert!(config.ticks());
    let mut transform = config.build(&testing::context()).unwrap();
    let mut out = Outputs::new("test".into());
    transform.apply(batch(&[(20, None, None)]), &mut out).unwrap();
    assert!(out.take().is_empty() && transform.due().is_some());
    transform.tick(&mut out).unwrap();
    assert_eq!(out.take().len(), 1);
    assert!(transform.due().is_none());
    transform.apply(batch(&[(19, None, None)]), &mut out).unwrap();
    let (output, late) = out.take().remove(0);
    assert_eq!((output, late.rows()), (Output::Errors, 1));
}

/// The session with the most batches leaves, and others stay whole.
#[test]
fn the_session_that_holds_the_most_acks_leaves_early() {
    let memory = Budget::new(1 << 20).share();
    let context = Context { starts_over: false, memory, ..testing::context() };
    let yaml = format!("{{ {VALUES}, session_timeout: 90s, time: t }}");
    let mut transform = testing::options::<Aggregate>(&yaml).build(&context).unwrap();
    let (settled, mut out) = (Arc::new(AtomicUsize::new(0)), Outputs::new("test".into()));
    let mut found: Vec<Found> = Vec::new();
    let mut send = |transform: &mut Box<dyn Transform>, key: &'static str| {
        let (mut batch, count) = (batch(&[(1, Some(key), None)]), settled.clone());
        batch.ack_mut().merge(Ack::new("test".into(), move |settlement: Settlement| {
            count.fetch_add(usize::from(settlement.outcome == Outcome::Delivered), Ordering::Relaxed);
        }));
        transform.apply(batch, &mut out).unwrap();
        for (_, batch) in out.take() {
            found.extend(results(&batch));
            batch.settle(Outcome::Delivered);
        }
    };
    send(&mut transform, "b");
    (0..1100).for_each(|_| send(&mut transform, "a"));
    assert_eq!(found, [(1, Some("a".to_owned()), 1024, None)]);
    assert_eq!(settled.load(Ordering::Relaxed), 1024);
    transform.finish(&mut out).unwrap();
    out.take().into_iter().for_each(|(_, batch)| batch.settle(Outcome::Delivered));
    assert_eq!(settled.load(Ordering::Relaxed), 1101);
}

#[test]
fn open_sessions_are_groups_and_bounded() {
    let yaml =
        "{ by: k, values: { n: count(*) }, session_timeout: 1s, time: t, max_delay: 50s, max_groups: 2 }";
    let messages = [(1, Some("a"), None), (5, Some("a"), None), (9, Some("b"), None), (5, Some("a"), None)];
    let given = testing::apply::<Aggregate>(yaml, [batch(&messages)]);
    let counts: Vec<Value> = given.main().iter().map(|row| row["n"].clone()).collect();
    assert_eq!(counts, [json!(1), json!(2)]);
    let expected = ("9".to_owned(), "there are 2 groups already, as `max_groups` allows".to_owned());
    assert_eq!(given.errors(), [expected]);
}
