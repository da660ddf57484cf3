//! Tests of evaluations with other threads, including tokio's.

use super::*;

use std::sync::mpsc;
use std::thread;

#[test]
fn a_handle_can_be_awaited_and_concluded_on_another_thread() {
    let (resumer, resumed) = resumption::<u32>();
    let mut doubled = concurrently(async move { resumed.await.unwrap() * 2 });
    let other = doubled.clone();
    let thread = thread::spawn(move || {
        assert_eq!(resumer.resume(4), Ok(()));
        block_on(other)
    });
    assert_eq!(block_on(doubled.await_result()), Ok(8));
    assert_eq!(thread.join().unwrap(), Ok(8));
}

#[test]
fn code_that_is_concluded_from_another_thread_is_dropped_on_its_own() {
    let (dropped, on) = mpsc::channel();
    struct TellsThread(mpsc::Sender<thread::ThreadId>);
    impl Drop for TellsThread {
        fn drop(&mut self) {
            self.0.send(thread::current().id()).unwrap();
        }
    }
    let guard = TellsThread(dropped);
    let mut evaluation = concurrently(async move {
        let _guard = guard;
        std::future::pending::<()>().await;
    });
    block_on(wait(NEXT_TURN));
    let other = evaluation.clone();
    thread::spawn(move || assert_eq!(other.conclude_to(()), Ok(()))).join().unwrap();
    assert_eq!(block_on(evaluation.await_result()), Ok(()));
    block_on(wait(NEXT_TURN));
    assert_eq!(on.try_recv(), Ok(thread::current().id()));
}

#[test]
fn evaluations_of_a_thread_that_ends_are_abandoned() {
    let thread = thread::spawn(|| {
        let waits = concurrently(std::future::pending::<()>());
        block_on(wait(NEXT_TURN));
        (waits, concurrently(async {}))
    });
    let (waits, scheduled) = thread.join().unwrap();
    assert_eq!(block_on(waits), Err(EvaluationError::Abandoned));
    assert_eq!(block_on(scheduled), Err(EvaluationError::Abandoned));
}

#[test]
fn an_event_loop_wakes_for_many_threads() {
    let count = if cfg!(miri) { 3 } else { 50 };
    let (resumers, evaluations): (Vec<_>, Vec<_>) = (0..count).map(|_| resumption()).unzip();
    let threads: Vec<_> = resumers
        .into_iter()
        .enumerate()
        .map(|(number, resumer)| thread::spawn(move || resumer.resume(number).is_ok()))
        .collect();
    let sum = block_on(async {
        let mut sum = 0;
        for evaluation in evaluations {
            sum += evaluation.await.unwrap();
        }
        sum
    });
    assert_eq!(sum, count * (count - 1) / 2);
    assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
}

#[cfg(not(miri))]
mod on_tokio {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(2).enable_all().build().expect("threads can be made")
    }

    #[test]
    fn the_four_ways_to_call_work() {
        let reported = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
        let log = reported.clone();
        on_forgotten_anywhere(move |failure| log.lock().push(failure.to_string()));
        runtime().block_on(async {
            let code = ConcurrentProc::on_tokio(async |time: u64| {
                if time > 0 {
                    wait(milliseconds(time)).await;
                }
                if time == 3 { Err(format!("failed after {time}")) } else { Ok(time) }
            });
            assert_eq!(code.call(1).await, Ok(1));
            assert!(matches!(code.call_nonblock(0), Called::Concluded(Ok(0))));
            assert_eq!(waiting(code.call_nonblock(2)).await, Ok(Ok(2)));
            let mut detached = code.call_detached(1);
            assert_eq!(detached.await_result_within(Duration::from_secs(60)).await, Ok(Ok(1)));
            code.call_and_forget(3);
            waiting(code.call_nonblock(3)).forget();
            while reported.lock().len() < 2 {
                wait(milliseconds(1)).await;
            }
        });
        assert_eq!(*reported.lock(), ["a forgotten evaluation failed: failed after 3"; 2]);
    }

    #[test]
    fn a_panic_is_contained_and_travels_to_whoever_awaits() {
        runtime().block_on(async {
            let evaluation = concurrently_on_tokio(async {
                wait(NEXT_TURN).await;
                panic!("on a worker")
            });
            let result: Result<(), _> = evaluation.await;
            assert_eq!(result, Err(EvaluationError::Panicked("on a worker".into())));
        });
    }

    #[test]
    fn an_evaluation_can_be_concluded_from_outside() {
        runtime().block_on(async {
            let (dropped, on_drop) = tokio::sync::oneshot::channel::<()>();
            let mut evaluation = concurrently_on_tokio(async move {
                let _dropped = dropped;
                std::future::pending().await
            });
            while !evaluation.is_waiting() {
                wait(NEXT_TURN).await;
            }
            assert_eq!(evaluation.conclude_to(6), Ok(()));
            assert_eq!(evaluation.await_result().await, Ok(6));
            assert!(on_drop.await.is_err(), "the code was dropped");
        });
    }

    #[test]
    fn evaluations_of_a_runtime_that_is_shut_down_are_abandoned() {
        let runtime = runtime();
        let guard = runtime.enter();
        let evaluation = concurrently_on_tokio(std::future::pending::<()>());
        drop(guard);
        drop(runtime);
        assert_eq!(block_on(evaluation), Err(EvaluationError::Abandoned));
    }

    #[test]
    fn a_thread_with_an_event_loop_awaits_what_runs_on_tokio() {
        let runtime = runtime();
        let _guard = runtime.enter();
        let far = ConcurrentProc::on_tokio(async |number: u32| {
            wait(milliseconds(2)).await;
            number + 1
        });
        let mut near = concurrently(async move {
            wait(milliseconds(1)).await;
            waiting(far.call_nonblock(1)).await.unwrap()
        });
        assert_eq!(block_on(near.await_result()), Ok(2));
    }
}
