//! Runtimes that last as long as a thread uses them.
//!
//! A run that ends at once may leave a thread behind that is blocked in a call of the system, such as a write
//! to a full disk. When the call returns, the code behind it may wait for a timer or a socket of the runtime
//! before anything can tell it that the run is over. tokio panics there if the runtime has shut down. A
//! thread that may block is therefore a [`User`] of its runtime, and [`end`] leaves the shutdown to the last
//! user. (Rejected: to ask before each timer whether the run is over. Libraries have timers too.)

use std::collections::HashMap;
use std::sync::LazyLock;

use parking_lot::Mutex;
use tokio::runtime::{Handle, Id, Runtime};

/// The runtimes that have users.
static USED: LazyLock<Mutex<HashMap<Id, Used>>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Used {
    users: usize,
    /// The runtime, if it is to shut down after its last user.
    over: Option<Runtime>,
}

/// Keeps a runtime from shutting down.
#[derive(Debug)]
pub struct User(Id);

impl User {
    /// Creates a user of a runtime. A thread that uses it must have it from its start to its end.
    pub fn of(runtime: &Handle) -> Self {
        let id = runtime.id();
        USED.lock().entry(id).or_default().users += 1;
        Self(id)
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let mut all = USED.lock();
        let Some(used) = all.get_mut(&self.0) else { return };
        used.users = used.users.saturating_sub(1);
        let is_last = used.users == 0;
        let over = if is_last { all.remove(&self.0).and_then(|used| used.over) } else { None };
        drop(all);
        if let Some(runtime) = over {
            runtime.shutdown_background();
        }
    }
}

/// Shuts a runtime down without waiting for its threads: now, or after its last user.
pub fn end(runtime: Runtime) {
    let mut all = USED.lock();
    if let Some(used) = all.get_mut(&runtime.handle().id()) {
        used.over = Some(runtime);
        return;
    }
    drop(all);
    runtime.shutdown_background();
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use tokio::runtime::Builder;

    use super::*;

    /// It panicked: "A Tokio 1.x context was found, but it is being shutdown."
    #[test]
    fn a_thread_that_was_blocked_at_the_end_of_its_run_may_wait_for_a_timer() {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (handle, id) = (runtime.handle().clone(), runtime.handle().id());
        let (release, blocked) = mpsc::channel::<()>();
        let user = User::of(&handle);
        let other = User::of(&handle);
        let thread = thread::spawn(move || {
            handle.block_on(async move {
                let _ = blocked.recv();
                tokio::time::sleep(Duration::from_millis(1)).await;
            });
            drop(user);
        });
        end(runtime);
        drop(other);
        release.send(()).unwrap();
        thread.join().unwrap();
        assert!(!USED.lock().contains_key(&id), "it has shut down");
    }

    #[test]
    fn the_last_user_may_be_a_task_of_the_runtime() {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (release, blocked) = mpsc::channel::<()>();
        let (tell, ended) = mpsc::channel();
        let user = User::of(runtime.handle());
        runtime.spawn(async move {
            let _ = blocked.recv();
            tokio::time::sleep(Duration::from_millis(1)).await;
            drop(user);
            let _ = tell.send(());
        });
        end(runtime);
        release.send(()).unwrap();
        assert!(ended.recv().is_ok());
    }
}
