use super::*;

use std::panic::{AssertUnwindSafe, catch_unwind};

#[test]
fn an_error_travels_to_whoever_awaits() {
    let parse = ConcurrentProc::new(async |text: &'static str| {
        wait(NEXT_TURN).await;
        text.parse::<u8>()
    });
    let mut evaluation = waiting(parse.call_nonblock("256"));
    let error = block_on(evaluation.await_result()).unwrap().unwrap_err();
    assert_eq!(error.kind(), &std::num::IntErrorKind::PosOverflow);
}

#[test]
fn a_panic_ends_its_evaluation_only_and_travels_to_whoever_awaits() {
    let mut broken = concurrently(async {
        wait(NEXT_TURN).await;
        panic!("stop {}", 7)
    });
    let mut sound = concurrently(async {
        wait(NEXT_TURN).await;
        wait(NEXT_TURN).await;
        "sound"
    });
    block_on(async {
        let result: Result<(), _> = broken.await_result().await;
        assert_eq!(result, Err(EvaluationError::Panicked("stop 7".into())));
        assert_eq!(sound.await_result().await, Ok("sound"));
    });
}

#[test]
fn a_panic_in_the_foreground_is_the_callers() {
    let code = ConcurrentProc::new(async |_: ()| -> () { panic!("at once") });
    let panic = catch_unwind(AssertUnwindSafe(|| drop(code.call_nonblock(())))).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"at once"));
    assert_eq!(block_on(ConcurrentProc::new(async |_: ()| 3).call(())), 3);
}

#[test]
fn a_panic_of_what_block_on_waits_for_leaves_the_event_loop_usable() {
    let mut other = concurrently(async {
        wait(NEXT_TURN).await;
        wait(NEXT_TURN).await;
        5
    });
    let foreground = async {
        wait(NEXT_TURN).await;
        panic!("in the foreground")
    };
    let result: Result<(), _> = catch_unwind(AssertUnwindSafe(|| block_on(foreground)));
    assert_eq!(result.unwrap_err().downcast_ref(), Some(&"in the foreground"));
    assert_eq!(block_on(other.await_result()), Ok(5));
}

#[test]
fn a_forgotten_error_reaches_the_hook() {
    let reported = passed_to_hook();
    let code = ConcurrentProc::new(async |text: &'static str| {
        wait(NEXT_TURN).await;
        text.parse::<u8>()
    });
    code.call_and_forget("12");
    code.call_and_forget("x");
    block_on(async {
        for _ in 0..3 {
            wait(NEXT_TURN).await
        }
    });
    assert_eq!(reported.take(), ["a forgotten evaluation failed: invalid digit found in string"]);
}

#[test]
fn a_forgotten_panic_reaches_the_hook() {
    let reported = passed_to_hook();
    ConcurrentProc::new(async |_: ()| -> () { panic!("lost") }).call_and_forget(());
    block_on(wait(NEXT_TURN));
    assert_eq!(reported.take(), ["a forgotten evaluation panicked: lost"]);
}

#[test]
fn the_panic_of_an_evaluation_whose_handle_was_dropped_reaches_the_hook() {
    let reported = passed_to_hook();
    let before = concurrently(async { panic!("handle dropped before") });
    drop::<Evaluation<()>>(before);
    let after: Evaluation<()> = concurrently(async { panic!("handle dropped after") });
    block_on(wait(NEXT_TURN));
    drop(after);
    assert_eq!(
        reported.take(),
        [
            "a forgotten evaluation panicked: handle dropped before",
            "a forgotten evaluation panicked: handle dropped after"
        ]
    );
}

#[test]
fn what_an_awaiter_was_told_is_not_told_to_the_hook() {
    let reported = passed_to_hook();
    let mut evaluation: Evaluation<()> = concurrently(async { panic!("known") });
    assert_eq!(block_on(evaluation.await_result()), Err(EvaluationError::Panicked("known".into())));
    drop(evaluation);
    assert!(reported.take().is_empty());
}

#[test]
fn an_evaluation_that_is_let_go_after_its_first_wait_tells_its_error_to_the_hook() {
    let reported = passed_to_hook();
    let code = ConcurrentProc::new(async |_: ()| {
        wait(NEXT_TURN).await;
        Err::<(), _>("too late")
    });
    waiting(code.call_nonblock(())).forget();
    block_on(async {
        for _ in 0..2 {
            wait(NEXT_TURN).await
        }
    });
    let failed = concurrently(async { Err::<(), _>("already there") });
    block_on(wait(NEXT_TURN));
    failed.forget();
    assert_eq!(
        reported.take(),
        ["a forgotten evaluation failed: too late", "a forgotten evaluation failed: already there"]
    );
}

#[test]
fn a_hook_that_panics_does_not_stop_the_event_loop() {
    on_forgotten(|_| panic!("the hook itself"));
    ConcurrentProc::new(async |_: ()| Err::<(), _>("first")).call_and_forget(());
    let mut next = concurrently(async { 1 });
    assert_eq!(block_on(next.await_result()), Ok(1));
}

#[test]
fn a_destructor_that_panics_is_contained_and_reported() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("in a destructor");
        }
    }
    let reported = passed_to_hook();
    let mut evaluation = concurrently(async {
        let _panics = Panics;
        wait(Duration::from_secs(60)).await;
    });
    block_on(wait(NEXT_TURN));
    assert_eq!(evaluation.conclude_to(()), Ok(()));
    assert_eq!(block_on(evaluation.await_result()), Ok(()));
    assert_eq!(reported.take(), ["a forgotten evaluation panicked: in a destructor"]);
}
