use super::*;

#[test]
fn virtual_time_jumps_to_the_next_timer_and_real_time_goes_on_from_there() {
    let time = VirtualTime::start();
    let start = time.now();
    block_on(wait(Duration::from_secs(100)));
    assert_eq!(time.now() - start, Duration::from_secs(100));
    time.advance(Duration::from_secs(1));
    drop(time);
    assert!(VirtualTime::start().now() - start >= Duration::from_secs(101));
}

#[test]
fn virtual_time_stands_still_while_something_is_ready() {
    let time = VirtualTime::start();
    let start = time.now();
    block_on(async {
        for _ in 0..100 {
            wait(NEXT_TURN).await
        }
    });
    assert_eq!(time.now(), start);
}

#[test]
fn the_longest_wait_does_not_overflow() {
    let _time = VirtualTime::start();
    let result = block_on(within(milliseconds(1), wait(Duration::MAX)));
    assert_eq!(result, Err(TimedOut { after: milliseconds(1) }));
}

#[test]
fn a_result_that_takes_too_long_is_a_timeout_and_can_be_awaited_again() {
    let _time = VirtualTime::start();
    let mut slow = concurrently(async {
        wait(milliseconds(50)).await;
        String::from("late")
    });
    block_on(async {
        let early = slow.await_result_within(milliseconds(20)).await;
        assert_eq!(early, Err(EvaluationError::TimedOut(TimedOut { after: milliseconds(20) })));
        assert_eq!(
            slow.await_result_within_or(milliseconds(20), String::from("instead")).await,
            Ok("instead".into())
        );
        assert_eq!(slow.await_result_within(milliseconds(20)).await, Ok("late".into()));
        assert_eq!(slow.await_result().await, Err(EvaluationError::Taken));
    });
}

#[test]
fn all_waiters_get_the_value_that_an_evaluation_is_concluded_to() {
    let log = Log::default();
    let guard = NotesDrop(log.clone(), "dropped");
    let evaluation = concurrently(async move {
        let _guard = guard;
        wait(Duration::from_secs(60)).await;
        1
    });
    let waiters = [1, 2, 3].map(|_| concurrently(evaluation.clone()));
    block_on(wait(NEXT_TURN));
    assert!(evaluation.is_waiting());
    assert_eq!(evaluation.conclude_to(5), Ok(()));
    assert_eq!(log.take(), ["dropped"], "at once");
    assert_eq!(evaluation.conclude_to(6), Err(6));
    block_on(async {
        for waiter in waiters {
            assert_eq!(waiter.await, Ok(Ok(5)));
        }
        assert_eq!(evaluation.await, Ok(5));
    });
}

#[test]
fn an_evaluation_that_is_concluded_before_it_starts_never_runs() {
    let log = Log::default();
    let theirs = log.clone();
    let evaluation = concurrently(async move { theirs.note("run") });
    assert_eq!(evaluation.conclude_to(()), Ok(()));
    assert_eq!(block_on(evaluation), Ok(()));
    block_on(wait(NEXT_TURN));
    assert!(log.take().is_empty());
}

#[test]
fn an_evaluation_left_by_call_nonblock_can_be_concluded_before_the_event_loop_runs() {
    let log = Log::default();
    let guard = NotesDrop(log.clone(), "dropped");
    let code = ConcurrentProc::new(|guard: NotesDrop| async move {
        let _guard = guard;
        wait(Duration::from_secs(60)).await;
        1
    });
    let evaluation = waiting(code.call_nonblock(guard));
    assert_eq!(evaluation.conclude_to(2), Ok(()));
    assert_eq!(log.take(), ["dropped"]);
    assert_eq!(block_on(evaluation), Ok(2));
}

#[test]
fn an_evaluation_that_concludes_itself_stops_at_its_next_wait() {
    let log = Log::default();
    let (resumer, own_handle) = resumption::<Evaluation<u32>>();
    let ours = log.clone();
    let evaluation = concurrently(async move {
        let own = own_handle.await.unwrap();
        assert_eq!(own.conclude_to(1), Ok(()));
        ours.note("still here");
        wait(NEXT_TURN).await;
        ours.note("never");
        2
    });
    resumer.resume(evaluation.clone()).unwrap();
    assert_eq!(block_on(evaluation), Ok(1));
    block_on(async {
        for _ in 0..3 {
            wait(NEXT_TURN).await
        }
    });
    assert_eq!(log.take(), ["still here"]);
}

#[test]
fn a_result_that_cannot_be_cloned_is_given_once() {
    struct Single;
    let mut evaluation = concurrently(async { Single });
    assert!(block_on(evaluation.await_result()).is_ok());
    assert!(matches!(block_on(evaluation.await_result()), Err(EvaluationError::Taken)));
}

#[test]
fn the_fastest_is_the_first_in_order_of_those_that_are_concluded() {
    let _time = VirtualTime::start();
    let code = ConcurrentProc::new(async |time: u64| wait(milliseconds(time)).await);
    let evaluations = [30, 10, 20].map(|time| code.call_detached(time));
    block_on(async {
        assert_eq!(await_fastest(&evaluations).await, Some(1));
        assert_eq!(await_fastest(&evaluations[..1]).await, Some(0));
        assert_eq!(await_fastest(&evaluations).await, Some(0));
        assert_eq!(await_fastest::<()>(&[]).await, None);
    });
}

#[test]
fn a_resumer_that_is_dropped_abandons_those_who_wait() {
    let (resumer, mut resumed) = resumption::<u8>();
    drop(resumer);
    assert_eq!(block_on(resumed.await_result()), Err(EvaluationError::Abandoned));
}

#[test]
fn a_resumer_learns_that_nobody_needs_it_any_more() {
    let (resumer, resumed) = resumption();
    assert_eq!(resumed.conclude_to(1), Ok(()));
    assert_eq!(resumer.resume(2), Err(2));
}
