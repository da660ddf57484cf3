use thalweg_record::Ack;

use super::*;

/// The ack of a traced batch of three messages.
fn traced(traces: &Arc<Traces>) -> Ack {
    let trace = traces.begin(&"in".into(), 3).unwrap();
    let ended = trace.clone();
    Ack::new("in".into(), move |settlement| ended.end(&settlement)).observed(trace)
}

fn all() -> Arc<Traces> {
    let traces = Arc::new(Traces::default());
    traces.sample(1.0);
    traces
}

#[test]
fn a_trace_has_the_components_of_all_parts_and_ends_with_the_last() {
    let traces = all();
    let mut ack = traced(&traces);
    ack.enter_with(&"main.filter".into(), || (3, 30));
    let (mut one, mut other) = (ack.split(), ack);
    one.enter_with(&"near".into(), || (2, 20));
    other.enter_with(&"near".into(), || (1, 10));
    one.settle(Outcome::Delivered);
    assert_eq!(traces.take(), []);
    other.reject(1);
    let ended = traces.take();
    let [trace] = &ended[..] else { panic!("{ended:?}") };
    assert_eq!((&*trace.source, trace.messages, trace.outcome), ("in", 3, "rejected"));
    assert_eq!((trace.has_failed, trace.rejected), (false, 1));
    let shown = |stage: &StageSpan| (stage.component.to_string(), stage.messages, stage.bytes, stage.parts);
    let expected = [("main.filter".to_owned(), 3, 30, 1), ("near".to_owned(), 3, 30, 2)];
    assert_eq!(trace.stages.iter().map(shown).collect::<Vec<_>>(), expected);
    let [filter, near] = &trace.stages[..] else { panic!("{trace:?}") };
    assert!(filter.begun <= filter.ended && near.begun <= near.ended && near.ended <= trace.took);
    // The filter was left by the second part after the first had come to the sink.
    assert!(near.begun <= filter.ended);
    assert!(trace.id != 0 && ![0, near.span].contains(&filter.span) && trace.span != filter.span);
}

#[test]
fn nothing_is_traced_unless_it_is_asked_for() {
    let traces = Arc::new(Traces::default());
    let begin = || traces.begin(&"in".into(), 1).is_some();
    assert!(!begin());
    traces.sample(1.0);
    assert!(begin());
    for none in [0.0, -1.0, f64::NAN] {
        traces.sample(none);
        assert!(!begin(), "{none}");
    }
    assert_eq!(traces.left_out(), 0);
}

#[test]
fn a_batch_that_is_dropped_has_failed() {
    let traces = all();
    drop(traced(&traces));
    let ended = traces.take();
    assert_eq!(
        ended.iter().map(|trace| (trace.outcome, trace.has_failed)).collect::<Vec<_>>(),
        [("failed", true)]
    );
}

#[test]
fn traces_beyond_a_bound_are_left_out_and_counted() {
    let mut state = State::default();
    let now = Instant::now();
    let admitted = (0..2 * MOST_IN_A_SECOND).filter(|_| state.admits(now)).count();
    assert_eq!(admitted, MOST_IN_A_SECOND as usize);
    assert!(state.admits(now + Duration::from_secs(1)));

    let traces = all();
    traces.open.store(MOST, Relaxed);
    assert!(traces.begin(&"in".into(), 1).is_none());
    traces.open.store(0, Relaxed);
    assert_eq!(traces.left_out(), 1);
    let trace = traces.begin(&"in".into(), 1).unwrap();
    let settlement = Settlement { outcome: Outcome::Delivered, rejected: 0, reason: None };
    (0..=MOST).for_each(|_| trace.end(&settlement));
    assert_eq!((traces.take().len(), traces.left_out()), (MOST, 2));
    drop(trace);
    assert_eq!(traces.open.load(Relaxed), 0);

    let mut ack = traced(&traces);
    for number in 0..2 * MOST_STAGES {
        ack.enter(&number.to_string().into());
    }
    ack.settle(Outcome::Delivered);
    assert_eq!(traces.take()[0].stages.len(), MOST_STAGES);
}
