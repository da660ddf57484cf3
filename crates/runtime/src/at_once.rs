//! Code that may block, and whether it gets a thread for it.
//!
//! A worker of the runtime that blocks passes its tasks on to another thread (`block_in_place`). Work that a
//! stage takes at once is known to be short: passing the tasks on costs more than the work. It also starts a
//! thread whenever the idle ones are slow to wake up, so a run had sixty threads where its plan has twenty.
//! So `blocking` just runs the code there.

use std::cell::Cell;

use tokio::runtime::{Handle, RuntimeFlavor};

thread_local! {
    /// True while this thread does work that a stage takes at once.
    static AT_ONCE: Cell<bool> = const { Cell::new(false) };
}

/// Runs code that may block the thread, such as reading a file, while the runtime's other tasks continue on
/// other threads. On a runtime with one thread, and in work that a stage takes at once, it just runs the
/// code.
pub fn blocking<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current() {
        Ok(handle) if handle.runtime_flavor() != RuntimeFlavor::CurrentThread && !AT_ONCE.get() => {
            tokio::task::block_in_place(work)
        }
        _ => work(),
    }
}

/// Waits for a future in code that is not asynchronous, such as a read of remote content. The runtime's other
/// tasks continue on other threads, also if this is work that a stage takes at once: it may take as long as
/// the network does.
pub fn wait_for<T>(runtime: &Handle, future: impl Future<Output = T>) -> T {
    match Handle::try_current() {
        Ok(handle) if handle.runtime_flavor() != RuntimeFlavor::CurrentThread => {
            tokio::task::block_in_place(|| runtime.block_on(future))
        }
        _ => runtime.block_on(future),
    }
}

/// Does the work of another stage, up to the first point where it has to wait.
pub(crate) fn at_once(work: impl FnOnce()) {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            AT_ONCE.set(self.0);
        }
    }
    let _before = Before(AT_ONCE.replace(true));
    work();
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Blocks until another task of the only worker has run. False if that task cannot run meanwhile.
    fn lets_others_run() -> bool {
        let (ran, has_run) = std::sync::mpsc::channel();
        tokio::spawn(async move { ran.send(()) });
        blocking(|| has_run.recv_timeout(std::time::Duration::from_millis(200)).is_ok())
    }

    #[test]
    fn only_work_that_is_not_taken_at_once_passes_the_worker_on() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let found = runtime.block_on(async {
            let task = tokio::spawn(async {
                let (mut within, mut thread) = (true, None);
                at_once(|| {
                    within = lets_others_run();
                    thread = Some(blocking(|| thread::current().id()));
                });
                let is_same = thread == Some(thread::current().id());
                // Last, because another thread is the worker afterwards.
                (within, is_same, AT_ONCE.get(), lets_others_run())
            });
            task.await.unwrap()
        });
        assert_eq!(found, (false, true, false, true));
    }

    /// A source has a thread of its own, a stage is a task.
    #[test]
    fn a_future_can_be_waited_for_in_work_that_is_taken_at_once() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let handle = runtime.handle().clone();
        let work = move || {
            let mut found = 0;
            at_once(|| found = wait_for(&handle, tokio::spawn(async { 7 })).unwrap());
            found
        };
        let of_source = work.clone();
        assert_eq!(runtime.block_on(async move { of_source() }), 7);
        assert_eq!(runtime.block_on(async { tokio::spawn(async move { work() }).await.unwrap() }), 7);
    }
}
