use super::*;

use proptest::prelude::*;

#[test]
fn scheduled_evaluations_start_in_the_order_scheduled() {
    let log = Log::default();
    let code = ConcurrentProc::new(|(log, number): (Log, u32)| async move { log.note(number) });
    for number in 0..5 {
        match number % 2 {
            0 => code.call_and_forget((log.clone(), number)),
            _ => code.call_detached((log.clone(), number)).forget(),
        }
    }
    block_on(wait(NEXT_TURN));
    assert_eq!(log.take(), ["0", "1", "2", "3", "4"]);
}

#[test]
fn what_is_scheduled_in_a_turn_runs_in_the_next() {
    let log = Log::default();
    let ours = log.clone();
    concurrently(async move {
        let nested = ours.clone();
        concurrently(async move { nested.note("nested") }).forget();
        ours.note("first");
    })
    .forget();
    let ours = log.clone();
    concurrently(async move { ours.note("second") }).forget();
    block_on(wait(NEXT_TURN));
    assert_eq!(log.take(), ["first", "second"]);
    block_on(wait(NEXT_TURN));
    assert_eq!(log.take(), ["nested"]);
}

#[test]
fn the_rest_of_a_turn_runs_after_the_foreground_waits_again() {
    let log = Log::default();
    let note = |text: &'static str| {
        let log = log.clone();
        concurrently(async move { log.note(text) }).forget();
    };
    block_on(async {
        wait(NEXT_TURN).await;
        note("a");
    });
    note("b");
    assert!(log.take().is_empty());
    block_on(wait(NEXT_TURN));
    assert_eq!(log.take(), ["a", "b"]);
}

#[test]
fn waiters_go_on_in_the_order_in_which_they_came() {
    let log = Log::default();
    let (resumer, resumed) = resumption::<u8>();
    for number in 0..4 {
        let (log, resumed) = (log.clone(), resumed.clone());
        concurrently(async move {
            assert_eq!(resumed.await, Ok(9));
            log.note(number);
        })
        .forget();
    }
    block_on(wait(NEXT_TURN));
    assert_eq!(resumer.resume(9), Ok(()));
    block_on(wait(NEXT_TURN));
    assert_eq!(log.take(), ["0", "1", "2", "3"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 200 }))]

    #[test]
    fn timers_fire_in_order_of_time_then_of_creation(
        waits in prop::collection::vec((0_u64..20, any::<bool>()), 1..40)
    ) {
        let log = Log::default();
        let time = VirtualTime::start();
        let start = time.now();
        let code = ConcurrentProc::new(|(log, index, after): (Log, usize, u64)| async move {
            wait(milliseconds(after)).await;
            log.note(index);
        });
        let mut expected = Vec::new();
        let mut evaluations = Vec::new();
        for (index, &(after, is_given_up)) in waits.iter().enumerate() {
            let evaluation = waiting(code.call_nonblock((log.clone(), index, after)));
            if is_given_up {
                prop_assert_eq!(evaluation.conclude_to(()), Ok(()));
            } else {
                expected.push((after, index));
            }
            evaluations.push(evaluation);
        }
        block_on(async {
            for evaluation in evaluations {
                evaluation.await.unwrap();
            }
        });
        expected.sort();
        let last = expected.last().map_or(0, |(after, _)| *after);
        let expected: Vec<String> = expected.iter().map(|(_, index)| index.to_string()).collect();
        prop_assert_eq!(log.take(), expected);
        prop_assert_eq!(time.now() - start, milliseconds(last));
    }

    /// The model: a step of an evaluation is a number in a queue; a step that is not the last is put at the
    /// end.
    #[test]
    fn turns_are_taken_as_in_a_queue(steps in prop::collection::vec(1_usize..5, 1..20)) {
        let log = Log::default();
        for (index, &count) in steps.iter().enumerate() {
            let log = log.clone();
            concurrently(async move {
                for step in 1..=count {
                    log.note(index);
                    if step < count {
                        wait(NEXT_TURN).await;
                    }
                }
            })
            .forget();
        }
        block_on(async { for _ in 0..6 { wait(NEXT_TURN).await } });
        let mut queue: std::collections::VecDeque<_> = steps.iter().copied().enumerate().collect();
        let mut expected = Vec::new();
        while let Some((index, left)) = queue.pop_front() {
            expected.push(index.to_string());
            if left > 1 {
                queue.push_back((index, left - 1));
            }
        }
        prop_assert_eq!(log.take(), expected);
    }
}
