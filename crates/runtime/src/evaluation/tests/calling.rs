use super::*;

#[test]
fn a_call_runs_at_once_and_gives_the_result() {
    let add = ConcurrentProc::new(async |(a, b): (i32, i32)| a + b);
    assert_eq!(block_on(add.call((2, 3))), 5);
}

#[test]
fn a_call_that_waits_lets_others_run_meanwhile() {
    let log = Log::default();
    let (ours, theirs) = (log.clone(), log.clone());
    concurrently(async move { theirs.note("other") }).forget();
    block_on(async move {
        ours.note("before");
        wait(NEXT_TURN).await;
        ours.note("after");
    });
    assert_eq!(log.take(), ["before", "other", "after"]);
}

#[test]
fn call_nonblock_gives_the_result_of_code_that_does_not_wait() {
    let double = ConcurrentProc::new(async |number: u32| number * 2);
    assert!(matches!(double.call_nonblock(4), Called::Concluded(8)));
}

#[test]
fn call_nonblock_runs_to_the_first_wait_in_the_foreground_and_the_rest_later() {
    let log = Log::default();
    let code = ConcurrentProc::new(|log: Log| async move {
        log.note("foreground");
        wait(NEXT_TURN).await;
        log.note("later");
        7
    });
    let mut evaluation = waiting(code.call_nonblock(log.clone()));
    assert!(evaluation.is_waiting());
    assert_eq!(log.take(), ["foreground"]);
    assert_eq!(block_on(evaluation.await_result()), Ok(7));
    assert_eq!(log.take(), ["later"]);
    assert!(evaluation.is_concluded() && !evaluation.is_waiting());
}

#[test]
fn call_detached_starts_when_the_event_loop_runs() {
    let log = Log::default();
    let code = ConcurrentProc::new(|log: Log| async move {
        log.note("run");
        1
    });
    let mut evaluation = code.call_detached(log.clone());
    assert!(!evaluation.is_waiting() && !evaluation.is_concluded());
    assert!(log.take().is_empty());
    assert_eq!(block_on(evaluation.await_result()), Ok(1));
    assert_eq!(log.take(), ["run"]);
}

#[test]
fn evaluations_of_one_proc_run_independently() {
    let log = Log::default();
    let code = ConcurrentProc::new(|(log, number): (Log, u64)| async move {
        wait(milliseconds(10 - number)).await;
        log.note(number);
    });
    let _time = VirtualTime::start();
    let evaluations = [1, 2, 3].map(|number| code.call_detached((log.clone(), number)));
    block_on(async {
        for evaluation in evaluations {
            evaluation.await.unwrap()
        }
    });
    assert_eq!(log.take(), ["3", "2", "1"]);
}

#[test]
fn a_proc_can_call_itself() {
    fn sum(number: u64) -> std::pin::Pin<Box<dyn Future<Output = u64>>> {
        Box::pin(async move {
            if number == 0 {
                return 0;
            }
            match ConcurrentProc::new(sum).call_nonblock(number - 1) {
                Called::Concluded(rest) => rest + number,
                Called::Waiting(evaluation) => evaluation.await.unwrap() + number,
            }
        })
    }
    assert_eq!(block_on(sum(100)), 5050);
}

#[test]
fn a_call_within_an_evaluation_that_waits_belongs_to_it() {
    let inner = ConcurrentProc::new(async |number: u32| {
        wait(NEXT_TURN).await;
        number + 1
    });
    let mut outer = concurrently(async move { inner.call(1).await + inner.call(2).await });
    assert_eq!(block_on(outer.await_result()), Ok(5));
}

#[test]
fn evaluations_go_on_in_the_next_block_on() {
    let log = Log::default();
    let theirs = log.clone();
    concurrently(async move {
        wait(NEXT_TURN).await;
        wait(NEXT_TURN).await;
        theirs.note("done");
    })
    .forget();
    block_on(wait(NEXT_TURN));
    assert!(log.take().is_empty());
    block_on(async {
        for _ in 0..3 {
            wait(NEXT_TURN).await
        }
    });
    assert_eq!(log.take(), ["done"]);
}

#[test]
#[should_panic(expected = "`block_on` was called by an evaluation")]
fn block_on_within_an_evaluation_that_would_wait_for_itself_is_refused() {
    block_on(async {
        wait(NEXT_TURN).await;
        block_on(wait(NEXT_TURN));
    });
}
